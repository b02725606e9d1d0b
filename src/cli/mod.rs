//! The commands: each file turns arguments into a plan and runs it.

mod calibrate;
mod compare;
mod doctor;
pub(crate) mod emulate;
pub(crate) mod exec;
mod experiment;
pub(crate) mod link;
mod measure;
mod pages;
mod report;
mod run;
mod serve;
mod theory;

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use netio::CpuUse;

use crate::exit::Failure;

/// A wide-area network between two interfaces, measured through, with the trust of every number stated
#[derive(Debug, Parser)]
#[command(name = "farwire", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::RunArgs),
    Exec(exec::ExecArgs),
    Emulate(emulate::EmulateArgs),
    Serve(serve::ServeArgs),
    Measure(measure::MeasureArgs),
    Calibrate(calibrate::CalibrateArgs),
    Report(report::ReportArgs),
    Compare(compare::CompareArgs),
    Theory(theory::TheoryArgs),
    Doctor(doctor::DoctorArgs),
    Completions(pages::CompletionsArgs),
    Man(pages::ManArgs),
    Schema(pages::SchemaArgs),
}

impl Cli {
    /// Runs the command and gives the exit code.
    pub(crate) fn run(&self) -> ExitCode {
        let outcome = match &self.command {
            Command::Exec(args) => {
                return args.run().unwrap_or_else(|f| f.report_as_env());
            }
            Command::Run(args) => args.run(),
            Command::Emulate(args) => args.run(),
            Command::Serve(args) => args.run(),
            Command::Measure(args) => args.run(),
            Command::Calibrate(args) => args.run(),
            Command::Report(args) => args.run(),
            Command::Compare(args) => args.run(),
            Command::Theory(args) => args.run(),
            Command::Doctor(args) => args.run(),
            Command::Completions(args) => args.run(),
            Command::Man(args) => args.run(),
            Command::Schema(args) => args.run(),
        };
        outcome.unwrap_or_else(|failure: Failure| failure.report())
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
