//! Errors of instruments that cannot measure and of far ends that cannot serve.

use std::fmt::{self, Formatter};
use std::io;

use netio::stop::StopCause;
use nix::errno::Errno;

/// An error, by its origin. `{:#}` formats it with all its causes in one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The user asked for something impossible.
    #[error("{0}")]
    Input(String),
    /// The other end violated the protocol or fell silent.
    #[error("{0}")]
    Peer(String),
    /// An external tool is missing, cannot do what was asked for, or failed.
    #[error("{0}")]
    Tool(String),
    /// The measurement was stopped for this cause.
    #[error("{0}")]
    Stopped(StopCause),
    /// Something required does not exist.
    #[error("{0}")]
    Missing(String),
    /// The operating system returned an error.
    #[error(transparent)]
    System(#[from] io::Error),
    /// A library rejected a text or a value.
    #[error(transparent)]
    Library(Box<dyn std::error::Error + Send + Sync>),
    /// An error together with the task during which it happened.
    #[error(fmt = with_cause)]
    While {
        /// The task.
        doing: String,
        /// The error.
        #[source]
        cause: Box<Self>,
    },
}

/// The result of an operation that can fail with an [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Adds the task to an error, or turns an absent value into an error.
pub(crate) trait Context<T> {
    fn context(self, doing: &str) -> Result<T>;
    fn with_context<D: fmt::Display>(self, doing: impl FnOnce() -> D) -> Result<T>;
}

impl<T, E: Into<Error>> Context<T> for Result<T, E> {
    fn context(self, doing: &str) -> Result<T> {
        self.with_context(|| doing)
    }

    fn with_context<D: fmt::Display>(self, doing: impl FnOnce() -> D) -> Result<T> {
        self.map_err(|error| error.into().during(doing()))
    }
}

impl<T> Context<T> for Option<T> {
    fn context(self, doing: &str) -> Result<T> {
        self.with_context(|| doing)
    }

    fn with_context<D: fmt::Display>(self, doing: impl FnOnce() -> D) -> Result<T> {
        self.ok_or_else(|| Error::Missing(doing().to_string()))
    }
}

impl Error {
    /// Returns the same error with the task during which it happened.
    pub(crate) fn during(self, doing: impl fmt::Display) -> Self {
        Self::While {
            doing: doing.to_string(),
            cause: Box::new(self),
        }
    }

    /// Returns the operating system's error, if it was the cause.
    pub(crate) fn system(&self) -> Option<&io::Error> {
        match self {
            Self::System(error) => Some(error),
            Self::While { cause, .. } => cause.system(),
            _ => None,
        }
    }
}

fn with_cause(doing: &str, cause: &Error, f: &mut Formatter<'_>) -> fmt::Result {
    f.write_str(doing)?;
    if f.alternate() {
        write!(f, ": {cause:#}")?;
    }
    Ok(())
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

/// Converts errors of libraries that need no separate variant.
macro_rules! libraries {
    ($($error:ty,)*) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::Library(error.into())
            }
        })*
    };
}

libraries! {
    std::num::ParseIntError,
    std::num::ParseFloatError,
    std::num::TryFromIntError,
    std::net::AddrParseError,
    std::str::Utf8Error,
    std::time::TryFromFloatSecsError,
    serde_json::Error,
    csv::Error,
    httparse::Error,
    http::uri::InvalidUri,
    getrandom::Error,
    model::UnitError,
    netio::netns::NetNsError,
}

/// Returns an [`Error`] of this variant from the enclosing function; the text is formatted as by [`format!`].
macro_rules! bail {
    ($kind:ident, $($text:tt)+) => {
        return Err($crate::error::Error::$kind(format!($($text)+)))
    };
}

/// Returns an [`Error`] of this variant from the enclosing function unless the condition is true.
macro_rules! ensure {
    ($kind:ident, $condition:expr, $($text:tt)+) => {
        if !$condition {
            $crate::error::bail!($kind, $($text)+);
        }
    };
}

pub(crate) use {bail, ensure};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_shows_its_causes_in_one_line_and_keeps_the_system_error() {
        let refused: Result<()> = Err(io::Error::from(io::ErrorKind::ConnectionRefused).into());
        let error = refused.context("connecting").context("tcp").unwrap_err();
        assert_eq!(error.to_string(), "tcp");
        assert_eq!(format!("{error:#}"), "tcp: connecting: connection refused");
        let kind = error.system().map(io::Error::kind);
        assert_eq!(kind, Some(io::ErrorKind::ConnectionRefused));
        let missing = None::<()>.context("no port").unwrap_err();
        assert!(matches!(missing, Error::Missing(text) if text == "no port"));
    }
}
