//! The help of every command: `-h` shows its most used options, a line each, and `--help` shows all of them.
//!
//! clap's own long help takes three lines or more for every option. These screens put an option and its description beside each
//! other, group the options by their headings, and begin with examples.

use clap::builder::StyledStr;
use clap::builder::styling::Style;
use clap::{Arg, ArgAction, Command, CommandFactory};
use conditions::CONDITIONS;

use super::Cli;
use super::args::headings::GENERAL;
use super::args::link_conditions;
use super::manual::{self, Facts};

/// The longest line of a help screen.
const WIDTH: usize = 100;
/// The narrowest terminal for which lines are wrapped.
const NARROWEST: usize = 60;
/// The widest column of flags. The description of a longer flag begins on the next line.
const WIDEST_FLAGS: usize = 37;

/// The amount of help that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// The screen of `-h`.
    Brief,
    /// The screen of `--help`.
    Full,
}

/// The program's commands with their help screens, wrapped for the terminal of this process.
pub(crate) fn command() -> Command {
    command_of_width(super::terminal_width().unwrap_or(WIDTH))
}

/// The program's commands with help screens whose lines have at most `width` characters, within what is usual.
pub(crate) fn command_of_width(width: usize) -> Command {
    let command = described();
    let mut built = command.clone();
    built.build();
    with_screens(command, &built, width.clamp(NARROWEST, WIDTH))
}

/// The program's commands as the manual pages and the help screens describe them.
pub(crate) fn described() -> Command {
    // `farwire link` explains conditions. Other commands have a line for each.
    let explained = |flag: Arg| {
        let mut all = CONDITIONS.iter();
        match all.find(|one| link_conditions::flag_name("", one) == flag.get_id().as_str()) {
            Some(condition) => flag.long_help(condition.help),
            None => flag,
        }
    };
    Cli::command().mut_subcommands(|command| match command.get_name() {
        "link" => command.mut_args(explained),
        _ => command,
    })
}

/// Adds the screens to `command` and to all commands below it, where clap's help template shows nothing else. `built` is the same
/// command as clap has completed it: with global options, usage and full names.
fn with_screens(command: Command, built: &Command, width: usize) -> Command {
    let [brief, full] = [Detail::Brief, Detail::Full].map(|detail| screen(built, detail, width));
    let command = command.mut_subcommands(|below| {
        let built = built.find_subcommand(below.get_name());
        match built.filter(|built| !built.is_hide_set()) {
            Some(built) => with_screens(below, built, width),
            None => below,
        }
    });
    command
        .before_help(StyledStr::from(brief))
        .before_long_help(StyledStr::from(full))
        .help_template("{before-help}")
}

/// A help screen of `command`, with the escape sequences of its headings.
fn screen(command: &Command, detail: Detail, width: usize) -> String {
    let name = command.get_bin_name().unwrap_or("farwire");
    let facts = manual::facts(name);
    let mut parts = vec![about(command, detail, width)];
    parts.extend(examples(facts, detail, width));
    parts.push(usage(command));
    parts.extend(subcommands(command, width));
    for (heading, options) in sections(command, detail) {
        let note = match heading {
            link_conditions::CONDITIONS_HEADING => Some(link_conditions::ONE_DIRECTION),
            _ => None,
        };
        parts.push(section(heading, &options, note, detail, width));
    }
    match detail {
        Detail::Full => parts.push(heading("Exit status") + &columns(facts.exit_status, width)),
        Detail::Brief => parts.push(more(command, name, width)),
    }
    parts.join("\n")
}

/// The purpose of the command, and for the full screen its details.
fn about(command: &Command, detail: Detail, width: usize) -> String {
    let long = command.get_long_about().filter(|_| detail == Detail::Full);
    plain(long.or_else(|| command.get_about()))
        .lines()
        .map(|line| wrapped(line, 0, width) + "\n")
        .collect()
}

fn examples(facts: &Facts, detail: Detail, width: usize) -> Option<String> {
    let mut text = heading("Examples");
    for (purpose, line) in facts.examples {
        match detail {
            Detail::Full => {
                text += &format!("  {}:\n    {line}\n", wrapped(purpose, 2, width));
            }
            Detail::Brief => text += &format!("  {line}\n"),
        }
    }
    (!facts.examples.is_empty()).then_some(text)
}

