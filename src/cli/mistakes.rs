//! Errors of the argument parser in plain words: a suggestion for a flag whose name means the same as another one's, the commands that
//! have a flag, and what would be right in place of the messages of libraries.

use std::error::Error as _;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, Error};

use conditions::{nearest, plain};

/// Prefixes of flags that concern one direction, and none.
const PREFIXES: [&str; 3] = ["up-", "down-", ""];
/// The largest number of commands that an error names because they have an unknown flag.
const MOST_COMMANDS: usize = 3;
/// The last line of clap's errors.
const MORE: &str = "For more information, try '--help'.";

/// Returns the error in plain words. `command` is the whole program, and `words` are its arguments.
pub(super) fn in_words(error: Error, command: &Command, words: &[String]) -> Error {
    match error.kind() {
        ErrorKind::UnknownArgument => with_suggestion(error, used(command, words), command),
        ErrorKind::ValueValidation => without_raw_cause(error),
        _ => error,
    }
}

/// Returns the command that `words` name.
fn used<'c>(command: &'c Command, words: &[String]) -> &'c Command {
    let before_separator = words.iter().take_while(|word| *word != "--");
    before_separator.fold(command, |command, word| {
        command.find_subcommand(word).unwrap_or(command)
    })
}

/// Returns the error with the flag of `command` that means the same as the unknown one, or otherwise with the commands of the
/// `program` that have it.
fn with_suggestion(mut error: Error, command: &Command, program: &Command) -> Error {
    let name = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(given)) => given.strip_prefix("--"),
        _ => None,
    };
    let name = name.and_then(|name| name.split('=').next());
    let Some(name) = name.map(str::to_owned) else {
        return error;
    };
    if let Some((flag, value)) = same_meaning(&name, command) {
        let suggested = ContextValue::String(format!("--{flag}"));
        error.insert(ContextKind::SuggestedArg, suggested);
        if let Some(value) = value {
            add_tip(&mut error, format!("'--{flag}' is {value}"));
        }
        return error;
    }
    let commands = commands_with(&name, program, program.get_name());
    if (1..=MOST_COMMANDS).contains(&commands.len()) {
        let commands = commands.join("', '");
        add_tip(&mut error, format!("'--{name}' is a flag of '{commands}'"));
    }
    error
}

/// Returns the long name of the flag of `command` that means the same as `name`, and what its value is if that differs.
fn same_meaning(name: &str, command: &Command) -> Option<(String, Option<&'static str>)> {
    let flags: Vec<&str> = command.get_arguments().filter_map(Arg::get_long).collect();
    let swapped = ["up", "down"].into_iter().find_map(|direction| {
        let condition = name.strip_suffix(direction)?.strip_suffix('-')?;
        Some(format!("{direction}-{condition}"))
    });
    let names = [Some(name), swapped.as_deref()].into_iter().flatten();
    let mut candidates =
        names.flat_map(|name| PREFIXES.into_iter().map(move |prefix| (name, prefix)));
    candidates.find_map(|(name, prefix)| {
        let bare = name.strip_prefix(prefix)?;
        let meant = nearest::by_meaning(bare, flags.iter().copied())?;
        let flag = format!("{prefix}{meant}");
        let is_known = flags.contains(&flag.as_str());
        is_known.then(|| (flag, nearest::other_value(bare, meant)))
    })
}

/// Returns the commands below `command` that have this flag, each with the words before it, such as `path`.
fn commands_with(flag: &str, command: &Command, path: &str) -> Vec<String> {
    let mut all = Vec::new();
    for below in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        let path = format!("{path} {}", below.get_name());
        let is_it = |arg: &Arg| arg.get_long() == Some(flag) && !arg.is_hide_set();
        let has_it = below.get_arguments().any(is_it);
        let deeper = commands_with(flag, below, &path);
        all.extend(has_it.then_some(path));
        all.extend(deeper);
    }
    all
}

