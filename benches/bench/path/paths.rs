//! Many slow paths simultaneously: the error of each rate when all paths are full, and the cost of a packet.

use std::collections::HashMap;
use std::fs;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use netio::netns::NetNs;
use serde_json::Value;

use crate::path::links::{Ends, address, links_file};
use crate::path::rivals::{base_path, own_loss_of_links};
use crate::processes::{FARWIRE, Running, await_thread, of_machine, processor_seconds};
use crate::report::rows::{Better, Found, Quantity, Row, Sample};
use crate::results::{Outcome, scratch};
use crate::rounds::{rounds, shuffled};

/// A number of simultaneous paths and the rate of each.
#[derive(Clone, Copy, Debug)]
struct Case {
    paths: usize,
    /// The rate in Mbit/s of L2 frames. A tenth more is offered.
    mbit: u32,
}

const CASES: [Case; 3] = [
    Case {
        paths: 256,
        mbit: 3,
    },
    Case {
        paths: 512,
        mbit: 3,
    },
    Case {
        paths: 128,
        mbit: 16,
    },
];
const MOST_PATHS: usize = 512;
const PORT: u16 = 9;
const PAYLOAD: usize = 1472;
const FRAME: usize = PAYLOAD + 42;
const SETTLED: Duration = Duration::from_secs(3);
const COUNTED: Duration = Duration::from_secs(10);

/// The result of all paths together.
struct Paths {
    /// The errors of their rates in percent.
    errors: Vec<f64>,
    /// The largest 99th percentile of the departure error of a path, in ms.
    p99_ms: f64,
    /// The emulator's processor time for each packet, in us.
    cpu_us: f64,
    /// The processor time of the whole machine for each packet, in us. The kernel runs the filters of every thread's sockets on
    /// behalf of the sender.
    machine_us: f64,
    /// The rate that was offered to all paths, in percent of their rates.
    offered: f64,
    /// The packets that the emulator itself lost, because it could not keep up or for another reason.
    lost: f64,
}

/// An emulator that is compared.
struct Emulator {
    program: PathBuf,
    /// The value of `--threads`; none for the base, which may not have this option.
    threads: Option<&'static str>,
}

/// The places of two threads and of one among the emulators.
const TWO: usize = 0;
const ONE: usize = 1;

/// Returns the emulators that are compared. The base, if there is one, is the last.
fn emulators() -> Vec<Emulator> {
    let own = ["2", "1"].into_iter().map(|threads| Emulator {
        program: FARWIRE.into(),
        threads: Some(threads),
    });
    let base = base_path().map(|program| Emulator {
        program,
        threads: None,
    });
    own.chain(base).collect()
}

impl Emulator {
    fn name(&self) -> String {
        match self.threads {
            Some(threads) => format!("farwire --threads {threads}"),
            None => self
                .program
                .file_name()
                .unwrap_or_default()
                .display()
                .to_string(),
        }
    }
}

pub(crate) fn run() -> Result<Outcome> {
    let rounds = rounds(1)?;
    let mut outcome = Outcome::new(
        rounds,
        &format!(
            "many links with a rate in one emulator, each offered a tenth more in datagrams of {PAYLOAD} bytes: the bytes that the far interface of each received in {} s, beside its rate, and \
             the departure errors and the emulator's own losses that the summaries state, from the start of the traffic on; with two threads beside one. The rate that was offered, which \
             a slow sender makes less. The processor time of the emulator for each packet of these {} s, and that of the whole machine, which includes sender, receiver and the kernel's work for \
             them, with two threads beside one; and all with one thread beside the base commit, if there is one",
            COUNTED.as_secs(),
            COUNTED.as_secs()
        ),
    );
    let ends = Ends::build(MOST_PATHS, MOST_PATHS)?;
    let emulators = emulators();
    for case in CASES {
        let found = shuffled(rounds, &emulators, |one| measure(&ends, case, one))?;
        outcome.rows(rows(case, &emulators, &found));
    }
    Ok(outcome)
}

