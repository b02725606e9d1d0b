//! A link under load, while four clients of its API send the most expensive requests that the limits allow.
//!
//! The load meets the same conditions all the time. The clients' changes take time to check and to put into force, but they concern
//! packets and times that never come. Blocks with the clients alternate with blocks without them, so that a slow drift of the machine
//! affects both alike. The departure errors come from the packet log.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::Ipv4Addr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use nix::sys::stat::Mode;
use nix::unistd::{geteuid, mkfifo};
use serde_json::{Value, json};

use test_support::api::{Exec, Listening};
use test_support::usage::heap_kib;
use test_support::{is_soak, process};

/// The durations of the test.
struct Extent {
    /// The duration of clients before anything is measured. In a soak it is long enough to fill the history that the link keeps.
    warm_up: Duration,
    /// The number of pairs of blocks: one without clients, then one with them.
    rounds: u32,
    /// The duration of a block without clients.
    alone: Duration,
    /// The duration of a block with them.
    together: Duration,
    /// The first part of each block, which is not measured, so that work left from the block before is done.
    settling: Duration,
}

impl Extent {
    /// Returns the durations of a soak, with 30 minutes of clients in 40 minutes; otherwise those of a few seconds.
    fn now() -> Self {
        match is_soak() {
            true => Self {
                warm_up: Duration::from_secs(300),
                rounds: 5,
                alone: Duration::from_secs(100),
                together: Duration::from_secs(300),
                settling: Duration::from_secs(10),
            },
            false => Self {
                warm_up: Duration::from_secs(1),
                rounds: 1,
                alone: Duration::from_secs(1),
                together: Duration::from_secs(3),
                settling: Duration::ZERO,
            },
        }
    }
}

/// The largest 99th percentile of the departure error with clients, as a multiple of that without them.
const MOST_TIMES: f64 = 1.5;

/// The largest mean of memory in the second half of a soak, as a multiple of that in the first half. Single readings vary by some
/// per cent.
const FLAT: f64 = 1.05;

/// The most memory that the process may keep for clients that have gone, in KiB. A link keeps up to 64 MiB of changes and events.
const MOST_KEPT_KIB: u64 = 256 << 10;

/// The conditions of the load. They do not change.
const LINK: &str = "--rate 200mbit --delay 10ms --queue 1000pkt";

/// The limit of lateness outside a soak. A busy machine may take the processors away for longer than the default of 10 ms. In a few
/// seconds nothing tells that from a request that held the link up, unless that takes much longer.
const SHORT_LATE_LIMIT: &str = "--late-limit 1s";

/// Sends datagrams both ways again and again, until the processes `$all` are ended.
const LOAD: &str = "\
    (while :; do PROGRAM measure udp -b 20mbit -t 20s $FARWIRE_SERVER > /dev/null 2>&1 || sleep 0.1; done) & all=$!; \
    (while :; do PROGRAM measure udp -b 20mbit -t 20s -R $FARWIRE_SERVER > /dev/null 2>&1 || sleep 0.1; done) & all=\"$all $!\"; \
    echo on";

/// A time long after the end of the test, in seconds.
const NEVER_S: usize = 86_000;

/// The largest body that the API reads, in bytes.
const LARGEST_BODY: usize = 64 << 10;

/// The number of captures that run simultaneously.
const CAPTURES: usize = 4;

/// The time between two readings. The 400 readings a second and the other requests are nearly the 500 that the API answers.
const READINGS: Duration = Duration::from_micros(2_500);

/// The most time that a client stays after its siege's end, until each of its kinds of requests was answered.
const LONGEST_OVERTIME: Duration = Duration::from_secs(60);

/// The pause of a client after an answer with status 429.
const PAUSE: Duration = Duration::from_millis(5);

