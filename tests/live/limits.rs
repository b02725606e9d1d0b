//! The cost of requests, and service for others meanwhile.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

use test_support::api::{Exec, Listening};
use test_support::process;

/// The number of changes; each takes more than a sixtieth of the memory for a link's history.
const CHANGES: u64 = 60;

/// The steps in the schedule of each change: they take 60 KB in the request, and about 800 KB in memory.
const STEPS: usize = 2_300;

/// The number of readers of the history.
const READERS: usize = 12;

/// The memory for a link's history, in bytes.
const MOST_KEPT: u64 = 32 << 20;

/// The length of a history of which an unread connection cannot hold a half.
const LONG_HISTORY: usize = 1 << 20;

/// The duration of a lease with unread responses in seconds, and the longest that it may last. Unread data end a connection only after
/// 5 s, so that a lease that waits for its readers lasts longer.
const LEASE_S: f64 = 1.0;
const LONGEST_S: f64 = 3.0;

#[test_support::test(All, Namespaces)]
fn a_history_keeps_to_its_memory_and_a_lease_ends_while_twelve_read_it() -> Result<()> {
    let exec = Exec::start("--delay 1ms")?;
    let step = json!({"at": "1000s", "loss": "1%"});
    for number in 1..=CHANGES {
        let steps = vec![&step; STEPS];
        let conditions = json!({"delay": format!("{number}ms"), "schedule": steps});
        let change = exec.with_body(
            "PUT /v1/links/link",
            "application/json",
            "",
            &conditions.to_string(),
        )?;
        ensure!(change.status == 200, "{change:?}");
    }
    let numbers = history(&exec)?;
    let least = u64::try_from(STEPS * size_of::<conditions::Condition>())?;
    let most = usize::try_from(MOST_KEPT / least)?;
    ensure!(
        (2..=most).contains(&numbers.len()),
        "{} revisions are kept",
        numbers.len()
    );
    let first = CHANGES + 2 - u64::try_from(numbers.len())?;
    ensure!(
        numbers.iter().copied().eq(first..=CHANGES + 1),
        "{numbers:?}"
    );
    lease_ends_beside_unread_responses(&exec)?;
    let revision = exec.link()?["revision"].as_u64().context("a number")?;

    let over = AtomicBool::new(false);
    let live: &Listening = &exec;
    thread::scope(|scope| {
        let read = || {
            // Each reads it at least once.
            loop {
                history(live)?;
                if over.load(Ordering::Relaxed) {
                    return anyhow::Ok(());
                }
            }
        };
        let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(read)).collect();
        let reverted = exec
            .patch("?for=100ms", r#"{"loss": "100%"}"#)
            .and_then(|leased| {
                ensure!(leased.status == 200, "{leased:?}");
                process::wait_for("the link to revert", || {
                    let link = exec.link()?;
                    let is_back = link["lease"].is_null() && link["revision"] == revision + 2;
                    Ok(is_back.then_some(()))
                })
            });
        over.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().expect("a reader does not panic")?;
        }
        reverted
    })?;
    exec.end()
}

/// Leases the link, and holds responses open without reading them until the lease has ended. The link itself records how long it lasted.
fn lease_ends_beside_unread_responses(exec: &Exec) -> Result<()> {
    let leased = exec.patch("?for=1s", r#"{"loss": "100%"}"#)?;
    ensure!(leased.status == 200, "{leased:?}");
    let unread = (0..READERS).map(|_| unread_history(exec));
    let unread = unread.collect::<Result<Vec<_>>>()?;
    process::wait_for("the lease to end", || {
        Ok(exec.link()?["lease"].is_null().then_some(()))
    })?;
    drop(unread);
    let answer = exec.get("/v1/links/link/history")?;
    ensure!(answer.text.len() > LONG_HISTORY, "{}", answer.text.len());
    let changes = answer.body["changes"].as_array().context("no list")?;
    let [.., begun, ended] = changes.as_slice() else {
        bail!("too few changes are kept");
    };
    ensure!(ended["by"] == "lease ended", "{}", ended["by"]);
    let [begun, ended] = [begun, ended].map(|change| change["at_s"].as_f64());
    let lasted = ended.context("a time")? - begun.context("a time")?;
    ensure!(
        (0.9 * LEASE_S..LONGEST_S).contains(&lasted),
        "it lasted {lasted} s"
    );
    Ok(())
}

/// Asks for the history, and returns when the response has begun.
fn unread_history(live: &Listening) -> Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_recv_buffer_size(64 << 10)?;
    socket.connect(&live.at.into())?;
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(process::PATIENCE))?;
    let host = live.at;
    write!(
        stream,
        "GET /v1/links/link/history HTTP/1.1\r\nHost: {host}\r\n\r\n"
    )?;
    let begun = process::uninterrupted(|| stream.peek(&mut [0]))?;
    ensure!(begun > 0, "no response");
    Ok(stream)
}

/// Reads a history to its end and returns its revisions, without those that are forgotten meanwhile.
fn history(live: &Listening) -> Result<Vec<u64>> {
    let answer = live.get("/v1/links/link/history")?;
    let changes = answer.body["changes"].as_array().context("no list")?;
    let numbers = changes.iter().map(|change| change["revision"].as_u64());
    let numbers: Vec<u64> = numbers.collect::<Option<_>>().context("no number")?;
    ensure!(numbers.is_sorted(), "{numbers:?}");
    ensure!(
        changes
            .iter()
            .all(|change| change["conditions"] != Value::Null)
    );
    Ok(numbers)
}
