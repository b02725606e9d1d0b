//! Many slow paths simultaneously: the error of each rate when all paths are full.

use std::collections::HashMap;
use std::fs;
use std::net::UdpSocket;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use netio::netns::NetNs;
use serde_json::Value;

use crate::path::links::{Ends, address, links_file};
use crate::processes::{FARWIRE, Running, await_thread};
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
/// The options that are compared.
const THREADS: [&str; 2] = ["auto", "1"];
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
}

pub(crate) fn run() -> Result<Outcome> {
    let rounds = rounds(1)?;
    let mut outcome = Outcome::new(
        rounds,
        &format!(
            "many links with a rate in one emulator, each offered a tenth more in datagrams of {PAYLOAD} bytes: the bytes that the far interface of each received in {} s, beside its rate, and \
             the departure errors that the summaries state; with --threads auto beside one thread",
            COUNTED.as_secs()
        ),
    );
    let ends = Ends::build(MOST_PATHS, MOST_PATHS)?;
    for case in CASES {
        let found = shuffled(rounds, &THREADS, |threads| measure(&ends, case, threads))?;
        outcome.rows(rows(case, &found));
    }
    Ok(outcome)
}

/// Makes the rows of a case from the results of all rounds.
fn rows(case: Case, found: &[Vec<Paths>]) -> Vec<Row> {
    type Value = fn(&Paths) -> f64;
    let rows: [(&str, &str, Value); 4] = [
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
    ];
    let row = |(what, unit, value): (&str, &str, Value)| {
        let samples = |round: &Vec<Paths>| round.iter().map(|of| Sample::from(value(of))).collect();
        let found = Found {
            names: vec!["farwire --threads auto".to_owned(), "one thread".to_owned()],
            rounds: found.iter().map(samples).collect(),
        };
        let Case { paths, mbit } = case;
        let quantity = Quantity {
            better: Better::Neither,
            ..Quantity::less(&format!("{paths} paths of {mbit}mbit: {what}"), unit)
        };
        found.row(&quantity, 0, 1, "one thread")
    };
    rows.into_iter().filter_map(row).collect()
}

/// Measures all paths of a case with this value of `--threads`.
fn measure(ends: &Ends, case: Case, threads: &str) -> Result<Paths> {
    let Case { paths, mbit } = case;
    let conditions = format!("rate = \"{mbit}mbit\", queue = \"50pkt\"");
    let file = links_file(0..paths, &conditions)?;
    let report = scratch("paths.json")?;
    let mut command = Command::new(FARWIRE);
    command.args(["emulate", "--links"]).arg(&file);
    command.args(["--threads", threads, "--json"]).arg(&report);
    let mut emulator = Running::start(&ends.middle, &mut command)?;
    await_thread(emulator.pid(), "forwarder")?;
    // The socket drops unread datagrams; without it, each datagram would be answered by ICMP.
    let _sink = ends.server.run(|| UdpSocket::bind(("0.0.0.0", PORT)))??;
    let is_over = AtomicBool::new(false);
    let rate = f64::from(mbit) * 1e6;
    let counted = thread::scope(|scope| {
        let sending = scope.spawn(|| ends.client.run(|| offer(paths, rate, &is_over)));
        let counted = count(&ends.server, paths);
        is_over.store(true, Ordering::Relaxed);
        sending.join().expect("the sender does not panic")??;
        counted
    });
    emulator.end()?;
    let summary: Value = serde_json::from_str(&fs::read_to_string(&report)?)?;
    fs::remove_file(&report)?;
    let links = summary["links"].as_array().context("no links")?;
    let p99 = links
        .iter()
        .filter_map(|link| link["departure_error"]["p99_ns"].as_f64());
    Ok(Paths {
        errors: counted?
            .iter()
            .map(|of| 100.0 * (of / rate - 1.0))
            .collect(),
        p99_ms: p99.fold(0.0, f64::max) / 1e6,
    })
}

/// Sends to all paths in turns until it is over.
fn offer(paths: usize, rate: f64, is_over: &AtomicBool) -> Result<()> {
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
            let _ = socket.send(&[0; PAYLOAD]);
        }
        next += turn;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

/// Measures the rate that the far interface of each path receives, in bit/s.
fn count(server: &NetNs, paths: usize) -> Result<Vec<f64>> {
    thread::sleep(SETTLED);
    let (before, started) = (received(server)?, Instant::now());
    thread::sleep(COUNTED);
    let (after, took) = (received(server)?, started.elapsed().as_secs_f64());
    let rate = |path: usize| {
        let name = format!("b{path}");
        let [before, after] = [&before, &after].map(|counts| counts.get(&name));
        let bytes = after.context("no such interface")? - before.context("no such interface")?;
        Ok(bytes * 8.0 / took)
    };
    (0..paths).map(rate).collect()
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
