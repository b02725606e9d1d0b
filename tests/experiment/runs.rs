//! The record of `run`, and the reports made from it.

use std::os::unix::fs::PermissionsExt as _;
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use test_support::measured::figure;
use test_support::process::{self, farwire, has, stderr, stdout};
use test_support::scenario::{HTTP, PING, PLAIN, SYSTEM_PING, Small, WGET};

const FAR: &str = "\
[[cases]]
name = 'far'
title = '30 ms each way'
link = { delay = '30ms' }
expect = [{ of = 'ping.rtt_ms.median', gain = '60ms', within = '20ms' }]
";

#[test_support::test(Namespaces, Tool("ping"), Tool("wget"))]
fn an_experiment_records_every_run_of_every_instrument_and_reports_it() -> Result<()> {
    let reference = "reference = 'plain'\n";
    let small = Small::of(&[PING, HTTP, SYSTEM_PING, WGET, PLAIN, FAR])?;
    let text = fs::read_to_string(small.path("small.toml"))?;
    fs::write(small.path("small.toml"), reference.to_owned() + &text)?;
    let output = small.run()?;
    let runs = small.runs().with_context(|| stderr(&output))?;
    ensure!(runs.len() == 2, "{}", stderr(&output));
    for run in &runs {
        check_run(run)?;
    }
    // No packet leaves before it is due, however busy the machine is: this is the delay of wire and box in both directions.
    for (run, least) in runs.iter().zip([2.0, 62.0]) {
        let median = figure(&run["measurements"][0], "rtt_ms", "median");
        ensure!(median.is_some_and(|ms| ms >= least), "{run}");
    }
    let table = stdout(&output);
    ensure!(
        ["plain", "far"].iter().all(|case| table.contains(case)),
        "{table}"
    );
    for (format, start) in [
        ("html", "<!doctype html>"),
        ("md", "# A small experiment"),
        ("csv", "case,repeat,"),
        ("parquet", "PAR1"),
        ("json", "{"),
        ("junit", "<?xml"),
    ] {
        let mut command = farwire();
        command.arg("report").arg(small.path("out"));
        let view = process::succeeds(command.args(["--format", format]))?;
        ensure!(
            view.stdout.starts_with(start.as_bytes()),
            "{format} starts otherwise"
        );
    }
    Ok(())
}

/// A departure is stamped when the send call has returned, which never happens within a nanosecond of its due time.
#[test_support::test(Namespaces)]
fn the_budget_of_lateness_is_the_file_s_or_the_flag_s_which_the_record_keeps() -> Result<()> {
    for (flag, budget, ns) in [
        (&[][..], "1ns", 1),
        (&["--late-budget", "1s"], "1s", 1_000_000_000),
    ] {
        let small = Small::of(&[PING, PLAIN])?;
        let text = fs::read_to_string(small.path("small.toml"))?;
        fs::write(
            small.path("small.toml"),
            text.replace("late_budget = '1s'", "late_budget = '1ns'"),
        )?;
        let output = process::run(small.command().args(flag))?;
        let head = &small.record().with_context(|| stderr(&output))?[0];
        ensure!(head["plan"]["late_budget"] == budget, "{head}");
        let run = &small.runs()?[0];
        let left = &run["links"][0]["departure_error"];
        let late = if ns == 1 {
            &left["count"]
        } else {
            &Value::from(0)
        };
        ensure!(left["budget_ns"] == ns, "{left}");
        ensure!(left["over_budget"] == *late, "{left}");
        let of_ping = &run["measurements"][0]["departures"][0];
        ensure!(of_ping["budget_ns"] == ns, "{of_ping}");
        if ns == 1 {
            ensure!(run["outcome"]["outcome"] == "invalid", "{run}");
        }
    }
    Ok(())
}

