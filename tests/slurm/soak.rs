//! Two hundred runs, one at a time: they agree with those of one machine, take little more time, and are complete although everything
//! is killed meanwhile.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use record::figure_name::FigureName;
use record::{Record, Run};

use super::cluster::{Experiment, configuration, slurm};
use test_support::process::farwire;

const CASES: u32 = 20;
const REPEATS: u32 = 10;
/// The number of runs that may be outside of the 95 % prediction interval of their case on one machine.
const MOST_OUTSIDE: usize = 20;
/// The largest ratio of wall time to that of one machine.
const MOST_OVERHEAD: f64 = 1.1;
const LONGEST: Duration = Duration::from_secs(3600);
/// Student's t at 97.5 %, with one degree of freedom less than there are repeats.
const T: f64 = 2.262;
/// Keys of a case for runs of about 1.8 s.
const MORE: &str =
    "parameters = { ping = { count = 70, interval = '20ms' } }\nlink = { delay = '2ms' }\n";
/// The shard time for three shards of two minutes, one for each node. Each costs two baselines, 4 s, and Slurm's time between two tasks.
const LONG: &str = "110s";
/// The shard time for six shards.
const SHORT: &str = "60s";

fn submit(experiment: &Experiment, shard_time: &str) -> Result<Child> {
    let mut command = experiment.submit_by(farwire(), shard_time)?;
    command.args(["--max-tasks", "1"]);
    Ok(command.stdout(Stdio::null()).spawn()?)
}

/// Waits for the end of a command that may take long, and returns its duration.
fn end(mut child: Child) -> Result<Duration> {
    let begun = Instant::now();
    loop {
        match child.try_wait()? {
            Some(status) => {
                // A run that the machine spoilt in all attempts makes the exit code 1; the record shows whether it is complete.
                ensure!(status.code().is_some_and(|code| code < 2), "{status}");
                return Ok(begun.elapsed());
            }
            None if begun.elapsed() > LONGEST => {
                child.kill()?;
                bail!("not done within {LONGEST:?}");
            }
            None => thread::sleep(Duration::from_millis(50)),
        }
    }
}

#[test_support::test(serial, Root, Tool("slurmctld"), Tool("munged"), Soak)]
fn two_hundred_runs_on_three_nodes_are_as_those_of_one_machine_and_take_a_tenth_longer_at_most()
-> Result<()> {
    let experiment = Experiment::with(CASES, REPEATS, MORE)?;
    configuration()?;
    let mut single = farwire();
    single.current_dir(experiment.path(""));
    single.args(["run", "small.toml", "--out", "single"]);
    let alone = end(single.stdout(Stdio::null()).spawn()?)?;
    let together = end(submit(&experiment, LONG)?)?;
    let overhead = together.as_secs_f64() / alone.as_secs_f64();
    let single = Record::read(&experiment.path("single"))?;
    let outside = outside(&single, &experiment.record()?)?;
    println!("one machine {alone:?}, cluster {together:?}: {overhead:.3}; {outside} runs outside");
    ensure!(
        outside <= MOST_OUTSIDE,
        "{outside} runs are not as on one machine"
    );
    ensure!(
        overhead <= MOST_OVERHEAD,
        "{overhead} times as long as on one machine"
    );
    Ok(())
}

