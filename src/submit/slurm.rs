//! Slurm's commands, in forms that are stable from 22.05 on and need no accounting database.

use std::collections::BTreeSet;
use std::env;
use std::path::Path;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};

use super::command::{
    AGAIN, ANSWER, CommandFailure, PARTITION, Silence, SlurmOutput, run, run_without,
};
use instruments::failure::{Blame, Failure};
use netio::stop::Stop;

/// Slurm's default of MaxArraySize, less the task 0.
pub(super) const USUAL_MOST_TASKS: u32 = 1000;
/// How squeue(1) is to show a task.
const TASK: &str = "--format=%F|%K|%T|%N|%r";
/// How sinfo(1) is to show a node.
const NODE: &str = "%N|%T|%E";
/// States of nodes that have no more tasks before somebody mends them. What is busy, reserved or powered down has them later.
const OUT_OF_SERVICE: [&str; 7] = [
    "down", "drain", "drained", "draining", "fail", "failing", "inval",
];
/// Flags of sinfo(1) behind a state: of a node that is to be rebooted, is, or powers up, and comes back.
const COMES_BACK: [char; 3] = ['@', '^', '#'];

/// A Slurm that answers.
#[derive(Debug)]
pub(super) struct Slurm {
    /// As `scontrol show config` says.
    config: String,
    /// When it is asked no more.
    stop: Stop,
}

/// What became of a script that was handed in.
#[derive(Debug)]
pub(super) enum Submitted {
    /// Slurm has it, under this number.
    Job(u32),
    /// Slurm did not want it.
    Refused(anyhow::Error),
    /// Slurm never heard of it.
    Unreached(anyhow::Error),
}

/// A task of an array, as Slurm has it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Task {
    /// The array's number.
    pub(super) job: u32,
    /// Which of the array: our shard.
    pub(super) shard: u32,
    /// In Slurm's words: "RUNNING".
    pub(super) state: String,
    /// Where it runs or ran.
    pub(super) node: String,
    /// Why it waits, or ended.
    pub(super) reason: String,
}

