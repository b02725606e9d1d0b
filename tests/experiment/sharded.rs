//! An experiment in shards, and their records joined again.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use record::Record;
use serde_json::Value;

use test_support::process::{self, ends_with, farwire, has, stderr, stdout};
use test_support::scenario::{PING, PLAIN, Small};

/// A scenario of six runs, one of them longer.
const CASES: &str = "\
[[cases]]
name = 'few'
repeats = 5
[[cases]]
name = 'long'
parameters = { ping = { count = 40 } }
expect = [{ of = 'ping.rtt_ms.median', least = '1ms' }]
";

fn shard(small: &Small, number: &str) -> Command {
    let mut command = farwire();
    command.current_dir(small.path(""));
    command.args(["run", "small.toml", "--no-baseline", "--shard", number]);
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
        process::succeeds(&mut shard(small, number))?;
    }
    Ok(["out/small-1-of-3", "out/small-2-of-3", "out/small-3-of-3"])
}

#[test_support::test(Namespaces)]
fn three_shards_have_every_run_once_and_their_merged_record_is_as_that_of_one_machine() -> Result<()>
{
    let small = Small::of(&[PING, CASES])?;
    let [a, b, c] = in_three(&small)?;
    let output = process::succeeded(merge(&small, &[a, b, c])?)?;
    let said = stdout(&output);
    has(&said, "small: 6 of 6 runs from 3 records on 1 host\n")?;
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
    let said = stdout(&output);
    has(&said, "Met: 1 of 1 expectation met.")?;
    Ok(())
}

#[test_support::test(Namespaces)]
fn a_shard_without_runs_says_so_and_ends_with_0_and_its_record_is_merged_with_the_others()
-> Result<()> {
    let small = Small::of(&[PING, PLAIN])?;
    let output = process::succeeds(&mut shard(&small, "2/2"))?;
    let said = stderr(&output);
    has(&said, "shard 2/2: none of the 1 run")?;
    ensure!(process::run(&mut shard(&small, "1/2"))?.status.success());
    process::succeeded(merge(&small, &["out/small-1-of-2", "out/small-2-of-2"])?)?;
    Ok(())
}

#[test_support::test(Namespaces)]
fn a_merge_ends_with_1_where_not_all_that_is_expected_of_the_whole_is_met_though_each_shard_ends_with_0()
-> Result<()> {
    const UNMET: &str = "repeats = 2\nexpect = [{ of = 'ping.rtt_ms.median', most = '1us' }]\n";
    let small = Small::of(&[PING, PLAIN, UNMET])?;
    for number in ["1/2", "2/2"] {
        let output = process::run(&mut shard(&small, number))?;
        ensure!(output.status.success(), "{number}: {}", stderr(&output));
    }
    let shards = ["out/small-1-of-2", "out/small-2-of-2"];
    let merged = merge(&small, &shards)?;
    let said = stderr(&merged);
    ensure!(merged.status.code() == Some(1), "{said}");
    has(&said, "not all expectations are met")?;
    let record = Record::read(&small.path("all"))?;
    ensure!(record.runs.len() == 2 && record.finished_at.is_some());
    Ok(())
}

