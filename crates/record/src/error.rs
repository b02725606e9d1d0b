//! Why a record cannot be read, merged or written.

use std::fmt;
use std::io;

/// What went wrong with a record's file. Its text has all causes.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The content of a record, or what was asked for, cannot be right.
    #[error(transparent)]
    Content(#[from] conditions::Error),
    /// The file system refused.
    #[error(transparent)]
    System(#[from] io::Error),
    /// What was being done, or with which file, when something else went wrong.
    #[error("{doing}: {cause}")]
    While {
        /// What was being done.
        doing: String,
        /// What went wrong.
        cause: Box<Self>,
    },
}

/// What may fail with an [`Error`].
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Content that needs a sentence of its own.
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

    /// Whether there is no room left: of the file system, of the user's share of it, or of a file.
    pub fn is_full(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        match self {
            Self::System(error) => {
                matches!(error.kind(), FileTooLarge | QuotaExceeded | StorageFull)
            }
            Self::While { cause, .. } => cause.is_full(),
            Self::Content(_) => false,
        }
    }
}
