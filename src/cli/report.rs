//! `farwire report`: a view of a record.

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};

use super::output;
use crate::experiment::record::Record;
use crate::fault::bad_input;
use crate::report;

/// Show a record
#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    /// The record.json of an experiment
    record: PathBuf,
    /// How to show it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Where to write it; - is standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// A table for the terminal
    Text,
    /// A page that stands alone
    Html,
    /// Every sample, one a line
    Csv,
    /// The record itself, indented
    Json,
}

/// Shows the record.
///
/// # Errors
/// No record, or a file that cannot be written.
pub(crate) fn run(args: &ReportArgs) -> Result<u8> {
    let record = Record::read(&args.record).map_err(bad_input)?;
    let text = match args.format {
        Format::Text => {
            let terminal = args.out.is_none() && io::stdout().is_terminal();
            report::text(&record, output::coloured(terminal))
        }
        Format::Html => report::html(&record)?,
        Format::Csv => report::csv(&record)?,
        Format::Json => report::json(&record)?,
    };
    output::write(args.out.as_deref(), &text)?;
    Ok(0)
}
