//! `--resume` finishes an experiment that was killed repeatedly: it has every run once, and none is lost.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use test_support::process::{self, farwire, has, stdout};
use test_support::scenario::{HEAD, PING, PLAIN, Small};

/// The experiment is long enough to be killed in any part of it, including the reports.
const CASES: &str = "\
[[cases]]
name = 'grid'
repeats = 4
sweep = { 'link.delay' = ['0ms', '1ms', '2ms', '3ms', '4ms'] }
";
const KILLS: u32 = 20;
/// The latest moment of a kill; the moments are drawn from the seed.
const LATEST_MS: u64 = 1_500;
const SEED: u64 = 4;

#[test_support::test(Namespaces)]
fn an_experiment_killed_20_times_at_random_moments_has_every_run_once_when_resumed() -> Result<()> {
    let small = Small::of(&[PING, CASES])?;
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut begun = false;
    for number in 0..KILLS {
        let mut command = match (begun, number % 2) {
            (true, 0) => resume(&small),
            (true, _) => resume_with_baselines(&small),
            (false, _) => small.command(),
        };
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        thread::sleep(Duration::from_millis(random.u64(..LATEST_MS)));
        end(&mut child)?;
        begun = small.path("out/record.jsonl").exists();
    }
    let mut command = if begun {
        resume(&small)
    } else {
        small.command()
    };
    process::succeeds(&mut command)?;
    check(&small)
}

#[test_support::test(Namespaces)]
fn a_finished_experiment_that_is_resumed_runs_nothing() -> Result<()> {
    let small = Small::of(&[PING, CASES])?;
    ensure!(small.run()?.status.success());
    check(&small)?;
    ensure!(process::run(&mut resume(&small))?.status.success());
    check(&small)
}

/// The machine is measured at the start and the end, and again when the experiment is resumed.
#[test_support::test(Namespaces)]
fn a_finished_experiment_has_two_baselines_and_one_that_was_resumed_three() -> Result<()> {
    let small = Small::of(&[PING, CASES])?;
    process::succeeds(&mut small.command_with_baselines())?;
    ensure!(places(&small)?.starts_with("BR") && places(&small)?.ends_with("RBF"));
    ensure!(places(&small)?.matches('B').count() == 2);
    // An experiment that is killed after its first run leaves this.
    let file = small.path("out/record.jsonl");
    let text = fs::read_to_string(&file)?;
    let cut: String = text.split_inclusive('\n').take(3).collect();
    fs::write(&file, cut)?;
    process::succeeds(&mut resume_with_baselines(&small))?;
    ensure!(places(&small)?.starts_with("BRBR") && places(&small)?.ends_with("RBF"));
    ensure!(places(&small)?.matches('B').count() == 3);
    check(&small)
}

/// No packet leaves within a nanosecond of its due time, so all attempts of the run are invalid at first.
#[test_support::test(Namespaces)]
fn a_record_that_was_started_too_strictly_goes_on_with_another_late_budget() -> Result<()> {
    let strict = HEAD.replace("late_budget = '1s'", "late_budget = '1ns'");
    let small = Small::written(&(strict + PING + PLAIN))?;
    let output = small.run()?;
    ensure!(output.status.code() == Some(1), "{}", stdout(&output));
    let outcomes = || -> Result<Vec<Value>> {
        let runs = small.runs()?.into_iter();
        Ok(runs.map(|run| run["outcome"]["outcome"].clone()).collect())
    };
    ensure!(outcomes()? == ["invalid"; 3], "{:?}", outcomes()?);
    let looser = |command: &mut Command| {
        command.args(["--redo-invalid", "--late-budget", "1s"]);
    };
    let mut check = resume(&small);
    looser(&mut check);
    process::succeeds(check.arg("--check"))?;
    ensure!(outcomes()?.len() == 3, "--check changed the record");
    let mut command = resume(&small);
    looser(&mut command);
    let output = process::succeeds(&mut command)?;
    has(
        &stdout(&output),
        "after 3 runs, the late budget is 1s instead of 1ns",
    )?;
    ensure!(outcomes()?[3..] == ["ok"], "{:?}", outcomes()?);
    let lines = small.record()?;
    let changes = lines.iter().filter_map(|line| line.get("late_budget"));
    let changes: Vec<&Value> = changes.collect();
    ensure!(changes.len() == 1, "{changes:?}");
    ensure!(changes[0]["late_budget"] == "1s", "{changes:?}");
    ensure!(changes[0]["after_runs"] == 3, "{changes:?}");
    ensure!(lines[0]["plan"]["late_budget"] == "1ns", "the head changed");
    let runs = small.runs()?;
    let budget = |run: &Value| run["measurements"][0]["departures"][0]["budget_ns"].clone();
    ensure!(budget(&runs[0]) == 1, "{}", runs[0]);
    ensure!(budget(&runs[3]) == 1_000_000_000, "{}", runs[3]);
    Ok(())
}

/// Returns a letter for each line of the record after its head: a baseline, a run, the end.
fn places(small: &Small) -> Result<String> {
    let letter = |line: &Value| match line.as_object()?.keys().next()?.as_str() {
        "baseline" => Some('B'),
        "run" => Some('R'),
        "finished_at" => Some('F'),
        _ => None,
    };
    let record = small.record()?;
    let letters: Option<String> = record.iter().skip(1).map(letter).collect();
    letters.context("another line")
}

/// Checks that every run of the plan is there once, and that the record says once that it is finished.
fn check(small: &Small) -> Result<()> {
    ensure!(small.is_finished()?, "it is not finished");
    let mut runs: Vec<(String, u64)> = Vec::new();
    for run in small.runs()? {
        let case = run["case"].as_str().context("a case")?.to_owned();
        // The attempt that counts follows an attempt that the machine spoilt.
        if run["outcome"]["outcome"] != "invalid" || run["attempt"] == 3 {
            runs.push((case, run["repeat"].as_u64().context("a repeat")?));
        }
    }
    runs.sort();
    let wanted = (0..5).flat_map(|ms| (1..=4).map(move |n| (format!("grid[delay={ms}ms]"), n)));
    ensure!(runs == wanted.collect::<Vec<_>>(), "{runs:?}");
    Ok(())
}

fn resume_with_baselines(small: &Small) -> Command {
    let mut command = farwire();
    command.arg("run").arg("--resume").arg(small.path("out"));
    command
}

fn resume(small: &Small) -> Command {
    let mut command = resume_with_baselines(small);
    command.arg("--no-baseline");
    command
}

/// Kills processes that still run.
fn end(child: &mut Child) -> Result<()> {
    if child.try_wait()?.is_none() {
        kill(Pid::from_raw(i32::try_from(child.id())?), Signal::SIGKILL)?;
        child.wait()?;
    }
    Ok(())
}
