//! Scenario files: what a user writes, checked whole before anything runs, and made into a plan.

mod expand;
mod rules;
mod schema;
mod tables;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use self::expand::Expanded;
use self::rules::TrendTable;
pub(crate) use self::schema::schema;
pub(crate) use self::tables::case_name;
use self::tables::{CaseTable, InstrumentTable, QuickTable};
use crate::toml_file;
use record::plan::{Case, Order, Plan};

const DEFAULT_SEED: u64 = 1;
/// What every case has unless it says otherwise.
const DEFAULTS: [&str; 3] = ["bed", "tcp", "repeats"];

/// A scenario as its file has it, but for its cases, which are read once they are whole.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScenarioFile {
    name: String,
    title: String,
    seed: Option<u64>,
    #[serde(default)]
    order: Order,
    reference: Option<Spanned<String>>,
    #[serde(default)]
    quick: QuickTable,
    instruments: Vec<InstrumentTable>,
    #[serde(default)]
    trends: Vec<Spanned<TrendTable>>,
}

/// The text of the scenario in `file`, and the plan that it stands for; `quick` shortens it.
///
/// # Errors
/// One that names the file, the line and the key.
pub(crate) fn read(file: &Path, quick: bool) -> Result<(String, Plan)> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("{}: cannot read", file.display()))?;
    let plan = parse(&file.display().to_string(), &text, quick)?;
    Ok((text, plan))
}

/// The plan in `text`, which came from `file`.
///
/// # Errors
/// As [`read`].
pub(crate) fn parse(file: &str, text: &str, quick: bool) -> Result<Plan> {
    let place = SourceFile { file, text };
    let mut whole = DeTable::parse(text).map_err(|error| place.explain(&error))?;
    let root = whole.get_mut();
    let cases = place.array(root, "cases")?;
    let bases = place.table(root, "bases")?;
    let defaults: DeTable<'_> = DEFAULTS
        .iter()
        .filter_map(|key| root.remove_entry(*key))
        .collect();
    let scenario: ScenarioFile = place.read(whole)?;
    let mut tables = Vec::new();
    for mut expanded in expand::expand(place, cases, &bases)? {
        expand::fill(expanded.table.get_mut(), defaults.clone());
        tables.push(place.case(expanded)?);
    }
    place.check(&scenario, &tables)?;
    let resolve = |(table, axes): &(CaseTable, Axes)| {
        let at = place.at(&table.name, &format!("case `{}`", table.name.as_ref()));
        let case = table.resolve(&scenario.instruments, axes, quick, &scenario.quick);
        case.context(at)
    };
    let resolved: Vec<Case> = tables.iter().map(resolve).collect::<Result<_>>()?;
    for (case, (table, _)) in resolved.iter().zip(&tables) {
        let at = || place.at(&table.name, &format!("case `{}`: expect", case.name));
        rules::check(case, scenario.reference.is_some()).with_context(at)?;
    }
    let groups = groups(&resolved, &tables);
    place.refuse_duplicates(
        "cases",
        resolved
            .iter()
            .zip(&tables)
            .map(|(case, (table, _))| (case.name.as_str(), table.name.span().start)),
    )?;
    let trend = |table: &Spanned<TrendTable>| {
        let trend = table.as_ref().resolve(&groups);
        trend.with_context(|| place.at(table, "trends"))
    };
    Ok(Plan {
        quick,
        seed: scenario.seed.unwrap_or(DEFAULT_SEED),
        order: scenario.order,
        reference: scenario
            .reference
            .map(|reference| place.reference(&reference, &resolved))
            .transpose()?,
        trends: scenario.trends.iter().map(trend).collect::<Result<_>>()?,
        cases: resolved,
        name: scenario.name,
        title: scenario.title,
    })
}

/// What a sweep set in a case.
type Axes = Vec<(String, String)>;