impl Task {
    /// Whether it will do no more.
    pub(super) fn has_ended(&self) -> bool {
        // Those of squeue(1) without what waits, runs, or is about to.
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

    /// Whether it runs.
    pub(super) fn runs(&self) -> bool {
        self.state == "RUNNING"
    }

    fn parse(line: &str) -> Result<Self> {
        let fields: Vec<&str> = line.split('|').collect();
        let [job, shard, state, node, reason] = fields[..] else {
            bail!("squeue says `{line}`");
        };
        let number = |text: &str| {
            let number = text.parse();
            number.with_context(|| format!("squeue says `{line}`"))
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

/// A node, as Slurm has it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) name: String,
    /// In Slurm's words, with its flags: "idle~".
    pub(super) state: String,
    /// Why it is down or drained, in the words of who did it.
    pub(super) reason: String,
}

impl Node {
    /// Whether it has tasks, now or without anybody's doing.
    pub(super) fn is_usable(&self) -> bool {
        let state = self.state.to_ascii_lowercase();
        let plain = state.trim_end_matches(|c: char| !c.is_ascii_alphabetic());
        !OUT_OF_SERVICE.contains(&plain) || state.contains(COMES_BACK)
    }

    fn parse(line: &str) -> Result<Self> {
        // Reasons are people's.
        let fields: Vec<&str> = line.splitn(3, '|').map(str::trim).collect();
        let [name, state, reason] = fields[..] else {
            bail!("sinfo says `{line}`");
        };
        Ok(Self {
            name: name.to_owned(),
            state: state.to_owned(),
            reason: reason.to_owned(),
        })
    }
}

impl Slurm {
    /// The Slurm that this machine's commands reach; it is asked no more when `stop` says so.
    ///
    /// # Errors
    /// There is none: says what is missing.
    pub(super) fn find(stop: &Stop) -> Result<Self, Failure> {
        for name in ["sbatch", "squeue", "sinfo", "scontrol", "scancel"] {
            let found = which::which(name);
            found
                .map_err(|_| anyhow!("{name} is not on PATH: run `submit` on a host that submits Slurm jobs (Debian: slurm-client); without Slurm, use `farwire run`, or `farwire run --shard` on several hosts"))
                .or_machine()?;
        }
        let config = run("scontrol", &["show", "config"]).and_then(SlurmOutput::answer);
        let config = config.context("Slurm does not answer").or_machine()?;
        Ok(Self {
            config,
            stop: stop.clone(),
        })
    }

    /// How many tasks an array may have that counts from 1.
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

    /// The partition whose nodes sbatch takes, or several with commas between; nothing where none is said and Slurm has no default: then
    /// Slurm decides, or refuses.
    ///
    /// # Errors
    /// There is none of that name; none of its nodes has so many processors.
    pub(super) fn partition(
        &self,
        asked: Option<&str>,
        cpus: u32,
    ) -> Result<Option<String>, Failure> {
        let all = self.ask("sinfo", &["--noheader", "--all", "--format=%P"])?;
        let environment = env::var(PARTITION).ok();
        let partition = partition(asked, environment.as_deref(), &all)?;
        let counts = self.of_nodes(partition.as_deref(), "%c")?;
        let counts = counts.iter().filter_map(|count| count.parse::<u32>().ok());
        let of = partition.as_ref().map(|name| format!(" of {name}"));
        match counts.max() {
            Some(most) if most < cpus => Err(Failure::bad_input(format_args!(
                "--cpus {cpus}: the largest node{} has {most}",
                of.unwrap_or_default()
            ))),
            _ => Ok(partition),
        }
    }

    /// The nodes of a partition, of several with commas between, or all.
    pub(super) fn nodes(&self, partition: Option<&str>) -> Result<Vec<Node>> {
        let nodes = self.of_nodes(partition, NODE)?;
        nodes.iter().map(|line| Node::parse(line)).collect()
    }

    /// What sinfo(1) says of each node of a partition, or of all.
    fn of_nodes(&self, partition: Option<&str>, what: &str) -> Result<BTreeSet<String>> {
        let partition = partition.map(|name| format!("--partition={name}"));
        let format = format!("--format={what}");
        let mut arguments = vec!["--noheader", "--Node"];
        arguments.extend(partition.as_deref());
        arguments.push(&format);
        let said = self.ask("sinfo", &arguments)?;
        let lines = said.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty());
        Ok(lines.map(str::to_owned).collect())
    }

    /// Hands in a script that gives its job this name, which no other has, without these variables of the environment. Never twice: what
    /// Slurm may have is looked for.
    ///
    /// # Errors
    /// Whether Slurm has it is not known.
    pub(super) fn submit(&self, script: &Path, name: &str, without: &[&str]) -> Result<Submitted> {
        let script = script.display().to_string();
        let mut silence = Silence::of(&self.stop);
        loop {
            let said = match run_without("sbatch", &["--parsable", &script], without) {
                Ok(said) => said,
                Err(why) => return Ok(Submitted::Unreached(why)),
            };
            let failed = said.fate();
            match (said.answer(), failed) {
                (Ok(said), _) => {
                    // With several clusters its name follows.
                    let job = said.trim().split(';').next();
                    let job = job.and_then(|job| job.parse().ok());
                    let job = job.with_context(|| format!("sbatch says `{}`", said.trim()))?;
                    return Ok(Submitted::Job(job));
                }
                (Err(why), CommandFailure::Refused) => return Ok(Submitted::Refused(why)),
                (Err(why), CommandFailure::Unknown) => return self.look_for(name, why),
                (Err(why), CommandFailure::Unreached) => {
                    if let Err(why) = silence.wait(why) {
                        return Ok(Submitted::Unreached(why));
                    }
                }
            }
        }
    }

    /// The job with this name, which sbatch handed in or not before it failed because of `why`.
    fn look_for(&self, name: &str, why: anyhow::Error) -> Result<Submitted> {
        let begun = Instant::now();
        loop {
            if let Some(task) = self.tasks(name)?.first() {
                return Ok(Submitted::Job(task.job));
            }
            if begun.elapsed() > ANSWER || self.stop.cause().is_some() {
                return Err(why.context(
                    "it is unknown whether Slurm accepted the array; the same command finds out",
                ));
            }
            thread::sleep(AGAIN);
        }
    }

    /// Asks until there is an answer, for ten minutes at most: the controller may be starting again. For what does no harm when done twice.
    fn ask(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let mut silence = Silence::of(&self.stop);
        loop {
            match run(program, arguments).and_then(SlurmOutput::answer) {
                Ok(said) => return Ok(said),
                Err(error) => silence.wait(error)?,
            }
        }
    }

    /// The tasks of the job with this name that Slurm still knows.
    pub(super) fn tasks(&self, name: &str) -> Result<Vec<Task>> {
        let name = format!("--name={name}");
        let said = self.ask(
            "squeue",
            &["--me", &name, "--states=all", "--array", "--noheader", TASK],
        )?;
        let tasks = said.lines().filter(|line| !line.trim().is_empty());
        tasks.map(|line| Task::parse(line.trim())).collect()
    }

    /// The tasks of the job with this name that wait or run: the job's number, and the shard.
    pub(super) fn alive(&self, name: &str) -> Result<BTreeSet<(u32, u32)>> {
        let tasks = self.tasks(name)?.into_iter();
        let alive = tasks.filter(|task| !task.has_ended() && task.state != "COMPLETING");
        Ok(alive.map(|task| (task.job, task.shard)).collect())
    }

    /// Ends what is left of the job with this name; which tasks that were.
    pub(super) fn cancel(&self, name: &str) -> Result<BTreeSet<(u32, u32)>> {
        let left = self.alive(name)?;
        let jobs: BTreeSet<u32> = left.iter().map(|(job, _)| *job).collect();
        for job in jobs {
            self.ask("scancel", &["--quiet", &job.to_string()])?;
        }
        Ok(left)
    }
}

/// The partition that sbatch takes: the one that was asked for, else that of the environment, else the default of `all`, a line each, which
/// sinfo(1) marks, if there is one.
fn partition(
    asked: Option<&str>,
    environment: Option<&str>,
    all: &str,
) -> Result<Option<String>, Failure> {
    let lines = all.split_whitespace();
    let default = lines.clone().find_map(|line| line.strip_suffix('*'));
    let names: BTreeSet<&str> = lines
        .map(|line| line.strip_suffix('*').unwrap_or(line))
        .collect();
    let environment = environment.filter(|names| !names.is_empty());
    let (by, said) = match (asked, environment) {
        (Some(asked), _) => ("--partition", asked),
        (None, Some(set)) => (PARTITION, set),
        (None, None) => return Ok(default.map(str::to_owned)),
    };
    match said.split(',').find(|name| !names.contains(name)) {
        Some(name) => Err(Failure::bad_input(format_args!(
            "{by} {name}: Slurm has no such partition; the partitions are: {}",
            names.iter().copied().collect::<Vec<_>>().join(", ")
        ))),
        None => Ok(Some(said.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_partition_is_the_one_that_was_asked_for_else_the_users_else_slurms() {
        let all = "long\nmain*\nshort\n";
        let of = |asked, environment| partition(asked, environment, all).unwrap().unwrap();
        assert_eq!(of(None, None), "main");
        assert_eq!(of(None, Some("")), "main");
        assert_eq!(of(None, Some("long,short")), "long,short");
        assert_eq!(of(Some("short"), Some("gone")), "short");
        let refused = |asked, environment, all| {
            let failure = partition(asked, environment, all).unwrap_err();
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
    fn a_node_is_usable_unless_somebody_has_to_mend_it() {
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
