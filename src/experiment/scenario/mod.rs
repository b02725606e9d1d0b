//! Scenario files: a file is checked completely before anything runs, and then becomes a plan.

mod comparisons;
mod expand;
mod expectations;
mod repeats;
mod schema;
mod tables;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use self::comparisons::CompareTable;
use self::expand::ExpandedCase;
use self::expectations::TrendTable;
pub(crate) use self::repeats::repeat_each;
pub(crate) use self::schema::schema;
pub(crate) use self::tables::case_name;
use self::tables::{CaseTable, InstrumentTable, QuickTable};
use crate::experiment::{Case, Plan};
use crate::named_files::NamedFiles;
use crate::toml_file::{Below, SourceFile, text_of};
use conditions::{nearest, require};
use record::lateness::LateBudget;
use record::plan::{Order, RequestedComparisons, check_experiment_name, check_instrument_name};

const DEFAULT_SEED: u64 = 1;
/// The keys of the file that apply to every case unless the case sets them.
const DEFAULTS: [&str; 3] = ["bed", "tcp", "repeats"];

/// A scenario as its file has it, without its cases, which are read once their bases and sweeps are
/// applied.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScenarioFile {
    name: String,
    title: Option<String>,
    seed: Option<u64>,
    #[serde(default)]
    order: Order,
    #[serde(default)]
    late_budget: LateBudget,
    reference: Option<String>,
    #[serde(default)]
    quick: QuickTable,
    instruments: Vec<InstrumentTable>,
    #[serde(default)]
    trends: Vec<TrendTable>,
    compare: Option<CompareTable>,
    #[serde(rename = "cases")]
    _cases: Option<RemovedKey>,
    #[serde(rename = "bases")]
    _bases: Option<RemovedKey>,
    #[serde(rename = "bed")]
    _bed: Option<RemovedKey>,
    #[serde(rename = "tcp")]
    _tcp: Option<RemovedKey>,
    #[serde(rename = "repeats")]
    _repeats: Option<RemovedKey>,
}

/// A key that is removed from a table before the table is read. It is listed so that an error about
/// an unknown key can name it among the known keys.
type RemovedKey = IgnoredAny;

/// A complete case: its fields, and the place of each value in the file.
struct WholeCase<'t> {
    expanded: ExpandedCase<'t>,
    table: CaseTable,
}

/// Reads the scenario in `file` and returns its text and its plan; `quick` shortens the plan. The
/// scenario may name files below its own directory, and those of `also`.
///
/// # Errors
/// The error names the file, the line and the key.
pub(crate) fn read(file: &Path, also: &NamedFiles, quick: bool) -> Result<(String, Plan)> {
    let text = text_of(file)?;
    let source = SourceFile {
        file: &file.display().to_string(),
        text: &text,
        also,
    };
    let plan = parse(source, quick)?;
    Ok((text, plan))
}

/// Reads the plan in `source`.
///
/// # Errors
/// Fails as [`read`] does.
pub(crate) fn parse(source: SourceFile<'_>, quick: bool) -> Result<Plan> {
    let whole = source.parse()?;
    let mut root = whole.get_ref().clone();
    let cases = take_tables(source, &mut root, "cases")?;
    let bases = take_bases(source, &mut root)?;
    let defaults: DeTable<'_> = DEFAULTS
        .iter()
        .filter_map(|key| root.remove_entry(*key))
        .collect();
    let scenario: ScenarioFile = source.read(&Spanned::new(whole.span(), root))?;
    let refused = |error: anyhow::Error| source.refusal(&whole, "", error);
    scenario.check(source).map_err(refused)?;
    let mut all = Vec::new();
    for mut expanded in expand::expand(source, cases, &bases)? {
        expand::fill(expanded.table.get_mut(), defaults.clone());
        let table = source.read(&expanded.table)?;
        all.push(WholeCase { expanded, table });
    }
    ensure!(
        !all.is_empty(),
        "{}: cases: the scenario has no cases",
        source.file
    );
    let resolved: Vec<Case> = all
        .iter()
        .map(|case| {
            let table = &case.table;
            let axes = &case.expanded.axes;
            let resolved =
                table.resolve(source, &scenario.instruments, axes, quick, &scenario.quick);
            let checked = resolved.and_then(|case| {
                expectations::check(&case, scenario.reference.is_some(), quick)?;
                Ok(case)
            });
            checked.map_err(|error| case.refusal(source, error))
        })
        .collect::<Result<_>>()?;
    refuse_duplicates(source, &resolved, &all)?;
    let groups = groups(&resolved, &all);
    let trends = scenario
        .trends
        .iter()
        .enumerate()
        .map(|(index, trend)| {
            let trend = trend.resolve(&groups, &resolved, quick);
            trend.below_item("trends", index)
        })
        .collect::<Result<_>>()
        .map_err(refused)?;
    if let Some(name) = &scenario.reference {
        let reference = reference(name, &resolved).map_err(refused)?;
        for (case, whole) in resolved.iter().zip(&all) {
            let checked = expectations::check_reference_runs(case, reference, quick);
            checked.map_err(|error| whole.refusal(source, error))?;
        }
    }
    let mut plan = Plan {
        by_flow: false,
        shard: None,
        quick,
        seed: scenario.seed.unwrap_or(DEFAULT_SEED),
        order: scenario.order,
        late_budget: scenario.late_budget,
        reference: scenario.reference,
        trends,
        compare: RequestedComparisons::default(),
        cases: resolved,
        title: scenario.title.unwrap_or_else(|| scenario.name.clone()),
        name: scenario.name,
    };
    plan.check_runs().map_err(|error| refused(error.into()))?;
    if let Some(compare) = &scenario.compare {
        refuse_shared_names(&all).map_err(refused)?;
        plan.compare = compare.resolve(&plan, quick).map_err(refused)?;
    }
    Ok(plan)
}

