//! Compares records that differ on purpose in one field of their cases, such as the congestion control.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use conditions::require;
use serde::Serialize;

pub use super::alike::DifferingField;
use super::alike::{check_cases, check_length};
use super::field_comparison::{
    ComparedPair, FieldComparison, NotCompared, PairOfCases, Question, judge,
};
use super::record_comparison::hosts;
use super::{Analysis, CaseFigures};
use crate::case_conditions;
use crate::error::Result;
use crate::field_words::{FieldValue, Shared, listed};
use record::Record;
use record::case_pairs::MOST_COMPARISONS;
use record::figure_name::FigureName;
use record::plan::{Case, RecordedArguments};
use stats::contrast::{self, ContrastScale};

/// A record and the name that a comparison gives it.
#[derive(Clone, Debug)]
pub struct NamedRecord {
    /// The name, such as the path of its directory.
    pub name: String,
    /// The record.
    pub record: Record,
}

/// The comparison of records that differ in one field.
#[derive(Clone, Debug)]
pub struct ComparisonBy {
    /// The field.
    pub field: DifferingField,
    /// The comparison of each figure, with a pair for each case and each two records.
    pub(crate) all: Vec<FieldComparison>,
    /// Sentences about differences between the machines, unfinished records and different names of scenarios.
    pub(crate) remarks: Vec<String>,
    /// Sentences about cases that were not compared because a record lacks them.
    pub(crate) missing: Vec<String>,
}

/// A pair of values for programs.
#[derive(Clone, Debug, Serialize)]
pub struct ComparisonRow {
    /// The field in which the records differ on purpose.
    pub by: &'static str,
    /// The names of the records. The second one is compared with the first.
    pub records: [String; 2],
    /// The name of the case.
    pub case: Option<String>,
    /// The name of the figure.
    pub figure: String,
    /// The unit of the figure.
    pub unit: &'static str,
    /// The values of the field in both.
    pub values: [String; 2],
    /// The means over the runs, in the figure's unit; null without the figure.
    pub means: [Option<f64>; 2],
    /// The numbers of runs.
    pub runs: [usize; 2],
    /// The ratio of the geometric means; null if they are compared by their difference, or not at all.
    pub ratio: Option<f64>,
    /// The interval of the ratio, which holds together with all others.
    pub ratio_interval: Option<[f64; 2]>,
    /// The difference between the means; null if they are compared by their ratio, or not at all.
    pub difference: Option<f64>,
    /// The interval of the difference, which holds together with all others.
    pub difference_interval: Option<[f64; 2]>,
    /// The p-value, adjusted for all comparisons.
    pub p: Option<f64>,
    /// "higher", "lower" or "none"; null if nothing was compared.
    pub found: Option<&'static str>,
    /// The reason why nothing was compared.
    pub cannot_tell: Option<ReasonRow>,
}

/// The reason why two values were not compared, for programs.
#[derive(Clone, Debug, Serialize)]
pub struct ReasonRow {
    /// "too-few-runs", "faulty", "missing", "lower-bound" or "out-of-range".
    pub cause: &'static str,
    /// The number of runs that are enough, if there are too few.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enough: Option<usize>,
    /// The record at fault, if it is one of the two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

impl ComparisonBy {
    /// Compares every two of `records` in the figures that `wanted` selects.
    ///
    /// # Errors
    /// Cases of the same name differ in something other than the field, or no case differs in the field, or there are
    /// too many comparisons.
    pub fn of(
        records: &[NamedRecord],
        field: DifferingField,
        wanted: impl Fn(&Record, &FigureName) -> bool,
    ) -> Result<Self> {
        for (later, second) in records.iter().enumerate() {
            for first in &records[..later] {
                check_length(&first.record, &second.record)?;
                check_cases(&first.record, &second.record, Some(field))?;
            }
        }
        let analyses: Vec<Analysis<'_>> = records
            .iter()
            .map(|one| Analysis::of(&one.record))
            .collect();
        let mut missing = Vec::new();
        let mut cases: Vec<PairInRecords<'_>> = Vec::new();
        for (later, second) in analyses.iter().enumerate() {
            for (earlier, first) in analyses[..later].iter().enumerate() {
                let names = [earlier, later].map(|at| records[at].name.as_str());
                let [added, lacking] =
                    [[second, first], [first, second]].map(|[from, of]| lacking(from, of));
                missing.extend(
                    added
                        .iter()
                        .map(|case| format!("{case}: not in {}", names[0])),
                );
                missing.extend(
                    lacking
                        .iter()
                        .map(|case| format!("{case}: not in {}", names[1])),
                );
                let different = first.cases.iter().filter_map(|old| {
                    let both = [old, second.case(old.name())?];
                    let pair = PairInRecords { names, cases: both };
                    differs(field, both.map(|one| one.case)).then_some(pair)
                });
                cases.extend(different);
            }
        }
        require!(
            !cases.is_empty(),
            "no two records differ in the {} of a case",
            field.words()
        );
        let is_wanted = |name: &FigureName| records.iter().any(|one| wanted(&one.record, name));
        let figures: BTreeSet<&FigureName> = cases
            .iter()
            .flat_map(|pair| pair.cases)
            .flat_map(|case| case.figures.keys())
            .filter(|name| is_wanted(name))
            .collect();
        let count = figures.len().saturating_mul(cases.len());
        require!(
            count <= MOST_COMPARISONS,
            "{count} comparisons: at most {MOST_COMPARISONS}"
        );
        let question = |figure: &FigureName| Question {
            path: field.name().to_owned(),
            field: field.words().to_owned(),
            together: Vec::new(),
            figure: figure.clone(),
            pairs: cases.iter().map(|pair| pair.asked(field, figure)).collect(),
        };
        let questions = figures.iter().map(|figure| question(figure)).collect();
        Ok(Self {
            field,
            all: judge(questions),
            remarks: remarks(records),
            missing,
        })
    }

