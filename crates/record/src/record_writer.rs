//! Writing a record, line by line; never over another one unasked, and never beside another writer.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use conditions::require;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::output_directory::OutputDirectory;
use crate::record::{
    FILE, FoundRecord, LONGEST_LINE, Record, RecordHead, RecordLine, Run, file_of, read, size,
};
use crate::{Baseline, HostFacts};

/// The name of the file until it is whole.
const PARTIAL: &str = "record.partial";

/// A record that grows. Its file is locked against other writers as long as this lives.
#[derive(Debug)]
pub struct RecordWriter {
    file: File,
    path: PathBuf,
    directory: OutputDirectory,
}

impl RecordWriter {
    /// Begins the record of an experiment in `directory`, which is made, in place of one that is there only if `overwrite`.
    ///
    /// # Errors
    /// There is a record, or another farwire is writing one, or the file system refuses ([`Error::is_full`]: for want of room).
    pub fn begin(directory: &Path, head: &RecordHead, overwrite: bool) -> Result<Self> {
        Self::put(directory, overwrite, |mut file| {
            Ok(file.write_all(&line(head)?)?)
        })
    }

    /// Puts a record with this content there, whole or not at all; otherwise as [`RecordWriter::begin`].
    pub(crate) fn put(
        directory: &Path,
        overwrite: bool,
        content: impl FnOnce(&File) -> Result<()>,
    ) -> Result<Self> {
        let path = directory.join(FILE);
        let begin = || -> Result<(File, OutputDirectory)> {
            make(directory)?;
            let within = OutputDirectory::open(directory)?;
            let file = within.write(PARTIAL.as_ref())?;
            lock(&file)?;
            let put = || -> Result<()> {
                // Only now is it sure that nobody else puts one there.
                if path.exists() {
                    require!(overwrite, "there is already a record");
                    lock(&within.read(FILE.as_ref())?)?;
                }
                file.set_len(0)?;
                content(&file)?;
                file.sync_all()?;
                within.rename(PARTIAL.as_ref(), FILE.as_ref())?;
                Ok(within.sync()?)
            };
            put().inspect_err(|_| drop(within.remove(PARTIAL.as_ref())))?;
            Ok((file, within))
        };
        let (file, directory) = begin()
            .map_err(|error| error.during(format_args!("{}: cannot write", path.display())))?;
        Ok(Self {
            file,
            path,
            directory,
        })
    }

    /// Goes on with the record in `path`, after its last whole line; what it holds until then.
    ///
    /// # Errors
    /// As [`Record::read`]; or it is of an earlier version, another farwire is writing it, or the file system refuses.
    pub fn resume(path: &Path) -> Result<(Record, Self)> {
        let path = file_of(path);
        let resume = || -> Result<_> {
            let (directory, name) = OutputDirectory::of(&path)?;
            let file = directory.append(name)?;
            lock(&file)?;
            let found = read_to_resume(&file)?;
            file.set_len(found.whole)?;
            Ok((found.record, file, directory))
        };
        let resumed = resume().map_err(|error| error.in_file(&path));
        let (record, file, directory) = resumed?;
        let writer = Self {
            file,
            path,
            directory,
        };
        Ok((record, writer))
    }

    /// What [`RecordWriter::resume`] would go on with. Nothing is changed, and another farwire may be writing it.
    ///
    /// # Errors
    /// As [`RecordWriter::resume`].
    pub fn look(path: &Path) -> Result<(Record, PathBuf)> {
        let path = file_of(path);
        let look = || -> Result<Record> {
            let (directory, name) = OutputDirectory::of(&path)?;
            Ok(read_to_resume(&directory.read(name)?)?.record)
        };
        let record = look().map_err(|error| error.in_file(&path))?;
        Ok((record, path))
    }

    /// The file that it writes.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory of that file, which reports and what the runs leave belong into.
    pub fn directory(&self) -> &OutputDirectory {
        &self.directory
    }

    /// Goes on with `record` on this machine, which is said where it is another one than so far.
    ///
    /// # Errors
    /// As [`RecordWriter::keep`].
    pub fn go_on(&mut self, record: &mut Record, host: HostFacts) -> Result<()> {
        let before = record
            .here
            .map_or(&record.head.host, |number| &record.head.hosts[number - 1]);
        if *before != host {
            self.write(&RecordLine::<&Run>::Host(host.clone()))?;
            record.enter(host);
        }
        Ok(())
    }

    /// Keeps what the machine does with nothing in the way.
    ///
    /// # Errors
    /// As [`RecordWriter::keep`].
    pub fn keep_baseline(&mut self, baseline: &Baseline) -> Result<()> {
        self.write(&RecordLine::<&Run>::Baseline(baseline.clone()))
    }

    /// Keeps a run, so that nothing that happens to this machine takes it away.
    ///
    /// # Errors
    /// The file system refuses; what was kept before stays.
    pub fn keep(&mut self, run: &Run) -> Result<()> {
        self.write(&RecordLine::Run(run))
    }

