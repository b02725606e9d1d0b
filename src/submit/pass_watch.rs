//! Waits for a pass by following Slurm's state of its tasks and their records.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use super::nodes;
use super::shared_directory::{self, Directory, Pass};
use super::slurm::{Slurm, Task};
use crate::notes::note;
use crate::progress::ProgressLine;
use instruments::failure::Failure;
use netio::stop::{STOP_INTERVAL, Stop};
use record::Record;

/// The range of the interval between two requests to Slurm.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);
const LONGEST_INTERVAL: Duration = Duration::from_secs(15);

/// The normal reasons why tasks wait.
const USUAL_REASONS: [&str; 4] = ["None", "Resources", "Priority", "JobArrayTaskLimit"];

/// A pass to wait for.
#[derive(Debug)]
pub(super) struct PassWatch<'a> {
    pub(super) slurm: &'a Slurm,
    pub(super) directory: &'a Directory,
    pub(super) pass: &'a Pass,
    /// The expected time of each shard, in the order of the shards.
    pub(super) times: &'a [Duration],
    pub(super) stop: &'a Stop,
}

/// The progress of a pass up to now.
struct PassProgress {
    /// The shards that need no more waiting.
    settled: BTreeSet<u32>,
    /// The shards that waited or ran at some time during this wait.
    alive: BTreeSet<u32>,
    /// The time at which each running shard was first seen running.
    since: BTreeMap<u32, Instant>,
    /// The actual and the expected time of all shards that completed.
    took: (Duration, Duration),
    causes: Vec<String>,
    excluded: BTreeSet<String>,
    /// The reasons for which all shards have waited.
    reasons: BTreeSet<String>,
    line: ProgressLine,
}

