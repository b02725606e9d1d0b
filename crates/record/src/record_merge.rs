//! Merges records of one experiment. The result has every run once, whatever the order in which the records are given.
//!
//! Each file is read twice, line by line: first to find out which runs there are, and then to write those that are
//! kept. Memory holds only the data of each run that decides which copy is kept and whether further runs are missing.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufWriter, ErrorKind, Write as _};
use std::mem;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use conditions::require;

use crate::error::{Error, Result};
use crate::plan::{Case, Plan, PlannedRun};
use crate::record::{
    FILE, GivenScenario, LateBudgetChange, Latest, Lines, MOST_ATTEMPTS, Measured, RecordHead,
    RecordLine, Run, RunOutcome, file_of,
};
use crate::record_writer::{RecordWriter, line};
use crate::regular_file;
use crate::shard::Shard;
use crate::{Baseline, HostFacts, Measurement};

/// Largest number of files that are open at a time.
const MOST_OPEN: usize = 256;

/// The merge of several records.
#[derive(Debug)]
pub struct Merge {
    sources: Vec<Source>,
    head: RecordHead,
    /// The runs that are kept, in the order in which they took place.
    kept: Vec<Group>,
    duplicates: usize,
    missing: Vec<(String, u32)>,
}

/// A record that is merged.
#[derive(Debug)]
struct Source {
    /// The path as it was given.
    path: PathBuf,
    /// The canonical path of its directory, to which the paths of its runs' files are relative.
    folder: PathBuf,
    head: RecordHead,
    /// Whether it was merged from several records itself.
    is_merged: bool,
    /// The shard of the experiment that it is for, if any.
    shard: Option<Shard>,
    baselines: Vec<Baseline>,
    late_budgets: Vec<LateBudgetChange>,
    finished_at: Option<String>,
    groups: Vec<Group>,
}

/// All attempts at one repeat of a case in one record.
#[derive(Debug)]
struct Group {
    /// Index of its record among the sources.
    source: usize,
    /// Index of its case in the plan.
    case: usize,
    repeat: u32,
    /// The attempts in order. Of the measurements, only the figure that decides the number of repeats is kept.
    runs: Vec<Run>,
    /// The position of each attempt's line in the file: offset and length in bytes.
    places: Vec<(u64, usize)>,
    /// Hash of its lines, so that only content decides between two groups.
    hash: u64,
}

impl Merge {
    /// Reads the records in `paths`, which are files or directories of experiments.
    ///
    /// # Errors
    /// A file that is not a record or is damaged before its last line, and records of different experiments or
    /// versions.
    pub fn of(paths: &[PathBuf]) -> Result<Self> {
        let mut sources: Vec<Source> = Vec::new();
        for path in paths {
            let mut source = Source::read(path)?;
            if let Some(first) = sources.first() {
                check_alike(first, &source)?;
                // Ten thousand cases in as many records would not fit into memory.
                source.head.plan.cases = Vec::new();
            }
            sources.push(source);
        }
        let Some(first) = sources.first_mut() else {
            return Err(Error::content("no record to merge"));
        };
        let cases = mem::take(&mut first.head.plan.cases);
        sources.sort_by_cached_key(|source| {
            let json = |value: serde_json::Result<String>| value.unwrap_or_default();
            (
                source.head.started_at.clone(),
                json(serde_json::to_string(&source.head.scenario)),
                json(serde_json::to_string(&source.head.host)),
                // Among copies, the path decides whose files the merged record refers to.
                source.path.clone(),
            )
        });
        let mut head = sources[0].head.clone();
        head.plan.cases = cases;
        head.hosts = hosts(&sources);
        let (kept, duplicates) = keep(&mut sources);
        let mut merge = Self {
            missing: missing(&head.plan, &kept),
            sources,
            head,
            kept,
            duplicates,
        };
        merge.kept.sort_by(|a, b| a.place().cmp(&b.place()));
        Ok(merge)
    }

    /// Returns the plan of the experiment with all shards.
    pub fn plan(&self) -> &Plan {
        &self.head.plan
    }

    /// Returns the scenario as it was given.
    pub fn scenario(&self) -> &GivenScenario {
        &self.head.scenario
    }

    /// Returns the number of machines that took part.
    pub fn hosts(&self) -> usize {
        self.head.hosts.len()
    }

