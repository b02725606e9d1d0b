//! The accuracy of rates: by the packet log, from the first departure to the last; for a burst, packet by packet; and the frames a second
//! at high rates.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use netio::bed::{Bed, BedConfig, CLIENT_PORT, SERVER, SERVER_PORT, WAN};
use stats::order_statistics::{percentile, sorted};

use crate::processes::{FARWIRE, Running, await_listener, await_thread, output, words};
use crate::report::rows::{Better, Found, Quantity, Row, Sample};
use crate::results::{Outcome, scratch};
use crate::rounds::rounds;

/// Rates as the command line takes them, in bit/s of L2 frames, and the offered load.
const RATES: [(&str, f64, &str); 4] = [
    ("1mbit", 1e6, "1.3mbit"),
    ("10mbit", 1e7, "13mbit"),
    ("100mbit", 1e8, "130mbit"),
    ("1gbit", 1e9, "1.2gbit"),
];
const SECONDS: u32 = 10;
/// The number of datagrams in a burst of 64 KiB, and the bytes of each.
const BURST: usize = 45;
const PAYLOAD: usize = 1472;
const FRAME: usize = PAYLOAD + 42;
const FAST: &str = "5gbit";
const FAST_SECONDS: u32 = 3;

pub(crate) fn run() -> Result<Outcome> {
    let rounds = rounds(1)?;
    let mut outcome = Outcome::new(
        rounds,
        &format!(
            "UDP above the rate for {SECONDS} s: L2 bytes of all departures except the first, over the time between the first and the last, in the packet log; \
             {BURST} datagrams of {PAYLOAD} bytes sent together into 10mbit: the gaps between their departures, {:.4} ms by the rate; TCP through {FAST}: frames that the far \
             interface received, a second",
            FRAME as f64 * 8.0 / 1e4
        ),
    );
    let mut early = 0;
    for (name, rate, offered) in RATES {
        let mut errors = Vec::new();
        for _ in 0..rounds {
            let departures = udp_through(name, offered)?;
            early += departures.early;
            errors.push(100.0 * (departures.rate() / rate - 1.0));
        }
        outcome.rows(alone(&format!("--rate {name}: error"), "%", &errors));
    }
    let bursts: Vec<[f64; 3]> = (0..rounds).map(|_| burst()).collect::<Result<_>>()?;
    for (at, of) in ["least", "median", "largest"].iter().enumerate() {
        let gaps: Vec<f64> = bursts.iter().map(|gaps| gaps[at]).collect();
        outcome.rows(alone(&format!("burst into 10mbit: {of} gap"), "ms", &gaps));
    }
    let frames: Vec<f64> = (0..rounds)
        .map(|_| frames_a_second())
        .collect::<Result<_>>()?;
    outcome.rows(alone(
        &format!("TCP through {FAST}: frames"),
        "1/s",
        &frames,
    ));
    outcome.note(&format!(
        "departures before their due time, over all these measurements: {early}"
    ));
    Ok(outcome)
}

fn alone(what: &str, unit: &str, values: &[f64]) -> Option<Row> {
    let found = Found {
        names: vec!["farwire".to_owned()],
        rounds: values
            .iter()
            .map(|value| vec![Sample::from(*value)])
            .collect(),
    };
    let quantity = Quantity {
        better: Better::Neither,
        ..Quantity::less(what, unit)
    };
    found.alone(&quantity, 0)
}

/// The departures from client to server in a packet log.
struct Departures {
    /// The departure time of each packet, in ns, and its L2 bytes.
    left: Vec<(f64, f64)>,
    /// The number of packets that left before they were due.
    early: u64,
}

impl Departures {
    /// Reads the departures of frames longer than 1,000 bytes.
    fn read(log: &Path) -> Result<Self> {
        let text = fs::read_to_string(log)?;
        let mut all = Self {
            left: Vec::new(),
            early: 0,
        };
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split(',').collect();
            let [_, "up", bytes, _, "delivered", _, due, departure, ..] = fields[..] else {
                continue;
            };
            let (bytes, due, departure): (f64, u64, u64) =
                (bytes.parse()?, due.parse()?, departure.parse()?);
            if bytes > 1000.0 {
                all.early += u64::from(departure < due);
                // The time of day fits into a float to the nanosecond.
                all.left
                    .push(((departure % 86_400_000_000_000) as f64, bytes));
            }
        }
        ensure!(all.left.len() > 2, "nothing left");
        Ok(all)
    }

    /// Returns bits a second from the first departure to the last.
    fn rate(&self) -> f64 {
        let bytes: f64 = self.left[1..].iter().map(|(_, bytes)| bytes).sum();
        let (first, last) = (self.left[0].0, self.left[self.left.len() - 1].0);
        bytes * 8e9 / (last - first)
    }
}

