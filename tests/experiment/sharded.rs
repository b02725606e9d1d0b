//! An experiment in shards, and their records joined again.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use record::Record;

use crate::common::process::{self, farwire};
use crate::common::suite::{Need, Suite};
use crate::small::{PING, PLAIN, Small, stderr};

/// Six runs, one of them longer.
const CASES: &str = "\
[[cases]]
name = 'few'
repeats = 5
[[cases]]
name = 'long'
parameters = { ping = { count = 40 } }
expect = [{ of = 'ping.rtt_ms.median', least = '1ms' }]
";

pub(crate) fn add(suite: &mut Suite) {
    suite.test(
        "three shards have every run once, and their merged record is as that of one machine",
        &[Need::Namespaces],
        three_shards,
    );
    suite.test(
        "a shard without runs says so and ends with 0, and its record is merged with the others",
        &[Need::Namespaces],
        without_runs,
    );
    suite.test(
        "what is missing of a merged record is named with the command that does it",
        &[Need::Namespaces],
        missing,
    );
    suite.test("a shard that there is not is refused", &[], refusals);
    suite.test("records that are none are refused", &[], no_records);
}

fn shard(small: &Small, number: &str) -> Command {
    let mut command = farwire();
    command.current_dir(small.path(""));
    command.args(["run", "small.toml", "--shard", number]);
    command
}

fn merge(small: &Small, records: &[&str]) -> Result<Output> {
    let mut command = farwire();
    command
        .current_dir(small.path(""))
        .arg("merge")
        .args(records);
    process::run(command.args(["--out", "all", "--overwrite"]))
}

fn in_three(small: &Small) -> Result<[&'static str; 3]> {
    for number in ["1/3", "2/3", "3/3"] {
        let output = process::run(&mut shard(small, number))?;
        ensure!(output.status.success(), "{}", stderr(&output));
    }
    Ok(["out/small-1-of-3", "out/small-2-of-3", "out/small-3-of-3"])
}

fn three_shards() -> Result<()> {
    let small = Small::of(&[PING, CASES])?;
    let [a, b, c] = in_three(&small)?;
    let output = merge(&small, &[a, b, c])?;
    ensure!(output.status.success(), "{}", stderr(&output));
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(
        said.contains("small: 6 of 6 runs from 3 records on 1 host\n"),
        "{said}"
    );
    let record = Record::read(&small.path("all"))?;
    let runs = record
        .runs
        .iter()
        .map(|run| (run.case.as_str(), run.repeat));
    let expected = (1..=5).map(|repeat| ("few", repeat)).chain([("long", 1)]);
    ensure!(record.runs.len() == 6 && runs.collect::<BTreeSet<_>>() == expected.collect());
    ensure!(record.finished_at.is_some() && record.plan().shard.is_none());
    let bytes = fs::read(small.path("all/record.jsonl"))?;
    ensure!(merge(&small, &[c, a, b, a])?.status.success());
    ensure!(
        fs::read(small.path("all/record.jsonl"))? == bytes,
        "another order, other bytes"
    );
    let mut report = farwire();
    let output = process::run(report.arg("report").arg(small.path("all")))?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(said.contains("the one expectation is met"), "{said}");
    Ok(())
}

fn without_runs() -> Result<()> {
    let small = Small::of(&[PING, PLAIN])?;
    let output = process::run(&mut shard(&small, "2/2"))?;
    ensure!(output.status.success(), "{}", stderr(&output));
    let said = stderr(&output);
    ensure!(said.contains("shard 2/2 has none of the 1 run"), "{said}");
    ensure!(process::run(&mut shard(&small, "1/2"))?.status.success());
    let merged = merge(&small, &["out/small-1-of-2", "out/small-2-of-2"])?;
    ensure!(merged.status.success(), "{}", stderr(&merged));
    Ok(())
}

fn missing() -> Result<()> {
    let small = Small::of(&[PING, CASES])?;
    let [a, b, c] = in_three(&small)?;
    // The second host's directory is gone, the third one's file ends within its last run.
    fs::remove_dir_all(small.path(b))?;
    let file = small.path(c).join("record.jsonl");
    let text = fs::read_to_string(&file)?;
    let last = text.rfind("{\"run\"").context("a run")?;
    fs::write(&file, &text[..last + 20])?;
    let output = merge(&small, &[a, c])?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.code() == Some(1), "{said}");
    for command in [
        "farwire run --resume out/small-3-of-3",
        "farwire run small.toml --shard 2/3",
    ] {
        ensure!(said.contains(command), "{said}");
    }
    let mut resume = farwire();
    resume
        .current_dir(small.path(""))
        .args(["run", "--resume", c]);
    ensure!(process::run(&mut resume)?.status.success());
    ensure!(process::run(&mut shard(&small, "2/3"))?.status.success());
    let output = merge(&small, &[a, b, c])?;
    ensure!(output.status.success(), "{}", stderr(&output));
    Ok(())
}

fn refusals() -> Result<()> {
    for (number, cause) in [
        ("0/4", "shards count from 1"),
        ("5/4", "the last 4/4"),
        ("x", "as 3/16"),
    ] {
        let output = process::run(farwire().args(["run", "x.toml", "--shard", number]))?;
        ensure!(output.status.code() == Some(2), "{}", output.status);
        ensure!(stderr(&output).contains(cause), "{}", stderr(&output));
    }
    Ok(())
}

fn no_records() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut command = farwire();
    command.current_dir(directory.path());
    let output = process::run(command.args(["merge", "gone", "--out", "all"]))?;
    ensure!(output.status.code() == Some(2), "{}", output.status);
    ensure!(stderr(&output).contains("gone"), "{}", stderr(&output));
    ensure!(
        !directory.path().join("all").exists(),
        "something was written"
    );
    Ok(())
}
