//! The commands: each file turns arguments into a plan and runs it.

pub(crate) mod emulate;
pub(crate) mod exec;
pub(crate) mod link;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand, ValueEnum};
use netio::CpuUse;
use serde::Serialize;

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
    Exec(exec::ExecArgs),
    Emulate(emulate::EmulateArgs),
}

impl Cli {
    /// Runs the command and gives the exit code.
    pub(crate) fn run(&self) -> ExitCode {
        let outcome = match &self.command {
            Command::Exec(args) => {
                return args.run().unwrap_or_else(|f| f.report_as_env());
            }
            Command::Emulate(args) => args.run(),
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

/// Writes `value` to `file`, or to standard output for `-`.
pub(crate) fn write_json(file: &Path, value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    if file == Path::new("-") {
        std::io::stdout().write_all(text.as_bytes())?;
        return Ok(());
    }
    std::fs::write(file, text).with_context(|| file.display().to_string())
}
