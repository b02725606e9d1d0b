//! The status of a submit: the records of the shards in the directory, and Slurm's state of the
//! others.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::shared_directory::{self, ShardRecord, SubmissionState};
use super::slurm::{Slurm, Task};
use super::{array, nodes};
use crate::experiment::sharding::ShardSize;
use crate::notes::note;
use crate::progress::human;
use instruments::failure::{Blame, Failure};
use netio::stop::Stop;
use record::quantity::counted;

/// The progress of a submit.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct SubmissionStatus {
    /// The name of the experiment.
    name: String,
    /// The scenario file.
    scenario: String,
    shards_complete: usize,
    runs_done: usize,
    /// The number of missing runs, as far as it is known. If the scatter of a case's first runs
    /// decides, more may follow.
    runs_missing: usize,
    /// The estimated remaining time with the current number of running tasks; `None` if none is
    /// running.
    left_s: Option<f64>,
    shards: Vec<ShardStatus>,
    left_out: Vec<ExcludedNode>,
}

/// The progress of a shard.
#[derive(Debug, PartialEq, Serialize)]
struct ShardStatus {
    number: u32,
    state: ShardState,
    runs_done: usize,
    runs_missing: usize,
    /// The node on which the shard runs.
    node: Option<String>,
    /// The state and reason in Slurm's words if the shard does not run: "PENDING, Priority".
    waits: Option<String>,
}

/// The state of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum ShardState {
    Complete,
    Running,
    /// Slurm has the shard.
    Waiting,
    /// The next array will contain the shard.
    Missing,
}

/// A node that cannot run tasks.
#[derive(Debug, PartialEq, Serialize)]
struct ExcludedNode {
    node: String,
    cause: String,
}

impl SubmissionStatus {
    /// Reads the status of the submit in `path`.
    ///
    /// # Errors
    /// Fails if the directory does not belong to a submit or if Slurm is not available.
    pub(crate) fn of(path: &Path) -> Result<Self, Failure> {
        let state = SubmissionState::read(path).or_bad_input()?;
        let found = state.found(path, &|_, error| note(format_args!("{error:#}")));
        let missing = shared_directory::missing(state.count(), &found);
        let tasks = match state.passes.last().filter(|_| !missing.is_empty()) {
            Some(pass) => Slurm::find(&Stop::default())?.tasks(&state.job_name(pass))?,
            None => Vec::new(),
        };
        let left_out = nodes::excluded(path)
            .into_iter()
            .map(|(node, cause)| ExcludedNode { node, cause });
        let shards: Vec<ShardStatus> = (1..)
            .zip(&state.shards)
            .map(|(number, size)| {
                let task = tasks.iter().find(|task| task.shard == number);
                ShardStatus::of(number, size, found.get(&number), task)
            })
            .collect();
        let sum = |of: fn(&ShardStatus) -> usize| shards.iter().map(of).sum();
        Ok(Self {
            name: state.asked.name,
            scenario: state.asked.scenario.display().to_string(),
            shards_complete: shards.len() - missing.len(),
            runs_done: sum(|shard| shard.runs_done),
            runs_missing: sum(|shard| shard.runs_missing),
            left_s: left_s(&shards, &state.shards, &found),
            shards,
            left_out: left_out.collect(),
        })
    }
}

impl ShardStatus {
    fn of(number: u32, size: &ShardSize, found: Option<&ShardRecord>, task: Option<&Task>) -> Self {
        let is_complete = found.is_some_and(|found| found.complete);
        let task = task.filter(|task| !is_complete && !task.has_ended());
        let (runs_done, runs_missing) =
            found.map_or((0, size.runs), |found| (found.done, found.missing));
        Self {
            number,
            state: match task {
                _ if is_complete => ShardState::Complete,
                None => ShardState::Missing,
                Some(task) if task.runs() => ShardState::Running,
                Some(_) => ShardState::Waiting,
            },
            runs_done,
            runs_missing,
            node: task
                .filter(|task| task.runs())
                .map(|task| task.node.clone()),
            waits: task
                .filter(|task| !task.runs())
                .map(|task| format!("{}, {}", task.state, task.reason)),
        }
    }

    /// Describes the state for people; shards with the same description are listed together.
    fn words(&self) -> Option<String> {
        match self.state {
            ShardState::Complete => None,
            ShardState::Missing => Some("missing".to_owned()),
            ShardState::Running => {
                Some(format!("running on {}", self.node.as_deref().unwrap_or("")))
            }
            ShardState::Waiting => self.waits.clone(),
        }
    }
}

