//! A box between two interfaces that listens: it has given up everything else, and its API is complete.

use std::io::{Read as _, Write as _};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use netio::bed::{Bed, BedConfig, CLIENT_PORT, SERVER_PORT};

use test_support::api::{self, Listening};
use test_support::process;

#[test_support::test(Namespaces, Tool("ping"), Tool("ip"))]
fn a_box_is_watched_changed_captured_and_leased_while_it_is_confined() -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let ns = bed.emulator();
    process::ip(ns, "link set lo up")?;
    let mut command = process::farwire();
    command.args(["emulate", CLIENT_PORT, SERVER_PORT, "--delay", "5ms"]);
    command.args(api::OPEN);
    let live = ns.run(|| Listening::start(&mut command))??;
    let ping = |count: &str| {
        let mut ping = Command::new("ping");
        ping.args(["-q", "-c", count, "-i", "0.2", "-W", "20", "10.77.0.2"]);
        process::run_in(bed.client(), &mut ping)
    };
    ensure!(ping("1")?.status.success(), "the box lost a ping");

    let changed = ns.run(|| live.patch("", r#"{"delay": "6ms", "down": {"loss": "100%"}}"#))??;
    ensure!(changed.status == 200, "{changed:?}");
    let mut lost = Command::new("ping");
    lost.args(["-q", "-c", "2", "-i", "0.2", "-W", "1", "10.77.0.2"]);
    let lost = process::run_in(bed.client(), &mut lost)?;
    ensure!(!lost.status.success(), "pings passed a loss of 100 %");
    process::wait_for("two pings to be lost", || {
        let counted = ns.run(|| live.get("/v1/links/link/counters?since=2"))??;
        Ok((counted.body["down"]["dropped"]["loss"] == 2).then_some(()))
    })?;
    let metrics = ns.run(|| live.get("/metrics"))??;
    ensure!(
        metrics.text.contains("farwire_packets_total{") && metrics.text.ends_with("# EOF\n"),
        "{metrics:?}"
    );

    let good = ns.run(|| live.patch("", r#"{"down": {"loss": null}}"#))??;
    ensure!(good.status == 200, "{good:?}");
    let head = format!(
        "GET /v1/links/link/capture?side=b&for=60s HTTP/1.0\r\nHost: {}\r\n\r\n",
        live.at
    );
    let mut capture = ns.run(|| live.connect())??;
    capture.write_all(head.as_bytes())?;
    let mut begun = vec![0; 64];
    capture.read_exact(&mut begun)?;
    ensure!(begun.starts_with(b"HTTP/1.0 200 "), "{begun:?}");
    ensure!(ping("3")?.status.success(), "the box lost pings");
    // The EtherType of IPv4 and the number of ICMP must be in the blocks that follow.
    let mut seen = Vec::new();
    while !seen.windows(2).any(|pair| pair == [0x08, 0x00]) {
        let mut more = [0; 4096];
        let read = capture.read(&mut more)?;
        ensure!(read > 0, "the capture ended without a packet");
        seen.extend_from_slice(&more[..read]);
    }
    drop(capture);

    let before = ns.run(|| live.link())??["conditions"].clone();
    let body = r#"{"loss": "100%"}"#;
    let mut holder = ns.run(|| live.connect())??;
    write!(
        holder,
        "PATCH /v1/links/link?for=connection HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}\n",
        live.at,
        body.len()
    )?;
    process::wait_for("a lease", || {
        let link = ns.run(|| live.link())??;
        Ok(link["lease"].is_object().then_some(()))
    })?;
    drop(holder);
    process::wait_for("the box to revert", || {
        let link = ns.run(|| live.link())??;
        let is_back = link["lease"].is_null() && link["conditions"] == before;
        Ok(is_back.then_some(()))
    })?;
    ensure!(ping("1")?.status.success(), "the box stayed impaired");
    live.terminate().context("its end")
}
