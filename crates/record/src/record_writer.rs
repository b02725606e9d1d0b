//! Writes a record line by line. It replaces an existing record only on request, and never writes while another writer
//! does.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use conditions::require;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::lateness::LateBudget;
use crate::output_directory::OutputDirectory;
use crate::quantity::size;
use crate::record::{
    FILE, FoundRecord, LONGEST_LINE, LateBudgetChange, Record, RecordHead, RecordLine, Run,
    file_of, now, read,
};
use crate::{Baseline, HostFacts};

/// Name of the file until it is complete.
const PARTIAL: &str = "record.partial";

/// A record that is being written. Its file is locked against other writers as long as this value exists.
#[derive(Debug)]
pub struct RecordWriter {
    file: File,
    path: PathBuf,
    directory: OutputDirectory,
}

impl RecordWriter {
    /// Starts the record of an experiment in `directory`, which is created. A record that is there is replaced only if
    /// `overwrite` is set.
    ///
    /// # Errors
    /// There is a record, another farwire is writing one, or the file system reports an error ([`Error::is_full`] if
    /// there is no room).
    pub fn begin(directory: &Path, head: &RecordHead, overwrite: bool) -> Result<Self> {
        Self::put(directory, overwrite, |mut file| {
            Ok(file.write_all(&line(head)?)?)
        })
    }

    /// Writes a record with this content as a whole or not at all; otherwise like [`RecordWriter::begin`].
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
                // The lock keeps other writers away from here on.
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

    /// Continues the record in `path` after its last complete line, and returns its content so far.
    ///
    /// # Errors
    /// Those of [`Record::read`]. It also fails if the record has an earlier version, another farwire is writing it, or
    /// the file system reports an error.
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

    /// Returns the record that [`RecordWriter::resume`] would continue. It changes nothing, and another farwire may be
    /// writing the record.
    ///
    /// # Errors
    /// The same as for [`RecordWriter::resume`].
    pub fn look(path: &Path) -> Result<(Record, PathBuf)> {
        let path = file_of(path);
        let look = || -> Result<Record> {
            let (directory, name) = OutputDirectory::of(&path)?;
            Ok(read_to_resume(&directory.read(name)?)?.record)
        };
        let record = look().map_err(|error| error.in_file(&path))?;
        Ok((record, path))
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the directory of the file, into which reports and the files of the runs are written.
    pub fn directory(&self) -> &OutputDirectory {
        &self.directory
    }

    /// Continues `record` on this machine, and adds a line if it is another machine than before.
    ///
    /// # Errors
    /// The same as for [`RecordWriter::keep`].
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

    /// Continues `record` with this late budget, and adds a line if it is another one than before.
    ///
    /// # Errors
    /// The same as for [`RecordWriter::keep`].
    pub fn go_on_within(&mut self, record: &mut Record, late_budget: LateBudget) -> Result<()> {
        if record.late_budget() != late_budget {
            let change = LateBudgetChange {
                late_budget,
                changed_at: now(),
                after_runs: Some(record.runs.len()),
            };
            self.write(&RecordLine::<&Run>::LateBudget(change.clone()))?;
            record.late_budgets.push(change);
        }
        Ok(())
    }

    /// Adds the machine's limits without emulated conditions.
    ///
    /// # Errors
    /// The same as for [`RecordWriter::keep`].
    pub fn keep_baseline(&mut self, baseline: &Baseline) -> Result<()> {
        self.write(&RecordLine::<&Run>::Baseline(baseline.clone()))
    }

    /// Adds a run and waits until it is on the disk, so that it survives a crash.
    ///
    /// # Errors
    /// The file system reports an error; earlier lines are kept.
    pub fn keep(&mut self, run: &Run) -> Result<()> {
        self.write(&RecordLine::Run(run))
    }

    /// Marks the record as finished.
    ///
    /// # Errors
    /// The same as for [`RecordWriter::keep`].
    pub fn finish(&mut self, at: &str) -> Result<()> {
        self.write(&RecordLine::<&Run>::FinishedAt(at.to_owned()))?;
        Ok(self.directory.sync()?)
    }

    /// Adds a complete line and waits until it is on the disk, or adds nothing.
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
            // If truncation fails, too, readers ignore the incomplete line.
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

/// Creates `directory` and its missing parents, and waits until they are on the disk.
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

/// Time for which a lock is awaited, in which a farwire that was killed releases its record.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// Locks the file against other writers. On a file system without locks nothing is locked.
fn lock(file: &File) -> Result<()> {
    let begun = Instant::now();
    while let Err(TryLockError::WouldBlock) = file.try_lock() {
        if begun.elapsed() > LOCK_TIMEOUT {
            let process = writer_of(file)
                .map(|pid| format!(", process {pid}"))
                .unwrap_or_default();
            return Err(Error::content(format_args!(
                "another farwire is writing it{process}"
            )));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Returns the process that holds the lock of `file`, if proc(5) shows it.
fn writer_of(file: &File) -> Option<u32> {
    let wanted = file.metadata().ok()?;
    let is_wanted =
        |found: fs::Metadata| (found.dev(), found.ino()) == (wanted.dev(), wanted.ino());
    let has_open = |pid: &u32| {
        let mut files = fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten()
            .flatten();
        files.any(|file| fs::metadata(file.path()).is_ok_and(is_wanted))
    };
    // The format is `1: FLOCK ADVISORY WRITE 4711 08:01:123456 0 EOF`.
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

/// Returns a value as a line.
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
    fn a_written_record_reads_back() {
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
    fn a_truncated_record_has_its_complete_runs() {
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
    fn a_resumed_record_continues_after_its_last_complete_run() {
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
    fn a_record_continued_elsewhere_names_the_host_of_each_run() {
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
        // The experiment continues on the same machine, on another, there again, and on the first.
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
    fn a_record_continued_with_another_late_budget_states_it() {
        let directory = tempfile::tempdir().unwrap();
        let record = record();
        written(directory.path(), &record);
        let first = record.plan().late_budget;
        let [wider, widest]: [LateBudget; 2] = ["5ms", "1s"].map(|time| time.parse().unwrap());
        for (budget, changes) in [(first, 0), (wider, 1), (wider, 1), (widest, 2)] {
            let (mut found, mut writer) = RecordWriter::resume(directory.path()).unwrap();
            writer.go_on_within(&mut found, budget).unwrap();
            assert_eq!(found.late_budget(), budget);
            assert_eq!(found.late_budgets.len(), changes);
        }
        let found = Record::read(directory.path()).unwrap();
        assert_eq!(found.late_budget(), widest);
        assert_eq!(found.plan().late_budget, first);
        let budgets = found.late_budgets.iter();
        let seen: Vec<_> = budgets.map(|of| (of.late_budget, of.after_runs)).collect();
        let runs = Some(record.runs.len());
        assert_eq!(seen, [(wider, runs), (widest, runs)]);
        let text = fs::read_to_string(directory.path().join(FILE)).unwrap();
        let line = r#"{"late_budget":{"late_budget":"5ms","changed_at":""#;
        assert_eq!(text.matches(line).count(), 1, "{text}");
    }

    #[test]
    fn a_line_without_room_is_not_written_in_part() {
        let directory = tempfile::tempdir().unwrap();
        let record = record();
        let mut writer = RecordWriter::begin(directory.path(), &record.head, false).unwrap();
        let path = writer.path().to_owned();
        let before = fs::read(&path).unwrap();
        // A device that is always full accepts nothing.
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
    fn damage_before_the_last_line_is_reported_with_its_line() {
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
    fn a_record_is_replaced_only_on_request() {
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
