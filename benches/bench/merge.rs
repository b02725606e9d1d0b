//! The time and the peak memory for joining a sweep's shards.

use std::fs::{self, OpenOptions};
use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use record::{Record, RecordWriter, Shard, ShardBy, ShardNumber, now};
use serde_json::json;

use crate::processes::{FARWIRE, memory_mb};
use crate::report::rows::{Found, Quantity};
use crate::results::{Outcome, clear_scratch, scratch};
use crate::rounds::rounds;

const ROUNDS: usize = 5;
const SHARDS: u32 = 16;
const CASES: u32 = 1_000;
const REPEATS: u32 = 100;

/// The scenario of one run; all others are copies of it with other names and numbers.
const SCENARIO: &str = "name = 'sweep'\nbed = { kind = 'netns' }\nlate_budget = '1s'\n\
     [[instruments]]\nname = 'ping'\nkind = 'ping'\nparameters = { count = 40, interval = '2ms' }\n\
     [[cases]]\nname = 'one'\n";

pub(crate) fn run() -> Result<Outcome> {
    let count = rounds(ROUNDS)?;
    let mut outcome = Outcome::new(
        count,
        &format!(
            "farwire merge of {} runs of {CASES} cases, a ping of 40 probes each, in {SHARDS} records; memory is the peak resident size",
            CASES * REPEATS
        ),
    );
    let shards = shards()?;
    let (mut seconds, mut memory) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let (took_s, peak_mb) = merge(&shards)?;
        seconds.push(vec![took_s.into()]);
        memory.push(vec![peak_mb.into()]);
    }
    for (rounds, unit) in [(seconds, "s"), (memory, "MB")] {
        let names = vec!["farwire".to_owned()];
        let found = Found { names, rounds };
        outcome.rows(found.alone(&Quantity::less("100,000 runs merged", unit), 0));
    }
    clear_scratch();
    Ok(outcome)
}

/// Writes the records of all shards.
fn shards() -> Result<Vec<PathBuf>> {
    let one = one_run()?;
    let run = one.runs.first().context("the record has a run")?;
    let mut head = one.head.clone();
    let case = head.plan.cases.pop().context("the plan has a case")?;
    for number in 0..CASES {
        let mut case = case.clone();
        case.name = format!("case {number}");
        case.repeats.least = REPEATS;
        case.repeats.most = REPEATS;
        head.plan.cases.push(case);
    }
    let shard = |index: u32| {
        let directory = scratch(&format!("shard-{index}"))?;
        let own =
            |case: u32| (1..=REPEATS).filter(move |repeat| (case + repeat) % SHARDS == index - 1);
        let cases = head.plan.cases.iter().zip(0..);
        let runs = cases.map(|(case, number)| (case.name.clone(), own(number).collect()));
        let mut head = head.clone();
        head.plan.shard = Some(Shard {
            number: ShardNumber { index, of: SHARDS },
            by: ShardBy::Run,
            runs: runs.collect(),
        });
        let begun = RecordWriter::begin(&directory, &head, true)?;
        // Writing line by line to the disk, as for real runs, would take minutes.
        let file = OpenOptions::new().append(true).open(begun.path())?;
        drop(begun);
        let mut to = BufWriter::new(file);
        for repeat in 1..=REPEATS {
            for planned in head.plan.round(repeat) {
                let mut run = run.clone();
                run.case.clone_from(&planned.case.name);
                run.repeat = repeat;
                run.seed = planned.seed;
                writeln!(to, "{}", json!({ "run": run }))?;
            }
        }
        to.flush()?;
        let (_, mut writer) = RecordWriter::resume(&directory)?;
        writer.finish(&now())?;
        Ok(directory)
    };
    (1..=SHARDS).map(shard).collect()
}

/// Makes a record with one run.
fn one_run() -> Result<Record> {
    let (file, directory) = (scratch("sweep.toml")?, scratch("one")?);
    fs::write(&file, SCENARIO)?;
    let mut command = Command::new(FARWIRE);
    command.arg("run").arg(&file).arg("--out").arg(&directory);
    let output = command.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "farwire run: {said}");
    Ok(Record::read(&directory)?)
}

/// Merges the shards; returns seconds and megabytes.
fn merge(shards: &[PathBuf]) -> Result<(f64, f64)> {
    let merged = scratch("merged")?;
    let mut command = Command::new(FARWIRE);
    command.arg("merge").args(shards).arg("--out").arg(&merged);
    command.arg("--overwrite").stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let begun = Instant::now();
    let mut child = command.spawn()?;
    let mut peak_mb = 0.0_f64;
    let status = loop {
        peak_mb = peak_mb.max(memory_mb(child.id(), "VmHWM").unwrap_or(0.0));
        match child.try_wait()? {
            Some(status) => break status,
            None => thread::sleep(Duration::from_millis(5)),
        }
    };
    ensure!(status.success(), "farwire merge ended with {status}");
    Ok((begun.elapsed().as_secs_f64(), peak_mb))
}