/// The line of clap, without its brackets around the names of values.
fn usage(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let line = usage.replace(['<', '>'], "");
    format!("{} {line}\n", bold("Usage:"))
}

fn subcommands(command: &Command, width: usize) -> Option<String> {
    let rows: Vec<(String, String)> = shown_commands(command)
        .map(|one| (one.get_name().to_owned(), plain(one.get_about())))
        .collect();
    (!rows.is_empty()).then(|| heading("Commands") + &columns(&rows, width))
}

/// The commands directly below `command` that help shows.
pub(crate) fn shown_commands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|one| !one.is_hide_set())
}

/// The shown options of `command` by heading: positional arguments, options without a heading, headings in their order, and those
/// that every command has.
pub(crate) fn sections(command: &Command, detail: Detail) -> Vec<(&str, Vec<&Arg>)> {
    let mut sections: Vec<(&str, Vec<&Arg>)> = vec![("Arguments", vec![]), ("Options", vec![])];
    let mut general = Vec::new();
    for arg in command.get_arguments() {
        let is_left_out = detail == Detail::Brief && arg.is_hide_short_help_set();
        if arg.is_hide_set() || is_left_out {
            continue;
        }
        let is_automatic = ["help", "version"].contains(&arg.get_id().as_str());
        let heading = match arg.get_help_heading() {
            _ if arg.is_positional() => "Arguments",
            None if is_automatic => GENERAL,
            heading => heading.unwrap_or("Options"),
        };
        if heading == GENERAL {
            general.push(arg);
            continue;
        }
        match sections.iter_mut().find(|(known, _)| *known == heading) {
            Some((_, all)) => all.push(arg),
            None => sections.push((heading, vec![arg])),
        }
    }
    sections.push((GENERAL, general));
    sections.retain(|(_, all)| !all.is_empty());
    sections
}

fn section(
    title: &str,
    options: &[&Arg],
    note: Option<&str>,
    detail: Detail,
    width: usize,
) -> String {
    let rows: Vec<(String, String)> = options
        .iter()
        .map(|arg| (flag(arg), description(arg, detail)))
        .collect();
    let mut text = heading(title) + &columns(&rows, width);
    if let Some(note) = note {
        text += &format!("  {}\n", wrapped(note, 2, width));
    }
    text
}

/// Two columns, the second one wrapped.
fn columns<T: AsRef<str>>(rows: &[(T, T)], width: usize) -> String {
    let longest = rows.iter().map(|(flag, _)| flag.as_ref().chars().count());
    let longest = longest.filter(|length| *length <= WIDEST_FLAGS).max();
    let indent = longest.unwrap_or(WIDEST_FLAGS) + 4;
    let row = |(flag, text): &(T, T)| {
        let flag = flag.as_ref();
        let lines = text
            .as_ref()
            .lines()
            .map(|line| wrapped(line, indent, width));
        let margin = " ".repeat(indent);
        let text = lines.collect::<Vec<_>>().join(&format!("\n{margin}"));
        match flag.chars().count() + 4 <= indent {
            true => format!("  {flag:<0$}{text}\n", indent - 2),
            false => format!("  {flag}\n{margin}{text}\n"),
        }
    };
    rows.iter().map(row).collect()
}

/// The names of an option and of its value: "-s, --size BYTES".
pub(crate) fn flag(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    let range = arg.get_num_args().unwrap_or_default();
    let many = if range.max_values() > names.len().max(1) {
        "..."
    } else {
        ""
    };
    if arg.is_positional() {
        return names.join(" ") + many;
    }
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let flags: Vec<String> = short.into_iter().chain(long).collect();
    let flags = flags.join(", ");
    match (takes_value(arg), range.min_values()) {
        (false, _) => flags,
        (true, 0) => format!("{flags} [{}]", names.join(" ")),
        (true, _) => format!("{flags} {}{many}", names.join(" ")),
    }
}

/// True for an option with a value, as against a flag.
pub(crate) fn takes_value(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Set | ArgAction::Append)
}