/// Counts the runs of `other` outside of the prediction interval of their case in `single`.
fn outside(single: &Record, other: &Record) -> Result<usize> {
    let of: FigureName = "ping.rtt_ms.median".parse().map_err(anyhow::Error::msg)?;
    let values = |record: &Record, case: &str| -> Vec<f64> {
        let runs = record.runs.iter().filter(|run| run.case == case);
        // The last attempt counts.
        let counts = |run: &&Run| {
            record
                .latest()
                .run(case, run.repeat)
                .is_some_and(|last| last.attempt == run.attempt)
        };
        let figures = runs
            .filter(counts)
            .filter_map(|run| Some(of.find(&run.measured("ping")?.measurement)?.value));
        figures.collect()
    };
    let mut outside = 0;
    for case in &single.plan().cases {
        let (known, found) = (values(single, &case.name), values(other, &case.name));
        ensure!(known.len() == REPEATS as usize, "{known:?}, {found:?}");
        ensure!(found.len() == known.len(), "{known:?}, {found:?}");
        let repeats = f64::from(REPEATS);
        let mean = known.iter().sum::<f64>() / repeats;
        let variance = known
            .iter()
            .map(|value| (value - mean).powi(2))
            .sum::<f64>()
            / (repeats - 1.0);
        let half = T * (variance * (1.0 + 1.0 / repeats)).sqrt();
        outside += found
            .iter()
            .filter(|value| (**value - mean).abs() > half)
            .count();
    }
    Ok(outside)
}

#[test_support::test(serial, Root, Tool("slurmctld"), Tool("munged"), Soak)]
fn twice_a_task_a_slurmstepd_a_slurmd_and_the_submit_are_killed_and_every_run_is_there_once()
-> Result<()> {
    let experiment = Experiment::with(CASES, REPEATS, MORE)?;
    let mut submitted = submit(&experiment, SHORT)?;
    for _ in 0..2 {
        for victim in ["farwire", "slurmstepd", "slurmd"] {
            let pid = find(victim, &mut submitted)?;
            println!("SIGKILL for {victim}, process {pid}");
            kill(pid, Signal::SIGKILL)?;
            // The next one belongs to another task, or to a process that was restarted.
            thread::sleep(Duration::from_secs(5));
        }
        submitted.kill()?;
        submitted.wait()?;
        submitted = submit(&experiment, SHORT)?;
    }
    end(submitted)?;
    experiment.record()?;
    Ok(())
}

/// Finds a process of the cluster with this name, on a node where a task runs.
fn find(name: &str, submitted: &mut Child) -> Result<Pid> {
    let begun = Instant::now();
    let configuration = configuration()?.display().to_string();
    loop {
        ensure!(
            submitted.try_wait()?.is_none(),
            "it ended before all was killed"
        );
        ensure!(begun.elapsed() < LONGEST, "no {name} within {LONGEST:?}");
        let nodes = slurm("squeue --noheader --states=RUNNING --format=%N").unwrap_or_default();
        let all = processes()?;
        let cluster = all.iter().find(|process| {
            process.name == "slurmctld" && process.arguments.contains(&configuration)
        });
        let cluster = &cluster.context("no slurmctld")?.namespace;
        let found = all
            .iter()
            .filter(|process| process.name == name && process.namespace == *cluster);
        let mut found = found.filter(|process| match name {
            "farwire" => {
                process.arguments.contains("--shard") || process.arguments.contains("--resume")
            }
            "slurmstepd" => process.arguments.contains(".batch"),
            _ => nodes
                .lines()
                .any(|node| process.arguments.contains(&format!("-N {node} "))),
        });
        if let Some(found) = found.next() {
            return Ok(found.pid);
        }
        thread::sleep(Duration::from_millis(100));
    }
}

struct Process {
    pid: Pid,
    name: String,
    /// Separated by spaces.
    arguments: String,
    /// The PID namespace.
    namespace: String,
}

fn processes() -> Result<Vec<Process>> {
    let entries = fs::read_dir("/proc")?;
    let of = |path: &Path| -> Option<Process> {
        let arguments = fs::read(path.join("cmdline")).ok()?;
        let arguments = String::from_utf8_lossy(&arguments).replace('\0', " ");
        Some(Process {
            pid: Pid::from_raw(path.file_name()?.to_str()?.parse().ok()?),
            name: fs::read_to_string(path.join("comm"))
                .ok()?
                .trim_end()
                .to_owned(),
            arguments,
            namespace: fs::read_link(path.join("ns/pid"))
                .ok()?
                .display()
                .to_string(),
        })
    };
    Ok(entries
        .filter_map(|entry| of(&entry.ok()?.path()))
        .collect())
}
