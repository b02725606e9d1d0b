//! A box refuses interfaces that it must not take in one line, and changes nothing.

use anyhow::{Result, ensure};
use caps::Capability;
use netio::bed::{Bed, BedConfig, CLIENT_PORT, SERVER_PORT};

use test_support::powerless;
use test_support::process::{self, has, ip, stderr};
use test_support::state::State;
use test_support::suite::{Need, Suite};
use test_support::wan_box::WanBox;

const NEEDS: [Need; 2] = [Need::Namespaces, Need::Tool("ip")];

/// The name, the preparation with ip(8), the interfaces, and a part of the error.
const REFUSED: [(&str, &[&str], [&str; 2], &str); 8] = [
    (
        "one interface named twice",
        &[],
        [CLIENT_PORT, CLIENT_PORT],
        "named twice",
    ),
    (
        "an interface that is not there",
        &[],
        [CLIENT_PORT, "eth99"],
        "there is no interface eth99",
    ),
    (
        "an interface that is not ethernet",
        &[],
        ["lo", SERVER_PORT],
        "lo is not Ethernet",
    ),
    (
        "a port of a bridge",
        &[
            "link add bridge type bridge",
            "link set client master bridge",
        ],
        [CLIENT_PORT, SERVER_PORT],
        "client is a port of a bridge",
    ),
    (
        "interfaces of different mtu",
        &["link set server mtu 1400"],
        [CLIENT_PORT, SERVER_PORT],
        "server has MTU 1400",
    ),
    (
        "an interface with an address",
        &["address add 192.0.2.1/24 dev server"],
        [CLIENT_PORT, SERVER_PORT],
        "interface server has addresses or routes",
    ),
    (
        "an interface with a route",
        &["route add 192.0.2.0/24 dev client"],
        [CLIENT_PORT, SERVER_PORT],
        "interface client has addresses or routes",
    ),
    (
        "the interface of the default route",
        &DEFAULT_ROUTE,
        [CLIENT_PORT, SERVER_PORT],
        "--force",
    ),
];

const DEFAULT_ROUTE: [&str; 2] = [
    "address add 192.0.2.1/24 dev client",
    "route add default via 192.0.2.2 dev client",
];

#[test_support::tests]
fn add(suite: &mut Suite) {
    for (name, preparation, ports, word) in REFUSED {
        suite.test(format!("{name} is refused"), &NEEDS, move || {
            let bed = prepared(preparation)?;
            let before = states(&bed)?;
            let mut command = process::farwire();
            let output = process::run_in(bed.emulator(), command.arg("emulate").args(ports))?;
            check(&output, 2, word)?;
            ensure!(states(&bed)? == before, "the interfaces were changed");
            Ok(())
        });
    }
}

#[test_support::test(Namespaces, Tool("ip"))]
fn the_interface_of_the_default_route_is_taken_by_force() -> Result<()> {
    let bed = prepared(&DEFAULT_ROUTE)?;
    WanBox::start(&bed, "--force")?.stop().map(drop)
}

#[test_support::test(Namespaces, Tool("ip"))]
fn an_interface_with_an_address_is_taken_by_force() -> Result<()> {
    let bed = prepared(&["address add 192.0.2.1/24 dev client"])?;
    WanBox::start(&bed, "--force")?.stop().map(drop)
}

#[test_support::test(Namespaces, Tool("ip"))]
fn a_link_that_cannot_be_is_refused() -> Result<()> {
    let bed = prepared(&[])?;
    let mut command = process::farwire();
    command.args(["emulate", CLIENT_PORT, SERVER_PORT, "--queue", "10pkt"]);
    check(
        &process::run_in(bed.emulator(), &mut command)?,
        2,
        "a queue needs a rate",
    )
}

#[test_support::test(Namespaces, Tool("ip"))]
fn a_user_without_privilege_is_told_which_one_is_missing() -> Result<()> {
    let bed = prepared(&[])?;
    let before = states(&bed)?;
    let mut command = powerless::farwire_with(&[])?;
    command.args(["emulate", CLIENT_PORT, SERVER_PORT]);
    check(
        &process::run_in(bed.emulator(), &mut command)?,
        3,
        "CAP_NET_RAW",
    )?;
    ensure!(states(&bed)? == before, "the interfaces were changed");
    Ok(())
}

#[test_support::test(Namespaces, Tool("ip"))]
fn cap_net_admin_and_cap_net_raw_are_all_that_a_box_needs() -> Result<()> {
    let kept = [Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW];
    let bed = prepared(&[])?;
    let farwire = powerless::farwire_with(&kept)?;
    WanBox::start_as(farwire, &bed, "--delay 1ms")?
        .stop()
        .map(drop)
}

#[test_support::test(Namespaces, Tool("ip"))]
fn an_interface_in_use_by_another_farwire_is_refused() -> Result<()> {
    let bed = prepared(&[])?;
    let wan = WanBox::start(&bed, "--delay 1ms")?;
    let before = states(&bed)?;
    let mut command = process::farwire();
    command.args(["emulate", CLIENT_PORT, SERVER_PORT]);
    let output = process::run_in(bed.emulator(), &mut command)?;
    check(
        &output,
        1,
        "another farwire already uses interface client (pid",
    )?;
    ensure!(states(&bed)? == before, "the first box has lost something");
    wan.stop().map(drop)
}

fn prepared(preparation: &[&str]) -> Result<Bed> {
    let bed = Bed::build(&BedConfig::default())?;
    for line in preparation {
        ip(bed.emulator(), line)?;
    }
    Ok(bed)
}

fn states(bed: &Bed) -> Result<[State; 2]> {
    let state = |port| State::of(bed.emulator(), port);
    Ok([state(CLIENT_PORT)?, state(SERVER_PORT)?])
}

fn check(output: &std::process::Output, code: i32, word: &str) -> Result<()> {
    let stderr = stderr(output);
    ensure!(
        output.status.code() == Some(code),
        "{}: {stderr}",
        output.status
    );
    ensure!(output.stdout.is_empty(), "{output:?}");
    ensure!(stderr.lines().count() == 1, "{stderr}");
    has(&stderr, word)?;
    Ok(())
}
