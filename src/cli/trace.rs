//! `farwire trace`: describes a trace, converts and changes it, or makes one from samples.

use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use clap::builder::TypedValueParser;
use conditions::trace::{
    self, Columns, Described, SampleUnit, Samples, Scale, Spread, Trace, TraceFormat,
};
use instruments::failure::{Blame, Failure};
use instruments::output;
use model::Nanos;
use record::table::{Column, Table};
use report::{Terminal, table_text};
use strum::VariantNames;

use crate::trace_files::{located, open};

const CHANGE_HEADING: &str = "Change the trace";
const SAMPLES_HEADING: &str = "Make a trace from samples";

/// Describe a trace, convert it between formats, change it, or make one from samples
///
/// A trace is a file with rates, delays or losses over time, as --trace takes it. Without --to, the output describes it: its length, the
/// distribution of its values over time, its stalls, and a picture. docs/traces.md describes the formats.
#[derive(Args, Debug)]
pub(crate) struct TraceArgs {
    /// File of the trace (- for standard input)
    file: PathBuf,
    /// Format of the file [default: its content decides]
    #[arg(long, value_name = "FORMAT", value_parser = format_name(), conflicts_with = "from_samples")]
    format: Option<TraceFormat>,
    /// Describe the delays of CellReplay's light load in this file too, beside the full load in FILE
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["to", "from_samples", "from", "until", "only", "scale_rate", "scale_delay", "scale_time"]
    )]
    light: Option<PathBuf>,
    /// Describe LeoReplayer's delays in this file too, beside the times in FILE; with --only delay, they are written alone
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["light", "from_samples", "from", "until", "scale_rate", "scale_delay", "scale_time"]
    )]
    delays: Option<PathBuf>,
    /// Write the trace in this format, in place of a description
    ///
    /// Write the trace in this format, in place of a description. For mahimahi, a rate becomes times at which packets are served; for
    /// csv, such times become a rate for each --every
    #[arg(long, value_name = "FORMAT", value_parser = format_name())]
    to: Option<TraceFormat>,
    /// File for the trace [default: standard output]
    #[arg(long, value_name = "FILE", requires = "to")]
    out: Option<PathBuf>,
    /// Write the description as JSON to FILE (- for standard output, instead of text)
    #[arg(long, value_name = "FILE", conflicts_with = "to")]
    json: Option<PathBuf>,
    /// Cut off the trace before this time
    #[arg(long, value_name = "TIME", help_heading = CHANGE_HEADING)]
    from: Option<Nanos>,
    /// Cut off the trace after this time
    #[arg(long, value_name = "TIME", help_heading = CHANGE_HEADING)]
    until: Option<Nanos>,
    /// Keep only these columns: rate,delay
    #[arg(long, value_name = "COLUMN,...", value_delimiter = ',', value_parser = COLUMNS, help_heading = CHANGE_HEADING)]
    only: Vec<String>,
    /// Multiply all rates by this factor
    #[arg(long, value_name = "FACTOR", default_value = "1", hide_default_value = true, value_parser = factor, help_heading = CHANGE_HEADING)]
    scale_rate: f64,
    /// Multiply all delays and jitters by this factor
    #[arg(long, value_name = "FACTOR", default_value = "1", hide_default_value = true, value_parser = factor, help_heading = CHANGE_HEADING)]
    scale_delay: f64,
    /// Multiply all times by this factor: 2 makes the trace twice as long
    #[arg(long, value_name = "FACTOR", default_value = "1", hide_default_value = true, value_parser = factor, help_heading = CHANGE_HEADING)]
    scale_time: f64,
    /// Read samples from this column, a name of the header or a number from 1
    ///
    /// Read samples from this column, a name of the header or a number from 1, in place of a trace. Cells are separated by commas,
    /// semicolons, tabs or blanks
    #[arg(long, value_name = "COLUMN", help_heading = SAMPLES_HEADING)]
    from_samples: Option<String>,
    /// Unit of a sample: bit, kbit, mbit, gbit (per second), ms of delay, or rttms of round trip
    #[arg(long, value_name = "UNIT", default_value = "mbit", value_parser = unit(), hide_possible_values = true, requires = "from_samples", help_heading = SAMPLES_HEADING)]
    unit: SampleUnit,
    /// Time between samples [default: 1s]; in csv made of service times, between rates [default: 100ms]
    #[arg(long, value_name = "TIME", help_heading = SAMPLES_HEADING)]
    every: Option<Nanos>,
    /// Interpolate linearly between samples, with this many lines for each [default: 1, which holds each sample]
    #[arg(long, value_name = "NUMBER", default_value_t = 1, hide_default_value = true, value_parser = clap::value_parser!(u32).range(1..=1_000), requires = "from_samples", help_heading = SAMPLES_HEADING)]
    interpolate: u32,
}

