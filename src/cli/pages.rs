//! `farwire completions`, `farwire man` and `farwire schema`: generated from what reads the input.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Cli;
use crate::experiment::scenario::schema;
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
        clap_complete::generate(
            self.shell,
            &mut Cli::command(),
            "farwire",
            &mut io::stdout(),
        );
        Ok(ExitCode::SUCCESS)
    }
}

/// Print the JSON Schema of scenario files
#[derive(Args, Debug)]
pub(crate) struct SchemaArgs {}

impl SchemaArgs {
    /// Prints it to standard output.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        output::write(None, &schema())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Print the manual page, or write one for each command into a directory
#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Write farwire.1, farwire-run.1, ... into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl ManArgs {
    /// Prints or writes the pages, in roff for man(1).
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        match &self.out {
            Some(dir) => {
                clap_mangen::generate_to(Cli::command(), dir)
                    .with_context(|| dir.display().to_string())?;
            }
            None => {
                let mut page = Vec::new();
                clap_mangen::Man::new(Cli::command()).render(&mut page)?;
                io::stdout().write_all(&page)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Command;

    /// The long help of `command` and of all below it, as a terminal of 100 columns without colours shows it.
    fn help(command: &mut Command, out: &mut String) {
        let text = command.render_long_help();
        *out += &format!(
            "\n===== {} --help =====\n{text}",
            command.get_bin_name().unwrap_or_default()
        );
        for below in command.get_subcommands_mut() {
            if !below.is_hide_set() && below.get_name() != "help" {
                help(below, out);
            }
        }
    }

    #[test]
    fn the_help_of_every_command_is_the_one_that_was_reviewed() {
        let mut command = Cli::command().term_width(100);
        command.build();
        let mut text = String::new();
        help(&mut command, &mut text);
        insta::assert_snapshot!("help", text);
    }

    #[test]
    fn every_manual_page_is_the_one_that_was_reviewed() {
        let directory = tempfile::tempdir().unwrap();
        clap_mangen::generate_to(Cli::command(), &directory).unwrap();
        let pages = std::fs::read_dir(&directory).unwrap();
        let mut pages: Vec<PathBuf> = pages.map(|page| page.unwrap().path()).collect();
        pages.sort();
        let page = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy();
            format!(
                "===== {name} =====\n{}",
                std::fs::read_to_string(path).unwrap()
            )
        };
        insta::assert_snapshot!("man", pages.iter().map(page).collect::<String>());
    }
}
