//! Lateness of packets: as the emulator states it, by a capture at the far end, and beside the earlier commit of `make bench BASE=COMMIT`.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use model::Nanos;
use netio::bed::{Bed, BedConfig, CLIENT_PORT, SERVER, SERVER_PORT, WAN};
use netio::{AfPacket, PortSet, ReceivedFrame, RingSlots, clock};
use serde_json::Value;
use stats::order_statistics::{percentile, sorted};

use crate::path::rivals::base_path;
use crate::processes::{FARWIRE, Running, await_thread, threads};
use crate::report::rows::{Better, Found, Quantity, Row, Sample};
use crate::results::{Outcome, scratch};
use crate::rounds::{rounds, shuffled};

/// Datagrams a second, and the number of datagrams.
const PACES: [(u32, u32); 3] = [(1, 5), (50, 100), (1000, 2000)];
/// The ways in which the forwarder waits.
const WAITS: [&str; 2] = ["spin", "gentle"];
const SLOTS: RingSlots = RingSlots {
    small: 8 << 10,
    large: 1,
};
const PAYLOAD: usize = 1000;
const DELAY: Nanos = Nanos(20_000_000);

/// The statistics of a run: the name, the share of packets, and the key in the summary.
const STATISTICS: [(&str, f64, &str); 2] = [("median", 0.5, "p50_ns"), ("p99", 0.99, "p99_ns")];

/// The result of one run; times are in us.
struct Lateness {
    /// Lateness until the send call returned, by statistic, as the summary states it.
    sent: [f64; 2],
    /// Lateness until the send call began, if the summary has it.
    handed_over: Option<[f64; 2]>,
    /// Lateness from the sender's time to the far end's capture, less the delay.
    captured: [f64; 2],
    /// The forwarder's use of one processor, in percent.
    forwarder_percent: f64,
    /// The number of stalls of the machine itself.
    stalls: u64,
}

