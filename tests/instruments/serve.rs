//! The far end as its operator uses it: permitted clients, and the log.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use test_support::far_end::FarEnd;
use test_support::process::{self, ends_with, farwire};

#[test_support::test]
fn each_test_is_logged_as_a_line_of_json() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let log = directory.path().join("log");
    let far_end = FarEnd::start(farwire().arg("serve").arg("--json").arg(&log))?;
    let url = format!("http://{}/bytes/1000", far_end.address("http")?);
    process::succeeds(farwire().args(["measure", "http", &url]))?;
    let logged = || Ok(Some(fs::read_to_string(&log)?).filter(|text| text.ends_with('\n')));
    let line = process::wait_for("the test to be logged", logged)?;
    let entry: Value = serde_json::from_str(&line)?;
    ensure!(entry["test"] == "http", "{entry}");
    ensure!(entry["samples"].is_null(), "{entry}");
    let sent = entry["figures"].as_array().context("figures")?.iter();
    let sent = sent.filter(|figure| figure["metric"] == "sent_bytes");
    ensure!(
        sent.map(|f| f["value"].as_f64()).eq([Some(1000.0)]),
        "{entry}"
    );
    Ok(())
}

#[test_support::test]
fn a_test_that_the_end_of_the_server_cuts_short_is_logged() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let log = directory.path().join("log");
    let mut far_end = FarEnd::start(farwire().arg("serve").arg("--json").arg(&log))?;
    let mut stream = TcpStream::connect(far_end.address("http")?)?;
    stream.write_all(b"GET /seconds/3600 HTTP/1.1\r\nHost: x\r\n\r\n")?;
    stream.read_exact(&mut [0; 1000])?;
    far_end.interrupt()?;
    let entry: Value = serde_json::from_str(&fs::read_to_string(&log)?)?;
    ensure!(entry["test"] == "http", "{entry}");
    Ok(())
}

#[test_support::test]
fn who_is_not_allowed_is_told_so() -> Result<()> {
    let far_end = FarEnd::start(farwire().args(["serve", "--allow", "10.0.0.0/8"]))?;
    let url = format!("http://{}/bytes/1000", far_end.address("http")?);
    let output = process::run(farwire().args(["measure", "http", &url]))?;
    ends_with(&output, 1, "503")?;
    Ok(())
}