    /// Returns the number of runs that it has, counting each case and repeat once.
    pub fn runs(&self) -> usize {
        self.kept.len()
    }

    /// Returns the number of runs that a complete record would have.
    pub fn planned(&self) -> usize {
        // A spoilt run may be present and missing at the same time.
        let kept: HashSet<(&str, u32)> = self
            .kept
            .iter()
            .map(|group| {
                let case = &self.head.plan.cases[group.case];
                (case.name.as_str(), group.repeat)
            })
            .collect();
        let missing = self.missing.iter();
        let without = missing.filter(|(case, repeat)| !kept.contains(&(case.as_str(), *repeat)));
        kept.len() + without.count()
    }

    /// Returns whether the experiment can have a verdict other than met: it has expectations, or a run failed or is
    /// invalid.
    pub fn is_to_be_judged(&self) -> bool {
        let plan = &self.head.plan;
        let is_ok = |run: &Run| matches!(run.outcome, RunOutcome::Ok);
        !plan.trends.is_empty()
            || plan.cases.iter().any(|case| !case.expect.is_empty())
            || !self
                .kept
                .iter()
                .all(|group| group.runs.last().is_some_and(is_ok))
    }

    /// Returns the number of runs that were left out because another record has them, too.
    pub fn duplicates(&self) -> usize {
        self.duplicates
    }

    /// Returns the case and repeat of each run that no record has. A spoilt run is missing until all its attempts took
    /// place.
    pub fn missing(&self) -> &[(String, u32)] {
        &self.missing
    }

    /// Returns the path of the record that should contain a missing run, if there is one.
    pub fn owner(&self, case: &str, repeat: u32) -> Option<&Path> {
        let owners = self.sources.iter().filter(|source| {
            // A merged record is never resumed.
            let shard = source.shard.as_ref();
            !source.is_merged && shard.is_none_or(|shard| shard.has(case, repeat))
        });
        let first = owners.min_by_key(|source| (source.shard.is_none(), &source.path));
        first.map(|source| source.path.as_path())
    }

    /// Returns a shard of one of the records, which tells how the runs were divided; if there are several, the first.
    pub fn shard(&self) -> Option<&Shard> {
        let mut shards = self
            .sources
            .iter()
            .filter_map(|source| source.shard.as_ref());
        let first = shards.next()?;
        Some(shards.fold(first, |a, b| {
            if (b.number.of, b.by) < (a.number.of, a.by) {
                b
            } else {
                a
            }
        }))
    }

    /// Writes the merged record into `directory`, which is created. A record that is there is replaced only if
    /// `overwrite` is set. The bytes do not depend on the order of the given records.
    ///
    /// # Errors
    /// Those of [`RecordWriter::begin`]. It also fails if `directory` is that of one of the merged records, or if one
    /// of them has changed since it was read.
    pub fn write(&self, directory: &Path, overwrite: bool) -> Result<()> {
        let target = fs::canonicalize(directory.join(FILE)).ok();
        for source in &self.sources {
            let own = fs::canonicalize(file_of(&source.path)).ok();
            require!(
                own.is_none() || own != target,
                "{}: this is one of the records to merge: choose another --out",
                directory.display()
            );
        }
        RecordWriter::put(directory, overwrite, |file| {
            self.write_lines(file, directory)
        })?;
        Ok(())
    }

    fn write_lines(&self, file: &File, directory: &Path) -> Result<()> {
        let directory = fs::canonicalize(directory)?;
        let mut to = BufWriter::with_capacity(1 << 20, file);
        to.write_all(&line(&self.head)?)?;
        for baseline in self.baselines() {
            to.write_all(&line(&RecordLine::<&Run>::Baseline(baseline))?)?;
        }
        for change in self.late_budgets() {
            to.write_all(&line(&RecordLine::<&Run>::LateBudget(change))?)?;
        }
        let mut files = Files::default();
        for group in &self.kept {
            let source = &self.sources[group.source];
            for place in &group.places {
                let mut run = files.run_at(group.source, source, *place)?;
                run.host = Some(self.host(source, run.host)?);
                rebase_paths(&mut run, &source.folder, &directory);
                to.write_all(&line(&RecordLine::Run(&run))?)?;
            }
        }
        if self.missing.is_empty() {
            to.write_all(&line(&RecordLine::<&Run>::FinishedAt(self.finished_at()))?)?;
        }
        Ok(to.flush()?)
    }

