//! `compare` of a scenario file: the swept fields whose values are compared.

use std::fmt;

use anyhow::{Result, bail, ensure};
use schemars::JsonSchema;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::expectations::check_figure;
use crate::experiment::{Case, Plan};
use crate::toml_file::Below;
use conditions::{nearest, require};
use record::case_pairs::{CasePair, MOST_COMPARISONS};
use record::figure_name::FigureName;
use record::plan::RequestedComparisons;
use record::quantity::counted;
use record::swept::SweptField;
use stats::contrast;

/// The swept fields to compare: a list of their names, or a table with the figures too.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(untagged)]
pub(super) enum CompareTable {
    Fields(Vec<String>),
    Figures(CompareFiguresTable),
}

/// The swept fields to compare, and the figures in which they are compared.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CompareFiguresTable {
    /// The names of swept fields: the last part of their paths, or more of it.
    by: Vec<String>,
    /// The figures; the first main figure of each instrument when absent.
    #[serde(default)]
    of: Vec<FigureName>,
}

struct CompareVisitor;

impl<'de> Visitor<'de> for CompareVisitor {
    type Value = CompareTable;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of swept fields, or { by, of }")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, list: S) -> Result<CompareTable, S::Error> {
        let names = Vec::deserialize(SeqAccessDeserializer::new(list))?;
        Ok(CompareTable::Fields(names))
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<CompareTable, M::Error> {
        let table = CompareFiguresTable::deserialize(MapAccessDeserializer::new(map))?;
        Ok(CompareTable::Figures(table))
    }
}

/// Written by hand, because serde's `untagged` would hide the place of a wrong value in the file.
impl<'de> Deserialize<'de> for CompareTable {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_any(CompareVisitor)
    }
}

impl CompareTable {
    /// Converts the table to the comparisons of `plan`, which has its cases.
    ///
    /// # Errors
    /// Fails if a field is not swept, if no two cases differ in a field alone, if a case has too few
    /// repeats or lacks a figure, or if there are too many comparisons. With `quick`, any number of
    /// repeats is accepted: a shortened experiment shows what it does, not what differs.
    pub(super) fn resolve(&self, plan: &Plan, quick: bool) -> Result<RequestedComparisons> {
        let (names, figures) = match self {
            Self::Fields(names) => (names, &[][..]),
            Self::Figures(table) => (&table.by, &table.of[..]),
        };
        require!(!names.is_empty(), "compare": "name at least one swept field");
        let mut by = Vec::new();
        let mut pairs = Vec::new();
        for (index, name) in names.iter().enumerate() {
            let mut add = || {
                let path = path(plan, name)?;
                ensure!(!by.contains(&path), "{path} is named twice");
                pairs.extend(pairs_by(plan, &path, quick)?);
                by.push(path);
                Ok::<_, anyhow::Error>(())
            };
            match self {
                Self::Fields(_) => add().below_item("compare", index)?,
                Self::Figures(_) => add().below_item("by", index).below("compare")?,
            }
        }
        for (index, of) in figures.iter().enumerate() {
            let mut cases = pairs.iter().flat_map(|pair| pair.cases);
            let checked = cases.try_for_each(|at| check_figure(&plan.cases[at], of));
            checked.below_item("of", index).below("compare")?;
        }
        let comparisons = pairs.len() * figures.len().max(1);
        require!(
            comparisons <= MOST_COMPARISONS,
            "compare": "{comparisons} comparisons: at most {MOST_COMPARISONS}"
        );
        Ok(RequestedComparisons {
            by,
            of: figures.to_vec(),
        })
    }
}

/// Returns the path of the swept field that a scenario calls `name`: the whole path or its end.
fn path(plan: &Plan, name: &str) -> Result<String> {
    let fields = plan.swept_fields();
    let is_meant = |field: &&SweptField<'_>| {
        let before = field.path.strip_suffix(name);
        before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
    };
    let exact = fields.iter().find(|field| field.path == name);
    let meant: Vec<&str> = match exact {
        Some(field) => vec![field.path],
        None => fields
            .iter()
            .filter(is_meant)
            .map(|field| field.path)
            .collect(),
    };
    match meant[..] {
        [only] => Ok(only.to_owned()),
        [] => {
            let known = nearest::or_all(name, fields.iter().map(|field| field.name));
            bail!("no sweep sets `{name}`{known}")
        }
        [..] => bail!(
            "several swept fields end in `{name}`: write more of the path, as in {}",
            meant.join(" or ")
        ),
    }
}