#[test_support::test(serial, Namespaces)]
fn four_clients_with_expensive_requests_cost_no_packets_time_or_memory() -> Result<()> {
    let extent = Extent::now();
    let directory = tempfile::tempdir()?;
    let log = directory.path().join("packets");
    mkfifo(&log, Mode::S_IRUSR | Mode::S_IWUSR)?;
    let departures = Departures::follow(log.clone());
    let late_limit = if is_soak() { "" } else { SHORT_LATE_LIMIT };
    let mut exec = Exec::start(&format!(
        "{LINK} {late_limit} --packet-log {}",
        log.display()
    ))?;
    let load = LOAD.replace("PROGRAM", process::program());
    ensure!(exec.shell(&load)? == "on", "no load");
    process::wait_for("the load to cross the link", || {
        let counted = counters(&exec)?;
        let is_there = |way: &str| counted[way]["delivered"].as_u64() > Some(1_000);
        Ok((is_there("up") && is_there("down")).then_some(()))
    })?;

    let at_first = heap_kib(exec.pid())?;
    let mut answers = besiege(&exec, extent.warm_up)?;
    let (mut alone, mut together, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..extent.rounds {
        alone.push(measured(&extent, || {
            rest(&exec, extent.alone, &mut memory)
        })?);
        together.push(measured(&extent, || {
            answers.add(besiege(&exec, extent.together)?);
            Ok(())
        })?);
    }
    rest(&exec, extent.alone, &mut memory)?;

    ensure!(exec.shell("kill $all; echo off")? == "off", "no end");
    let counted = counters(&exec)?;
    exec.end()?;
    let departures = departures.join().expect("a reader does not panic")?;
    // All are printed before one is judged: a soak takes long.
    let checks = [
        answers.check(),
        check_memory(at_first, &memory),
        departures.check(&alone, &together),
        check_losses(&counted),
    ];
    checks.into_iter().collect()
}

/// Runs `block`, and returns the whole seconds since 1970 that are measured.
fn measured(extent: &Extent, block: impl FnOnce() -> Result<()>) -> Result<Range<u64>> {
    let begun = UNIX_EPOCH.elapsed()? + extent.settling;
    block()?;
    Ok(begun.as_secs() + 1..UNIX_EPOCH.elapsed()?.as_secs())
}

/// Waits without clients, then notes the memory of the process.
fn rest(exec: &Exec, lasts: Duration, memory: &mut Vec<u64>) -> Result<()> {
    thread::sleep(lasts);
    memory.push(heap_kib(exec.pid())?);
    Ok(())
}

fn counters(live: &Listening) -> Result<Value> {
    let answer = live.get("/v1/links/link/counters")?;
    ensure!(answer.status == 200, "{answer:?}");
    Ok(answer.body)
}

/// Fails if the emulator itself lost a packet.
fn check_losses(counted: &Value) -> Result<()> {
    for way in ["up", "down"] {
        let lost = counted[way]["emulator_lost"].as_object();
        let lost = lost.context("no losses are counted")?;
        println!(
            "{way}: {} delivered, lost by the emulator itself: {lost:?}",
            counted[way]["delivered"]
        );
        let all: u64 = lost.values().filter_map(Value::as_u64).sum();
        ensure!(
            all == 0,
            "{way}: the emulator itself lost {all} packets: {lost:?}"
        );
    }
    Ok(())
}

/// Fails if the process kept too much memory for clients that had left, or if memory grew during a soak.
fn check_memory(at_first: u64, memory: &[u64]) -> Result<()> {
    println!(
        "memory: {at_first} KiB before the first client, then {memory:?} KiB whenever none was there"
    );
    let most = memory.iter().copied().max().unwrap_or_default();
    ensure!(
        most <= at_first + MOST_KEPT_KIB,
        "{at_first} KiB became {most} KiB"
    );
    let (early, late) = memory.split_at(memory.len() / 2);
    let [early, late] =
        [early, late].map(|half| half.iter().sum::<u64>() as f64 / half.len() as f64);
    ensure!(
        !is_soak() || late <= early * FLAT,
        "memory grew from {early:.0} to {late:.0} KiB on average"
    );
    Ok(())
}

/// The departure errors of packets in nanoseconds, by the second since 1970 in which each was due.
#[derive(Default)]
struct Departures {
    by_second: BTreeMap<u64, Histogram<u64>>,
    /// Packets in the log, and those whose numbers show that they are missing from it.
    logged: u64,
    missing: u64,
}

impl Departures {
    /// Reads the packet log from a FIFO, on a thread, until its writer closes it.
    fn follow(log: PathBuf) -> JoinHandle<Result<Self>> {
        thread::spawn(move || Self::read(&log))
    }

    fn read(log: &Path) -> Result<Self> {
        let mut log = BufReader::with_capacity(1 << 20, File::open(log)?);
        let mut departures = Self::default();
        let mut line = String::new();
        // The first line names the columns.
        log.read_line(&mut line)?;
        loop {
            line.clear();
            if log.read_line(&mut line)? == 0 {
                return Ok(departures);
            }
            departures.take(&line).with_context(|| line.clone())?;
        }
    }

    /// Takes a row: number, direction, bytes, arrival, verdict, changes, due, departure and the flow.
    fn take(&mut self, row: &str) -> Result<()> {
        let columns: Vec<&str> = row.split(',').collect();
        let number: u64 = columns[0].parse()?;
        self.logged += 1;
        self.missing = (number + 1).saturating_sub(self.logged);
        let (Some(due), Some(departure)) = (columns.get(6), columns.get(7)) else {
            return Ok(());
        };
        // A packet that was dropped has no departure.
        let (Ok(due), Ok(departure)) = (due.parse::<u64>(), departure.parse::<u64>()) else {
            return Ok(());
        };
        let second = Duration::from_nanos(due).as_secs();
        let histogram = match self.by_second.get_mut(&second) {
            Some(histogram) => histogram,
            None => self.by_second.entry(second).or_insert(histogram()?),
        };
        histogram.record(departure.saturating_sub(due))?;
        Ok(())
    }

    /// Returns the errors of all blocks together.
    fn within(&self, blocks: &[Range<u64>]) -> Result<Histogram<u64>> {
        let mut all = histogram()?;
        for block in blocks {
            for of_second in self.by_second.range(block.clone()) {
                all.add(of_second.1)?;
            }
        }
        Ok(all)
    }

    /// Prints the departure errors of every block. Fails if they grew with the clients, in a soak as root: only root has the real-time
    /// priority that keeps the clients' work away from the packets.
    fn check(&self, alone: &[Range<u64>], together: &[Range<u64>]) -> Result<()> {
        println!(
            "packet log: {} packets, {} missing",
            self.logged, self.missing
        );
        for (kind, blocks) in [("without clients", alone), ("with clients", together)] {
            for block in blocks {
                let own = self.within(std::slice::from_ref(block))?;
                println!("{kind}: {}", in_words(&own));
            }
        }
        let [without, with] = [self.within(alone)?, self.within(together)?];
        let times = p99(&with) / p99(&without).max(1.0);
        println!("all without clients: {}", in_words(&without));
        println!(
            "all with clients: {}; p99 is {times:.2} times as long",
            in_words(&with)
        );
        let is_judged = is_soak() && geteuid().is_root();
        ensure!(
            !is_judged || times <= MOST_TIMES,
            "with clients p99 is {times:.2} times as long: at most {MOST_TIMES} is allowed"
        );
        Ok(())
    }
}

/// Returns an empty histogram with a precision of 1 %.
fn histogram() -> Result<Histogram<u64>> {
    let mut histogram = Histogram::new(2)?;
    histogram.auto(true);
    Ok(histogram)
}

fn p99(errors: &Histogram<u64>) -> f64 {
    errors.value_at_quantile(0.99) as f64
}

fn in_words(errors: &Histogram<u64>) -> String {
    let us = |ns: u64| ns as f64 / 1e3;
    format!(
        "departure error of {} packets: median {:.1} us, p99 {:.1} us, max {:.1} us",
        errors.len(),
        us(errors.value_at_quantile(0.5)),
        us(errors.value_at_quantile(0.99)),
        us(errors.max())
    )
}

/// The number of answers by kind of request and status.
#[derive(Default)]
struct Answers(BTreeMap<(&'static str, u16), u64>);

impl Answers {
    fn note(&mut self, kind: &'static str, status: u16) {
        *self.0.entry((kind, status)).or_default() += 1;
        if status == 429 {
            thread::sleep(PAUSE);
        }
    }

    fn add(&mut self, other: Self) {
        for (key, count) in other.0 {
            *self.0.entry(key).or_default() += count;
        }
    }

    /// Returns whether a request of this kind was answered.
    fn have(&self, kind: &'static str) -> bool {
        self.0.contains_key(&(kind, 200))
    }

    /// Fails if a kind of request was never answered, or if an answer says that the server failed.
    fn check(&self) -> Result<()> {
        println!("answers: {:?}", self.0);
        for kind in [
            "change of steps",
            "change of rules",
            "change of stages",
            "dry run",
            "history",
            "reading",
            "events",
            "capture",
        ] {
            ensure!(self.have(kind), "no {kind} was answered: {:?}", self.0);
        }
        // 429: one capture or request too many. 503: a change took too long. 422: a history that no file can express, or a change while
        // too many stages are leaving.
        let allowed = [200, 422, 429, 503];
        let other = self.0.keys().find(|(_, status)| !allowed.contains(status));
        ensure!(other.is_none(), "{other:?}: {:?}", self.0);
        Ok(())
    }
}

/// The time in which the clients send requests.
struct Siege {
    begun: Instant,
    lasts: Duration,
}

impl Siege {
    /// Returns whether its time is over.
    fn is_past(&self) -> bool {
        self.begun.elapsed() >= self.lasts
    }

    /// Returns whether a client may leave: the time is over, and each of its kinds of requests was answered. On a slow machine a client
    /// stays longer for that, but not for ever.
    fn is_over(&self, answers: &Answers, kinds: &[&'static str]) -> bool {
        self.is_past()
            && (kinds.iter().all(|kind| answers.have(kind))
                || self.begun.elapsed() >= self.lasts + LONGEST_OVERTIME)
    }
}

/// Runs four clients for some time, and then restores the conditions of the load.
fn besiege(live: &Listening, lasts: Duration) -> Result<Answers> {
    let begun = Instant::now();
    let siege = &Siege { begun, lasts };
    let answers = thread::scope(|scope| {
        let mut clients = vec![
            scope.spawn(move || change(live, siege)),
            scope.spawn(move || compute(live, siege)),
            scope.spawn(move || read(live, siege)),
            scope.spawn(move || follow(live, "events", "/v1/links/link/events", siege)),
        ];
        clients.extend((0..CAPTURES).map(|_| {
            let path = format!(
                "/v1/links/link/capture?for=3600s&max_bytes=1073741824&filter={}",
                longest_filter()
            );
            scope.spawn(move || follow(live, "capture", &path, siege))
        }));
        let mut all = Answers::default();
        for client in clients {
            all.add(client.join().expect("a client does not panic")?);
        }
        anyhow::Ok(all)
    });
    process::wait_for("the conditions of the start", || {
        let status = put(live, "", &conditions(json!({})))?;
        Ok((status == 200).then_some(()))
    })?;
    answers
}

/// The first client changes the link, as fast as the API answers.
fn change(live: &Listening, siege: &Siege) -> Result<Answers> {
    let mut answers = Answers::default();
    let bodies = [
        ("change of steps", with_steps()),
        ("change of rules", with_classes()),
        ("change of stages", with_stages("0.0001%")),
    ];
    let kinds = bodies.each_ref().map(|(kind, _)| *kind);
    for (kind, body) in bodies.iter().cycle() {
        if siege.is_over(&answers, &kinds) {
            break;
        }
        answers.note(kind, put(live, "", body)?);
    }
    Ok(answers)
}

/// The second client requests computations: the meaning of conditions, and the history, also as files.
fn compute(live: &Listening, siege: &Siege) -> Result<Answers> {
    let mut answers = Answers::default();
    let longest = with_stages("100%");
    let histories = ["", "/link", "/scenario"].map(|form| format!("/v1/links/link/history{form}"));
    while !siege.is_over(&answers, &["dry run", "history"]) {
        answers.note("dry run", put(live, "?dry_run=1", &longest)?);
        for path in &histories {
            answers.note("history", get(live, path)?);
        }
    }
    Ok(answers)
}

/// The third client reads the counters, which the forwarder provides.
fn read(live: &Listening, siege: &Siege) -> Result<Answers> {
    let mut answers = Answers::default();
    let paths = ["/metrics", "/v1/links/link/counters"];
    let mut due = Instant::now();
    for path in paths.iter().cycle() {
        if siege.is_over(&answers, &["reading"]) {
            break;
        }
        answers.note("reading", get(live, path)?);
        due += READINGS;
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    Ok(answers)
}

/// The fourth client reads the endless streams, captures and events, as fast as they arrive. It repeats its request when a stream ends.
fn follow(live: &Listening, kind: &'static str, path: &str, siege: &Siege) -> Result<Answers> {
    let mut answers = Answers::default();
    while !siege.is_over(&answers, &[kind]) {
        let mut stream = live.connect()?;
        let host = live.at;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        )?;
        let mut bytes = vec![0; 256 << 10];
        let first = process::uninterrupted(|| stream.read(&mut bytes))?;
        answers.note(kind, status(&bytes[..first])?);
        // The API disconnects a client that reads too slowly.
        while !siege.is_past() && stream.read(&mut bytes).is_ok_and(|read| read > 0) {}
    }
    Ok(answers)
}

/// Puts conditions into force, or with `?dry_run=1` requests their meaning.
fn put(live: &Listening, query: &str, body: &str) -> Result<u16> {
    let (host, length) = (live.at, body.len());
    let head = format!(
        "PUT /v1/links/link{query} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {length}"
    );
    exchange(live, &head, body)
}

fn get(live: &Listening, path: &str) -> Result<u16> {
    let host = live.at;
    exchange(live, &format!("GET {path} HTTP/1.1\r\nHost: {host}"), "")
}

/// Sends a request and reads the answer to its end. Returns its status.
fn exchange(live: &Listening, head: &str, body: &str) -> Result<u16> {
    let mut stream = live.connect()?;
    stream.write_all(format!("{head}\r\nConnection: close\r\n\r\n{body}").as_bytes())?;
    let mut bytes = vec![0; 64 << 10];
    let mut first = None;
    loop {
        let read = process::uninterrupted(|| stream.read(&mut bytes))?;
        if read == 0 {
            return first.context("no answer");
        }
        if first.is_none() {
            first = Some(status(&bytes[..read])?);
        }
    }
}

/// Returns the status in the first bytes of an answer, which arrive together.
fn status(answer: &[u8]) -> Result<u16> {
    let text = String::from_utf8_lossy(answer.get(..12).unwrap_or(answer));
    let status = text.split(' ').nth(1).and_then(|word| word.parse().ok());
    status.with_context(|| format!("no status: {text:?}"))
}

/// Returns the conditions of the load together with `others`, as JSON.
fn conditions(others: Value) -> String {
    let mut all = json!({"rate": "200mbit", "delay": "10ms", "queue": "1000pkt"});
    if let (Some(all), Value::Object(others)) = (all.as_object_mut(), others) {
        all.extend(others);
    }
    let text = all.to_string();
    assert!(text.len() <= LARGEST_BODY, "{} bytes", text.len());
    text
}

/// Returns steps of a schedule that change the loss, each at another time.
fn steps(count: usize) -> Vec<Value> {
    let step = |number| {
        let loss = ["1%", "2%"][number % 2];
        json!({"at": format!("{}s", NEVER_S + number), "loss": loss})
    };
    (0..count).map(step).collect()
}

/// Returns conditions with as many steps as fit into a body.
fn with_steps() -> String {
    conditions(json!({"schedule": steps(2_200)}))
}

/// Returns conditions with nearly as many classes, stages, flow queues and steps as a link may have. Each step counts once for every class
/// and direction. No packet of the load belongs to these classes.
fn with_classes() -> String {
    let class = |number: u16| {
        let (name, port) = (format!("c{number}"), 20_000 + number);
        json!({"name": name, "protocol": "udp", "port": port, "delay": "1ms", "loss": "3%"})
    };
    // Each has four own stages: delay and loss, up and down.
    let mut classes: Vec<Value> = (0..61).map(class).collect();
    classes.push(json!({
        "name": "fair", "protocol": "udp", "port": 21_000,
        "rate": "1mbit", "queue": "10pkt", "aqm": "fq_codel,flows=65535",
    }));
    conditions(json!({"rules": classes, "schedule": steps(260)}))
}

/// Returns conditions with as many stages as a path may have, and as many steps as fit. Four stages copy `share` of the packets.
fn with_stages(share: &str) -> String {
    let stage = |number: u16| match number {
        0..4 => json!({"kind": "duplicate", "name": format!("d{number}"), "duplicate": share}),
        _ => json!({"kind": "loss", "name": format!("l{number}"), "loss": "0.0000001%"}),
    };
    let stages: Vec<Value> = (0..29).map(stage).collect();
    conditions(json!({"stages": stages, "schedule": steps(2_100)}))
}

/// Returns a filter with as many conditions as a filter may have. Every packet of the load meets all of them, because each is a prefix that
/// contains both ends.
fn longest_filter() -> String {
    let prefix = |length: u32| {
        let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
        let net = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 77, 0, 1)) & mask);
        format!("net+{net}/{length}")
    };
    let prefixes: Vec<String> = (0..=30).map(prefix).collect();
    format!("ip+and+{}", prefixes.join("+and+"))
}
