//! Experiments that succeed, and submits that end in between.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::cluster::{Experiment, bounded, configuration, run, slurm};
use test_support::process::{self, ends_with, farwire, has, stderr, stdout};

#[test_support::test(serial, Root, Tool("slurmctld"), Tool("munged"))]
fn twelve_cases_on_three_nodes_one_at_a_time_every_run_once_in_the_joined_record() -> Result<()> {
    let experiment = Experiment::of(12)?;
    experiment.wait_for_queue()?;
    let mut command = experiment.submit_by(bounded(), "2s")?;
    command
        .args(["--max-tasks", "1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let submit = command.spawn()?;
    // Slurm chooses the node, so the test takes away the first one that it uses.
    let first = process::wait_for("a task that runs", || {
        let running = slurm("squeue --noheader --states=RUNNING --format=%N")?;
        Ok(running.split_whitespace().next().map(str::to_owned))
    });
    let drained = first.and_then(|node| {
        slurm(&format!(
            "scontrol update NodeName={node} State=DRAIN Reason=test"
        ))?;
        Ok(node)
    });
    let output = submit.wait_with_output()?;
    slurm(&format!(
        "scontrol update NodeName={} State=RESUME",
        drained?
    ))?;
    ensure!(output.status.success(), "{}", stderr(&output));
    has(&stderr(&output), "12 runs")?;
    let record = experiment.record()?;
    ensure!(record.head.hosts.len() > 1, "one node did it all");
    let mut hosts = record.head.hosts.iter();
    ensure!(hosts.all(|host| host.name.starts_with("node")));
    for file in ["report.html", "runs.csv", "samples.csv"] {
        ensure!(experiment.path("out").join(file).exists(), "no {file}");
    }
    // Nothing is left to do: the same command shows the report again.
    let again = process::succeeded(run(&mut experiment.submit()?)?)?;
    ensure!(stdout(&again) == stdout(&output), "{}", stdout(&again));
    // Another experiment is refused there.
    let other = run(experiment.submit()?.arg("--quick"))?;
    ends_with(&other, 2, "not with --quick")?;
    Ok(())
}

#[test_support::test(serial, All, Root, Tool("slurmctld"), Tool("munged"))]
fn a_second_submit_is_refused_and_one_that_was_killed_goes_on_when_started_again() -> Result<()> {
    let experiment = Experiment::of(4)?;
    // Slurm may still be cleaning up tasks of another test, which do not count here.
    experiment.wait_for_queue()?;
    let mut command = experiment.submit_by(farwire(), "1ms")?;
    command
        .args(["--max-tasks", "1"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut first = command.spawn()?;
    process::wait_for("a task", || {
        Ok((!slurm("squeue --noheader")?.is_empty()).then_some(()))
    })?;
    let second = run(&mut experiment.submit()?)?;
    ensure!(second.status.code() == Some(2), "{}", stderr(&second));
    let said = stderr(&second);
    let holder = format!("process {} on ", first.id());
    has(&said, "another submit uses")?;
    has(&said, &holder)?;
    first.kill()?;
    first.wait()?;
    let again = process::succeeded(run(&mut experiment.submit()?)?)?;
    // It waited for the array that the first one had submitted.
    ensure!(!stderr(&again).contains("job "), "{}", stderr(&again));
    experiment.record()?;
    Ok(())
}

#[test_support::test(serial, All, Root, Tool("slurmctld"), Tool("munged"))]
fn without_waiting_status_cancelling_and_going_on() -> Result<()> {
    let experiment = Experiment::of(4)?;
    slurm("scontrol update PartitionName=main State=DOWN")?;
    let handed = run(experiment.submit()?.arg("--detach"));
    let status = experiment.about("--status");
    let as_json = experiment.json("--status");
    let ended = experiment.about("--cancel");
    slurm("scontrol update PartitionName=main State=UP")?;
    let (handed, status, ended) = (handed?, status?, ended?);
    let json = as_json?;
    ensure!(json["name"] == "small", "{json}");
    ensure!(json["shards_complete"] == 0, "{json}");
    ensure!(json["runs_missing"] == 4, "{json}");
    let shards = json["shards"].as_array().context("shards")?;
    let waits = |shard: &Value| {
        let why = shard["waits"].as_str().unwrap_or_default();
        shard["state"] == "waiting" && why.starts_with("PENDING, ") && shard["node"].is_null()
    };
    ensure!(shards.len() == 4 && shards.iter().all(waits), "{json}");
    // If no task runs, the remaining time is unknown.
    ensure!(json["left_s"].is_null(), "{json}");
    ensure!(handed.status.success(), "{}", stderr(&handed));
    let said = stdout(&status);
    has(&said, "small: 0 of 4 shards complete\n")?;
    // Slurm states the reason for waiting once it has looked at the tasks.
    let waits = |line: &str| line.starts_with("PENDING, ") && line.ends_with(": 1-4");
    ensure!(said.lines().any(waits), "{said}");
    has(&stdout(&ended), "4 tasks cancelled")?;
    let again = process::succeeded(run(&mut experiment.submit()?)?)?;
    // The cancelled array is not queried again.
    ensure!(!stderr(&again).contains("CANCELLED"), "{}", stderr(&again));
    experiment.record()?;
    let json = experiment.json("--status")?;
    ensure!(json["shards_complete"] == 4, "{json}");
    ensure!(json["runs_done"] == 4, "{json}");
    ensure!(json["runs_missing"] == 0, "{json}");
    ensure!(json["left_s"] == 0.0, "{json}");
    ensure!(experiment.json("--cancel")?["ended"] == 0);
    Ok(())
}

#[test_support::test(serial, All, Root, Tool("slurmctld"), Tool("munged"))]
fn cancelled_while_tasks_run_it_goes_on_at_once_when_started_again() -> Result<()> {
    let experiment = Experiment::of(4)?;
    configuration()?;
    let mut command = experiment.submit()?;
    command.args(["--max-tasks", "1"]).stdin(Stdio::null());
    let first = command.stdout(Stdio::null()).stderr(Stdio::piped());
    let first = first.spawn()?;
    process::wait_for("a task", || {
        let running = slurm("squeue --noheader --states=RUNNING")?;
        Ok((!running.is_empty()).then_some(()))
    })?;
    let ended = experiment.json("--cancel")?;
    // Start again immediately, while its tasks are still completing and shards were lost with them.
    let again = run(&mut experiment.submit()?)?;
    let first = first.wait_with_output()?;
    ends_with(
        &first,
        1,
        "the submit was cancelled; run the same command to continue",
    )?;
    let ended = ended["ended"].as_u64().context("ended")?;
    ensure!((1..=4).contains(&ended), "{ended}");
    ensure!(again.status.success(), "{}", stderr(&again));
    experiment.record()?;
    Ok(())
}

#[test_support::test(serial, Root, Tool("slurmctld"), Tool("munged"))]
fn an_ordinary_user_submits_and_his_tasks_need_no_privilege() -> Result<()> {
    let experiment = Experiment::of(3)?;
    let program = experiment.path("farwire");
    fs::copy(process::program(), &program)?;
    fs::set_permissions(experiment.path(""), Permissions::from_mode(0o777))?;
    let mut command = Command::new("timeout");
    command.args([
        "300",
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ]);
    command.arg(program);
    let output = run(&mut experiment.submit_by(command, "1ms")?)?;
    if output.status.code() == Some(3) {
        // The host denies namespaces to ordinary users: the nodes report it.
        has(&stderr(&output), "user namespaces: ")?;
        return Ok(());
    }
    ensure!(output.status.success(), "{}", stderr(&output));
    experiment.record()?;
    Ok(())
}
