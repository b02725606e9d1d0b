//! Many clients for long, some of which misbehave.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use serde_json::Value;

use test_support::far_end::FarEnd;
use test_support::is_soak;
use test_support::process::{self, farwire, stderr};
use test_support::raw::{self, state};
use test_support::usage::Usage;

const BEHAVED: u8 = 40;
const MISBEHAVING: u8 = 10;
/// The time after which every kind of client has used memory.
const WARM_UP: Duration = Duration::from_secs(60);
const REST: Duration = Duration::from_secs(60);
const REST_IN_FULL: Duration = Duration::from_secs(29 * 60);
/// The greatest permitted ratio of the memory at the end to that after the warm-up.
const GROWTH: f64 = 1.05;
/// A misbehaving client's rest between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// Tests of well-behaved clients: the service, its name in the log, the instrument's words, and which figure of the client
/// is which of the far end.
const KINDS: [Kind; 8] = [
    Kind::of("iperf3", "tcp", "tcp -t 2 -b 1M", RECEIVED),
    Kind::of("iperf3", "tcp", "tcp -t 2 -b 1M --reverse", RECEIVED),
    Kind::of("iperf3", "udp", "udp -t 2 -b 500K", RECEIVED),
    Kind::of("iperf3", "udp", "udp -t 2 -b 500K --reverse", SENT),
    Kind::of(
        "http",
        "http",
        "http",
        Some(("received_bytes", "sent_bytes")),
    ),
    Kind::of("messages", "pingpong", "pingpong --runs 1 -c 200", None),
    Kind::of(
        "stamp",
        "probe",
        "probe -c 100 -i 10ms",
        Some(("sent_packets", "sent_packets")),
    ),
    Kind::of("capacity", "capacity", "capacity -t 1s", None),
];
const RECEIVED: Option<(&str, &str)> = Some(("received_bytes", "received_bytes"));
/// Of datagrams that come when both ends have said what they counted, the receiver alone knows.
const SENT: Option<(&str, &str)> = Some(("sent_bytes", "sent_bytes"));

#[derive(Clone, Copy)]
struct Kind {
    service: &'static str,
    logged: &'static str,
    words: &'static str,
    figure: Option<(&'static str, &'static str)>,
}

#[test_support::test(serial, All)]
fn fifty_clients_ten_of_which_misbehave_leave_nothing_and_are_all_accounted_for() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let log = directory.path().join("log");
    let mut command = farwire();
    command.args(["serve", "--max-tests", "200", "--idle-timeout", "5s"]);
    let mut far_end = FarEnd::start(command.arg("--json").arg(&log))?;
    let before = Usage::of_idle_far_end(far_end.pid())?;
    let mut done = Tally::default();
    let rest = if is_soak() { REST_IN_FULL } else { REST };
    let mut resident = Vec::new();
    for (round, lasts) in [WARM_UP, rest].into_iter().enumerate() {
        let seed = u64::try_from(round)? * 1000;
        done.add(&all_at_once(&far_end, lasts, seed)?);
        resident.push(before.await_tidied(far_end.pid())?);
    }
    let growth = resident[1] as f64 / resident[0] as f64;
    ensure!(
        growth <= GROWTH,
        "{resident:?} KiB of memory after each round"
    );
    far_end.interrupt()?;
    done.check(&log)
}

impl Kind {
    const fn of(
        service: &'static str,
        logged: &'static str,
        words: &'static str,
        figure: Option<(&'static str, &'static str)>,
    ) -> Self {
        Self {
            service,
            logged,
            words,
            figure,
        }
    }

    /// That of the client with this number: one in forty tests capacity, which takes what there is.
    fn for_client(number: u8) -> Self {
        match number {
            0 => KINDS[7],
            _ => KINDS[usize::from(number) % 7],
        }
    }
}

/// The work that the clients of each address have completed.
#[derive(Default)]
struct Tally(BTreeMap<IpAddr, Completed>);

