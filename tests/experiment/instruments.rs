//! Single instruments, against the far end and against the end of a test bed.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use test_support::far_end::FarEnd;
use test_support::measured::figure;
use test_support::process::{self, ends_with, farwire};
use test_support::suite::{Need, Suite};

#[test_support::tests]
fn add(suite: &mut Suite) {
    for address in ["10.77.0.2", "fd77::2"] {
        suite.test(
            format!("every echo to {address} is answered once"),
            &[Need::Namespaces],
            move || every_echo_is_answered(address),
        );
    }
}

#[test_support::test]
fn a_download_from_the_far_end_is_measured() -> Result<()> {
    let far_end = FarEnd::start(farwire().arg("serve"))?;
    let url = format!("http://{}/bytes/1000000", far_end.address("http")?);
    let measured: Value = process::json(farwire().args(["measure", "http", &url, "--json", "-"]))?;
    ensure!(
        figure(&measured, "received_bytes", "total") == Some(1e6),
        "{measured}"
    );
    Ok(())
}

#[test_support::test]
fn a_resource_that_is_not_there_fails_the_measurement() -> Result<()> {
    let far_end = FarEnd::start(farwire().arg("serve"))?;
    let url = format!("http://{}/nothing", far_end.address("http")?);
    let output = process::run(farwire().args(["measure", "http", &url]))?;
    ends_with(&output, 1, "404")?;
    Ok(())
}

#[test_support::test]
fn a_sighup_ignored_at_the_start_stays_ignored() -> Result<()> {
    let far_end = FarEnd::start(farwire().arg("serve"))?;
    ensure!(!far_end.ignores_hang_up()?, "SIGHUP is ignored unasked");
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]);
    shell.arg(farwire().get_program()).arg("serve");
    let far_end = FarEnd::start(&mut shell)?;
    ensure!(far_end.ignores_hang_up()?, "SIGHUP is no longer ignored");
    Ok(())
}

fn every_echo_is_answered(address: &str) -> Result<()> {
    let mut command = farwire();
    let program = command.get_program().to_owned();
    command.args(["exec", "--"]).arg(program);
    command.args(["measure", "ping", address, "--count", "5"]);
    let measured: Value = process::json(command.args(["--interval", "2ms", "--json", "-"]))?;
    for (metric, wanted) in [
        ("sent_packets", 5.0),
        ("received_packets", 5.0),
        ("duplicate_packets", 0.0),
    ] {
        let found = figure(&measured, metric, "total");
        ensure!(found == Some(wanted), "{measured}");
    }
    let samples = measured["samples"].as_array().context("samples")?;
    ensure!(
        samples.iter().all(|sample| sample["metric"] == "rtt_ms"),
        "{measured}"
    );
    Ok(())
}
