//! The commands, one in each file, which declares the arguments and runs the command. [`args`] has the arguments that several commands share.

pub(crate) mod args;
mod calibrate;
mod compare;
mod completions;
mod doctor;
mod emulate;
mod exec;
mod fit;
mod help;
mod host_watch;
mod link;
mod links;
mod man;
mod manual;
mod measure;
pub(crate) mod merge;
mod mistakes;
mod profile_line;
mod profiles;
mod report;
mod run;
mod schema;
mod serve;
mod set;
mod submit;
mod theory;
mod trace;
mod view;

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::{FromArgMatches as _, Parser, Subcommand};
use serde::Serialize;

use crate::emulate::OnExit;
use crate::notes::{self, LogFormat};
use crate::testbed;
use ::report::Terminal;
use args::headings;
use instruments::failure::Failure;
use instruments::output;

/// Emulate a WAN, measure through it, and see how far to trust each number
///
/// farwire delays, drops, shapes and reorders packets between two network namespaces (`exec`, `run`) or between two Ethernet
/// interfaces (`emulate`). It measures with standard protocols (`measure`, `serve`) and repeats measurements as experiments
/// (`run`, `report`, `compare`). Every command has its own help: `farwire exec -h`.
#[derive(Debug, Parser)]
#[command(name = "farwire", version)]
pub(crate) struct Cli {
    /// Print only errors and warnings
    #[arg(short, long, global = true, help_heading = headings::GENERAL)]
    quiet: bool,
    /// Log format on standard error
    #[arg(
        long,
        global = true,
        value_name = "FORMAT",
        default_value = "text",
        help_heading = headings::GENERAL,
        hide_short_help = true
    )]
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
    Fit(fit::FitArgs),
    Calibrate(calibrate::CalibrateArgs),
    Report(report::ReportArgs),
    Compare(compare::CompareArgs),
    Merge(merge::MergeArgs),
    Submit(submit::SubmitArgs),
    View(view::ViewArgs),
    Link(link::LinkArgs),
    Theory(theory::TheoryArgs),
    Profiles(profiles::ProfilesArgs),
    Trace(Box<trace::TraceArgs>),
    Doctor(doctor::DoctorArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
    Schema(schema::SchemaArgs),
    /// Hold network interfaces in namespaces until standard input ends (started by the bed `nics`)
    #[command(hide = true)]
    NicHolder,
    /// Release the interfaces of a box when standard input ends (started by `emulate`)
    #[command(hide = true)]
    BoxHolder {
        /// State in which to leave the interfaces
        on_exit: OnExit,
    },
    /// Look for containers that restart until standard input ends (started by `emulate`)
    #[command(hide = true)]
    ContainerWatcher,
    /// Run pasta until standard input ends (started by `exec --net host`)
    #[command(hide = true)]
    HostGateway,
    /// Look up the names of addresses until standard input ends (started by `serve --names`)
    #[command(hide = true)]
    NameResolver,
}

impl Cli {
    /// Reads the command line of this process.
    ///
    /// # Errors
    /// The command line is wrong, or asks for help or the version, which the error then contains.
    pub(crate) fn from_command_line() -> Result<Self, clap::Error> {
        let mut command = help::command();
        let matches = command.try_get_matches_from_mut(std::env::args_os());
        let parsed = matches.and_then(|matches| Self::from_arg_matches(&matches));
        parsed.map_err(|error| {
            let words = std::env::args_os().skip(1);
            let words: Vec<String> = words
                .map(|word| word.to_string_lossy().into_owned())
                .collect();
            mistakes::in_words(error, &command, &words)
        })
    }

    /// Runs the command and returns the exit code.
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
            Command::Fit(args) => args.run(),
            Command::Calibrate(args) => args.run(),
            Command::Report(args) => args.run(),
            Command::Compare(args) => args.run(),
            Command::Merge(args) => args.run(),
            Command::Submit(args) => args.run(),
            Command::View(args) => args.run(),
            Command::Link(args) => args.run(),
            Command::Theory(args) => args.run(),
            Command::Profiles(args) => args.run(),
            Command::Trace(args) => args.run(),
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
            Command::ContainerWatcher => crate::emulate::watch_containers()
                .map(|()| ExitCode::SUCCESS)
                .map_err(Failure::from),
            Command::HostGateway => crate::host_network::run_gateway()
                .map(|()| ExitCode::SUCCESS)
                .map_err(Failure::from),
            Command::NameResolver => crate::peer_names::resolve()
                .map(|()| ExitCode::SUCCESS)
                .map_err(Failure::from),
        };
        outcome.unwrap_or_else(|failure: Failure| crate::exit::report(&failure))
    }
}

/// Writes `value` as JSON to `json`, and `text` to standard output, or to `instead` if the JSON goes there.
///
/// # Errors
/// The JSON or the text cannot be written.
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
        // The JSON contains everything, so it does not matter if nobody reads the text.
        let _ = instead.write_all(text.as_bytes());
        return Ok(());
    }
    Ok(output::write(None, text)?)
}

/// Returns exit code 0 if the expectation is met, else 1.
fn exit_code(is_met: bool) -> ExitCode {
    ExitCode::from(u8::from(!is_met))
}

/// Describes standard output: the width of the terminal or of `COLUMNS`, or 80 characters if it is not a terminal.
fn terminal() -> Terminal {
    if !io::stdout().is_terminal() {
        return Terminal::NONE;
    }
    let width = terminal_width().filter(|width| *width > 0);
    Terminal {
        width: width.unwrap_or(Terminal::NONE.width),
        coloured: output::coloured(true),
    }
}

/// Returns the width that `COLUMNS` names, or else that of the terminal.
fn terminal_width() -> Option<usize> {
    let asked = std::env::var("COLUMNS").ok();
    let asked = asked.and_then(|columns| columns.parse().ok());
    let found = || terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    asked.or_else(found)
}
