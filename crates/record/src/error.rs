//! Errors from reading, merging and writing a record.

use std::fmt;
use std::io;
use std::path::Path;

/// An error with a record's file. Its text includes all causes.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The content of a record, or a request, is invalid.
    #[error(transparent)]
    Content(#[from] conditions::Error),
    /// The file system reported an error.
    #[error(transparent)]
    System(#[from] io::Error),
    /// A line of a record is invalid.
    #[error("line {line}: {cause}")]
    InLine {
        /// The number of the line, counted from 1.
        line: u64,
        /// The cause.
        cause: Box<Self>,
    },
    /// An error together with the operation or the file that it concerns.
    #[error("{doing}: {cause}")]
    While {
        /// The operation or the file.
        doing: String,
        /// The cause.
        cause: Box<Self>,
    },
}

/// A result whose error is an [`Error`].
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Creates an error about content from a complete sentence.
    pub(crate) fn content(sentence: impl fmt::Display) -> Self {
        conditions::Error::other(sentence).into()
    }

    /// Adds the operation or file that the error concerns.
    pub(crate) fn during(self, doing: impl fmt::Display) -> Self {
        Self::While {
            doing: doing.to_string(),
            cause: Box::new(self),
        }
    }

    /// Adds the file, and the line if there is one.
    pub(crate) fn in_file(self, file: &Path) -> Self {
        let file = file.display();
        match self {
            Self::InLine { line, cause } => cause.during(format_args!("{file}:{line}")),
            other => other.during(file),
        }
    }

    /// Returns whether there is no room left: in the file system, in the user's quota, or in a file that has reached
    /// its maximum size.
    pub fn is_full(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        match self {
            Self::System(error) => {
                matches!(error.kind(), FileTooLarge | QuotaExceeded | StorageFull)
            }
            Self::While { cause, .. } | Self::InLine { cause, .. } => cause.is_full(),
            Self::Content(_) => false,
        }
    }
}
