//! `farwire completions`: completions for a shell, without internal commands.

use std::process::ExitCode;

use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;

use super::Cli;
use super::help;
use instruments::failure::Failure;
use instruments::output;

/// Print the completions for a shell
///
/// The script completes commands, options and their values. Put it where your shell looks for completions.
#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// Shell that reads the script
    shell: Shell,
}

impl CompletionsArgs {
    /// Prints the script to standard output.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        // `generate` panics if it cannot write, which a vector rules out.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut public(), "farwire", &mut script);
        output::write(None, &String::from_utf8_lossy(&script))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The program without the commands that it starts itself.
fn public() -> Command {
    let all = Cli::command();
    let arguments = all.get_arguments().cloned().collect::<Vec<_>>();
    let shown = help::shown_commands(&all).cloned().collect::<Vec<_>>();
    Command::new("farwire")
        .version(env!("CARGO_PKG_VERSION"))
        .args(arguments)
        .subcommands(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_leave_out_internal_commands() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut public(), "farwire", &mut script);
            let script = String::from_utf8(script).unwrap();
            assert!(script.contains("emulate"), "{shell}");
            assert!(script.contains("up-delay"), "{shell}");
            assert!(!script.contains("holder"), "{shell}");
        }
    }
}
