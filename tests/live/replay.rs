//! The exported files of the changes of a running link make the same changes again.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use test_support::api::Exec;
use test_support::process::{self, has, stderr};

/// The time between two changes.
const PHASE: Duration = Duration::from_secs(2);

/// The error of arrivals in different batches of a packet log: an interruption between two readings of the clocks.
const CLOCKS_NS: i128 = 20_000_000;

#[test_support::test(Namespaces, Tool("ping"))]
fn the_changes_of_a_link_are_made_again_by_its_link_file_and_by_its_scenario() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let file = |name: &str| directory.path().join(name);
    let [lost, delayed] = change(directory.path())?;

    let mut exec = process::farwire();
    exec.arg("exec").arg("--link").arg(file("link.toml"));
    exec.arg("--packet-log").arg(file("packets.csv")).arg("--");
    let count = (delayed / 50_000_000 + 20).to_string();
    exec.args(["ping", "-q", "-i", "0.05", "-c", &count, "10.77.0.2"]);
    process::run(&mut exec)?;
    let phases = phases(&std::fs::read_to_string(file("packets.csv"))?)?;
    // The start of the link is bounded by the last packet of a phase and the first of the next.
    let [(_, last), (first_lost, last_lost), (first_delayed, _)] = phases;
    let latest = (first_lost - lost).min(first_delayed - delayed);
    let earliest = (last - lost).max(last_lost - delayed);
    ensure!(
        earliest < latest + CLOCKS_NS,
        "{phases:?}, changes {lost}, {delayed}"
    );

    let mut run = process::farwire();
    run.arg("run")
        .arg(file("scenario.toml"))
        .args(["--late-budget", "1s", "--out"])
        .arg(file("out"));
    let ran = process::run(&mut run)?;
    // The exit code is 1 if the host was too busy for a measurement, which does not affect the conditions.
    let said = stderr(&ran);
    ensure!(matches!(ran.status.code(), Some(0 | 1)), "{said}");
    let record = std::fs::read_to_string(record_below(&file("out"))?)?;
    let lost = record.lines().filter_map(|line| {
        let line: Value = serde_json::from_str(line).ok()?;
        line["run"]["links"][0]["up"]["dropped"]["loss"].as_u64()
    });
    ensure!(lost.max() > Some(0), "the run lost nothing: {said}");
    Ok(())
}

/// Changes a link twice and exports this as link.toml and scenario.toml; returns the times of the changes, in ns from the link's start.
fn change(directory: &Path) -> Result<[i128; 2]> {
    let exec = Exec::start("--delay 1ms")?;
    std::thread::sleep(PHASE);
    let lost = exec.patch(
        "",
        r#"{"rate": "5mbit", "queue": "20pkt", "up": {"loss": "100%"}}"#,
    )?;
    ensure!(lost.status == 200, "{lost:?}");
    std::thread::sleep(PHASE);
    let put = "PUT /v1/links/link";
    let delayed = exec.with_body(put, "application/json", "", r#"{"delay": "60ms"}"#)?;
    ensure!(delayed.status == 200, "{delayed:?}");
    for form in ["link", "scenario"] {
        let answer = exec.get(&format!("/v1/links/link/history/{form}"))?;
        ensure!(answer.status == 200, "{answer:?}");
        ensure!(
            answer.head.contains("content-type: application/toml"),
            "{answer:?}"
        );
        std::fs::write(directory.join(format!("{form}.toml")), answer.text)?;
    }
    let late = exec.get("/v1/links/link/history/link?since=3")?.text;
    has(&late, "delay = \"60ms\"")?;
    ensure!(!late.contains("loss"), "{late}");
    exec.end()?;
    let at = |changed: &Value| -> Result<i128> {
        let at_s = changed["at_s"].as_f64().context("no time")?;
        Ok(i128::try_from(Duration::from_secs_f64(at_s).as_nanos())?)
    };
    Ok([at(&lost.body)?, at(&delayed.body)?])
}

/// Returns the times of the first and the last ping of each phase: fast pings, lost pings, slow pings.
fn phases(log: &str) -> Result<[(i128, i128); 3]> {
    let mut lines = log.lines();
    let names: Vec<&str> = lines.next().context("an empty log")?.split(',').collect();
    let mut found: [Option<(i128, i128)>; 3] = [None; 3];
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        let cell = |name: &str| {
            let place = names.iter().position(|known| *known == name);
            place
                .and_then(|place| cells.get(place))
                .copied()
                .context("a column")
        };
        if cell("direction")? != "up" || cell("protocol")? != "icmp" {
            continue;
        }
        let arrival: i128 = cell("arrival_ns")?.parse()?;
        let phase = match cell("verdict")? {
            "loss" => 1,
            _ if cell("due_ns")?.parse::<i128>()? - arrival < 30_000_000 => 0,
            _ => 2,
        };
        let (first, last) = found[phase].get_or_insert((arrival, arrival));
        (*first, *last) = (arrival.min(*first), arrival.max(*last));
    }
    let [Some(soon), Some(lost), Some(late)] = found else {
        anyhow::bail!("a phase without a ping: {log}");
    };
    Ok([soon, lost, late])
}

/// Reads the record of the only experiment below a directory.
fn record_below(directory: &Path) -> Result<std::path::PathBuf> {
    let mut find = Command::new("find");
    let found = process::run(find.arg(directory).args(["-name", "*.jsonl"]))?;
    let found = String::from_utf8(found.stdout)?;
    let first = found.lines().next().context("no record")?;
    Ok(first.into())
}

#[test_support::test(Namespaces)]
fn a_change_that_no_schedule_says_is_no_file_and_says_why() -> Result<()> {
    let exec = Exec::start("--delay 1ms")?;
    let changed = exec.patch("", r#"{"toffee": {"drop": 2}}"#)?;
    ensure!(changed.status == 200, "{changed:?}");
    let refused = exec.get("/v1/links/link/history/scenario")?;
    ensure!(refused.status == 422, "{refused:?}");
    let detail = refused.body["detail"].as_str().unwrap_or_default();
    ensure!(detail.starts_with("toffee: "), "{refused:?}");
    // The state since then is included.
    let since = exec.get("/v1/links/link/history/scenario?since=2")?;
    ensure!(since.status == 200, "{since:?}");
    exec.end()
}