/// The text beside an option: what it does, its default, and the values that it takes.
pub(crate) fn description(arg: &Arg, detail: Detail) -> String {
    let long = arg.get_long_help().filter(|_| detail == Detail::Full);
    let mut text = plain(long.or_else(|| arg.get_help()));
    // The long text repeats the short one, its first paragraph, with more detail.
    if let Some((_, details)) = text.split_once("\n\n") {
        text = details.replace("\n\n", "\n");
    }
    let values: Vec<_> = arg
        .get_possible_values()
        .into_iter()
        .filter(|value| !value.is_hide_set() && !arg.is_hide_possible_values_set())
        .collect();
    let explained = takes_value(arg) && values.iter().any(|value| value.get_help().is_some());
    let default = default(arg).map(|value| format!("default: {value}"));
    let names: Vec<&str> = values.iter().map(|value| value.get_name()).collect();
    let is_listed = takes_value(arg) && !names.is_empty() && !(explained && detail == Detail::Full);
    let listed = is_listed.then(|| format!("one of {}", names.join(", ")));
    let facts: Vec<String> = listed.into_iter().chain(default).collect();
    let mut said = match facts.is_empty() {
        true => text,
        false => format!("{text} [{}]", facts.join("; ")),
    };
    if explained && detail == Detail::Full {
        let longest = names.iter().map(|name| name.len()).max().unwrap_or(0);
        for value in &values {
            let help = plain(value.get_help());
            said += &format!("\n{HANGING}{:<longest$}  {help}", value.get_name());
        }
    }
    said.trim_start().to_owned()
}

/// The indentation of the explanation of a value.
const HANGING: &str = "  ";

/// The default of an option as it would be written.
pub(crate) fn default(arg: &Arg) -> Option<String> {
    let values = arg.get_default_values();
    let values: Vec<_> = values.iter().map(|value| value.to_string_lossy()).collect();
    let is_shown = takes_value(arg) && !values.is_empty() && !arg.is_hide_default_value_set();
    is_shown.then(|| values.join(" "))
}

/// The last lines of the brief screen: which screens show more.
fn more(command: &Command, name: &str, width: usize) -> String {
    let is_hidden = |arg: &Arg| arg.is_hide_short_help_set() && !arg.is_hide_set();
    let count = command.get_arguments().filter(|arg| is_hidden(arg)).count();
    let has_conditions = command
        .get_arguments()
        .any(|arg| arg.get_help_heading() == Some(link_conditions::CONDITIONS_HEADING));
    let link = match has_conditions && name != "farwire link" {
        true => "; `farwire link --help` explains every condition.",
        false => ".",
    };
    let options = match count {
        0 => "details".to_owned(),
        1 => "1 more option".to_owned(),
        count => format!("{count} more options"),
    };
    let text = format!("`{name} --help` shows {options}{link}");
    wrapped(&text, 0, width) + "\n"
}

/// A text of clap without its styles, empty if there is none.
pub(crate) fn plain(text: Option<&StyledStr>) -> String {
    text.map(ToString::to_string).unwrap_or_default()
}

fn heading(text: &str) -> String {
    format!("{}\n", bold(&format!("{text}:")))
}

/// The text in bold. clap leaves the escape sequences out where no terminal reads them.
fn bold(text: &str) -> String {
    let style = Style::new().bold();
    format!("{style}{text}{style:#}")
}

