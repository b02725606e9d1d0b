//! `farwire completions`: completions for a shell.

use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Cli;
use instruments::failure::Failure;
use instruments::output;

/// Print the completions of a shell
#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    shell: Shell,
}

impl CompletionsArgs {
    /// Prints them to standard output.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        // It panics where it cannot write.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "farwire", &mut script);
        output::write(None, &String::from_utf8_lossy(&script))?;
        Ok(ExitCode::SUCCESS)
    }
}
