//! Slurm's commands, used in forms that have been stable since 22.05 and need no accounting
//! database.

use std::collections::BTreeSet;
use std::env;
use std::path::Path;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};

use super::command::{
    COMMAND_TIMEOUT, CommandFailure, PARTITION, RETRY_INTERVAL, SlurmOutput, SlurmRetry, run,
    run_without,
};
use instruments::failure::{Blame, Failure};
use netio::stop::Stop;

/// Slurm's default of MaxArraySize, without task 0.
pub(super) const USUAL_MOST_TASKS: u32 = 1000;
/// The format in which squeue(1) shows a task.
const TASK_FORMAT: &str = "--format=%F|%K|%T|%N|%r";
/// The format in which sinfo(1) shows a node.
const NODE_FORMAT: &str = "%N|%T|%E";
/// The states of nodes that run no more tasks until somebody repairs them. Busy, reserved or
/// powered-down nodes run tasks later.
const OUT_OF_SERVICE: [&str; 7] = [
    "down", "drain", "drained", "draining", "fail", "failing", "inval",
];
/// The flags after a state in sinfo(1) of a node that comes back: it will be rebooted, is being
/// rebooted, or is powering up.
const COMES_BACK: [char; 3] = ['@', '^', '#'];

/// A Slurm that answers.
#[derive(Debug)]
pub(super) struct Slurm {
    /// The output of `scontrol show config`.
    config: String,
    /// A signal that ends further requests.
    stop: Stop,
}

/// The result of handing in a script.
#[derive(Debug)]
pub(super) enum SubmitResult {
    /// Slurm has the script, with this job number.
    Job(u32),
    /// Slurm refused the script.
    Refused(anyhow::Error),
    /// Slurm did not receive the script.
    Unreached(anyhow::Error),
}

/// A task of an array in Slurm.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Task {
    /// The job number of the array.
    pub(super) job: u32,
    /// The index in the array, which is the number of the shard.
    pub(super) shard: u32,
    /// The state in Slurm's words, such as "RUNNING".
    pub(super) state: String,
    /// The node on which the task runs or ran.
    pub(super) node: String,
    /// The reason why the task waits or has ended.
    pub(super) reason: String,
}

impl Task {
    /// Returns true if the task has ended.
    pub(super) fn has_ended(&self) -> bool {
        // These are the states of squeue(1) except those of tasks that wait, run or are about to.
        matches!(
            self.state.as_str(),
            "BOOT_FAIL"
                | "CANCELLED"
                | "COMPLETED"
                | "DEADLINE"
                | "FAILED"
                | "NODE_FAIL"
                | "OUT_OF_MEMORY"
                | "PREEMPTED"
                | "REVOKED"
                | "TIMEOUT"
        )
    }

    /// Returns true if the task is running.
    pub(super) fn runs(&self) -> bool {
        self.state == "RUNNING"
    }

    fn parse(line: &str) -> Result<Self> {
        let fields: Vec<&str> = line.split('|').collect();
        let [job, shard, state, node, reason] = fields[..] else {
            bail!("cannot read the output of squeue: `{line}`");
        };
        let number = |text: &str| {
            let number = text.parse();
            number.with_context(|| format!("cannot read the output of squeue: `{line}`"))
        };
        Ok(Self {
            job: number(job)?,
            shard: number(shard)?,
            state: state.to_owned(),
            node: node.to_owned(),
            reason: reason.to_owned(),
        })
    }
}

/// A node in Slurm.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) name: String,
    /// The state in Slurm's words, with its flags, such as "idle~".
    pub(super) state: String,
    /// The administrator's reason why the node is down or drained.
    pub(super) reason: String,
}

impl Node {
    /// Returns true if the node runs tasks now or will do so without a repair.
    pub(super) fn is_usable(&self) -> bool {
        let state = self.state.to_ascii_lowercase();
        let plain = state.trim_end_matches(|c: char| !c.is_ascii_alphabetic());
        !OUT_OF_SERVICE.contains(&plain) || state.contains(COMES_BACK)
    }

