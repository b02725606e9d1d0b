//! The record of an experiment, from which all reports are made. See docs/record-format.md.
//!
//! A record is a file of lines, each a JSON value: the head, then a line for each run when it ends, and finally a line
//! that marks the experiment as finished. A file that was cut off anywhere lacks only the run that was being written.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufRead, BufReader, Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

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
use crate::link_history::LinkHistory;
use crate::quantity::size;
use crate::regular_file;
use crate::summary::Summary;
use stats::repeats;

/// Name of the format in the file.
const FORMAT: &str = "farwire-record";
/// The version that is written. It is raised whenever a reader of the previous version would misread the file.
pub(crate) const VERSION: u32 = 1;
/// A function that changes a line of one version, the head included, into the same line of the next version.
type Upgrade = fn(&mut Value);
/// The upgrades from every earlier version to the next, in order; the first is from version 1 to 2.
const UPGRADES: [Upgrade; VERSION as usize - 1] = [];
/// Name of the record in the directory of an experiment.
pub(crate) const FILE: &str = "record.jsonl";
/// Greatest length in bytes of the line that says when an experiment ended.
const LONGEST_END: u64 = 1024;
/// Greatest length of the first line in bytes. 10,000 cases take about 30 MB.
const LONGEST_HEAD: u64 = 64 << 20;
/// Greatest length of any further line in bytes, which is that of a run with about three million samples.
pub(crate) const LONGEST_LINE: u64 = 256 << 20;
/// Greatest length in bytes of a record that is read into memory as a whole.
const LONGEST_WHOLE: u64 = 1 << 30;
/// Greatest number of lines of a record, enough for every run of the largest plan and as many further attempts.
const MOST_LINES: u64 = 2_000_000;
/// Greatest number of hosts of a record, and of changes of the host and of the late budget together.
const MOST_HOSTS: usize = 10_000;

/// The plan and the results of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Record {
    /// The facts that were known before the first run.
    #[serde(flatten)]
    pub head: RecordHead,
    /// The machine's limits without emulated conditions, measured before the first run, whenever the experiment was
    /// resumed, and after the last run. Empty for beds that include other machines.
    pub baselines: Vec<Baseline>,
    /// The late budgets with which the experiment was continued, in order; empty if the plan's applies to all runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub late_budgets: Vec<LateBudgetChange>,
    /// End of the experiment (RFC 3339, UTC); absent while it runs and if it was interrupted.
    pub finished_at: Option<String>,
    /// The runs in the order in which they took place.
    pub runs: Vec<Run>,
    /// The number of this machine among the head's `hosts`, for runs that follow.
    #[serde(skip)]
    pub(crate) here: Option<usize>,
}

/// The facts that are known before the first run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordHead {
    format: String,
    version: u32,
    /// Version of the farwire that wrote the record.
    pub farwire: String,
    /// Start of the experiment (RFC 3339, UTC).
    pub started_at: String,
    /// The scenario that the user gave.
    pub scenario: GivenScenario,
    /// The plan that followed from it.
    pub plan: Plan,
    /// The machine; in a merged record, that of the record that began first.
    pub host: HostFacts,
    /// All machines of a record that was merged or continued elsewhere; empty otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostFacts>,
}

/// A line after the head.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RecordLine<R> {
    Baseline(Baseline),
    /// Another machine, on which the experiment continues.
    Host(HostFacts),
    /// Another late budget, with which the experiment continues.
    LateBudget(LateBudgetChange),
    Run(R),
    FinishedAt(String),
}

/// A late budget that applies to all later runs, in place of the plan's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LateBudgetChange {
    /// The new budget.
    pub late_budget: LateBudget,
    /// The time at which the experiment was continued with it (RFC 3339, UTC).
    pub changed_at: String,
    /// Number of runs in the record before the change; absent in a merged record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_runs: Option<usize>,
}

/// A scenario as it was given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GivenScenario {
    /// Path of the file, as the user wrote it.
    pub file: String,
    /// Text of the file.
    pub text: String,
}

