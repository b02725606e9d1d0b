//! Stopping, starting and moving a schedule while its link runs.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::refusals::is_problem;
use test_support::api::{Answer, Exec};
use test_support::process;

/// Three pings that are answered, and three that are not.
const PINGS: &str = "ping -q -n -c 3 -i 0.2 -W 20 $FARWIRE_SERVER > /dev/null; echo $?";
const LOST_PINGS: &str = "ping -q -n -c 3 -i 0.2 -W 1 $FARWIRE_SERVER > /dev/null; echo $?";

/// The steps are so far apart that no test reaches one without moving the schedule.
const LINK: &str = "delay = '1ms'\n\
    schedule = [{ at = '1000s', loss = '100%' }, { at = '2000s', without = ['loss'] }]\n";

/// Starts `farwire exec` with [`LINK`].
fn start() -> Result<Exec> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), LINK)?;
    Exec::start(&format!("--link {}", file.path().display()))
}

fn put(exec: &Exec, more: &str, body: &str) -> Result<Answer> {
    let (query, headers) = more.split_once(' ').unwrap_or((more, ""));
    let line = format!("PUT /v1/links/link/schedule{query}");
    exec.with_body(&line, "application/json", headers, body)
}

/// Puts a valid request and returns the answer's body.
fn order(exec: &Exec, body: &str) -> Result<Value> {
    let answer = put(exec, "", body)?;
    ensure!(answer.status == 200, "{body}: {answer:?}");
    Ok(answer.body)
}

fn schedule(exec: &Exec) -> Result<Value> {
    let answer = exec.get("/v1/links/link/schedule")?;
    ensure!(answer.status == 200, "{answer:?}");
    Ok(answer.body)
}

fn seconds(value: &Value) -> Result<f64> {
    value.as_f64().with_context(|| format!("seconds: {value}"))
}

