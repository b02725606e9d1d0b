//! What a box leaves behind, and what undoes it.

use std::fs;
use std::os::unix::fs::chown;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use netio::Offload;
use netio::bed::{Bed, BedConfig, CLIENT_PORT, SERVER_PORT, WAN};
use netio::iface::Interface;
use netio::offloads::Offloads;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::frames::{End, echo, frame, ipv4};
use test_support::capture::Capture;
use test_support::process::{farwire, has, ip, run_in, stderr, succeeds_in, wait_for};
use test_support::state::State;
use test_support::wan_box::WanBox;

const PORTS: [&str; 2] = [CLIENT_PORT, SERVER_PORT];

#[test_support::test]
fn restore_takes_no_other_argument() -> Result<()> {
    let output = test_support::process::run(farwire().args(["emulate", "--restore", "eth0"]))?;
    ensure!(output.status.code() == Some(2), "{output:?}");
    Ok(())
}

#[test_support::test(Namespaces, Tool("ip"), Device("bridge"))]
fn an_orderly_end_joins_the_interfaces_where_that_was_asked_for_and_the_next_start_parts_them()
-> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let before = states(&bed)?;
    WanBox::start(&bed, "--on-exit bridge")?.stop()?;
    ensure!(bridge_of(&bed)?.is_some(), "the interfaces are not joined");
    // It finds them as ports of a bridge, which it otherwise refuses.
    WanBox::start(&bed, "")?.stop()?;
    check_same(&bed, &before)
}

/// Nothing of its own is heard, and it takes neither tags nor link-local groups for its own.
#[test_support::test(Namespaces, Tool("ip"), Device("bridge"))]
fn the_bridge_that_a_box_leaves_passes_every_frame_as_it_is() -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let before = states(&bed)?;
    let mut wan = WanBox::start(&bed, "--on-exit bridge")?;
    wan.end_by(Signal::SIGKILL)?;
    let bridge = wait_for("a bridge", || bridge_of(&bed))?;
    wait_for("the bridge to run", || {
        let found = bed.emulator().run(|| Interface::by_index(bridge))??;
        Ok(found.running.then_some(()))
    })?;
    let mut near = End::open(bed.client())?;
    let mut far = End::open(bed.server())?;
    let capture = Capture::start(bed.server(), WAN)?;
    let groups = [(0x88cc, 0x0e), (0x0026, 0x00)].map(|(ethertype, group)| {
        let mut frame = frame(false, &[], ethertype, &[0x42; 60]);
        frame[..6].copy_from_slice(&[0x01, 0x80, 0xc2, 0, 0, group]);
        frame
    });
    for group in &groups {
        near.send(group, Offload::default()).context("sending")?;
    }
    let echo = ipv4(false, 1, &echo(false, 64));
    let tagged = frame(false, &[(0x8100, 100)], 0x0800, &echo);
    let unknown = frame(false, &[], 0x88b5, &[7; 46]);
    for sent in [tagged, unknown] {
        near.send(&sent, Offload::default()).context("sending")?;
        let got = far.receive()?;
        ensure!(got == sent, "sent {sent:02x?}, got {got:02x?}");
    }
    let seen = capture.finish()?;
    for group in groups {
        let is_it = |head: &[u8]| head.get(..14) == Some(&group[..14]);
        let passed = seen.iter().any(|frame| is_it(&frame.head));
        ensure!(passed, "{group:02x?} did not pass");
    }
    let bridge = bed.emulator().run(|| Interface::by_index(bridge))??.name;
    let addresses = ip(
        bed.emulator(),
        &format!("-oneline address show dev {bridge}"),
    )?;
    ensure!(addresses.is_empty(), "{addresses}");
    let details = ip(bed.emulator(), &format!("-details link show dev {bridge}"))?;
    for word in [
        "NOARP",
        "stp_state 0",
        "mcast_snooping 0",
        "vlan_filtering 0",
    ] {
        ensure!(details.contains(word), "no {word}: {details}");
    }
    restore(&bed)?;
    check_same(&bed, &before)
}

#[test_support::test(Namespaces, Tool("ip"))]
fn an_interface_with_an_address_is_not_set_down_by_a_kill() -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    ip(
        bed.emulator(),
        &format!("address add 192.0.2.1/24 dev {CLIENT_PORT}"),
    )?;
    let before = states(&bed)?;
    let mut wan = WanBox::start(&bed, "")?;
    let (_, printed) = wan.end_by(Signal::SIGKILL)?;
    has(&printed, "client is as it was, and not set down")?;
    before[0].check_same(bed.emulator(), CLIENT_PORT)?;
    ensure!(!states(&bed)?[1].is_up(), "server is not down");
    restore(&bed)?;
    check_same(&bed, &before)
}

#[test_support::test(Namespaces, Tool("ip"))]
fn what_a_kill_left_is_undone_though_the_interface_has_another_name() -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let mut wan = WanBox::start(&bed, "")?;
    wan.end_by(Signal::SIGKILL)?;
    ip(bed.emulator(), &format!("link set {CLIENT_PORT} name lan"))?;
    let said = restore(&bed)?;
    has(&said, "lan is put back: up")?;
    ensure!(State::of(bed.emulator(), "lan")?.is_up(), "lan is down");
    Ok(())
}

