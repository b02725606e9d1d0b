//! `farwire compare`: records of one scenario against a reference, as a gate for regressions.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;

use crate::notes;
use instruments::failure::{Blame, Failure};
use record::Record;
use report::analysis::compare::{Compared, Comparison};

/// Hold records against a reference record of the same scenario
///
/// Ends with 1 if a figure got worse by more than the threshold, beyond what chance explains at 95 %.
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
    /// Write the comparison as JSON there; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Serialize)]
struct ComparedFigure {
    record: String,
    case: String,
    figure: String,
    unit: &'static str,
    reference: f64,
    value: f64,
    shift: f64,
    shift_interval: Option<[f64; 2]>,
    shift_percent: Option<f64>,
    shift_percent_interval: Option<[f64; 2]>,
    words: String,
    regression: bool,
}

impl CompareArgs {
    /// Compares; 0 when nothing got worse, 1 when something did.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let reference = Record::read(&self.reference).or_bad_input()?;
        let mut rows = Vec::new();
        let mut text = String::new();
        for path in &self.records {
            let record = Record::read(path).or_bad_input()?;
            let comparison = Comparison::of(&reference, &record, |record, name| {
                self.all || report::is_headline(record, name)
            });
            let comparison = comparison
                .with_context(|| path.display().to_string())
                .or_bad_input()?;
            text += &format!("{} against {}\n", path.display(), self.reference.display());
            text += &report::comparison(&comparison, self.threshold, super::terminal());
            let row = |one| self.row(path, &comparison, one);
            rows.extend(comparison.compared.iter().map(row));
        }
        super::show(self.json.as_deref(), &rows, &text, notes::beside())?;
        Ok(if rows.iter().any(|row| row.regression) {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        })
    }

    fn row(&self, path: &Path, comparison: &Comparison, one: &Compared) -> ComparedFigure {
        let percent = one.shift.percent.as_ref();
        ComparedFigure {
            record: path.display().to_string(),
            case: one.case.clone(),
            figure: one.figure.to_string(),
            unit: one.figure.metric.unit(),
            reference: one.means[0],
            value: one.means[1],
            shift: one.shift.absolute.value,
            shift_interval: one.shift.absolute.interval,
            shift_percent: percent.map(|percent| percent.value),
            shift_percent_interval: percent.and_then(|percent| percent.interval),
            words: one.words(),
            regression: comparison
                .regressions(self.threshold)
                .any(|worse| std::ptr::eq(worse, one)),
        }
    }
}

fn percent(text: &str) -> Result<f64> {
    let number = text.strip_suffix('%').unwrap_or(text).trim();
    let percent: f64 = number.parse().context("write a percentage, such as 5%")?;
    anyhow::ensure!(percent >= 0.0, "must not be below 0");
    Ok(percent)
}