impl PassWatch<'_> {
    /// Waits until the record of every shard of the pass is complete or its task has ended. Returns
    /// the reasons for missing shards.
    ///
    /// # Errors
    /// Fails because of a signal or `--cancel`, if no node is left, or if Slurm is silent.
    pub(super) fn wait(&self) -> Result<Vec<String>, Failure> {
        let mut progress = PassProgress {
            settled: BTreeSet::new(),
            alive: BTreeSet::new(),
            since: BTreeMap::new(),
            took: Default::default(),
            causes: Vec::new(),
            excluded: BTreeSet::new(),
            reasons: BTreeSet::new(),
            line: ProgressLine::new(self.pass.shards.len(), "shard"),
        };
        let longest = self.times.iter().max().copied().unwrap_or_default();
        let interval = (longest / 10).clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL);
        loop {
            let tasks = self.slurm.tasks(&self.directory.state.job_name(self.pass));
            if tasks.is_err() {
                self.check_signal()?;
            }
            self.follow(&tasks?, &mut progress)?;
            if progress.settled.len() == self.pass.shards.len() {
                return Ok(progress.causes);
            }
            self.sleep(interval, &progress)?;
        }
    }

    fn follow(&self, tasks: &[Task], progress: &mut PassProgress) -> Result<(), Failure> {
        let tasks: BTreeMap<u32, &Task> = tasks.iter().map(|task| (task.shard, task)).collect();
        for &shard in &self.pass.shards {
            if progress.settled.contains(&shard) {
                continue;
            }
            let task = tasks.get(&shard).copied();
            if task.is_some_and(|task| !task.has_ended()) {
                progress.alive.insert(shard);
            }
            if task.is_some_and(Task::runs) {
                progress.since.entry(shard).or_insert_with(Instant::now);
            }
            self.settle(shard, task, progress)?;
        }
        let excluded = nodes::excluded(&self.directory.path);
        for (node, cause) in &excluded {
            if progress.excluded.insert(node.clone()) {
                note(format_args!("node {node} is left out: {cause}"));
            }
        }
        let left = self.pass.shards.len() - progress.settled.len();
        if left > 0 {
            // Nodes that only Slurm excludes may come back. The tasks then wait, and the reason is
            // printed below.
            if !excluded.is_empty() {
                let is_busy = |task: &&Task| !task.has_ended() && task.state != "PENDING";
                let busy = tasks.values().any(is_busy);
                nodes::check_some_left(self.slurm, self.pass.partition.as_deref(), &excluded, busy)
                    .inspect_err(|_| {
                        // The remaining tasks would wait forever.
                        let _ = self.slurm.cancel(&self.directory.state.job_name(self.pass));
                    })?;
            }
            let mut waits = tasks
                .values()
                .filter(|task| !task.has_ended() && !task.runs());
            let running = tasks.values().filter(|task| task.runs()).count();
            let what = match waits.next() {
                Some(task) => {
                    // A wait that may never end gets a separate message.
                    let is_usual = USUAL_REASONS.contains(&task.reason.as_str());
                    if running == 0 && !is_usual && progress.reasons.insert(task.reason.clone()) {
                        note(format_args!("all shards are waiting: {}", task.reason));
                    }
                    format!("{running} running, others waiting: {}", task.reason)
                }
                None => format!("{running} running"),
            };
            progress
                .line
                .start(&what, left, self.left(progress, running));
        }
        Ok(())
    }

    /// Settles a shard if its record is complete or its task has ended.
    fn settle(
        &self,
        shard: u32,
        task: Option<&Task>,
        progress: &mut PassProgress,
    ) -> Result<(), Failure> {
        let path = &self.directory.path;
        let record = shared_directory::shard_directory(path, shard, self.pass.number);
        // A task whose slurmstepd died keeps running, and Slurm may not report that.
        let complete = Record::is_finished(&record);
        if !complete && task.is_some_and(|task| !task.has_ended()) {
            return Ok(());
        }
        progress.settled.insert(shard);
        let node = task.map_or("", |task| task.node.as_str());
        if complete {
            if let Some(since) = progress.since.remove(&shard) {
                progress.took.0 += since.elapsed();
                progress.took.1 += self.time(shard);
            }
            let at = if node.is_empty() {
                String::new()
            } else {
                format!(" on {node}")
            };
            progress
                .line
                .finish(&format!("shard {shard}: complete{at}"));
            return Ok(());
        }
        progress.since.remove(&shard);
        let log = shared_directory::log(path, shard, self.pass.number);
        if let Some(task) = task.filter(|task| task.state == "FAILED" && !task.node.is_empty())
            && !log.exists()
        {
            let cause = format!(
                "a task wrote nothing to {}: the node cannot see or write the directory",
                path.display()
            );
            nodes::exclude(path, &task.node, &cause)?;
        }
        if task.is_some_and(|task| task.state == "CANCELLED")
            && progress.alive.contains(&shard)
            && !self.directory.is_cancelled()
        {
            self.slurm
                .cancel(&self.directory.state.job_name(self.pass))?;
            return Err(anyhow!(
                "shard {shard} was cancelled in Slurm; run the same command to continue"
            )
            .into());
        }
        let state = match task {
            Some(task) => format!("{} on {node}", task.state),
            None => "Slurm no longer knows its task".to_owned(),
        };
        let last_line = fs::read_to_string(&log)
            .unwrap_or_default()
            .lines()
            .rev()
            .find(|line| line.starts_with("farwire:"))
            .map(|line| format!(": {line}"))
            .unwrap_or_default();
        let cause = format!("shard {shard}: {state}{last_line}");
        note(&cause);
        progress.causes.push(cause);
        Ok(())
    }

    /// Estimates the remaining time from the plan and from the completed shards.
    fn left(&self, progress: &PassProgress, running: usize) -> Duration {
        let (took, should) = progress.took;
        let slower = if should.is_zero() {
            1.0
        } else {
            took.as_secs_f64() / should.as_secs_f64()
        };
        let unsettled = self
            .pass
            .shards
            .iter()
            .filter(|shard| !progress.settled.contains(shard));
        let left = unsettled.map(|shard| {
            let since = progress.since.get(shard);
            let done = since.map_or(Duration::ZERO, Instant::elapsed);
            self.time(*shard).mul_f64(slower).saturating_sub(done)
        });
        let running = u32::try_from(running).unwrap_or(u32::MAX).max(1);
        left.sum::<Duration>() / running
    }

    fn time(&self, shard: u32) -> Duration {
        self.times
            .get(shard as usize - 1)
            .copied()
            .unwrap_or_default()
    }

    /// Sleeps, but reacts to signals, to `--cancel` and to completed records of running shards. The
    /// end of a shard is thus noticed immediately although Slurm is asked rarely.
    fn sleep(&self, time: Duration, progress: &PassProgress) -> Result<(), Failure> {
        let end = Instant::now() + time;
        let mut looked = Instant::now();
        while Instant::now() < end {
            if looked.elapsed() >= SHORTEST_INTERVAL {
                looked = Instant::now();
                let path = &self.directory.path;
                let mut running = progress.since.keys();
                if running.any(|shard| {
                    Record::is_finished(&shared_directory::shard_directory(
                        path,
                        *shard,
                        self.pass.number,
                    ))
                }) {
                    return Ok(());
                }
            }
            self.check_signal()?;
            if self.directory.is_cancelled() {
                // The cancelling process may have ended before it cancelled the job.
                self.slurm
                    .cancel(&self.directory.state.job_name(self.pass))?;
                return Err(super::cancelled());
            }
            thread::sleep(STOP_INTERVAL);
        }
        Ok(())
    }

    /// Fails if a signal asks the program to end.
    fn check_signal(&self) -> Result<(), Failure> {
        match self.stop.cause() {
            None => Ok(()),
            Some(cause) => Err(anyhow!(
                "{cause}; Slurm still runs the shards: run the same command to wait for them, or `farwire submit --cancel {}` to cancel them",
                self.directory.path.display()
            )
            .into()),
        }
    }
}
