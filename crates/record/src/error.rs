//! Errors of reading, merging and writing a record.

use std::fmt;
use std::io;
use std::path::Path;

/// An error with a record's file. Its text has all causes.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The content of a record, or what was asked for, cannot be right.
    #[error(transparent)]
    Content(#[from] conditions::Error),
    /// The file system refused.
    #[error(transparent)]
    System(#[from] io::Error),
    /// A line of a record cannot be right.
    #[error("line {line}: {cause}")]
    InLine {
        /// The number of the line, from 1.
        line: u64,
        /// The cause.
        cause: Box<Self>,
    },
    /// Another error, with what was being done or with which file.
    #[error("{doing}: {cause}")]
    While {
        /// The activity or the file.
        doing: String,
        /// The cause.
        cause: Box<Self>,
    },
}

/// A result whose error is an [`Error`].
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Makes an error of content from a whole sentence.
    pub(crate) fn content(sentence: impl fmt::Display) -> Self {
        conditions::Error::other(sentence).into()
    }

    /// The same, while `doing`.
    pub(crate) fn during(self, doing: impl fmt::Display) -> Self {
        Self::While {
            doing: doing.to_string(),
            cause: Box::new(self),
        }
    }

    /// The same with its place: the file, and the line where it has one.
    pub(crate) fn in_file(self, file: &Path) -> Self {
        let file = file.display();
        match self {
            Self::InLine { line, cause } => cause.during(format_args!("{file}:{line}")),
            other => other.during(file),
        }
    }

    /// Whether there is no room left: of the file system, of the user's share of it, or of a file.
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
