//! Waiting for a pass: what Slurm says of its tasks, and what their records say.

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

/// Between two questions to Slurm.
const SOONEST: Duration = Duration::from_secs(1);
const LATEST: Duration = Duration::from_secs(15);

/// Why tasks wait for others.
const USUAL: [&str; 4] = ["None", "Resources", "Priority", "JobArrayTaskLimit"];

/// A pass that is waited for.
#[derive(Debug)]
pub(super) struct PassWatch<'a> {
    pub(super) slurm: &'a Slurm,
    pub(super) directory: &'a Directory,
    pub(super) pass: &'a Pass,
    /// How long each shard should take, the first of them the first.
    pub(super) times: &'a [Duration],
    pub(super) stop: &'a Stop,
}

/// What was seen so far.
struct PassProgress {
    /// The shards of which nothing more is to come.
    settled: BTreeSet<u32>,
    /// Those that waited or ran while this was looking.
    alive: BTreeSet<u32>,
    /// Since when each that runs does.
    since: BTreeMap<u32, Instant>,
    /// How long those took that ran to their end, and should have taken.
    took: (Duration, Duration),
    causes: Vec<String>,
    excluded: BTreeSet<String>,
    /// Why all waited.
    reasons: BTreeSet<String>,
    progress: ProgressLine,
}

