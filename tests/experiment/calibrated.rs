//! `farwire calibrate`: every instrument runs alone, a report is beside the record, and a bad grid leaves nothing.

use std::fs;
use std::process::Output;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use test_support::process::{self, ends_with, farwire, has, stderr, stdout};
use test_support::scenario::{PING, Small};

const UDP: &str = "\
[[instruments]]
name = 'udp'
kind = 'udp'
parameters = { bitrate = '2M', length = 1000, time = '300ms' }
";
const LINE: &str = "[[cases]]\nname = 'line'\nlink = { delay = '5ms' }\n";
const BUCKET: &str =
    "[[cases]]\nname = 'bucket'\nbed = { tbf = '10mbit' }\ninstruments = ['udp']\n";

fn calibrate(small: &Small, arguments: &[&str]) -> Result<Output> {
    let mut command = farwire();
    command.arg("calibrate").arg(small.path("small.toml"));
    command.arg("--out").arg(small.path("out")).args(arguments);
    process::run(&mut command)
}

fn report(small: &Small) -> Result<Value> {
    let text = fs::read_to_string(small.path("out/calibration.json"))?;
    Ok(serde_json::from_str(&text)?)
}

#[test_support::test(Namespaces)]
fn a_calibration_runs_every_instrument_alone_and_writes_its_report() -> Result<()> {
    let small = Small::of(&[PING, UDP, LINE, BUCKET])?;
    let output = calibrate(&small, &[])?;
    // Whether the intervals hold depends on this machine and hour; that the command finds it out does not.
    ensure!(
        matches!(output.status.code(), Some(0 | 1)),
        "{}",
        stderr(&output)
    );
    let text = stdout(&output);
    has(&text, "ping: intervals contain the truth in")?;
    let runs = small.runs()?;
    let cases: Vec<&str> = runs.iter().filter_map(|run| run["case"].as_str()).collect();
    ensure!(
        ["line: ping", "line: udp", "bucket: udp"]
            .iter()
            .all(|case| cases.contains(case)),
        "{cases:?}"
    );
    ensure!(
        runs.iter()
            .all(|run| run["measurements"].as_array().is_some_and(|m| m.len() == 1)),
        "{runs:?}"
    );
    let report = report(&small)?;
    let instruments = report["instruments"].as_array().context("instruments")?;
    let names: Vec<&str> = instruments
        .iter()
        .filter_map(|i| i["instrument"].as_str())
        .collect();
    ensure!(names.contains(&"ping"), "{names:?}");
    ensure!(names.contains(&"udp"), "{names:?}");
    ensure!(report["baselines"][0]["tcp_bit_per_s"].is_f64(), "{report}");
    let delay = &instruments[usize::from(names[0] != "ping")]["figures"][0]["cells"][0];
    ensure!(
        delay["conditions"]["rtt_ms"] == 12.0,
        "of wire and box: {delay}"
    );
    let page = fs::read_to_string(small.path("out/calibration.md"))?;
    ensure!(page.starts_with("# A small experiment"), "{page}");
    ensure!(small.path("out/report.html").exists(), "no report");
    Ok(())
}

#[test_support::test(Namespaces)]
fn a_calibration_that_is_resumed_keeps_its_baselines_and_its_report() -> Result<()> {
    let small = Small::of(&[PING, LINE])?;
    calibrate(&small, &[])?;
    let before = small.record()?;
    let mut command = farwire();
    command
        .arg("calibrate")
        .arg("--resume")
        .arg(small.path("out"));
    let output = process::run(&mut command)?;
    let after = small.record()?;
    ensure!(before == after, "{}", stderr(&output));
    let baselines = after.iter().filter(|line| line.get("baseline").is_some());
    ensure!(baselines.count() == 2, "{after:?}");
    Ok(())
}

/// 1 MB takes at least 0.8 s at 10 Mbit/s, however fast the machine is.
#[test_support::test(Namespaces)]
fn the_kernels_token_bucket_shapes_what_the_client_sends() -> Result<()> {
    let http = "[[instruments]]\nname = 'tcp'\nkind = 'tcp'\nparameters = { bytes = 1000000 }\n";
    let bucket = BUCKET.replace("instruments = ['udp']\n", "");
    let small = Small::of(&[http, &bucket])?;
    let output = small.run()?;
    let runs = small.runs().with_context(|| stderr(&output))?;
    let figures = runs[0]["measurements"][0]["figures"].as_array();
    let figures = figures.with_context(|| format!("{}", runs[0]))?;
    let elapsed = figures.iter().find(|f| f["metric"] == "elapsed_s");
    let elapsed = elapsed
        .and_then(|f| f["value"].as_f64())
        .context("elapsed")?;
    ensure!(elapsed > 0.75, "{elapsed} s");
    Ok(())
}

#[test_support::test]
fn a_grid_that_is_no_scenario_is_bad_input() -> Result<()> {
    let small = Small::written("name = 'x'\n")?;
    let output = calibrate(&small, &[])?;
    ends_with(&output, 2, "small.toml")?;
    Ok(())
}