    /// Returns the number of a source's host among all hosts, from 1.
    fn host(&self, source: &Source, own: Option<usize>) -> Result<usize> {
        let facts = source.host(own)?;
        let at = self
            .head
            .hosts
            .iter()
            .position(|host| host == facts)
            .ok_or_else(|| Error::content("a host that the record does not list"))?;
        Ok(at + 1)
    }

    /// Returns the baselines of all hosts in order of time, each once.
    fn baselines(&self) -> Vec<Baseline> {
        let mut all: Vec<Baseline> = Vec::new();
        for source in &self.sources {
            for baseline in &source.baselines {
                let host = self.host(source, baseline.host).ok();
                let baseline = Baseline {
                    host,
                    ..baseline.clone()
                };
                if !all.contains(&baseline) {
                    all.push(baseline);
                }
            }
        }
        all.sort_by_cached_key(|baseline| {
            let text = serde_json::to_string(baseline).unwrap_or_default();
            (baseline.started_at.clone(), baseline.host, text)
        });
        all
    }

    /// Returns the late budgets with which records were continued, in order of time, each once.
    fn late_budgets(&self) -> Vec<LateBudgetChange> {
        let sources = self.sources.iter();
        let all = sources.flat_map(|source| &source.late_budgets);
        let mut all: Vec<_> = all
            .map(|change| LateBudgetChange {
                // Runs of other records may be between those before the change.
                after_runs: None,
                ..change.clone()
            })
            .collect();
        all.sort_by(|a, b| {
            let key = |of: &LateBudgetChange| (of.changed_at.clone(), of.late_budget.time());
            key(a).cmp(&key(b))
        });
        all.dedup();
        all
    }

    /// Returns when the last record ended, or, if none says so, when the last run began.
    fn finished_at(&self) -> String {
        let ends = self
            .sources
            .iter()
            .filter_map(|source| source.finished_at.as_ref());
        let runs = || self.kept.iter().filter_map(|group| group.runs.last());
        let last = ends
            .max()
            .or_else(|| runs().map(|run| &run.started_at).max());
        last.unwrap_or(&self.head.started_at).clone()
    }
}

impl Source {
    fn read(path: &Path) -> Result<Self> {
        let file = file_of(path);
        let read = || -> Result<Self> {
            let opened = regular_file::open(&file).map_err(|error| match error.kind() {
                ErrorKind::NotFound => Error::content(
                    "there is no record: leave it out, and merge lists its runs as missing",
                ),
                _ => error.into(),
            });
            let (mut head, mut lines) = Lines::begin(opened?)?;
            require!(
                !lines.is_upgraded(),
                "the record has an earlier version, which can be reported and compared, but not merged"
            );
            let mut source = Self {
                path: path.to_owned(),
                folder: fs::canonicalize(&file)?
                    .parent()
                    .map(Path::to_owned)
                    .unwrap_or_default(),
                is_merged: !head.hosts.is_empty(),
                shard: head.plan.shard.take(),
                head,
                baselines: Vec::new(),
                late_budgets: Vec::new(),
                finished_at: None,
                groups: Vec::new(),
            };
            let cases = source.head.plan.cases.iter().enumerate();
            let cases: HashMap<String, usize> =
                cases.map(|(at, case)| (case.name.clone(), at)).collect();
            let mut known = HashMap::new();
            let mut from = lines.whole;
            while let Some(line) = lines.next()? {
                match line {
                    RecordLine::Baseline(baseline) => {
                        source.host(baseline.host)?;
                        source.baselines.push(baseline);
                    }
                    RecordLine::Host(host) => drop(source.head.enter(host)),
                    RecordLine::LateBudget(change) => source.late_budgets.push(change),
                    RecordLine::FinishedAt(at) => source.finished_at = Some(at),
                    RecordLine::Run(run) => {
                        source.host(run.host)?;
                        let case = cases.get(&run.case).copied();
                        let case = case.ok_or_else(|| {
                            Error::content(format_args!("no case `{}`", run.case))
                        })?;
                        source.add(run, case, &mut known, (from, &lines.text))?;
                    }
                }
                from = lines.whole;
            }
            Ok(source)
        };
        read().map_err(|error| error.in_file(&file))
    }

