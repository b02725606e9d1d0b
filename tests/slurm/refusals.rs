//! Refusals of `submit`, and options that only print something.

use std::fs;
use std::process::Output;

use anyhow::{Result, ensure};

use super::cluster::{Experiment, run, slurm};
use test_support::process::{self, ends_with, farwire, has, stderr, stdout};

#[test_support::test(serial)]
fn without_slurm_it_says_what_is_missing() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let scenario = directory.path().join("x.toml");
    fs::write(
        &scenario,
        "name = 'x'\ntitle = 'X'\nbed = { kind = 'netns' }\ntcp = { congestion = 'reno' }\n\
         [[instruments]]\nname = 'ping'\nkind = 'ping'\n[[cases]]\nname = 'a'\n",
    )?;
    let out = directory.path().join("out");
    let mut command = farwire();
    command
        .arg("submit")
        .arg(&scenario)
        .args(["--slurm", "--out"])
        .arg(&out);
    let output = process::run(command.env("PATH", directory.path()))?;
    ends_with(&output, 3, "sbatch is not on PATH")?;
    ensure!(!out.exists(), "something was written");
    let output = process::succeeds(command.arg("--print"))?;
    has(&stdout(&output), "#SBATCH --array=1")?;
    ensure!(!out.exists(), "something was written");
    Ok(())
}

#[test_support::test(serial)]
fn a_directory_that_is_no_submits_is_refused() -> Result<()> {
    let directory = tempfile::tempdir()?;
    for option in ["--status", "--cancel"] {
        let output = process::run(farwire().args(["submit", option]).arg(directory.path()))?;
        ends_with(&output, 2, "not the directory of a submit")?;
    }
    Ok(())
}

#[test_support::test(serial, Root, Tool("slurmctld"), Tool("munged"))]
fn a_record_of_something_else_is_left_alone() -> Result<()> {
    let experiment = Experiment::of(1)?;
    fs::create_dir(experiment.path("out"))?;
    fs::write(experiment.path("out/record.jsonl"), "mine\n")?;
    let output = run(&mut experiment.submit()?)?;
    ends_with(&output, 2, "does not come from a submit")?;
    ensure!(
        fs::read_dir(experiment.path("out"))?.count() == 1,
        "something was written"
    );
    Ok(())
}

#[test_support::test(serial, Root, Tool("slurmctld"), Tool("munged"))]
fn a_partition_that_there_is_not_is_refused() -> Result<()> {
    let experiment = Experiment::of(1)?;
    let output = run(experiment.submit()?.args(["--partition", "gone"]))?;
    ends_with(&output, 2, "no such partition; the partitions are: main")?;
    ensure!(!experiment.path("out").exists(), "something was written");
    Ok(())
}

#[test_support::test(serial, Root, Tool("slurmctld"), Tool("munged"))]
fn what_no_node_has_is_refused() -> Result<()> {
    let experiment = Experiment::of(1)?;
    let output = run(experiment.submit()?.args(["--cpus", "99"]))?;
    ensure!(output.status.code() == Some(2), "{}", stderr(&output));
    let said = stderr(&output);
    let words = "--cpus 99: the largest node of main has 4";
    has(&said, words)?;
    Ok(())
}

#[test_support::test(serial, Root, Tool("slurmctld"), Tool("munged"))]
fn where_all_nodes_are_drained_it_ends_and_says_so() -> Result<()> {
    let experiment = Experiment::of(1)?;
    experiment.wait_for_queue()?;
    let all = "scontrol update NodeName=node[1-3]";
    slurm(&format!("{all} State=DRAIN Reason=maintenance"))?;
    let output = run(&mut experiment.submit()?);
    slurm(&format!("{all} State=RESUME"))?;
    let output = output?;
    let said = ends_with(&output, 3, "no node can run the shards: node1")?;
    has(
        &said,
        " (maintenance); run the same command when one of them is back",
    )?;
    Ok(())
}

#[test_support::test(serial, Root, Tool("slurmctld"), Tool("munged"))]
fn the_script_is_shown_and_nothing_handed_in() -> Result<()> {
    let experiment = Experiment::of(4)?;
    let output = run(experiment
        .submit()?
        .args(["--cpus", "3", "--print", "--max-tasks", "2"]))?;
    ensure!(output.status.success(), "{}", stderr(&output));
    let said = stdout(&output);
    for line in ["#SBATCH --array=1-4%2", "#SBATCH --cpus-per-task=3"] {
        ensure!(said.lines().any(|found| found == line), "{said}");
    }
    ensure!(!experiment.path("out").exists(), "something was written");
    Ok(())
}

#[test_support::test(serial, Root, Tool("slurmctld"), Tool("munged"))]
fn what_was_refused_leaves_nothing_that_is_waited_for() -> Result<()> {
    let experiment = Experiment::of(2)?;
    let submit = |more: &[&str]| -> Result<Output> { run(experiment.submit()?.args(more)) };
    let short = submit(&["--time", "1ms"])?;
    ends_with(&short, 2, "a shard is expected to take")?;
    slurm("scontrol update PartitionName=main State=DRAIN")?;
    let refused = [submit(&[]), submit(&[])];
    slurm("scontrol update PartitionName=main State=UP")?;
    for output in refused {
        let output = output?;
        ends_with(&output, 2, "Required partition not available")?;
    }
    let taken = process::succeeded(submit(&[])?)?;
    let said = stderr(&taken);
    has(&said, ": 2 shards of 2\n")?;
    ensure!(!said.contains("no longer knows its task"), "{said}");
    experiment.record()?;
    Ok(())
}