/// The columns that `--only` keeps.
const COLUMNS: [&str; 6] = ["rate", "delay", "jitter", "loss", "queue", "duplicate"];

impl TraceArgs {
    /// Describes the trace, or writes it.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let (read, format) = self.read().or_bad_input()?;
        let trace = self.changed(read);
        let trace = trace.with_context(|| self.file.display().to_string());
        let trace = trace.or_bad_input()?;
        let is_pair = trace.has_opportunities() && trace.length_of_steps().is_some();
        if self.to.is_some() && is_pair {
            return Err(Failure::bad_input(
                "--delays: a written file has either the times or the delays: add --only delay, or leave --delays out",
            ));
        }
        match self.to {
            Some(to) => self.write(&trace, to)?,
            None => {
                let described = trace.describe().or_bad_input()?;
                let text = text(&described, format, super::terminal());
                super::show(self.json.as_deref(), &described, &text, io::sink())?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn read(&self) -> Result<(Trace, Option<TraceFormat>)> {
        let source: Box<dyn Read> = if self.file == Path::new("-") {
            Box::new(io::stdin())
        } else {
            Box::new(open(&self.file)?)
        };
        let read = match &self.from_samples {
            Some(column) => {
                let samples = Samples {
                    column: column.clone(),
                    unit: self.unit,
                    every: self.every.unwrap_or(Nanos::from_secs(1)),
                    parts: self.interpolate,
                };
                samples
                    .read(BufReader::new(source))
                    .map(|trace| (trace, None))
            }
            None => trace::read(source, self.format).map(|(trace, format)| (trace, Some(format))),
        };
        let (trace, format) = read.map_err(|error| located(&self.file, error))?;
        let (beside, joined) = match (&self.delays, &self.light) {
            (Some(file), _) => {
                let delays = trace::read_delays(open(file)?);
                (file, delays.and_then(|delays| trace.with_steps_of(delays)))
            }
            (None, Some(file)) => {
                let load = trace::read_light(open(file)?);
                (file, load.and_then(|load| trace.with_light(load)))
            }
            (None, None) => return Ok((trace, format)),
        };
        let trace = joined.map_err(|error| located(beside, error))?;
        Ok((trace, format))
    }

    fn changed(&self, mut trace: Trace) -> Result<Trace> {
        if self.from.is_some() || self.until.is_some() {
            let to = self.until.unwrap_or_else(|| trace.length());
            trace = trace.part(self.from.unwrap_or_default(), to)?;
        }
        if !self.only.is_empty() {
            let has = |name: &str| self.only.iter().any(|only| only == name);
            trace = trace.only(Columns {
                rate: has("rate"),
                delay: has("delay"),
                jitter: has("jitter"),
                loss: has("loss"),
                queue: has("queue"),
                duplicate: has("duplicate"),
            })?;
        }
        let by = Scale {
            rate: self.scale_rate,
            delay: self.scale_delay,
            time: self.scale_time,
        };
        if [by.rate, by.delay, by.time] != [1.0; 3] {
            trace = trace.scaled(by)?;
        }
        Ok(trace)
    }

    fn write(&self, trace: &Trace, to: TraceFormat) -> Result<(), Failure> {
        let converted = match (to, trace.has_opportunities()) {
            (TraceFormat::Mahimahi, false) => Some(trace.to_opportunities()),
            (TraceFormat::Mahimahi, true) | (_, false) => None,
            (_, true) => Some(trace.to_rates(self.every.unwrap_or(trace::WINDOW))),
        };
        let converted = converted.transpose();
        let converted = converted.with_context(|| self.file.display().to_string());
        let converted = converted.or_bad_input()?;
        let trace = converted.as_ref().unwrap_or(trace);
        let written = match &self.out {
            None => write_to(trace, to, io::stdout().lock()),
            Some(out) => output::replace(out, |file| write_to(trace, to, file)),
        };
        match written {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Err(Failure::bad_input(
                format!("{}: {error}", self.file.display()),
            )),
            // Whoever reads standard output has read enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(error) => {
                let out = self.out.as_deref().unwrap_or(Path::new("standard output"));
                let failed = Err(error).with_context(|| format!("{}: cannot write", out.display()));
                Ok(failed?)
            }
        }
    }
}

fn write_to(trace: &Trace, to: TraceFormat, target: impl Write) -> io::Result<()> {
    let mut target = BufWriter::new(target);
    trace::write(trace, to, &mut target)?;
    target.flush()
}

fn format_name() -> impl TypedValueParser<Value = TraceFormat> {
    let names = clap::builder::PossibleValuesParser::new(TraceFormat::VARIANTS);
    names.map(|name| name.parse().expect("it is one of the names"))
}

fn unit() -> impl TypedValueParser<Value = SampleUnit> {
    let names = clap::builder::PossibleValuesParser::new(SampleUnit::VARIANTS);
    names.map(|name| name.parse().expect("it is one of the names"))
}

fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok();
    let factor = factor.filter(|factor: &f64| factor.is_finite() && *factor > 0.0);
    factor.ok_or_else(|| "write a number above 0, as in 1.5".to_owned())
}

