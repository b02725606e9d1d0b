//! Errors of the argument parser in plain words: a suggestion for a flag whose name means the same as another one's, and what would be
//! right in place of the messages of libraries.

use std::error::Error as _;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, Error};

use conditions::{nearest, plain};

/// Prefixes of flags that concern one direction, and none.
const PREFIXES: [&str; 3] = ["up-", "down-", ""];
/// The last line of clap's errors.
const MORE: &str = "For more information, try '--help'.";

/// Returns the error in plain words. `command` is the whole program, and `words` are its arguments.
pub(super) fn in_words(error: Error, command: &Command, words: &[String]) -> Error {
    match error.kind() {
        ErrorKind::UnknownArgument => with_suggestion(error, used(command, words)),
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

/// Returns the error with the flag of `command` that means the same as the unknown one, if there is one.
fn with_suggestion(mut error: Error, command: &Command) -> Error {
    if let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg)
        && let Some(name) = given.strip_prefix("--")
        && let Some(meant) = same_meaning(name.split('=').next().unwrap_or(name), command)
    {
        let suggested = ContextValue::String(format!("--{meant}"));
        error.insert(ContextKind::SuggestedArg, suggested);
    }
    error
}

/// Returns the long name of the flag of `command` that means the same as `name`.
fn same_meaning(name: &str, command: &Command) -> Option<String> {
    let flags: Vec<&str> = command.get_arguments().filter_map(Arg::get_long).collect();
    PREFIXES.into_iter().find_map(|prefix| {
        let bare = name.strip_prefix(prefix)?;
        let meant = nearest::by_meaning(bare, flags.iter().copied())?;
        let flag = format!("{prefix}{meant}");
        flags.contains(&flag.as_str()).then_some(flag)
    })
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
        ] {
            let error = refused(line);
            assert!(error.contains(flag), "{line}: {error}");
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
