//! What a submit keeps on the file system that all nodes share, and what the shards have put there.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::nodes::NODES;
use super::paths::{self, write_whole};
use crate::experiment::sharding::Size;
use crate::notes::note;
use instruments::failure::{Blame, Failure};
use record::output_directory::OutputDirectory;
use record::{MOST_ATTEMPTS, Record};

const STATE: &str = "submit.json";
/// Locked while a submit has the directory.
pub(super) const LOCK: &str = "submit.lock";
/// There while a submit is cancelled.
pub(super) const CANCELLED: &str = "cancelled";
/// The scenario as it was when it was submitted.
pub(super) const SCENARIO: &str = "scenario.toml";
/// What tasks print, a file a pass and shard.
pub(super) const LOG: &str = "log";
/// The records, a folder a shard and pass.
pub(super) const SHARDS: &str = "shards";

/// What a directory is of; a submit that goes on asks for the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SubmissionKey {
    /// "farwire 0.1.0".
    pub(crate) farwire: String,
    /// The experiment's name.
    pub(crate) name: String,
    /// The whole path of its file.
    pub(crate) scenario: PathBuf,
    /// Its text.
    pub(crate) text: String,
    /// Those of `farwire run` that make the plan and run it: "--quick".
    pub(crate) options: Vec<String>,
    /// Those that also `farwire run --resume` takes.
    pub(crate) also_resumed: Vec<String>,
}

impl SubmissionKey {
    /// The options that name folders, without links: whoever comes by another one names the same.
    fn folders(&self) -> Vec<String> {
        let real = |option: &String| {
            let (name, folder) = option.split_once('=')?;
            let folder = Path::new(folder).canonicalize().ok()?;
            Some(format!("{name}={}", folder.display()))
        };
        let options = self.also_resumed.iter();
        options
            .map(|option| real(option).unwrap_or_else(|| option.clone()))
            .collect()
    }
}

/// `submit.json`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SubmissionState {
    pub(super) asked: SubmissionKey,
    /// Drawn once, for the names of its jobs.
    pub(super) id: String,
    /// What each shard comes to, the first of them the first.
    pub(super) shards: Vec<Size>,
    pub(super) passes: Vec<Pass>,
}

/// An array of tasks, one a shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pass {
    /// From 1.
    pub(super) number: u32,
    /// Which shards, ascending.
    pub(super) shards: Vec<u32>,
    /// The partition whose nodes it was handed in for; nothing where Slurm alone knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) partition: Option<String>,
    /// Whether `--cancel` ended it: nothing of it is waited for.
    #[serde(default)]
    pub(super) cancelled: bool,
}

/// A directory that this process alone submits.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) path: PathBuf,
    pub(super) state: SubmissionState,
    found: BTreeMap<u32, ShardRecord>,
    /// Locked while it is open.
    _lock: File,
}

/// What there is of a shard.
#[derive(Clone, Debug, Default)]
pub(super) struct ShardRecord {
    /// The directory of its record.
    pub(super) path: PathBuf,
    pub(super) complete: bool,
    /// With every attempt.
    pub(super) runs: usize,
    /// Runs that need no more attempts, and those that are to come as far as is known.
    pub(super) done: usize,
    pub(super) missing: usize,
    /// From its begin to its end by its host's clock, where it was done in one go.
    pub(super) took: Option<Duration>,
}

