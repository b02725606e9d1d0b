//! The output of the command of `exec` while the screen is shown. The screen shows its last lines,
//! and all of it is printed at the end.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context, Result};
use record::printable::printable_lines;

/// The number of bytes at the end that are searched for lines to show.
const END: u64 = 16 * 1024;

/// An unnamed file into which a command writes.
#[derive(Clone, Debug)]
pub(crate) struct CommandOutput(Arc<File>);

impl CommandOutput {
    /// Creates an empty file in the directory for temporary files.
    ///
    /// # Errors
    /// Fails if there is no space or no such directory.
    pub(crate) fn new() -> Result<Self> {
        let file =
            tempfile::tempfile().context("cannot make a file for the output of the command")?;
        Ok(Self(Arc::new(file)))
    }

    /// Returns a stream for the command's standard output or error. Both write at the end of the
    /// file.
    ///
    /// # Errors
    /// Fails if the process has no descriptor left.
    pub(crate) fn stream(&self) -> io::Result<Stdio> {
        // Clones share one open file, so that both streams have the same position.
        self.0.try_clone().map(Stdio::from)
    }

    /// Returns the last lines.
    pub(super) fn tail(&self, lines: usize) -> Vec<String> {
        let read = || -> io::Result<String> {
            let whole = self.0.metadata()?.len();
            let from = whole.saturating_sub(END);
            let mut bytes = vec![0; usize::try_from(whole - from).unwrap_or(0)];
            let mut read = 0;
            while read < bytes.len() {
                match self.0.read_at(&mut bytes[read..], from + read as u64)? {
                    0 => break,
                    more => read += more,
                }
            }
            bytes.truncate(read);
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let text = read()
            .unwrap_or_default()
            .replace("\r\n", "\n")
            .replace('\t', "    ");
        let all: Vec<&str> = text.lines().collect();
        let shown = all.iter().skip(all.len().saturating_sub(lines));
        // A progress line that was overwritten shows its last text.
        let last = |line: &&str| {
            line.rsplit('\r')
                .find(|part| !part.is_empty())
                .unwrap_or("")
                .to_owned()
        };
        shown
            .map(|line| printable_lines(&last(line)).into_owned())
            .collect()
    }

    /// Prints the whole output to standard output.
    ///
    /// # Errors
    /// Fails if standard output cannot be written.
    pub(crate) fn print(&self) -> io::Result<()> {
        let mut file = &*self.0;
        file.seek(SeekFrom::Start(0))?;
        let mut stdout = io::stdout().lock();
        io::copy(&mut file, &mut stdout)?;
        stdout.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> CommandOutput {
        let output = CommandOutput::new().unwrap();
        (&*output.0).write_all(text.as_bytes()).unwrap();
        output
    }

    #[test]
    fn the_last_lines_are_shown_without_control_sequences() {
        let output = of("one\ntwo\r\n10 %\r20 %\r\n\x1b[2Jthree\n");
        assert_eq!(output.tail(2)[0], "20 %");
        assert!(!output.tail(1)[0].contains('\x1b'));
        assert_eq!(output.tail(9).len(), 4);
        assert!(of("").tail(3).is_empty());
    }

    #[test]
    fn only_the_end_of_a_long_output_is_shown() {
        let output = of(&"a line of text\n".repeat(10_000));
        assert_eq!(output.tail(3), ["a line of text"; 3]);
    }
}
