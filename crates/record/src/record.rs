//! The record of an experiment: everything that a report is made of. See docs/record-format.md.
//!
//! A file of lines, each a JSON value: the head, then a line a run as it ended, then one that says that all is done. What
//! is cut off at any point loses the run that was being written, and no other.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use conditions::require;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::plan::{Case, Plan, PlannedRun};
use crate::Artifact;
use crate::Baseline;
use crate::Figure;
use crate::HostFacts;
use crate::Measurement;
use crate::error::{Error, Result};
use crate::figure_name::FigureName;
use crate::lateness::{self, LateBudget, LatePackets, RowDepartures};
use crate::regular_file;
use crate::summary::Summary;
use stats::repeats;

/// Names the format in the file.
const FORMAT: &str = "farwire-record";
/// The version that is written. It is raised whenever a reader of the previous version would misread the file.
pub(crate) const VERSION: u32 = 1;
/// Changes a line of one version, the head included, into the same line of the next version.
type Upgrade = fn(&mut Value);
/// The upgrades from every earlier version to the present one, in order: the first is from version 1 to 2.
const UPGRADES: [Upgrade; VERSION as usize - 1] = [];
/// In the directory of an experiment.
pub(crate) const FILE: &str = "record.jsonl";
/// No line that says when an experiment ended is longer.
const LONGEST_END: u64 = 1024;
/// The longest first line in bytes: 10,000 cases take about 30 MB.
const LONGEST_HEAD: u64 = 64 << 20;
/// The longest line after it in bytes: a run with about three million samples.
pub(crate) const LONGEST_LINE: u64 = 256 << 20;
/// The longest record in bytes that is read into memory as a whole.
const LONGEST_WHOLE: u64 = 1 << 30;
/// The most lines of a record: every run of the largest plan, and as many further attempts.
const MOST_LINES: u64 = 2_000_000;
/// The most hosts of a record, and the most changes from one host to another.
const MOST_HOSTS: usize = 10_000;

/// A whole experiment, asked for and measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Record {
    /// What was known before the first run.
    #[serde(flatten)]
    pub head: RecordHead,
    /// What the machine does with nothing in the way: before the first run, whenever it was resumed, and after the last run;
    /// empty in beds of other machines.
    pub baselines: Vec<Baseline>,
    /// RFC 3339, UTC; absent while it runs, or when it was interrupted.
    pub finished_at: Option<String>,
    /// In the order in which they ran.
    pub runs: Vec<Run>,
    /// The number of this machine among the head's `hosts`, for what comes.
    #[serde(skip)]
    pub(crate) here: Option<usize>,
}

/// What is known before the first run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordHead {
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
    /// The machine; of a merged record the one of the record that began first.
    pub host: HostFacts,
    /// Every machine that had a part in it, of a record that was merged or that went on elsewhere; empty otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostFacts>,
}

/// A line after the head.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RecordLine<R> {
    Baseline(Baseline),
    /// Another machine, on which it goes on.
    Host(HostFacts),
    Run(R),
    FinishedAt(String),
}

/// A scenario as it was given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GivenScenario {
    /// Its file's path, as the user wrote it.
    pub file: String,
    /// The file's text.
    pub text: String,
}

/// How often a run that the machine spoils is attempted.
pub const MOST_ATTEMPTS: u32 = 3;

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
    /// On which of the head's `hosts` it ran, from 1; absent where the record has one host. In a file also absent of the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<usize>,
    /// RFC 3339, UTC.
    pub started_at: String,
    /// How it ended.
    pub outcome: RunOutcome,
    /// What was in effect within the rig: sysctls, offloads, congestion control.
    pub environment: BTreeMap<String, String>,
    /// One of each instrument that was used.
    pub measurements: Vec<Measured>,
    /// What the emulated links did, in a row, over all instruments of the run.
    pub links: Vec<LinkCounts>,
    /// The files that it left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
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
pub enum RunOutcome {
    /// Everything was measured.
    Ok,
    /// Something was not measured.
    Failed {
        /// In words.
        cause: String,
    },
    /// It was measured, but the machine did not keep up: the numbers of an instrument, or of all, are not of the link.
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
    /// Why its figures are not the link's, or those of one direction, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalid: Option<String>,
    /// Which of its packets left the emulator late while it measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub departures: Vec<LatePackets>,
    /// The same of each size or phase in its own time; empty where it has one only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<RowDepartures>,
    /// Its samples and figures.
    #[serde(flatten)]
    pub measurement: Measurement,
}