impl WholeCase<'_> {
    /// Adds to an error of this case the place of the key that it is about, or otherwise of the
    /// case's name.
    fn refusal(&self, source: SourceFile<'_>, error: anyhow::Error) -> anyhow::Error {
        let table = &self.expanded.table;
        let name = self.table.name.as_str();
        let table = Spanned::new(self.name_span(), table.get_ref().clone());
        source.refusal(&table, &format!("case `{name}`: "), error)
    }

    fn name_span(&self) -> Range<usize> {
        let table = &self.expanded.table;
        let name = table.get_ref().get("name").map(Spanned::span);
        name.unwrap_or_else(|| table.span())
    }
}

impl ScenarioFile {
    /// Makes the checks that need the whole file.
    fn check(&self, source: SourceFile<'_>) -> Result<()> {
        check_experiment_name(&self.name)?;
        if self.quick.repeats == Some(0) {
            return Err(conditions::Error::other("at least 1"))
                .below("repeats")
                .below("quick");
        }
        require!(!self.instruments.is_empty(), "instruments": "there is none");
        for (index, instrument) in self.instruments.iter().enumerate() {
            let check = || {
                let name = instrument.name();
                check_instrument_name(name)?;
                let mut before = self.instruments[..index].iter();
                require!(
                    before.all(|other| other.name() != name),
                    "name": "two instruments have the name `{name}`: give each its own name"
                );
                instrument.check(source)
            };
            check().below_item("instruments", index)?;
        }
        Ok(())
    }
}

/// Returns, for each name in the file, the names of its cases: one case, or those of a sweep in
/// order.
fn groups(cases: &[Case], all: &[WholeCase<'_>]) -> BTreeMap<String, Vec<String>> {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (case, whole) in cases.iter().zip(all) {
        let names = groups.entry(whole.table.name.clone()).or_default();
        names.push(case.name.clone());
        if case.name != whole.table.name {
            groups.insert(case.name.clone(), vec![case.name.clone()]);
        }
    }
    groups
}

fn refuse_duplicates(source: SourceFile<'_>, cases: &[Case], all: &[WholeCase<'_>]) -> Result<()> {
    let mut offsets: HashMap<&str, usize> = HashMap::new();
    for (case, whole) in cases.iter().zip(all) {
        let offset = whole.name_span().start;
        if let Some(first) = offsets.insert(&case.name, offset) {
            bail!(
                "{}: cases: name: `{}` is already used in line {}",
                source.at(offset),
                case.name,
                source.line(first)
            );
        }
    }
    Ok(())
}

/// Refuses two entries of `cases` with one name. Their cases would count as those of one sweep, which
/// differ in nothing but the swept fields.
fn refuse_shared_names(all: &[WholeCase<'_>]) -> Result<()> {
    let mut entries: HashMap<&str, usize> = HashMap::new();
    for whole in all {
        let (name, entry) = (whole.table.name.as_str(), whole.expanded.table.span().start);
        let is_same = *entries.entry(name).or_insert(entry) == entry;
        require!(
            is_same,
            "compare": "two of [[cases]] have the name `{name}`: give each its own name, because cases of one name are compared as one sweep"
        );
    }
    Ok(())
}

/// Returns the case that `reference` names.
///
/// # Errors
/// Fails if there is no such case.
fn reference<'c>(name: &str, cases: &'c [Case]) -> Result<&'c Case> {
    let found = cases
        .iter()
        .find(|case| case.name == name)
        .with_context(|| {
            let known = cases.iter().map(|case| case.name.as_str());
            format!("there is no case `{name}`{}", nearest::or_all(name, known))
        });
    found.below("reference")
}

/// Removes the tables of `key` from `root` and returns them.
fn take_tables<'t>(
    source: SourceFile<'_>,
    root: &mut DeTable<'t>,
    key: &str,
) -> Result<DeArray<'t>> {
    let Some(value) = root.remove(key) else {
        bail!(
            "{}: {key}: the scenario has none: add [[{key}]]",
            source.file
        );
    };
    let at = source.at(value.span().start);
    match value.into_inner() {
        DeValue::Array(array) => Ok(array),
        DeValue::Table(_) => {
            bail!("{at}: {key}: write [[{key}]], not [{key}], because it is a list")
        }
        other => bail!(
            "{at}: {key}: must be tables, [[{key}]], not a {}",
            other.type_str()
        ),
    }
}

/// Removes `bases` from `root` and returns it, or an empty table if it does not exist.
fn take_bases<'t>(source: SourceFile<'_>, root: &mut DeTable<'t>) -> Result<DeTable<'t>> {
    let Some(value) = root.remove("bases") else {
        return Ok(DeTable::new());
    };
    let at = source.at(value.span().start);
    match value.into_inner() {
        DeValue::Table(table) => Ok(table),
        other => bail!(
            "{at}: bases: must be tables, [bases.NAME], not a {}",
            other.type_str()
        ),
    }
}

#[cfg(test)]
mod tests;
