//! `farwire run` that listens: its links, its progress, and refused changes.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use test_support::api::{self, Answer, Listening};
use test_support::process::{self, has};
use test_support::scenario::TWO_CASES;

/// A chain of routers that runs as long as the test needs.
const CHAIN: &str = "\
name = 'row'
title = 'Nodes in a row'
tcp = { congestion = 'reno' }
[[instruments]]
name = 'echo'
kind = 'ping'
parameters = { count = 60000, interval = '10ms' }
[bed]
kind = 'chain'
nodes = ['a', 'b', 'c']
links = { 'b-c' = { delay = '3ms' } }
[[cases]]
name = 'long'
";

#[test_support::test(Namespaces)]
fn a_runs_link_is_watched_its_table_grows_and_nobody_changes_its_conditions() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let run = start(folder.path(), TWO_CASES)?;
    let between = process::wait_for("the answer between two runs", || {
        let answer = run.get("/v1/links/link")?;
        Ok((answer.body["next"].is_object()).then_some(answer))
    })?;
    ensure!(between.status == 404, "{between:?}");
    ensure!(
        between.head.contains("application/problem+json"),
        "{between:?}"
    );
    let next = between.body["next"]["case"].as_str().context("a case")?;
    ensure!(["short", "long"].contains(&next), "{between:?}");
    let view = running(&run, "long")?;
    // Runs that the machine spoils are attempted again.
    let (done, planned) = (view["done"].as_u64(), view["planned"].as_u64());
    ensure!(done >= Some(1), "{view}");
    ensure!(planned == done.map(|done| done + 1), "{view}");
    ensure!(
        view["eta_s"].as_f64().is_some_and(|left| left > 100.0),
        "{view}"
    );
    ensure!(view["phase"] == "echo" && view["next"].is_null(), "{view}");
    let rows = view["rows"].as_array().context("rows")?;
    let rtt = rows.iter().find(|row| row["figure"] == "rtt_ms.median");
    let rtt = rtt.with_context(|| view.to_string())?;
    let value = rtt["value"].as_f64().context("a value")?;
    ensure!(rtt["case"] == "short" && value >= 2.0, "{rtt}");
    let link = run.get("/v1/links/link")?.body;
    ensure!(link["conditions"]["delay"] == "2ms", "{link}");
    ensure!(
        link["fixed"]
            .as_str()
            .is_some_and(|why| why.contains("those of its scenario")),
        "{link}"
    );
    is_refused(&run)?;
    let metrics = run.get("/metrics?link=*")?.text;
    has(&metrics, "farwire_run_valid{link=\"link\"}")?;
    let events = BufReader::new(follow(&run)?);
    let mut events = events.lines().map_while(Result::ok);
    ensure!(events.any(|line| line == "event: sample"), "no sample came");
    run.terminate()?;
    ensure!(
        events.any(|line| line == "event: end"),
        "nothing said that the link ended"
    );
    Ok(())
}

#[test_support::test(Namespaces)]
fn a_chains_links_are_named_by_their_nodes() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let run = start(folder.path(), CHAIN)?;
    running(&run, "long")?;
    let links = run.get("/v1/links")?.body;
    for (number, (name, ends)) in [("a-b", ["a", "b"]), ("b-c", ["b", "c"])]
        .iter()
        .enumerate()
    {
        let link = &links["links"][number];
        ensure!(link["name"] == *name, "{links}");
        ensure!(link["ends"] == serde_json::json!(ends), "{links}");
    }
    ensure!(links["links"][1]["conditions"]["delay"] == "3ms", "{links}");
    run.terminate()
}

/// A change of the link is refused; its dry run is answered.
fn is_refused(run: &Listening) -> Result<()> {
    let patch = |query: &str| -> Result<Answer> {
        let line = format!("PATCH /v1/links/link{query}");
        run.with_body(
            &line,
            "application/merge-patch+json",
            "",
            r#"{"loss": "1%"}"#,
        )
    };
    for query in ["", "?for=10s"] {
        let refused = patch(query)?;
        ensure!(refused.status == 409, "{refused:?}");
        let why = refused.body["detail"].as_str().context("a detail")?;
        has(
            why,
            "conditions of a measured run are those of its scenario",
        )?;
    }
    let tried = patch("?dry_run=1")?;
    ensure!(tried.status == 200, "{tried:?}");
    ensure!(tried.body["revision"] == 1, "{tried:?}");
    let link = run.get("/v1/links/link")?.body;
    ensure!(link["revision"] == 1, "{link}");
    ensure!(link["conditions"]["loss"].is_null(), "{link}");
    Ok(())
}

/// Starts `farwire run` with this scenario; on return it listens.
fn start(folder: &Path, scenario: &str) -> Result<Listening> {
    let file = folder.join("scenario.toml");
    fs::write(&file, scenario)?;
    let mut run = process::farwire();
    run.arg("run")
        .args(api::OPEN)
        .arg("--out")
        .arg(folder.join("out"))
        .arg(&file)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    Listening::start(&mut run)
}

/// Waits until this case runs and returns the state of the experiment.
fn running(run: &Listening, case: &str) -> Result<Value> {
    process::wait_for("the case to run", || {
        let view = run.get("/v1/run")?.body;
        Ok((view["case"] == case && view["phase"] == "echo").then_some(view))
    })
}

fn follow(run: &Listening) -> Result<std::net::TcpStream> {
    let mut stream = run.connect()?;
    let host = run.at;
    write!(
        stream,
        "GET /v1/links/link/events HTTP/1.1\r\nHost: {host}\r\n\r\n"
    )?;
    Ok(stream)
}
