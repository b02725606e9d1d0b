//! The state of a submit on the file system that all nodes share, and the records of the shards.

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
use crate::experiment::sharding::ShardSize;
use crate::notes::note;
use instruments::failure::{Blame, Failure};
use record::output_directory::OutputDirectory;
use record::{MOST_ATTEMPTS, Record};

const STATE: &str = "submit.json";
/// The file that is locked while a submit uses the directory.
pub(super) const LOCK: &str = "submit.lock";
/// The file that exists while a submit is being cancelled.
pub(super) const CANCELLED: &str = "cancelled";
/// The copy of the scenario at the time of the submission.
pub(super) const SCENARIO: &str = "scenario.toml";
/// The directory of the tasks' output, with one file per pass and shard.
pub(super) const LOG: &str = "log";
/// The directory of the records, with one directory per shard and pass.
pub(super) const SHARDS: &str = "shards";

/// The identity of a submission. A submit that continues must have the same one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SubmissionKey {
    /// The version, as in "farwire 0.1.0".
    pub(crate) farwire: String,
    /// The name of the experiment.
    pub(crate) name: String,
    /// The absolute path of the scenario file.
    pub(crate) scenario: PathBuf,
    /// The text of the scenario file.
    pub(crate) text: String,
    /// The options of `farwire run` that affect the plan, such as "--quick".
    pub(crate) options: Vec<String>,
    /// The options that `farwire run --resume` takes as well.
    pub(crate) also_resumed: Vec<String>,
}

impl SubmissionKey {
    /// Returns the options that name directories, with symbolic links resolved, so that different
    /// paths to one directory are equal.
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

/// The content of `submit.json`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SubmissionState {
    pub(super) asked: SubmissionKey,
    /// A random identifier in the names of the jobs.
    pub(super) id: String,
    /// The size of each shard, in the order of the shards.
    pub(super) shards: Vec<ShardSize>,
    pub(super) passes: Vec<Pass>,
}

/// An array of tasks with one task per shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pass {
    /// The number of the pass, from 1.
    pub(super) number: u32,
    /// The shards of the pass in ascending order.
    pub(super) shards: Vec<u32>,
    /// The partition of the pass; `None` if Slurm chooses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) partition: Option<String>,
    /// True if `--cancel` ended the pass, so that no task of it is waited for.
    #[serde(default)]
    pub(super) cancelled: bool,
}

/// A directory that only this process submits.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) path: PathBuf,
    pub(super) state: SubmissionState,
    found: BTreeMap<u32, ShardRecord>,
    /// The lock, which is held while the file is open.
    _lock: File,
}

/// The record of a shard.
#[derive(Clone, Debug, Default)]
pub(super) struct ShardRecord {
    /// The directory of the record.
    pub(super) path: PathBuf,
    pub(super) complete: bool,
    /// The number of runs, including every attempt.
    pub(super) runs: usize,
    /// The number of runs that need no more attempts, and the number of runs known to be missing.
    pub(super) done: usize,
    pub(super) missing: usize,
    /// The time from start to end by the host's clock, if the shard was done without interruption.
    pub(super) took: Option<Duration>,
}

impl Directory {
    /// Opens or creates the directory `path`. `shard_sizes` returns the shards of a new submission.
    ///
    /// # Errors
    /// Fails if another submit uses the directory or if it belongs to something else.
    pub(super) fn open(
        path: &Path,
        key: &SubmissionKey,
        shard_sizes: impl FnOnce() -> Result<Vec<ShardSize>, Failure>,
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
        let mut state = if path.join(STATE).exists() {
            let state = SubmissionState::read(&path).or_bad_input()?;
            state.check(key, &path).or_bad_input()?;
            state
        } else {
            SubmissionState {
                asked: key.clone(),
                id: format!("{:08x}", fastrand::u32(..)),
                shards: shard_sizes()?,
                passes: Vec::new(),
            }
        };
        let mark = path.join(CANCELLED);
        let was_cancelled = mark.exists();
        if let Some(last) = state.passes.last_mut() {
            last.cancelled |= was_cancelled;
        }
        // A starting task compares this copy with the scenario that it runs.
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
        directory.state.save(&directory.path)?;
        if was_cancelled {
            fs::remove_file(&mark).with_context(|| format!("{}: cannot remove", mark.display()))?;
        }
        directory.read_records();
        Ok(directory)
    }

