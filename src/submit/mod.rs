//! Runs an experiment's shards on a cluster: divides it, hands the shards to Slurm, waits for them
//! and hands in the missing ones again.
//!
//! All state is in the directory and in Slurm, so a submit that ends at any moment can be started
//! again.

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
use slurm::{Slurm, SubmitResult};

pub(crate) use cancel::cancel;
pub(crate) use paths::absolute;
pub(crate) use shared_directory::SubmissionKey;
pub(crate) use status::SubmissionStatus;

/// The number of consecutive passes without progress after which a submit gives up.
const MOST_WITHOUT_PROGRESS: u32 = 2;

/// The requested resources of the tasks. A resumed submit may change them.
#[derive(Clone, Debug)]
pub(crate) struct Resources {
    /// The partition; the environment's or Slurm's default if `None`.
    pub(crate) partition: Option<String>,
    /// The processors of each task.
    pub(crate) cpus: u32,
    /// The time limit of a task, if given.
    pub(crate) time: Option<Duration>,
    /// The number of tasks that may run simultaneously, if limited.
    pub(crate) max_tasks: Option<u32>,
    /// The least time that a shard should take.
    pub(crate) shard_time: Duration,
}

impl Resources {
    /// Returns the environment variables that would override these values.
    fn overridden_by(&self) -> Vec<&'static str> {
        let partition = self.partition.is_some().then_some(command::PARTITION);
        let time = self.time.is_some().then_some(command::TIME_LIMIT);
        partition.into_iter().chain(time).collect()
    }
}

/// An experiment to submit.
#[derive(Debug)]
pub(crate) struct Submission<'a> {
    /// The experiment and its options.
    pub(crate) asked: SubmissionKey,
    /// The whole plan.
    pub(crate) plan: &'a Plan,
    /// The unit that a shard does not divide.
    pub(crate) by: ShardBy,
    /// The requested resources.
    pub(crate) resources: Resources,
    /// The directory of the state and of the record.
    pub(crate) out: PathBuf,
}

/// The outcome of a submission.
#[derive(Debug)]
pub(crate) enum Reached {
    /// The records of all shards, which are complete.
    All(Vec<PathBuf>),
    /// Slurm has the tasks, and the submit does not wait for them.
    Handed,
    /// The submit gave up. The records that exist, and the reason why each shard is missing.
    Some(Vec<PathBuf>, Vec<String>),
}

impl Submission<'_> {
    /// Returns the batch script of the first pass.
    ///
    /// # Errors
    /// Fails if a script cannot contain the directory's path, or if Slurm refuses.
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

    /// Hands in the missing shards and waits until none is missing or there is no progress. With
    /// `detach` it does not wait.
    ///
    /// # Errors
    /// Fails if another submit or another experiment uses the directory, if Slurm is not available
    /// or refuses, or because of a signal or `--cancel`.
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
        let mut without_progress = 0;
        loop {
            // First, wait for the array that an earlier submit handed in.
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
                    causes = watch.wait()?;
                    let after = directory.read_records();
                    without_progress = if after > before {
                        0
                    } else {
                        without_progress + 1
                    };
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
            if without_progress >= MOST_WITHOUT_PROGRESS {
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
        // On later passes, nodes that are out of service may come back, so they are checked only if
        // other nodes are excluded.
        if pass.number == 1 || !excluded.is_empty() {
            nodes::check_some_left(slurm, partition, &excluded, false)?;
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
        let file = directory.save_script(&pass, &script)?;
        directory.begin(&pass)?;
        let name = directory.state.job_name(&pass);
        let job = match slurm.submit(&file, &name, &self.resources.overridden_by())? {
            SubmitResult::Job(job) => job,
            SubmitResult::Refused(why) => {
                directory.remove(&pass)?;
                return Err(match pass.number {
                    // Slurm refuses the user's options.
                    1 => Failure::bad_input(format_args!("{why:#}")),
                    _ => why.into(),
                });
            }
            SubmitResult::Unreached(why) => {
                directory.remove(&pass)?;
                return Err(why.into());
            }
        };
        // A cancel that asked Slurm before this point did not find the job; a later one does.
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

/// The error of a submit that was cancelled meanwhile.
fn cancelled() -> Failure {
    anyhow!("the submit was cancelled; run the same command to continue").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_given_resources_override_the_users_environment() {
        let resources = |partition: Option<&str>, time: Option<u64>| {
            let resources = Resources {
                partition: partition.map(str::to_owned),
                cpus: 4,
                time: time.map(Duration::from_secs),
                max_tasks: None,
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
