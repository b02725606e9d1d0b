//! `farwire man`: the manual pages, which clap makes of the definition of the arguments.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Command, CommandFactory};
use clap_mangen::Man;

use super::Cli;
use instruments::failure::Failure;
use instruments::output;

/// Print the manual page, or write the page of every command into a directory
#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Write farwire.1, farwire-run.1 and so on into DIR, which is created if needed
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl ManArgs {
    /// Prints or writes the pages, in roff for man(1).
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let Some(directory) = &self.out else {
            let (_, page) = page(Cli::command())?;
            output::write(None, &page)?;
            return Ok(ExitCode::SUCCESS);
        };
        fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        for (name, page) in pages()? {
            output::write(Some(&directory.join(name)), &page)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// When the pages were last read through: man(7) wants a date.
const REVISED: &str = "2026-11-22";
/// Longer lines of roff are broken, for those who read diffs of it.
const LINE: usize = 80;

/// The page of every command, with its file's name.
fn pages() -> Result<Vec<(String, String)>> {
    fn add(command: Command, all: &mut Vec<(String, String)>) -> Result<()> {
        for below in command.get_subcommands().filter(|c| !c.is_hide_set()) {
            add(below.clone(), all)?;
        }
        all.push(page(command)?);
        Ok(())
    }
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let mut all = Vec::new();
    add(command, &mut all)?;
    all.sort();
    Ok(all)
}

/// A command's page, with its file's name.
fn page(command: Command) -> Result<(String, String)> {
    let man = Man::new(command);
    let file = man.get_filename();
    let title = file.trim_end_matches(".1").to_uppercase();
    let man = man
        .title(title)
        .date(REVISED)
        .source(concat!("farwire ", env!("CARGO_PKG_VERSION")))
        .manual("farwire");
    let mut page = Vec::new();
    man.render(&mut page)?;
    Ok((file, tidy(&String::from_utf8(page)?)))
}

/// Without what `mandoc -Tlint` finds in generated pages: spaces at the end of a line, breaks beside vertical space,
/// long lines.
fn tidy(page: &str) -> String {
    let lines: Vec<&str> = page.lines().map(str::trim_end).collect();
    let is_space = |at: Option<usize>| {
        let line = at.and_then(|at| lines.get(at));
        line.is_some_and(|line| line.is_empty() || line.starts_with(".sp"))
    };
    let mut tidied = String::new();
    for (at, line) in lines.iter().enumerate() {
        let beside_space = is_space(at.checked_sub(1)) || is_space(Some(at + 1));
        if *line == ".br" && beside_space {
            continue;
        }
        if line.starts_with('.') {
            tidied += line;
        } else {
            broken(line, &mut tidied);
        }
        tidied.push('\n');
    }
    tidied
}

/// A line of text, in several where it is long; what begins with a dot or a quote is kept from being a macro.
fn broken(line: &str, into: &mut String) {
    let mut length = 0;
    for word in line.split(' ') {
        let more = word.chars().count() + 1;
        if length > 0 && length + more > LINE {
            into.push('\n');
            if word.starts_with(['.', '\'']) {
                *into += "\\&";
            }
            length = 0;
        } else if length > 0 {
            into.push(' ');
        }
        *into += word;
        length += more;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The long help of `command` and of all below it, as a terminal of 100 columns without colours shows it.
    fn help(command: &mut Command, out: &mut String) {
        let text = command.render_long_help();
        *out += &format!(
            "\n===== {} --help =====\n{text}",
            command.get_bin_name().unwrap_or("farwire")
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
        let page = |(name, page): &(String, String)| format!("===== {name} =====\n{page}");
        let pages = pages().unwrap();
        insta::assert_snapshot!("man", pages.iter().map(page).collect::<String>());
    }

    #[test]
    fn a_long_line_is_broken_and_what_looks_like_a_macro_is_kept_from_being_one() {
        let line = format!("{} .toml 'quoted' {}", "x".repeat(76), "y".repeat(80));
        let page = tidy(&format!(".SH NAME \n{line} \n.br\n.sp\n.br\nend\n"));
        let x = "x".repeat(76);
        let y = "y".repeat(80);
        assert_eq!(
            page,
            format!(".SH NAME\n{x}\n\\&.toml 'quoted'\n{y}\n.sp\nend\n")
        );
    }
}