#[test_support::test(Namespaces, Tool("ip"))]
fn restore_leaves_alone_what_a_box_that_runs_has_changed() -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let wan = WanBox::start(&bed, "")?;
    let during = states(&bed)?;
    let said = restore(&bed)?;
    let pid = wan.pid();
    for port in PORTS {
        let line = format!("interface {port} is already in use by another farwire (pid {pid})");
        has(&said, &line)?;
    }
    check_same(&bed, &during)?;
    wan.stop().map(drop)
}

#[test_support::test(Namespaces, Tool("ip"), Device("bridge"))]
fn a_box_whose_holder_was_killed_says_so_and_does_itself_what_is_to_be_done_at_the_end()
-> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let before = states(&bed)?;
    let mut wan = WanBox::start(&bed, "--on-exit bridge")?;
    kill(
        Pid::from_raw(i32::try_from(wan.holder()?)?),
        Signal::SIGKILL,
    )?;
    wan.await_line("the box holder has died")?;
    wan.stop()?;
    ensure!(bridge_of(&bed)?.is_some(), "the interfaces are not joined");
    restore(&bed)?;
    check_same(&bed, &before)
}

#[test_support::test(Namespaces, Tool("ip"))]
fn a_start_that_fails_leaves_the_interfaces_as_they_were() -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let other = WanBox::start(&bed, "")?;
    let during = states(&bed)?;
    let mut second = farwire();
    second.args(["emulate", CLIENT_PORT, SERVER_PORT, "--on-exit", "bridge"]);
    let output = run_in(bed.emulator(), &mut second)?;
    ensure!(output.status.code() == Some(1), "{output:?}");
    let said = stderr(&output);
    ensure!(said.lines().count() == 1, "{said}");
    check_same(&bed, &during)?;
    other.stop().map(drop)
}

/// Anybody can write such a file.
#[test_support::test(serial, Root, Namespaces, Tool("ip"))]
fn root_puts_back_what_another_users_box_left_and_does_no_more_on_its_word() -> Result<()> {
    const USER: u32 = 54_321;
    const MERGING: &str = "rx-udp-gro-forwarding";
    let bed = Bed::build(&BedConfig::default())?;
    ip(bed.emulator(), "link add keep type bridge")?;
    let mut before = states(&bed)?;
    let wan = WanBox::start(&bed, "")?;
    let own = journals_of(wan.pid())?;
    wan.stop()?;
    let dir = PathBuf::from(format!("/tmp/farwire-{USER}"));
    // That of an earlier run, which was killed.
    drop(Cleared(dir.clone()));
    fs::create_dir(&dir)?;
    let _cleared = Cleared(dir.clone());
    let harmless = format!(r#"{{"feature":{{"name":"{MERGING}","on":true}}}}"#);
    let forged = r#"{"up":false}
{"feature":{"name":"tx-tcp-segmentation","on":false}}
{"no_bridge":"keep"}"#;
    for ((name, first_line), rest) in own.iter().zip([harmless.as_str(), forged]) {
        let path = dir.join(name);
        fs::write(&path, format!("{first_line}\n{rest}\n"))?;
        chown(&path, Some(USER), Some(USER))?;
    }
    chown(&dir, Some(USER), Some(USER))?;
    restore(&bed)?;
    ensure!(fs::read_dir(&dir)?.count() == 0, "a journal was left");
    let after = State::of(bed.emulator(), CLIENT_PORT)?;
    ensure!(after.feature(MERGING)?, "{MERGING} was not put back");
    ip(bed.emulator(), "link show dev keep")?;
    bed.emulator()
        .run(|| Offloads::open(CLIENT_PORT)?.switch(MERGING, false))??;
    before[0] = State::of(bed.emulator(), CLIENT_PORT)?;
    check_same(&bed, &before)
}

/// The names and first lines of the journals of the process `pid`, the client's first.
fn journals_of(pid: u32) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/run/farwire")? {
        let entry = entry?;
        // Other boxes come and go.
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        let first = text.lines().next().unwrap_or_default();
        if first.contains(&format!("\"pid\":{pid},")) {
            let name = entry.file_name().to_string_lossy().into_owned();
            found.push((name, first.to_owned()));
        }
    }
    found.sort_by_key(|(_, line)| !line.contains(CLIENT_PORT));
    ensure!(found.len() == 2, "{found:?}");
    Ok(found)
}

/// A directory that goes with the test.
struct Cleared(PathBuf);

impl Drop for Cleared {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The number of the bridge that both interfaces are ports of.
fn bridge_of(bed: &Bed) -> Result<Option<u32>> {
    let [a, b] = bed.emulator().run(|| PORTS.map(Interface::find))?;
    let (a, b) = (a?.master, b?.master);
    Ok(a.filter(|_| a == b))
}

fn restore(bed: &Bed) -> Result<String> {
    let mut command = farwire();
    let said = stderr(&succeeds_in(
        bed.emulator(),
        command.args(["emulate", "--restore"]),
    )?);
    Ok(said)
}

fn states(bed: &Bed) -> Result<[State; 2]> {
    let [a, b] = PORTS.map(|port| State::of(bed.emulator(), port));
    Ok([a?, b?])
}

fn check_same(bed: &Bed, before: &[State; 2]) -> Result<()> {
    before[0].check_same(bed.emulator(), CLIENT_PORT)?;
    before[1].check_same(bed.emulator(), SERVER_PORT)
}
