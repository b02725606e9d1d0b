//! The output of the command of `exec` while the screen is shown: its last lines are shown, and all of it is printed at the end.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context, Result};
use record::printable::printable_lines;

/// Bytes at the end that are looked at for lines to show.
const END: u64 = 16 * 1024;

/// A file without a name that a command writes into.
#[derive(Clone, Debug)]
pub(crate) struct CommandOutput(Arc<File>);

impl CommandOutput {
    /// Empty, in the folder for temporary files.
    ///
    /// # Errors
    /// There is no room, or no such folder.
    pub(crate) fn new() -> Result<Self> {
        let file =
            tempfile::tempfile().context("cannot make a file for the output of the command")?;
        Ok(Self(Arc::new(file)))
    }

    /// What the command has for its standard output or error: both write at the file's end.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub(crate) fn stream(&self) -> io::Result<Stdio> {
        // Of one open file, so that both have one position.
        self.0.try_clone().map(Stdio::from)
    }

    /// The last lines.
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
        let text = read().unwrap_or_default();
        let text = text.replace("\r\n", "\n").replace('\t', "    ");
        let all: Vec<&str> = text.lines().collect();
        let shown = all.iter().skip(all.len().saturating_sub(lines));
        // A line that was written over and over, as progress is, is what stands in it last.
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

    /// Prints all of it to standard output.
    ///
    /// # Errors
    /// Standard output does not take it.
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
    fn the_last_lines_are_shown_without_what_would_move_the_cursor() {
        let output = of("one\ntwo\r\n10 %\r20 %\r\n\x1b[2Jthree\n");
        assert_eq!(output.tail(2)[0], "20 %");
        assert!(!output.tail(1)[0].contains('\x1b'));
        assert_eq!(output.tail(9).len(), 4);
        assert!(of("").tail(3).is_empty());
    }

    #[test]
    fn of_much_the_end_is_shown() {
        let output = of(&"a line of text\n".repeat(10_000));
        assert_eq!(output.tail(3), ["a line of text"; 3]);
    }
}
