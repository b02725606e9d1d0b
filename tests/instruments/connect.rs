//! `measure connect` against a listener, a closed port and the far end of a test bed.

use std::process::Output;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use socket2::{Domain, Socket, Type};

use test_support::far_end::FarEnd;
use test_support::measured::figure;
use test_support::process::{self, farwire};

#[test_support::test(Namespaces)]
fn a_handshake_takes_one_round_trip() -> Result<()> {
    let mut command = farwire();
    let program = command.get_program().to_owned();
    command.args(["exec", "--delay", "10ms", "--"]).arg(program);
    command.args(["measure", "connect", "10.77.0.2", "-c", "6", "-i", "1ms"]);
    let measured = json(&process::run(command.args(["--json", "-"]))?)?;
    let least = figure(&measured, "connect_ms", "min").context("a least")?;
    ensure!(least >= 20.0, "{measured}");
    Ok(())
}

#[test_support::test]
fn every_handshake_with_the_far_end_is_timed() -> Result<()> {
    let far_end = FarEnd::start(farwire().arg("serve"))?;
    let measured = measure(&far_end.address("http")?.to_string())?;
    ensure!(measured["facts"]["refused"] == "0 of 6", "{measured}");
    Ok(())
}

#[test_support::test]
fn a_closed_port_answers_by_refusing() -> Result<()> {
    // The socket is bound but does not listen: nobody else gets the port, and the kernel refuses connections.
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    let any: std::net::SocketAddr = "127.0.0.1:0".parse()?;
    socket.bind(&any.into())?;
    let closed = socket.local_addr()?.as_socket().context("an address")?;
    let measured = measure(&closed.to_string())?;
    ensure!(measured["facts"]["refused"] == "6 of 6", "{measured}");
    Ok(())
}

/// Returns the results of six handshakes with `target`, all of which must be answered.
fn measure(target: &str) -> Result<Value> {
    let mut command = farwire();
    command.args(["measure", "connect", target, "-c", "6", "-i", "1ms"]);
    let measured = json(&process::run(command.args(["--json", "-"]))?)?;
    for (metric, statistic, wanted) in [
        ("sent_packets", "total", 6.0),
        ("received_packets", "total", 6.0),
        ("lost_percent", "mean", 0.0),
    ] {
        let found = figure(&measured, metric, statistic);
        ensure!(found == Some(wanted), "{measured}");
    }
    Ok(measured)
}

fn json(output: &Output) -> Result<Value> {
    ensure!(output.status.success(), "{output:?}");
    Ok(serde_json::from_slice(&output.stdout)?)
}
