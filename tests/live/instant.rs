//! A change takes effect in both directions at one instant, which its answer states; the test compares it with the packet log.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;

use test_support::api::Exec;
use test_support::{is_soak, process};

/// The number of changes of the link.
const CHANGES: i128 = 20;

/// The time between two changes.
const PHASE: Duration = Duration::from_millis(100);

/// A number of packets that only this traffic reaches.
const SOME: u64 = 100;

/// Two packets a millisecond in each direction, until the shell ends it.
const TRAFFIC: &str =
    "PROGRAM measure probe -q -i 500us -c 1000000 $FARWIRE_SERVER > /dev/null 2>&1 & echo on";

/// The distance from the stated instant, in ns, within which a packet may contradict it. Outside of a soak, it allows for interruptions
/// between two readings of the clocks from which the log computes wall time.
const SOAKED: i128 = 1_000_000;
const DISTURBED: i128 = 50_000_000;

#[test_support::test(Namespaces)]
fn a_change_is_in_force_in_both_directions_from_the_instant_that_its_answer_states() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let log = directory.path().join("packets.csv");
    let mut farwire = process::farwire();
    let link = format!("--delay 1ms --packet-log {}", log.display());
    let mut exec = Exec::start_as(&mut farwire, &link)?;
    let traffic = TRAFFIC.replace("PROGRAM", process::program());
    ensure!(exec.shell(&traffic)? == "on", "no traffic");
    passed(&exec, 1, SOME)?;
    let mut stated = Vec::new();
    let mut under_previous = 0;
    for number in 1..=CHANGES {
        thread::sleep(PHASE);
        let answer = exec.patch("", &format!(r#"{{"delay": "{}ms"}}"#, number + 1))?;
        ensure!(answer.status == 200, "{answer:?}");
        let at: Timestamp = answer.body["at"].as_str().context("no instant")?.parse()?;
        stated.push(at.as_nanosecond());
        under_previous = answer.body["under_previous"].as_u64().context("how many")?;
    }
    passed(&exec, CHANGES + 1, under_previous + SOME)?;
    ensure!(exec.shell("kill $!; echo off")? == "off", "no end");
    exec.end()?;

    let packets = packets(&std::fs::read_to_string(&log)?)?;
    let mut worst = 0;
    for (number, at) in (1..).zip(stated) {
        for way in ["up", "down"] {
            let of = packets.iter().filter(|packet| packet.way == way);
            let (before, after): (Vec<_>, Vec<_>) = of.partition(|packet| packet.delay <= number);
            let last = before.iter().map(|packet| packet.arrival).max();
            let first = after.iter().map(|packet| packet.arrival).min();
            let (last, first) = (last.context("none before")?, first.context("none after")?);
            worst = worst.max(last - at).max(at - first);
        }
    }
    let milliseconds = worst as f64 / 1e6;
    println!(
        "{CHANGES} changes, {} packets: at most {milliseconds} ms off",
        packets.len()
    );
    let most = if is_soak() { SOAKED } else { DISTURBED };
    ensure!(worst <= most, "a packet {milliseconds} ms off the instant");
    Ok(())
}

/// Waits until more than this number of packets have been delivered in each direction since a revision.
fn passed(exec: &Exec, since: i128, more_than: u64) -> Result<()> {
    process::wait_for("packets each way", || {
        let query = format!("/v1/links/link/counters?since={since}");
        let counted = exec.get(&query)?.body;
        let is_more = |way: &str| counted[way]["delivered"].as_u64() > Some(more_than);
        Ok((is_more("up") && is_more("down")).then_some(()))
    })
}

struct Logged {
    way: String,
    /// The arrival, in nanoseconds since 1970.
    arrival: i128,
    /// The delay, in milliseconds.
    delay: i128,
}

/// Returns the packets that left, with their delays.
fn packets(log: &str) -> Result<Vec<Logged>> {
    let mut lines = log.lines();
    let names: Vec<&str> = lines.next().context("an empty log")?.split(',').collect();
    let place = |name: &str| {
        names
            .iter()
            .position(|known| *known == name)
            .context("a column")
    };
    let [way, arrival, due, protocol] = [
        place("direction")?,
        place("arrival_ns")?,
        place("due_ns")?,
        place("protocol")?,
    ];
    let mut packets = Vec::new();
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        if cells[protocol] != "udp" || cells[due].is_empty() {
            continue;
        }
        let at: i128 = cells[arrival].parse()?;
        packets.push(Logged {
            way: cells[way].to_owned(),
            arrival: at,
            delay: (cells[due].parse::<i128>()? - at) / 1_000_000,
        });
    }
    Ok(packets)
}
