//! `farwire report`: shows a record in one of several formats.

use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};

use instruments::failure::{Blame, Failure};
use instruments::output;
use record::Record;
use record::output_directory::OutputDirectory;
use record::server_log::is_server_log;
use report::{
    DataRows, DataSelection, DataTable, Drawings, FORMATS, Make, ReportFormat, ServerReport,
    Terminal,
};

/// Show the record of an experiment as text, HTML, Markdown, CSV or another format
///
/// report reads nothing but the record. For an interrupted experiment, it shows the runs that took place. For the log that
/// `farwire serve --json` writes, it shows averages over the tests by kind, client and hour, as text, md, html, csv or json.
#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    /// Directory of an experiment, or its record.jsonl, or the log of `serve --json`
    record: PathBuf,
    /// Format of the report [default: text; none with --figures]
    #[arg(long, value_name = "FORMAT", value_parser = format_parser())]
    format: Option<&'static ReportFormat>,
    /// Write the report to FILE (- for standard output); for flent, a directory
    #[arg(long, value_name = "FILE", required_if_eq("format", "flent"))]
    out: Option<PathBuf>,
    /// Write every chart of the HTML report as an SVG file into DIR
    #[arg(long, value_name = "DIR")]
    figures: Option<PathBuf>,
    /// With --figures, write PNG files with captions, 1320 pixels wide, for slides
    #[arg(long, requires = "figures")]
    png: bool,
    /// Rows of csv and parquet [default: samples]
    #[arg(long, value_name = "ROWS")]
    rows: Option<RowsArg>,
    /// In csv and parquet, include the attempts, figures and samples that do not count
    #[arg(long)]
    with_invalid: bool,
    /// Include every detail in the text: all figures, spread, warm-up, conditions and machine
    #[arg(long)]
    details: bool,
}

/// The value of `--rows`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum RowsArg {
    /// One for each run, with the values of its sweep, its outcome and all figures
    Runs,
    /// One for each sample
    Samples,
}

impl ReportArgs {
    /// Shows the record.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        if is_server_log(&self.record) {
            self.show_server_log()?;
            return Ok(ExitCode::SUCCESS);
        }
        let record = Record::read(&self.record).or_bad_input()?;
        if let Some(directory) = &self.figures {
            write_drawings(directory, &Drawings::of(&record), self.png)?;
        }
        match (self.format, &self.figures) {
            (None, Some(_)) => {}
            (format, _) => self.show(&record, format.unwrap_or(&FORMATS[0]))?,
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Shows the log of a far end.
    fn show_server_log(&self) -> Result<(), Failure> {
        if self.selects_rows() {
            return Err(Failure::bad_input(
                "--rows and --with-invalid: the log of a far end has no runs or samples to select",
            ));
        }
        let (path, target) = (&self.record, self.out.as_deref());
        let name = match (self.format, &self.figures) {
            (None, Some(_)) => None,
            (format, _) => Some(format.unwrap_or(&FORMATS[0]).name),
        };
        let report = ServerReport::read(path).with_context(|| format!("{}", path.display()));
        let report = report.or_bad_input()?;
        match name {
            None => {}
            Some("text") => {
                let terminal = target.map_or_else(super::terminal, |_| Terminal::NONE);
                let text = report::server_text(&report, self.details, terminal);
                whole(target, &text)?;
            }
            Some("md") => whole(target, &report::server_markdown(&report))?,
            Some("html") => whole(target, &report::server_html(&report)?)?,
            Some("csv") => stream(target, |target| report::server_csv(&report, target))?,
            Some("json") => whole(target, &output::json(&report)?)?,
            Some(other) => {
                return Err(Failure::bad_input(format_args!(
                    "--format {other}: the log of a far end can be shown as text, md, html, csv or json"
                )));
            }
        }
        if let Some(directory) = &self.figures {
            write_drawings(directory, &Drawings::of_log(&report), self.png)?;
        }
        Ok(())
    }

    fn show(&self, record: &Record, format: &ReportFormat) -> Result<(), Failure> {
        let target = self.out.as_deref();
        if self.selects_rows() && !matches!(format.make, Make::Data(_)) {
            return Err(Failure::bad_input(format_args!(
                "--rows and --with-invalid select from the tables of --format csv and --format parquet; {} has no rows to select",
                format.name
            )));
        }
        match format.make {
            Make::Terminal(text) => {
                let terminal = target.map_or_else(super::terminal, |_| Terminal::NONE);
                whole(target, &text(record, self.details, terminal))?;
            }
            Make::Document(document) => whole(target, &document(record)?)?,
            Make::Stream(write) => stream(target, |target| write(record, target))?,
            Make::Data(write) => {
                let table = DataTable::of(record, self.selection()).or_bad_input()?;
                stream(target, |target| write(table, target))?;
            }
            Make::Files(files) => {
                let directory = target.unwrap_or(Path::new("."));
                into(directory, files(record).or_bad_input()?)?;
            }
        }
        Ok(())
    }

    fn selects_rows(&self) -> bool {
        self.rows.is_some() || self.with_invalid
    }

    /// Returns the part of the record that a table has.
    fn selection(&self) -> DataSelection {
        DataSelection {
            rows: match self.rows {
                Some(RowsArg::Runs) => DataRows::Runs,
                Some(RowsArg::Samples) | None => DataRows::Samples,
            },
            with_invalid: self.with_invalid,
        }
    }
}

