//! Other programs in place of farwire's instruments, as a user runs them.

use std::fs;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use test_support::far_end::FarEnd;
use test_support::process::{self, ends_with, farwire};
use test_support::suite::{Need, Suite};

#[test_support::tests]
fn add(suite: &mut Suite) {
    for (tool, kind, server, more) in [
        ("iperf3", "tcp", "iperf3 -s", "-P 2"),
        ("iperf3", "tcp", "iperf3 -s", "--bidir"),
        ("iperf", "tcp", "iperf -s", "-R"),
        ("nuttcp", "tcp", "nuttcp -S --nofork", "-P 2"),
        ("nuttcp", "tcp", "nuttcp -S --nofork", "-R"),
        ("iperf3", "udp", "iperf3 -s", "-b 2M -R"),
        ("iperf", "udp", "iperf -s -u", "-b 2M"),
        ("nuttcp", "udp", "nuttcp -S --nofork", "-b 2M -l 1000"),
    ] {
        suite.test(
            format!("{tool} measures {kind} {more}"),
            &[Need::Namespaces, Need::Tool(tool)],
            move || {
                let arguments = format!("{kind} 10.77.0.2 --tool {tool} -t 1 -i 0.5 {more}");
                let measured = measured(&in_bed(Some(server), &arguments)?)?;
                let goodput = value(&measured, "goodput_bit_per_s")?;
                ensure!(goodput > 0.0, "{measured}");
                Ok(())
            },
        );
    }
    for (tool, metric) in [("wget", "received_bytes"), ("curl", "first_byte_ms")] {
        suite.test(
            format!("{tool} measures a download"),
            &[Need::Tool(tool)],
            move || {
                let far_end = FarEnd::start(farwire().arg("serve"))?;
                let url = format!("http://{}/bytes/300000", far_end.address("http")?);
                let mut command = farwire();
                command.args(["measure", "http", &url, "--tool", tool, "--json", "-"]);
                let measured = measured(&process::run(&mut command)?)?;
                ensure!(value(&measured, metric)? > 0.0, "{measured}");
                Ok(())
            },
        );
    }
}

#[test_support::test(Namespaces, Tool("iperf"))]
fn iperf_does_not_call_what_it_buffered_goodput() -> Result<()> {
    let output = in_bed(Some("iperf -s"), "tcp 10.77.0.2 --tool iperf -t 1")?;
    let measured = measured(&output)?;
    ensure!(value(&measured, "goodput_bit_per_s").is_err(), "{measured}");
    ensure!(value(&measured, "sent_rate_bit_per_s")? > 0.0, "{measured}");
    Ok(())
}

#[test_support::test(Namespaces, Tool("iperf3"))]
fn a_server_that_is_not_there_is_named_by_the_tools_own_words() -> Result<()> {
    let output = in_bed(None, "tcp 10.77.0.2 --tool iperf3 -p 9 -t 1")?;
    ends_with(&output, 1, "Connection refused")?;
    Ok(())
}

#[test_support::test(Namespaces, Tool("ping"))]
fn the_systems_ping_takes_the_same_options() -> Result<()> {
    let options = "ping 10.77.0.2 --tool ping -c 3 -i 10ms -t 5 -S 0xb8 -B 10.77.0.1";
    let measured = measured(&in_bed(None, options)?)?;
    ensure!(value(&measured, "received_packets")? == 3.0, "{measured}");
    Ok(())
}

#[test_support::test]
fn a_tool_that_is_not_here_names_its_package() -> Result<()> {
    let empty = tempfile::tempdir()?;
    let mut command = farwire();
    command.args(["measure", "tcp", "127.0.0.1", "--tool", "nuttcp"]);
    let output = process::run(command.env("PATH", empty.path()))?;
    ends_with(&output, 3, "apt-get install nuttcp")?;
    Ok(())
}

