//! How the program ends: exit codes, and the one line that says why.

use std::process::ExitCode;

use crate::notes;
use instruments::failure::Failure;
use netio::console;

/// What env(1) ends with when it fails itself.
pub(crate) const ENV_FAILED: u8 = 125;
/// For arguments that cannot be.
const BAD_INPUT: u8 = 2;

/// Prints the cause and gives the exit code: 1 a run failed, 2 bad input, 3 the machine lacks something.
pub(crate) fn report(failure: &Failure) -> ExitCode {
    notes::error(failure);
    ExitCode::from(failure.code())
}

/// As [`report()`], for `exec`: 125 like env(1), so that the command's own codes stay apart.
pub(crate) fn report_as_env(failure: &Failure) -> ExitCode {
    notes::error(failure);
    ExitCode::from(ENV_FAILED)
}

/// Prints a complaint of the argument parser, or the help that was asked for, and gives the exit code.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    // Nothing is left to be told when the terminal is gone.
    let _ = error.print();
    let mut words = std::env::args_os().skip(1);
    let command = words.find(|word| !word.to_string_lossy().starts_with('-'));
    let is_exec = command.is_some_and(|command| command == "exec");
    match (error.use_stderr(), is_exec) {
        (false, _) => ExitCode::SUCCESS,
        (true, true) => {
            if error.kind() == clap::error::ErrorKind::UnknownArgument {
                console::say(
                    "A command stands behind --, as in: farwire exec --delay 20ms -- ping -c 3 10.77.0.2",
                );
            }
            ExitCode::from(ENV_FAILED)
        }
        (true, false) => ExitCode::from(BAD_INPUT),
    }
}