/// Greatest number of attempts at a run that the machine spoils.
pub const MOST_ATTEMPTS: u32 = 3;

/// One run of a case, for which the test bed was set up once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Name of the case.
    pub case: String,
    /// Number of the repeat, from 1.
    pub repeat: u32,
    /// Number of the attempt, from 1. A run that the machine spoilt is attempted again.
    pub attempt: u32,
    /// Seed of the link's randomness.
    pub seed: u64,
    /// The number of the host among the head's `hosts`, from 1; absent if the record has one host. In a file it is also
    /// absent for the first host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<usize>,
    /// Start of the run (RFC 3339, UTC).
    pub started_at: String,
    /// Seconds from the start until the test bed was removed; absent in records of earlier versions of farwire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elapsed_s: Option<f64>,
    /// The outcome of the run.
    pub outcome: RunOutcome,
    /// Settings that were in force in the test bed: sysctls, offloads, congestion control.
    pub environment: BTreeMap<String, String>,
    /// One entry for each instrument that was used.
    pub measurements: Vec<Measured>,
    /// Counters of the emulated links, in order, over the whole run.
    pub links: Vec<LinkCounts>,
    /// Files that the run left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
}

/// The counters of one link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkCounts {
    /// The plan's name for the link.
    pub name: String,
    /// The counters.
    #[serde(flatten)]
    pub summary: Summary,
    /// The queue and the drops over the run; absent if there were none, and for many links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<LinkHistory>,
    /// The time from which its schedules, traces, outages and handovers count (RFC 3339, UTC); absent for a link that
    /// waited for its first packet to the end, in records of earlier versions of farwire, and for many links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begins_at: Option<String>,
}

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum RunOutcome {
    /// Everything was measured.
    Ok,
    /// Something was not measured.
    Failed {
        /// The cause in words.
        cause: String,
    },
    /// Everything was measured, but the machine did not keep up. The figures of one or all instruments do not describe
    /// the link.
    Invalid {
        /// The cause in words.
        cause: String,
    },
}

/// The measurement of one instrument in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The plan's name for the instrument.
    pub instrument: String,
    /// Start of the measurement (RFC 3339, UTC), to which the samples' times are relative.
    pub started_at: String,
    /// The reason why figures, possibly those of one direction only, do not describe the link; absent if all do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalid: Option<String>,
    /// Departures of its packets from the emulator while it measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub departures: Vec<LatePackets>,
    /// The same for each size or phase during its own time; empty if there is only one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<RowDepartures>,
    /// Samples and figures.
    #[serde(flatten)]
    pub measurement: Measurement,
}

impl Measured {
    /// Returns the departures of the packets that `figure` describes.
    fn departures_of(&self, figure: &Figure) -> &[LatePackets] {
        let mut rows = self.rows.iter();
        let row = rows.find(|row| row.is_of(figure));
        row.map_or(&self.departures, |row| &row.departures)
    }

    /// Returns the reason why figures, possibly those of one direction or size only, do not describe the link: a sender
    /// fell short of its schedule, or packets left late.
    pub fn fault(&self) -> Option<String> {
        let figures = &self.measurement.figures;
        let late = || lateness::invalid_in_any(&self.departures, &self.rows, figures);
        self.shortfall().or_else(late)
    }

    /// Returns the reason if a sender fell short of its schedule; the figures then describe another load than the
    /// requested one.
    fn shortfall(&self) -> Option<String> {
        let budget = self.departures.first().map(|late| late.budget_ns);
        let default = LateBudget::DEFAULT.time().into();
        let allowed = budget.map_or(default, Duration::from_nanos);
        self.measurement.shortfall(allowed)
    }
}

impl RecordHead {
    /// Creates the head of an experiment that begins now.
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

    /// Adds the machine to `hosts` if necessary, and returns its number there, from 1; `None` if it is the only one.
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

