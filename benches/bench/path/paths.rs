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

use crate::path::links::{Ends, address, links_file};
use crate::processes::{FARWIRE, Running, await_thread};
use crate::report::rows::{Better, Found, Quantity, Row, Sample};
use crate::results::Outcome;
use crate::rounds::rounds;

/// The numbers of simultaneous paths.
const PATHS: [usize; 2] = [256, 512];
/// The rate of each path, in bit/s of L2 frames; a tenth more is offered.
const RATE: f64 = 3e6;
const PORT: u16 = 9;
const PAYLOAD: usize = 1472;
const FRAME: usize = PAYLOAD + 42;
const SETTLED: Duration = Duration::from_secs(3);
const COUNTED: Duration = Duration::from_secs(10);

/// A statistic of the errors of all paths.
type OfAll = fn(&[f64]) -> f64;

pub(crate) fn run() -> Result<Outcome> {
    let rounds = rounds(1)?;
    let mut outcome = Outcome::new(
        rounds,
        &format!(
            "{} and {} links of 3mbit in one emulator, each offered a tenth more in datagrams of {PAYLOAD} bytes: the bytes that the far interface of each received in {} s, beside its rate",
            PATHS[0],
            PATHS[1],
            COUNTED.as_secs()
        ),
    );
    let ends = Ends::build(PATHS[1], PATHS[1])?;
    for paths in PATHS {
        let round = |_| errors(&ends, paths);
        let found: Vec<Vec<f64>> = (0..rounds).map(round).collect::<Result<_>>()?;
        outcome.rows(rows(paths, &found));
    }
    Ok(outcome)
}

/// Makes the rows for this number of paths from the errors of all rounds.
fn rows(paths: usize, found: &[Vec<f64>]) -> Vec<Row> {
    let rows: [(&str, &str, OfAll); 3] = [
        ("slowest, error", "%", |all| {
            all.iter().copied().fold(f64::MAX, f64::min)
        }),
        ("fastest, error", "%", |all| {
            all.iter().copied().fold(f64::MIN, f64::max)
        }),
        ("beyond 1 %", "paths", |all| {
            all.iter().filter(|error| error.abs() > 1.0).count() as f64
        }),
    ];
    let row = |(what, unit, of): (&str, &str, OfAll)| {
        let found = Found {
            names: vec!["farwire".to_owned()],
            rounds: found
                .iter()
                .map(|all| vec![Sample::from(of(all))])
                .collect(),
        };
        let quantity = Quantity {
            better: Better::Neither,
            ..Quantity::less(&format!("{paths} paths of 3mbit: {what}"), unit)
        };
        found.alone(&quantity, 0)
    };
    rows.into_iter().filter_map(row).collect()
}

/// Measures the error of the rate of each path, in percent.
fn errors(ends: &Ends, paths: usize) -> Result<Vec<f64>> {
    let file = links_file(paths, "rate = \"3mbit\", queue = \"50pkt\"")?;
    let mut command = Command::new(FARWIRE);
    command.args(["emulate", "--links"]).arg(&file);
    let mut emulator = Running::start(&ends.middle, &mut command)?;
    await_thread(emulator.pid(), "forwarder")?;
    // The socket drops unread datagrams; without it, each datagram would be answered by ICMP.
    let _sink = ends.server.run(|| UdpSocket::bind(("0.0.0.0", PORT)))??;
    let is_over = AtomicBool::new(false);
    let counted = thread::scope(|scope| {
        let sending = scope.spawn(|| ends.client.run(|| offer(paths, &is_over)));
        let counted = count(&ends.server, paths);
        is_over.store(true, Ordering::Relaxed);
        sending.join().expect("the sender does not panic")??;
        counted
    });
    emulator.end()?;
    Ok(counted?
        .iter()
        .map(|rate| 100.0 * (rate / RATE - 1.0))
        .collect())
}

/// Sends to all paths in turns until it is over.
fn offer(paths: usize, is_over: &AtomicBool) -> Result<()> {
    let connect = |path| -> Result<UdpSocket> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect((address(path, 2), PORT))?;
        Ok(socket)
    };
    let sockets: Vec<UdpSocket> = (0..paths).map(connect).collect::<Result<_>>()?;
    let turn = Duration::from_secs_f64(FRAME as f64 * 8.0 / RATE / 1.1);
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
