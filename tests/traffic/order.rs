//! Without loss, each flow leaves in the order in which it arrived, and nothing leaves before it is due.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use model::{Bytes, Nanos};
use netio::bed::{Bed, BedConfig, CLIENT_PORT, SERVER, SERVER_PORT, WAN};

use test_support::capture::{Capture, Passed, Seen, Tap, TapDirection};
use test_support::counters::Counters;
use test_support::datagrams::Flow;
use test_support::steering;
use test_support::stream::Transfer;
use test_support::suite::{Need, Suite};
use test_support::wan_box::WanBox;

#[test_support::tests]
fn add(suite: &mut Suite) {
    for link in ["--rate 3gbit", "--delay 2ms", "--rate 200mbit --delay 1ms"] {
        suite.test(
            format!("a tcp flow leaves in the order in which it came: {link}"),
            &[Need::Namespaces, Need::Steering],
            move || tcp_keeps_order(link),
        );
    }
    for (link, delay, batch) in [
        ("--delay 3ms", 3_000_000, 1),
        ("--delay 3ms", 3_000_000, 20),
        ("--delay 500us --rate 300mbit", 500_000, 20),
        ("--delay 1ms --loss 5%", 1_000_000, 20),
    ] {
        suite.test(
            format!(
                "datagrams in GSO frames of {batch} leave in order and not before they are due: {link}"
            ),
            &[Need::Namespaces],
            move || datagrams_leave_on_time(link, Nanos(delay), batch),
        );
    }
}

/// The number of datagrams on their way: too few to fill any ring or backlog, however busy the machine is.
const WINDOW: Bytes = Bytes(1 << 20);

fn tcp_keeps_order(link: &str) -> Result<()> {
    let bed = Bed::build(&BedConfig {
        tcp_memory: Some(WINDOW),
        ..BedConfig::default()
    })?;
    for (ns, interfaces) in [
        (bed.client(), &[WAN][..]),
        (bed.emulator(), &[CLIENT_PORT, SERVER_PORT]),
        (bed.server(), &[WAN]),
    ] {
        steering::to_one_cpu(ns, interfaces)?;
    }
    let wan = WanBox::start(&bed, link)?;
    let came = Capture::start(bed.emulator(), CLIENT_PORT)?;
    let left = Capture::start(bed.server(), WAN)?;
    let transfer = Transfer {
        // There are fewer packets than a capture has room for.
        bytes: 6_000_000,
        to: SERVER.v4.into(),
        seed: 11,
    };
    transfer.run(bed.client(), bed.server())?;
    let summary = wan.stop()?;
    let (came, left) = (came.finish()?, left.finish()?);
    let up = &summary.up;
    ensure!(
        up.queue_full() + up.own_losses() == 0,
        "packets were dropped: {up:?}"
    );
    let (came, left) = (sequence(&came), sequence(&left));
    ensure!(came == left, "came as {came:?}, left as {left:?}");
    ensure!(!came.is_empty(), "nothing was captured");
    let out_of_order = Counters::of(bed.server())?.get("TcpExtTCPOFOQueue")?;
    ensure!(
        out_of_order == 0,
        "{out_of_order} segments came out of order"
    );
    Ok(())
}

/// Returns the stream's bytes as ranges of sequence numbers in the order in which they passed. Adjacent ranges are joined, so that
/// the division into frames does not matter.
fn sequence(frames: &[Seen]) -> Vec<(u32, u32)> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for frame in frames {
        let Some((start, len)) = tcp_payload(frame) else {
            continue;
        };
        let end = start.wrapping_add(len);
        match ranges.last_mut() {
            Some((_, last)) if *last == start => *last = end,
            _ => ranges.push((start, end)),
        }
    }
    ranges
}

/// Returns the sequence number and length of the payload of an IPv4 TCP frame, if it has one.
fn tcp_payload(frame: &Seen) -> Option<(u32, u32)> {
    let ip = frame.head.get(14..)?;
    if frame.head.get(12..14)? != [8, 0] || *ip.get(9)? != 6 {
        return None;
    }
    let tcp = ip.get(usize::from(ip[0] & 15) * 4..)?;
    let header = usize::from(tcp.get(12)? >> 4) * 4;
    let before = frame.head.len() - tcp.len() + header;
    let len = u32::try_from(frame.len.checked_sub(before)?).ok()?;
    let start = u32::from_be_bytes(*tcp.get(4..)?.first_chunk()?);
    (len > 0).then_some((start, len))
}

/// The UDP payload of every datagram here, in bytes.
const SIZE: usize = 1000;
/// The bytes of the Ethernet, IPv4 and UDP headers.
const HEADERS: usize = 42;

fn datagrams_leave_on_time(link: &str, delay: Nanos, batch: usize) -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let wan = WanBox::start(&bed, link)?;
    let mut tap = Tap::open(bed.emulator())?;
    let flow = Flow {
        to: SERVER.v4.into(),
        bytes: 4_000_000,
        size: Some(SIZE),
        batch,
        window: 2 * batch as u64,
        pinned: true,
        pause: Duration::ZERO,
    };
    let tally = flow.run_with(bed.client(), bed.server(), || tap.read())?;
    let (passed, missed) = tap.finish()?;
    let summary = wan.stop()?;
    let came = datagrams(&passed, TapDirection::In);
    let left = datagrams(&passed, TapDirection::Out);
    let told = format!("{tally:?}, {} came, {} left", came.len(), left.len());
    ensure!(
        came.is_sorted_by_key(|(number, _)| *number),
        "the flow itself is out of order"
    );
    ensure!(
        left.is_sorted_by_key(|(number, _)| *number),
        "datagrams left out of order"
    );
    let arrivals: HashMap<u64, Nanos> = came.iter().copied().collect();
    let mut strangers = Vec::new();
    for (number, departure) in &left {
        let Some(arrival) = arrivals.get(number) else {
            strangers.push(*number);
            continue;
        };
        let took = departure.0.saturating_sub(arrival.0);
        ensure!(
            took >= delay.0,
            "datagram {number} left after {took} of {} ns",
            delay.0
        );
    }
    ensure!(
        missed == 0,
        "what was captured is in order and on time, but the test's own capture missed {missed} frames: {told}"
    );
    ensure!(strangers.is_empty(), "left but never came: {strangers:?}");
    ensure!(
        left.len() as u64 == summary.up.delivered,
        "{told}: {:?}",
        summary.up
    );
    ensure!(came.len() as u64 == tally.sent, "{told}");
    Ok(())
}

/// Returns number and stamp of each datagram in this direction; GSO frames are split.
fn datagrams(passed: &[Passed], way: TapDirection) -> Vec<(u64, Nanos)> {
    let mut found = Vec::new();
    for frame in passed.iter().filter(|frame| frame.way == way) {
        let is_udp = frame.head.get(12..14) == Some(&[8, 0]) && frame.head.get(23) == Some(&17);
        let number = frame.head.get(HEADERS..).and_then(<[u8]>::first_chunk);
        let (Some(number), true) = (number, is_udp) else {
            continue;
        };
        let first = u64::from_le_bytes(*number);
        let count = (frame.len - HEADERS).div_ceil(SIZE) as u64;
        found.extend((first..first + count).map(|number| (number, frame.at)));
    }
    found
}