#[test_support::test(Namespaces)]
fn what_is_missing_of_a_merged_record_is_named_with_the_command_that_does_it() -> Result<()> {
    let small = Small::of(&[PING, CASES])?;
    let [a, b, c] = in_three(&small)?;
    // The second host's directory is missing, and the third one's file ends within its last run.
    fs::remove_dir_all(small.path(b))?;
    let file = small.path(c).join("record.jsonl");
    let text = fs::read_to_string(&file)?;
    let last = text.rfind("{\"run\"").context("a run")?;
    fs::write(&file, &text[..last + 20])?;
    let output = merge(&small, &[a, c])?;
    let said = stdout(&output);
    ensure!(output.status.code() == Some(1), "{said}");
    let commands = [
        "farwire run --resume out/small-3-of-3",
        "farwire run small.toml --shard 2/3",
    ];
    for command in commands {
        has(&said, command)?;
    }
    let mut as_json = farwire();
    as_json.current_dir(small.path("")).args(["merge", a, c]);
    as_json.args(["--out", "json", "--json", "-"]);
    let output = process::run(&mut as_json)?;
    ensure!(output.status.code() == Some(1), "{}", stderr(&output));
    let json: Value = serde_json::from_slice(&output.stdout)?;
    let missing = json["missing"].as_array().context("what is missing")?;
    let to_do = missing.iter().filter_map(|one| one["command"].as_str());
    ensure!(to_do.eq(commands), "{json}");
    let repeats = missing.iter().flat_map(|one| one["runs"].as_array());
    let repeats = repeats
        .flatten()
        .filter_map(|of| Some(of["repeats"].as_array()?.len() as u64));
    ensure!(
        json["planned"] == 6 && json["runs"].as_u64() == Some(6 - repeats.sum::<u64>()),
        "{json}"
    );
    let mut resume = farwire();
    resume
        .current_dir(small.path(""))
        .args(["run", "--no-baseline", "--resume", c]);
    ensure!(process::run(&mut resume)?.status.success());
    ensure!(process::run(&mut shard(&small, "2/3"))?.status.success());
    process::succeeded(merge(&small, &[a, b, c])?)?;
    Ok(())
}

/// Moves every time of the record in `directory`.
fn move_times(small: &Small, directory: &str, by: SignedDuration) -> Result<()> {
    let file = small.path(directory).join("record.jsonl");
    let mut moved = 0;
    let lines = fs::read_to_string(&file)?;
    let lines = lines.lines().map(|line| -> Result<String> {
        let mut line: Value = serde_json::from_str(line)?;
        move_in(&mut line, by, &mut moved)?;
        Ok(line.to_string() + "\n")
    });
    let lines: String = lines.collect::<Result<_>>()?;
    ensure!(moved > 3, "{moved} times in {lines}");
    Ok(fs::write(&file, lines)?)
}

fn move_in(value: &mut Value, by: SignedDuration, moved: &mut u32) -> Result<()> {
    match value {
        Value::Array(all) => all.iter_mut().try_for_each(|one| move_in(one, by, moved)),
        Value::Object(all) => all.iter_mut().try_for_each(|(name, value)| {
            if let (true, Some(text)) = (name.ends_with("_at"), value.as_str()) {
                let at: Timestamp = text.parse()?;
                *value = format!("{:.3}", at + by).into();
                *moved += 1;
                return Ok(());
            }
            move_in(value, by, moved)
        }),
        _ => Ok(()),
    }
}

#[test_support::test(Namespaces)]
fn what_a_hosts_clock_says_changes_neither_what_is_joined_nor_what_the_report_says_even_where_it_is_of_the_future()
-> Result<()> {
    let small = Small::of(&[PING, CASES])?;
    let [a, b, c] = in_three(&small)?;
    // Compare the case, repeat and start of each run, and the report about the cases.
    type Runs = BTreeSet<(String, u32, String)>;
    let joined = |records: &[&str]| -> Result<(Runs, String)> {
        process::succeeded(merge(&small, records)?)?;
        let record = Record::read(&small.path("all"))?;
        ensure!(record.runs.len() == 6 && record.finished_at.is_some());
        let runs = record.runs.into_iter();
        let runs = runs.map(|run| (run.case, run.repeat, run.started_at));
        let mut report = farwire();
        let output = process::run(report.arg("report").arg(small.path("all")))?;
        let text = String::from_utf8(output.stdout)?;
        let says = ["few", "long", "expectation"];
        let is_of_cases = |line: &&str| says.iter().any(|word| line.contains(word));
        let of_cases = text.lines().filter(is_of_cases);
        Ok((runs.collect(), of_cases.collect::<Vec<_>>().join("\n")))
    };
    let names = |runs: &Runs| -> BTreeSet<(String, u32)> {
        let names = runs.iter();
        names
            .map(|(case, repeat, _)| (case.clone(), *repeat))
            .collect()
    };
    let before = joined(&[a, b, c])?;
    ensure!(before.1.lines().count() > 1, "{}", before.1);
    move_times(&small, b, SignedDuration::from_hours(-1))?;
    // Move the clock by ten years.
    move_times(&small, c, SignedDuration::from_hours(87_660))?;
    let after = joined(&[a, b, c])?;
    ensure!(names(&after.0) == names(&before.0), "{after:?}");
    ensure!(after.1 == before.1, "{} {}", before.1, after.1);
    // The same runs exist again, an hour later by another clock: those that began first are kept.
    fs::create_dir(small.path("twice"))?;
    fs::copy(
        small.path(a).join("record.jsonl"),
        small.path("twice/record.jsonl"),
    )?;
    move_times(&small, "twice", SignedDuration::from_hours(1))?;
    ensure!(joined(&["twice", c, a, b])? == after);
    Ok(())
}

