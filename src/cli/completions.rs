//! `farwire completions`: completions for a shell.

use std::io;
use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Cli;
use instruments::failure::Failure;

/// Print the completions of a shell
#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    shell: Shell,
}

impl CompletionsArgs {
    /// Prints them to standard output.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        clap_complete::generate(
            self.shell,
            &mut Cli::command(),
            "farwire",
            &mut io::stdout(),
        );
        Ok(ExitCode::SUCCESS)
    }
}