    /// Says that all runs took place.
    ///
    /// # Errors
    /// As [`RecordWriter::keep`].
    pub fn finish(&mut self, at: &str) -> Result<()> {
        self.write(&RecordLine::<&Run>::FinishedAt(at.to_owned()))?;
        Ok(self.directory.sync()?)
    }

    /// Adds a line that a power cut does not take away, or none at all.
    fn write(&mut self, what: &impl Serialize) -> Result<()> {
        let mut write = || -> Result<()> {
            let whole = self.file.metadata()?.len();
            let line = line(what)?;
            require!(
                line.len() as u64 <= LONGEST_LINE,
                "the run has more samples than {} can hold, the limit of readers: measure for less time, or fewer packets",
                size(LONGEST_LINE)
            );
            let written = self.file.write_all(&line);
            let kept = written.and_then(|()| self.file.sync_all());
            // What is left of half a line is passed over by who reads it.
            kept.inspect_err(|_| drop(self.file.set_len(whole)))?;
            Ok(())
        };
        write().map_err(|error| {
            error.during(format_args!(
                "{}: cannot write; the earlier runs are kept",
                self.path.display()
            ))
        })
    }
}

/// Makes `directory` and what lies above it, so that a power cut takes none of them away.
fn make(directory: &Path) -> Result<()> {
    if directory.as_os_str().is_empty() || directory.is_dir() {
        return Ok(());
    }
    let above = directory.parent().unwrap_or(Path::new(""));
    make(above)?;
    fs::create_dir(directory).map_err(|error| {
        Error::from(error).during(format_args!("{}: cannot create", directory.display()))
    })?;
    Ok(OutputDirectory::open(above)?.sync()?)
}

/// Reads a record that is to be resumed.
fn read_to_resume(file: &File) -> Result<FoundRecord> {
    let found = read(file)?;
    require!(
        !found.is_merged,
        "merged from several records: resume those, and merge them again"
    );
    require!(
        !found.is_upgraded,
        "the record has an earlier version, which can be reported and compared, but not resumed"
    );
    Ok(found)
}

/// How long a farwire that was killed may take to let go of its record.
const PATIENCE: Duration = Duration::from_secs(1);

/// Keeps other writers away; where the file system knows no locks, nobody does.
fn lock(file: &File) -> Result<()> {
    let begun = Instant::now();
    while let Err(TryLockError::WouldBlock) = file.try_lock() {
        if begun.elapsed() > PATIENCE {
            let process = writer_of(file).map(|pid| format!(", process {pid}"));
            let process = process.unwrap_or_default();
            return Err(Error::content(format_args!(
                "another farwire is writing it{process}"
            )));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// The process that holds the lock of `file`, where proc(5) shows it.
fn writer_of(file: &File) -> Option<u32> {
    let wanted = file.metadata().ok()?;
    let is_wanted =
        |found: fs::Metadata| (found.dev(), found.ino()) == (wanted.dev(), wanted.ino());
    let has_open = |pid: &u32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd"));
        let mut files = files.into_iter().flatten().flatten();
        files.any(|file| fs::metadata(file.path()).is_ok_and(is_wanted))
    };
    // `1: FLOCK ADVISORY WRITE 4711 08:01:123456 0 EOF`
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let of_inode = locks.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, "WRITE", pid, place, ..] = words[..] else {
            return None;
        };
        let (_, inode) = place.rsplit_once(':')?;
        (inode == wanted.ino().to_string()).then(|| pid.parse().ok())?
    });
    let mut found = of_inode.filter(has_open);
    found.next()
}