impl Measured {
    /// The late packets among those that `figure` is of.
    fn departures_of(&self, figure: &Figure) -> &[LatePackets] {
        let mut rows = self.rows.iter();
        let row = rows.find(|row| row.is_of(figure));
        row.map_or(&self.departures, |row| &row.departures)
    }

    /// Why its figures are not the link's, or those of one direction or row: a sender fell short of its schedule, or packets left
    /// late.
    pub fn fault(&self) -> Option<String> {
        let figures = &self.measurement.figures;
        let late = || lateness::invalid_in_any(&self.departures, &self.rows, figures);
        self.shortfall().or_else(late)
    }

    /// That a sender fell short of its schedule, if so: a figure of its load is none of what was asked for.
    fn shortfall(&self) -> Option<String> {
        let budget = self.departures.first().map(|late| late.budget_ns);
        let default = LateBudget::DEFAULT.time().into();
        let allowed = budget.map_or(default, Duration::from_nanos);
        self.measurement.shortfall(allowed)
    }
}

impl RecordHead {
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
            hosts: Vec::new(),
        }
    }

    /// The number of this machine among `hosts`, from 1; none of the only one.
    pub(crate) fn enter(&mut self, host: HostFacts) -> Option<usize> {
        if self.hosts.is_empty() {
            if host == self.host {
                return None;
            }
            self.hosts.push(self.host.clone());
        }
        let known = self.hosts.iter().position(|one| *one == host);
        Some(
            1 + known.unwrap_or_else(|| {
                self.hosts.push(host);
                self.hosts.len() - 1
            }),
        )
    }

    /// The head in a file's first line, and the upgrades that its later lines need.
    fn parse(line: &[u8], upgrades: &'static [Upgrade]) -> Result<(Self, &'static [Upgrade])> {
        #[derive(Deserialize)]
        struct Stamp {
            format: String,
            version: u32,
        }
        // A list can stand for a structure in serde's JSON, but no line of a record is one.
        let is_object = line.trim_ascii_start().starts_with(b"{");
        let stamp = is_object.then(|| serde_json::from_slice::<Stamp>(line).ok());
        let Some(stamp) = stamp.flatten() else {
            return Err(Error::content(format_args!(
                "not a farwire record, or one that ends before its plan (its first line has \"format\": \"{FORMAT}\")"
            )));
        };
        require!(
            stamp.format == FORMAT,
            "not a farwire record: its format is `{}`",
            stamp.format
        );
        let version = stamp.version;
        let from = (version as usize).checked_sub(1);
        let needed = from.and_then(|from| upgrades.get(from..)).ok_or_else(|| {
            let newest = upgrades.len() + 1;
            Error::content(format_args!(
                "a record of version {version}; this farwire reads versions up to {newest}"
            ))
        })?;
        let mut head: Self = parse_line(line, needed)?;
        head.version += u32::try_from(needed.len()).unwrap_or(u32::MAX);
        head.plan.check()?;
        let hosts = head.hosts.len();
        require!(hosts <= MOST_HOSTS, "{hosts} hosts: at most {MOST_HOSTS}");
        Ok((head, needed))
    }
}