    /// Returns the number of comparisons that could not be made, with cases that a record lacks.
    pub fn not_made(&self) -> usize {
        let pairs = self.all.iter().flat_map(|one| &one.pairs);
        pairs.filter(|pair| pair.outcome.is_err()).count() + self.missing.len()
    }

    /// Returns all pairs for programs.
    pub fn rows(&self) -> Vec<ComparisonRow> {
        let mut rows = Vec::new();
        for one in &self.all {
            let pairs = one.pairs.iter();
            rows.extend(pairs.map(|pair| row(self.field, &one.figure, pair)));
        }
        rows
    }
}

/// A case in two records.
struct PairInRecords<'a> {
    names: [&'a str; 2],
    cases: [&'a CaseFigures<'a>; 2],
}

impl<'a> PairInRecords<'a> {
    fn asked(&self, field: DifferingField, figure: &FigureName) -> PairOfCases<'a> {
        let case = self.cases[0].name().to_owned();
        PairOfCases {
            shared: Shared::of(Some(case), &[]),
            values: values(field, self.cases.map(|one| one.case), figure, self.names),
            sources: self.names.map(str::to_owned),
            cases: self.cases,
        }
    }
}

/// Returns the names of the cases of `from` that `of` lacks.
fn lacking<'a>(from: &Analysis<'a>, of: &Analysis<'_>) -> Vec<&'a str> {
    let names = from.cases.iter().map(CaseFigures::name);
    names.filter(|name| of.case(name).is_none()).collect()
}

fn differs(field: DifferingField, [old, new]: [&Case; 2]) -> bool {
    match field {
        DifferingField::Congestion => old.congestion != new.congestion,
        DifferingField::Links => old.link != new.link,
        DifferingField::Instruments => old.instruments != new.instruments,
    }
}

/// Returns the values of the field in two cases that differ in it: the parts in which they differ, or the names of the
/// records if these parts do not tell them apart.
fn values(
    field: DifferingField,
    cases: [&Case; 2],
    figure: &FigureName,
    names: [&str; 2],
) -> [FieldValue; 2] {
    let (parts, nothing) = match field {
        DifferingField::Congestion => (cases.map(|case| case.congestion.clone()), ""),
        DifferingField::Links => {
            let links = cases.map(|case| &case.link);
            (case_conditions::differing(links), "no such condition")
        }
        DifferingField::Instruments => (options(cases, &figure.instrument), "no such option"),
    };
    let parts = parts.map(|part| match part {
        part if part.is_empty() => nothing.to_owned(),
        part => part,
    });
    if parts[0] == parts[1] {
        names.map(FieldValue::name)
    } else {
        parts.map(|part| FieldValue::name(&part))
    }
}

