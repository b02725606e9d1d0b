//! `farwire compare`: records of one scenario against a reference, as a gate for regressions.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;

use crate::notes;
use instruments::failure::{Blame, Failure};
use record::Record;
use report::analysis::record_comparison::{Compared, Comparison, Lacking, Missing};

/// Hold records against a reference record of the same scenario
///
/// Ends with 1 if a figure got worse by more than the threshold, beyond what chance explains at 95 %; and if nobody can tell,
/// because a case or a figure is missing in one of the two, or has too few runs: four in each record are enough.
#[derive(Args, Debug)]
pub(crate) struct CompareArgs {
    /// The record to compare with: the directory of its experiment, or its record.jsonl
    reference: PathBuf,
    /// Records of the same scenario
    #[arg(required = true)]
    records: Vec<PathBuf>,
    /// How much worse a figure may be, in percent
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = percent)]
    threshold: f64,
    /// Every figure, not only those that reports show
    #[arg(long)]
    all: bool,
    /// Let pass what cannot be told for want of data
    #[arg(long)]
    allow_missing: bool,
    /// Compare although cases have other links in the two records
    #[arg(long)]
    across_links: bool,
    /// Write the comparison as JSON there; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// A figure of a case; what is missing has a cause in place of values.
#[derive(Default, Serialize)]
struct ComparedFigure {
    record: String,
    case: String,
    figure: Option<String>,
    unit: Option<&'static str>,
    reference: Option<f64>,
    value: Option<f64>,
    runs: Option<[usize; 2]>,
    shift: Option<f64>,
    shift_interval: Option<[f64; 2]>,
    shift_percent: Option<f64>,
    shift_percent_interval: Option<[f64; 2]>,
    /// Among all figures compared.
    p: Option<f64>,
    words: String,
    regression: bool,
    cannot_tell: Option<CannotTell>,
}

/// Why nobody can tell whether a figure got worse.
#[derive(Serialize)]
#[serde(tag = "cause", rename_all = "kebab-case")]
enum CannotTell {
    /// With so many runs in each record one could tell.
    TooFewRuns { enough: usize },
    /// Not in the reference, the record or both.
    Missing { lacking: Lacking },
}

impl CompareArgs {
    /// Compares; 0 when nothing got worse, 1 when something did or nobody can tell.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let reference = Record::read(&self.reference).or_bad_input()?;
        let mut rows = Vec::new();
        let mut text = String::new();
        for path in &self.records {
            let record = Record::read(path).or_bad_input()?;
            let wanted = |record: &Record, name: &_| self.all || report::is_headline(record, name);
            let comparison = Comparison::of(&reference, &record, self.across_links, wanted)
                .with_context(|| path.display().to_string())
                .or_bad_input()?;
            text += &format!("{} against {}\n", path.display(), self.reference.display());
            text += &report::comparison(&comparison, self.threshold, super::terminal());
            let compared = comparison.compared.iter();
            rows.extend(compared.map(|one| self.row(path, &comparison, one)));
            rows.extend(comparison.missing.iter().map(|one| missing_row(path, one)));
        }
        super::show(self.json.as_deref(), &rows, &text, notes::beside())?;
        if rows.iter().any(|row| row.regression) {
            return Ok(ExitCode::FAILURE);
        }
        if !self.allow_missing && rows.iter().any(|row| row.cannot_tell.is_some()) {
            notes::note(
                "farwire: not everything can be told, so this ends with 1; --allow-missing lets it pass",
            );
            return Ok(ExitCode::FAILURE);
        }
        Ok(ExitCode::SUCCESS)
    }

    fn row(&self, path: &Path, comparison: &Comparison, one: &Compared) -> ComparedFigure {
        let percent = one.shift.percent.as_ref();
        ComparedFigure {
            record: path.display().to_string(),
            case: one.case.clone(),
            figure: Some(one.figure.to_string()),
            unit: Some(one.figure.metric.unit()),
            reference: Some(one.means[0]),
            value: Some(one.means[1]),
            runs: Some(one.shift.counts),
            shift: Some(one.shift.absolute.value),
            shift_interval: one.shift.absolute.interval,
            shift_percent: percent.map(|percent| percent.value),
            shift_percent_interval: percent.and_then(|percent| percent.interval),
            p: one.p,
            words: one.words(),
            regression: comparison
                .regressions(self.threshold)
                .any(|worse| std::ptr::eq(worse, one)),
            cannot_tell: one.is_too_few().then(|| CannotTell::TooFewRuns {
                enough: one.shift.enough(),
            }),
        }
    }
}

fn missing_row(path: &Path, missing: &Missing) -> ComparedFigure {
    ComparedFigure {
        record: path.display().to_string(),
        case: missing.case.clone(),
        figure: missing.what.clone(),
        words: format!("cannot tell: {missing}"),
        cannot_tell: Some(CannotTell::Missing {
            lacking: missing.lacking,
        }),
        ..ComparedFigure::default()
    }
}

fn percent(text: &str) -> Result<f64> {
    let number = text.strip_suffix('%').unwrap_or(text).trim();
    let percent: f64 = number.parse().context("write a percentage, such as 5%")?;
    anyhow::ensure!(percent >= 0.0, "must not be below 0");
    Ok(percent)
}
