//! The record of an experiment: everything that a report is made of. See docs/record-format.md.
//!
//! A file of lines, each a JSON value: the head, then a line a run as it ended, then one that says that all is done. What
//! is cut off at any point loses the run that was being written, and no other.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::plan::{Case, Plan};
use crate::Baseline;
use crate::HostFacts;
use crate::Measurement;
use crate::summary::Summary;
use crate::upgrade;

/// Names the format in the file.
const FORMAT: &str = "farwire-record";
/// Raised whenever a reader of the former version would misread the file.
const VERSION: u32 = 6;
/// In the directory of an experiment.
const FILE: &str = "record.jsonl";

/// A whole experiment, asked for and measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Record {
    /// What was known before the first run.
    #[serde(flatten)]
    pub head: Head,
    /// What the machine does with nothing in the way; absent in beds of other machines, and until it was measured.
    pub baseline: Option<Baseline>,
    /// RFC 3339, UTC; absent while it runs, or when it was interrupted.
    pub finished_at: Option<String>,
    /// In the order in which they ran.
    pub runs: Vec<Run>,
}

/// What is known before the first run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    format: String,
    version: u32,
    /// The farwire that wrote it.
    pub farwire: String,
    /// RFC 3339, UTC.
    pub started_at: String,
    /// What the user gave.
    pub scenario: GivenScenario,
    /// What took effect.
    pub plan: Plan,
    /// The machine.
    pub host: HostFacts,
}

/// A line after the head.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line<R> {
    Baseline(Baseline),
    Run(R),
    FinishedAt(String),
}

/// A record that grows.
#[derive(Debug)]
pub struct RecordWriter {
    file: File,
    path: PathBuf,
}

/// A scenario as it was given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GivenScenario {
    /// Its file's path, as the user wrote it.
    pub file: String,
    /// The file's text.
    pub text: String,
}

/// One case set up once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The case's name.
    pub case: String,
    /// From 1.
    pub repeat: u32,
    /// From 1; a run that the machine spoilt is attempted again.
    pub attempt: u32,
    /// Of the link's randomness.
    pub seed: u64,
    /// RFC 3339, UTC.
    pub started_at: String,
    /// How it ended.
    pub outcome: Outcome,
    /// What was in effect within the rig: sysctls, offloads, congestion control.
    pub environment: BTreeMap<String, String>,
    /// One of each instrument that was used.
    pub measurements: Vec<Measured>,
    /// What the emulated links did, in a row, over all instruments of the run.
    pub links: Vec<LinkCounts>,
}

/// What one link did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkCounts {
    /// The plan's name for it.
    pub name: String,
    /// The counters.
    #[serde(flatten)]
    pub summary: Summary,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// Everything was measured.
    Ok,
    /// Something was not measured.
    Failed {
        /// In words.
        cause: String,
    },
    /// It was measured, but the machine did not keep up: the numbers are not of the link.
    Invalid {
        /// In words.
        cause: String,
    },
}

/// What one instrument measured in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The plan's name for it.
    pub instrument: String,
    /// RFC 3339, UTC; the samples' times count from here.
    pub started_at: String,
    /// Its samples and figures.
    #[serde(flatten)]
    pub measurement: Measurement,
}

impl Head {
    /// Of an experiment that begins now.
    pub fn new(scenario: GivenScenario, plan: Plan, host: HostFacts) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            farwire: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: now(),
            scenario,
            plan,
            host,
        }
    }

    /// The head in a file's first line, and the version in which it was written.
    fn parse(line: &[u8]) -> Result<(Self, u32)> {
        #[derive(Deserialize)]
        struct Stamp {
            format: String,
            version: u32,
        }
        let Ok(stamp) = serde_json::from_slice::<Stamp>(line) else {
            bail!(
                "not a farwire record, or one that ends before its plan (its first line has \"format\": \"{FORMAT}\")"
            );
        };
        ensure!(
            stamp.format == FORMAT,
            "not a farwire record: its format is `{}`",
            stamp.format
        );
        let version = stamp.version;
        ensure!(
            (upgrade::OLDEST..=VERSION).contains(&version),
            "a record of version {version}; this farwire reads versions {} to {VERSION}",
            upgrade::OLDEST
        );
        let mut head: Value = serde_json::from_slice(line).context("line 1: damaged")?;
        if version < VERSION {
            upgrade::upgrade_head(&mut head);
            head["version"] = VERSION.into();
        }
        let head = serde_json::from_value(head).context("line 1: damaged")?;
        Ok((head, version))
    }
}