/// The names of the cases that each name of the file stands for: one, or those of a sweep in order.
fn groups(cases: &[Case], tables: &[(CaseTable, Axes)]) -> BTreeMap<String, Vec<String>> {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (case, (table, _)) in cases.iter().zip(tables) {
        let names = groups.entry(table.name.as_ref().clone()).or_default();
        names.push(case.name.clone());
        if case.name != *table.name.as_ref() {
            groups.insert(case.name.clone(), vec![case.name.clone()]);
        }
    }
    groups
}

/// Where a text came from, for errors.
#[derive(Clone, Copy, Debug)]
struct SourceFile<'a> {
    file: &'a str,
    text: &'a str,
}

impl SourceFile<'_> {
    fn at<T>(&self, spot: &Spanned<T>, what: &str) -> String {
        format!("{}: {what}", self.line_at(spot.span().start))
    }

    fn line_at(&self, offset: usize) -> String {
        format!("{}:{}", self.file, toml_file::line_of(self.text, offset))
    }

    fn explain(&self, error: &toml::de::Error) -> anyhow::Error {
        toml_file::explain(self.file, self.text, error)
    }

    fn read<'t, T: Deserialize<'t>>(&self, table: Spanned<DeTable<'t>>) -> Result<T> {
        let from = toml::de::Deserializer::from(table);
        T::deserialize(from).map_err(|error| self.explain(&error))
    }

    fn case(&self, expanded: Expanded<'_>) -> Result<(CaseTable, Axes)> {
        let Expanded { table, axes } = expanded;
        Ok((self.read(table)?, axes))
    }

    /// Takes an array out of `root`.
    fn array<'t>(&self, root: &mut DeTable<'t>, key: &str) -> Result<DeArray<'t>> {
        let Some(value) = root.remove(key) else {
            bail!("{}: {key}: there is none", self.file);
        };
        let at = self.at(&value, key);
        match value.into_inner() {
            DeValue::Array(array) => Ok(array),
            other => bail!("{at}: must be tables, not a {}", other.type_str()),
        }
    }

    /// Takes a table out of `root`; an empty one if it is not there.
    fn table<'t>(&self, root: &mut DeTable<'t>, key: &str) -> Result<DeTable<'t>> {
        let Some(value) = root.remove(key) else {
            return Ok(DeTable::new());
        };
        let at = self.at(&value, key);
        match value.into_inner() {
            DeValue::Table(table) => Ok(table),
            other => bail!("{at}: must be a table, not a {}", other.type_str()),
        }
    }

    /// What only the whole file can show to be wrong.
    fn check(&self, scenario: &ScenarioFile, cases: &[(CaseTable, Axes)]) -> Result<()> {
        ensure!(!cases.is_empty(), "{}: cases: there is none", self.file);
        ensure!(
            !scenario.instruments.is_empty(),
            "{}: instruments: there is none",
            self.file
        );
        self.refuse_duplicates(
            "instruments",
            scenario
                .instruments
                .iter()
                .map(|i| (i.name.as_ref().as_str(), i.name.span().start)),
        )?;
        for instrument in &scenario.instruments {
            let name = instrument.name.as_ref();
            ensure!(
                !name.is_empty() && !name.contains(['.', ' ']),
                "{}: a name has neither dots nor spaces",
                self.at(&instrument.name, &format!("instrument `{name}`"))
            );
        }
        Ok(())
    }

    /// The one case that `reference` names.
    fn reference(&self, reference: &Spanned<String>, cases: &[Case]) -> Result<String> {
        let name = reference.as_ref();
        if cases.iter().any(|case| case.name == *name) {
            return Ok(name.clone());
        }
        let known: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        bail!(
            "{}: there is no case `{name}`; there are: {}",
            self.at(reference, "reference"),
            known.join(", ")
        );
    }

    fn refuse_duplicates<'n>(
        &self,
        key: &str,
        names: impl Iterator<Item = (&'n str, usize)>,
    ) -> Result<()> {
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for (name, offset) in names {
            if let Some(first) = seen.insert(name, offset) {
                bail!(
                    "{}: {key}: name: `{name}` is taken already, by line {}",
                    self.line_at(offset),
                    toml_file::line_of(self.text, first)
                );
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
