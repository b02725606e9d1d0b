//! Ends of the box between two interfaces.

use std::fs;

use anyhow::{Result, ensure};
use netio::bed::{Bed, BedConfig, CLIENT_PORT, SERVER_PORT};
use netio::iface::Interface;
use netio::offloads::Offloads;
use nix::sys::signal::Signal;

use test_support::process::{farwire, stderr, succeeds_in, wait_for};
use test_support::state::State;
use test_support::wan_box::WanBox;

/// A feature that a box switches off.
const MERGING: &str = "rx-udp-gro-forwarding";
const PORTS: [&str; 2] = [CLIENT_PORT, SERVER_PORT];

#[test_support::test(Namespaces, Tool("ip"))]
fn ten_killed_boxes_leave_their_interfaces_down_until_the_next_start_or_restore() -> Result<()> {
    ten_kills("cut")
}

#[test_support::test(Namespaces, Tool("ip"), Device("bridge"))]
fn ten_killed_boxes_leave_their_interfaces_joined_until_the_next_start_or_restore() -> Result<()> {
    ten_kills("bridge")
}

/// In turn, the next start or `--restore` undoes what a kill left behind.
fn ten_kills(on_exit: &str) -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    bed.emulator()
        .run(|| Offloads::open(CLIENT_PORT)?.switch(MERGING, true))??;
    let before = states(&bed)?;
    for kill in 0..10 {
        let signal = [Signal::SIGKILL, Signal::SIGABRT][usize::from(kill == 5)];
        let mut wan = WanBox::start(&bed, &format!("--delay 1ms --on-exit {on_exit}"))?;
        let holder = wan.holder()?;
        wan.end_by(signal)?;
        await_left(&bed, on_exit)?;
        wait_for("the holder's end", || {
            // A zombie has a directory in /proc, but no command line.
            let command = fs::read(format!("/proc/{holder}/cmdline")).unwrap_or_default();
            Ok(command.is_empty().then_some(()))
        })?;
        if kill % 2 == 1 {
            restore(&bed)?;
        }
    }
    check_same(&bed, &before)?;
    ensure!(restore(&bed)?.contains("nothing to restore"));
    Ok(())
}

/// Waits until both interfaces are down, or up and ports of one bridge.
fn await_left(bed: &Bed, on_exit: &str) -> Result<()> {
    wait_for("the interfaces to be cut or joined", || {
        let found = bed.emulator().run(|| PORTS.map(Interface::find))?;
        let [a, b] = found;
        let (a, b) = (a?, b?);
        let done = match on_exit {
            "cut" => !a.up && !b.up && a.master.is_none(),
            _ => a.carrier && b.carrier && a.master.is_some() && a.master == b.master,
        };
        Ok(done.then_some(()))
    })
}

fn restore(bed: &Bed) -> Result<String> {
    let said = stderr(&succeeds_in(
        bed.emulator(),
        farwire().args(["emulate", "--restore"]),
    )?);
    Ok(said)
}

fn check_same(bed: &Bed, before: &[State; 2]) -> Result<()> {
    for (port, before) in PORTS.iter().zip(before) {
        before.check_same(bed.emulator(), port)?;
    }
    Ok(())
}

fn states(bed: &Bed) -> Result<[State; 2]> {
    let [a, b] = PORTS.map(|port| State::of(bed.emulator(), port));
    Ok([a?, b?])
}
