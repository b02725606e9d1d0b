//! Failures of a command, with an exit code that tells the cause.

use std::error;
use std::fmt::{self, Display, Formatter};
use std::iter;

use netio::stop::Stop;

use crate::error::{Error, Result as Outcome};

/// An error of any library or of the program.
pub type AnyError = Box<dyn error::Error + Send + Sync>;

/// The reason why a command did not complete its task.
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

/// Assigns an exit code to an error.
pub trait Blame<T> {
    /// Assigns exit code 2: the user's input cannot be right.
    fn or_bad_input(self) -> Result<T, Failure>;
    /// Assigns exit code 3: the machine lacks something required.
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

/// Returns [`Error::Stopped`] if there is a cause to stop now.
pub(crate) fn check_stop(stop: &Stop) -> Outcome<()> {
    stop.cause()
        .map_or(Ok(()), |cause| Err(Error::Stopped(cause)))
}

impl Failure {
    fn new(code: ExitCode, error: AnyError) -> Self {
        Self { code, error }
    }

    /// Returns a failure because the user asked for something impossible.
    pub fn bad_input(message: impl Display) -> Self {
        Self::new(ExitCode::BadInput, message.to_string().into())
    }

    /// Returns a failure because the machine lacks something required.
    pub fn machine(message: impl Display) -> Self {
        Self::new(ExitCode::Machine, message.to_string().into())
    }

    /// Returns the error, if it is of this type.
    pub fn downcast_ref<E: error::Error + 'static>(&self) -> Option<&E> {
        self.error.downcast_ref()
    }

    /// Returns true if the user asked for something impossible.
    pub fn is_bad_input(&self) -> bool {
        self.code == ExitCode::BadInput
    }

    /// Returns the exit code: 1 for a failed run, 2 for bad input, 3 if the machine lacks something.
    pub fn code(&self) -> u8 {
        self.code as u8
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&in_one_line(&*self.error))
    }
}

/// Formats the error and its causes in one line, without causes that the text before them already quotes.
fn in_one_line(error: &(dyn error::Error + 'static)) -> String {
    let causes = iter::successors(error.source(), |cause| cause.source());
    causes
        .map(ToString::to_string)
        .fold(error.to_string(), |text, cause| {
            if text.contains(&cause) {
                text
            } else {
                format!("{text}: {cause}")
            }
        })
}

impl<E: Into<AnyError>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(ExitCode::Run, error.into())
    }
}