/// An emulator that keeps a packet log.
struct Logged {
    bed: Bed,
    emulator: Running,
    log: PathBuf,
}

impl Logged {
    fn stand(rate: &str, queue: &str) -> Result<Self> {
        let bed = Bed::build(&BedConfig::default())?;
        let log = scratch("rates.csv")?;
        let mut command = Command::new(FARWIRE);
        command.args([
            "emulate",
            CLIENT_PORT,
            SERVER_PORT,
            "--rate",
            rate,
            "--queue",
            queue,
        ]);
        let mut emulator = Running::start(bed.emulator(), command.arg("--packet-log").arg(&log))?;
        await_thread(emulator.pid(), "forwarder")?;
        std::thread::sleep(Duration::from_millis(200)); // it measures its wake-ups first
        Ok(Self { bed, emulator, log })
    }

    fn end(self) -> Result<Departures> {
        self.emulator.end()?;
        let departures = Departures::read(&self.log);
        fs::remove_file(&self.log)?;
        departures
    }
}

fn udp_through(rate: &str, offered: &str) -> Result<Departures> {
    let logged = Logged::stand(rate, "100ms")?;
    let mut far_end = Command::new(FARWIRE);
    let _far_end = Running::start(logged.bed.server(), far_end.args(["serve", "--quiet"]))?;
    await_listener(logged.bed.server(), "farwire serve")?;
    let line = format!(
        "{FARWIRE} measure udp {} -b {offered} -l {PAYLOAD} -t {SECONDS} --quiet --json -",
        SERVER.v4
    );
    output(logged.bed.client(), words(&line))?;
    logged.end()
}

/// Measures the smallest, the median and the largest gap between departures of a burst, in ms.
fn burst() -> Result<[f64; 3]> {
    let logged = Logged::stand("10mbit", "1000pkt")?;
    let socket = logged.bed.client().run(|| UdpSocket::bind("0.0.0.0:0"))??;
    let far = SocketAddr::from((SERVER.v4, 9));
    for _ in 0..BURST {
        socket.send_to(&[0; PAYLOAD], far)?;
    }
    std::thread::sleep(Duration::from_millis(200));
    let left = logged.end()?.left;
    ensure!(left.len() == BURST, "{} of {BURST} left", left.len());
    let gaps: Vec<f64> = left
        .windows(2)
        .map(|two| (two[1].0 - two[0].0) / 1e6)
        .collect();
    let gaps = sorted(&gaps);
    let gap = |share| percentile(&gaps, share).context("there are gaps");
    Ok([gap(0.0)?, gap(0.5)?, gap(1.0)?])
}

fn frames_a_second() -> Result<f64> {
    let bed = Bed::build(&BedConfig::default())?;
    let mut command = Command::new(FARWIRE);
    command.args(["emulate", CLIENT_PORT, SERVER_PORT, "--rate", FAST]);
    let mut emulator = Running::start(bed.emulator(), &mut command)?;
    await_thread(emulator.pid(), "forwarder")?;
    let mut far_end = Command::new(FARWIRE);
    far_end.args(["serve", "--quiet", "--congestion", "cubic"]);
    let _far_end = Running::start(bed.server(), &mut far_end)?;
    await_listener(bed.server(), "farwire serve")?;
    let line = format!(
        "{FARWIRE} measure tcp {} -C cubic -t {FAST_SECONDS} --quiet --json -",
        SERVER.v4
    );
    let (before, started) = (received(&bed)?, Instant::now());
    output(bed.client(), words(&line))?;
    let frames = received(&bed)? - before;
    Ok(frames / started.elapsed().as_secs_f64())
}

/// Reads the number of frames that the far interface has received (proc(5), net/dev).
fn received(bed: &Bed) -> Result<f64> {
    let text = bed
        .server()
        .run(|| fs::read_to_string("/proc/thread-self/net/dev"))??;
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(WAN)?.strip_prefix(':'));
    let frames = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(frames.context("no count of the far interface")?.parse()?)
}
