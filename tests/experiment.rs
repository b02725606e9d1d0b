//! The commands `run`, `measure`, `serve` and `report` as a user meets them.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

/// Pings and downloads over a slow link, by farwire's own instruments and by the system's.
const SCENARIO: &str = "\
name = 'small'
title = 'A small experiment'
reference = 'plain'
bed = { kind = 'netns', wire = { rate = '20mbit', delay = '1ms' } }
tcp = { congestion = 'reno' }
[[instruments]]
name = 'ping'
kind = 'ping'
parameters = { size = '100b', count = 5, interval = '5ms', timeout = '1s' }
[[instruments]]
name = 'download'
kind = 'http'
parameters = { bytes = '200kb' }
[[instruments]]
name = 'iputils'
kind = 'system-ping'
parameters = { size = '100b', count = 3, interval = '10ms', timeout = '1s' }
[[instruments]]
name = 'wget'
kind = 'wget'
parameters = { bytes = '200kb' }
[[cases]]
name = 'plain'
title = 'nothing added'
[[cases]]
name = 'far'
title = '30 ms each way'
link = { delay = '30ms' }
expect = { rtt_gain = { gain = '60ms', within = '20ms' } }
";

fn farwire() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farwire"));
    command.stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    farwire().args(arguments).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn scenario(directory: &TempDir, text: &str) -> String {
    let file = directory.path().join("small.toml");
    fs::write(&file, text).unwrap();
    file.display().to_string()
}

/// The runs in the record of an experiment.
fn runs(out: &str) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(Path::new(out).join("record.json")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&text).unwrap();
    record["runs"].as_array().unwrap().clone()
}

/// A far end on a free port of 127.0.0.1, killed with the test.
struct FarEnd {
    child: Child,
    url: String,
}

impl FarEnd {
    fn start() -> Self {
        let mut child = farwire()
            .args(["serve", "--bind", "127.0.0.1", "--http-port", "0"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let url = line.split(' ').find(|word| word.starts_with("http://"));
        Self {
            url: url.unwrap().to_owned(),
            child,
        }
    }
}

impl Drop for FarEnd {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn an_experiment_records_every_run_and_reports_it() {
    let directory = tempfile::tempdir().unwrap();
    let file = scenario(&directory, SCENARIO);
    let out = directory.path().join("out").display().to_string();
    let output = run(&["run", &file, "--out", &out]);
    if output.status.code() == Some(3) {
        println!("skipped: {}", stderr(&output));
        return;
    }
    let runs = runs(&out);
    assert_eq!(runs.len(), 2, "{}", stderr(&output));
    for run in &runs {
        assert_ne!(run["outcome"]["outcome"], "failed", "{run}");
        let environment = run["environment"].as_object().unwrap();
        assert!(
            environment.values().any(|value| value == "reno"),
            "{environment:?}"
        );
        for measured in run["measurements"].as_array().unwrap() {
            assert!(
                !measured["samples"].as_array().unwrap().is_empty(),
                "{measured}"
            );
        }
    }
    let median = |run: &serde_json::Value| {
        run["measurements"][0]["summary"]["rtt_ms"]["median"]
            .as_f64()
            .unwrap()
    };
    // No packet leaves before it is due, however busy the machine: wire and box both ways.
    assert!(median(&runs[0]) >= 2.0 && median(&runs[1]) >= 62.0);

    let table = String::from_utf8(output.stdout).unwrap();
    assert!(
        ["plain", "far"].iter().all(|case| table.contains(case)),
        "{table}"
    );
    for (format, start) in [
        ("html", "<!doctype html>"),
        ("csv", "case,repeat,"),
        ("json", "{"),
    ] {
        let record = Path::new(&out).join("record.json").display().to_string();
        let view = run(&["report", &record, "--format", format]);
        assert!(view.status.success());
        assert!(String::from_utf8(view.stdout).unwrap().starts_with(start));
    }
}

#[test]
fn a_case_that_fails_is_recorded_with_its_cause_and_the_others_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let (head, _) = SCENARIO
        .split_once("[[instruments]]\nname = 'download'")
        .unwrap();
    let cases = "\
[[cases]]\nname = 'cut'\ntitle = 'nothing arrives'\nlink = { loss = '100%' }
[[cases]]\nname = 'plain'\ntitle = 'nothing added'\n";
    let file = scenario(&directory, &format!("{head}{cases}"));
    let out = directory.path().join("out").display().to_string();
    let output = run(&["run", &file, "--out", &out]);
    if output.status.code() == Some(3) {
        println!("skipped: {}", stderr(&output));
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let runs = runs(&out);
    assert_eq!(runs[0]["outcome"]["outcome"], "failed");
    let cause = runs[0]["outcome"]["cause"].as_str().unwrap();
    assert!(
        cause.contains("ping: no answer to 5 echo requests"),
        "{cause}"
    );
    assert_eq!(runs[1]["measurements"][0]["summary"]["received"], 5);
}

#[test]
fn a_scenario_that_is_wrong_is_one_error_with_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let file = scenario(
        &directory,
        &SCENARIO.replace("delay = '30ms'", "dealy = '30ms'"),
    );
    let output = run(&["run", &file]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(
        text.contains("small.toml:28: link: unknown field `dealy`"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn a_download_from_the_far_end_is_measured() {
    let far_end = FarEnd::start();
    let url = format!("{}/bytes/1000000", far_end.url);
    let output = run(&["measure", "http", &url, "--json", "-"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let measured: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(measured["summary"]["bytes"], 1_000_000);
}

#[test]
fn a_resource_that_is_not_there_fails_the_measurement() {
    let far_end = FarEnd::start();
    let output = run(&["measure", "http", &format!("{}/nothing", far_end.url)]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("404"));
}

#[test]
fn bad_input_ends_with_2_and_one_line() {
    let far_end = FarEnd::start();
    let port = far_end.url.rsplit(':').next().unwrap();
    for (arguments, cause) in [
        (
            &["serve", "--bind", "127.0.0.1", "--http-port", port][..],
            "is in use",
        ),
        (&["measure", "http", "ftp://127.0.0.1/"], "http://HOST"),
        (&["report", "Cargo.toml"], "not a farwire record"),
        (&["run", "nothing.toml"], "nothing.toml: cannot read"),
    ] {
        let output = run(arguments);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(cause) && text.lines().count() == 1, "{text}");
    }
}
