//! What `submit` refuses, and what it only shows.

use std::fs;
use std::process::Output;

use anyhow::{Result, ensure};

use crate::cluster::{Experiment, NEEDS, run, slurm, stderr, stdout};
use test_support::process::{self, farwire};
use test_support::suite::Suite;

pub(crate) fn add(suite: &mut Suite) {
    suite.test("without Slurm it says what is missing", &[], no_slurm);
    suite.test("a directory that is no submit's is refused", &[], no_submit);
    suite.test(
        "a record of something else is left alone",
        &NEEDS,
        another_record,
    );
    suite.test(
        "a partition that there is not is refused",
        &NEEDS,
        no_partition,
    );
    suite.test("what no node has is refused", &NEEDS, too_many_processors);
    suite.test(
        "where all nodes are drained, it ends and says so",
        &NEEDS,
        all_drained,
    );
    suite.test("the script is shown and nothing handed in", &NEEDS, printed);
    suite.test(
        "what was refused leaves nothing that is waited for",
        &NEEDS,
        refused_then_taken,
    );
}

fn no_slurm() -> Result<()> {
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
    ensure!(output.status.code() == Some(3), "{}", stderr(&output));
    ensure!(
        stderr(&output).contains("no sbatch on PATH"),
        "{}",
        stderr(&output)
    );
    ensure!(!out.exists(), "something was written");
    let output = process::run(command.arg("--print"))?;
    ensure!(output.status.success(), "{}", stderr(&output));
    ensure!(
        stdout(&output).contains("#SBATCH --array=1"),
        "{}",
        stdout(&output)
    );
    ensure!(!out.exists(), "something was written");
    Ok(())
}

fn no_submit() -> Result<()> {
    let directory = tempfile::tempdir()?;
    for option in ["--status", "--cancel"] {
        let output = process::run(farwire().args(["submit", option]).arg(directory.path()))?;
        ensure!(output.status.code() == Some(2), "{}", stderr(&output));
        ensure!(
            stderr(&output).contains("no submit's directory"),
            "{}",
            stderr(&output)
        );
    }
    Ok(())
}

fn another_record() -> Result<()> {
    let experiment = Experiment::of(1)?;
    fs::create_dir(experiment.path("out"))?;
    fs::write(experiment.path("out/record.jsonl"), "mine\n")?;
    let output = run(&mut experiment.submit()?)?;
    ensure!(output.status.code() == Some(2), "{}", stderr(&output));
    ensure!(
        stderr(&output).contains("no submit's"),
        "{}",
        stderr(&output)
    );
    ensure!(
        fs::read_dir(experiment.path("out"))?.count() == 1,
        "something was written"
    );
    Ok(())
}

fn no_partition() -> Result<()> {
    let experiment = Experiment::of(1)?;
    let output = run(experiment.submit()?.args(["--partition", "gone"]))?;
    ensure!(output.status.code() == Some(2), "{}", stderr(&output));
    let said = stderr(&output);
    ensure!(
        said.contains("no such partition; there are: main"),
        "{said}"
    );
    ensure!(!experiment.path("out").exists(), "something was written");
    Ok(())
}

fn too_many_processors() -> Result<()> {
    let experiment = Experiment::of(1)?;
    let output = run(experiment.submit()?.args(["--cpus", "99"]))?;
    ensure!(output.status.code() == Some(2), "{}", stderr(&output));
    let said = stderr(&output);
    let words = "--cpus 99: the largest node of main has 4";
    ensure!(said.contains(words), "{said}");
    Ok(())
}

fn all_drained() -> Result<()> {
    let experiment = Experiment::of(1)?;
    experiment.wait_for_queue()?;
    let all = "scontrol update NodeName=node[1-3]";
    slurm(&format!("{all} State=DRAIN Reason=maintenance"))?;
    let output = run(&mut experiment.submit()?);
    slurm(&format!("{all} State=RESUME"))?;
    let output = output?;
    let said = stderr(&output);
    ensure!(output.status.code() == Some(3), "{said}");
    ensure!(said.contains("no node can do it: node1"), "{said}");
    ensure!(
        said.contains(" (maintenance); the same command goes on"),
        "{said}"
    );
    Ok(())
}

fn printed() -> Result<()> {
    let experiment = Experiment::of(4)?;
    let output = run(experiment
        .submit()?
        .args(["--cpus", "3", "--print", "--at-once", "2"]))?;
    ensure!(output.status.success(), "{}", stderr(&output));
    let said = stdout(&output);
    for line in ["#SBATCH --array=1-4%2", "#SBATCH --cpus-per-task=3"] {
        ensure!(said.lines().any(|found| found == line), "{said}");
    }
    ensure!(!experiment.path("out").exists(), "something was written");
    Ok(())
}

fn refused_then_taken() -> Result<()> {
    let experiment = Experiment::of(2)?;
    let submit = |more: &[&str]| -> Result<Output> { run(experiment.submit()?.args(more)) };
    let short = submit(&["--time", "1ms"])?;
    ensure!(short.status.code() == Some(2), "{}", stderr(&short));
    let said = stderr(&short);
    ensure!(said.contains("a shard should take"), "{said}");
    slurm("scontrol update PartitionName=main State=DRAIN")?;
    let refused = [submit(&[]), submit(&[])];
    slurm("scontrol update PartitionName=main State=UP")?;
    for output in refused {
        let output = output?;
        ensure!(output.status.code() == Some(2), "{}", stderr(&output));
        let said = stderr(&output);
        ensure!(said.contains("Required partition not available"), "{said}");
    }
    let taken = submit(&[])?;
    let said = stderr(&taken);
    ensure!(taken.status.success(), "{said}");
    ensure!(said.contains(": 2 shards of 2\n"), "{said}");
    ensure!(!said.contains("knows its task no more"), "{said}");
    experiment.record()?;
    Ok(())
}
