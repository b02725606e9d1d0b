//! Why something was not done, and whose fault that is.

use std::error;
use std::fmt::{self, Display, Formatter};
use std::iter;

use netio::stop::Stop;

use crate::error::{Error, Result as Outcome};

/// An error of any library, or of the program.
pub type AnyError = Box<dyn error::Error + Send + Sync>;

/// Why a command ended without doing what was asked.
#[derive(Debug)]
pub struct Failure {
    code: ExitCode,
    error: AnyError,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExitCode {
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

impl<T, E: Into<AnyError>> Blame<T> for Result<T, E> {
    fn or_bad_input(self) -> Result<T, Failure> {
        self.map_err(|e| Failure::new(ExitCode::BadInput, e.into()))
    }

    fn or_machine(self) -> Result<T, Failure> {
        self.map_err(|e| Failure::new(ExitCode::Machine, e.into()))
    }
}

/// Fails with the cause for which to stop now, if there is one.
pub(crate) fn go_on(stop: &Stop) -> Outcome<()> {
    stop.cause()
        .map_or(Ok(()), |cause| Err(Error::Stopped(cause)))
}

impl Failure {
    fn new(code: ExitCode, error: AnyError) -> Self {
        Self { code, error }
    }

    /// The user asked for something that cannot be.
    pub fn bad_input(message: impl Display) -> Self {
        Self::new(ExitCode::BadInput, message.to_string().into())
    }

    /// The machine lacks what is needed.
    pub fn machine(message: impl Display) -> Self {
        Self::new(ExitCode::Machine, message.to_string().into())
    }

    /// The exit code: 1 a run failed, 2 bad input, 3 the machine lacks something.
    pub fn code(&self) -> u8 {
        self.code as u8
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&in_one_line(&*self.error))
    }
}

/// The error and its causes in one line, without those that the one before has quoted.
fn in_one_line(error: &(dyn error::Error + 'static)) -> String {
    let causes = iter::successors(error.source(), |cause| cause.source());
    let causes = causes.map(ToString::to_string);
    causes.fold(error.to_string(), |told, cause| {
        if told.contains(&cause) {
            told
        } else {
            format!("{told}: {cause}")
        }
    })
}

impl<E: Into<AnyError>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(ExitCode::Run, error.into())
    }
}