impl Record {
    /// A record without a run yet.
    pub fn new(head: Head) -> Self {
        Self {
            head,
            baseline: None,
            finished_at: None,
            runs: Vec::new(),
        }
    }

    /// The record in `path`: the file itself, or the directory of its experiment.
    ///
    /// # Errors
    /// No record, or one of a version that this farwire does not read, or damaged before its last line.
    pub fn read(path: &Path) -> Result<Self> {
        let file = file_of(path);
        Ok(read(&file)
            .with_context(|| file.display().to_string())?
            .record)
    }

    /// What was asked for.
    pub fn plan(&self) -> &Plan {
        &self.head.plan
    }

    /// What there is of every case and repeat.
    pub fn latest(&self) -> Latest<'_> {
        let runs = self.runs.iter();
        Latest(
            runs.map(|run| ((run.case.as_str(), run.repeat), run))
                .collect(),
        )
    }
}

/// The run that counts of every case and repeat, which is the last of its attempts.
#[derive(Clone, Debug)]
pub struct Latest<'a>(HashMap<(&'a str, u32), &'a Run>);

impl<'a> Latest<'a> {
    /// What `case` has of a repeat.
    pub fn run(&self, case: &str, repeat: u32) -> Option<&'a Run> {
        self.0.get(&(case, repeat)).copied()
    }

    /// What a case has of its repeats, in their order.
    pub fn runs(&self, case: &Case) -> impl Iterator<Item = &'a Run> {
        (1..=case.repeats.most).filter_map(|repeat| self.run(&case.name, repeat))
    }
}

/// A record as it was found in a file.
struct Found {
    record: Record,
    /// In which it was written.
    version: u32,
    /// How many of the file's bytes are whole lines.
    whole: u64,
}

fn read(file: &Path) -> Result<Found> {
    let mut lines = BufReader::new(File::open(file)?);
    let mut line = Vec::new();
    let mut whole = lines.read_until(b'\n', &mut line)? as u64;
    let (head, version) = Head::parse(&line)?;
    let mut record = Record::new(head);
    ensure!(line.ends_with(b"\n"), "ends before its plan");
    for number in 2.. {
        line.clear();
        let length = lines.read_until(b'\n', &mut line)? as u64;
        // What is cut off within a line was not whole when it was written; what is whole must be sound.
        if !line.ends_with(b"\n") {
            break;
        }
        match parse_line(&line, version) {
            Ok(Line::Baseline(baseline)) => record.baseline = Some(baseline),
            Ok(Line::Run(run)) => record.runs.push(run),
            Ok(Line::FinishedAt(at)) => record.finished_at = Some(at),
            Err(error) => return Err(anyhow!("line {number}: damaged: {error}")),
        }
        whole += length;
    }
    Ok(Found {
        record,
        version,
        whole,
    })
}

fn parse_line(line: &[u8], version: u32) -> serde_json::Result<Line<Run>> {
    if version == VERSION {
        return serde_json::from_slice(line);
    }
    let mut old = serde_json::from_slice(line)?;
    upgrade::upgrade_line(&mut old);
    serde_json::from_value(old)
}

fn file_of(path: &Path) -> PathBuf {
    if path.is_dir() {
        path.join(FILE)
    } else {
        path.to_owned()
    }
}

