//! An experiment's shards on a cluster: split, handed to Slurm, waited for, what is missing handed in again.
//!
//! What is known stands in the directory and in Slurm, nowhere else: a submit that ends at any moment can be started again.

mod array;
mod cancel;
mod command;
mod nodes;
mod pass_watch;
mod paths;
mod script;
mod shared_directory;
mod slurm;
mod status;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;

use crate::experiment::Plan;
use crate::experiment::sharding;
use crate::notes::note;
use instruments::failure::Failure;
use netio::stop::Stop;
use record::ShardBy;
use record::quantity::counted;
use shared_directory::Directory;
use shared_directory::Pass;
use slurm::{Slurm, Submitted};

pub(crate) use cancel::cancel;
pub(crate) use paths::absolute;
pub(crate) use shared_directory::SubmissionKey;
pub(crate) use status::SubmissionStatus;

/// Passes in a row that bring nothing new, after which it is given up.
const MOST_IN_VAIN: u32 = 2;

/// How the shards are handed to Slurm; a submit that goes on may have other ones.
#[derive(Clone, Debug)]
pub(crate) struct Resources {
    /// That of the user's environment, or Slurm's default, where it is not said.
    pub(crate) partition: Option<String>,
    /// Of each task.
    pub(crate) cpus: u32,
    /// How long a task may take, where that is said.
    pub(crate) time: Option<Duration>,
    /// How many tasks may run at once, where that is limited.
    pub(crate) at_once: Option<u32>,
    /// What a shard should take at least.
    pub(crate) shard_time: Duration,
}

impl Resources {
    /// The variables of the user's environment that would say something else than this.
    fn overridden_by(&self) -> Vec<&'static str> {
        let partition = self.partition.is_some().then_some(command::PARTITION);
        let time = self.time.is_some().then_some(command::TIME_LIMIT);
        partition.into_iter().chain(time).collect()
    }
}

/// An experiment to be submitted.
#[derive(Debug)]
pub(crate) struct Submission<'a> {
    /// What is run.
    pub(crate) asked: SubmissionKey,
    /// All of it.
    pub(crate) plan: &'a Plan,
    /// What stays together.
    pub(crate) by: ShardBy,
    /// How.
    pub(crate) resources: Resources,
    /// Where its state and its record are.
    pub(crate) out: PathBuf,
}

/// How far a submission came.
#[derive(Debug)]
pub(crate) enum Reached {
    /// Records that have every run.
    All(Vec<PathBuf>),
    /// Slurm has the tasks, and nobody waits for them.
    Handed,
    /// Given up: the records that there are, and why each shard is missing.
    Some(Vec<PathBuf>, Vec<String>),
}

