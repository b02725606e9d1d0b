//! A box starts, passes carrier losses on, and ends by signals at any moment, leaving the interfaces as they were.

use std::process::{Child, Command, Stdio};

use anyhow::{Result, ensure};
use netio::bed::{Bed, BedConfig, CLIENT_PORT, SERVER_PORT, WAN};
use netio::iface::Interface;
use netio::netns::NetNs;
use netio::offloads::Offloads;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use test_support::process::{self, end_of, farwire, has, ip, run_in, wait_for};
use test_support::state::State;
use test_support::suite::{Need, Suite};
use test_support::wan_box::WanBox;

const NEEDS: [Need; 2] = [Need::Namespaces, Need::Tool("ip")];
/// A feature that a box switches off.
const MERGING: &str = "rx-udp-gro-forwarding";

#[test_support::tests]
fn add(suite: &mut Suite) {
    for signal in [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGKILL,
    ] {
        for moment in [Moment::Started, Moment::Changed, Moment::Forwarding] {
            let name = format!(
                "{signal} leaves the interfaces as they were: {}",
                moment.name()
            );
            suite.test(name, &NEEDS, move || leaves_no_trace(signal, moment));
        }
    }
}

#[test_support::test(Namespaces, Tool("ip"))]
fn a_lowered_interface_of_a_killed_box_is_raised_by_the_next() -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let before = states(&bed)?;
    let mut wan = WanBox::start(&bed, "")?;
    ip(bed.client(), &format!("link set {WAN} down"))?;
    await_carrier(bed.server(), false)?;
    wan.end_by(Signal::SIGKILL)?;
    ensure!(!states(&bed)?[1].is_up(), "nothing was left to put back");
    ip(bed.client(), &format!("link set {WAN} up"))?;
    WanBox::start(&bed, "")?.stop()?;
    check_same(&bed, &before)
}

#[test_support::test(Namespaces, Tool("ip"), Tool("ping"))]
fn a_carrier_lost_on_one_side_is_lost_on_the_other_and_comes_back() -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let before = states(&bed)?;
    let wan = WanBox::start(&bed, "--delay 1ms")?;
    for (here, there) in [(bed.client(), bed.server()), (bed.server(), bed.client())] {
        ip(here, &format!("link set {WAN} down"))?;
        await_carrier(there, false)?;
        ip(here, &format!("link set {WAN} up"))?;
        await_carrier(there, true)?;
        await_carrier(here, true)?;
        let mut ping = Command::new("ping");
        ping.args(["-c", "3", "-i", "0.2", "-W", "2", "10.77.0.2"]);
        process::succeeds_in(bed.client(), &mut ping)?;
    }
    wan.stop()?;
    check_same(&bed, &before)
}

#[test_support::test(Namespaces, Tool("ip"), Tool("ping"))]
fn interfaces_that_the_box_raises_have_lost_no_carrier() -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    for port in [CLIENT_PORT, SERVER_PORT] {
        ip(bed.emulator(), &format!("link set {port} down"))?;
    }
    let mut wan = WanBox::start(&bed, "--delay 1ms --up-loss 1%")?;
    for end in [bed.client(), bed.server()] {
        await_carrier(end, true)?;
    }
    let mut ping = Command::new("ping");
    ping.args(["-c", "1", "-W", "5", "10.77.0.2"]);
    run_in(bed.client(), &mut ping)?;
    // The box prints events in their order, so this line comes after everything that the start caused.
    ip(bed.client(), &format!("link set {WAN} down"))?;
    let lost = format!("carrier is lost: setting down {SERVER_PORT}\n");
    wan.await_line(&lost)?;
    let (_, printed) = wan.end_by(Signal::SIGTERM)?;
    ensure!(
        printed.matches("farwire: carrier").count() == 1,
        "{printed}"
    );
    let in_force = "delay 1ms in each direction, up loss 1%; running until a signal ends it\n";
    has(&printed, in_force)?;
    Ok(())
}

fn await_carrier(ns: &NetNs, wanted: bool) -> Result<()> {
    wait_for(&format!("a carrier to be {wanted}"), || {
        let wan = ns.run(|| Interface::find(WAN))??;
        // It stays administratively up: only the carrier changes.
        Ok((wan.up && wan.running == wanted).then_some(()))
    })
}

/// The progress of a box, as it can be observed from outside.
#[derive(Clone, Copy, Debug)]
enum Moment {
    Started,
    Changed,
    Forwarding,
}

impl Moment {
    fn name(self) -> &'static str {
        match self {
            Self::Started => "at once",
            Self::Changed => "with the first change made",
            Self::Forwarding => "while it forwards",
        }
    }

    fn is_here(self, bed: &Bed, pid: u32) -> Result<bool> {
        Ok(match self {
            Self::Started => true,
            Self::Changed => !State::of(bed.emulator(), CLIENT_PORT)?.feature(MERGING)?,
            Self::Forwarding => process::has_thread(pid, "forwarder"),
        })
    }
}

fn leaves_no_trace(signal: Signal, moment: Moment) -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    bed.emulator()
        .run(|| Offloads::open(CLIENT_PORT)?.switch(MERGING, true))??;
    ip(bed.emulator(), &format!("link set {SERVER_PORT} down"))?;
    let before = states(&bed)?;
    ensure!(
        before[0].feature(MERGING)?,
        "{MERGING} cannot be switched on"
    );
    let mut child = start(&bed)?;
    let ended = end_at(&bed, &mut child, signal, moment);
    if ended.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    ended?;
    for state in states(&bed)? {
        ensure!(!state.is_promiscuous(), "promiscuous mode was left on");
    }
    if signal == Signal::SIGKILL {
        // A killed box restores nothing; the next start does.
        WanBox::start(&bed, "")?.stop()?;
    }
    check_same(&bed, &before)
}

fn start(bed: &Bed) -> Result<Child> {
    let mut command = farwire();
    command.args(["emulate", CLIENT_PORT, SERVER_PORT]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Ok(bed.emulator().run(|| command.spawn())??)
}

fn end_at(bed: &Bed, child: &mut Child, signal: Signal, moment: Moment) -> Result<()> {
    wait_for(moment.name(), || {
        let ended = child.try_wait()?;
        ensure!(ended.is_none(), "the box ended by itself: {ended:?}");
        Ok(moment.is_here(bed, child.id())?.then_some(()))
    })?;
    kill(Pid::from_raw(i32::try_from(child.id())?), signal)?;
    end_of(child).map(drop)
}

fn states(bed: &Bed) -> Result<[State; 2]> {
    let state = |port| State::of(bed.emulator(), port);
    Ok([state(CLIENT_PORT)?, state(SERVER_PORT)?])
}

fn check_same(bed: &Bed, before: &[State; 2]) -> Result<()> {
    before[0].check_same(bed.emulator(), CLIENT_PORT)?;
    before[1].check_same(bed.emulator(), SERVER_PORT)
}
