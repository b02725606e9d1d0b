//! `farwire report`: a view of a record.

use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use clap::{Args, ValueEnum};

use instruments::failure::{Blame, Failure};
use instruments::output;
use record::Record;
use report::Terminal;

/// Show a record
///
/// Every view is made from the record alone; of an experiment that was cut short it shows what is there.
#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    /// The record.jsonl of an experiment, or its directory
    record: PathBuf,
    /// How to show it [default: text, or with --figures nothing but these]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Where to write it; - is standard output. Of flent a directory
    #[arg(long, value_name = "FILE", required_if_eq("format", "flent"))]
    out: Option<PathBuf>,
    /// Write every figure of the HTML page there, an SVG file each
    #[arg(long, value_name = "DIR")]
    figures: Option<PathBuf>,
    /// As text, all that the record says: every headline, spread, warm-up, conditions, the machine
    #[arg(long)]
    details: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Tables for the terminal
    Text,
    /// The tables as Markdown
    Md,
    /// A page that stands alone, with figures
    Html,
    /// Every sample, one a line
    Csv,
    /// The record as one document, indented
    Json,
    /// The verdicts as JUnit XML
    Junit,
    /// Every figure as a gauge of OpenMetrics, for Prometheus
    Openmetrics,
    /// Data files for flent, one for what ran at the same time
    Flent,
}

impl ReportArgs {
    /// Shows the record.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let record = Record::read(&self.record).or_bad_input()?;
        if let Some(directory) = &self.figures {
            let drawings = report::drawings(&record);
            into(
                directory,
                drawings
                    .iter()
                    .map(|(name, svg)| (name.clone(), svg.as_str())),
            )?;
        }
        match (self.format, &self.figures) {
            (None, Some(_)) => {}
            (format, _) => self.show(&record, format.unwrap_or(Format::Text))?,
        }
        Ok(ExitCode::SUCCESS)
    }

    fn show(&self, record: &Record, format: Format) -> Result<(), Failure> {
        let target = self.out.as_deref();
        match format {
            Format::Text => {
                let terminal = match target {
                    Some(_) => Terminal::NONE,
                    None => super::terminal(),
                };
                output::write(target, &text(record, self.details, terminal))?;
            }
            Format::Md => output::write(target, &report::markdown(record)?)?,
            Format::Html => output::write(target, &report::html(record)?)?,
            Format::Junit => output::write(target, &report::junit(record)?)?,
            Format::Openmetrics => output::write(target, &report::openmetrics(record))?,
            Format::Csv => stream(target, |target| report::write_csv(record, target))?,
            Format::Json => stream(target, |target| report::write_json(record, target))?,
            Format::Flent => {
                let directory = target.unwrap_or(Path::new("."));
                let files = report::flent(record);
                if files.is_empty() {
                    return Err(anyhow!(
                        "nothing in the record is of an instrument that flent has a test for"
                    ))
                    .or_bad_input();
                }
                let files = files
                    .iter()
                    .map(|file| (format!("{}.flent", file.name), file.content.to_string()));
                into(directory, files)?;
            }
        }
        Ok(())
    }
}

/// The record for a terminal.
pub(super) fn text(record: &Record, details: bool, terminal: Terminal) -> String {
    match details {
        true => report::details(record, terminal),
        false => report::text(record, terminal),
    }
}

/// Writes each file into `directory`, which is made where it is missing.
fn into(
    directory: &Path,
    files: impl Iterator<Item = (String, impl AsRef<str>)>,
) -> Result<(), Failure> {
    let made = fs::create_dir_all(directory);
    made.with_context(|| format!("{}: cannot create", directory.display()))
        .or_bad_input()?;
    for (name, text) in files {
        output::write(Some(&directory.join(name)), text.as_ref())?;
    }
    Ok(())
}

/// Gives `write` the file, or standard output, so that a long view is never in memory as a whole.
fn stream(target: Option<&Path>, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let file = target.filter(|file| !output::is_stdout(file));
    let name = || {
        file.map_or("standard output".to_owned(), |file| {
            format!("{}: cannot write", file.display())
        })
    };
    let write_to = |sink: &mut dyn Write| write_all(sink, write);
    let result = match file {
        Some(path) => write_to(&mut File::create(path).with_context(name)?),
        None => write_to(&mut io::stdout().lock()),
    };
    match result {
        // Who reads no further has read enough.
        Err(error) if file.is_none() && is_broken_pipe(&error) => Ok(()),
        result => result.with_context(name),
    }
}

fn write_all(sink: &mut dyn Write, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let mut buffered = BufWriter::with_capacity(1 << 20, sink);
    write(&mut buffered)?;
    Ok(buffered.flush()?)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let own = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        let json = cause
            .downcast_ref::<serde_json::Error>()
            .and_then(serde_json::Error::io_error_kind);
        let csv = cause
            .downcast_ref::<csv::Error>()
            .and_then(|error| match error.kind() {
                csv::ErrorKind::Io(error) => Some(error.kind()),
                _ => None,
            });
        own.or(json).or(csv) == Some(ErrorKind::BrokenPipe)
    })
}