/// Breaks a line at spaces so that no part of it is longer than `width`, when it begins in column `indent`. Later lines begin
/// there too.
fn wrapped(line: &str, indent: usize, width: usize) -> String {
    let own = line.len() - line.trim_start().len();
    // The continuation of a value's explanation is below the explanation.
    let hanging = match own {
        0 => indent,
        own => {
            let rest = &line[own..];
            let gap = rest
                .find("  ")
                .map_or(0, |at| rest.len() - rest[at..].trim_start().len());
            indent + own + gap
        }
    };
    let margin = format!("\n{}", " ".repeat(hanging));
    let mut text = String::new();
    let mut column = indent;
    for (number, word) in line.split(' ').enumerate() {
        let length = word.chars().count();
        if number > 0 && !word.is_empty() && column > hanging && column + 1 + length > width {
            text.truncate(text.trim_end().len());
            text += &margin;
            column = hanging;
        } else if number > 0 {
            text.push(' ');
            column += 1;
        }
        text += word;
        column += length;
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use clap::Parser as _;

    use super::*;

    /// The commands that help shows, with all names before their own, and both of their screens.
    pub(crate) fn screens() -> Vec<(String, String, String)> {
        fn add(command: &mut Command, all: &mut Vec<(String, String, String)>) {
            let name = command.get_bin_name().unwrap_or("farwire").to_owned();
            let brief = command.render_help().to_string();
            let full = command.render_long_help().to_string();
            all.push((name, brief, full));
            for below in command.get_subcommands_mut() {
                if !below.is_hide_set() && below.get_name() != "help" {
                    add(below, all);
                }
            }
        }
        let mut command = command_of_width(WIDTH);
        command.build();
        let mut all = Vec::new();
        add(&mut command, &mut all);
        all
    }

    /// The words of an example up to a pipe or a redirection, as a shell reads them.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut word, mut quoted) = (Vec::new(), None::<String>, false);
        for letter in line.chars() {
            match letter {
                '\'' => {
                    quoted = !quoted;
                    word.get_or_insert_default();
                }
                ' ' if !quoted => words.extend(word.take()),
                _ => word.get_or_insert_default().push(letter),
            }
        }
        words.extend(word);
        let is_of_shell = |word: &String| ["|", ">"].contains(&word.as_str());
        let end = words.iter().position(is_of_shell).unwrap_or(words.len());
        words.truncate(end);
        words
    }

    #[test]
    fn every_command_begins_with_three_or_four_examples_that_are_command_lines() {
        for (name, _, full) in screens() {
            let examples = manual::facts(&name).examples;
            assert!((3..=4).contains(&examples.len()), "{name}");
            for (purpose, line) in examples {
                assert!(full.contains(line), "{name}: {full}");
                assert!(!purpose.ends_with('.'), "{name}: {purpose}");
                if let Err(error) = Cli::try_parse_from(words(line)) {
                    panic!("{line}: {error}");
                }
            }
            let of_command = examples.iter().filter(|(_, line)| line.starts_with(&name));
            assert!(of_command.count() >= 2, "{name}");
        }
    }

    /// Replaces the placeholders of a usage line by values.
    fn filled(usage: &str) -> Vec<String> {
        let words = usage.split(' ').filter(|word| !word.starts_with('['));
        let words = words.flat_map(|word| match word {
            "CONDITION..." => vec!["--delay", "1ms"],
            word => vec![word.trim_end_matches("...")],
        });
        words.map(str::to_owned).collect()
    }

    #[test]
    fn every_line_of_a_usage_with_alternatives_is_a_command_line() {
        let mut command = Cli::command();
        command.build();
        let mut alternatives = 0;
        for command in shown_commands(&command) {
            let usage = usage(command);
            let lines: Vec<&str> = usage.lines().map(str::trim).collect();
            if lines.len() < 2 {
                continue;
            }
            alternatives += 1;
            for line in lines {
                let start = line.find("farwire").unwrap_or_default();
                if let Err(error) = Cli::try_parse_from(filled(&line[start..])) {
                    panic!("{line}: {error}");
                }
            }
        }
        assert_eq!(alternatives, 6);
    }

    #[test]
    fn screens_fit_100_columns_and_those_of_exec_fit_50_and_100_lines() {
        for (name, brief, full) in screens() {
            for line in brief.lines().chain(full.lines()) {
                assert!(line.chars().count() <= WIDTH, "{name}: {line}");
            }
            assert!(!full.contains("--up-delay "), "{name}");
            if name == "farwire exec" {
                assert!(brief.lines().count() <= 50, "{brief}");
                assert!(full.lines().count() <= 100, "{full}");
            }
        }
    }

    #[test]
    fn a_narrow_terminal_has_narrower_screens() {
        let mut command = command_of_width(NARROWEST);
        command.build();
        let exec = command.find_subcommand_mut("exec").unwrap();
        let text = exec.render_help().to_string();
        let options = text.split("Conditions").nth(1).unwrap();
        let is_wide = |line: &str| line.chars().count() > NARROWEST;
        assert!(!options.lines().any(is_wide), "{options}");
    }

    #[test]
    fn a_long_line_continues_below_its_beginning() {
        assert_eq!(wrapped("one two three", 4, 11), "one two\n    three");
        assert_eq!(
            wrapped("  spin    Spin through it", 2, 22),
            "  spin    Spin\n            through it"
        );
        assert_eq!(wrapped("unbreakable", 0, 5), "unbreakable");
    }
}
