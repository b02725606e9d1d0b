//! Refused requests, with their status and the named field.

use anyhow::{Result, ensure};
use serde_json::json;

use test_support::api::{Answer, Exec};
use test_support::process::{self, ends_with};

#[test_support::test(Namespaces)]
fn a_request_that_is_wrong_gets_its_code_and_changes_nothing() -> Result<()> {
    let exec = Exec::start("--delay 20ms")?;
    let before = exec.link()?;
    let put =
        |kind: &str, more: &str, body: &str| exec.with_body("PUT /v1/links/link", kind, more, body);
    let json_kind = "application/json";
    let send = |what: &str, body: &str| exec.with_body(what, json_kind, "", body);
    let of_link = |rest: &str| exec.get(&format!("/v1/links/link/{rest}"));
    let large = json!({"name": "x".repeat(100_000)}).to_string();
    let copier =
        |n: usize| json!({"kind": "duplicate", "name": format!("d{n}"), "duplicate": "100%"});
    let copies = json!({"stages": (0..30).map(copier).collect::<Vec<_>>()}).to_string();
    let class = |n: usize| json!({"name": format!("c{n}"), "port": n + 1});
    let classes = json!({"rules": (0..800).map(class).collect::<Vec<_>>()}).to_string();
    let filter = format!("capture?filter={}", vec!["tcp"; 33].join("%20and%20"));
    for (answer, status, field) in [
        (put(json_kind, "", "{\"delay\": \"2")?, 400, None),
        (put(json_kind, "", r#"{"dely": "2ms"}"#)?, 422, Some("dely")),
        (
            put(json_kind, "", r#"{"up": {"loss": "101%"}}"#)?,
            422,
            Some("up.loss"),
        ),
        (
            put(json_kind, "", r#"{"queue": "5pkt"}"#)?,
            422,
            Some("queue"),
        ),
        (put(json_kind, "", r#"{"seed": 99}"#)?, 422, Some("seed")),
        (put(json_kind, "\r\nIf-Match: \"7\"", "{}")?, 412, None),
        (put(json_kind, "\r\nIf-Match: 7", "{}")?, 412, None),
        (put(json_kind, "\r\nIf-Match:", "{}")?, 412, None),
        (put(json_kind, "\r\nFarwire-Lease: x", "{}")?, 404, None),
        (put(json_kind, "", &copies)?, 422, Some("stages")),
        (exec.patch("?dry_run=1", &copies)?, 422, Some("stages")),
        (put(json_kind, "", &classes)?, 422, Some("rules")),
        (of_link(&filter)?, 400, Some("filter")),
        (put("text/plain", "", "{}")?, 415, None),
        (put(json_kind, "", &large)?, 413, None),
        (exec.patch("?for=forever", "{}")?, 422, Some("for")),
        (exec.patch("?four=1s", "{}")?, 400, Some("four")),
        (exec.patch("?dry_run=2", "{}")?, 400, Some("dry_run")),
        (exec.patch("?for=1s&for=2s", "{}")?, 400, None),
        (of_link("counters?since=abc")?, 400, Some("since")),
        (exec.get("/v1/links/none")?, 404, None),
        (exec.get("/v1/../../etc/passwd")?, 404, None),
        (of_link("counters?since=9")?, 404, None),
        (of_link("history/csv")?, 404, None),
        (of_link("history/link?since=9")?, 404, None),
        (exec.get("/v1/links/none/capture")?, 404, None),
        (exec.get("/v1/links/%ff")?, 404, None),
        (of_link("capture?side=c")?, 400, Some("side")),
        (of_link("capture?filter=tpc")?, 400, Some("filter")),
        (of_link("schedule")?, 404, None),
        (
            exec.with_body(
                "PUT /v1/links/link/schedule",
                json_kind,
                "",
                r#"{"to": "1s"}"#,
            )?,
            409,
            None,
        ),
        (send("POST /v1/links/link", "{}")?, 405, None),
        (send("DELETE /v1/links/link/lease", "")?, 404, None),
    ] {
        is_problem(&answer, status)?;
        let named = answer.body["field"].as_str();
        ensure!(named == field, "{answer:?}");
    }
    ensure!(exec.link()? == before, "what was refused changed the link");
    exec.end()
}

#[test_support::test(Namespaces)]
fn another_pages_request_and_one_by_another_name_are_refused() -> Result<()> {
    let exec = Exec::start("--delay 20ms")?;
    let by_name = exec.send("GET /v1/links HTTP/1.1\r\nHost: attacker.example", "")?;
    is_problem(&by_name, 403)?;
    let page = format!(
        "GET /v1/links HTTP/1.1\r\nHost: {}\r\nOrigin: http://attacker.example",
        exec.at
    );
    is_problem(&exec.send(&page, "")?, 403)?;
    // A browser sends this for <img src="http://127.0.0.1:7700/v1/links/link/capture">.
    let image = format!(
        "GET /v1/links/link/capture HTTP/1.1\r\nHost: {}\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: image",
        exec.at
    );
    is_problem(&exec.send(&image, "")?, 403)?;
    let own = exec.get("/")?;
    ensure!(own.status == 200, "{own:?}");
    ensure!(
        own.head
            .contains("content-security-policy: default-src 'none'"),
        "{own:?}"
    );
    exec.end()
}

#[test_support::test(Namespaces)]
fn an_address_beyond_loopback_is_refused_at_the_start() -> Result<()> {
    let ended =
        process::run(process::farwire().args(["exec", "--listen", "0.0.0.0:0", "--", "true"]))?;
    ends_with(&ended, 125, "--listen 0.0.0.0:0")?;
    Ok(())
}

pub(crate) fn is_problem(answer: &Answer, status: u16) -> Result<()> {
    ensure!(answer.status == status, "{status}: {answer:?}");
    ensure!(
        answer
            .head
            .contains("content-type: application/problem+json"),
        "{answer:?}"
    );
    ensure!(answer.body["status"] == status, "{answer:?}");
    Ok(())
}
