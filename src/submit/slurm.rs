//! Slurm's commands, in forms that are stable from 22.05 on and need no accounting database.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};

use instruments::failure::{Blame, Failure};
use netio::kill_on_drop::KillOnDrop;

/// Slurm's default of MaxArraySize, less the task 0.
pub(super) const USUAL_MOST_TASKS: u32 = 1000;
/// What a command may take; they repeat by themselves what a controller does not answer.
const PATIENCE: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(10);
/// How squeue(1) is to show a task.
const TASK: &str = "--format=%F|%K|%T|%N|%r";
/// What users set to have their own views, which are not ours, and what would override a script's own lines.
const FOREIGN: [&str; 2] = ["SQUEUE_", "SINFO_"];
const OVERRIDING: [&str; 7] = [
    "SBATCH_ARRAY_INX",
    "SBATCH_JOB_NAME",
    "SBATCH_OUTPUT",
    "SBATCH_ERROR",
    "SBATCH_REQUEUE",
    "SBATCH_WAIT",
    "SBATCH_CLUSTERS",
];

/// A Slurm that answers.
#[derive(Debug)]
pub(super) struct Slurm {
    /// As `scontrol show config` says.
    config: String,
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

impl Slurm {
    /// The Slurm that this machine's commands reach.
    ///
    /// # Errors
    /// There is none: says what is missing.
    pub(super) fn find() -> Result<Self, Failure> {
        for name in ["sbatch", "squeue", "sinfo", "scontrol", "scancel"] {
            let found = which::which(name);
            found
                .map_err(|_| anyhow!("no {name} on PATH: `submit` is for hosts from which Slurm's jobs are submitted (on Debian the package slurm-client); one machine does `farwire run`, several without Slurm `farwire run --shard`"))
                .or_machine()?;
        }
        let config = ask("scontrol", &["show", "config"]);
        let config = config.context("Slurm does not answer").or_machine()?;
        Ok(Self { config })
    }

    /// How many tasks an array may have that counts from 1.
    pub(super) fn most_tasks(&self) -> Result<u32, Failure> {
        let line = self
            .config
            .lines()
            .find(|line| line.starts_with("MaxArraySize"));
        let size = line.and_then(|line| line.split_once('=')?.1.trim().parse::<u32>().ok());
        let most = size.context("scontrol show config does not say MaxArraySize")?;
        if most < 2 {
            return Err(Failure::machine(
                "this Slurm knows no job arrays: its MaxArraySize is below 2",
            ));
        }
        Ok(most - 1)
    }

    /// Refuses a partition that there is not, and more processors than any of its nodes has.
    pub(super) fn check(&self, partition: Option<&str>, cpus: u32) -> Result<(), Failure> {
        let all = ask("sinfo", &["--noheader", "--all", "--format=%R"])?;
        let all: BTreeSet<&str> = all.split_whitespace().collect();
        let mut asked = partition.into_iter().flat_map(|names| names.split(','));
        if let Some(name) = asked.find(|name| !all.contains(name)) {
            return Err(Failure::bad_input(format_args!(
                "--partition {name}: Slurm has no such partition; there are: {}",
                all.into_iter().collect::<Vec<_>>().join(", ")
            )));
        }
        let counts = self.of_nodes(partition, "%c")?;
        let counts = counts.iter().filter_map(|count| count.parse::<u32>().ok());
        match counts.max() {
            Some(most) if most < cpus => Err(Failure::bad_input(format_args!(
                "--cpus {cpus}: the largest node has {most}"
            ))),
            _ => Ok(()),
        }
    }

    /// The nodes of the partition, or of all.
    pub(super) fn nodes(&self, partition: Option<&str>) -> Result<BTreeSet<String>> {
        self.of_nodes(partition, "%N")
    }

    /// What sinfo(1) says of each node of the partition, or of all.
    fn of_nodes(&self, partition: Option<&str>, what: &str) -> Result<BTreeSet<String>> {
        let partition = partition.map(|name| format!("--partition={name}"));
        let format = format!("--format={what}");
        let mut arguments = vec!["--noheader", "--Node", &format];
        arguments.extend(partition.as_deref());
        let all = ask("sinfo", &arguments)?;
        Ok(all.split_whitespace().map(str::to_owned).collect())
    }

    /// Hands in a script; the job's number. What Slurm refuses of the `first` one is what was asked for.
    pub(super) fn submit(&self, script: &Path, first: bool) -> Result<u32, Failure> {
        let script = script.display().to_string();
        let submitted = ask("sbatch", &["--parsable", &script]);
        let said = match first {
            true => submitted.or_bad_input()?,
            false => submitted?,
        };
        // With several clusters its name follows.
        let job = said
            .trim()
            .split(';')
            .next()
            .and_then(|job| job.parse().ok());
        Ok(job.with_context(|| format!("sbatch says `{}`", said.trim()))?)
    }

    /// The tasks of the job with this name that Slurm still knows.
    pub(super) fn tasks(&self, name: &str) -> Result<Vec<Task>> {
        let name = format!("--name={name}");
        let said = ask(
            "squeue",
            &["--me", &name, "--states=all", "--array", "--noheader", TASK],
        )?;
        let tasks = said.lines().filter(|line| !line.trim().is_empty());
        tasks.map(|line| Task::parse(line.trim())).collect()
    }

    /// Ends what is left of the job with this name; how many tasks that were.
    pub(super) fn cancel(&self, name: &str) -> Result<usize> {
        let tasks = self.tasks(name)?;
        let left: Vec<&Task> = tasks.iter().filter(|task| !task.has_ended()).collect();
        let jobs: BTreeSet<u32> = left.iter().map(|task| task.job).collect();
        for job in jobs {
            ask("scancel", &["--quiet", &job.to_string()])?;
        }
        Ok(left.len())
    }
}

/// Runs one of Slurm's commands; what it prints.
fn ask(program: &str, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    command.args(arguments).env("LC_ALL", "C");
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if FOREIGN.iter().any(|prefix| text.starts_with(prefix)) || OVERRIDING.contains(&&*text) {
            command.env_remove(&name);
        }
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut running = KillOnDrop::spawn(&mut command).with_context(|| program.to_owned())?;
    let child = running.streams();
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let begun = Instant::now();
    thread::scope(|scope| {
        let stdout = scope.spawn(move || text(stdout));
        let stderr = scope.spawn(move || text(stderr));
        let ended = loop {
            match running.streams().try_wait()? {
                Some(status) => break Some(status),
                None if begun.elapsed() > PATIENCE => break None,
                None => thread::sleep(STEP),
            }
        };
        if ended.is_none() {
            drop(running);
        }
        let stdout = stdout.join().unwrap_or_default();
        let stderr = stderr.join().unwrap_or_default();
        let status = ended
            .with_context(|| format!("{program} did not answer within {} s", PATIENCE.as_secs()))?;
        // Beside its cause it repeats the outcome: the lines make one.
        let cause: Vec<&str> = stderr
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect();
        ensure!(
            status.success(),
            "{}",
            match &cause[..] {
                [] => format!("{program}: {status}"),
                cause => cause.join("; "),
            }
        );
        Ok(stdout)
    })
}

fn text(stream: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        // What could be read before an error is what there is to say.
        let _ = stream.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

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
