//! The host's stack takes no part in the traffic of the box, and gets its interfaces back afterwards.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};
use netio::bed::{Bed, BedConfig, CLIENT, CLIENT_PORT, SERVER, SERVER_PORT, WAN};
use nix::sys::signal::Signal;

use test_support::capture::{Capture, Seen};
use test_support::counters::Counters;
use test_support::nft;
use test_support::process::{self, ip};
use test_support::suite::{Need, Suite};
use test_support::wan_box::WanBox;

const NEEDS: [Need; 3] = [Need::Namespaces, Need::Tool("ip"), Need::Tool("ping")];

#[test_support::tests]
fn add(suite: &mut Suite) {
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        suite.test(
            format!(
                "an address of the box is silent while it runs and answers again after {signal}"
            ),
            &NEEDS,
            move || silent_while_it_runs(signal),
        );
    }
}

fn silent_while_it_runs(signal: Signal) -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let emulator = bed.emulator();
    emulator.write_sysctl(&format!("net/ipv6/conf/{CLIENT_PORT}/disable_ipv6"), "0")?;
    ip(emulator, &format!("link set {CLIENT_PORT} arp on"))?;
    ip(
        emulator,
        &format!("address add 10.77.0.9/24 dev {CLIENT_PORT}"),
    )?;
    ip(
        emulator,
        &format!("address add fd77::9/64 dev {CLIENT_PORT} nodad"),
    )?;
    for address in ADDRESSES {
        ensure!(
            answers(&bed, address)?,
            "{address} does not answer without a box"
        );
    }
    let mut wan = WanBox::start(&bed, "--force --delay 1ms")?;
    for address in ADDRESSES {
        ensure!(
            !answers(&bed, address)?,
            "{address} answers while the box runs"
        );
    }
    ensure!(
        answers(&bed, "10.77.0.2")?,
        "the far end does not answer through the box"
    );
    wan.end_by(signal)?;
    for address in ADDRESSES {
        ensure!(
            answers(&bed, address)?,
            "{address} does not answer any more"
        );
    }
    Ok(())
}

const ADDRESSES: [&str; 2] = ["10.77.0.9", "fd77::9"];

/// Returns whether the client gets an answer from `address`, whose hardware address it does not know yet.
fn answers(bed: &Bed, address: &str) -> Result<bool> {
    ip(
        bed.client(),
        &format!("neighbour flush to {address} dev {WAN}"),
    )?;
    let mut ping = Command::new("ping");
    let output = process::run_in(
        bed.client(),
        ping.args(["-c", "2", "-i", "0.2", "-W", "1", address]),
    )?;
    Ok(output.status.success())
}

/// The socket that owns the table is closed when the last of both processes has closed it.
#[test_support::test(Namespaces, Tool("ip"))]
fn the_helper_keeps_the_table_until_it_has_acted() -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let mut wan = WanBox::start(&bed, "--delay 1ms")?;
    let held = sockets(wan.pid())?;
    let shared: Vec<PathBuf> = sockets(wan.holder()?)?
        .into_iter()
        .filter(|socket| held.contains(socket))
        .collect();
    // Netlink's table of sockets has the inode in its last column, and protocol 12 is that of nftables.
    let known = bed
        .emulator()
        .run(|| fs::read_to_string("/proc/thread-self/net/netlink"))??;
    let owns = |row: &&str| {
        let columns: Vec<&str> = row.split_whitespace().collect();
        matches!(columns[..], [_, "12", .., inode] if shared.contains(&format!("socket:[{inode}]").into()))
    };
    ensure!(
        known.lines().filter(owns).count() == 1,
        "{shared:?} in {known}"
    );
    let tables = nft::tables(bed.emulator())?;
    ensure!(tables.len() == 1, "tables: {tables:?}");
    wan.end_by(Signal::SIGKILL)?;
    let tables = nft::tables(bed.emulator())?;
    ensure!(tables.is_empty(), "tables are left: {tables:?}");
    Ok(())
}

/// Returns the sockets that a process holds, as `socket:[inode]`.
fn sockets(pid: u32) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        // A descriptor may be closed meanwhile.
        if let Ok(to) = fs::read_link(entry?.path())
            && to.to_string_lossy().starts_with("socket:")
        {
            found.push(to);
        }
    }
    Ok(found)
}