#[test_support::test]
fn what_a_tool_cannot_do_is_bad_input() -> Result<()> {
    for options in [
        "--tool nuttcp -C reno",
        "--tool iperf --bidir",
        "--tool iperf --connect-timeout 1s",
        "--tool iperf3 -t 1.5",
    ] {
        let mut command = farwire();
        command.args(["measure", "tcp", "127.0.0.1"]);
        let output = process::run(command.args(options.split(' ')))?;
        ensure!(output.status.code() == Some(2), "{options}: {output:?}");
    }
    Ok(())
}

const SCENARIO: &str = "\
name = 'tools'
title = 'Every tool'
late_budget = '1s'
bed = { kind = 'netns', wire = { rate = '50mbit', delay = '1ms' } }
tcp = { congestion = 'cubic' }
[[instruments]]
name = 'iperf3'
kind = 'tcp'
parameters = { tool = 'iperf3', time = '1s', bidir = true }
[[instruments]]
name = 'iperf'
kind = 'tcp'
parameters = { tool = 'iperf', time = '1s', reverse = true }
[[instruments]]
name = 'iperf-udp'
kind = 'udp'
parameters = { tool = 'iperf', time = '1s', bitrate = '2M' }
[[instruments]]
name = 'nuttcp'
kind = 'tcp'
parameters = { tool = 'nuttcp', time = '1s' }
[[instruments]]
name = 'curl'
kind = 'http'
parameters = { tool = 'curl', path = '/bytes/200000' }
[[instruments]]
name = 'files'
kind = 'http'
parameters = { count = 20, sizes = '1kb,20kb' }
[[cases]]
name = 'plain'
title = 'nothing added'
";

#[test_support::test(
    Namespaces,
    Tool("iperf3"),
    Tool("iperf"),
    Tool("nuttcp"),
    Tool("curl")
)]
fn tools_are_instruments_of_a_scenario_with_their_servers_at_the_far_end() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (file, out) = (
        directory.path().join("tools.toml"),
        directory.path().join("out"),
    );
    fs::write(&file, SCENARIO)?;
    let mut command = farwire();
    command.arg("run").arg(&file).arg("--out").arg(&out);
    process::succeeds(&mut command)?;
    let record = fs::read_to_string(out.join("record.jsonl"))?;
    // The run follows the head and the baseline.
    let line = record.lines().nth(2).context("a run")?;
    let record: Value = serde_json::from_str(line)?;
    let measurements = record["run"]["measurements"].as_array();
    let measurements = measurements.context("measurements")?;
    ensure!(measurements.len() == 6, "{record}");
    for measurement in measurements {
        let goodput = value(measurement, "goodput_bit_per_s")?;
        // Allow ten times the link's rate: if the machine delays a tool, its time is too short and its rate too high.
        ensure!(goodput > 0.0 && goodput < 500e6, "{measurement}");
    }
    // farwire reads the drops of the server's socket in its namespace.
    let udp = measurements
        .iter()
        .find(|one| one["instrument"] == "iperf-udp");
    let interval = udp.and_then(|udp| udp["facts"]["interval up"].as_str());
    let interval = interval.with_context(|| format!("{record}"))?;
    ensure!(interval.contains("receiving host"), "{interval}");
    Ok(())
}

/// Runs `farwire measure ARGUMENTS` on a test bed, with `server` at its far end instead of farwire's.
fn in_bed(server: Option<&str>, arguments: &str) -> Result<Output> {
    let mut command: Command = farwire();
    let program = command.get_program().to_owned();
    command.arg("exec");
    if let Some(server) = server {
        command.args(["--far", server]);
    }
    command.arg("--").arg(program).arg("measure");
    command.args(arguments.split_whitespace());
    process::run(command.args(["--json", "-"]))
}

fn measured(output: &Output) -> Result<Value> {
    ensure!(output.status.success(), "{output:?}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Returns the first figure of a metric, whatever its direction.
fn value(measured: &Value, metric: &str) -> Result<f64> {
    let figures = measured["figures"].as_array().context("figures")?;
    let found = figures.iter().find(|figure| figure["metric"] == metric);
    let value = found.and_then(|figure| figure["value"].as_f64());
    value.with_context(|| format!("{metric}: {measured}"))
}