/// Returns the pairs of cases that differ in the field at `path`.
fn pairs_by<'p>(plan: &'p Plan, path: &str, quick: bool) -> Result<Vec<CasePair<'p>>> {
    let pairs = plan.pairs_by(path)?.pairs;
    ensure!(
        !pairs.is_empty(),
        "no two cases of a sweep differ in {path} alone: give it two values or more"
    );
    for case in pairs.iter().flat_map(|pair| pair.cases) {
        let Case { name, repeats, .. } = &plan.cases[case];
        ensure!(
            quick || repeats.least as usize >= contrast::FEWEST,
            "a comparison needs at least {} repeats; case `{name}` has {}",
            contrast::FEWEST,
            counted(repeats.least, "run")
        );
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{parse, refusal_of};
    use super::*;

    /// A sweep of two congestion controls, two delays and two losses, with these keys at its top.
    fn sweep(keys: &str) -> String {
        format!(
            "name = 'x'\nrepeats = 5\n{keys}\n[[instruments]]\nname = 'load'\nkind = 'tcp'\n\
             [[cases]]\nname = 'grid'\n\
             [[cases.sweep]]\n'tcp.congestion' = ['cubic', 'reno']\n\
             [[cases.sweep]]\n'link.up.loss' = ['0%', '1%']\n\
             [[cases.sweep]]\n'link.down.loss' = ['0%', '1%']\n"
        )
    }

    fn request(keys: &str) -> RequestedComparisons {
        parse("x.toml", &sweep(keys), false).unwrap().compare
    }

    #[test]
    fn a_field_is_named_by_the_end_of_its_path() {
        for keys in [
            "compare = ['congestion']",
            "compare = ['tcp.congestion']",
            "compare = { by = ['congestion'] }",
        ] {
            let RequestedComparisons { by, of } = request(keys);
            assert_eq!(by, ["tcp.congestion"], "{keys}");
            assert!(of.is_empty(), "{keys}");
        }
        let both = request("compare = ['down.loss', 'congestion']");
        assert_eq!(both.by, ["link.down.loss", "tcp.congestion"]);
        assert_eq!(request(""), RequestedComparisons::default());
    }

    #[test]
    fn figures_can_be_chosen() {
        let keys = "compare = { by = ['congestion'], of = ['load.retransmitted_packets.total'] }";
        let of: Vec<String> = request(keys).of.iter().map(ToString::to_string).collect();
        assert_eq!(of, ["load.retransmitted_packets.total"]);
    }

    #[test]
    fn a_wrong_comparison_is_refused_with_its_line() {
        for (keys, cause) in [
            (
                "compare = ['loss']",
                "compare 1: several swept fields end in `loss`: write more of the path, as in link.up.loss or link.down.loss",
            ),
            (
                "compare = ['congestion', 'tcp.congestion']",
                "compare 2: tcp.congestion is named twice",
            ),
            (
                "compare = ['congestoin']",
                "compare 1: no sweep sets `congestoin`; did you mean `congestion`?",
            ),
            (
                "compare = { by = ['congestion'], of = ['ping.rtt_ms.median'] }",
                "compare: of 1: the case has no instrument `ping`",
            ),
        ] {
            let error = refusal_of(&sweep(keys));
            assert!(error.starts_with(&format!("x.toml:3: {cause}")), "{error}");
        }
    }

    #[test]
    fn cases_of_one_name_are_not_taken_for_one_sweep() {
        let more = "[[cases]]\nname = 'grid'\nlink = { rate = '1mbit' }\n\
                    sweep = { 'tcp.congestion' = ['cubic', 'reno'] }\n";
        let error = refusal_of(&(sweep("compare = ['congestion']") + more));
        let cause = "x.toml:3: compare: two of [[cases]] have the name `grid`";
        assert!(error.starts_with(cause), "{error}");
    }

    #[test]
    fn too_few_repeats_are_refused_unless_the_experiment_is_shortened() {
        let text = sweep("compare = ['congestion']\n[quick]\nrepeats = 1");
        assert!(parse("x.toml", &text, true).is_ok());
        let few = text.replace("repeats = 5", "repeats = 3");
        let error = refusal_of(&few);
        let cause =
            "compare 1: a comparison needs at least 4 repeats; case `grid[congestion=cubic, ";
        assert!(
            error.contains(cause) && error.ends_with("has 3 runs"),
            "{error}"
        );
    }
}