/// Datagrams a second, their number, and the way in which the forwarder waits.
type Case = (u32, u32, &'static str);

pub(crate) fn run() -> Result<Outcome> {
    let rounds = rounds(3)?;
    let mut outcome = Outcome::new(
        rounds,
        &format!(
            "datagrams of {PAYLOAD} bytes through {DELAY} in each direction: the time from the due time of each to its departure, as the summary states it. Beside it, the same by a capture \
             at the far end, less the sender's time and the delay, which includes the stacks of the sender and the far end"
        ),
    );
    let cases: Vec<Case> = PACES
        .iter()
        .flat_map(|(pace, count)| WAITS.map(|wait| (*pace, *count, wait)))
        .collect();
    let mut programs = vec![PathBuf::from(FARWIRE)];
    programs.extend(base_path());
    let each: Vec<(Case, &Path)> = cases
        .iter()
        .flat_map(|case| {
            let each = programs.iter();
            each.map(move |program| (*case, program.as_path()))
        })
        .collect();
    let found = shuffled(rounds, &each, |(case, program)| one(*case, program))?;
    for (at, case) in cases.iter().enumerate() {
        let of = |program: usize| -> Vec<&Lateness> {
            let place = at * programs.len() + program;
            found.iter().map(|round| &round[place]).collect()
        };
        let own = of(0);
        outcome.rows(rows(*case, &own));
        if let Some(base) = programs.get(1).and_then(|base| base.file_name()) {
            let name = base.display().to_string();
            outcome.rows(beside_base(*case, &own, &of(1), &name));
        }
    }
    let stalls: u64 = found.iter().flatten().map(|lateness| lateness.stalls).sum();
    outcome.note(&format!(
        "stalls of the machine itself, of more than 30 us, while a forwarder spun: {stalls}"
    ));
    Ok(outcome)
}

/// Makes the rows of a case over all rounds.
fn rows((pace, _, wait): Case, of: &[&Lateness]) -> Vec<Row> {
    let mut rows = Vec::new();
    let beside = |name: &str, unit: &str, value: &dyn Fn(&Lateness) -> [Option<f64>; 2]| {
        let round = |lateness: &&Lateness| -> Vec<Sample> {
            let [own, capture] = value(lateness);
            own.into_iter().chain(capture).map(Sample::from).collect()
        };
        let found = Found {
            names: vec!["farwire".to_owned(), "capture".to_owned()],
            rounds: of.iter().map(round).collect(),
        };
        let quantity = Quantity {
            better: Better::Neither,
            ..Quantity::less(&format!("{pace}/s, --cpu {wait}: {name}"), unit)
        };
        match found.rounds.iter().all(|round| round.len() == 2) {
            true => found.row(&quantity, 0, 1, "capture"),
            false => found.alone(&quantity, 0),
        }
    };
    for (at, (name, _, _)) in STATISTICS.iter().enumerate() {
        rows.extend(beside(&format!("late, {name}"), "us", &|of| {
            [Some(of.sent[at]), Some(of.captured[at])]
        }));
        if of.iter().all(|lateness| lateness.handed_over.is_some()) {
            rows.extend(beside(&format!("late at hand-over, {name}"), "us", &|of| {
                [of.handed_over.map(|both| both[at]), None]
            }));
        }
    }
    rows.extend(beside("forwarder's share of a CPU", "%", &|of| {
        [Some(of.forwarder_percent), None]
    }));
    rows
}

/// Makes the rows of a case beside the base commit.
fn beside_base(
    (pace, _, wait): Case,
    own: &[&Lateness],
    base: &[&Lateness],
    name: &str,
) -> Vec<Row> {
    let row = |at: usize| {
        let (what, _, _) = STATISTICS[at];
        let found = Found {
            names: vec!["farwire".to_owned(), name.to_owned()],
            rounds: own
                .iter()
                .zip(base)
                .map(|(own, base)| vec![own.sent[at].into(), base.sent[at].into()])
                .collect(),
        };
        let quantity = Quantity::less(&format!("{pace}/s, --cpu {wait}: late, {what}"), "us");
        found.row(&quantity, 0, 1, name)
    };
    (0..STATISTICS.len()).filter_map(row).collect()
}

fn one((pace, count, wait): Case, program: &Path) -> Result<Lateness> {
    let bed = Bed::build(&BedConfig::default())?;
    let report = scratch("lateness.json")?;
    let mut command = Command::new(program);
    command.args(["emulate", CLIENT_PORT, SERVER_PORT, "--cpu", wait]);
    command.args(["--delay", &DELAY.to_string(), "--json"]);
    let mut emulator = Running::start(bed.emulator(), command.arg(&report))?;
    await_thread(emulator.pid(), "forwarder")?;
    thread::sleep(Duration::from_millis(200)); // it measures its wake-ups first
    let (started, before) = (Instant::now(), forwarder_s(emulator.pid()));
    let late = capture(&bed, count, Duration::from_secs(1) / pace)?;
    let took = started.elapsed().as_secs_f64();
    let forwarder_s = forwarder_s(emulator.pid()) - before;
    emulator.end()?;
    let summary: Value = serde_json::from_str(&fs::read_to_string(&report)?)?;
    fs::remove_file(&report)?;
    let error = &summary["departure_error"];
    let stated = |of: &Value| {
        let value = |place: &str| Some(of[place].as_f64()? / 1e3);
        let [median, p99] = STATISTICS.map(|(_, _, place)| value(place));
        Some([median?, p99?])
    };
    let captured = |(_, share, _)| percentile(&late, share).unwrap_or(f64::NAN);
    Ok(Lateness {
        sent: stated(error).context("no departure error")?,
        handed_over: stated(&error["hand_over"]),
        captured: STATISTICS.map(captured),
        forwarder_percent: 100.0 * forwarder_s / took,
        stalls: summary["stalls"]["count"].as_u64().unwrap_or(0),
    })
}

/// Returns the processor seconds of the forwarder so far.
fn forwarder_s(pid: u32) -> f64 {
    let threads = threads(pid).into_iter();
    let forwarders = threads.filter(|(name, _)| name == "forwarder");
    forwarders.map(|(_, seconds)| seconds).sum()
}

/// Sends the datagrams, each with its time, reads the kernel's stamps of their arrival, and returns the lateness of each in us, sorted.
fn capture(bed: &Bed, count: u32, interval: Duration) -> Result<Vec<f64>> {
    let mut port = bed.server().run(|| AfPacket::open(WAN, SLOTS))??;
    let socket = bed.client().run(|| UdpSocket::bind("0.0.0.0:0"))??;
    let far = SocketAddr::from((SERVER.v4, 9));
    let mut late = Vec::new();
    for _ in 0..count {
        let mut payload = [0; PAYLOAD];
        payload[..8].copy_from_slice(&clock::now().0.to_be_bytes());
        socket.send_to(&payload, far)?;
        thread::sleep(interval);
        collect(&mut port, &mut late);
    }
    thread::sleep(Duration::from_millis(50));
    collect(&mut port, &mut late);
    anyhow::ensure!(!late.is_empty(), "no datagram arrived");
    Ok(sorted(&late))
}

fn collect(port: &mut AfPacket, late: &mut Vec<f64>) {
    const HEADERS: usize = 14 + 20 + 8;
    port.refresh(clock::now());
    while let Some((_, received)) = port.take() {
        let ReceivedFrame::Frame(frame) = received else {
            continue;
        };
        let payload = frame.bytes().get(HEADERS..HEADERS + 8);
        if let (Some(Ok(sent)), true) = (
            payload.map(<[u8; 8]>::try_from),
            frame.bytes().len() == HEADERS + PAYLOAD,
        ) {
            let due = u64::from_be_bytes(sent) + DELAY.0;
            late.push(micros(frame.arrival.0.cast_signed() - due.cast_signed()));
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "microseconds to be read")]
fn micros(nanos: i64) -> f64 {
    nanos as f64 / 1e3
}