impl PassWatch<'_> {
    /// Waits until every shard of the pass is complete, or its task has ended; why those are missing that are.
    ///
    /// # Errors
    /// A signal, `--cancel`, no node left, or a Slurm that is silent.
    pub(super) fn until_end(&self) -> Result<Vec<String>, Failure> {
        let mut seen = PassProgress {
            settled: BTreeSet::new(),
            alive: BTreeSet::new(),
            since: BTreeMap::new(),
            took: Default::default(),
            causes: Vec::new(),
            excluded: BTreeSet::new(),
            reasons: BTreeSet::new(),
            progress: ProgressLine::new(self.pass.shards.len(), "shard"),
        };
        let longest = self.times.iter().max().copied().unwrap_or_default();
        let interval = (longest / 10).clamp(SOONEST, LATEST);
        loop {
            let tasks = self.slurm.tasks(&self.directory.state.job_name(self.pass));
            if tasks.is_err() {
                self.go_on()?;
            }
            self.look(&tasks?, &mut seen)?;
            if seen.settled.len() == self.pass.shards.len() {
                return Ok(seen.causes);
            }
            self.sleep(interval, &seen)?;
        }
    }

    fn look(&self, tasks: &[Task], seen: &mut PassProgress) -> Result<(), Failure> {
        let tasks: BTreeMap<u32, &Task> = tasks.iter().map(|task| (task.shard, task)).collect();
        for &shard in &self.pass.shards {
            if seen.settled.contains(&shard) {
                continue;
            }
            let task = tasks.get(&shard).copied();
            if task.is_some_and(|task| !task.has_ended()) {
                seen.alive.insert(shard);
            }
            if task.is_some_and(Task::runs) {
                seen.since.entry(shard).or_insert_with(Instant::now);
            }
            self.settle(shard, task, seen)?;
        }
        let excluded = nodes::excluded(&self.directory.path);
        for (node, cause) in &excluded {
            if seen.excluded.insert(node.clone()) {
                note(format_args!("node {node} is left out: {cause}"));
            }
        }
        let left = self.pass.shards.len() - seen.settled.len();
        if left > 0 {
            // Nodes that only Slurm leaves out may come back: the tasks wait, and why is said below.
            if !excluded.is_empty() {
                let is_busy = |task: &&Task| !task.has_ended() && task.state != "PENDING";
                let busy = tasks.values().any(is_busy);
                nodes::some_left(self.slurm, self.pass.partition.as_deref(), &excluded, busy)
                    .inspect_err(|_| {
                        // What waits, waits for nothing.
                        let _ = self.slurm.cancel(&self.directory.state.job_name(self.pass));
                    })?;
            }
            let mut waits = tasks
                .values()
                .filter(|task| !task.has_ended() && !task.runs());
            let running = tasks.values().filter(|task| task.runs()).count();
            let what = match waits.next() {
                Some(task) => {
                    // What may never end is worth a line of its own.
                    let is_usual = USUAL.contains(&task.reason.as_str());
                    if running == 0 && !is_usual && seen.reasons.insert(task.reason.clone()) {
                        note(format_args!("all shards are waiting: {}", task.reason));
                    }
                    format!("{running} running, others waiting: {}", task.reason)
                }
                None => format!("{running} running"),
            };
            seen.progress.start(&what, left, self.left(seen, running));
        }
        Ok(())
    }

    /// Whether nothing more is to come of a shard: its record says so, or its task has ended.
    fn settle(
        &self,
        shard: u32,
        task: Option<&Task>,
        seen: &mut PassProgress,
    ) -> Result<(), Failure> {
        let path = &self.directory.path;
        let record = shared_directory::shard_directory(path, shard, self.pass.number);
        // A task whose slurmstepd died runs on, and Slurm says so or not.
        let complete = Record::is_finished(&record);
        if !complete && task.is_some_and(|task| !task.has_ended()) {
            return Ok(());
        }
        seen.settled.insert(shard);
        let node = task.map_or("", |task| task.node.as_str());
        if complete {
            if let Some(since) = seen.since.remove(&shard) {
                seen.took.0 += since.elapsed();
                seen.took.1 += self.time(shard);
            }
            let at = if node.is_empty() {
                String::new()
            } else {
                format!(" on {node}")
            };
            seen.progress
                .finish(&format!("shard {shard}: complete{at}"));
            return Ok(());
        }
        seen.since.remove(&shard);
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
            && seen.alive.contains(&shard)
            && !self.directory.is_cancelled()
        {
            self.slurm
                .cancel(&self.directory.state.job_name(self.pass))?;
            return Err(anyhow!(
                "shard {shard} was cancelled in Slurm; the same command continues"
            )
            .into());
        }
        let state = match task {
            Some(task) => format!("{} on {node}", task.state),
            None => "Slurm no longer knows its task".to_owned(),
        };
        let said = fs::read_to_string(&log).unwrap_or_default();
        let said = said.lines().rev().find(|line| line.starts_with("farwire:"));
        let said = said.map(|line| format!(": {line}")).unwrap_or_default();
        let cause = format!("shard {shard}: {state}{said}");
        note(&cause);
        seen.causes.push(cause);
        Ok(())
    }

    /// About how long the rest should take, from the plan and from what was seen.
    fn left(&self, seen: &PassProgress, running: usize) -> Duration {
        let (took, should) = seen.took;
        let slower = match should.is_zero() {
            true => 1.0,
            false => took.as_secs_f64() / should.as_secs_f64(),
        };
        let unsettled = self
            .pass
            .shards
            .iter()
            .filter(|shard| !seen.settled.contains(shard));
        let left = unsettled.map(|shard| {
            let since = seen.since.get(shard);
            let done = since.map_or(Duration::ZERO, Instant::elapsed);
            self.time(*shard).mul_f64(slower).saturating_sub(done)
        });
        let at_once = u32::try_from(running).unwrap_or(u32::MAX).max(1);
        left.sum::<Duration>() / at_once
    }

    fn time(&self, shard: u32) -> Duration {
        self.times
            .get(shard as usize - 1)
            .copied()
            .unwrap_or_default()
    }

    /// Sleeps, with an eye on signals, on `--cancel` and on the records of what runs: Slurm need not be asked often for the end of a shard to be
    /// seen at once.
    fn sleep(&self, time: Duration, seen: &PassProgress) -> Result<(), Failure> {
        let end = Instant::now() + time;
        let mut looked = Instant::now();
        while Instant::now() < end {
            if looked.elapsed() >= SOONEST {
                looked = Instant::now();
                let path = &self.directory.path;
                let mut running = seen.since.keys();
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
            self.go_on()?;
            if self.directory.is_cancelled() {
                // Who cancelled may have ended before it came to that.
                self.slurm
                    .cancel(&self.directory.state.job_name(self.pass))?;
                return Err(super::cancelled());
            }
            thread::sleep(STOP_INTERVAL);
        }
        Ok(())
    }

    /// Fails when a signal says to end.
    fn go_on(&self) -> Result<(), Failure> {
        match self.stop.cause() {
            None => Ok(()),
            Some(cause) => Err(anyhow!(
                "{cause}; Slurm continues the shards: the same command waits for them, `farwire submit --cancel {}` cancels them",
                self.directory.path.display()
            )
            .into()),
        }
    }
}