    fn parse(line: &str) -> Result<Self> {
        // Reasons are free text and may contain the separator.
        let fields: Vec<&str> = line.splitn(3, '|').map(str::trim).collect();
        let [name, state, reason] = fields[..] else {
            bail!("cannot read the output of sinfo: `{line}`");
        };
        Ok(Self {
            name: name.to_owned(),
            state: state.to_owned(),
            reason: reason.to_owned(),
        })
    }
}

impl Slurm {
    /// Finds the Slurm that this machine's commands reach. Requests end when `stop` is set.
    ///
    /// # Errors
    /// Fails if there is none; the error says which command is missing.
    pub(super) fn find(stop: &Stop) -> Result<Self, Failure> {
        for name in ["sbatch", "squeue", "sinfo", "scontrol", "scancel"] {
            let found = which::which(name);
            found
                .map_err(|_| anyhow!("{name} is not on PATH: run `submit` on a host that submits Slurm jobs (Debian: slurm-client); without Slurm, use `farwire run`, or `farwire run --shard` on several hosts"))
                .or_machine()?;
        }
        let config = run("scontrol", &["show", "config"])
            .and_then(SlurmOutput::answer)
            .context("Slurm does not answer")
            .or_machine()?;
        Ok(Self {
            config,
            stop: stop.clone(),
        })
    }

    /// Returns the largest number of tasks of an array that starts at 1.
    pub(super) fn most_tasks(&self) -> Result<u32, Failure> {
        let line = self
            .config
            .lines()
            .find(|line| line.starts_with("MaxArraySize"));
        let size = line.and_then(|line| line.split_once('=')?.1.trim().parse::<u32>().ok());
        let most = size.context("the output of scontrol show config lacks MaxArraySize")?;
        if most < 2 {
            return Err(Failure::machine(
                "this Slurm does not allow job arrays: its MaxArraySize is below 2",
            ));
        }
        Ok(most - 1)
    }

    /// Returns the partition that sbatch uses, or several separated by commas. Returns `None` if
    /// none is requested and Slurm has no default; Slurm then decides or refuses.
    ///
    /// # Errors
    /// Fails if the partition does not exist or if none of its nodes has `cpus` processors.
    pub(super) fn partition(
        &self,
        requested: Option<&str>,
        cpus: u32,
    ) -> Result<Option<String>, Failure> {
        let all = self.ask("sinfo", &["--noheader", "--all", "--format=%P"])?;
        let environment = env::var(PARTITION).ok();
        let partition = partition(requested, environment.as_deref(), &all)?;
        let lines = self.node_lines(partition.as_deref(), "%c")?;
        let counts = lines.iter().filter_map(|line| line.parse::<u32>().ok());
        let of = partition.as_ref().map(|name| format!(" of {name}"));
        match counts.max() {
            Some(most) if most < cpus => Err(Failure::bad_input(format_args!(
                "--cpus {cpus}: the largest node{} has {most}",
                of.unwrap_or_default()
            ))),
            _ => Ok(partition),
        }
    }

    /// Returns the nodes of a partition, of several separated by commas, or all nodes.
    pub(super) fn nodes(&self, partition: Option<&str>) -> Result<Vec<Node>> {
        let nodes = self.node_lines(partition, NODE_FORMAT)?;
        nodes.iter().map(|line| Node::parse(line)).collect()
    }

