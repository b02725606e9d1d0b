//! Exit codes, and the line that names the cause of a failure.

use std::process::ExitCode;

use crate::notes;
use instruments::failure::Failure;
use netio::console;

/// The exit code of env(1) when it fails itself.
pub(crate) const ENV_FAILED: u8 = 125;
/// The exit code of wrong arguments.
const BAD_INPUT: u8 = 2;

/// Prints the cause and returns the exit code: 1 for a failed run, 2 for bad input, 3 for a machine that lacks something.
pub(crate) fn report(failure: &Failure) -> ExitCode {
    notes::error(failure);
    ExitCode::from(failure.code())
}

/// Does the same for `exec`, with exit code 125 like env(1), so that the exit codes of the command stay distinct.
pub(crate) fn report_as_env(failure: &Failure) -> ExitCode {
    notes::error(failure);
    ExitCode::from(ENV_FAILED)
}

/// Prints an error of the argument parser, or help, and returns the exit code.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    // If the terminal is gone, there is nobody to tell.
    let _ = error.print();
    let mut words = std::env::args_os().skip(1);
    let command = words.find(|word| !word.to_string_lossy().starts_with('-'));
    let is_exec = command.is_some_and(|command| command == "exec");
    match (error.use_stderr(), is_exec) {
        (false, _) => ExitCode::SUCCESS,
        (true, true) => {
            if error.kind() == clap::error::ErrorKind::UnknownArgument {
                console::say(
                    "Write the command after --, as in: farwire exec --delay 20ms -- ping -c 3 10.77.0.2",
                );
            }
            ExitCode::from(ENV_FAILED)
        }
        (true, false) => ExitCode::from(BAD_INPUT),
    }
}
