//! A long day in short: traffic, a change each second, readers that keep up and readers that stall.

use std::fs;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::socket::{setsockopt, sockopt};
use serde_json::Value;

use test_support::api::{Exec, Listening};
use test_support::is_soak;
use test_support::process;
use test_support::usage::heap_kib;

/// The size of the soak.
struct Extent {
    /// The number of readers of events that keep up, and of those that do not.
    readers: usize,
    stalled: usize,
    /// The duration of the changes, and the time after which memory must not grow.
    lasts: Duration,
    warm_up: Duration,
}

impl Extent {
    /// Returns half an hour in a soak; otherwise little more than the time for the thousand changes.
    fn now() -> Self {
        match is_soak() {
            true => Self {
                readers: 40,
                stalled: 10,
                lasts: Duration::from_secs(30 * 60),
                warm_up: Duration::from_secs(60),
            },
            false => Self {
                readers: 10,
                stalled: 4,
                lasts: Duration::from_secs(30),
                warm_up: Duration::from_secs(10),
            },
        }
    }
}

/// The bytes that the buffers of a stalled reader's connection may hold when it is disconnected.
const MOST_BUFFERED: usize = 8 << 20;

/// The number of changes that a link keeps, after which its history grows no further.
const KEPT: usize = 1_000;

/// The factor by which memory may exceed its first value later.
const FLAT: f64 = 1.05;

/// Repeated downloads, datagrams, and echoes, until `$all` are ended; each then ends within seconds.
const TRAFFIC: &str = "\
    (while :; do wget -qO /dev/null http://$FARWIRE_SERVER/seconds/5 || sleep 1; done) & all=$!; \
    (while :; do PROGRAM measure udp -b 1mbit -t 5s $FARWIRE_SERVER > /dev/null 2>&1 || sleep 1; done) & all=\"$all $!\"; \
    (while :; do ping -q -n -i 0.05 -c 100 $FARWIRE_SERVER > /dev/null; done) & all=\"$all $!\"; \
    echo on";

#[test_support::test(Namespaces, Tool("wget"), Tool("ping"))]
fn a_change_a_second_and_readers_that_stall_leave_memory_flat_and_counters_that_add_up()
-> Result<()> {
    let extent = Extent::now();
    let mut farwire = process::farwire();
    // Use one heap, so that freed memory is reused.
    farwire.env("MALLOC_ARENA_MAX", "1");
    let mut exec = Exec::start_as(&mut farwire, "--rate 20mbit --delay 5ms --queue 100pkt")?;
    let traffic = TRAFFIC.replace("PROGRAM", process::program());
    ensure!(exec.shell(&traffic)? == "on", "no traffic");
    let over = AtomicBool::new(false);
    let (read, cut) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let live: &Listening = &exec;
    let outcome = thread::scope(|scope| {
        let reading = (0..extent.readers).map(|_| scope.spawn(|| keep_up(live, &over, &read)));
        let reading: Vec<_> = reading.collect();
        let stalling = (0..extent.stalled).map(|_| scope.spawn(|| stall(live, &over, &cut)));
        let stalling: Vec<_> = stalling.collect();
        let changed = change(live, &extent);
        over.store(true, Ordering::Relaxed);
        for reader in reading.into_iter().chain(stalling) {
            reader.join().expect("a reader does not panic")?;
        }
        changed
    });
    let changes = outcome?;
    let link = exec.link()?;
    ensure!(link["revision"] == changes + 1, "{changes} changes: {link}");
    let (read, cut) = (read.into_inner(), cut.into_inner());
    ensure!(
        cut >= extent.stalled,
        "of {} that stalled {cut} were cut off",
        extent.stalled
    );
    // There would be ten samples a second without other load.
    let least = extent.readers * usize::try_from(extent.lasts.as_secs())?;
    ensure!(read >= least, "the readers had {read} events");
    ensure!(exec.shell("kill $all; echo off")? == "off", "no end");
    adds_up(&exec)?;
    on_time(&exec)?;
    exec.end()
}