/// The client uses the box as a router: without farwire, the host forwards its packets.
#[test_support::test(Namespaces, Tool("ip"), Tool("ping"))]
fn a_host_that_forwards_sends_nothing_twice() -> Result<()> {
    const PINGS: u64 = 5;
    let bed = Bed::build(&BedConfig::default())?;
    let emulator = bed.emulator();
    emulator.write_sysctl("net/ipv4/ip_forward", "1")?;
    ip(
        emulator,
        &format!("address add 10.77.0.9/24 dev {CLIENT_PORT}"),
    )?;
    ip(
        emulator,
        &format!("route add {}/32 dev {SERVER_PORT}", SERVER.v4),
    )?;
    let mac = SERVER.mac.map(|byte| format!("{byte:02x}")).join(":");
    ip(
        emulator,
        &format!(
            "neighbour replace {} lladdr {mac} dev {SERVER_PORT}",
            SERVER.v4
        ),
    )?;
    let link = ip(emulator, &format!("-brief link show dev {CLIENT_PORT}"))?;
    let router = link.split_whitespace().nth(2).unwrap_or_default();
    ip(
        bed.client(),
        &format!("neighbour replace {} lladdr {router} dev {WAN}", SERVER.v4),
    )?;
    let ping = || {
        let count = PINGS.to_string();
        let mut ping = Command::new("ping");
        ping.args(["-c", &count, "-i", "0.02", "-W", "1"])
            .arg(SERVER.v4.to_string());
        process::run_in(bed.client(), &mut ping)
    };
    let heard = || Counters::of(bed.server())?.get("IcmpInEchos");
    ping()?;
    let forwarded = heard()?;
    ensure!(
        forwarded == PINGS,
        "the host forwards {forwarded} of {PINGS} without a box"
    );

    let wan = WanBox::start(&bed, "--force --delay 1ms")?;
    let capture = Capture::start(bed.server(), WAN)?;
    ping()?;
    let summary = wan.stop()?;
    let frames = capture.finish()?;
    let echoes = frames.iter().filter(|frame| frame.head.get(23) == Some(&1));
    let lifetimes: Vec<Option<u8>> = echoes.map(|frame| frame.head.get(22).copied()).collect();
    ensure!(
        lifetimes == vec![Some(64); usize::try_from(PINGS)?],
        "the far end got packets with these times to live: {lifetimes:?}"
    );
    ensure!(
        heard()? == forwarded,
        "the host has forwarded beside the box"
    );
    ensure!(summary.up.packets == PINGS, "{summary:?}");
    Ok(())
}

/// The kernel solicits routers as soon as its link-local address is in use. Without duplicate address detection, that is immediately.
#[test_support::test(Namespaces, Tool("ip"))]
fn the_hosts_own_router_solicitations_stay_off_both_wires() -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let emulator = bed.emulator();
    let ports = [CLIENT_PORT, SERVER_PORT];
    for port in ports {
        ip(emulator, &format!("link set {port} down"))?;
        for (name, value) in [
            ("disable_ipv6", "0"),
            ("accept_ra", "2"),
            ("accept_dad", "0"),
            ("router_solicitations", "3"),
            ("router_solicitation_delay", "0"),
            ("router_solicitation_interval", "1"),
        ] {
            emulator.write_sysctl(&format!("net/ipv6/conf/{port}/{name}"), value)?;
        }
        ip(
            emulator,
            &format!("link set {port} arp on addrgenmode eui64"),
        )?;
    }
    let (client, server) = (
        Capture::start(bed.client(), WAN)?,
        Capture::start(bed.server(), WAN)?,
    );
    let wan = WanBox::start(&bed, "--delay 1ms")?;
    for port in ports {
        process::wait_for(&format!("{port}'s link-local address"), || {
            let shown = ip(emulator, &format!("-6 address show dev {port} scope link"))?;
            let is_in_use = shown.contains("fe80::") && !shown.contains("tentative");
            Ok(is_in_use.then_some(()))
        })?;
    }
    wan.stop()?;
    // ICMPv6 without extension headers; those of the two ends cross the box.
    let is_own = |frame: &&Seen| {
        let of_ends = [CLIENT.mac, SERVER.mac];
        let head = &frame.head;
        head[12..14] == [0x86, 0xdd]
            && head.get(54) == Some(&133)
            && !of_ends.iter().any(|mac| head[6..12] == *mac)
    };
    for capture in [client, server] {
        let seen = capture.finish()?;
        let own: Vec<&Seen> = seen.iter().filter(is_own).collect();
        ensure!(own.is_empty(), "{own:02x?}");
    }
    for port in ports {
        let path = format!("/proc/sys/net/ipv6/conf/{port}/router_solicitations");
        let after = emulator.run(|| fs::read_to_string(&path))??;
        ensure!(after.trim() == "3", "{port}: {after}");
    }
    Ok(())
}