/// Adds a tip in front of those of clap.
fn add_tip(error: &mut Error, tip: String) {
    let mut tips = vec![StyledStr::from(tip)];
    if let Some(ContextValue::StyledStrs(others)) = error.remove(ContextKind::Suggested) {
        tips.extend(others);
    }
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
}

/// Returns an error about a value, with advice in place of the message of a library.
fn without_raw_cause(error: Error) -> Error {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    };
    let Some(cause) = error.source().map(ToString::to_string) else {
        return error;
    };
    let right = plain::in_words(&cause);
    if right == cause {
        return error;
    }
    let [value, flag] = [ContextKind::InvalidValue, ContextKind::InvalidArg].map(text);
    Error::raw(
        error.kind(),
        format_args!("invalid value '{value}' for '{flag}': {right}\n\n{MORE}\n"),
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::Cli;
    use super::*;

    /// Returns the error of a command line, as people read it.
    fn refused(line: &str) -> String {
        use clap::CommandFactory as _;
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let all = [vec!["farwire".to_owned()], words.clone()].concat();
        let error = Cli::try_parse_from(all).map(drop).unwrap_err();
        let mut command = Cli::command();
        command.build();
        in_words(error, &command, &words).to_string()
    }

    #[test]
    fn a_flag_with_another_name_for_the_same_thing_is_suggested() {
        for (line, flag) in [
            ("exec --latency 20ms -- true", "'--delay'"),
            ("exec --up-latency 20ms -- true", "'--up-delay'"),
            ("exec --bandwidth=1mbit -- true", "'--rate'"),
            ("emulate a b --packet-loss 1%", "'--loss'"),
            ("measure tcp host --duration 3", "'--time'"),
            ("set link --min 3", "unexpected argument '--min'"),
            ("exec --dealy 20ms -- true", "'--delay'"),
            ("exec --rate-down 5mbit -- true", "'--down-rate'"),
            ("exec --delay-up=5ms -- true", "'--up-delay'"),
            ("emulate a b --latency-down 5ms", "'--down-delay'"),
            (
                "exec --rtt 40ms -- true",
                "tip: '--delay' is half of the round-trip time in each direction",
            ),
            (
                "exec --delay 20ms --up-rtt 40ms -- true",
                "tip: '--up-delay' is half of the round-trip time in each direction",
            ),
            (
                "exec --from-tc shape.sh -- true",
                "tip: '--from-tc' is a flag of 'farwire link'",
            ),
        ] {
            let error = refused(line);
            assert!(error.contains(flag), "{line}: {error}");
        }
    }

    #[test]
    fn a_flag_that_no_command_has_or_many_have_names_none() {
        for line in ["exec --zzzz 1 -- true", "man --json x"] {
            let error = refused(line);
            assert!(!error.contains("is a flag of"), "{line}: {error}");
        }
    }

    #[test]
    fn a_wrong_number_is_answered_with_what_is_right() {
        for (line, right) in [
            (
                "measure ping host -c many",
                "invalid value 'many' for '--count <COUNT>': write a whole number, as in 3",
            ),
            (
                "measure ping host -c 0",
                "write a whole number of at least 1",
            ),
            (
                "measure ping host -s 70000",
                "write a whole number from 0 to 65507",
            ),
            (
                "measure tcp host -p 70000",
                "write a whole number from 0 to 65535",
            ),
            (
                "measure tcp host -P 300",
                "write a whole number from 1 to 128",
            ),
            (
                "exec --seed 99999999999999999999 -- true",
                "the number is too large",
            ),
            (
                "measure tcp host --time=-1",
                "a number of seconds from 0 on",
            ),
        ] {
            let error = refused(line);
            assert!(error.contains(right), "{line}: {error}");
            assert!(!error.contains("target type"), "{line}: {error}");
            assert!(error.trim_end().ends_with(MORE), "{line}: {error}");
        }
    }
}
