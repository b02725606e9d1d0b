//! Errors when creating a report.

use std::fmt;

use crate::png::PngError;

/// An error of a report that is created in memory. A report that is written as a stream fails with [`std::io::Error`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The record lacks data for the report, or two records cannot be compared.
    #[error(transparent)]
    Content(#[from] conditions::Error),
    /// The template of an HTML page failed.
    #[error(transparent)]
    Page(#[from] askama::Error),
    /// JUnit's XML could not be created.
    #[error(transparent)]
    Junit(#[from] quick_junit::SerializeError),
    /// The text of OpenMetrics could not be created.
    #[error(transparent)]
    OpenMetrics(#[from] fmt::Error),
    /// A drawing could not be made into a PNG.
    #[error(transparent)]
    Png(#[from] PngError),
}

/// A result whose error is an [`Error`].
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;