/// Returns, for each of two cases, the options of an instrument that it does not share with the other, after its kind
/// if that differs too.
fn options(cases: [&Case; 2], instrument: &str) -> [String; 2] {
    let args = cases.map(|case| case.instrument(instrument).map(|one| &one.args));
    let [Some(old), Some(new)] = args else {
        return args.map(|args| args.map(|args| args.kind.clone()).unwrap_or_default());
    };
    let only = |own: &RecordedArguments, other: &RecordedArguments| {
        let mut different = own.clone();
        different
            .arguments
            .retain(|name, value| other.arguments.get(name) != Some(&*value));
        let kind = (own.kind != other.kind).then_some(own.kind.clone());
        let words = [kind.unwrap_or_default(), different.options()];
        words.join(" ").trim().to_owned()
    };
    [only(old, new), only(new, old)]
}

/// Returns sentences about differences between the records beside the field.
fn remarks(records: &[NamedRecord]) -> Vec<String> {
    let Some((reference, others)) = records.split_first() else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for other in others {
        let names = [reference, other].map(|one| &one.record.plan().name);
        if names[0] != names[1] {
            all.push(format!(
                "the scenarios have different names: `{}` and `{}`",
                names[0], names[1]
            ));
        }
        let machines = hosts(&reference.record, &other.record).into_iter();
        let names = format!("{} (the reference) and {}", reference.name, other.name);
        all.extend(machines.map(|what| format!("the machines of {names} differ: {what}")));
    }
    let unfinished = records
        .iter()
        .filter(|one| one.record.finished_at.is_none());
    all.extend(unfinished.map(|one| format!("{} is unfinished: --resume continues it", one.name)));
    all
}

fn row(field: DifferingField, figure: &FigureName, pair: &ComparedPair) -> ComparisonRow {
    let contrast = pair.outcome.as_ref().ok();
    let of = |scale: ContrastScale| contrast.filter(|contrast| contrast.scale == scale);
    let [ratio, difference] = [ContrastScale::Ratio, ContrastScale::Difference].map(of);
    ComparisonRow {
        by: field.name(),
        records: pair.sources.clone(),
        case: pair.shared.case.clone(),
        figure: figure.to_string(),
        unit: figure.metric.unit(),
        values: pair.values.each_ref().map(|value| value.full.clone()),
        means: pair.means,
        runs: pair.runs,
        ratio: ratio.map(|one| one.estimate),
        ratio_interval: ratio.map(|one| one.interval),
        difference: difference.map(|one| one.estimate),
        difference_interval: difference.map(|one| one.interval),
        p: contrast.map(|one| one.p),
        found: contrast.map(|one| match one.finding() {
            Some(Ordering::Greater) => "higher",
            Some(_) => "lower",
            None => "none",
        }),
        cannot_tell: pair.outcome.as_ref().err().map(reason),
    }
}

fn reason(not_compared: &NotCompared) -> ReasonRow {
    let (cause, source) = match not_compared {
        NotCompared::TooFewRuns => ("too-few-runs", None),
        NotCompared::Faulty { source, .. } => ("faulty", Some(source)),
        NotCompared::Missing { source } => ("missing", Some(source)),
        NotCompared::LowerBound { source } => ("lower-bound", Some(source)),
        NotCompared::OutOfRange => ("out-of-range", None),
    };
    ReasonRow {
        cause,
        enough: (*not_compared == NotCompared::TooFewRuns).then_some(contrast::FEWEST),
        source: source.cloned(),
    }
}

