//! `farwire man`: the manual pages, made from the definition of the arguments and the facts of [`manual`].

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Arg, Args, Command};
use roff::{Inline, Roff, bold, italic, roman};

use super::args::link_conditions;
use super::help::{self, Detail};
use super::manual::{self, Facts};
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
            let (_, page) = page(&described());
            output::write(None, &page)?;
            return Ok(ExitCode::SUCCESS);
        };
        fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        for (name, page) in pages() {
            output::write_beside(directory, name, &page)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The date of the pages, which man(7) requires: the day of their last review.
const REVISED: &str = "2026-11-26";
/// Longer lines of roff are broken, for readers of its diffs.
const LINE: usize = 80;

/// Returns the page of every command, with the name of its file.
fn pages() -> Vec<(String, String)> {
    fn add(command: &Command, all: &mut Vec<(String, String)>) {
        for below in help::shown_commands(command) {
            add(below, all);
        }
        all.push(page(command));
    }
    let mut all = Vec::new();
    add(&described(), &mut all);
    all.sort();
    all
}

/// Returns the program's commands as clap completes them, without its command `help`.
fn described() -> Command {
    let mut command = help::described().disable_help_subcommand(true);
    command.build();
    command
}

/// Returns a command's page, with the name of its file.
fn page(command: &Command) -> (String, String) {
    let name = command.get_bin_name().unwrap_or("farwire");
    let facts = manual::facts(name);
    let own = name.replace(' ', "-");
    let title = own.to_uppercase();
    let source = concat!("farwire ", env!("CARGO_PKG_VERSION"));
    let mut page = Roff::new();
    page.control("TH", [title.as_str(), "1", REVISED, source, "farwire"]);
    let about = format!("{own} - {}", help::plain(command.get_about()));
    page.control("SH", ["NAME"]).text([roman(about)]);
    synopsis(command, name, &mut page);
    description(command, &mut page);
    options(command, &mut page);
    examples(facts, &mut page);
    rows("EXIT STATUS", facts.exit_status, &mut page);
    rows("ENVIRONMENT", facts.environment, &mut page);
    rows("FILES", facts.files, &mut page);
    see_also(command, &own, facts, &mut page);
    (format!("{own}.1"), tidy(&page.render()))
}

/// Every option with its value: "[--delay TIME]".
fn synopsis(command: &Command, name: &str, page: &mut Roff) {
    let mut line = vec![bold(name)];
    let shown = || command.get_arguments().filter(|arg| !arg.is_hide_set());
    for arg in shown().filter(|arg| !arg.is_positional()) {
        let (open, close) = brackets(arg);
        line.push(roman(format!(" {open}")));
        line.extend(flag(arg));
        line.push(roman(close));
    }
    for arg in shown().filter(|arg| arg.is_positional()) {
        let (open, close) = brackets(arg);
        let separator = if arg.is_last_set() { "-- " } else { "" };
        line.push(roman(format!(" {open}{separator}")));
        line.push(italic(help::flag(arg)));
        line.push(roman(close));
    }
    if help::shown_commands(command).next().is_some() {
        line.extend([roman(" "), italic("COMMAND"), roman(" ...")]);
    }
    page.control("SH", ["SYNOPSIS"]).text(line);
}

fn brackets(arg: &Arg) -> (&'static str, &'static str) {
    match arg.is_required_set() {
        true => ("", ""),
        false => ("[", "]"),
    }
}

/// The names of an option in bold, and that of its value in italics.
fn flag(arg: &Arg) -> Vec<Inline> {
    let text = help::flag(arg);
    match (help::takes_value(arg), text.rsplit_once(' ')) {
        (true, Some((names, value))) => vec![bold(names), roman(" "), italic(value)],
        _ => vec![bold(text)],
    }
}

fn description(command: &Command, page: &mut Roff) {
    let long = command.get_long_about().or_else(|| command.get_about());
    let long = help::plain(long);
    // The first paragraph is the line of NAME.
    let details = long.split_once("\n\n").map_or("", |(_, details)| details);
    let text = if details.is_empty() { &long } else { details };
    page.control("SH", ["DESCRIPTION"]);
    for line in text.lines() {
        match line.trim() {
            "" => page.control("PP", []),
            line => page.text([roman(line)]),
        };
    }
    for one in help::shown_commands(command) {
        page.control("TP", []).text([bold(one.get_name())]);
        page.text([roman(help::plain(one.get_about()))]);
    }
}

/// A section with a part for each heading of the help.
fn options(command: &Command, page: &mut Roff) {
    page.control("SH", ["OPTIONS"]);
    for (heading, options) in help::sections(command, Detail::Full) {
        page.control("SS", [heading]);
        for arg in options {
            page.control("TP", []).text(flag(arg));
            let text = help::description(arg, Detail::Full);
            for (number, line) in text.lines().enumerate() {
                if number > 0 {
                    page.control("br", []);
                }
                page.text([roman(line.trim())]);
            }
        }
        if heading == link_conditions::CONDITIONS_HEADING {
            page.control("PP", []);
            page.text([roman(link_conditions::ONE_DIRECTION)]);
        }
    }
}

fn examples(facts: &Facts, page: &mut Roff) {
    page.control("SH", ["EXAMPLES"]);
    for (purpose, line) in facts.examples {
        page.control("TP", []).text([roman(format!("{purpose}:"))]);
        page.text([bold(*line)]);
    }
}

/// A section with a term and its meaning in each row; none without rows.
fn rows(title: &str, rows: &[(&str, &str)], page: &mut Roff) {
    if !rows.is_empty() {
        page.control("SH", [title]);
    }
    for (term, meaning) in rows {
        page.control("TP", []).text([bold(*term)]);
        page.text([roman(*meaning)]);
    }
}

/// The pages of farwire, of the commands below this one, and of its facts, without its `own`.
fn see_also(command: &Command, own: &str, facts: &Facts, page: &mut Roff) {
    let below = help::shown_commands(command);
    let below = below.map(|one| format!("{own}-{}(1)", one.get_name()));
    let own = format!("{own}(1)");
    let mut all: Vec<String> = vec!["farwire(1)".to_owned()];
    all.extend(facts.see_also.iter().map(|page| (*page).to_owned()));
    all.extend(below);
    all.retain(|page| *page != own);
    all.sort();
    all.dedup();
    let mut line = Vec::new();
    for page in &all {
        let separator = if line.is_empty() { "" } else { ", " };
        line.push(roman(separator));
        let (title, section) = page.split_once('(').unwrap_or((page, ""));
        line.extend([bold(title), roman(format!("({section}"))]);
    }
    page.control("SH", ["SEE ALSO"]).text(line);
}

/// Removes what `mandoc -Tlint` reports of generated pages: spaces at the end of a line, breaks beside vertical space, and long
/// lines.
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

/// Writes a line of text, broken where it is long. A word with a dot or a quote at the beginning of a line is escaped, so that it is
/// no macro.
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

    #[test]
    fn the_help_of_every_command_is_the_one_that_was_reviewed() {
        let mut text = String::new();
        for (name, brief, full) in help::tests::screens() {
            text += &format!("\n===== {name} -h =====\n{brief}\n===== {name} --help =====\n{full}");
        }
        insta::assert_snapshot!("help", text);
    }

    #[test]
    fn every_page_has_the_usual_sections() {
        for (name, page) in pages() {
            for section in [
                "NAME",
                "SYNOPSIS",
                "DESCRIPTION",
                "OPTIONS",
                "EXAMPLES",
                "\"EXIT STATUS\"",
                "\"SEE ALSO\"",
            ] {
                assert!(
                    page.contains(&format!("\n.SH {section}\n")),
                    "{name}: {section}: {page}"
                );
            }
        }
        let exec = pages()
            .into_iter()
            .find(|(name, _)| name == "farwire-exec.1");
        let (_, exec) = exec.unwrap();
        let synopsis = exec.replace('\n', " ");
        assert!(synopsis.contains(r"[\fB\-\-delay\fR \fITIME\fR]"), "{exec}");
        assert!(!exec.contains(r"\-\-up\-delay\fR"), "{exec}");
    }

    #[test]
    fn every_manual_page_is_the_one_that_was_reviewed() {
        let page = |(name, page): &(String, String)| format!("===== {name} =====\n{page}");
        insta::assert_snapshot!("man", pages().iter().map(page).collect::<String>());
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
