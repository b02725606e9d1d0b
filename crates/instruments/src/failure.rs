//! Why something was not done, and whose fault that is.

use std::fmt::{self, Display, Formatter};

/// Why a command ended without doing what was asked.
#[derive(Debug)]
pub struct Failure {
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
pub trait Blame<T> {
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
    pub fn bad_input(message: impl Display) -> Self {
        Self::new(Kind::BadInput, anyhow::anyhow!("{message}"))
    }

    /// The machine lacks what is needed.
    pub fn machine(message: impl Display) -> Self {
        Self::new(Kind::Machine, anyhow::anyhow!("{message}"))
    }

    /// The exit code: 1 a run failed, 2 bad input, 3 the machine lacks something.
    pub fn code(&self) -> u8 {
        self.kind as u8
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

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(Kind::Run, error.into())
    }
}