/// Formats the records that are compared, and the field: "a and b differ on purpose in their links".
pub(crate) fn heading(records: &[NamedRecord], field: DifferingField) -> String {
    let names: Vec<String> = records.iter().map(|one| one.name.clone()).collect();
    let (all, field) = (listed(&names), field.words());
    format!("{all} differ on purpose in their {field}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::sweep_comparison::tests::sweep;
    use conditions::{DelaySpec, LossSpec};
    use record::plan::Repeats;

    /// A record of 18 cases without a sweep, whose goodputs are multiplied by `factor`.
    fn record(factor: f64, seed: u64) -> Record {
        let mut record = sweep(5, 0.01, seed, |_| factor);
        record.head.plan.compare = Default::default();
        let plain = |name: &str| name.replace("congestion=", "");
        for case in &mut record.head.plan.cases {
            case.name = plain(&case.name);
            case.axes.clear();
        }
        for run in &mut record.runs {
            run.case = plain(&run.case);
        }
        record
    }

    fn named(all: [Record; 2]) -> Vec<NamedRecord> {
        let names = ["out/a", "out/b"].into_iter();
        let name = |(name, record): (&str, Record)| NamedRecord {
            name: name.to_owned(),
            record,
        };
        names.zip(all).map(name).collect()
    }

    fn by(records: &[NamedRecord], field: DifferingField) -> Result<ComparisonBy> {
        ComparisonBy::of(records, field, |_, _| true)
    }

    #[test]
    fn records_of_two_congestion_controls_are_compared_case_by_case() {
        let mut all = [record(1.0, 1), record(2.0, 2)];
        for (record, congestion) in all.iter_mut().zip(["reno", "bbr"]) {
            for case in &mut record.head.plan.cases {
                case.congestion = congestion.to_owned();
            }
        }
        all[1].head.plan.name = "another".to_owned();
        let records = named(all);
        let found = by(&records, DifferingField::Congestion).unwrap();
        assert_eq!((found.all.len(), found.not_made()), (1, 0));
        let rows = found.rows();
        assert_eq!(rows.len(), 18);
        for row in rows {
            assert_eq!((row.by, row.found), ("congestion", Some("higher")));
            assert_eq!(row.values, ["reno", "bbr"]);
            assert_eq!(row.records, ["out/a", "out/b"]);
            let [low, high] = row.ratio_interval.unwrap();
            assert!(
                low <= 2.0 && 2.0 <= high && row.difference.is_none(),
                "{row:?}"
            );
        }
        assert_eq!(
            found.remarks,
            ["the scenarios have different names: `small` and `another`"]
        );
        assert_eq!(
            heading(&records, found.field),
            "out/a and out/b differ on purpose in their congestion control"
        );
        let error = by(&records, DifferingField::Links).unwrap_err().to_string();
        assert!(
            error.contains("differs in its congestion control"),
            "{error}"
        );
        assert!(error.ends_with("use --by congestion"), "{error}");
    }

    #[test]
    fn links_are_named_by_what_they_do_not_share() {
        let mut all = [record(1.0, 1), record(1.0, 2)];
        for record in &mut all {
            let both = &mut record.head.plan.cases[0].link.both;
            both.at_first.set("5ms".parse::<DelaySpec>().unwrap());
        }
        let both = &mut all[1].head.plan.cases[0].link.both;
        both.at_first.set("1%".parse::<LossSpec>().unwrap());
        let found = by(&named(all), DifferingField::Links).unwrap();
        let rows = found.rows();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].values, ["no such condition", "loss 1%"]);
        assert_eq!(rows[0].found, Some("none"));
    }

    #[test]
    fn instruments_are_named_by_the_options_that_they_do_not_share() {
        let mut all = [record(1.0, 1), record(1.0, 2)];
        for (record, parallel) in all.iter_mut().zip([1, 4]) {
            let args = &mut record.head.plan.cases[0].instruments[0].args;
            args.arguments
                .insert("parallel".to_owned(), parallel.into());
        }
        let found = by(&named(all), DifferingField::Instruments).unwrap();
        let rows = found.rows();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].values, ["--parallel=1", "--parallel=4"]);
    }

    #[test]
    fn records_that_do_not_differ_are_refused_and_missing_cases_are_named() {
        let same = named([record(1.0, 1), record(1.0, 2)]);
        for field in [
            DifferingField::Congestion,
            DifferingField::Links,
            DifferingField::Instruments,
        ] {
            let error = by(&same, field).unwrap_err().to_string();
            let told = format!("no two records differ in the {} of a case", field.words());
            assert_eq!(error, told);
        }
        let mut all = [record(1.0, 1), record(1.0, 2)];
        all[1].head.plan.cases[0].congestion = "vegas".to_owned();
        let lost = all[1].head.plan.cases.pop().unwrap().name;
        let found = by(&named(all), DifferingField::Congestion).unwrap();
        assert_eq!(found.missing, [format!("{lost}: not in out/b")]);
        assert_eq!((found.not_made(), found.rows().len()), (1, 1));
    }

    #[test]
    fn what_cannot_be_told_has_its_cause() {
        let mut all = [record(1.0, 1), record(1.0, 2)];
        all[1].head.plan.cases[0].congestion = "vegas".to_owned();
        for record in &mut all {
            let case = &mut record.head.plan.cases[0];
            case.repeats = Repeats::fixed(3);
            record
                .runs
                .retain(|run| run.case != case.name || run.repeat <= 3);
        }
        let found = by(&named(all), DifferingField::Congestion).unwrap();
        let row = found.rows().remove(0);
        assert_eq!((row.runs, row.found, row.ratio), ([3, 3], None, None));
        let reason = row.cannot_tell.unwrap();
        assert_eq!((reason.cause, reason.enough), ("too-few-runs", Some(4)));
    }
}
