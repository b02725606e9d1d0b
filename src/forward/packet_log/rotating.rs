//! The files of a log: one, or two that take turns, each until it has reached a limit.
//!
//! Both are open from the start. A confined emulator may neither create nor rename files.

use std::fs::File;
use std::io::{self, Seek as _};
use std::path::{Path, PathBuf};

use model::Bytes;
use record::crossing::CrossedFlow;
use record::output_directory::OutputDirectory;

use super::{LogLine, Sink};

/// A file for the log.
#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    file: File,
    turns: Option<Turns>,
}

/// FILE.1, and the size at which the other of the two files is next.
#[derive(Debug)]
struct Turns {
    other: File,
    limit: Bytes,
}

/// A sink that writes into a file until that has reached its limit, and then into the other one, which it empties first.
pub(super) struct Rotating<S> {
    log: LogFile,
    sink: S,
    create: fn(File) -> io::Result<S>,
}

impl LogFile {
    /// Creates the file, and FILE.1 if there is a limit. Existing ones are emptied.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub(super) fn create(path: &Path, limit: Option<Bytes>) -> io::Result<Self> {
        let file = File::create(path)?;
        let turns = match limit {
            Some(limit) => Some(Turns {
                other: second(path)?,
                limit,
            }),
            None => None,
        };
        Ok(Self {
            path: path.to_owned(),
            file,
            turns,
        })
    }

    /// Returns whether its name says that it is a Parquet file.
    pub(super) fn is_parquet(&self) -> bool {
        let end = self.path.extension();
        end.is_some_and(|end| end.eq_ignore_ascii_case("parquet"))
    }

    /// Returns a sink that `create` makes for each file.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub(super) fn rotating<S>(self, create: fn(File) -> io::Result<S>) -> io::Result<Rotating<S>> {
        Ok(Rotating {
            sink: create(self.file.try_clone()?)?,
            log: self,
            create,
        })
    }

    /// If the file has reached its limit, empties the other one, which is in use from now on, and returns it.
    fn next(&mut self) -> io::Result<Option<File>> {
        let Some(turns) = &mut self.turns else {
            return Ok(None);
        };
        if self.file.metadata()?.len() < turns.limit.0 {
            return Ok(None);
        }
        std::mem::swap(&mut self.file, &mut turns.other);
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.try_clone().map(Some)
    }
}

/// Creates or empties the file beside `path` that takes turns with it. Nobody named it, so a link there is not followed.
fn second(path: &Path) -> io::Result<File> {
    let mut other = path.to_owned().into_os_string();
    other.push(".1");
    let (within, name) = OutputDirectory::of(Path::new(&other))?;
    let file = within.read_write(name)?;
    file.set_len(0)?;
    Ok(file)
}

impl<S: Sink> Sink for Rotating<S> {
    fn begin(&mut self) -> io::Result<()> {
        self.sink.begin()
    }

    fn take(&mut self, first: u64, lines: &[LogLine], hops: &[String]) -> io::Result<u64> {
        if !lines.is_empty()
            && let Some(next) = self.log.next()?
        {
            self.sink.finish()?;
            self.sink = (self.create)(next)?;
            self.sink.begin()?;
        }
        self.sink.take(first, lines, hops)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.sink.finish()
    }

    fn flows(self) -> Vec<CrossedFlow> {
        self.sink.flows()
    }
}

#[cfg(test)]
mod tests {
    use model::{Nanos, Side};

    use super::super::csv::CsvFile;
    use super::super::{PacketLog, PacketVerdict};
    use super::*;

    #[test]
    fn two_files_take_turns_and_hold_the_last_lines_without_a_gap() {
        const LINES: u64 = 30;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.csv");
        let log = LogFile::create(&path, Some(Bytes(400))).unwrap();
        let mut sink = log.rotating(|file| Ok(CsvFile::new(file))).unwrap();
        sink.begin().unwrap();
        for number in 1..=LINES {
            let line = LogLine::bare(Nanos(1), Side::A, PacketVerdict::Delivered);
            sink.take(number, &[line], &[]).unwrap();
        }
        sink.finish().unwrap();
        let numbers = |name: &str| -> Vec<u64> {
            let text = std::fs::read_to_string(folder.path().join(name)).unwrap();
            let rows = text.lines().skip(1);
            rows.map(|row| row.split(',').next().unwrap().parse().unwrap())
                .collect()
        };
        let mut files = ["log.csv", "log.csv.1"].map(numbers);
        assert!(!files.iter().any(Vec::is_empty), "{files:?}");
        files.sort();
        let all = files.concat();
        assert!(all.windows(2).all(|pair| pair[1] == pair[0] + 1), "{all:?}");
        // The first lines were in a file that was used again.
        assert!(all[0] > 1, "{all:?}");
        assert_eq!(all.last(), Some(&LINES));
    }

    #[test]
    fn a_link_in_the_place_of_the_second_file_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let [path, target] = ["log.csv", "target"].map(|name| folder.path().join(name));
        std::fs::write(&target, "precious").unwrap();
        std::os::unix::fs::symlink(&target, folder.path().join("log.csv.1")).unwrap();
        assert!(LogFile::create(&path, Some(Bytes(400))).is_err());
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "precious");
    }

    #[test]
    fn an_empty_batch_empties_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.csv");
        let log = LogFile::create(&path, Some(Bytes(1))).unwrap();
        let mut sink = log.rotating(|file| Ok(CsvFile::new(file))).unwrap();
        sink.begin().unwrap();
        let line = || LogLine::bare(Nanos(1), Side::A, PacketVerdict::Delivered);
        sink.take(1, &[line()], &[]).unwrap();
        sink.take(2, &[line()], &[]).unwrap();
        sink.take(3, &[], &[]).unwrap();
        sink.finish().unwrap();
        for name in ["log.csv", "log.csv.1"] {
            let text = std::fs::read_to_string(folder.path().join(name)).unwrap();
            assert_eq!(text.lines().count(), 2, "{name}: {text}");
        }
    }

    #[test]
    fn standard_output_has_no_limit() {
        let refused = PacketLog::create(Path::new("-"), Some(Bytes(1))).unwrap_err();
        assert!(
            refused.to_string().contains("leave `limit` out"),
            "{refused}"
        );
    }
}