    /// Returns the output of sinfo(1) for each node of a partition, or for all nodes.
    fn node_lines(&self, partition: Option<&str>, what: &str) -> Result<BTreeSet<String>> {
        let partition = partition.map(|name| format!("--partition={name}"));
        let format = format!("--format={what}");
        let mut arguments = vec!["--noheader", "--Node"];
        arguments.extend(partition.as_deref());
        arguments.push(&format);
        let answer = self.ask("sinfo", &arguments)?;
        let lines = answer
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty());
        Ok(lines.map(str::to_owned).collect())
    }

    /// Hands in a script that gives its job the unique name `name`, without these environment
    /// variables. If Slurm may have received a script, it is looked for and never handed in twice.
    ///
    /// # Errors
    /// Fails if it is unknown whether Slurm has the script.
    pub(super) fn submit(
        &self,
        script: &Path,
        name: &str,
        without: &[&str],
    ) -> Result<SubmitResult> {
        let script = script.display().to_string();
        let mut retry = SlurmRetry::of(&self.stop);
        loop {
            let output = match run_without("sbatch", &["--parsable", &script], without) {
                Ok(output) => output,
                Err(why) => return Ok(SubmitResult::Unreached(why)),
            };
            let failure = output.failure();
            match (output.answer(), failure) {
                (Ok(answer), _) => {
                    // With several clusters, the name of the cluster follows the number.
                    let job = answer
                        .trim()
                        .split(';')
                        .next()
                        .and_then(|job| job.parse().ok())
                        .with_context(|| {
                            format!("cannot read the output of sbatch: `{}`", answer.trim())
                        })?;
                    return Ok(SubmitResult::Job(job));
                }
                (Err(why), CommandFailure::Refused) => return Ok(SubmitResult::Refused(why)),
                (Err(why), CommandFailure::Unknown) => return self.look_for(name, why),
                (Err(why), CommandFailure::Unreached) => {
                    if let Err(why) = retry.wait(why) {
                        return Ok(SubmitResult::Unreached(why));
                    }
                }
            }
        }
    }

    /// Looks for the job with this name, which Slurm may have received before sbatch failed because
    /// of `why`.
    fn look_for(&self, name: &str, why: anyhow::Error) -> Result<SubmitResult> {
        let begun = Instant::now();
        loop {
            if let Some(task) = self.tasks(name)?.first() {
                return Ok(SubmitResult::Job(task.job));
            }
            if begun.elapsed() > COMMAND_TIMEOUT || self.stop.cause().is_some() {
                return Err(why.context(
                    "it is unknown whether Slurm accepted the array; run the same command to find out",
                ));
            }
            thread::sleep(RETRY_INTERVAL);
        }
    }

    /// Repeats a request until Slurm answers, for ten minutes at most, because the controller may
    /// be restarting. The request must be harmless when repeated.
    fn ask(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let mut retry = SlurmRetry::of(&self.stop);
        loop {
            match run(program, arguments).and_then(SlurmOutput::answer) {
                Ok(answer) => return Ok(answer),
                Err(error) => retry.wait(error)?,
            }
        }
    }

    /// Returns the tasks of the job with this name that Slurm still knows.
    pub(super) fn tasks(&self, name: &str) -> Result<Vec<Task>> {
        let name = format!("--name={name}");
        let answer = self.ask(
            "squeue",
            &[
                "--me",
                &name,
                "--states=all",
                "--array",
                "--noheader",
                TASK_FORMAT,
            ],
        )?;
        let tasks = answer.lines().filter(|line| !line.trim().is_empty());
        tasks.map(|line| Task::parse(line.trim())).collect()
    }

    /// Returns the tasks of the job with this name that wait or run, as job and shard numbers.
    pub(super) fn alive(&self, name: &str) -> Result<BTreeSet<(u32, u32)>> {
        let tasks = self.tasks(name)?.into_iter();
        let alive = tasks.filter(|task| !task.has_ended() && task.state != "COMPLETING");
        Ok(alive.map(|task| (task.job, task.shard)).collect())
    }

    /// Cancels the remaining tasks of the job with this name and returns them.
    pub(super) fn cancel(&self, name: &str) -> Result<BTreeSet<(u32, u32)>> {
        let left = self.alive(name)?;
        let jobs: BTreeSet<u32> = left.iter().map(|(job, _)| *job).collect();
        for job in jobs {
            self.ask("scancel", &["--quiet", &job.to_string()])?;
        }
        Ok(left)
    }
}