impl Record {
    /// A record without a run yet.
    pub fn new(head: RecordHead) -> Self {
        Self {
            head,
            baselines: Vec::new(),
            finished_at: None,
            runs: Vec::new(),
            here: None,
        }
    }

    /// The record in `path`: the file itself, or the directory of its experiment.
    ///
    /// # Errors
    /// No record, or one of a version that this farwire does not read, or damaged before its last line.
    pub fn read(path: &Path) -> Result<Self> {
        let file = file_of(path);
        let read = || Self::from_reader(regular_file::open(&file)?);
        read().map_err(|error| error.in_file(&file))
    }

    /// The record that `lines` are.
    ///
    /// # Errors
    /// As [`Record::read`].
    pub fn from_reader(lines: impl Read) -> Result<Self> {
        Ok(read(lines)?.record)
    }

    /// Whether `directory` holds a record, of whatever version and state.
    pub fn is_in(directory: &Path) -> bool {
        directory.join(FILE).exists()
    }

    /// Whether the record in `directory` says that all its runs took place. It looks at the end of the file alone, so that one that is
    /// being written can be asked often.
    pub fn is_finished(directory: &Path) -> bool {
        let last = || -> io::Result<bool> {
            let mut file = regular_file::open(&file_of(directory))?;
            let from = file.metadata()?.len().saturating_sub(LONGEST_END);
            file.seek(SeekFrom::Start(from))?;
            let mut end = Vec::new();
            file.take(LONGEST_END).read_to_end(&mut end)?;
            let Some(end) = end.strip_suffix(b"\n") else {
                return Ok(false);
            };
            let line = end.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
            let line = serde_json::from_slice::<RecordLine<IgnoredAny>>(line)?;
            Ok(matches!(line, RecordLine::FinishedAt(_)))
        };
        last().unwrap_or(false)
    }

    /// On which of the head's `hosts` it goes on, from 1; none where that is the only one.
    pub fn here(&self) -> Option<usize> {
        self.here
    }

    /// Goes on with this machine.
    pub(crate) fn enter(&mut self, host: HostFacts) {
        self.here = self.head.enter(host);
        if self.here.is_some() {
            // What has none was done on the first.
            for run in &mut self.runs {
                run.host.get_or_insert(1);
            }
            for baseline in &mut self.baselines {
                baseline.host.get_or_insert(1);
            }
        }
    }

    /// What was asked for.
    pub fn plan(&self) -> &Plan {
        &self.head.plan
    }

    /// What there is of every case and repeat.
    pub fn latest(&self) -> Latest<'_> {
        Latest::of(&self.runs)
    }
}

/// The run that counts of every case and repeat, which is the last of its attempts.
#[derive(Clone, Debug)]
pub struct Latest<'a>(HashMap<&'a str, BTreeMap<u32, &'a Run>>);

impl<'a> Latest<'a> {
    /// Of `runs`, the attempts of each in their order.
    pub(crate) fn of(runs: impl IntoIterator<Item = &'a Run>) -> Self {
        let mut latest = Self(HashMap::new());
        for run in runs {
            let case = latest.0.entry(run.case.as_str()).or_default();
            case.insert(run.repeat, run);
        }
        latest
    }