/// A value as a line.
pub(crate) fn line(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/fixtures/records/small.jsonl"
    );

    fn record() -> Record {
        Record::read(Path::new(SMALL)).unwrap()
    }

    fn written(directory: &Path, record: &Record) -> Vec<u8> {
        let mut writer = RecordWriter::begin(directory, &record.head, false).unwrap();
        for baseline in &record.baselines {
            writer.keep_baseline(baseline).unwrap();
        }
        for run in &record.runs {
            writer.keep(run).unwrap();
        }
        if let Some(at) = &record.finished_at {
            writer.finish(at).unwrap();
        }
        fs::read(writer.path()).unwrap()
    }

    #[test]
    fn what_is_written_reads_back_equal() {
        let directory = tempfile::tempdir().unwrap();
        let mut record = record();
        record.baselines = [2e10, 1e10]
            .map(|rate| Baseline {
                tcp_bit_per_s: Some(rate),
                ..Baseline::default()
            })
            .into();
        written(directory.path(), &record);
        assert!(Record::read(directory.path()).unwrap() == record);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn any_prefix_has_the_runs_that_are_whole_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let record = record();
        let bytes = written(directory.path(), &record);
        let head = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let file = directory.path().join(FILE);
        for end in head..bytes.len() {
            fs::write(&file, &bytes[..end]).unwrap();
            let cut = Record::read(&file).unwrap();
            let lines = bytes[head..end].iter().filter(|byte| **byte == b'\n');
            assert_eq!(cut.runs, record.runs[..lines.count()], "{end}");
            assert_eq!(cut.finished_at, None);
        }
    }

    #[test]
    fn a_record_that_is_resumed_goes_on_after_its_last_whole_run() {
        let directory = tempfile::tempdir().unwrap();
        let record = record();
        let bytes = written(directory.path(), &record);
        let file = directory.path().join(FILE);
        let head = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        fs::write(&file, &bytes[..usize::midpoint(head, bytes.len())]).unwrap();
        let (cut, mut writer) = RecordWriter::resume(directory.path()).unwrap();
        for run in &record.runs[cut.runs.len()..] {
            writer.keep(run).unwrap();
        }
        if let Some(at) = &record.finished_at {
            writer.finish(at).unwrap();
        }
        assert!(Record::read(&file).unwrap() == record);
    }

    #[test]
    fn a_record_that_goes_on_elsewhere_says_what_was_where() {
        let directory = tempfile::tempdir().unwrap();
        let mut record = record();
        let first = record.head.host.clone();
        let other = HostFacts {
            name: "elsewhere".to_owned(),
            ..first.clone()
        };
        record.baselines = vec![Baseline::default()];
        let like = record.runs[0].clone();
        record.runs.truncate(1);
        record.finished_at = None;
        written(directory.path(), &record);
        // On the same machine, on another, there again, and on the first.
        for (host, here) in [
            (&first, None),
            (&other, Some(2)),
            (&other, Some(2)),
            (&first, Some(1)),
        ] {
            let (mut found, mut writer) = RecordWriter::resume(directory.path()).unwrap();
            writer.go_on(&mut found, host.clone()).unwrap();
            assert_eq!(found.here(), here);
            let run = Run {
                host: found.here(),
                ..like.clone()
            };
            writer.keep(&run).unwrap();
        }
        let found = Record::read(directory.path()).unwrap();
        assert_eq!(found.head.hosts, [first, other]);
        let hosts: Vec<_> = found.runs.iter().map(|run| run.host).collect();
        assert_eq!(hosts, [1, 1, 2, 2, 1].map(Some));
        assert_eq!(found.baselines[0].host, Some(1));
        let text = fs::read_to_string(directory.path().join(FILE)).unwrap();
        assert_eq!(text.matches("{\"host\":").count(), 2, "each change once");
    }

    #[test]
    fn a_line_for_which_there_is_no_room_is_not_there_in_part() {
        let directory = tempfile::tempdir().unwrap();
        let record = record();
        let mut writer = RecordWriter::begin(directory.path(), &record.head, false).unwrap();
        let path = writer.path().to_owned();
        let before = fs::read(&path).unwrap();
        // A device that is always full takes nothing.
        writer.file = fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let error = writer.keep(&record.runs[0]).unwrap_err();
        assert!(error.is_full(), "{error:#}");
        assert_eq!(fs::read(&path).unwrap(), before);
        assert!(!Error::content("full").is_full());
    }

    #[test]
    fn damage_before_the_last_line_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let mut bytes = written(directory.path(), &record());
        let head = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        bytes[head] = b'x';
        let file = directory.path().join(FILE);
        fs::write(&file, &bytes).unwrap();
        let error = format!("{:#}", Record::read(&file).unwrap_err());
        assert!(error.contains("record.jsonl:2: damaged"), "{error}");
    }

    #[test]
    fn a_record_is_replaced_only_where_that_was_asked_for() {
        let directory = tempfile::tempdir().unwrap();
        let record = record();
        let before = written(directory.path(), &record);
        let begin = |overwrite| RecordWriter::begin(directory.path(), &record.head, overwrite);
        let error = format!("{:#}", begin(false).unwrap_err());
        assert!(error.contains("there is already a record"), "{error}");
        assert_eq!(fs::read(directory.path().join(FILE)).unwrap(), before);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        let writer = begin(true).unwrap();
        assert!(Record::read(writer.path()).unwrap().runs.is_empty());
    }

    #[test]
    fn a_record_has_one_writer_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let head = record().head;
        let first = RecordWriter::begin(directory.path(), &head, false).unwrap();
        let again = RecordWriter::begin(directory.path(), &head, true).map(drop);
        let resumed = RecordWriter::resume(directory.path()).map(drop);
        for refused in [again, resumed] {
            let error = format!("{:#}", refused.unwrap_err());
            let told = format!(
                "another farwire is writing it, process {}",
                std::process::id()
            );
            assert!(error.ends_with(&told), "{error}");
        }
        drop(first);
        RecordWriter::resume(directory.path()).unwrap();
    }
}