/// Prints how late packets left. In a soak as root, with real-time priority, at most one in twenty may be later than the budget, and the
/// emulator itself must have lost none.
fn on_time(exec: &Exec) -> Result<()> {
    let metrics = exec.get("/metrics?link=*")?.text;
    let value = |name: &str| -> Result<f64> {
        let name = format!("farwire_{name}{{link=\"link\"}} ");
        let mut values = metrics.lines().filter_map(|line| line.strip_prefix(&name));
        Ok(values.next().with_context(|| name.clone())?.parse()?)
    };
    let (count, late) = (
        value("departure_error_seconds_count")?,
        value("late_packets_total")?,
    );
    let mean_us = value("departure_error_seconds_sum")? / count * 1e6;
    println!("departures: {count}, {mean_us:.1} us late on average, {late} more than the budget");
    let is_judged = is_soak() && nix::unistd::geteuid().is_root();
    ensure!(
        !is_judged || value("run_valid")? == 1.0,
        "{late} of {count} were late"
    );
    Ok(())
}

/// Changes the link a thousand times, then every second, and returns the number of changes. It compares the median memory of the first
/// and the last third of the time: memory that is needed for a moment is freed, leaked memory is not.
fn change(live: &Listening, extent: &Extent) -> Result<u64> {
    let begun = Instant::now();
    let mut changes = 0;
    let mut change = || -> Result<()> {
        changes += 1;
        let (delay, loss) = (1 + changes % 40, changes % 3);
        let patch = format!(r#"{{"delay": "{delay}ms", "down": {{"loss": "{loss}%"}}}}"#);
        let answer = live.patch("", &patch)?;
        ensure!(answer.status == 200, "{answer:?}");
        Ok(())
    };
    for _ in 0..KEPT {
        change()?;
    }
    let from = begun.elapsed().max(extent.warm_up);
    let third = (extent.lasts - extent.warm_up) / 3;
    let mut heap = [const { Vec::new() }; 3];
    while begun.elapsed() < from + 3 * third {
        change()?;
        if let Some(passed) = begun.elapsed().checked_sub(from) {
            let of = passed.as_nanos() / third.as_nanos();
            heap[usize::try_from(of)?.min(2)].push(heap_kib(live.pid())?);
        }
        thread::sleep(Duration::from_secs(1));
    }
    let [first, _, last] = heap.map(|mut kib| {
        kib.sort_unstable();
        kib.get(kib.len() / 2).copied().unwrap_or_default()
    });
    println!("memory: {first} KiB at first, {last} KiB at last, {changes} changes");
    ensure!(
        first > 0 && last as f64 <= first as f64 * FLAT,
        "memory grew from {first} to {last} KiB"
    );
    Ok(changes)
}

/// Follows events until everything is over, and misses none; a disconnected reader returns with the number of its last event.
fn keep_up(live: &Listening, over: &AtomicBool, read: &AtomicUsize) -> Result<()> {
    let mut last: Option<u64> = None;
    while !over.load(Ordering::Relaxed) {
        let lines = BufReader::new(follow(live, last, None)?).lines();
        for line in lines.map_while(Result::ok) {
            let Some(id) = line.strip_prefix("id: ") else {
                continue;
            };
            let id = id.parse()?;
            if let Some(last) = last {
                ensure!(id == last + 1, "after event {last} came {id}");
            }
            last = Some(id);
            read.fetch_add(1, Ordering::Relaxed);
            if over.load(Ordering::Relaxed) {
                break;
            }
        }
    }
    Ok(())
}

/// Asks for events and leaves them unread until the server has closed the connection; then reads to their end.
fn stall(live: &Listening, over: &AtomicBool, cut: &AtomicUsize) -> Result<()> {
    while !over.load(Ordering::Relaxed) {
        let mut stream = follow(live, None, Some(4096))?;
        let port = stream.local_addr()?.port();
        process::wait_for("a reader that stalls to be cut off", || {
            Ok((!is_established(live.at.port(), port)?).then_some(()))
        })?;
        let mut buffered = vec![0; MOST_BUFFERED];
        let mut bytes = 0;
        loop {
            match process::uninterrupted(|| stream.read(&mut buffered[bytes..])) {
                Ok(0) => break,
                Ok(more) => bytes += more,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => bail!("{bytes} bytes, then {error}"),
            }
        }
        cut.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Returns whether the server's end of a connection on this host's loopback is open (proc_net_tcp(5): state 1).
fn is_established(server: u16, client: u16) -> Result<bool> {
    let ends = format!("0100007F:{server:04X} 0100007F:{client:04X} 01");
    let all = fs::read_to_string("/proc/net/tcp")?;
    Ok(all.lines().any(|line| line.contains(&ends)))
}

/// Opens a connection to the events after `last`, with a receive buffer of `bytes`.
fn follow(live: &Listening, last: Option<u64>, bytes: Option<usize>) -> Result<TcpStream> {
    let mut stream = live.connect()?;
    if let Some(bytes) = bytes {
        setsockopt(&stream, sockopt::RcvBuf, &bytes)?;
    }
    let last = last.map(|id| format!("Last-Event-ID: {id}\r\n"));
    let last = last.unwrap_or_default();
    let host = live.at;
    write!(
        stream,
        "GET /v1/links/link/events HTTP/1.1\r\nHost: {host}\r\n{last}\r\n"
    )?;
    Ok(stream)
}

/// Checks that every packet has left, or was dropped or lost, so that none is still on its way.
fn adds_up(exec: &Exec) -> Result<()> {
    let counted = process::wait_for("nothing to be on its way", || {
        let counted = exec.get("/v1/links/link/counters")?.body;
        let is_over = ["up", "down"].map(|way| counted[way]["in_flight"] == 0);
        Ok((is_over == [true, true]).then_some(counted))
    })?;
    let mut lost = 0;
    for way in ["up", "down"] {
        let way = &counted[way];
        let number = |name: &str| way[name].as_u64().with_context(|| way.to_string());
        let sum = |name: &str| -> Result<u64> {
            let causes = way[name].as_object().context("causes")?.values();
            Ok(causes.filter_map(Value::as_u64).sum())
        };
        let unsent = way["emulator_lost"]["send failed"].as_u64().unwrap_or(0);
        let came = number("packets")? + number("copies")?;
        let ended = number("delivered")? + sum("dropped")? + unsent;
        ensure!(came == ended, "{came} came, {ended} ended: {way}");
        ensure!(came > 1_000, "{came} came, {ended} ended: {way}");
        lost += way["dropped"]["loss"].as_u64().unwrap_or(0);
    }
    ensure!(lost > 0, "no packet met the loss: {counted}");
    Ok(())
}

#[test_support::test(Soak, Namespaces, Tool("curl"))]
fn a_lease_of_a_connection_reverts_within_a_second_of_its_clients_sigkill_20_of_20() -> Result<()> {
    let exec = Exec::start("--delay 5ms")?;
    let url = format!("http://{}/v1/links/link?for=connection", exec.at);
    for number in 1..=20 {
        let mut client = std::process::Command::new("curl")
            .args([
                "--silent",
                "--no-buffer",
                "-X",
                "PATCH",
                "-d",
                r#"{"loss": "100%"}"#,
            ])
            .args(["-H", "Content-Type: application/merge-patch+json", &url])
            .stdout(std::process::Stdio::piped())
            .spawn()?;
        let mut answer = String::new();
        let stdout = client.stdout.take().context("its output")?;
        BufReader::new(stdout).read_line(&mut answer)?;
        let link = exec.link()?;
        ensure!(
            link["conditions"]["loss"] == "100%",
            "{number}: {answer}{link}"
        );
        client.kill()?;
        let killed = Instant::now();
        client.wait()?;
        process::wait_for("the link to revert", || {
            let link = exec.link()?;
            let is_back = link["lease"].is_null() && link["conditions"]["loss"].is_null();
            Ok(is_back.then_some(()))
        })?;
        let took = killed.elapsed();
        ensure!(took < Duration::from_secs(1), "{number}: it took {took:?}");
    }
    exec.end()
}
