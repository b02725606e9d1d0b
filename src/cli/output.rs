//! Where results go: standard output or a file.

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

/// Writes `text` to the file, or to standard output when there is none or it is `-`.
///
/// # Errors
/// The file, named, cannot be written.
pub(crate) fn write(target: Option<&Path>, text: &str) -> Result<()> {
    match target.filter(|file| !is_stdout(file)) {
        Some(file) => {
            std::fs::write(file, text).with_context(|| format!("{}: cannot write", file.display()))
        }
        None => match io::stdout().write_all(text.as_bytes()) {
            // Who reads no further has read enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            result => result.context("standard output"),
        },
    }
}

/// Writes `value` as indented JSON, as [`write()`] does.
///
/// # Errors
/// As [`write()`].
pub(crate) fn write_json(target: &Path, value: &impl Serialize) -> Result<()> {
    write(Some(target), &(serde_json::to_string_pretty(value)? + "\n"))
}

/// Whether this FILE means standard output.
pub(crate) fn is_stdout(file: &Path) -> bool {
    file == Path::new("-")
}

/// Whether to colour what goes to standard output; see no-color.org.
pub(crate) fn coloured(terminal: bool) -> bool {
    terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
