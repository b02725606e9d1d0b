//! Events that happen to the interfaces of a running box, and how the box continues.

use std::os::fd::{AsFd as _, AsRawFd as _};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use netio::bed::{Bed, BedConfig, CLIENT, CLIENT_PORT, SERVER, SERVER_PORT, WAN};
use netio::iface::Interface;
use nix::sys::signal::Signal;

use test_support::process::{ip, run_in, stdout, succeeds_in, wait_for};
use test_support::wan_box::{Happened, WanBox};

#[test_support::test(serial, Namespaces, Tool("ip"), Tool("ping"))]
fn an_interface_that_is_unplugged_and_back_is_taken_again() -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let mut wan = WanBox::start(&bed, "--delay 1ms")?;
    for _ in 0..2 {
        unplug(&bed, &mut wan, Cable::Client)?;
        await_carrier(&bed, SERVER_PORT, false)?;
        plug(&bed, Cable::Client)?;
        await_carrier(&bed, SERVER_PORT, true)?;
        ping(&bed)?;
    }
    let summary = wan.stop()?;
    // The loss of its carrier may be seen before its removal.
    let client = summary.interfaces.iter().find(|of| of.name == CLIENT_PORT);
    let counted = client.map(|of| (of.gone, of.back));
    ensure!(counted == Some((2, 2)), "{summary:?}");
    let server = summary.interfaces.iter().find(|of| of.name == SERVER_PORT);
    ensure!(server.is_none(), "{summary:?}");
    Ok(())
}

#[test_support::test(serial, Namespaces, Tool("ip"), Tool("ping"))]
fn both_interfaces_may_go_and_come_back_the_other_way_round() -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let mut wan = WanBox::start(&bed, "--delay 1ms")?;
    unplug(&bed, &mut wan, Cable::Client)?;
    unplug(&bed, &mut wan, Cable::Server)?;
    plug(&bed, Cable::Server)?;
    wan.await_line("interface server is back")?;
    let server = bed.emulator().run(|| Interface::find(SERVER_PORT))??;
    ensure!(!server.up, "server is up without a carrier at the client");
    plug(&bed, Cable::Client)?;
    await_carrier(&bed, SERVER_PORT, true)?;
    ping(&bed)?;
    let summary = wan.stop()?;
    let counted = summary.interfaces.iter().map(|of| (of.gone, of.back));
    ensure!(counted.eq([(1, 1), (1, 1)]), "{summary:?}");
    Ok(())
}

#[test_support::test(serial, Namespaces, Tool("ip"), Tool("ping"))]
fn a_killed_box_leaves_down_what_came_back_while_it_ran() -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let mut wan = WanBox::start(&bed, "--delay 1ms")?;
    unplug(&bed, &mut wan, Cable::Client)?;
    plug(&bed, Cable::Client)?;
    await_carrier(&bed, SERVER_PORT, true)?;
    wan.end_by(Signal::SIGKILL)?;
    for port in [CLIENT_PORT, SERVER_PORT] {
        let found = bed.emulator().run(|| Interface::find(port))??;
        ensure!(!found.up, "{port} is up");
    }
    Ok(())
}

#[test_support::test(serial, Namespaces, Tool("ip"), Tool("ping"))]
fn a_lost_carrier_a_new_mtu_and_a_new_name_are_lived_with_and_counted() -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let mut wan = WanBox::start(&bed, "--delay 1ms")?;
    ip(bed.client(), &format!("link set {WAN} down"))?;
    await_carrier(&bed, SERVER_PORT, false)?;
    ip(bed.client(), &format!("link set {WAN} up"))?;
    await_carrier(&bed, SERVER_PORT, true)?;
    ip(bed.emulator(), &format!("link set {SERVER_PORT} mtu 9000"))?;
    wan.await_line("client has MTU 1500 and server has MTU 9000")?;
    ip(bed.emulator(), &format!("link set {CLIENT_PORT} mtu 9000"))?;
    for (end, port) in [(bed.client(), CLIENT_PORT), (bed.server(), SERVER_PORT)] {
        ip(end, &format!("link set {WAN} mtu 9000"))?;
        ip(bed.emulator(), &format!("link set {port} name new-{port}"))?;
    }
    let mut jumbo = Command::new("ping");
    jumbo.args(["-c", "2", "-i", "0.05", "-s", "8000", "-M", "do", "-W", "5"]);
    succeeds_in(bed.client(), jumbo.arg(SERVER.v4.to_string()))?;
    let summary = wan.stop()?;
    let of = |port: &str, carrier_losses| Happened {
        name: port.to_owned(),
        carrier_losses,
        mtu_changes: 1,
        gone: 0,
        back: 0,
    };
    let expected = [of(CLIENT_PORT, 1), of(SERVER_PORT, 0)];
    ensure!(summary.interfaces == expected, "{summary:?}");
    Ok(())
}

#[derive(Clone, Copy)]
enum Cable {
    Client,
    Server,
}

impl Cable {
    fn port(self) -> &'static str {
        match self {
            Self::Client => CLIENT_PORT,
            Self::Server => SERVER_PORT,
        }
    }
}

/// Deletes the veth pair.
fn unplug(bed: &Bed, wan: &mut WanBox, cable: Cable) -> Result<()> {
    let port = cable.port();
    ip(bed.emulator(), &format!("link delete {port}"))?;
    wan.await_line(&format!("interface {port} is gone"))
}

/// Creates it again as it was.
fn plug(bed: &Bed, cable: Cable) -> Result<()> {
    let (ns, own, peer) = match cable {
        Cable::Client => (bed.client(), CLIENT, SERVER),
        Cable::Server => (bed.server(), SERVER, CLIENT),
    };
    let path = format!("/proc/{}/fd/{}", std::process::id(), ns.as_fd().as_raw_fd());
    let mac = |bytes: [u8; 6]| bytes.map(|byte| format!("{byte:02x}")).join(":");
    let (port, address) = (cable.port(), mac(own.mac));
    let add = format!("link add {port} type veth peer name {WAN} address {address} netns {path}");
    ip(bed.emulator(), &add)?;
    ip(ns, &format!("address add {}/24 dev {WAN}", own.v4))?;
    ip(ns, &format!("link set {WAN} up"))?;
    let neighbour = format!(
        "neighbour replace {} lladdr {} dev {WAN}",
        peer.v4,
        mac(peer.mac)
    );
    ip(ns, &neighbour).map(drop)
}

fn await_carrier(bed: &Bed, port: &str, wanted: bool) -> Result<()> {
    wait_for(&format!("{port}'s carrier to be {wanted}"), || {
        let found = bed.emulator().run(|| Interface::find(port))??;
        Ok((found.running == wanted).then_some(()))
    })
}

fn ping(bed: &Bed) -> Result<()> {
    let mut ping = Command::new("ping");
    ping.args(["-c", "2", "-i", "0.05", "-W", "5"]);
    let output = run_in(bed.client(), ping.arg(SERVER.v4.to_string()))?;
    let said = stdout(&output);
    ensure!(output.status.success(), "{said}");
    said.contains("0% packet loss").then_some(()).context(said)
}