/// Estimates the remaining time of the shards that run in parallel, from their planned times and
/// from the delay of the completed shards.
fn left_s(
    shards: &[ShardStatus],
    sizes: &[ShardSize],
    found: &BTreeMap<u32, ShardRecord>,
) -> Option<f64> {
    let is = |state: ShardState| move |shard: &&ShardStatus| shard.state == state;
    if shards.iter().all(|shard| is(ShardState::Complete)(&shard)) {
        return Some(0.0);
    }
    let running = shards.iter().filter(is(ShardState::Running)).count();
    let (mut took_s, mut planned_s, mut left_s) = (0.0, 0.0, 0.0);
    for (shard, size) in shards.iter().zip(sizes) {
        let took = found.get(&shard.number).and_then(|found| found.took);
        match (shard.state, took) {
            (ShardState::Complete, Some(took)) => {
                took_s += took.as_secs_f64();
                planned_s += size.time_s;
            }
            (ShardState::Complete, None) => {}
            _ => {
                let all = (shard.runs_done + shard.runs_missing).max(1);
                left_s += size.time_s * shard.runs_missing as f64 / all as f64;
            }
        }
    }
    let slower = if planned_s > 0.0 {
        took_s / planned_s
    } else {
        1.0
    };
    (running > 0).then(|| left_s * slower / running as f64)
}

impl fmt::Display for SubmissionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shards = counted(self.shards.len(), "shard");
        writeln!(
            f,
            "{}: {} of {shards} complete",
            self.name, self.shards_complete
        )?;
        let runs = counted(self.runs_done + self.runs_missing, "run");
        write!(f, "{} of {runs} done", self.runs_done)?;
        match self.left_s.filter(|_| self.runs_missing > 0) {
            Some(left_s) => {
                let left = Duration::try_from_secs_f64(left_s).unwrap_or(Duration::MAX);
                writeln!(f, ", about {} left", human(left))?;
            }
            None => writeln!(f)?,
        }
        let mut by_state: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for shard in &self.shards {
            if let Some(words) = shard.words() {
                by_state.entry(words).or_default().push(shard.number);
            }
        }
        for (what, shards) in by_state {
            writeln!(f, "{what}: {}", array::list(&shards))?;
        }
        for ExcludedNode { node, cause } in &self.left_out {
            writeln!(f, "node {node} is left out: {cause}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [ShardSize; 4] = [ShardSize {
        runs: 10,
        time_s: 100.0,
    }; 4];

    fn found(done: usize, took: Option<u64>) -> ShardRecord {
        ShardRecord {
            complete: done == 10,
            done,
            missing: 10 - done,
            took: took.map(Duration::from_secs),
            ..ShardRecord::default()
        }
    }

    fn task(shard: u32, state: &str) -> Task {
        Task {
            job: 1,
            shard,
            state: state.to_owned(),
            node: "node1".to_owned(),
            reason: "None".to_owned(),
        }
    }

    fn shards(found: &BTreeMap<u32, ShardRecord>, tasks: &[Task]) -> Vec<ShardStatus> {
        let numbered = (1..).zip(&SIZES);
        let shards = numbered.map(|(number, size)| {
            let task = tasks.iter().find(|task| task.shard == number);
            ShardStatus::of(number, size, found.get(&number), task)
        });
        shards.collect()
    }

    #[test]
    fn records_show_complete_shards_and_slurm_shows_the_others() {
        let found = [(1, found(10, None)), (2, found(4, None))].into();
        // Slurm's state of the first shard does not matter, because its record is complete.
        let tasks = [
            task(1, "NODE_FAIL"),
            task(2, "RUNNING"),
            task(3, "PENDING"),
            task(4, "FAILED"),
        ];
        let shards = shards(&found, &tasks);
        let states: Vec<_> = shards.iter().map(|shard| shard.state).collect();
        use ShardState::{Complete, Missing, Running, Waiting};
        assert_eq!(states, [Complete, Running, Waiting, Missing]);
        let runs: Vec<_> = shards
            .iter()
            .map(|s| (s.runs_done, s.runs_missing))
            .collect();
        assert_eq!(runs, [(10, 0), (4, 6), (0, 10), (0, 10)]);
        assert_eq!(shards[1].node.as_deref(), Some("node1"));
        assert_eq!(shards[2].waits.as_deref(), Some("PENDING, None"));
        assert_eq!((&shards[3].node, &shards[3].waits), (&None, &None));
    }

    #[test]
    fn the_remaining_time_includes_the_delay_of_the_others() {
        let all = [task(2, "RUNNING"), task(3, "RUNNING"), task(4, "PENDING")];
        let left = |first: ShardRecord, tasks: &[Task]| {
            let found = [(1, first), (2, found(5, None))].into();
            left_s(&shards(&found, tasks), &SIZES, &found)
        };
        // 50 s, 100 s and 100 s remain, two at a time.
        assert_eq!(left(found(10, None), &all), Some(125.0));
        assert_eq!(left(found(10, Some(200)), &all), Some(250.0));
        // If no shard runs, the remaining time is unknown.
        assert_eq!(left(found(10, Some(200)), &all[2..]), None);
        let whole: BTreeMap<u32, ShardRecord> =
            (1..=4).map(|shard| (shard, found(10, None))).collect();
        assert_eq!(left_s(&shards(&whole, &[]), &SIZES, &whole), Some(0.0));
    }
}