/// Returns the description as text.
fn text(described: &Described, format: Option<TraceFormat>, terminal: Terminal) -> String {
    let Described {
        lines,
        length_s,
        rate_bit_per_s: rate,
        delay_ms: delay,
        jitter_ms: jitter,
        loss_percent: loss,
        stalls,
        picture,
    } = described;
    let kind = format.map_or_else(|| "samples".to_owned(), |format| format.to_string());
    let figures = ["least", "5 %", "median", "mean", "95 %", "greatest"];
    let columns = [Column::words("over time")];
    let mut table = Table::new("", columns.into_iter().chain(figures.map(Column::numbers)));
    let mut add = |name: &str, spread: &Option<Spread>, per_unit: f64| {
        if let Some(spread) = spread {
            let all = [
                spread.least,
                spread.p5,
                spread.median,
                spread.mean,
                spread.p95,
                spread.greatest,
            ];
            let mut row = vec![name.to_owned()];
            row.extend(all.map(|value| three_digits(value / per_unit)));
            table.push(row);
        }
    };
    add("rate, Mbit/s", rate, 1e6);
    add("delay, ms", delay, 1.0);
    add("jitter, ms", jitter, 1.0);
    add("loss, %", loss, 1.0);
    let mut text = format!("{kind}: {lines} lines, {} s\n", digits(*length_s));
    text += &format!("{}\n\n", blocks(picture));
    text += &table_text(&table, terminal);
    if let Some(stalls) = stalls {
        text += &match stalls.count {
            0 => "no stalls\n".to_owned(),
            count => format!(
                "stalls: {count}, longest {} s, {} s in total\n",
                digits(stalls.longest_s),
                digits(stalls.total_s)
            ),
        };
    }
    text
}

/// Returns a number with three significant digits, because the quantiles have no more.
fn three_digits(value: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a float has at most 309 digits"
    )]
    let places = 2 - value.abs().max(0.001).log10().floor() as i32;
    let scale = 10_f64.powi(places);
    digits((value * scale).round() / scale)
}

/// Returns a number with at most three decimal places.
fn digits(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Draws values as blocks between 0 and their greatest.
fn blocks(values: &[f64]) -> String {
    const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let greatest = values.iter().copied().fold(0.0, f64::max);
    let block = |value: &f64| {
        let share = if greatest > 0.0 {
            value / greatest
        } else {
            0.0
        };
        #[expect(clippy::cast_possible_truncation, reason = "it is from 0 to 8")]
        let height = (share * 8.0).ceil() as usize;
        BLOCKS[height.min(8)]
    };
    values.iter().map(block).collect()
}