/// Returns the partition that sbatch uses: the requested one, or that of the environment, or the
/// default in `all`, if there is one. `all` has one partition per line, and sinfo(1) marks the
/// default.
fn partition(
    requested: Option<&str>,
    environment: Option<&str>,
    all: &str,
) -> Result<Option<String>, Failure> {
    let lines = all.split_whitespace();
    let default = lines.clone().find_map(|line| line.strip_suffix('*'));
    let names: BTreeSet<&str> = lines
        .map(|line| line.strip_suffix('*').unwrap_or(line))
        .collect();
    let environment = environment.filter(|names| !names.is_empty());
    let (source, names_given) = match (requested, environment) {
        (Some(requested), _) => ("--partition", requested),
        (None, Some(set)) => (PARTITION, set),
        (None, None) => return Ok(default.map(str::to_owned)),
    };
    match names_given.split(',').find(|name| !names.contains(name)) {
        Some(name) => Err(Failure::bad_input(format_args!(
            "{source} {name}: Slurm has no such partition; the partitions are: {}",
            names.iter().copied().collect::<Vec<_>>().join(", ")
        ))),
        None => Ok(Some(names_given.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_partition_is_the_requested_one_or_the_users_or_slurms() {
        let all = "long\nmain*\nshort\n";
        let of = |requested, environment| partition(requested, environment, all).unwrap().unwrap();
        assert_eq!(of(None, None), "main");
        assert_eq!(of(None, Some("")), "main");
        assert_eq!(of(None, Some("long,short")), "long,short");
        assert_eq!(of(Some("short"), Some("gone")), "short");
        let refused = |requested, environment, all| {
            let failure = partition(requested, environment, all).unwrap_err();
            assert_eq!(failure.code(), 2);
            failure.to_string()
        };
        assert_eq!(
            refused(Some("main,gone"), None, all),
            "--partition gone: Slurm has no such partition; the partitions are: long, main, short"
        );
        let words = refused(None, Some("gone"), all);
        assert!(words.starts_with("SBATCH_PARTITION gone: "), "{words}");
        assert!(matches!(partition(None, None, "long\nshort\n"), Ok(None)));
    }

    #[test]
    fn a_node_is_usable_unless_it_needs_a_repair() {
        let node = |state: &str| Node::parse(&format!("node1|{state}|none")).unwrap();
        for state in [
            "idle",
            "idle*",
            "idle~",
            "allocated",
            "allocated+",
            "mixed-",
            "completing",
            "planned",
            "reserved",
            "maint",
            "powered_down",
            "powering_down",
            "power_down",
            "unknown",
            "down^",
            "down#",
            "drained@",
            "reboot",
        ] {
            assert!(node(state).is_usable(), "{state}");
        }
        for state in [
            "down", "down*", "down$", "DOWN", "drained", "drained*", "drained~", "draining",
            "fail", "failing", "inval",
        ] {
            assert!(!node(state).is_usable(), "{state}");
        }
        let drained = Node::parse("node2|drained|disk | fan").unwrap();
        assert_eq!(drained.name.as_str(), "node2");
        assert_eq!(drained.reason.as_str(), "disk | fan");
        assert!(Node::parse("slurm_load_partitions error").is_err());
    }

    #[test]
    fn a_line_of_squeue_is_a_task() {
        let task = Task::parse("12|3|RUNNING|node2|None").unwrap();
        assert_eq!((task.job, task.shard, task.node.as_str()), (12, 3, "node2"));
        assert!(task.runs() && !task.has_ended());
        let task = Task::parse("12|4|NODE_FAIL|node2|NodeDown").unwrap();
        assert!(task.has_ended() && !task.runs());
        let waiting = Task::parse("12|5|PENDING||JobArrayTaskLimit").unwrap();
        assert!(!waiting.has_ended() && waiting.node.is_empty());
        assert!(Task::parse("12|N/A|PENDING||None").is_err());
        assert!(Task::parse("slurm_load_jobs error").is_err());
    }

    #[test]
    fn an_array_counts_from_one() {
        let slurm = |config: &str| Slurm {
            config: config.to_owned(),
            stop: Stop::default(),
        };
        let config = "Configuration data\nMaxArraySize            = 1001\nMaxJobCount = 9";
        assert_eq!(slurm(config).most_tasks().unwrap(), 1000);
        assert_eq!(
            slurm("MaxArraySize = 0").most_tasks().unwrap_err().code(),
            3
        );
        assert!(slurm("").most_tasks().is_err());
    }
}