#[test_support::test(Namespaces, Tool("ping"))]
fn a_schedule_goes_to_a_time_and_packets_meet_what_it_has_then() -> Result<()> {
    let mut exec = start()?;
    let at_first = schedule(&exec)?;
    ensure!(at_first["state"] == "running", "{at_first}");
    ensure!(
        at_first["conditions"] == json!({"delay": "1ms"}),
        "{at_first}"
    );
    ensure!(at_first["last_s"] == 2000.0, "{at_first}");
    ensure!(exec.shell(PINGS)? == "0", "the link lost pings");

    let moved = order(&exec, r#"{"to": "1000s"}"#)?;
    ensure!(moved["revision"] == 2, "{moved}");
    let stands = json!({"state": "running", "time_s": 1000.0});
    ensure!(moved["link"]["schedule"] == stands, "{moved}");
    ensure!(
        exec.shell(LOST_PINGS)? != "0",
        "pings passed what the schedule has at 1000s"
    );
    process::wait_for("three lost pings", || {
        let counted = exec.get("/v1/links/link/counters?since=2")?.body;
        Ok((counted["up"]["dropped"]["loss"] == 3).then_some(()))
    })?;
    let then = schedule(&exec)?;
    ensure!(then["conditions"]["loss"] == "100%", "{then}");
    ensure!(seconds(&then["time_s"])? > 1000.0, "{then}");

    order(&exec, r#"{"to": "2000s"}"#)?;
    ensure!(exec.shell(PINGS)? == "0", "the link still loses pings");
    order(&exec, r#"{"to": "0s"}"#)?;
    let again = schedule(&exec)?;
    ensure!(again["conditions"] == at_first["conditions"], "{again}");
    exec.end()
}

#[test_support::test(Namespaces, Tool("ping"))]
fn a_schedule_that_is_stopped_stays_and_goes_on_from_there_once_it_is_started() -> Result<()> {
    let mut exec = start()?;
    let stopped = order(&exec, r#"{"state": "stopped", "to": "999900ms"}"#)?;
    let says = stopped["link"]["says"].as_str().unwrap_or_default();
    ensure!(says.ends_with("schedule stopped at 999.900 s"), "{says}");
    let before = schedule(&exec)?;
    // If it was running, it would reach its step meanwhile.
    std::thread::sleep(Duration::from_millis(300));
    let after = schedule(&exec)?;
    for one in [&before, &after] {
        ensure!(one["state"] == "stopped" && one["time_s"] == 999.9, "{one}");
    }
    ensure!(exec.shell(PINGS)? == "0", "a stopped schedule went on");
    // Another change leaves the schedule where it is.
    let patched = exec.patch("", r#"{"delay": "2ms"}"#)?.body;
    ensure!(
        patched["link"]["schedule"]["state"] == "stopped",
        "{patched}"
    );

    let started = order(&exec, r#"{"state": "running"}"#)?;
    ensure!(started["link"]["schedule"]["time_s"] == 999.9, "{started}");
    process::wait_for("the schedule to come to its next step", || {
        Ok((exec.shell(LOST_PINGS)? != "0").then_some(()))
    })?;
    let now = order(&exec, r#"{"state": "stopped"}"#)?;
    ensure!(
        seconds(&now["link"]["schedule"]["time_s"])? > 1000.0,
        "{now}"
    );
    ensure!(
        exec.shell(LOST_PINGS)? != "0",
        "what was in force did not stay"
    );
    let events = exec.get("/v1/links/link/history")?.body;
    let last = events["changes"].as_array().and_then(|all| all.last());
    let last = last.context("no changes")?;
    ensure!(last["schedule"] == now["link"]["schedule"], "{last}");
    exec.end()
}

#[test_support::test(Namespaces, Tool("ping"))]
fn outages_have_the_clock_of_a_schedule_and_are_moved_with_it() -> Result<()> {
    let mut exec = Exec::start("--delay 1ms --outage 1000s/2000s")?;
    let at_first = schedule(&exec)?;
    ensure!(at_first["state"] == "running", "{at_first}");
    ensure!(at_first["last_s"].is_null(), "{at_first}");
    ensure!(exec.shell(PINGS)? == "0", "the link lost pings");
    let moved = order(&exec, r#"{"to": "2000s"}"#)?;
    let stands = json!({"state": "running", "time_s": 2000.0});
    ensure!(moved["link"]["schedule"] == stands, "{moved}");
    ensure!(exec.shell(LOST_PINGS)? != "0", "pings passed an outage");
    order(&exec, r#"{"to": "3000s"}"#)?;
    ensure!(exec.shell(PINGS)? == "0", "the outage is not over");
    exec.end()
}

/// The trace serves nothing in the first 1000 s, and then 20 s long one packet each 20 ms.
#[test_support::test(Namespaces, Tool("ping"))]
fn a_trace_of_opportunities_has_the_clock_of_a_schedule_and_is_moved_with_it() -> Result<()> {
    let times: String = (0..=1_000)
        .map(|n| format!("{}\n", 1_000_000 + 20 * n))
        .collect();
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), times)?;
    let line = format!("--delay 1ms --up-trace {}", file.path().display());
    let mut exec = Exec::start(&line)?;
    let at_first = schedule(&exec)?;
    ensure!(at_first["state"] == "running", "{at_first}");
    ensure!(at_first["last_s"] == 1020.0, "{at_first}");
    ensure!(exec.shell(LOST_PINGS)? != "0", "pings passed a stall");
    let moved = order(&exec, r#"{"to": "1000s"}"#)?;
    let begins = json!({"state": "running", "time_s": 1000.0});
    ensure!(moved["link"]["schedule"] == begins, "{moved}");
    ensure!(exec.shell(PINGS)? == "0", "the trace was not moved");
    order(&exec, r#"{"to": "5s"}"#)?;
    ensure!(exec.shell(LOST_PINGS)? != "0", "it was not moved back");
    // While it is stopped, it serves as in the 100 ms before.
    order(&exec, r#"{"to": "1010s", "state": "stopped"}"#)?;
    ensure!(exec.shell(PINGS)? == "0", "a stopped trace serves nothing");
    exec.end()
}

#[test_support::test(Namespaces)]
fn a_lease_of_a_schedule_ends_as_though_it_had_never_been_moved() -> Result<()> {
    let exec = start()?;
    let moved = r#"{"to": "1500s", "state": "stopped"}"#;
    let leased = put(&exec, "?for=60s", moved)?;
    ensure!(leased.status == 200, "{leased:?}");
    let refused = put(&exec, "", r#"{"state": "running"}"#)?;
    is_problem(&refused, 409)?;
    let id = leased.body["link"]["lease"]["id"].as_str();
    let id = id.with_context(|| leased.text.clone())?;
    let shorter = format!("?for=300ms \r\nFarwire-Lease: {id}");
    let renewed = put(&exec, &shorter, moved)?;
    ensure!(renewed.body["revision"] == 3, "{renewed:?}");
    let then = process::wait_for("the schedule to revert", || {
        let now = schedule(&exec)?;
        Ok((now["revision"] == 4).then_some(now))
    })?;
    ensure!(then["state"] == "running", "{then}");
    ensure!(seconds(&then["time_s"])? < 1000.0, "{then}");
    ensure!(then["conditions"] == json!({"delay": "1ms"}), "{then}");
    exec.end()
}

#[test_support::test(Namespaces)]
fn what_became_of_a_schedule_is_told_as_a_link_file_of_its_own_times() -> Result<()> {
    let exec = start()?;
    let moved = order(&exec, r#"{"to": "1000s"}"#)?;
    let back = order(&exec, r#"{"to": "1s", "state": "stopped"}"#)?;
    let text = exec.get("/v1/links/link/history/link")?.text;
    let told: toml::Table = toml::from_str(&text)?;
    let steps = told["schedule"].as_array().context("no schedule")?;
    ensure!(steps.len() == 2, "{text}");
    let right = [("loss", &moved), ("without", &back)];
    for (step, (key, changed)) in steps.iter().zip(right) {
        ensure!(step.get(key).is_some(), "{text}");
        let at = step["at"].as_str().context("no time")?;
        let at: model::Nanos = at.parse()?;
        let at_s = seconds(&changed["at_s"])?;
        ensure!((at.0 as f64 / 1e9 - at_s).abs() < 1e-6, "{text} {changed}");
    }
    exec.end()
}

#[test_support::test(Namespaces)]
fn a_schedules_time_that_is_wrong_is_refused_and_changes_nothing() -> Result<()> {
    let exec = start()?;
    let before = exec.link()?;
    for (more, body, status, field) in [
        ("", r#"{"to": "soon"}"#, 422, Some("to")),
        ("", r#"{"to": "-1s"}"#, 422, Some("to")),
        ("", r#"{"to": 10}"#, 422, Some("to")),
        ("", r#"{"too": "10s"}"#, 422, Some("too")),
        ("", r#"{"state": "paused"}"#, 422, Some("state")),
        ("", "{}", 422, None),
        ("", "[]", 422, None),
        ("", r#"{"to""#, 400, None),
        ("?for=never", r#"{"to": "10s"}"#, 422, Some("for")),
        (" \r\nIf-Match: \"7\"", r#"{"to": "10s"}"#, 412, None),
        (" \r\nFarwire-Lease: x", r#"{"to": "10s"}"#, 404, None),
    ] {
        let answer = put(&exec, more, body)?;
        is_problem(&answer, status).with_context(|| body.to_owned())?;
        ensure!(answer.body["field"].as_str() == field, "{answer:?}");
    }
    let would = put(&exec, "?dry_run=1", r#"{"to": "1000s"}"#)?.body;
    let stands = json!({"state": "running", "time_s": 1000.0});
    ensure!(would["link"]["schedule"] == stands, "{would}");
    ensure!(exec.link()? == before, "what was refused changed the link");
    exec.end()
}