    /// What `case` has of a repeat.
    pub fn run(&self, case: &str, repeat: u32) -> Option<&'a Run> {
        self.0.get(case)?.get(&repeat).copied()
    }

    /// The figure that decides how many repeats `case` has, one value of each run without fault, in the order of the
    /// repeats; none of a case whose repeats are fixed.
    pub fn deciding<A>(&self, case: &Case<A>) -> Vec<f64> {
        let Some(narrow) = &case.repeats.until else {
            return Vec::new();
        };
        let ended = self.runs(case).filter(|run| !run.has_failed());
        ended
            .filter_map(|run| Some(run.sound(&narrow.of)?.value))
            .collect()
    }

    /// How many times `case` runs, as far as is known: in two stages, what the first says, and one more for each run that
    /// gave no figure.
    pub fn repeats<A>(&self, case: &Case<A>) -> u32 {
        let Some(narrow) = &case.repeats.until else {
            return case.repeats.least;
        };
        let values = self.deciding(case);
        let without = self.runs(case).count() - values.len();
        if values.is_empty() && without >= repeats::FIRST {
            // It never gives one.
            return case.repeats.least;
        }
        let needed = repeats::needed(&values, narrow.percent / 100.0);
        let needed = needed.map_or(case.repeats.least, |n| u32::try_from(n).unwrap_or(u32::MAX));
        let without = u32::try_from(without).unwrap_or(u32::MAX);
        needed.saturating_add(without).min(case.repeats.most)
    }

    /// Whether this run is still to be done: it is wanted, and either not there or spoilt, to be attempted so often.
    pub fn lacks<A>(&self, planned: &PlannedRun<'_, A>, attempts: u32) -> bool {
        let PlannedRun { case, repeat, .. } = planned;
        match self.run(&case.name, *repeat) {
            None => *repeat <= self.repeats(case),
            Some(run) => run.is_invalid() && run.attempt < attempts,
        }
    }

    /// What a case has of its repeats, in their order.
    pub fn runs<A>(&self, case: &Case<A>) -> impl Iterator<Item = &'a Run> {
        let all = self.0.get(case.name.as_str()).into_iter();
        let runs = all.flat_map(|all| all.range(1..=case.repeats.most));
        runs.map(|(_, run)| *run)
    }
}

/// A record as it was found in a file.
pub(crate) struct FoundRecord {
    pub(crate) record: Record,
    /// Whether it was made of several.
    pub(crate) is_merged: bool,
    /// Whether the file is of an earlier version.
    pub(crate) is_upgraded: bool,
    /// How many of the file's bytes are whole lines.
    pub(crate) whole: u64,
}

/// What the file holds, as far as it is whole.
pub(crate) fn read(file: impl Read) -> Result<FoundRecord> {
    read_lines(Lines::begin(file)?)
}

fn read_lines((head, mut lines): (RecordHead, Lines<impl Read>)) -> Result<FoundRecord> {
    let is_merged = !head.hosts.is_empty();
    let mut record = Record::new(head);
    while let Some(line) = lines.next()? {
        require!(
            lines.whole <= LONGEST_WHOLE,
            "longer than {}, which is the most that is read into memory",
            size(LONGEST_WHOLE)
        );
        match line {
            RecordLine::Baseline(baseline) => record.baselines.push(baseline),
            RecordLine::Host(host) => record.enter(host),
            RecordLine::Run(run) => record.runs.push(run),
            RecordLine::FinishedAt(at) => record.finished_at = Some(at),
        }
    }
    Ok(FoundRecord {
        record,
        is_merged,
        is_upgraded: lines.is_upgraded(),
        whole: lines.whole,
    })
}

/// The lines of a record, one at a time.
pub(crate) struct Lines<R> {
    file: BufReader<R>,
    /// What makes them lines of the present version.
    upgrades: &'static [Upgrade],
    /// How many of the file's bytes were whole lines until here.
    pub(crate) whole: u64,
    number: u64,
    /// The number of changes of the host.
    changes: usize,
    /// The last one, as it stands in the file.
    pub(crate) text: Vec<u8>,
}

impl<R: Read> Lines<R> {
    /// The head, and the lines after it.
    pub(crate) fn begin(file: R) -> Result<(RecordHead, Self)> {
        Self::with(&UPGRADES, file)
    }

