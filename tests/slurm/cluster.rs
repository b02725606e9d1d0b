//! A Slurm with three nodes on this machine, and experiments that are submitted to it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use record::Record;
use serde_json::Value;
use tempfile::TempDir;

use test_support::process::{self, farwire, stderr};
use test_support::scenario::{HEAD, PING};

/// The cluster; the first test that needs it starts it.
static CLUSTER: Mutex<Option<TempDir>> = Mutex::new(None);

/// Starts the cluster if necessary and returns its configuration.
pub(crate) fn configuration() -> Result<PathBuf> {
    let mut cluster = CLUSTER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(directory) = &*cluster {
        return Ok(directory.path().join("slurm.conf"));
    }
    let directory = tempfile::tempdir()?;
    // The user munge must reach it.
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755))?;
    let output = process::succeeded(slurm_here("start", directory.path())?)?;
    // Print how long the start took.
    eprint!("{}", stderr(&output));
    let configuration = directory.path().join("slurm.conf");
    *cluster = Some(directory);
    Ok(configuration)
}

/// Ends the cluster, if a test started it.
pub(crate) fn stop() {
    let mut cluster = CLUSTER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(directory) = cluster.take() {
        let output = slurm_here("stop", directory.path()).expect("slurm-here");
        assert!(output.status.success(), "{}", stderr(&output));
    }
}

fn slurm_here(what: &str, directory: &Path) -> Result<Output> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/slurm-here");
    let mut command = Command::new(script);
    command.arg(what).arg(directory);
    // The started processes hold no pipe of this one. A slurmd that ends immediately is started again after 45 s.
    process::run_for(&mut command, Duration::from_secs(90))
}

/// Returns the program under test, with a time limit.
pub(crate) fn bounded() -> Command {
    let mut command = Command::new("timeout");
    command.arg("300").arg(farwire().get_program());
    command
}

/// Runs a command that has its own time limit.
pub(crate) fn run(command: &mut Command) -> Result<Output> {
    Ok(command.stdin(Stdio::null()).output()?)
}

/// Runs one of Slurm's commands; it must succeed.
pub(crate) fn slurm(line: &str) -> Result<String> {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().context("a command")?);
    command.args(words).env("SLURM_CONF", configuration()?);
    let output = process::run(&mut command)?;
    ensure!(output.status.success(), "{line}: {}", stderr(&output));
    Ok(String::from_utf8(output.stdout)?)
}

/// An experiment in a new directory.
pub(crate) struct Experiment {
    directory: TempDir,
    expected: BTreeSet<(String, u32)>,
}

impl Experiment {
    /// Creates an experiment with this many cases, with one run for each.
    pub(crate) fn of(cases: u32) -> Result<Self> {
        Self::with(cases, 1, "")
    }

    /// Creates an experiment with this many cases and repeats, and with `more` in each case.
    pub(crate) fn with(cases: u32, repeats: u32, more: &str) -> Result<Self> {
        let names = (1..=cases).map(|case| format!("case-{case}"));
        let text = names
            .clone()
            .map(|name| format!("[[cases]]\nname = '{name}'\nrepeats = {repeats}\n{more}"));
        let directory = tempfile::tempdir()?;
        let text: String = text.collect();
        fs::write(
            directory.path().join("small.toml"),
            [HEAD, PING, &text].concat(),
        )?;
        let runs = names.flat_map(|name| (1..=repeats).map(move |repeat| (name.clone(), repeat)));
        Ok(Self {
            directory,
            expected: runs.collect(),
        })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the command that submits it, with a shard for each run and a time limit.
    pub(crate) fn submit(&self) -> Result<Command> {
        self.submit_by(bounded(), "1ms")
    }

    /// The same, with another copy of the program and shards of at least `time`.
    pub(crate) fn submit_by(&self, mut program: Command, time: &str) -> Result<Command> {
        program
            .current_dir(self.path(""))
            .env("SLURM_CONF", configuration()?)
            .args(["submit", "small.toml", "--slurm", "--out", "out"])
            .args(["--shard-time", time]);
        Ok(program)
    }

    /// Runs `submit` with an option such as "--status" on the directory.
    pub(crate) fn about(&self, option: &str) -> Result<Output> {
        let mut command = farwire();
        command.args(["submit", option]).arg(self.path("out"));
        process::run(command.env("SLURM_CONF", configuration()?))
    }

    /// Returns the JSON output of such a command.
    pub(crate) fn json(&self, option: &str) -> Result<Value> {
        let mut command = farwire();
        command.args(["submit", option]).arg(self.path("out"));
        let command = command.args(["--json", "-"]);
        process::json(command.env("SLURM_CONF", configuration()?))
    }

    /// Waits until none of its tasks is in Slurm's queue.
    pub(crate) fn wait_for_queue(&self) -> Result<()> {
        process::wait_for("the queue to be empty", || {
            Ok(slurm("squeue --noheader")?.trim().is_empty().then_some(()))
        })
    }

    /// Reads the joined record, which must have every run once.
    pub(crate) fn record(&self) -> Result<Record> {
        let record = Record::read(&self.path("out"))?;
        let mut found: BTreeMap<(String, u32), Vec<u32>> = BTreeMap::new();
        for run in &record.runs {
            let run_of = (run.case.clone(), run.repeat);
            found.entry(run_of).or_default().push(run.attempt);
        }
        // Runs that the machine spoilt were attempted again.
        let in_order = |attempts: &Vec<u32>| {
            (1..)
                .zip(attempts)
                .all(|(number, attempt)| number == *attempt)
        };
        ensure!(found.values().all(in_order), "{found:?}");
        ensure!(found.into_keys().collect::<BTreeSet<_>>() == self.expected);
        ensure!(record.finished_at.is_some(), "it is unfinished");
        Ok(record)
    }
}
