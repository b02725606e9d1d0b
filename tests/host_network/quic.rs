//! A flow of QUIC sees the loss of the link: each packet that the link drops is one that QUIC declares lost.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde::Deserialize;

use super::end;
use test_support::host::Host;
use test_support::powerless::farwire_unprivileged;
use test_support::process::{self, format_tool, root, stdout};
use test_support::wan_box::Summary;

/// The interpreter with the package aioquic.
const PYTHON: &str = "bin/python";
const SCRIPT: &str = "tests/host_network/quic.py";
/// The least number of packets that a direction loses: 3 % of more than 500 packets, with a margin.
const LEAST_LOST: usize = 3;

/// The numbers of the packets of one end that have data or acknowledgements of data.
#[derive(Debug, Deserialize)]
struct Packets {
    sent: BTreeSet<u64>,
    received: BTreeSet<u64>,
    /// The packets that this end declared lost, some of them because no acknowledgement came in time.
    lost: BTreeSet<u64>,
    /// The packets with data that acknowledgements of later ones proved lost.
    lost_by_acknowledgement: BTreeSet<u64>,
}

/// The packets of the two ends of a connection.
#[derive(Debug, Deserialize)]
struct Ends {
    near: Packets,
    far: Packets,
}

#[test_support::test(All, HostNetwork, FormatTool(PYTHON))]
fn the_packets_that_quic_declares_lost_are_those_that_the_link_dropped() -> Result<()> {
    let host = Host::start(false)?;
    let mut command = python();
    command.arg("serve").stdout(Stdio::piped());
    command.stdin(Stdio::null());
    let mut server = host.own().run(|| command.spawn())??;
    let sent = server
        .stdout
        .take()
        .context("no output")
        .and_then(|output| {
            let mut line = String::new();
            BufReader::new(output).read_line(&mut line)?;
            ensure!(line == "serves\n", "the server said {line}");
            send_to(&host)
        });
    end(&mut server, Signal::SIGKILL)?;
    let (ends, summary) = sent?;
    for (sender, receiver, direction) in [
        (&ends.near, &ends.far, &summary.up),
        (&ends.far, &ends.near, &summary.down),
    ] {
        let last = receiver.received.last().context("nothing arrived")?;
        // Later packets may have been on their way. The link lost none of them.
        let due = sender.sent.iter().copied().filter(|number| number < last);
        let missing: BTreeSet<u64> = due.filter(|n| !receiver.received.contains(n)).collect();
        ensure!(
            missing.len() >= LEAST_LOST
                && direction.lost() == missing.len() as u64
                && direction.queue_full() + direction.own_losses() == 0,
            "{} missing: {direction:?}",
            missing.len()
        );
        // The path keeps the order, so such a packet has not arrived.
        ensure!(
            sender.lost_by_acknowledgement.is_subset(&missing) && missing.is_subset(&sender.lost),
            "{missing:?} are missing: {sender:?}"
        );
    }
    Ok(())
}

/// Sends to the server of the host from behind a link. Returns the packets of both ends, and what the link counted.
fn send_to(host: &Host) -> Result<(Ends, Summary)> {
    let directory = tempfile::tempdir()?;
    let json = directory.path().join("summary");
    let at = format!("unix:{}", directory.path().join("socket").display());
    let client = python();
    let mut command = farwire_unprivileged()?;
    command.args(["exec", "--net", "host", "--delay", "5ms"]);
    command.args(["--listen", &at, "--json"]).arg(&json);
    command.arg("--").arg(client.get_program());
    command.args(client.get_args());
    command.args(["send", "10.77.255.1", &at]);
    command.env("PYTHONPATH", root().join("python"));
    let output = process::succeeds_in(host.own(), &mut command)?;
    let ends = serde_json::from_str(&stdout(&output))?;
    Ok((ends, serde_json::from_slice(&fs::read(json)?)?))
}

/// Returns the script, which needs the Python package of the checkout.
fn python() -> Command {
    let mut command = Command::new(format_tool(PYTHON));
    command.arg("-B").arg(root().join(SCRIPT));
    command.env("PYTHONPATH", root().join("python"));
    command
}