    /// Adds a run, whose line is at `place` in the file, to the group of its case and repeat; `known` has the index of
    /// that group.
    fn add(
        &mut self,
        run: Run,
        case: usize,
        known: &mut HashMap<(usize, u32), usize>,
        (from, text): (u64, &[u8]),
    ) -> Result<()> {
        let plan = &self.head.plan;
        let of = &plan.cases[case];
        let repeat = run.repeat;
        require!(
            (1..=of.repeats.most).contains(&repeat) && plan.run(of, repeat).seed == run.seed,
            "case `{}`, repeat {repeat}, seed {}: not a run of its plan",
            of.name,
            run.seed
        );
        let at = *known.entry((case, repeat)).or_insert(self.groups.len());
        if at == self.groups.len() {
            self.groups.push(Group {
                source: 0,
                case,
                repeat,
                runs: Vec::new(),
                places: Vec::new(),
                hash: 0,
            });
        }
        let run = without_other_measurements(run, of);
        let group = &mut self.groups[at];
        group.runs.push(run);
        group.places.push((from, text.len()));
        let mut hasher = DefaultHasher::new();
        (group.hash, text).hash(&mut hasher);
        group.hash = hasher.finish();
        Ok(())
    }

    /// Returns the facts of the host with this number in a merged record, or of the only host.
    fn host(&self, own: Option<usize>) -> Result<&HostFacts> {
        match own {
            None => Ok(&self.head.host),
            Some(number) => {
                let host = self.head.hosts.get(number.wrapping_sub(1));
                let all = self.head.hosts.len();
                host.ok_or_else(|| {
                    Error::content(format_args!("host {number}: the record lists {all}"))
                })
            }
        }
    }
}

impl Group {
    /// Returns the sort key by which one group is chosen when several records have it; the least is kept. A group with
    /// all its attempts comes first, then one that is not spoilt, then the one that began first, and then, if one group
    /// is a part of the other, the longer one.
    fn rank(&self) -> impl Ord + '_ {
        let last = self.runs.last();
        let spoilt = last.filter(|run| run.is_invalid());
        let owed = spoilt.is_some_and(|run| run.attempt < MOST_ATTEMPTS);
        let longest = Reverse(self.runs.len());
        (owed, spoilt.is_some(), self.began(), longest, self.hash)
    }

    /// Returns the sort key for the order in which runs took place.
    fn place(&self) -> impl Ord + '_ {
        (self.began(), self.case, self.repeat)
    }

    fn began(&self) -> &str {
        self.runs.first().map_or("", |run| &run.started_at)
    }
}

/// Files that are read at random positions.
#[derive(Default)]
struct Files {
    open: HashMap<usize, File>,
}

impl Files {
    /// Reads the run at a position of the source with this number.
    fn run_at(&mut self, number: usize, source: &Source, place: (u64, usize)) -> Result<Run> {
        let path = file_of(&source.path);
        let mut read = || -> io::Result<RecordLine<Run>> {
            if !self.open.contains_key(&number) {
                if self.open.len() >= MOST_OPEN {
                    self.open.clear();
                }
                self.open.insert(number, regular_file::open(&path)?);
            }
            let (from, length) = place;
            let mut text = vec![0; length];
            self.open[&number].read_exact_at(&mut text, from)?;
            Ok(serde_json::from_slice(&text)?)
        };
        let changed = format_args!("{}: the record has changed meanwhile", path.display());
        match read().map_err(|error| Error::from(error).during(changed))? {
            RecordLine::Run(run) => Ok(run),
            _ => Err(Error::content(changed)),
        }
    }
}

/// Checks that two records are of the same experiment and were written by the same version of farwire.
fn check_alike(a: &Source, b: &Source) -> Result<()> {
    let at = |source: &Source| source.path.display().to_string();
    require!(
        a.head.farwire == b.head.farwire,
        "{} was written by farwire {}, {} by farwire {}: merge needs records of one version",
        at(a),
        a.head.farwire,
        at(b),
        b.head.farwire
    );
    match difference(&a.head.plan, &b.head.plan) {
        None => Ok(()),
        Some(what) => Err(Error::content(format_args!(
            "{} and {} belong to different experiments: {what}",
            at(a),
            at(b)
        ))),
    }
}