impl RecordWriter {
    /// Begins the record of an experiment in `directory`, in place of one that is there.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn begin(directory: &Path, head: &Head) -> Result<Self> {
        let path = directory.join(FILE);
        let begin = || -> Result<File> {
            // The head is there whole or not at all.
            let partial = path.with_extension("partial");
            let mut file = OpenOptions::new()
                .create(true)
                .write(true)
                .truncate(true)
                .open(&partial)?;
            file.write_all(&line(head)?)?;
            file.sync_all()?;
            fs::rename(&partial, &path)?;
            Ok(file)
        };
        let file = begin().with_context(|| format!("{}: cannot write", path.display()))?;
        Ok(Self { file, path })
    }

    /// Goes on with the record in `path`, after its last whole line; what it holds until then.
    ///
    /// # Errors
    /// As [`Record::read`]; or it is of an older version, or the file system refuses.
    pub fn resume(path: &Path) -> Result<(Record, Self)> {
        let path = file_of(path);
        let resume = || -> Result<_> {
            let found = read(&path)?;
            ensure!(
                found.version == VERSION,
                "a record of version {}: it can be reported and compared, but only one of version {VERSION} can be resumed",
                found.version
            );
            let file = OpenOptions::new().append(true).open(&path)?;
            file.set_len(found.whole)?;
            Ok((found.record, file))
        };
        let (record, file) = resume().with_context(|| path.display().to_string())?;
        Ok((record, Self { file, path }))
    }

    /// The file that it writes.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps what the machine does with nothing in the way.
    ///
    /// # Errors
    /// As [`RecordWriter::keep`].
    pub fn keep_baseline(&mut self, baseline: &Baseline) -> Result<()> {
        self.write(&Line::<&Run>::Baseline(baseline.clone()))
    }

    /// Keeps a run, so that nothing that happens to this machine takes it away.
    ///
    /// # Errors
    /// The file system refuses; what was kept before stays.
    pub fn keep(&mut self, run: &Run) -> Result<()> {
        self.write(&Line::Run(run))
    }

    /// Says that all runs took place.
    ///
    /// # Errors
    /// As [`RecordWriter::keep`].
    pub fn finish(&mut self, at: &str) -> Result<()> {
        self.write(&Line::<&Run>::FinishedAt(at.to_owned()))
    }

    fn write(&mut self, what: &impl Serialize) -> Result<()> {
        let mut write = || -> Result<()> {
            self.file.write_all(&line(what)?)?;
            self.file.sync_data()?;
            Ok(())
        };
        write().with_context(|| {
            format!(
                "{}: cannot write; the runs before this one are kept",
                self.path.display()
            )
        })
    }
}

/// A value as a line.
fn line(value: &impl Serialize) -> Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line)
}

impl LinkCounts {
    /// Of the link of this name.
    pub fn of((name, summary): (String, Summary)) -> Self {
        Self { name, summary }
    }
}

impl Run {
    /// What this instrument measured, if it was used.
    pub fn measured(&self, instrument: &str) -> Option<&Measurement> {
        let mut all = self.measurements.iter();
        all.find(|m| m.instrument == instrument)
            .map(|m| &m.measurement)
    }
}

/// The present in RFC 3339, UTC, to the millisecond.
pub fn now() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/fixtures/records/small.jsonl"
        );
        Record::read(Path::new(file)).unwrap()
    }

    fn written(directory: &Path, record: &Record) -> Vec<u8> {
        let mut writer = RecordWriter::begin(directory, &record.head).unwrap();
        if let Some(baseline) = &record.baseline {
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
        record.baseline = Some(Baseline {
            tcp_bit_per_s: Some(2e10),
            ..Baseline::default()
        });
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
    fn one_of_an_older_version_is_read_but_not_resumed() {
        let directory = tempfile::tempdir().unwrap();
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/fixtures/records/small.jsonl"
        );
        fs::copy(file, directory.path().join(FILE)).unwrap();
        assert!(Record::read(directory.path()).is_ok());
        let error = format!("{:#}", RecordWriter::resume(directory.path()).unwrap_err());
        assert!(
            error.contains("only one of version 6 can be resumed"),
            "{error}"
        );
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
        assert!(error.contains("record.jsonl: line 2: damaged"), "{error}");
    }

    #[test]
    fn what_is_no_record_is_refused_with_its_cause() {
        for (text, cause) in [
            ("", "not a farwire record"),
            ("{}", "not a farwire record"),
            (r#"{"format":"x","version":4}"#, "its format is `x`"),
            (r#"{"format":"farwire-record","version":3}"#, "version 3"),
            (r#"{"format":"farwire-record","version":99}"#, "version 99"),
            (r#"{"format":"farwire-record","version":4}"#, "damaged"),
            (r#"{"format":"farwire-record","version":5}"#, "damaged"),
            (r#"{"format":"farwire-record","version":6}"#, "damaged"),
            (
                r#"{"format":"farwire-record","version":4,"plan":{"cases":[1,{"instruments":[{"kind":"x","options":[1,"--a"]}]}]}}"#,
                "damaged",
            ),
        ] {
            let error = format!("{:#}", Head::parse(text.as_bytes()).unwrap_err());
            assert!(error.contains(cause), "{error}");
        }
    }
}
