//! The file of a log, which makes room for a new one when it has reached a limit.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use model::Bytes;
use record::crossing::CrossedFlow;

use super::{LogLine, Sink};

/// A file for the log, and the size at which it becomes FILE.1.
#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    file: File,
    limit: Option<Bytes>,
}

/// A sink that writes into a file until that has reached its limit, and then into a new one.
pub(super) struct Rotating<S> {
    log: LogFile,
    sink: S,
    create: fn(File) -> io::Result<S>,
}

impl LogFile {
    /// Creates the file, which is overwritten.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub(super) fn create(path: &Path, limit: Option<Bytes>) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            file: File::create(path)?,
            limit,
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

    /// Returns whether the file has reached its limit.
    fn is_full(&self) -> io::Result<bool> {
        let Some(limit) = self.limit else {
            return Ok(false);
        };
        Ok(self.file.metadata()?.len() >= limit.0)
    }

    /// Renames the file to FILE.1 and begins a new one.
    fn renew(&mut self) -> io::Result<File> {
        let mut before = self.path.clone().into_os_string();
        before.push(".1");
        fs::rename(&self.path, before)?;
        self.file = File::create(&self.path)?;
        self.file.try_clone()
    }
}

impl<S: Sink> Sink for Rotating<S> {
    fn begin(&mut self) -> io::Result<()> {
        self.sink.begin()
    }

    fn take(&mut self, first: u64, lines: &[LogLine], hops: &[String]) -> io::Result<u64> {
        if self.log.is_full()? {
            self.sink.finish()?;
            self.sink = (self.create)(self.log.renew()?)?;
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
    fn a_full_file_is_kept_beside_the_new_one_and_no_line_is_written_twice() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.csv");
        let log = LogFile::create(&path, Some(Bytes(400))).unwrap();
        let mut sink = log.rotating(|file| Ok(CsvFile::new(file))).unwrap();
        sink.begin().unwrap();
        for number in 1..=10 {
            let line = LogLine::bare(Nanos(1), Side::A, PacketVerdict::Delivered);
            sink.take(number, &[line], &[]).unwrap();
        }
        sink.finish().unwrap();
        let numbers = |name: &str| -> Vec<u64> {
            let text = fs::read_to_string(folder.path().join(name)).unwrap();
            let rows = text.lines().skip(1);
            rows.map(|row| row.split(',').next().unwrap().parse().unwrap())
                .collect()
        };
        let [before, now] = ["log.csv.1", "log.csv"].map(numbers);
        assert!(!before.is_empty() && !now.is_empty());
        let all: Vec<u64> = before.iter().chain(&now).copied().collect();
        assert!(all.windows(2).all(|pair| pair[1] == pair[0] + 1), "{all:?}");
        assert_eq!(all.last(), Some(&10));
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
