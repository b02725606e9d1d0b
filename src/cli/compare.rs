//! `farwire compare`: compares records of one scenario with a reference, as a gate against regressions, or records that differ on
//! purpose in one field.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::args::headings;
use crate::notes;
use instruments::failure::{Blame, Failure};
use record::Record;
use record::printable::printable;
use report::Drawings;
use report::analysis::comparison_by::{ComparisonBy, DifferingField, NamedRecord};
use report::analysis::record_comparison::{Compared, Comparison, Missing};

/// Compare records with a reference record of the same scenario
///
/// A figure is a regression if it got worse by more than the threshold, and chance does not explain that (at 95 %). compare also
/// exits with 1 if it cannot decide: a case or a figure is missing in one of the records, or has fewer than four runs.
///
/// With --by, the records differ on purpose in one field. compare then says for each figure how it depends on that field, and
/// exits with 1 only if it cannot decide.
#[derive(Args, Debug)]
pub(crate) struct CompareArgs {
    /// Record to compare with: the directory of an experiment, or its record.jsonl
    reference: PathBuf,
    /// Records of the same scenario
    #[arg(required = true)]
    records: Vec<PathBuf>,
    /// Change for the worse that a figure may show
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = percent)]
    threshold: f64,
    /// Compare every figure, not only those that reports show first
    #[arg(long)]
    all: bool,
    /// Exit with 0 even if data for a decision are missing
    #[arg(long)]
    allow_missing: bool,
    /// Compare even if the links of the cases differ between the records
    #[arg(long)]
    across_links: bool,
    /// Compare each pair of records that differ on purpose in this field
    #[arg(long, value_name = "FIELD", conflicts_with_all = ["threshold", "across_links"])]
    by: Option<By>,
    /// Write the drawings of the comparisons by --by as SVG files into DIR
    #[arg(long, value_name = "DIR", requires = "by", help_heading = headings::OUTPUT)]
    figures: Option<PathBuf>,
    /// With --figures, write PNG files with captions, 1320 pixels wide, for slides
    #[arg(long, requires = "figures", help_heading = headings::OUTPUT)]
    png: bool,
    /// Write the comparison as JSON to FILE (- for standard output, instead of text)
    #[arg(long, value_name = "FILE", help_heading = headings::OUTPUT)]
    json: Option<PathBuf>,
}

/// The field in which records differ on purpose.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum By {
    /// TCP congestion control
    Congestion,
    /// Conditions of the links
    Links,
    /// Options of the instruments
    Instruments,
}

impl CompareArgs {
    /// Compares. The exit code is 0 if nothing got worse, and 1 if something did or data are missing.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        match self.by {
            None => self.find_regressions(),
            Some(by) => self.compare_by(by.into()),
        }
    }

    /// Compares records that differ on purpose in one field. The exit code is 1 if data are missing.
    fn compare_by(&self, field: DifferingField) -> Result<ExitCode, Failure> {
        let read = |path: &PathBuf| -> Result<NamedRecord, Failure> {
            Ok(NamedRecord {
                name: printable(&path.display().to_string()).into_owned(),
                record: Record::read(path).or_bad_input()?,
            })
        };
        let paths = std::iter::once(&self.reference).chain(&self.records);
        let records: Vec<NamedRecord> = paths.map(read).collect::<Result<_, _>>()?;
        let wanted = |record: &Record, name: &_| self.all || report::is_headline(record, name);
        let comparison = ComparisonBy::of(&records, field, wanted).or_bad_input()?;
        let rows = comparison.rows();
        let text = report::comparison_by(&records, &comparison, super::terminal());
        super::show(self.json.as_deref(), &rows, &text, notes::beside())?;
        if let Some(directory) = &self.figures {
            let drawings = Drawings::of_comparison(&comparison);
            super::report::write_drawings(directory, &drawings, self.png)?;
        }
        let is_short = comparison.not_made() > 0 && !self.allow_missing;
        if is_short {
            note_missing();
        }
        Ok(super::exit_code(!is_short))
    }

    /// Compares each record with the reference. The exit code is 1 if a figure got worse or data are missing.
    fn find_regressions(&self) -> Result<ExitCode, Failure> {
        let reference = Record::read(&self.reference).or_bad_input()?;
        let (mut rows, mut text) = (Vec::new(), String::new());
        let (mut is_worse, mut is_untold) = (false, false);
        for path in &self.records {
            let record = Record::read(path).or_bad_input()?;
            let wanted = |record: &Record, name: &_| self.all || report::is_headline(record, name);
            let comparison = Comparison::of(&reference, &record, self.across_links, wanted)
                .with_context(|| path.display().to_string())
                .or_bad_input()?;
            let of = format!(
                "{} compared with {}",
                path.display(),
                self.reference.display()
            );
            text += &format!("{}\n", printable(&of));
            text += &report::comparison(&comparison, self.threshold, super::terminal());
            let worse: Vec<_> = comparison.regressions(self.threshold).collect();
            is_worse |= !worse.is_empty();
            is_untold |= comparison.untold() > 0;
            let row = |one| {
                row(
                    path,
                    one,
                    worse.iter().any(|worse| std::ptr::eq(*worse, one)),
                )
            };
            rows.extend(comparison.compared.iter().map(row));
            rows.extend(comparison.missing.iter().map(|one| missing_row(path, one)));
        }
        super::show(self.json.as_deref(), &rows, &text, notes::beside())?;
        let is_short = is_untold && !self.allow_missing;
        if is_short && !is_worse {
            note_missing();
        }
        Ok(super::exit_code(!is_worse && !is_short))
    }
}

