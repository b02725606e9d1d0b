//! `farwire report`: a view of a record.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::output;
use crate::exit::{Blame, Failure};
use crate::experiment::record::Record;
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

impl ReportArgs {
    /// Shows the record.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let record = Record::read(&self.record).or_bad_input()?;
        let text = match self.format {
            Format::Text => {
                let terminal = self.out.is_none() && io::stdout().is_terminal();
                report::text(&record, output::coloured(terminal))
            }
            Format::Html => report::html(&record)?,
            Format::Csv => report::csv(&record)?,
            Format::Json => report::json(&record)?,
        };
        output::write(self.out.as_deref(), &text)?;
        Ok(ExitCode::SUCCESS)
    }
}