/// Reads the name of a format. Help and completions list all of them.
fn format_parser() -> impl TypedValueParser<Value = &'static ReportFormat> {
    let names = FORMATS.iter();
    let names = names.map(|format| PossibleValue::new(format.name).help(format.help));
    PossibleValuesParser::new(names).map(|name| {
        let format = FORMATS.iter().find(|format| format.name == name);
        format.expect("the parser accepts only the names of formats")
    })
}

/// Writes drawings into `directory`, as SVG or as PNG.
pub(super) fn write_drawings(
    directory: &Path,
    drawings: &Drawings,
    as_png: bool,
) -> Result<(), Failure> {
    if as_png {
        into(directory, drawings.png().or_machine()?)
    } else {
        into(directory, drawings.svg())
    }
}

/// Writes each file into `directory`, which is made where it is missing.
fn into<T: AsRef<[u8]>>(directory: &Path, files: Vec<(String, T)>) -> Result<(), Failure> {
    let made = fs::create_dir_all(directory).and_then(|()| OutputDirectory::open(directory));
    let within = made
        .with_context(|| format!("{}: cannot create", directory.display()))
        .or_bad_input()?;
    for (name, content) in files {
        let write = |mut file: &File| file.write_all(content.as_ref());
        let written = within.replace(name.as_ref(), write);
        written.with_context(|| format!("{}: cannot write", directory.join(name).display()))?;
    }
    Ok(())
}

/// Writes a view that fits into memory.
fn whole(target: Option<&Path>, text: &str) -> Result<()> {
    stream(target, |target| target.write_all(text.as_bytes()))
}

/// Gives `write` the file, or standard output, so that a long view is never in memory as a whole.
fn stream(
    target: Option<&Path>,
    write: impl FnOnce(&mut (dyn Write + Send)) -> io::Result<()>,
) -> Result<()> {
    let file = target.filter(|file| !output::is_stdout(file));
    let name = || {
        file.map_or("standard output".to_owned(), |file| {
            format!("{}: cannot write", file.display())
        })
    };
    let write_to = |sink: &mut (dyn Write + Send)| {
        let mut buffered = BufWriter::with_capacity(1 << 20, sink);
        write(&mut buffered)?;
        buffered.flush()
    };
    let result = match file {
        Some(path) => output::replace(path, |mut file| write_to(&mut file)),
        None => write_to(&mut io::stdout()),
    };
    match result {
        // A reader that closes the pipe has read enough.
        Err(error) if file.is_none() && error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.with_context(name),
    }
}
