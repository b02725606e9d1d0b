//! The commands: each file turns arguments into a plan and runs it.

mod ask;
mod at;
mod calibrate;
mod captured;
mod compare;
mod doctor;
pub(crate) mod emulate;
pub(crate) mod exec;
mod experiment;
mod in_effect;
pub(crate) mod link;
mod links;
mod listen;
mod measure;
mod merge;
mod pages;
mod profiles;
mod report;
mod run;
mod serve;
mod submit;
mod theory;
mod tui;
mod view;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Parser, Subcommand, ValueEnum};
use model::Bytes;
use netio::CpuUse;
use serde::Serialize;

use crate::emulate::OnExit;
use crate::forward::capture::{Capture, CaptureSpec};
use crate::forward::packet_log::PacketLog;
use crate::forward::thread::ForwarderOptions;
use crate::notes::{self, LogFormat};
use crate::testbed;
use ::report::Terminal;
use conditions::in_effect::MemoryNeed;
use conditions::link_spec::LinkSpec;
use instruments::failure::{Blame, Failure};
use instruments::output;
use record::lateness::LateBudget;

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
    Links(at::LinksArgs),
    Set(at::SetArgs),
    Serve(serve::ServeArgs),
    Measure(measure::MeasureArgs),
    Calibrate(calibrate::CalibrateArgs),
    Report(report::ReportArgs),
    Compare(compare::CompareArgs),
    Merge(merge::MergeArgs),
    Submit(submit::SubmitArgs),
    View(view::ViewArgs),
    Link(in_effect::InEffectArgs),
    Theory(theory::TheoryArgs),
    Profiles(profiles::ProfilesArgs),
    Doctor(doctor::DoctorArgs),
    Completions(pages::CompletionsArgs),
    Man(pages::ManArgs),
    Schema(pages::SchemaArgs),
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
        return Ok(instead.write_all(text.as_bytes())?);
    }
    Ok(output::write(None, text)?)
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

/// How the emulator runs.
#[derive(Args, Debug)]
pub(crate) struct ForwarderArgs {
    /// Whether the forwarder may spin to be on time
    #[arg(long, value_name = "USE", default_value = "spin")]
    cpu: CpuArg,
    /// A packet that leaves later than this after its due time counts as late; above 0, at most 1s
    #[arg(long, value_name = "TIME", default_value_t)]
    late_budget: LateBudget,
    /// Most memory for frames on their way, book-keeping included; what rate and delay need beyond it is refused at the start
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    held_memory: Bytes,
    /// Write a line a packet to FILE as CSV (- is standard output): arrival, what became of it, due time, departure
    #[arg(long, value_name = "FILE")]
    packet_log: Option<PathBuf>,
    /// Capture every packet at both ends to PREFIX.pcapng (- is standard output), of --links to PREFIX-A-B.pcapng each, with what became of it
    /// as its comment
    #[arg(long, value_name = "PREFIX")]
    pcap: Option<PathBuf>,
    #[command(flatten)]
    captured: captured::CapturedArgs,
}

impl ForwarderArgs {
    /// The forwarder's options for links under these conditions, without captures; the packet log's file is made.
    ///
    /// # Errors
    /// That file cannot be written; the links need more memory than they are allowed.
    fn options<'s>(
        &self,
        links: impl IntoIterator<Item = &'s LinkSpec>,
    ) -> Result<ForwarderOptions, Failure> {
        let memory = self.memory_for(links)?;
        let packet_log = self.packet_log.as_deref().map(PacketLog::create);
        Ok(ForwarderOptions {
            late_budget: self.late_budget,
            memory,
            packet_log: packet_log.transpose().or_bad_input()?,
            ..CpuUse::from(self.cpu).into()
        })
    }

    /// The capture of the only link, between these ends, where one is asked for; its file is made.
    ///
    /// # Errors
    /// That file cannot be written.
    fn capture(&self, ends: [&str; 2]) -> Result<Vec<Capture>, Failure> {
        let prefix = self.pcap.iter();
        let captures = prefix.map(|prefix| self.capture_to(prefix, ends));
        captures.collect::<Result<_>>().or_bad_input()
    }

    /// A capture of each link, to PREFIX-A-B by its ends, where they are asked for; the files are made.
    ///
    /// # Errors
    /// One of them cannot be written.
    fn captures<'e>(
        &self,
        links: impl Iterator<Item = [&'e str; 2]>,
    ) -> Result<Vec<Capture>, Failure> {
        let Some(prefix) = &self.pcap else {
            return Ok(Vec::new());
        };
        if output::is_stdout(prefix) {
            return Err(Failure::bad_input(
                "--pcap -: standard output takes one link's: name a PREFIX, which each link's file begins with",
            ));
        }
        let capture = |[a, b]: [&str; 2]| {
            let mut name = prefix.clone().into_os_string();
            name.push(format!("-{a}-{b}"));
            self.capture_to(Path::new(&name), [a, b])
        };
        links.map(capture).collect::<Result<_>>().or_bad_input()
    }

    fn capture_to(&self, prefix: &Path, ends: [&str; 2]) -> Result<Capture> {
        let spec = CaptureSpec {
            ends: ends.map(str::to_owned),
            ..self.captured.spec(!output::is_stdout(prefix))
        };
        Capture::create(prefix, spec)
    }

    /// What may be held, if that is enough for what these conditions imply.
    fn memory_for<'s>(
        &self,
        links: impl IntoIterator<Item = &'s LinkSpec>,
    ) -> Result<usize, Failure> {
        let needs = links.into_iter().map(MemoryNeed::of);
        let needs = needs.collect::<Result<Vec<_>>>().or_bad_input()?;
        let sum = |way: fn(&MemoryNeed) -> u64| needs.iter().map(way).fold(0, u64::saturating_add);
        let need = sum(MemoryNeed::bytes);
        if need > self.held_memory.0 {
            return Err(Failure::bad_input(format!(
                "--held-memory {}: rate times delay has {} bytes of full frames on their way up and {} down, {need} bytes with \
                 what is kept beside each: allow that much, or less rate or delay",
                self.held_memory,
                sum(|of| of.up),
                sum(|of| of.down),
            )));
        }
        usize::try_from(self.held_memory.0).or_bad_input()
    }
}

/// `--cpu`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum CpuArg {
    /// Spin through the last microseconds before each departure
    Spin,
    /// Never spin: gentler, and late by as much as the machine wakes up late
    Gentle,
}

impl From<CpuArg> for CpuUse {
    fn from(arg: CpuArg) -> Self {
        match arg {
            CpuArg::Spin => Self::Spin,
            CpuArg::Gentle => Self::Gentle,
        }
    }
}
