//! The commands, one in each file: it reads its arguments and runs them. [`args`] has the arguments that several commands share.

pub(crate) mod args;
mod calibrate;
mod compare;
mod completions;
mod doctor;
mod emulate;
mod exec;
mod link;
mod links;
mod man;
mod measure;
pub(crate) mod merge;
mod profiles;
mod report;
mod run;
mod schema;
mod serve;
mod set;
mod submit;
mod theory;
mod view;

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use serde::Serialize;

use crate::emulate::OnExit;
use crate::notes::{self, LogFormat};
use crate::testbed;
use ::report::Terminal;
use instruments::failure::Failure;
use instruments::output;

/// A wide-area network between two interfaces, measured through, with the trust of every number stated
#[derive(Debug, Parser)]
#[command(name = "farwire", version)]
pub(crate) struct Cli {
    /// Nothing on standard error but errors and warnings
    #[arg(short, long, global = true)]
    quiet: bool,
    /// How what goes to standard error is written: notes, warnings, and why it failed
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::RunArgs),
    Exec(exec::ExecArgs),
    Emulate(emulate::EmulateArgs),
    Links(links::LinksArgs),
    Set(set::SetArgs),
    Serve(serve::ServeArgs),
    Measure(measure::MeasureArgs),
    Calibrate(calibrate::CalibrateArgs),
    Report(report::ReportArgs),
    Compare(compare::CompareArgs),
    Merge(merge::MergeArgs),
    Submit(submit::SubmitArgs),
    View(view::ViewArgs),
    Link(link::LinkArgs),
    Theory(theory::TheoryArgs),
    Profiles(profiles::ProfilesArgs),
    Doctor(doctor::DoctorArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
    Schema(schema::SchemaArgs),
    /// Hold network interfaces in namespaces until standard input ends: what the bed `nics` starts
    #[command(hide = true)]
    NicHolder,
    /// See to what becomes of a box's interfaces when standard input ends: what `emulate` starts
    #[command(hide = true)]
    BoxHolder {
        /// What is to become of them
        on_exit: OnExit,
    },
}

impl Cli {
    /// Runs the command and gives the exit code.
    pub(crate) fn run(&self) -> ExitCode {
        notes::say_as(self.log_format);
        if self.quiet {
            notes::keep_quiet();
        }
        let outcome = match &self.command {
            Command::Exec(args) => {
                return args
                    .run()
                    .unwrap_or_else(|f| crate::exit::report_as_env(&f));
            }
            Command::Run(args) => args.run(),
            Command::Emulate(args) => args.run(),
            Command::Links(args) => args.run(),
            Command::Set(args) => args.run(),
            Command::Serve(args) => args.run(),
            Command::Measure(args) => args.run(),
            Command::Calibrate(args) => args.run(),
            Command::Report(args) => args.run(),
            Command::Compare(args) => args.run(),
            Command::Merge(args) => args.run(),
            Command::Submit(args) => args.run(),
            Command::View(args) => args.run(),
            Command::Link(args) => args.run(),
            Command::Theory(args) => args.run(),
            Command::Profiles(args) => args.run(),
            Command::Doctor(args) => args.run(),
            Command::Completions(args) => args.run(),
            Command::Man(args) => args.run(),
            Command::Schema(args) => args.run(),
            Command::NicHolder => testbed::hold_nics()
                .map(|()| ExitCode::SUCCESS)
                .map_err(Failure::from),
            Command::BoxHolder { on_exit } => crate::emulate::hold(*on_exit)
                .map(|()| ExitCode::SUCCESS)
                .map_err(Failure::from),
        };
        outcome.unwrap_or_else(|failure: Failure| crate::exit::report(&failure))
    }
}

/// Writes `value` as JSON to `json`, and `text` to standard output, or to `instead` where the JSON goes there.
///
/// # Errors
/// One of them cannot be written.
fn show(
    json: Option<&Path>,
    value: &impl Serialize,
    text: &str,
    mut instead: impl Write,
) -> Result<()> {
    if let Some(file) = json {
        output::write_json(file, value)?;
    }
    if json.is_some_and(output::is_stdout) {
        // The JSON has all of it, so that a reader of the text who has gone away changes nothing.
        let _ = instead.write_all(text.as_bytes());
        return Ok(());
    }
    Ok(output::write(None, text)?)
}

/// 0 where all is as it should be, else 1.
fn exit_code(is_met: bool) -> ExitCode {
    ExitCode::from(u8::from(!is_met))
}

/// What standard output is: as wide as the terminal, or as COLUMNS says, and 80 characters where it is none.
fn terminal() -> Terminal {
    if !io::stdout().is_terminal() {
        return Terminal::NONE;
    }
    let asked = std::env::var("COLUMNS").ok();
    let asked = asked.and_then(|columns| columns.parse().ok());
    let found = || terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    let width = asked.or_else(found).filter(|width| *width > 0);
    Terminal {
        width: width.unwrap_or(Terminal::NONE.width),
        coloured: output::coloured(true),
    }
}