    fn with(upgrades: &'static [Upgrade], file: R) -> Result<(RecordHead, Self)> {
        let mut lines = Self {
            file: BufReader::new(file),
            upgrades,
            whole: 0,
            number: 0,
            changes: 0,
            text: Vec::new(),
        };
        let mut begin = || {
            lines.whole = lines.read(LONGEST_HEAD)?;
            let (head, needed) = RecordHead::parse(&lines.text, upgrades)?;
            require!(lines.text.ends_with(b"\n"), "ends before its plan");
            Ok((head, needed))
        };
        let begun = begin();
        let (head, needed) = begun.map_err(|cause| lines.in_line(cause))?;
        lines.upgrades = needed;
        Ok((head, lines))
    }

    /// Reads the next line, which has at most `longest` bytes; how many it has.
    fn read(&mut self, longest: u64) -> Result<u64> {
        self.text.clear();
        self.number += 1;
        require!(
            self.number <= MOST_LINES,
            "more than {MOST_LINES} lines, which no experiment has"
        );
        // One byte more than that is enough to see that it is longer.
        let mut line = (&mut self.file).take(longest + 1);
        let length = line.read_until(b'\n', &mut self.text)? as u64;
        require!(
            length <= longest,
            "longer than {}, which no line of a record is",
            size(longest)
        );
        Ok(length)
    }

    /// An error of the line that was read last.
    fn in_line(&self, cause: Error) -> Error {
        Error::InLine {
            line: self.number,
            cause: Box::new(cause),
        }
    }

    /// Whether the file is of an earlier version: lines of the present one cannot be added to it.
    pub(crate) fn is_upgraded(&self) -> bool {
        !self.upgrades.is_empty()
    }

    /// The next one that is whole. What is cut off within a line was not whole when it was written; what is whole must be sound.
    pub(crate) fn next(&mut self) -> Result<Option<RecordLine<Run>>> {
        let next = self.parse_next();
        next.map_err(|cause| self.in_line(cause))
    }

    fn parse_next(&mut self) -> Result<Option<RecordLine<Run>>> {
        let length = self.read(LONGEST_LINE)?;
        if !self.text.ends_with(b"\n") {
            return Ok(None);
        }
        let line = parse_line(&self.text, self.upgrades)?;
        if matches!(line, RecordLine::Host(_)) {
            self.changes += 1;
            let most = MOST_HOSTS;
            require!(self.changes <= most, "more than {most} changes of the host");
        }
        self.whole += length;
        Ok(Some(line))
    }
}

/// A number of bytes as people read it.
pub(crate) fn size(bytes: u64) -> impl Display {
    format!("{} MiB", bytes >> 20)
}

fn parse_line<T: DeserializeOwned>(line: &[u8], upgrades: &[Upgrade]) -> Result<T> {
    let parse = || {
        if upgrades.is_empty() {
            return serde_json::from_slice(line);
        }
        let mut value = serde_json::from_slice(line)?;
        upgrades.iter().for_each(|upgrade| upgrade(&mut value));
        serde_json::from_value(value)
    };
    parse().map_err(|error| Error::content(format_args!("damaged: {error}")))
}

/// The record's file, which is either `path` or in it.
pub(crate) fn file_of(path: &Path) -> PathBuf {
    if path.is_dir() {
        path.join(FILE)
    } else {
        path.to_owned()
    }
}

impl LinkCounts {
    /// Of the link of this name.
    pub fn of((name, summary): (String, Summary)) -> Self {
        Self { name, summary }
    }
}

impl Run {
    /// What this instrument measured, if it was used.
    pub fn measured(&self, instrument: &str) -> Option<&Measured> {
        let mut all = self.measurements.iter();
        all.find(|measured| measured.instrument == instrument)
    }

    /// The figure of this name, unless it is missing or does not count.
    pub fn sound(&self, name: &FigureName) -> Option<&Figure> {
        let measured = self.measured(&name.instrument)?;
        let figure = name.find(&measured.measurement)?;
        let counts = measured.measurement.failure.is_none();
        (counts && self.spoilt(measured, figure).is_none()).then_some(figure)
    }