/// Makes the rows of a case from the results of all rounds with these emulators.
fn rows(case: Case, emulators: &[Emulator], found: &[Vec<Paths>]) -> Vec<Row> {
    type Value = fn(&Paths) -> f64;
    let Case { paths, mbit } = case;
    let quantity = |what: &str, unit: &str| Quantity {
        better: Better::Neither,
        ..Quantity::less(&format!("{paths} paths of {mbit}mbit: {what}"), unit)
    };
    let of = |value: Value| Found {
        names: emulators.iter().map(Emulator::name).collect(),
        rounds: found
            .iter()
            .map(|round| round.iter().map(|of| Sample::from(value(of))).collect())
            .collect(),
    };
    let figures: [(&str, &str, Value); 6] = [
        ("offered, of the rates", "%", |of| of.offered),
        ("slowest, error", "%", |of| {
            of.errors.iter().copied().fold(f64::MAX, f64::min)
        }),
        ("fastest, error", "%", |of| {
            of.errors.iter().copied().fold(f64::MIN, f64::max)
        }),
        ("beyond 1 %", "paths", |of| {
            of.errors.iter().filter(|error| error.abs() > 1.0).count() as f64
        }),
        ("late, p99 of the worst", "ms", |of| of.p99_ms),
        ("lost by the emulator", "packets", |of| of.lost),
    ];
    let two = figures.iter().filter_map(|(what, unit, value)| {
        of(*value).row(&quantity(what, unit), TWO, ONE, "one thread")
    });
    let costs: [(&str, &str, Value); 2] = [
        ("CPU of a packet", "us", |of| of.cpu_us),
        ("CPU of a packet, whole machine", "us", |of| of.machine_us),
    ];
    let cpu = costs.iter().filter_map(|(what, unit, value)| {
        let cost = quantity(&format!("{what}, two threads"), unit);
        of(*value).row(&cost, TWO, ONE, "one thread")
    });
    let base = emulators.iter().position(|one| one.threads.is_none());
    let beside_base = figures
        .iter()
        .chain(&costs)
        .filter_map(|(what, unit, value)| {
            let base = base?;
            let what = format!("{what}, one thread");
            of(*value).row(&quantity(&what, unit), ONE, base, &emulators[base].name())
        });
    two.chain(cpu).chain(beside_base).collect()
}