impl Submission<'_> {
    /// The batch script of the first pass.
    ///
    /// # Errors
    /// The directory's path cannot stand in one; Slurm refuses.
    pub(crate) fn script(&self) -> Result<String, Failure> {
        let most = match Slurm::find(&Stop::default()) {
            Ok(slurm) => slurm.most_tasks()?,
            Err(_) => {
                note("no Slurm on this host: assuming its default, arrays of up to 1000 tasks");
                slurm::USUAL_MOST_TASKS
            }
        };
        let out = absolute(&self.out)?;
        let shards = self.shards(most);
        let pass = Pass {
            number: 1,
            shards: (1..=shards).collect(),
            cancelled: false,
            partition: None,
        };
        let times = sharding::times(self.plan, shards, self.by);
        script::of(self, &out, "0", &pass, &times, &[])
    }

    fn shards(&self, most: u32) -> u32 {
        array::shards(self.plan, self.by, self.resources.shard_time, most)
    }

    /// Hands in what is missing and waits, until nothing is or it is in vain; with `detach` it does not wait.
    ///
    /// # Errors
    /// Another submit has the directory, or another experiment; Slurm is not there or refuses; a signal, or `--cancel`.
    pub(crate) fn run(&self, detach: bool) -> Result<Reached, Failure> {
        let stop = Stop::on_signals()?;
        let slurm = Slurm::find(&stop)?;
        let partition = self.resources.partition.as_deref();
        let partition = slurm.partition(partition, self.resources.cpus)?;
        let mut directory = Directory::open(&self.out, &self.asked, || {
            let shards = self.shards(slurm.most_tasks()?);
            Ok(sharding::sizes(self.plan, shards, self.by))
        })?;
        let shards = directory.state.count();
        let times = sharding::times(self.plan, shards, self.by);
        let mut causes = Vec::new();
        let mut in_vain = 0;
        loop {
            // What an earlier submit handed in.
            if let Some(pass) = directory.state.passes.last().cloned()
                && !directory.missing().is_empty()
            {
                let name = directory.state.job_name(&pass);
                if !pass.cancelled {
                    let waiting = slurm.tasks(&name)?.iter().any(|task| !task.has_ended());
                    if detach && waiting {
                        return Ok(Reached::Handed);
                    }
                    let before = directory.progress();
                    let watch = pass_watch::PassWatch {
                        slurm: &slurm,
                        directory: &directory,
                        pass: &pass,
                        times: &times,
                        stop: &stop,
                    };
                    causes = watch.until_end()?;
                    let after = directory.look();
                    in_vain = if after > before { 0 } else { in_vain + 1 };
                }
                slurm.cancel(&name)?;
                if directory.is_cancelled() {
                    return Err(cancelled());
                }
            }
            let missing = directory.missing();
            if missing.is_empty() {
                return Ok(Reached::All(directory.records()));
            }
            if in_vain >= MOST_IN_VAIN {
                return Ok(Reached::Some(directory.records(), causes));
            }
            self.hand_in(
                &slurm,
                partition.as_deref(),
                &mut directory,
                missing,
                &times,
            )?;
            if detach {
                return Ok(Reached::Handed);
            }
        }
    }

    /// Hands in these shards as a new pass.
    fn hand_in(
        &self,
        slurm: &Slurm,
        partition: Option<&str>,
        directory: &mut Directory,
        shards: Vec<u32>,
        times: &[Duration],
    ) -> Result<(), Failure> {
        let excluded = nodes::excluded(&directory.path);
        let pass = Pass {
            partition: partition.map(str::to_owned),
            ..directory.next_pass(shards)
        };
        // What all nodes lost meanwhile, they may be about to have again.
        if pass.number == 1 || !excluded.is_empty() {
            nodes::some_left(slurm, partition, &excluded, false)?;
        }
        let nodes: Vec<&str> = excluded.keys().map(String::as_str).collect();
        let script = script::of(
            self,
            &directory.path,
            &directory.state.id,
            &pass,
            times,
            &nodes,
        )?;
        let file = directory.keep_script(&pass, &script)?;
        directory.begin(&pass)?;
        let name = directory.state.job_name(&pass);
        let job = match slurm.submit(&file, &name, &self.resources.overridden_by())? {
            Submitted::Job(job) => job,
            Submitted::Refused(why) => {
                directory.take_back(&pass)?;
                return Err(match pass.number {
                    // What it refuses is what was asked for.
                    1 => Failure::bad_input(format_args!("{why:#}")),
                    _ => why.into(),
                });
            }
            Submitted::Unreached(why) => {
                directory.take_back(&pass)?;
                return Err(why.into());
            }
        };
        // A cancel that asked Slurm before this did not see the job; one that asks from now on does.
        if directory.is_cancelled() {
            slurm.cancel(&name)?;
            return Err(cancelled());
        }
        note(format_args!(
            "job {job}: {} of {}",
            counted(pass.shards.len(), "shard"),
            directory.state.count()
        ));
        Ok(())
    }
}

/// What one ends with that was cancelled meanwhile.
fn cancelled() -> Failure {
    anyhow!("the submit was cancelled; the same command continues").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_said_stands_against_the_users_environment() {
        let resources = |partition: Option<&str>, time: Option<u64>| {
            let resources = Resources {
                partition: partition.map(str::to_owned),
                cpus: 4,
                time: time.map(Duration::from_secs),
                at_once: None,
                shard_time: Duration::from_secs(60),
            };
            resources.overridden_by()
        };
        assert!(resources(None, None).is_empty());
        assert_eq!(resources(Some("main"), None), ["SBATCH_PARTITION"]);
        assert_eq!(resources(None, Some(60)), ["SBATCH_TIMELIMIT"]);
        assert_eq!(resources(Some("main"), Some(60)).len(), 2);
    }
}