/// Describes the first difference between two plans.
fn difference(a: &Plan, b: &Plan) -> Option<String> {
    if a == b {
        return None;
    }
    if a.name != b.name {
        return Some(format!("`{}` and `{}`", a.name, b.name));
    }
    let only = |a: &Plan, b: &Plan| {
        let mut cases = a.cases.iter();
        cases
            .find(|case| b.case(&case.name).is_none())
            .map(|case| case.name.clone())
    };
    if let Some(name) = only(a, b).or_else(|| only(b, a)) {
        return Some(format!("one of them has no case `{name}`"));
    }
    let mut cases = a.cases.iter();
    Some(match cases.find(|case| b.case(&case.name) != Some(case)) {
        Some(case) => format!("case `{}` differs", case.name),
        None => {
            "seed, order, reference, trends, comparisons, late budget or --quick differ".to_owned()
        }
    })
}

/// Returns every machine once.
fn hosts(sources: &[Source]) -> Vec<HostFacts> {
    let of = |source: &Source| {
        if source.head.hosts.is_empty() {
            vec![source.head.host.clone()]
        } else {
            source.head.hosts.clone()
        }
    };
    let mut all: Vec<HostFacts> = Vec::new();
    for host in sources.iter().flat_map(of) {
        if !all.contains(&host) {
            all.push(host);
        }
    }
    all.sort_by_cached_key(|host| serde_json::to_string(host).unwrap_or_default());
    all
}

/// Returns the group that is kept for every case and repeat, and the number of those that are not.
fn keep(sources: &mut [Source]) -> (Vec<Group>, usize) {
    let mut kept: HashMap<(usize, u32), Group> = HashMap::new();
    let mut duplicates = 0;
    for (number, source) in sources.iter_mut().enumerate() {
        for mut group in source.groups.drain(..) {
            group.source = number;
            let key = (group.case, group.repeat);
            match kept.get_mut(&key) {
                None => {
                    kept.insert(key, group);
                }
                Some(other) => {
                    duplicates += 1;
                    if group.rank() < other.rank() {
                        *other = group;
                    }
                }
            }
        }
    }
    (kept.into_values().collect(), duplicates)
}

/// Returns the runs of `plan` that are not in `kept`, in the order of the plan.
fn missing(plan: &Plan, kept: &[Group]) -> Vec<(String, u32)> {
    let latest = Latest::of(kept.iter().flat_map(|group| &group.runs));
    let cases = plan.cases.iter();
    let repeats = cases.flat_map(|case| (1..=case.repeats.most).map(move |repeat| (case, repeat)));
    let missing = repeats
        .map(|(case, repeat)| plan.run(case, repeat))
        .filter(|planned| latest.lacks(planned, MOST_ATTEMPTS));
    missing
        .map(|PlannedRun { case, repeat, .. }| (case.name.clone(), repeat))
        .collect()
}

/// Returns `run` without its measurements, except for the figure that decides the number of repeats of its case.
fn without_other_measurements(run: Run, case: &Case) -> Run {
    let decides = |measured: Measured| {
        let of = &case.repeats.until.as_ref()?.of;
        let own = (measured.instrument == of.instrument).then_some(&measured.measurement);
        let figure = own.and_then(|measurement| of.find(measurement)).cloned();
        Some(Measured {
            measurement: Measurement {
                figures: figure.into_iter().collect(),
                paces: measured.measurement.paces.clone(),
                ..Measurement::default()
            },
            ..measured
        })
    };
    Run {
        environment: [].into(),
        links: Vec::new(),
        artifacts: Vec::new(),
        measurements: run.measurements.into_iter().filter_map(decides).collect(),
        ..run
    }
}

/// Makes the paths of the files of `run` relative to the directory `to` instead of `from`. Both are canonical paths.
fn rebase_paths(run: &mut Run, from: &Path, to: &Path) {
    let captures = run.links.iter_mut().filter_map(|link| {
        let capture = link.summary.capture.as_mut()?;
        capture.file.as_mut()
    });
    let artifacts = run.artifacts.iter_mut().map(|artifact| &mut artifact.file);
    for file in captures.chain(artifacts) {
        let whole = from.join(&*file);
        // In a merged record, the path goes up and down again.
        let whole = fs::canonicalize(&whole).unwrap_or(whole);
        *file = pathdiff::diff_paths(&whole, to).unwrap_or(whole);
    }
}

#[cfg(test)]
mod tests;
