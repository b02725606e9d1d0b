//! Datagrams in GSO frames: each carries its own bytes, and each that does not arrive is counted.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use netio::bed::{Bed, CLIENT_PORT, SERVER, SERVER_PORT, WAN};
use netio::netns::NetNs;

use super::tcp::Offload;
use test_support::counters::{Counters, InterfaceCounters};
use test_support::datagrams::Flow;
use test_support::is_soak;
use test_support::suite::{Need, Suite};
use test_support::wan_box::WanBox;

#[test_support::tests]
fn add(suite: &mut Suite) {
    for loss in ["", " --loss 0.1%", " --loss 10%"] {
        for offload in Offload::ALL {
            let link = format!("--rate 3gbit{loss}");
            let name = format!("datagrams add up: {link}, {}", offload.name());
            suite.test(name, &[Need::Namespaces], move || {
                add_up(&link, offload, SERVER.v4.into())
            });
        }
    }
}

#[test_support::test(Namespaces)]
fn datagrams_over_ipv6_add_up_offloads_on_at_the_ends_only() -> Result<()> {
    add_up(
        "--rate 3gbit --loss 0.1%",
        Offload::AtTheEnds,
        SERVER.v6.into(),
    )
}

#[test_support::test(Namespaces)]
fn datagrams_add_up_where_the_queue_overflows() -> Result<()> {
    add_up(
        "--rate 500mbit --queue 40pkt --loss 0.1%",
        Offload::On,
        SERVER.v4.into(),
    )
}

/// The number of GSO frames on their way, larger than the slots of the receive ring.
#[test_support::test(Namespaces)]
fn a_long_delay_fills_no_receive_ring() -> Result<()> {
    let bed = Offload::On.bed(1500)?;
    let wan = WanBox::start(&bed, "--delay 2s")?;
    let flow = Flow {
        to: SERVER.v4.into(),
        bytes: 40_000_000,
        size: Some(1000),
        batch: 20,
        window: 60_000,
        pinned: false,
        pause: Duration::from_millis(1),
    };
    let tally = flow.run(bed.client(), bed.server())?;
    let up = wan.stop()?.up;
    ensure!(up.own_losses() == 0, "{tally:?}, {up:?}");
    Ok(())
}

fn add_up(link: &str, offload: Offload, to: IpAddr) -> Result<()> {
    let bed = offload.bed(1500)?;
    let wan = WanBox::start(&bed, link)?;
    let flow = Flow {
        to,
        bytes: if is_soak() { 1_000_000_000 } else { 50_000_000 },
        size: None,
        batch: 40,
        window: 128,
        pinned: false,
        pause: Duration::ZERO,
    };
    let tally = flow.run(bed.client(), bed.server())?;
    let summary = wan.stop()?;
    let far = Counters::of(bed.server())?;
    far.check_intact()?;
    Counters::of(bed.client())?.check_intact()?;
    let v6 = if to.is_ipv6() { "6" } else { "" };
    let refused = far.get(&format!("Udp{v6}RcvbufErrors"))?;
    let up = &summary.up;
    let told = format!("{tally:?}, {refused} refused by the socket, the link: {up:?}");
    // Between the ends and the emulator nothing may be lost, because too few datagrams are on their way to fill a queue there.
    for (ns, interface) in wires(&bed) {
        let dropped = InterfaceCounters::of(ns, interface)?.drops;
        ensure!(
            dropped == 0,
            "the wire {interface} dropped {dropped} frames; {told}"
        );
    }
    ensure!(
        up.packets == tally.sent,
        "not all were offered to the link: {told}"
    );
    ensure!(
        up.delivered + up.lost() + up.queue_full() == up.packets,
        "the link's counters do not add up: {told}"
    );
    ensure!(
        tally.received + refused + up.own_losses() == up.delivered,
        "what was delivered is not what arrived: {told}"
    );
    ensure!(
        summary.departure_error.count == up.delivered + summary.down.delivered,
        "{} departures: {told}",
        summary.departure_error.count
    );
    check_losses(link, up.packets - up.queue_full(), up.lost(), &told)
}

/// Checks that losses are in the 99.9 % interval of the binomial distribution.
fn check_losses(link: &str, packets: u64, lost: u64, told: &str) -> Result<()> {
    let share = match link.split_once("--loss ") {
        Some((_, percent)) => percent.trim_end_matches('%').parse::<f64>()? / 100.0,
        None => 0.0,
    };
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    let (packets, lost) = (packets as f64, lost as f64);
    let spread = 3.2905 * (packets * share * (1.0 - share)).sqrt();
    ensure!(
        (lost - packets * share).abs() <= spread,
        "{lost} lost, expected {} +- {spread}: {told}",
        packets * share
    );
    Ok(())
}

fn wires(bed: &Bed) -> [(&NetNs, &'static str); 4] {
    [
        (bed.client(), WAN),
        (bed.emulator(), CLIENT_PORT),
        (bed.emulator(), SERVER_PORT),
        (bed.server(), WAN),
    ]
}