impl Directory {
    /// The directory `path`, which is made; `parted` says into which shards the experiment of a new one is parted.
    ///
    /// # Errors
    /// Another submit has it, or it is of something else.
    pub(super) fn open(
        path: &Path,
        asked: &SubmissionKey,
        parted: impl FnOnce() -> Result<Vec<Size>, Failure>,
    ) -> Result<Self, Failure> {
        let state = path.join(STATE);
        if !state.exists() && Record::is_in(path) {
            return Err(Failure::bad_input(format_args!(
                "{} contains a record that does not come from a submit: choose another --out",
                path.display()
            )));
        }
        for part in [LOG, NODES, SHARDS] {
            let part = path.join(part);
            fs::create_dir_all(&part)
                .with_context(|| format!("{}: cannot create", part.display()))
                .or_bad_input()?;
        }
        let path = paths::absolute(path)?;
        let lock = lock(&path.join(LOCK))?;
        let mut state = match path.join(STATE).exists() {
            true => {
                let state = SubmissionState::read(&path).or_bad_input()?;
                state.check(asked, &path).or_bad_input()?;
                state
            }
            false => SubmissionState {
                asked: asked.clone(),
                id: format!("{:08x}", fastrand::u32(..)),
                shards: parted()?,
                passes: Vec::new(),
            },
        };
        let mark = path.join(CANCELLED);
        let was_cancelled = mark.exists();
        if let Some(last) = state.passes.last_mut() {
            last.cancelled |= was_cancelled;
        }
        // A task that begins meanwhile compares it with what it runs.
        let scenario = path.join(SCENARIO);
        let is_there = fs::read(&scenario).is_ok_and(|text| text == state.asked.text.as_bytes());
        if !is_there {
            write_whole(&scenario, state.asked.text.as_bytes())?;
        }
        let mut directory = Self {
            path,
            state,
            found: BTreeMap::new(),
            _lock: lock,
        };
        directory.state.keep(&directory.path)?;
        if was_cancelled {
            fs::remove_file(&mark).with_context(|| format!("{}: cannot remove", mark.display()))?;
        }
        directory.look();
        Ok(directory)
    }

    /// The pass over these shards that comes after the last one.
    pub(super) fn next_pass(&self, shards: Vec<u32>) -> Pass {
        Pass {
            number: self.state.passes.last().map_or(0, |pass| pass.number) + 1,
            shards,
            cancelled: false,
            partition: None,
        }
    }

    /// Begins a pass: each shard goes on with a copy of what an earlier one left, because a task of that one may be alive on a node
    /// that nobody hears of. Kept before Slurm hears of it.
    pub(super) fn begin(&mut self, pass: &Pass) -> Result<()> {
        for shard in &pass.shards {
            if let Some(found) = self.found.get(shard) {
                let to = shard_directory(&self.path, *shard, pass.number);
                copy(&found.path, &to)
                    .with_context(|| format!("{}: cannot write", to.display()))?;
            }
        }
        self.state.passes.push(pass.clone());
        self.state.keep(&self.path)
    }

    /// Takes back a pass of which Slurm has nothing: as if it had never begun.
    pub(super) fn take_back(&mut self, pass: &Pass) -> Result<()> {
        self.state.passes.retain(|kept| kept != pass);
        self.state.keep(&self.path)
    }

    /// Keeps the script of a pass, for Slurm and for who wants to know.
    pub(super) fn keep_script(&self, pass: &Pass, script: &str) -> Result<PathBuf> {
        let file = self.path.join(LOG).join(format!("{}.sh", pass.number));
        write_whole(&file, script.as_bytes())?;
        Ok(file)
    }

    /// Looks at all records; a measure of how far they are, that grows with every shard and run.
    pub(super) fn look(&mut self) -> (usize, usize) {
        self.found = self.state.found(&self.path, &lay_aside);
        self.progress()
    }

    /// How many shards are complete, and how many runs there are, as of the last look.
    pub(super) fn progress(&self) -> (usize, usize) {
        let complete = self.found.values().filter(|found| found.complete).count();
        (complete, self.found.values().map(|found| found.runs).sum())
    }

    /// The shards that are not complete.
    pub(super) fn missing(&self) -> Vec<u32> {
        missing(self.state.count(), &self.found)
    }

    /// The records of all shards, the best of each.
    pub(super) fn records(&self) -> Vec<PathBuf> {
        self.found
            .values()
            .map(|found| found.path.clone())
            .collect()
    }

    /// Whether `--cancel` was said meanwhile.
    pub(super) fn is_cancelled(&self) -> bool {
        self.path.join(CANCELLED).exists()
    }
}