/// Measures all paths of a case with this emulator.
fn measure(ends: &Ends, case: Case, emulator: &Emulator) -> Result<Paths> {
    let Case { paths, mbit } = case;
    let conditions = format!("rate = \"{mbit}mbit\", queue = \"50pkt\"");
    let file = links_file(0..paths, &conditions)?;
    let report = scratch("paths.json")?;
    let mut command = Command::new(&emulator.program);
    command.args(["emulate", "--links"]).arg(&file);
    command.arg("--json").arg(&report);
    if let Some(threads) = emulator.threads {
        command.args(["--threads", threads]);
    }
    let mut running = Running::start(&ends.middle, &mut command)?;
    let pid = running.pid();
    await_thread(pid, "forwarder")?;
    // The socket drops unread datagrams; without it, each datagram would be answered by ICMP.
    let _sink = ends.server.run(|| UdpSocket::bind(("0.0.0.0", PORT)))??;
    let (is_over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let rate = f64::from(mbit) * 1e6;
    let counted = thread::scope(|scope| {
        let sending = scope.spawn(|| ends.client.run(|| offer(paths, rate, &is_over, &sent)));
        let counted = count(&ends.server, paths, pid, &sent);
        is_over.store(true, Ordering::Relaxed);
        sending.join().expect("the sender does not panic")??;
        counted
    });
    running.end()?;
    let summary: Value = serde_json::from_str(&fs::read_to_string(&report)?)?;
    fs::remove_file(&report)?;
    let links = summary["links"].as_array().context("no links")?;
    let p99 = links
        .iter()
        .filter_map(|link| link["departure_error"]["p99_ns"].as_f64());
    let Counted {
        rates,
        offered,
        packets,
        cpu_s,
        machine_s,
    } = counted?;
    Ok(Paths {
        errors: rates.iter().map(|of| 100.0 * (of / rate - 1.0)).collect(),
        p99_ms: p99.fold(0.0, f64::max) / 1e6,
        cpu_us: 1e6 * cpu_s / packets,
        machine_us: 1e6 * machine_s / packets,
        offered: 100.0 * offered / (rate * paths as f64),
        lost: own_loss_of_links(links) as f64,
    })
}

/// The traffic and the cost of [`COUNTED`].
struct Counted {
    /// The rate that the far interface of each path received, in bit/s.
    rates: Vec<f64>,
    /// The rate that was sent to all paths together, in bit/s.
    offered: f64,
    /// The packets of all paths.
    packets: f64,
    /// The processor seconds of the emulator.
    cpu_s: f64,
    /// The processor seconds of the whole machine.
    machine_s: f64,
}

/// Sends to all paths in turns until it is over, and counts the datagrams in `sent`.
fn offer(paths: usize, rate: f64, is_over: &AtomicBool, sent: &AtomicU64) -> Result<()> {
    let connect = |path| -> Result<UdpSocket> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect((address(path, 2), PORT))?;
        Ok(socket)
    };
    let sockets: Vec<UdpSocket> = (0..paths).map(connect).collect::<Result<_>>()?;
    let turn = Duration::from_secs_f64(FRAME as f64 * 8.0 / rate / 1.1);
    let mut next = Instant::now();
    while !is_over.load(Ordering::Relaxed) {
        for socket in &sockets {
            // A refused datagram is not offered.
            if socket.send(&[0; PAYLOAD]).is_ok() {
                sent.fetch_add(1, Ordering::Relaxed);
            }
        }
        next += turn;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

/// Measures what is sent, what the far interface of each path receives, and what that costs the emulator `pid` and the machine.
fn count(server: &NetNs, paths: usize, pid: u32, sent: &AtomicU64) -> Result<Counted> {
    thread::sleep(SETTLED);
    let cpu = || -> Result<[f64; 2]> {
        let emulator = processor_seconds(pid).context("the emulator has ended")?;
        Ok([emulator, of_machine()?])
    };
    let sent = || sent.load(Ordering::Relaxed);
    let (before, sent_before, cpu_before) = (received(server)?, sent(), cpu()?);
    let started = Instant::now();
    thread::sleep(COUNTED);
    let (after, sent_after, cpu_after) = (received(server)?, sent(), cpu()?);
    let took = started.elapsed().as_secs_f64();
    let bytes = |path: usize| -> Result<f64> {
        let name = format!("b{path}");
        let [before, after] = [&before, &after].map(|counts| counts.get(&name));
        Ok(after.context("no such interface")? - before.context("no such interface")?)
    };
    let bytes = (0..paths).map(bytes).collect::<Result<Vec<f64>>>()?;
    Ok(Counted {
        rates: bytes.iter().map(|bytes| bytes * 8.0 / took).collect(),
        offered: (sent_after - sent_before) as f64 * FRAME as f64 * 8.0 / took,
        packets: bytes.iter().sum::<f64>() / FRAME as f64,
        cpu_s: cpu_after[0] - cpu_before[0],
        machine_s: cpu_after[1] - cpu_before[1],
    })
}

/// Reads the bytes that each interface has received (proc(5), net/dev).
fn received(ns: &NetNs) -> Result<HashMap<String, f64>> {
    let text = ns.run(|| fs::read_to_string("/proc/thread-self/net/dev"))??;
    let counts = text.lines().filter_map(|line| {
        let (name, rest) = line.split_once(':')?;
        let bytes = rest.split_whitespace().next()?.parse().ok()?;
        Some((name.trim().to_owned(), bytes))
    });
    Ok(counts.collect())
}
