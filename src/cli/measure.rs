//! `farwire measure`: one instrument measures toward a host.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde_json::Value;

use super::host_watch::HostWatch;
use crate::notes::{self, note};
use instruments::failure::{Blame, Failure};
use instruments::iperf3::intervals;
use instruments::measure::{CommonArgs, InstrumentArgs, MeasureOutput};
use instruments::output;
use instruments::output::Prepared;
pub(super) use instruments::{Live, Session};
use netio::stop::Stop;
use record::lateness::LateBudget;
use record::printable::{printable, printable_lines};
use record::{Figure, Measurement};

/// Measure throughput, delay or loss with one instrument
///
/// The far end is `farwire serve`, or any server of the instrument's protocol. Figures have 95 % intervals where the instrument can
/// state them. docs/instruments.md describes every figure.
#[derive(Args, Debug)]
pub(crate) struct MeasureArgs {
    #[command(subcommand)]
    asked: InstrumentArgs,
}

/// The advice if a sender did not keep its pace.
const AFTER_SHORTFALL: &str = "the sender did not keep the rate or interval that you asked for, so the numbers above describe another test: measure again with a \
     lower rate or a longer interval, or end other programs";

impl MeasureArgs {
    /// Measures. The exit code is 0 if the measurement succeeded, else 1.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let common = self.asked.common();
        let json = prepare_json(common).or_bad_input()?;
        let watch = HostWatch::begin()?;
        let found = self.asked.measure(&session()?)?;
        let mut doubts = watch.end();
        let budget = LateBudget::DEFAULT.time().into();
        let shortfall = found.measurement.shortfall(budget);
        doubts.extend(shortfall.map(|cause| format!("{cause}: {AFTER_SHORTFALL}")));
        let written = write_json(common, &found, &doubts, json);
        show(&self.asked, &found)?;
        for doubt in doubts {
            note(format_args!("farwire: {doubt}"));
        }
        written?;
        Ok(super::exit_code(found.measurement.failure.is_none()))
    }
}

fn session() -> Result<Session> {
    Ok(Session {
        stop: Stop::on_signals()?,
        live: match notes::are_watched() {
            true => Live::on_terminal(),
            false => Live::quiet(),
        },
        details: true,
        ..Session::default()
    })
}

/// Opens the file of the JSON, unless it goes to standard output or there is none.
fn prepare_json(common: &CommonArgs) -> Result<Option<Prepared>> {
    let file = common.json.as_deref();
    let file = file.filter(|file| !output::is_stdout(file));
    Ok(file.map(Prepared::open).transpose()?)
}

/// Writes the measurement, with the doubts about it as the fact `machine`.
fn write_json(
    common: &CommonArgs,
    found: &MeasureOutput,
    doubts: &[String],
    file: Option<Prepared>,
) -> Result<()> {
    if common.json.is_none() {
        return Ok(());
    }
    let mut json = serde_json::to_value(&found.measurement)?;
    if let (Value::Object(all), Some(Value::Object(more))) = (&mut json, &found.iperf3) {
        all.extend(more.clone());
    }
    if !doubts.is_empty() {
        json["facts"]["machine"] = doubts.join("; ").into();
    }
    let json = output::json(&json)?;
    match file {
        Some(file) => file.replace(|mut file| file.write_all(json.as_bytes()))?,
        None => output::write(None, &json)?,
    }
    Ok(())
}

/// The last line of a summary.
const MORE: &str =
    "--details prints every figure, and how each one was measured; --json has all samples too\n";

/// Returns the facts of a measurement, a paragraph each.
fn facts(measurement: &Measurement) -> String {
    let facts = measurement.facts.iter();
    let paragraphs = facts.map(|(name, value)| {
        report::prose(&format!("{name}: {}", printable(value)), super::terminal())
    });
    paragraphs.collect()
}

/// Returns the figures that `summary` chooses, or all of them without one.
fn shown(measurement: &Measurement, summary: Option<fn(&Figure) -> bool>) -> Measurement {
    let figures = measurement.figures.iter();
    let chosen = figures.filter(|figure| summary.is_none_or(|is_shown| is_shown(figure)));
    Measurement {
        figures: chosen.cloned().collect(),
        ..Measurement::default()
    }
}

fn show(asked: &InstrumentArgs, found: &MeasureOutput) -> Result<(), Failure> {
    let (common, instrument) = (asked.common(), asked.instrument());
    let measurement = &found.measurement;
    if let Some(cause) = &measurement.failure {
        notes::error(cause);
    }
    let summary = instrument.summary();
    let facts = match summary {
        Some(_) if measurement.figures.is_empty() => String::new(),
        Some(_) => MORE.to_owned(),
        None => facts(measurement),
    };
    let own = instrument.table(measurement)?;
    let table = own.unwrap_or_else(|| report::figures(&shown(measurement, summary)));
    let figures = report::table_text(&table, super::terminal());
    let intervals = found
        .iperf3
        .as_ref()
        .map(|_| report::table_text(&intervals(measurement), super::terminal()))
        .unwrap_or_default();
    let text = format!(
        "{}{intervals}{figures}{facts}",
        printable_lines(&instrument.text(measurement))
    );
    if common.json.as_deref().is_some_and(output::is_stdout) {
        // The JSON contains everything.
        let _ = notes::beside().write_all(text.as_bytes());
        return Ok(());
    }
    Ok(output::write(None, &text)?)
}