#[derive(Clone, Copy, Default, PartialEq, Debug)]
struct Completed {
    tests: u64,
    /// The sum of the figure that both ends know.
    counted: f64,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        for (address, completed) in &other.0 {
            let sum = self.0.entry(*address).or_default();
            sum.tests += completed.tests;
            sum.counted += completed.counted;
        }
    }

    /// Checks that the far end logged the same work of well-behaved clients as they saw.
    fn check(&self, log: &Path) -> Result<()> {
        let mut logged = Self::default();
        for line in fs::read_to_string(log)?.lines() {
            let entry: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
            let peer: SocketAddr = entry["peer"].as_str().context("peer")?.parse()?;
            let Some(number) = behaved(peer.ip()) else {
                continue;
            };
            let kind = Kind::for_client(number);
            let as_it_should = entry["failure"].is_null() && entry["test"] == kind.logged;
            ensure!(as_it_should, "a well-behaved client's test: {entry}");
            let sum = logged.0.entry(peer.ip()).or_default();
            sum.tests += 1;
            sum.counted += kind.figure.map_or(0.0, |(_, name)| total(&entry, name));
        }
        for (address, seen) in &self.0 {
            let logged = logged.0.get(address).copied().unwrap_or_default();
            ensure!(
                *seen == logged,
                "the client at {address} saw {seen:?}, the far end {logged:?}"
            );
        }
        Ok(())
    }
}

/// The sum of a figure over both directions, all streams together.
fn total(measured: &Value, metric: &str) -> f64 {
    let figures = measured["figures"].as_array().into_iter().flatten();
    let whole = figures.filter(|figure| {
        figure["metric"] == metric && figure["statistic"] == "total" && figure["stream"].is_null()
    });
    whole.filter_map(|figure| figure["value"].as_f64()).sum()
}

fn address_of(number: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 0, 1, number + 1))
}

fn behaved(address: IpAddr) -> Option<u8> {
    (0..BEHAVED).find(|number| address_of(*number) == address)
}

/// All clients until `lasts` is over; all well-behaved ones complete all that they have begun.
fn all_at_once(far_end: &FarEnd, lasts: Duration, seed: u64) -> Result<Tally> {
    let over = AtomicBool::new(false);
    let over = &over;
    thread::scope(|scope| {
        for number in 0..MISBEHAVING {
            let rng = Rng::with_seed(seed + u64::from(number));
            scope.spawn(move || misbehave(far_end, number, over, rng));
        }
        let clients: Vec<_> = (0..BEHAVED)
            .map(|number| scope.spawn(move || test_on(far_end, number, over)))
            .collect();
        let end = Instant::now() + lasts;
        while Instant::now() < end && !clients.iter().any(|client| client.is_finished()) {
            thread::sleep(PAUSE);
        }
        over.store(true, Ordering::Relaxed);
        let mut tally = Tally::default();
        for (number, client) in (0..).zip(clients) {
            let completed = client.join().expect("a client does not panic");
            let of = || Kind::for_client(number).words;
            tally
                .0
                .insert(address_of(number), completed.with_context(of)?);
        }
        Ok(tally)
    })
}

/// A well-behaved client: one test after the other.
fn test_on(far_end: &FarEnd, number: u8, over: &AtomicBool) -> Result<Completed> {
    let kind = Kind::for_client(number);
    let to = far_end.address(kind.service)?;
    let (bind, port) = (address_of(number).to_string(), to.port().to_string());
    let mut completed = Completed::default();
    while !over.load(Ordering::Relaxed) {
        let mut command = farwire();
        command.arg("measure").args(kind.words.split_whitespace());
        command.args(["--bind", &bind, "--json", "-"]);
        match kind.service {
            "http" => command.arg(format!("http://{to}/bytes/500000")),
            "messages" => command.arg(to.to_string()),
            _ => command.args(["127.0.0.1", "-p", &port]),
        };
        let output = process::run(&mut command)?;
        ensure!(
            output.status.success(),
            "after {} tests: {}",
            completed.tests,
            stderr(&output)
        );
        let measured: Value = serde_json::from_slice(&output.stdout)?;
        completed.tests += 1;
        completed.counted += kind.figure.map_or(0.0, |(name, _)| total(&measured, name));
    }
    Ok(completed)
}

/// A client that does the far end no good, again and again; what becomes of it is no matter.
fn misbehave(far_end: &FarEnd, number: u8, over: &AtomicBool, mut rng: Rng) {
    let from = IpAddr::V4(Ipv4Addr::new(127, 0, 2, number + 1));
    while !over.load(Ordering::Relaxed) {
        let _ = misbehave_once(far_end, number, from, over, &mut rng);
        thread::sleep(PAUSE);
    }
}

