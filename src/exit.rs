//! How the program ends: exit codes, and the one line that says why.

use std::fmt::{self, Display, Formatter};
use std::process::ExitCode;

/// Why a command ended without doing what was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: Kind,
    error: anyhow::Error,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Run = 1,
    BadInput = 2,
    Machine = 3,
}

/// Says whose fault an error is.
pub(crate) trait Blame<T> {
    /// What the user asked for cannot be right: exit code 2.
    fn or_bad_input(self) -> Result<T, Failure>;
    /// The machine lacks what is needed: exit code 3.
    fn or_machine(self) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> Blame<T> for Result<T, E> {
    fn or_bad_input(self) -> Result<T, Failure> {
        self.map_err(|e| Failure::new(Kind::BadInput, e.into()))
    }

    fn or_machine(self) -> Result<T, Failure> {
        self.map_err(|e| Failure::new(Kind::Machine, e.into()))
    }
}

impl Failure {
    fn new(kind: Kind, error: anyhow::Error) -> Self {
        Self { kind, error }
    }

    /// The user asked for something that cannot be.
    pub(crate) fn bad_input(message: impl Display) -> Self {
        Self::new(Kind::BadInput, anyhow::anyhow!("{message}"))
    }

    /// The machine lacks what is needed.
    pub(crate) fn machine(message: impl Display) -> Self {
        Self::new(Kind::Machine, anyhow::anyhow!("{message}"))
    }

    /// Prints the cause and gives the exit code: 1 a run failed, 2 bad input, 3 the machine lacks something.
    pub(crate) fn report(&self) -> ExitCode {
        eprintln!("farwire: {}", told(&self.error));
        ExitCode::from(self.kind as u8)
    }

    /// As [`Failure::report`], for `exec`: 125 like env(1), so that the command's own codes stay apart.
    pub(crate) fn report_as_env(&self) -> ExitCode {
        eprintln!("farwire: {}", told(&self.error));
        ExitCode::from(ENV_FAILED)
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&told(&self.error))
    }
}

/// The error and its causes in one line, without those that the one before has quoted.
fn told(error: &anyhow::Error) -> String {
    let mut causes = error.chain().map(ToString::to_string);
    let first = causes.next().unwrap_or_default();
    causes.fold(first, |told, cause| {
        if told.contains(&cause) {
            told
        } else {
            format!("{told}: {cause}")
        }
    })
}

/// What env(1) ends with when it fails itself.
pub(crate) const ENV_FAILED: u8 = 125;

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(Kind::Run, error.into())
    }
}

/// Prints a complaint of the argument parser, or the help that was asked for, and gives the exit code.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    // Nothing is left to be told when the terminal is gone.
    let _ = error.print();
    let is_exec = std::env::args_os()
        .nth(1)
        .is_some_and(|first| first == "exec");
    match (error.use_stderr(), is_exec) {
        (false, _) => ExitCode::SUCCESS,
        (true, true) => ExitCode::from(ENV_FAILED),
        (true, false) => ExitCode::from(Kind::BadInput as u8),
    }
}