/// The congestion control took effect, and every instrument measured what it should.
fn check_run(run: &Value) -> Result<()> {
    ensure!(run["outcome"]["outcome"] != "failed", "{run}");
    let environment = run["environment"].as_object().context("an environment")?;
    ensure!(
        environment.values().any(|value| value == "reno"),
        "{environment:?}"
    );
    for (measured, (key, wanted)) in run["measurements"]
        .as_array()
        .context("measurements")?
        .iter()
        .zip([
            ("received_packets", 5),
            ("received_bytes", 200_000),
            ("received_packets", 3),
            ("received_bytes", 2_000_000),
        ])
    {
        let found = figure(measured, key, "total");
        ensure!(found == Some(wanted.into()), "{measured}");
        let samples = measured["samples"].as_array().context("samples")?;
        ensure!(!samples.is_empty(), "{measured}");
        if key == "received_bytes" {
            let total: f64 = samples.iter().filter_map(|s| s["value"].as_f64()).sum();
            ensure!((total - f64::from(wanted)).abs() < 0.5, "{measured}");
        }
    }
    Ok(())
}

#[test_support::test(Namespaces)]
fn a_case_that_fails_is_recorded_with_its_cause_and_the_others_go_on() -> Result<()> {
    let cut = "[[cases]]\nname = 'cut'\ntitle = 'nothing arrives'\nlink = { loss = '100%' }\n\
               parameters = { ping = { timeout = '1s' } }\n";
    let small = Small::of(&[PING, cut, PLAIN])?;
    let output = small.run()?;
    ensure!(output.status.code() == Some(1), "{}", stderr(&output));
    let runs = small.runs()?;
    check_failure(&runs[0], "ping: no answer to 5 echo requests")?;
    ensure!(
        figure(&runs[1]["measurements"][0], "received_packets", "total") == Some(5.0),
        "{}",
        runs[1]
    );
    Ok(())
}

#[test_support::test(Namespaces, Tool("ping"), Tool("wget"))]
fn a_client_that_dies_in_a_download_ends_its_case_with_the_cause_and_the_others_go_on() -> Result<()>
{
    let first = "[[cases]]\nname = 'first'\ntitle = 'its client dies'\n";
    let small = Small::of(&[WGET, first, PLAIN])?;
    let wget = which::which("wget")?;
    // It dies at the first row of dots of its first download: 384 of 2,000 KiB.
    let script = format!(
        "#!/bin/sh\n\
         if [ \"$1\" != --version ] && mkdir '{died}' 2>/dev/null; then\n\
           '{wget}' \"$@\" 2>&1 | while read -r line; do\n\
             case \"$line\" in [0-9]*K\\ *) kill -KILL $$ ;; esac\n\
           done\n\
         fi\n\
         exec '{wget}' \"$@\"\n",
        died = small.path("died").display(),
        wget = wget.display()
    );
    let bin = small.path("bin");
    fs::create_dir(&bin)?;
    fs::write(bin.join("wget"), script)?;
    fs::set_permissions(bin.join("wget"), fs::Permissions::from_mode(0o755))?;
    let path = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths([bin].into_iter().chain(env::split_paths(&path)))?;

    let output = process::run(small.command().env("PATH", path))?;
    ensure!(output.status.code() == Some(1), "{}", stderr(&output));
    let runs = small.runs()?;
    check_failure(&runs[0], "wget: wget ended with code 137")?;
    ensure!(
        figure(&runs[1]["measurements"][0], "received_bytes", "total") == Some(2e6),
        "{}",
        runs[1]
    );
    Ok(())
}

#[test_support::test(Namespaces, Tool("ping"), Tool("wget"))]
fn a_wget_of_a_stated_duration_ends_with_it() -> Result<()> {
    let small = Small::of(&[&WGET.replace("/bytes/2000000", "/seconds/1"), PLAIN])?;
    let output = small.run()?;
    let runs = small.runs().with_context(|| stderr(&output))?;
    let measured = &runs[0]["measurements"][0];
    let bytes = figure(measured, "received_bytes", "total").unwrap_or(0.0);
    // The amount is that of 1 s at 20 Mb/s and of the queue, but not of 6 s, by the far end's clock, however busy the machine is.
    ensure!(bytes > 0.0 && bytes < 10_000_000.0, "{measured}");
    Ok(())
}

fn check_failure(run: &Value, cause: &str) -> Result<()> {
    let outcome = &run["outcome"];
    ensure!(outcome["outcome"] == "failed", "{outcome}");
    let told = outcome["cause"].as_str().unwrap_or_default();
    has(told, cause)?;
    Ok(())
}