    /// Why this figure of an instrument does not count, though it was measured, if so.
    pub fn spoilt(&self, measured: &Measured, figure: &Figure) -> Option<String> {
        let of_all = || self.spoilt_as_a_whole().map(str::to_owned);
        let short = || measured.shortfall();
        let late = || match measured.departures.as_slice() {
            [] => measured.invalid.clone(),
            _ => lateness::spoilt(measured.departures_of(figure), figure),
        };
        of_all().or_else(short).or_else(late)
    }

    /// Why no instrument's figures count, though they were measured, if so: the emulator lost packets, or the host was starved.
    pub fn spoilt_as_a_whole(&self) -> Option<&str> {
        let RunOutcome::Invalid { cause } = &self.outcome else {
            return None;
        };
        let mut measured = self.measurements.iter();
        measured
            .all(|one| one.invalid.as_ref() == Some(cause))
            .then_some(cause)
    }

    /// Whether the machine spoilt something of it.
    pub fn is_invalid(&self) -> bool {
        matches!(self.outcome, RunOutcome::Invalid { .. })
    }

    /// Whether something was not measured.
    pub fn has_failed(&self) -> bool {
        matches!(self.outcome, RunOutcome::Failed { .. })
    }
}

/// The present in RFC 3339, UTC, to the millisecond.
pub fn now() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lateness::Departed;
    use crate::schedule::Pace;
    use crate::{Direction, Metric, Statistic};

    /// A sound measurement of two sizes and one direction.
    fn measured() -> Measured {
        let figure = Figure::new(Metric::RttMs, Statistic::Median, 1.0);
        Measured {
            instrument: "ping".to_owned(),
            started_at: String::new(),
            invalid: None,
            departures: vec![late(1000, 0)],
            rows: vec![row(64, 0), row(1024, 0)],
            measurement: Measurement {
                figures: vec![figure.clone().size(64), figure.clone().size(1024), figure],
                ..Measurement::default()
            },
        }
    }

    fn late(packets: u64, late: u64) -> LatePackets {
        LatePackets {
            link: "link".to_owned(),
            traffic: "icmp".to_owned(),
            direction: Direction::Up,
            departed: Departed { packets, late },
            budget_ns: 1_000_000,
        }
    }

    fn row(size: u64, count: u64) -> RowDepartures {
        RowDepartures {
            size: Some(size),
            phase: None,
            departures: vec![late(40, count)],
        }
    }

    fn run(measured: &Measured) -> Run {
        Run {
            case: "a".to_owned(),
            repeat: 1,
            attempt: 1,
            seed: 1,
            host: None,
            started_at: String::new(),
            outcome: RunOutcome::Ok,
            environment: BTreeMap::new(),
            measurements: vec![measured.clone()],
            links: Vec::new(),
            artifacts: Vec::new(),
        }
    }

    #[test]
    fn a_figure_of_a_size_is_judged_by_the_packets_of_its_size() {
        let mut measured = measured();
        assert_eq!(measured.fault(), None);
        measured.rows[1] = row(1024, 12);
        let cause = "1024 bytes: 12 of 40 packets up left more than 1 ms late";
        assert_eq!(measured.fault().as_deref(), Some(cause));
        let run = run(&measured);
        let spoilt = |at: usize| run.spoilt(&measured, &measured.measurement.figures[at]);
        assert!(spoilt(1).is_some());
        assert_eq!((spoilt(0), spoilt(2)), (None, None));
    }

    #[test]
    fn a_sender_that_fell_short_spoils_all_that_was_measured() {
        let mut measured = measured();
        let pace = Pace::of_bits(Some(Direction::Up), 2e8, 14_370_000, 2.0, 1250);
        measured.measurement.paces = pace.into_iter().collect();
        let cause = measured.fault().unwrap();
        assert!(
            cause.contains("it sent 57.5 of the requested 200 Mbit/s up"),
            "{cause}"
        );
        let run = run(&measured);
        let figures = &measured.measurement.figures;
        assert!(
            figures
                .iter()
                .all(|figure| run.spoilt(&measured, figure).is_some())
        );
        // Also where no emulator says what left late.
        let without = Measured {
            departures: Vec::new(),
            rows: Vec::new(),
            ..measured.clone()
        };
        assert!(without.fault().is_some());
        // A budget of a minute for packets is one for the sender as well.
        let mut patient = measured.clone();
        patient.departures[0].budget_ns = 60_000_000_000;
        assert_eq!(patient.fault(), None);
    }

    #[test]
    fn what_is_no_record_is_refused_with_its_cause() {
        for (text, cause) in [
            ("", "not a farwire record"),
            ("{}", "not a farwire record"),
            (r#"{"format":"x","version":1}"#, "its format is `x`"),
            (r#"{"format":"farwire-record","version":0}"#, "version 0"),
            (
                r#"{"format":"farwire-record","version":2}"#,
                "a record of version 2; this farwire reads versions up to 1",
            ),
            (r#"{"format":"farwire-record","version":1}"#, "damaged"),
            (r#"["farwire-record",1]"#, "not a farwire record"),
            (r#"["farwire-record",5]"#, "not a farwire record"),
        ] {
            let error = format!(
                "{:#}",
                RecordHead::parse(text.as_bytes(), &UPGRADES).unwrap_err()
            );
            assert!(error.contains(cause), "{error}");
        }
    }

    /// The small record with a text of it replaced.
    fn changed(from: &str, to: &str) -> String {
        let small = include_str!("../../../tests/fixtures/records/small.jsonl");
        assert!(small.contains(from), "{from}");
        small.replacen(from, to, 1)
    }

    #[test]
    fn a_plan_that_no_scenario_becomes_is_refused_with_its_key() {
        let repeats = r#""repeats":{"least":1,"most":1,"until":null}"#;
        let count = |least: u64, most: u64| {
            format!(r#""repeats":{{"least":{least},"most":{most},"until":null}}"#)
        };
        let case = r#""name":"slow""#;
        let kind = r#""kind":"netns","#;
        let shard = |index: u32, of: u64| {
            format!(r#""shard":{{"index":{index},"of":{of},"by":"run","runs":{{}}}},"seed":1"#)
        };
        for (from, to, cause) in [
            (
                repeats,
                count(4_294_967_295, 4_294_967_295),
                "2 cases with up to 4294967295 repeats each: at most 1000000 runs",
            ),
            (
                repeats,
                count(0, 0),
                "cases: base: repeats: from 0 to 0 runs",
            ),
            (
                repeats,
                count(2, 1),
                "cases: base: repeats: from 2 to 1 runs",
            ),
            (
                r#""name":"small""#,
                r#""name":"../small""#.to_owned(),
                "name: `../small`",
            ),
            (
                case,
                r#""name":"a\u001b[2J""#.to_owned(),
                "name: it has a control character",
            ),
            (
                case,
                r#""name":"a\nb""#.to_owned(),
                "name: it has a control character",
            ),
            (
                case,
                r#""name":"a\u202eb""#.to_owned(),
                "name: it has a control character",
            ),
            (
                case,
                r#""name":"base""#.to_owned(),
                "name: it is taken by another case",
            ),
            (
                r#""name":"ping""#,
                r#""name":"a b""#.to_owned(),
                "cases: base: instruments 1: name: `a b`",
            ),
            (
                r#""seed":1"#,
                shard(1, 4_294_967_295),
                "there are 1 to 10000 shards",
            ),
            (r#""seed":1"#, shard(5, 4), "the first is 1/4"),
            (
                kind,
                kind.to_owned() + r#""clients":4294967295,"#,
                "clients: 4294967295 is out of range",
            ),
        ] {
            let text = changed(from, &to);
            let error = format!("{:#}", Record::from_reader(text.as_bytes()).unwrap_err());
            assert!(
                error.starts_with("line 1: ") && !error.contains(['\n', '\u{1b}', '\u{202e}']),
                "{error}"
            );
            assert!(error.contains(cause), "{cause}: {error}");
        }
    }

    #[test]
    fn a_record_that_would_fill_the_memory_is_refused_where_it_becomes_too_long() {
        let small = changed("", "");
        let refused = |file: &mut dyn Read| {
            let error = Record::from_reader(file).unwrap_err();
            format!("{error:#}")
        };
        let mut endless = b"{".chain(io::repeat(b' '));
        assert!(refused(&mut endless).starts_with("line 1: longer than 64 MiB"));
        assert!(refused(&mut io::repeat(0)).starts_with("line 1: longer than 64 MiB"));
        let lines = small.lines().count() + 1;
        let mut endless = small.as_bytes().chain(io::repeat(b' '));
        let error = refused(&mut endless);
        assert!(
            error.starts_with(&format!("line {lines}: longer than 256 MiB")),
            "{error}"
        );
        let begin = || Lines::begin(small.as_bytes()).unwrap();
        let (head, mut lines) = begin();
        lines.whole = LONGEST_WHOLE;
        let error = format!("{:#}", read_lines((head, lines)).map(drop).unwrap_err());
        assert!(error.starts_with("longer than 1024 MiB"), "{error}");
        let (_, mut lines) = begin();
        lines.number = MOST_LINES;
        let error = format!("{:#}", lines.next().map(drop).unwrap_err());
        assert!(error.contains("more than 2000000 lines"), "{error}");
    }

    /// To a made-up version 2. In version 1 the head's `farwire` is a table here, and a run's `repeat` is called `number`.
    const TO_VERSION_2: Upgrade = |line| {
        if let Some(version) = line.pointer_mut("/farwire/version").map(Value::take) {
            line["farwire"] = version;
        }
        if let Some(number) = line.pointer_mut("/run/number").map(Value::take) {
            line["run"]["repeat"] = number;
        }
    };

    #[test]
    fn a_record_of_an_earlier_version_is_upgraded_line_by_line_and_a_newer_one_is_refused() {
        let present = include_str!("../../../tests/fixtures/records/small.jsonl");
        let version_1 = present
            .replacen(
                r#""farwire":"0.1.0""#,
                r#""farwire":{"version":"0.1.0"}"#,
                1,
            )
            .replace(r#""repeat":1"#, r#""number":1"#);
        let version_2 = present.replacen(r#""version":1"#, r#""version":2"#, 1);
        let version_3 = present.replacen(r#""version":1"#, r#""version":3"#, 1);
        let read = |text: String| read_lines(Lines::with(&[TO_VERSION_2], text.as_bytes())?);
        let upgraded = read(version_1).unwrap();
        let written = read(version_2).unwrap();
        assert!(upgraded.is_upgraded && !written.is_upgraded);
        assert_eq!(upgraded.record, written.record);
        assert_eq!(upgraded.record.head.version, 2);
        let refused = read(version_3).map(drop).unwrap_err().to_string();
        assert_eq!(
            refused,
            "line 1: a record of version 3; this farwire reads versions up to 2"
        );
    }

    #[test]
    fn a_record_is_finished_when_its_last_whole_line_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let finished = |text: &str| {
            std::fs::write(directory.path().join(FILE), text).unwrap();
            Record::is_finished(directory.path())
        };
        let long = format!("{{\"run\":{{\"case\":\"{}\"}}}}\n", "x".repeat(5000));
        let end = "{\"finished_at\":\"2026-11-24T10:00:00Z\"}\n";
        assert!(finished(&format!("{long}{end}")) && finished(end));
        assert!(!finished(&format!("{long}{}", end.trim_end())));
        assert!(!finished(&format!("{end}{long}")) && !finished(&long) && !finished(""));
        assert!(!Record::is_finished(&directory.path().join("gone")));
    }
}