    /// Returns the next pass, over these shards.
    pub(super) fn next_pass(&self, shards: Vec<u32>) -> Pass {
        Pass {
            number: self.state.passes.last().map_or(0, |pass| pass.number) + 1,
            shards,
            cancelled: false,
            partition: None,
        }
    }

    /// Starts a pass. Each shard continues with a copy of its last record, because a task of an
    /// earlier pass may still run on an unreachable node. The pass is saved before Slurm receives
    /// it.
    pub(super) fn begin(&mut self, pass: &Pass) -> Result<()> {
        for shard in &pass.shards {
            if let Some(found) = self.found.get(shard) {
                let to = shard_directory(&self.path, *shard, pass.number);
                copy(&found.path, &to)
                    .with_context(|| format!("{}: cannot write", to.display()))?;
            }
        }
        self.state.passes.push(pass.clone());
        self.state.save(&self.path)
    }

    /// Removes a pass that Slurm does not have, as if it had never begun.
    pub(super) fn remove(&mut self, pass: &Pass) -> Result<()> {
        self.state.passes.retain(|kept| kept != pass);
        self.state.save(&self.path)
    }

    /// Saves the script of a pass, for Slurm and for the user.
    pub(super) fn save_script(&self, pass: &Pass, script: &str) -> Result<PathBuf> {
        let file = self.path.join(LOG).join(format!("{}.sh", pass.number));
        write_whole(&file, script.as_bytes())?;
        Ok(file)
    }

    /// Reads all records. Returns a measure of progress that increases with every shard and run.
    pub(super) fn read_records(&mut self) -> (usize, usize) {
        self.found = self.state.found(&self.path, &set_aside);
        self.progress()
    }

    /// Returns the numbers of complete shards and of runs, as of the last read.
    pub(super) fn progress(&self) -> (usize, usize) {
        let complete = self.found.values().filter(|found| found.complete).count();
        (complete, self.found.values().map(|found| found.runs).sum())
    }

    /// Returns the shards that are not complete.
    pub(super) fn missing(&self) -> Vec<u32> {
        missing(self.state.count(), &self.found)
    }

    /// Returns the best record of each shard.
    pub(super) fn records(&self) -> Vec<PathBuf> {
        self.found
            .values()
            .map(|found| found.path.clone())
            .collect()
    }

    /// Returns true if `--cancel` was requested meanwhile.
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

    /// Saves the state.
    fn save(&self, path: &Path) -> Result<()> {
        write_whole(&path.join(STATE), &serde_json::to_vec_pretty(self)?)
    }

    fn check(&self, key: &SubmissionKey, path: &Path) -> Result<()> {
        let (own, at) = (&self.asked, path.display());
        ensure!(
            own.farwire == key.farwire,
            "{at} was started by {}, and this is {}: continue with that version, or choose another --out",
            own.farwire,
            key.farwire
        );
        ensure!(
            paths::are_same(&own.scenario, &key.scenario),
            "{at} belongs to {}, not to {}: choose another --out",
            own.scenario.display(),
            key.scenario.display()
        );
        ensure!(
            own.text == key.text,
            "{} has changed since it was submitted into {at} (which keeps the old one as {SCENARIO}): choose another --out",
            own.scenario.display()
        );
        let words = |key: &SubmissionKey| {
            if key.options.is_empty() {
                "no options".to_owned()
            } else {
                key.options.join(" ")
            }
        };
        ensure!(
            own.options == key.options && own.folders() == key.folders(),
            "{at} was started with {}, not with {}: choose another --out",
            words(own),
            words(key)
        );
        Ok(())
    }

    /// Returns the number of shards.
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.shards.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn job_name(&self, pass: &Pass) -> String {
        job_name(&self.asked.name, &self.id, pass)
    }