#[test_support::test(Namespaces)]
fn a_record_that_a_later_farwire_wrote_is_refused_with_both_versions() -> Result<()> {
    let small = Small::of(&[PING, CASES])?;
    let [a, b, c] = in_three(&small)?;
    let file = small.path(b).join("record.jsonl");
    let text = fs::read_to_string(&file)?;
    let (head, runs) = text.split_once('\n').context("a head")?;
    let mut head: Value = serde_json::from_str(head)?;
    let version = head["version"].as_u64().context("a version")?;
    head["version"] = (version + 1).into();
    fs::write(&file, format!("{head}\n{runs}"))?;
    let output = merge(&small, &[a, b, c])?;
    ensure!(output.status.code() == Some(2), "{}", output.status);
    let said = stderr(&output);
    let versions = format!(
        "the record has version {}; this farwire reads versions up to {version}",
        version + 1
    );
    for words in [b, &versions] {
        ensure!(said.contains(words), "{words}: {said}");
    }
    ensure!(said.lines().count() == 1, "{said}");
    ensure!(!small.path("all").exists(), "something was written");
    // No other command accepts the record either.
    for command in [["run", "--resume"].as_slice(), &["report"]] {
        let output = process::run(farwire().args(command).arg(small.path(b)))?;
        ends_with(&output, 2, format!("version {}", version + 1))?;
    }
    Ok(())
}

#[test_support::test(Namespaces, Tool("prlimit"))]
fn a_full_disk_ends_a_merge_with_1_and_what_was_there_stays() -> Result<()> {
    let small = Small::of(&[PING, PLAIN])?;
    process::succeeds(&mut shard(&small, "1/1"))?;
    let record = "out/small-1-of-1";
    process::succeeded(merge(&small, &[record])?)?;
    let before = fs::read(small.path("all/record.jsonl"))?;
    // Limit the size of files below that of the record, to act like a full file system.
    let mut command = Command::new("env");
    command.args(["--ignore-signal=XFSZ", "prlimit", "--fsize=1000"]);
    command.arg(farwire().get_program());
    command.current_dir(small.path(""));
    command.args(["merge", record, "--out", "all"]);
    let refused = process::run(&mut command)?;
    ensure!(refused.status.code() == Some(2), "{}", stderr(&refused));
    let full = process::run(command.arg("--overwrite"))?;
    ends_with(&full, 1, "all/record.jsonl: cannot write: File too large")?;
    ensure!(fs::read(small.path("all/record.jsonl"))? == before);
    Ok(())
}

#[test_support::test]
fn a_shard_that_there_is_not_is_refused() -> Result<()> {
    for (number, cause) in [
        ("0/4", "shards are numbered from 1"),
        ("5/4", "the last 4/4"),
        ("x", "as in 3/16"),
    ] {
        let output = process::run(farwire().args(["run", "x.toml", "--shard", number]))?;
        ends_with(&output, 2, cause)?;
    }
    Ok(())
}

#[test_support::test]
fn records_that_are_none_are_refused() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut command = farwire();
    command.current_dir(directory.path());
    let output = process::run(command.args(["merge", "gone", "--out", "all"]))?;
    ends_with(&output, 2, "gone")?;
    ensure!(
        !directory.path().join("all").exists(),
        "something was written"
    );
    Ok(())
}
