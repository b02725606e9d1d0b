//! Output of results to standard output or to a file.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::error::{Context, Error, Result};
use crate::failure::AnyError;
use serde::Serialize;

use record::output_directory::OutputDirectory;
use record::printable::printable_json;

/// The name of the page beside a record or a fit.
pub const PAGE: &str = "report.html";

/// A file that is opened before the results exist.
#[derive(Debug)]
pub struct Prepared {
    path: PathBuf,
    file: File,
}

impl Prepared {
    /// Wraps `file`. Messages call it `path`.
    pub fn of(path: PathBuf, file: File) -> Self {
        Self { path, file }
    }

    /// Returns a second handle of the same file.
    ///
    /// # Errors
    /// Returns an error if the process has no descriptor left.
    pub fn try_clone(&self) -> Result<Self> {
        let file = self
            .file
            .try_clone()
            .with_context(|| unwritable(&self.path));
        Ok(Self::of(self.path.clone(), file?))
    }

    /// Opens `path`, so that a file that cannot be written is found before the measurement. Its content stays until it
    /// is replaced.
    ///
    /// # Errors
    /// Returns an error that names the file if it cannot be written.
    pub fn open(path: &Path) -> Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).open(path);
        Ok(Self {
            path: path.to_owned(),
            file: file.with_context(|| unwritable(path))?,
        })
    }

    /// Replaces the content with `value` as indented JSON.
    ///
    /// # Errors
    /// Returns the errors of [`Prepared::replace`], or an error if `value` cannot be JSON.
    pub fn write_json(self, value: &impl Serialize) -> Result<()> {
        let text = json(value)?;
        self.replace(|mut file| file.write_all(text.as_bytes()))
    }

    /// Replaces the content with the output of `write`.
    ///
    /// # Errors
    /// Returns an error that names the file if it cannot be written.
    pub fn replace<E: Into<AnyError>>(
        self,
        write: impl FnOnce(&File) -> Result<(), E>,
    ) -> Result<()> {
        let replace = || {
            // A pipe has no content to remove.
            if self.file.metadata()?.is_file() {
                self.file.set_len(0)?;
            }
            write(&self.file).map_err(|error| Error::Library(error.into()))
        };
        replace().with_context(|| unwritable(&self.path))
    }
}

/// Replaces the file `path` with the output of `write` once the output is complete, as [`OutputDirectory::replace`] does.
/// A path that is not a regular file, such as a pipe or a symbolic link, is opened and written directly.
///
/// # Errors
/// Returns the errors of `write` and of the file system. A regular file then keeps its old content, unless no new file can
/// replace it.
pub fn replace<E: From<io::Error>>(
    path: &Path,
    write: impl FnOnce(&File) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    match path.symlink_metadata() {
        Ok(found) if !found.is_file() => write(&File::create(path)?),
        _ => {
            let (directory, name) = OutputDirectory::of(path)?;
            directory.replace(name, write)
        }
    }
}

/// Writes `text` to the file, as [`replace()`] does, or to standard output if there is no file or it is `-`.
///
/// # Errors
/// Returns an error that names the file if it cannot be written.
pub fn write(target: Option<&Path>, text: &str) -> Result<()> {
    match target.filter(|file| !is_stdout(file)) {
        Some(file) => {
            let write = |mut file: &File| file.write_all(text.as_bytes());
            replace(file, write).with_context(|| unwritable(file))
        }
        None => match io::stdout().write_all(text.as_bytes()) {
            // The reader closed the pipe because it has read enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            result => result.context("standard output"),
        },
    }
}

/// Writes `text` to the file `name` of `directory`, as [`OutputDirectory::replace`] does. A link of this name is replaced
/// and not followed.
///
/// # Errors
/// Returns an error that names the file if it cannot be written.
pub fn write_beside(directory: &Path, name: impl AsRef<OsStr>, text: &str) -> Result<()> {
    let name = name.as_ref();
    let write = |mut file: &File| file.write_all(text.as_bytes());
    let within = OutputDirectory::open(directory);
    let written = within.and_then(|within| within.replace(name, write));
    written.with_context(|| unwritable(&directory.join(name)))
}

/// Writes `value` as indented JSON, as [`write()`] does.
///
/// # Errors
/// Returns the errors of [`write()`], or an error if `value` cannot be JSON.
pub fn write_json(target: &Path, value: &impl Serialize) -> Result<()> {
    write(Some(target), &json(value)?)
}

/// Returns `value` as indented JSON.
///
/// # Errors
/// Returns an error if `value` cannot be JSON.
pub fn json(value: &impl Serialize) -> Result<String> {
    let json = serde_json::to_string_pretty(value)? + "\n";
    Ok(printable_json(&json).into_owned())
}

/// Returns whether this FILE argument means standard output.
pub fn is_stdout(file: &Path) -> bool {
    file == Path::new("-")
}

fn unwritable(file: &Path) -> String {
    format!("{}: cannot write", file.display())
}

/// Returns whether to colour standard output, which is a terminal if `terminal` is true; see no-color.org.
pub fn coloured(terminal: bool) -> bool {
    terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_of_a_file_stays_until_it_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results");
        std::fs::write(&path, "older and longer").unwrap();
        let prepared = Prepared::open(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "older and longer");
        let write = |mut file: &File| file.write_all(b"new");
        prepared.replace(write).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn an_unwritable_file_is_named_before_the_measurement() {
        let error = Prepared::open(Path::new("/nowhere/results")).unwrap_err();
        assert!(error.to_string().contains("/nowhere/results: cannot write"));
    }
}