impl From<By> for DifferingField {
    fn from(by: By) -> Self {
        match by {
            By::Congestion => Self::Congestion,
            By::Links => Self::Links,
            By::Instruments => Self::Instruments,
        }
    }
}

fn note_missing() {
    notes::note(
        "farwire: some figures could not be compared, so the exit code is 1; --allow-missing accepts that",
    );
}

/// The JSON of a figure that both records have.
fn row(path: &Path, one: &Compared, is_worse: bool) -> Value {
    let (change, percent) = (&one.change.difference, one.change.percent());
    let shift_percent = one.shift.percent.as_ref();
    let enough = one.shift.enough();
    let few = json!({ "cause": "too-few-runs", "enough": enough });
    json!({
        "record": path.display().to_string(),
        "case": one.case,
        "figure": one.figure.to_string(),
        "unit": one.figure.metric.unit(),
        "reference": one.means[0],
        "value": one.means[1],
        "runs": one.shift.counts,
        "change": change.value,
        "change_interval": change.interval,
        "change_percent": percent.map(|percent| percent.value),
        "change_percent_interval": percent.and_then(|percent| percent.interval),
        "shift": one.shift.absolute.value,
        "shift_interval": one.shift.absolute.interval,
        "shift_percent": shift_percent.map(|percent| percent.value),
        "shift_percent_interval": shift_percent.and_then(|percent| percent.interval),
        "p": one.p, // Adjusted for all figures compared.
        "words": one.words(),
        "regression": is_worse,
        "cannot_tell": one.is_too_few().then_some(few),
    })
}

/// The JSON of a figure or a case that one of the records lacks, with a cause instead of values.
fn missing_row(path: &Path, missing: &Missing) -> Value {
    let values = [
        "unit",
        "reference",
        "value",
        "runs",
        "change",
        "change_interval",
        "change_percent",
        "change_percent_interval",
        "shift",
        "shift_interval",
        "shift_percent",
        "shift_percent_interval",
        "p",
    ];
    let mut row = json!({
        "record": path.display().to_string(),
        "case": missing.case,
        "figure": missing.what,
        "words": format!("not compared: {missing}"),
        "regression": false,
        "cannot_tell": { "cause": "missing", "lacking": missing.lacking },
    });
    values.iter().for_each(|key| row[key] = Value::Null);
    row
}

fn percent(text: &str) -> Result<f64> {
    let number = text.strip_suffix('%').unwrap_or(text).trim();
    let percent: f64 = number.parse().context("write a percentage, such as 5%")?;
    anyhow::ensure!(percent >= 0.0, "must not be below 0");
    Ok(percent)
}