fn misbehave_once(
    far_end: &FarEnd,
    number: u8,
    from: IpAddr,
    over: &AtomicBool,
    rng: &mut Rng,
) -> Result<()> {
    let (http, iperf3) = (far_end.address("http")?, far_end.address("iperf3")?);
    let params: &[u8] = br#"{"tcp":true,"time":10}"#;
    match number {
        // Half-open: until the far end gives them up.
        0 => await_end(raw::iperf3(from, iperf3, rng.u64(..), params)?, over),
        1 => {
            let mut half = raw::connect(from, http)?;
            half.write_all(raw::HALF_HTTP)?;
            await_end(half, over);
        }
        2 => {
            let mut half = raw::connect(from, far_end.address("messages")?)?;
            half.write_all(raw::HALF_MESSAGES)?;
            await_end(half, over);
        }
        // Silent in the middle of a test.
        3 => await_end(begun(from, iperf3, rng.u64(..), params)?.0, over),
        4 => slow_reader(from, http, over)?,
        // Garbage.
        5 => {
            for service in ["http", "messages", "iperf3"] {
                let mut garbage = vec![0; rng.usize(1..5000)];
                rng.fill(&mut garbage);
                let mut client = raw::connect(from, far_end.address(service)?)?;
                client.write_all(&garbage)?;
            }
        }
        6 => {
            for service in ["capacity", "stamp", "iperf3"] {
                let mut garbage = vec![0; rng.usize(1..200)];
                rng.fill(&mut garbage);
                garbage[0] = [0xac, 0, b'9'][rng.usize(..3)];
                raw::datagrams(from, far_end.address(service)?)?.send(&garbage)?;
            }
        }
        // Hangs up while the far end sends.
        7 => {
            let params: &[u8] = br#"{"tcp":true,"reverse":true,"time":10,"bandwidth":1000000}"#;
            let (_control, mut stream) = begun(from, iperf3, rng.u64(..), params)?;
            let mut some = vec![0; rng.usize(1..50_000)];
            stream.read_exact(&mut some)?;
        }
        // Floods of set-ups.
        8 => {
            let socket = raw::datagrams(from, far_end.address("capacity")?)?;
            for _ in 0..50 {
                socket.send(&raw::capacity_setup(rng.u16(1..)))?;
            }
        }
        _ => {
            let flood: Result<Vec<_>> = (0..10)
                .map(|_| raw::iperf3(from, iperf3, rng.u64(..), params))
                .collect();
            drop(flood?);
        }
    }
    Ok(())
}

/// An iperf3 test that has begun: its control connection and its stream.
fn begun(
    from: IpAddr,
    to: SocketAddr,
    number: u64,
    params: &[u8],
) -> Result<(TcpStream, TcpStream)> {
    let mut control = raw::iperf3(from, to, number, params)?;
    let states: [u8; 2] = raw::read(&mut control)?;
    ensure!(
        states == [state::PARAM_EXCHANGE, state::CREATE_STREAMS],
        "{states:?}"
    );
    let mut stream = raw::connect(from, to)?;
    stream.write_all(&raw::cookie(number))?;
    let _: [u8; 2] = raw::read(&mut control)?;
    Ok((control, stream))
}

/// Reads now and then, until all is over or the far end closes.
fn await_end(mut connection: TcpStream, over: &AtomicBool) {
    let _ = connection.set_read_timeout(Some(PAUSE));
    while !over.load(Ordering::Relaxed) {
        match process::uninterrupted(|| connection.read(&mut [0; 64])) {
            Ok(1..) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            _ => return,
        }
    }
}

/// Takes 10 kB a second of a download that it hangs up on.
fn slow_reader(from: IpAddr, to: SocketAddr, over: &AtomicBool) -> Result<()> {
    let mut client = raw::connect(from, to)?;
    client.write_all(b"GET /bytes/100000000 HTTP/1.1\r\nHost: x\r\n\r\n")?;
    for _ in 0..50 {
        if over.load(Ordering::Relaxed) {
            break;
        }
        client.read_exact(&mut [0; 1000])?;
        thread::sleep(PAUSE);
    }
    Ok(())
}