impl SubmissionState {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let file = path.join(STATE);
        let read = || -> Result<Self> { Ok(serde_json::from_slice(&fs::read(&file)?)?) };
        read().with_context(|| format!("{}: not the directory of a submit", file.display()))
    }

    /// Writes it down.
    fn keep(&self, path: &Path) -> Result<()> {
        write_whole(&path.join(STATE), &serde_json::to_vec_pretty(self)?)
    }

    fn check(&self, asked: &SubmissionKey, path: &Path) -> Result<()> {
        let (own, at) = (&self.asked, path.display());
        ensure!(
            own.farwire == asked.farwire,
            "{at} was started by {}, and this is {}: continue with that version, or choose another --out",
            own.farwire,
            asked.farwire
        );
        ensure!(
            paths::are_one(&own.scenario, &asked.scenario),
            "{at} belongs to {}, not to {}: choose another --out",
            own.scenario.display(),
            asked.scenario.display()
        );
        ensure!(
            own.text == asked.text,
            "{} has changed since it was submitted into {at} (which keeps the old one as {SCENARIO}): choose another --out",
            own.scenario.display()
        );
        let words = |asked: &SubmissionKey| match asked.options.is_empty() {
            true => "no options".to_owned(),
            false => asked.options.join(" "),
        };
        ensure!(
            own.options == asked.options && own.folders() == asked.folders(),
            "{at} was started with {}, not with {}: choose another --out",
            words(own),
            words(asked)
        );
        Ok(())
    }

    /// How many shards there are.
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.shards.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn job_name(&self, pass: &Pass) -> String {
        job_name(&self.asked.name, &self.id, pass)
    }

    /// What the passes left of each shard: a complete record, or the longest that can be read; what cannot is `damaged`.
    pub(super) fn found(
        &self,
        path: &Path,
        damaged: &dyn Fn(&Path, anyhow::Error),
    ) -> BTreeMap<u32, ShardRecord> {
        let shards = 1..=self.count();
        let found = shards.filter_map(|shard| {
            let passes = self.passes.iter().rev();
            let passes = passes.filter(|pass| pass.shards.binary_search(&shard).is_ok());
            let first = passes.clone().next_back()?.number;
            let all = passes.filter_map(|pass| {
                let directory = shard_directory(path, shard, pass.number);
                let found = ShardRecord::of(&directory, pass.number == first);
                found.unwrap_or_else(|error| {
                    damaged(&directory, error);
                    None
                })
            });
            let best = all.max_by_key(|found| (found.complete, found.runs))?;
            Some((shard, best))
        });
        found.collect()
    }
}

impl ShardRecord {
    /// The record in `path`, if there is one; `first`: no pass before left something of it.
    fn of(path: &Path, first: bool) -> Result<Option<Self>> {
        if !Record::is_in(path) {
            return Ok(None);
        }
        let record = Record::read(path)?;
        let (done, missing) = runs(&record);
        Ok(Some(Self {
            path: path.to_owned(),
            complete: record.finished_at.is_some(),
            runs: record.runs.len(),
            done,
            missing,
            took: took(&record).filter(|_| first),
        }))
    }
}

/// How many runs a shard has done, and how many it is to do.
fn runs(record: &Record) -> (usize, usize) {
    let (plan, latest) = (record.plan(), record.latest());
    let (mut done, mut missing) = (0, 0);
    for (case, repeats) in plan.shard.iter().flat_map(|shard| &shard.runs) {
        let Some(case) = plan.case(case) else {
            continue;
        };
        for &repeat in repeats {
            if latest.lacks(&plan.run(case, repeat), MOST_ATTEMPTS) {
                missing += 1;
            } else {
                done += usize::from(latest.run(&case.name, repeat).is_some());
            }
        }
    }
    (done, missing)
}

/// How long a complete record took.
fn took(record: &Record) -> Option<Duration> {
    let end: Timestamp = record.finished_at.as_ref()?.parse().ok()?;
    let begin: Timestamp = record.head.started_at.parse().ok()?;
    end.duration_since(begin).try_into().ok()
}

/// Takes a record that cannot be read out of the way of its shard, which is done again, and says so.
fn lay_aside(path: &Path, error: anyhow::Error) {
    let aside = path.with_extension("damaged");
    let whither = match fs::rename(path, &aside) {
        Ok(()) => format!("it was renamed to {}", aside.display()),
        Err(why) => format!("it cannot be renamed: {why}"),
    };
    note(format_args!("{error:#}; its shard runs again; {whither}"));
}

/// What Slurm calls a pass's job: "farwire-small-0a1b2c3d-1".
pub(super) fn job_name(name: &str, id: &str, pass: &Pass) -> String {
    let plain = |c: char| match c.is_ascii_alphanumeric() {
        true => c,
        false => '-',
    };
    let name: String = name.chars().map(plain).collect();
    format!("farwire-{name}-{id}-{}", pass.number)
}

/// Where a shard's record of a pass goes.
pub(super) fn shard_directory(path: &Path, shard: u32, pass: u32) -> PathBuf {
    let shard = path.join(SHARDS).join(shard.to_string());
    shard.join(format!("pass-{pass}"))
}