    /// Parses the first line of a file, and returns the head with the upgrades that the later lines need.
    fn parse(line: &[u8], upgrades: &'static [Upgrade]) -> Result<(Self, &'static [Upgrade])> {
        #[derive(Deserialize)]
        struct Stamp {
            format: String,
            version: u32,
        }
        // serde_json also accepts a list for a structure, but no line of a record is a list.
        let is_object = line.trim_ascii_start().starts_with(b"{");
        let stamp = is_object.then(|| serde_json::from_slice::<Stamp>(line).ok());
        let Some(stamp) = stamp.flatten() else {
            return Err(Error::content(format_args!(
                "not a farwire record, or one that ends before its plan (a record's first line has \"format\": \"{FORMAT}\")"
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
                "the record has version {version}; this farwire reads versions up to {newest}"
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

/// The state of a record's file, by which a change is noticed without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState {
    bytes: u64,
    modified: SystemTime,
}

impl Record {
    /// Creates a record without runs.
    pub fn new(head: RecordHead) -> Self {
        Self {
            head,
            baselines: Vec::new(),
            late_budgets: Vec::new(),
            finished_at: None,
            runs: Vec::new(),
            here: None,
        }
    }

    /// Reads the record in `path`, which is the file or the directory of its experiment.
    ///
    /// # Errors
    /// A file that is not a record, has a version that this farwire does not read, or is damaged before its last line.
    pub fn read(path: &Path) -> Result<Self> {
        let file = file_of(path);
        let read = || Self::from_reader(regular_file::open(&file)?);
        read().map_err(|error| error.in_file(&file))
    }

    /// Reads a record from its lines.
    ///
    /// # Errors
    /// The same as for [`Record::read`].
    pub fn from_reader(lines: impl Read) -> Result<Self> {
        Ok(read(lines)?.record)
    }

    /// Returns whether `directory` contains a record, of any version and state.
    pub fn is_in(directory: &Path) -> bool {
        directory.join(FILE).exists()
    }

    /// Returns the size and the modification time of the record in `directory`. While both are the same, so is the
    /// record.
    ///
    /// # Errors
    /// There is no record, or its directory cannot be searched.
    pub fn state_in(directory: &Path) -> io::Result<FileState> {
        let file = directory.join(FILE).metadata()?;
        Ok(FileState {
            bytes: file.len(),
            modified: file.modified()?,
        })
    }

    /// Returns whether the record in `directory` is marked as finished. Only the end of the file is read, so that a
    /// record that is being written can be polled often.
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

    /// Returns the number of the current machine among the head's `hosts`, from 1; `None` if it is the only one.
    pub fn here(&self) -> Option<usize> {
        self.here
    }

    /// Continues the record on this machine.
    pub(crate) fn enter(&mut self, host: HostFacts) {
        self.here = self.head.enter(host);
        if self.here.is_some() {
            // Runs without a number took place on the first host.
            for run in &mut self.runs {
                run.host.get_or_insert(1);
            }
            for baseline in &mut self.baselines {
                baseline.host.get_or_insert(1);
            }
        }
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Plan {
        &self.head.plan
    }

    /// Returns the late budget of runs that follow: that of the last change, or else the plan's.
    pub fn late_budget(&self) -> LateBudget {
        let last = self.late_budgets.last();
        last.map_or(self.head.plan.late_budget, |change| change.late_budget)
    }

    /// Returns the greatest late budget by which a run of this record was judged: the plan's, or that of a change.
    pub fn greatest_late_budget(&self) -> LateBudget {
        let changes = self.late_budgets.iter().map(|change| change.late_budget);
        let planned = self.head.plan.late_budget;
        changes.fold(planned, |greatest, budget| {
            if budget.time() > greatest.time() {
                budget
            } else {
                greatest
            }
        })
    }

    /// Returns the run that counts for every case and repeat.
    pub fn latest(&self) -> Latest<'_> {
        Latest::of(&self.runs)
    }
}

/// The run that counts for every case and repeat, which is the last of its attempts.
#[derive(Clone, Debug)]
pub struct Latest<'a>(HashMap<&'a str, BTreeMap<u32, &'a Run>>);

impl<'a> Latest<'a> {
    /// Creates the index of `runs`, in which the attempts of each run must be in order.
    pub(crate) fn of(runs: impl IntoIterator<Item = &'a Run>) -> Self {
        let mut latest = Self(HashMap::new());
        for run in runs {
            let case = latest.0.entry(run.case.as_str()).or_default();
            case.insert(run.repeat, run);
        }
        latest
    }

    /// Returns the run that counts for a repeat of `case`.
    pub fn run(&self, case: &str, repeat: u32) -> Option<&'a Run> {
        self.0.get(case)?.get(&repeat).copied()
    }

    /// Returns the values of the figure that decides the number of repeats of `case`, from each run without fault, in
    /// the order of the repeats. Empty for a case with a fixed number of repeats.
    pub fn deciding<A>(&self, case: &Case<A>) -> Vec<f64> {
        let Some(narrow) = &case.repeats.until else {
            return Vec::new();
        };
        let ended = self.runs(case).filter(|run| !run.has_failed());
        ended
            .filter_map(|run| Some(run.sound(&narrow.of)?.value))
            .collect()
    }

    /// Returns the number of repeats of `case`, as far as it is known. It follows in two stages: the first runs decide
    /// how many are needed, and each run without the figure adds one.
    pub fn repeats<A>(&self, case: &Case<A>) -> u32 {
        let Some(narrow) = &case.repeats.until else {
            return case.repeats.least;
        };
        let values = self.deciding(case);
        let without = self.runs(case).count() - values.len();
        if values.is_empty() && without >= repeats::FIRST {
            // The measurement never yields this figure.
            return case.repeats.least;
        }
        let needed = repeats::needed(&values, narrow.percent / 100.0)
            .map_or(case.repeats.least, |n| u32::try_from(n).unwrap_or(u32::MAX));
        let without = u32::try_from(without).unwrap_or(u32::MAX);
        needed.saturating_add(without).min(case.repeats.most)
    }

    /// Returns whether this run is still to be done: it is needed and missing, or spoilt with fewer than `attempts`
    /// attempts.
    pub fn lacks<A>(&self, planned: &PlannedRun<'_, A>, attempts: u32) -> bool {
        let PlannedRun { case, repeat, .. } = planned;
        match self.run(&case.name, *repeat) {
            None => *repeat <= self.repeats(case),
            Some(run) => run.is_invalid() && run.attempt < attempts,
        }
    }

    /// Returns the runs of a case in the order of the repeats.
    pub fn runs<A>(&self, case: &Case<A>) -> impl Iterator<Item = &'a Run> {
        let all = self.0.get(case.name.as_str()).into_iter();
        let runs = all.flat_map(|all| all.range(1..=case.repeats.most));
        runs.map(|(_, run)| *run)
    }
}

/// A record as it was found in a file.
pub(crate) struct FoundRecord {
    pub(crate) record: Record,
    /// Whether it was merged from several records.
    pub(crate) is_merged: bool,
    /// Whether the file has an earlier version.
    pub(crate) is_upgraded: bool,
    /// Number of bytes of the file that are complete lines.
    pub(crate) whole: u64,
}

/// Reads the complete lines of a file.
pub(crate) fn read(file: impl Read) -> Result<FoundRecord> {
    read_lines(Lines::begin(file)?)
}

fn read_lines((head, mut lines): (RecordHead, Lines<impl Read>)) -> Result<FoundRecord> {
    let is_merged = !head.hosts.is_empty();
    let mut record = Record::new(head);
    while let Some(line) = lines.next()? {
        require!(
            lines.whole <= LONGEST_WHOLE,
            "the record is longer than {}, the most that is read into memory",
            size(LONGEST_WHOLE)
        );
        match line {
            RecordLine::Baseline(baseline) => record.baselines.push(baseline),
            RecordLine::Host(host) => record.enter(host),
            RecordLine::LateBudget(change) => record.late_budgets.push(change),
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

/// An iterator over the lines of a record.
pub(crate) struct Lines<R> {
    file: BufReader<R>,
    /// The upgrades that turn the lines into those of the present version.
    upgrades: &'static [Upgrade],
    /// Number of bytes of the complete lines that were read so far.
    pub(crate) whole: u64,
    number: u64,
    /// Number of changes of the host and of the late budget so far.
    changes: usize,
    /// The last line that was read, as it is in the file.
    pub(crate) text: Vec<u8>,
}

impl<R: Read> Lines<R> {
    /// Reads the head, and returns it with the lines that follow.
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
            require!(
                lines.text.ends_with(b"\n"),
                "the record ends before its plan"
            );
            Ok((head, needed))
        };
        let begun = begin();
        let (head, needed) = begun.map_err(|cause| lines.in_line(cause))?;
        lines.upgrades = needed;
        Ok((head, lines))
    }

    /// Reads the next line, which may have at most `longest` bytes, and returns its length.
    fn read(&mut self, longest: u64) -> Result<u64> {
        self.text.clear();
        self.number += 1;
        require!(
            self.number <= MOST_LINES,
            "more than {MOST_LINES} lines, more than any experiment writes"
        );
        // One more byte is enough to find that a line is too long.
        let mut line = (&mut self.file).take(longest + 1);
        let length = line.read_until(b'\n', &mut self.text)? as u64;
        require!(
            length <= longest,
            "longer than {}, the limit of a record's line",
            size(longest)
        );
        Ok(length)
    }

    /// Adds the number of the last line to an error.
    fn in_line(&self, cause: Error) -> Error {
        Error::InLine {
            line: self.number,
            cause: Box::new(cause),
        }
    }

    /// Returns whether the file has an earlier version, so that no line of the present version can be added to it.
    pub(crate) fn is_upgraded(&self) -> bool {
        !self.upgrades.is_empty()
    }

    /// Returns the next complete line, or `None` at the end. A line that was cut off counts as absent; a complete line
    /// must be valid.
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
        if matches!(line, RecordLine::Host(_) | RecordLine::LateBudget(_)) {
            self.changes += 1;
            let most = MOST_HOSTS;
            require!(
                self.changes <= most,
                "more than {most} changes of the host and of the late budget"
            );
        }
        self.whole += length;
        Ok(Some(line))
    }
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

/// Returns the record's file, which is `path` itself or, if that is a directory, in it.
pub(crate) fn file_of(path: &Path) -> PathBuf {
    if path.is_dir() {
        path.join(FILE)
    } else {
        path.to_owned()
    }
}

impl LinkCounts {
    /// Creates the counters of the link with this name.
    pub fn of((name, summary): (String, Summary)) -> Self {
        Self {
            name,
            summary,
            history: None,
            begins_at: None,
        }
    }
}

impl RunOutcome {
    /// Returns its name in records and data files.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed { .. } => "failed",
            Self::Invalid { .. } => "invalid",
        }
    }

    /// Returns the cause in words, unless everything was measured.
    pub fn cause(&self) -> Option<&str> {
        match self {
            Self::Ok => None,
            Self::Failed { cause } | Self::Invalid { cause } => Some(cause),
        }
    }
}

impl Run {
    /// Returns the measurement of this instrument, if it was used.
    pub fn measured(&self, instrument: &str) -> Option<&Measured> {
        let mut all = self.measurements.iter();
        all.find(|measured| measured.instrument == instrument)
    }

    /// Returns the figure of this name, unless it is missing or invalid.
    pub fn sound(&self, name: &FigureName) -> Option<&Figure> {
        let measured = self.measured(&name.instrument)?;
        let figure = name.find(&measured.measurement)?;
        let counts = measured.measurement.failure.is_none();
        (counts && self.spoilt(measured, figure).is_none()).then_some(figure)
    }

    /// Returns the reason why this measured figure of an instrument is invalid, if it is.
    pub fn spoilt(&self, measured: &Measured, figure: &Figure) -> Option<String> {
        let of_all = || self.spoilt_as_a_whole().map(str::to_owned);
        let short = || measured.shortfall();
        let late = || match measured.departures.as_slice() {
            [] => measured.invalid.clone(),
            _ => lateness::spoilt(measured.departures_of(figure), figure),
        };
        of_all().or_else(short).or_else(late)
    }

    /// Returns the reason why the measured figures of all instruments are invalid, if they are: the emulator lost
    /// packets, or the host had too little processor time.
    pub fn spoilt_as_a_whole(&self) -> Option<&str> {
        let RunOutcome::Invalid { cause } = &self.outcome else {
            return None;
        };
        let mut measured = self.measurements.iter();
        measured
            .all(|one| one.invalid.as_ref() == Some(cause))
            .then_some(cause)
    }

    /// Returns whether the machine spoilt some of the measurements.
    pub fn is_invalid(&self) -> bool {
        matches!(self.outcome, RunOutcome::Invalid { .. })
    }

    /// Returns whether something was not measured.
    pub fn has_failed(&self) -> bool {
        matches!(self.outcome, RunOutcome::Failed { .. })
    }
}

/// Returns the present time in RFC 3339, UTC, to the millisecond.
pub fn now() -> String {
    written(jiff::Timestamp::now())
}

/// Returns the time that was this long before the present one, as [`now`] writes it.
pub fn ago(span: Duration) -> String {
    let now = jiff::Timestamp::now();
    written(now.checked_sub(span).unwrap_or(now))
}

fn written(time: jiff::Timestamp) -> String {
    format!("{time:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lateness::Departed;
    use crate::schedule::Pace;
    use crate::{Direction, Metric, Statistic};

    /// A valid measurement of two sizes and one direction.
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
            elapsed_s: None,
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
        // This also holds without an emulator that reports late packets.
        let without = Measured {
            departures: Vec::new(),
            rows: Vec::new(),
            ..measured.clone()
        };
        assert!(without.fault().is_some());
        // A budget of a minute for packets allows the sender to be a minute behind, too.
        let mut patient = measured.clone();
        patient.departures[0].budget_ns = 60_000_000_000;
        assert_eq!(patient.fault(), None);
    }

    #[test]
    fn a_file_that_is_no_record_is_refused_with_the_cause() {
        for (text, cause) in [
            ("", "not a farwire record"),
            ("{}", "not a farwire record"),
            (r#"{"format":"x","version":1}"#, "its format is `x`"),
            (r#"{"format":"farwire-record","version":0}"#, "version 0"),
            (
                r#"{"format":"farwire-record","version":2}"#,
                "the record has version 2; this farwire reads versions up to 1",
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

    /// Returns the small record with one text replaced.
    fn changed(from: &str, to: &str) -> String {
        let small = include_str!("../../../tests/fixtures/records/small.jsonl");
        assert!(small.contains(from), "{from}");
        small.replacen(from, to, 1)
    }

    #[test]
    fn an_invalid_plan_is_refused_with_its_key() {
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
                "2 cases with up to 4294967295 repeats each: at most 100000 runs",
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
                "name: it contains a control character",
            ),
            (
                case,
                r#""name":"a\nb""#.to_owned(),
                "name: it contains a control character",
            ),
            (
                case,
                r#""name":"a\u202eb""#.to_owned(),
                "name: it contains a control character",
            ),
            (
                case,
                r#""name":"base""#.to_owned(),
                "name: another case has this name",
            ),
            (
                r#""name":"ping""#,
                r#""name":"a b""#.to_owned(),
                "cases: base: instruments 1: name: `a b`",
            ),
            (
                r#""seed":1"#,
                shard(1, 4_294_967_295),
                "the number of shards must be 1 to 1000",
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
    fn a_record_that_would_fill_memory_is_refused() {
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
        assert!(
            error.starts_with("the record is longer than 1 GiB"),
            "{error}"
        );
        let (_, mut lines) = begin();
        lines.number = MOST_LINES;
        let error = format!("{:#}", lines.next().map(drop).unwrap_err());
        assert!(error.contains("more than 2000000 lines"), "{error}");
    }

    /// An upgrade to an invented version 2. In version 1 of this test, the head's `farwire` is a table, and a run's
    /// `repeat` is called `number`.
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
            "line 1: the record has version 3; this farwire reads versions up to 2"
        );
    }

    #[test]
    fn a_record_is_finished_if_its_last_complete_line_says_so() {
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