    /// Returns the best record that the passes left of each shard: a complete one, or otherwise the
    /// longest that can be read. `damaged` is called for records that cannot be read.
    pub(super) fn found(
        &self,
        path: &Path,
        damaged: &dyn Fn(&Path, anyhow::Error),
    ) -> BTreeMap<u32, ShardRecord> {
        let shards = 1..=self.count();
        let found = shards.filter_map(|shard| {
            let passes = self
                .passes
                .iter()
                .rev()
                .filter(|pass| pass.shards.binary_search(&shard).is_ok());
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
    /// Reads the record in `path`, if there is one. `first` says that no earlier pass left a
    /// record.
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

/// Returns the numbers of completed and of missing runs of a shard.
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

/// Returns the time that a complete record took.
fn took(record: &Record) -> Option<Duration> {
    let end: Timestamp = record.finished_at.as_ref()?.parse().ok()?;
    let begin: Timestamp = record.head.started_at.parse().ok()?;
    end.duration_since(begin).try_into().ok()
}

/// Moves a damaged record away, so that its shard is done again, and prints a note.
fn set_aside(path: &Path, error: anyhow::Error) {
    let aside = path.with_extension("damaged");
    let place = match fs::rename(path, &aside) {
        Ok(()) => format!("it was renamed to {}", aside.display()),
        Err(why) => format!("it cannot be renamed: {why}"),
    };
    note(format_args!("{error:#}; its shard runs again; {place}"));
}

/// Returns the name of a pass's job in Slurm: "farwire-small-0a1b2c3d-1".
pub(super) fn job_name(name: &str, id: &str, pass: &Pass) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name: String = name.chars().map(plain).collect();
    format!("farwire-{name}-{id}-{}", pass.number)
}

/// Returns the directory of a shard's record in a pass.
pub(super) fn shard_directory(path: &Path, shard: u32, pass: u32) -> PathBuf {
    let shard = path.join(SHARDS).join(shard.to_string());
    shard.join(format!("pass-{pass}"))
}

/// Returns the file with the output of a pass's task.
pub(super) fn log(path: &Path, shard: u32, pass: u32) -> PathBuf {
    path.join(LOG).join(format!("{pass}-{shard}.txt"))
}

pub(super) fn missing(shards: u32, found: &BTreeMap<u32, ShardRecord>) -> Vec<u32> {
    let is_complete = |shard: &u32| found.get(shard).is_some_and(|found| found.complete);
    (1..=shards).filter(|shard| !is_complete(shard)).collect()
}

/// Takes the lock of a submit, which ends with the process in every case.
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

/// Copies a directory with all its content, completely or not at all.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let partial = to.with_extension("partial");
    // Remove what was left by a pass that never began or was taken back.
    for left in [to, &partial] {
        let _ = fs::remove_dir_all(left);
    }
    fs::create_dir_all(&partial)?;
    let mut folders = vec![(from.to_owned(), partial.clone())];
    while let Some((from, to)) = folders.pop() {
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let to = to.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                fs::create_dir(&to)?;
                folders.push((entry.path(), to));
            } else {
                match fs::copy(entry.path(), to) {
                    // A task that is ending has removed the file meanwhile.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    copied => drop(copied?),
                }
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
    fn a_submit_continues_through_any_link_and_its_paths_keep_links() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir_all(at("export/home/me")).unwrap();
        symlink(at("export/home"), at("home")).unwrap();
        fs::write(at("home/me/x.toml"), "x").unwrap();
        let key_for = |home: &str| SubmissionKey {
            farwire: "farwire 0.1.0".to_owned(),
            name: "x".to_owned(),
            scenario: at(home).join("me/x.toml"),
            text: "x".to_owned(),
            options: Vec::new(),
            also_resumed: vec![format!("--allow-files={}", at(home).join("me").display())],
        };
        let size = ShardSize {
            runs: 1,
            time_s: 1.0,
        };
        let open = |home: &str, key: &SubmissionKey| {
            let opened = Directory::open(&at(home).join("me/out"), key, || Ok(vec![size]));
            opened.map(|directory| directory.path.clone())
        };
        let first = open("home", &key_for("home")).unwrap();
        assert_eq!(first, at("home/me/out"));
        let state = SubmissionState::read(&first).unwrap();
        assert_eq!(state.asked.scenario, at("home/me/x.toml"));
        let again = open("export/home", &key_for("export/home")).unwrap();
        assert_eq!(again, at("export/home/me/out"));
        fs::write(at("home/me/y.toml"), "x").unwrap();
        let another = SubmissionKey {
            scenario: at("home/me/y.toml"),
            ..key_for("home")
        };
        let refused = open("home", &another).unwrap_err();
        assert_eq!(refused.code(), 2);
        assert!(refused.to_string().contains("choose another --out"));
        // Both names lead to one directory, which only one submit can use.
        let _held = Directory::open(&first, &key_for("home"), || Ok(Vec::new())).unwrap();
        let refused = open("export/home", &key_for("home")).unwrap_err();
        assert!(refused.to_string().contains("another submit uses"));
    }
}