/// What a task of a pass prints.
pub(super) fn log(path: &Path, shard: u32, pass: u32) -> PathBuf {
    path.join(LOG).join(format!("{pass}-{shard}.txt"))
}

pub(super) fn missing(shards: u32, found: &BTreeMap<u32, ShardRecord>) -> Vec<u32> {
    let is_complete = |shard: &u32| found.get(shard).is_some_and(|found| found.complete);
    (1..=shards).filter(|shard| !is_complete(shard)).collect()
}

/// The lock that a submit holds, which ends with it, however it ends.
fn lock(file: &Path) -> Result<File, Failure> {
    let opened = OutputDirectory::of(file).and_then(|(within, name)| within.read_write(name));
    let mut lock = opened
        .with_context(|| format!("{}: cannot write", file.display()))
        .or_bad_input()?;
    if let Err(TryLockError::WouldBlock) = lock.try_lock() {
        let mut holder = String::new();
        lock.read_to_string(&mut holder)?;
        return Err(Failure::bad_input(format_args!(
            "another submit uses {}: {}",
            file.with_file_name("").display(),
            holder.trim()
        )));
    }
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let holder = format!("process {} on {}\n", std::process::id(), host.trim());
    lock.set_len(0)?;
    lock.rewind()?;
    lock.write_all(holder.as_bytes())?;
    Ok(lock)
}

/// Copies a folder with all that it holds, whole or not at all.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let partial = to.with_extension("partial");
    // What a pass left that never began, or was taken back.
    for left in [to, &partial] {
        let _ = fs::remove_dir_all(left);
    }
    fs::create_dir_all(&partial)?;
    let mut folders = vec![(from.to_owned(), partial.clone())];
    while let Some((from, to)) = folders.pop() {
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let to = to.join(entry.file_name());
            match entry.file_type()?.is_dir() {
                true => {
                    fs::create_dir(&to)?;
                    folders.push((entry.path(), to));
                }
                false => match fs::copy(entry.path(), to) {
                    // A task that is ending has taken it away meanwhile.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    copied => drop(copied?),
                },
            }
        }
    }
    Ok(fs::rename(partial, to)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_lock_that_is_a_link_to_another_file_is_refused_and_that_file_stays() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("mine"), "content").unwrap();
        symlink(at("mine"), at(LOCK)).unwrap();
        let refused = lock(&at(LOCK)).unwrap_err();
        assert!(refused.to_string().contains(LOCK), "{refused}");
        assert_eq!(fs::read_to_string(at("mine")).unwrap(), "content");
    }

    #[test]
    fn a_submit_goes_on_by_whatever_link_one_comes_and_its_paths_keep_them() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir_all(at("export/home/me")).unwrap();
        symlink(at("export/home"), at("home")).unwrap();
        fs::write(at("home/me/x.toml"), "x").unwrap();
        let asked = |home: &str| SubmissionKey {
            farwire: "farwire 0.1.0".to_owned(),
            name: "x".to_owned(),
            scenario: at(home).join("me/x.toml"),
            text: "x".to_owned(),
            options: Vec::new(),
            also_resumed: vec![format!("--allow-files={}", at(home).join("me").display())],
        };
        let size = Size {
            runs: 1,
            time_s: 1.0,
        };
        let open = |home: &str, asked: &SubmissionKey| {
            let opened = Directory::open(&at(home).join("me/out"), asked, || Ok(vec![size]));
            opened.map(|directory| directory.path.clone())
        };
        let first = open("home", &asked("home")).unwrap();
        assert_eq!(first, at("home/me/out"));
        let state = SubmissionState::read(&first).unwrap();
        assert_eq!(state.asked.scenario, at("home/me/x.toml"));
        let again = open("export/home", &asked("export/home")).unwrap();
        assert_eq!(again, at("export/home/me/out"));
        fs::write(at("home/me/y.toml"), "x").unwrap();
        let another = SubmissionKey {
            scenario: at("home/me/y.toml"),
            ..asked("home")
        };
        let refused = open("home", &another).unwrap_err();
        assert_eq!(refused.code(), 2);
        assert!(refused.to_string().contains("choose another --out"));
        // By two names it is one directory, which one submit has.
        let _held = Directory::open(&first, &asked("home"), || Ok(Vec::new())).unwrap();
        let refused = open("export/home", &asked("home")).unwrap_err();
        assert!(refused.to_string().contains("another submit uses"));
    }
}
