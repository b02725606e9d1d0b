//! Quiet links beside a busy one: their lateness and losses with the busy link in the same emulator and in a separate one.

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;
use stats::order_statistics::{percentile, sorted};

use crate::path::links::{Ends, address, links_file};
use crate::processes::{FARWIRE, Running, await_thread};
use crate::report::rows::{Found, Quantity, Sample};
use crate::results::{Outcome, scratch};
use crate::rounds::{rounds, shuffled};

/// The number of links. The first one is busy.
const LINKS: usize = 50;
const CONDITIONS: &str = "delay = \"20ms\"";
/// The interval between two datagrams on a quiet link.
const INTERVAL: Duration = Duration::from_millis(20);
const PAYLOAD: usize = 1000;
const PORT: u16 = 9;
/// The time from the start of the busy link's traffic until the quiet links' begins, and the duration of the latter.
const SETTLED: Duration = Duration::from_secs(1);
const COUNTED: Duration = Duration::from_secs(4);

/// The traffic of the busy link: its name, and the words of `farwire measure` after the host.
const LOADS: [(&str, &str, &str); 3] = [
    ("a TCP stream", "tcp", "-t 7 -C cubic"),
    ("trains of datagrams", "udp", "-t 7 -b 20G -l 1448"),
    ("64-byte datagrams", "udp", "-t 7 -b 500M -l 64 --no-gso"),
];

/// The place of the busy link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The busy link has the same thread as the quiet links.
    SameThread,
    /// The busy link is in the same emulator, with two threads.
    TwoThreads,
    /// The busy link has its own process.
    OtherProcess,
}

const PLACES: [Place; 3] = [Place::SameThread, Place::TwoThreads, Place::OtherProcess];

/// The result for the quiet links.
struct Quiet {
    /// The median over the links of the median and of the 99th percentile of the departure error, in us.
    late_us: [f64; 2],
    /// Packets that were sent and did not leave, in percent.
    lost_percent: f64,
}

pub(crate) fn run() -> Result<Outcome> {
    type Figure = fn(&Quiet) -> f64;
    let rounds = rounds(3)?;
    let quiet = LINKS - 1;
    let mut outcome = Outcome::new(
        rounds,
        &format!(
            "{quiet} links of 20 ms, each with a datagram of {PAYLOAD} bytes every {} ms for {} s, beside a link of 20 ms with other traffic: their departure errors (the median over \
             these links) and the datagrams that did not leave; with the busy link in the same emulator, with one thread and with two, and in a separate process",
            INTERVAL.as_millis(),
            COUNTED.as_secs()
        ),
    );
    let ends = Ends::build(LINKS, LINKS)?;
    for load in LOADS {
        let found = shuffled(rounds, &PLACES, |place| beside(&ends, *place, load))?;
        let of = |value: Figure| Found {
            names: ["farwire", "farwire --threads 2", "two processes"]
                .map(str::to_owned)
                .into(),
            rounds: found
                .iter()
                .map(|round| {
                    round
                        .iter()
                        .map(|quiet| Sample::from(value(quiet)))
                        .collect()
                })
                .collect(),
        };
        let rows: [(&str, &str, Figure); 3] = [
            ("late, median", "us", |quiet| quiet.late_us[0]),
            ("late, p99", "us", |quiet| quiet.late_us[1]),
            ("lost", "%", |quiet| quiet.lost_percent),
        ];
        for (what, unit, value) in rows {
            let quantity = Quantity::less(
                &format!("{quiet} quiet links beside {}: {what}", load.0),
                unit,
            );
            let found = of(value);
            outcome.rows(
                [0, 1]
                    .into_iter()
                    .filter_map(|own| found.row(&quantity, own, 2, "two processes")),
            );
        }
    }
    Ok(outcome)
}

/// Measures the quiet links beside this load.
fn beside(ends: &Ends, place: Place, (_, instrument, words): (&str, &str, &str)) -> Result<Quiet> {
    let report = scratch("isolation.json")?;
    let mut other = None;
    let first = match place {
        Place::SameThread | Place::TwoThreads => 0,
        Place::OtherProcess => {
            let mut command = Command::new(FARWIRE);
            command.args(["emulate", "a0", "b0", "--delay", "20ms"]);
            let mut busy = Running::start(&ends.middle, &mut command)?;
            await_thread(busy.pid(), "forwarder")?;
            other = Some(busy);
            1
        }
    };
    let mut emulator = start(ends, place, first, &report)?;
    await_thread(emulator.pid(), "forwarder")?;
    let mut busy = Command::new(FARWIRE);
    busy.args(["measure", instrument, &address(0, 2)]);
    busy.args(words.split_whitespace()).arg("--quiet");
    let busy = Running::start(&ends.client, &mut busy)?;
    thread::sleep(SETTLED);
    // The sockets drop unread datagrams; without them, each datagram would be answered by ICMP.
    let _sink = ends.server.run(|| UdpSocket::bind(("0.0.0.0", PORT)))??;
    let sent = ends.client.run(offer)??;
    // The last datagrams are on their way for 20 ms.
    thread::sleep(Duration::from_millis(200));
    drop(busy);
    emulator.end()?;
    drop(other);
    let summary: Value = serde_json::from_str(&fs::read_to_string(&report)?)?;
    fs::remove_file(&report)?;
    let links = summary["links"].as_array().context("no links")?;
    let quiet = &links[links.len() - (LINKS - 1)..];
    let median = |key: &str| -> Result<f64> {
        let each = quiet
            .iter()
            .map(|link| link["departure_error"][key].as_f64());
        let each: Option<Vec<f64>> = each.map(|ns| Some(ns? / 1e3)).collect();
        let each = sorted(&each.context("no departure error")?);
        Ok(percentile(&each, 0.5).unwrap_or(f64::NAN))
    };
    let left: u64 = quiet
        .iter()
        .filter_map(|link| link["up"]["delivered"].as_u64())
        .sum();
    Ok(Quiet {
        late_us: [median("p50_ns")?, median("p99_ns")?],
        lost_percent: 100.0 * (1.0 - left as f64 / sent as f64),
    })
}

/// Starts the emulator of the links from `first` on.
fn start(ends: &Ends, place: Place, first: usize, report: &Path) -> Result<Running> {
    let file = links_file(first..LINKS, CONDITIONS)?;
    let mut command = Command::new(FARWIRE);
    command.args(["emulate", "--links"]).arg(&file);
    command.arg("--json").arg(report);
    if place == Place::TwoThreads {
        command.args(["--threads", "2"]);
    }
    Running::start(&ends.middle, &mut command)
}

/// Sends to all quiet links in turns, at equal intervals. Returns the number of datagrams.
fn offer() -> Result<u64> {
    let connect = |link| -> Result<UdpSocket> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect((address(link, 2), PORT))?;
        Ok(socket)
    };
    let sockets: Vec<UdpSocket> = (1..LINKS).map(connect).collect::<Result<_>>()?;
    let gap = INTERVAL / u32::try_from(sockets.len())?;
    let (started, mut next, mut sent) = (Instant::now(), Instant::now(), 0);
    for socket in sockets.iter().cycle() {
        if started.elapsed() > COUNTED {
            break;
        }
        // A refused datagram is not offered.
        sent += u64::from(socket.send(&[0; PAYLOAD]).is_ok());
        next += gap;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(sent)
}
