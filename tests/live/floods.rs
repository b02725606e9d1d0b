//! Excessive connections, requests, and bytes of a body.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpStream};

use anyhow::{Result, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use test_support::api::Exec;
use test_support::process::has;
use test_support::usage::{Usage, heap_kib};
use test_support::{is_soak, process, raw};

/// Three pings that are answered.
const PINGS: &str = "ping -q -n -c 3 -i 0.2 -W 20 $FARWIRE_SERVER > /dev/null; echo $?";

/// The number of simultaneous connections. A connection that finds the accept queue full is retried after a second.
const CONNECTIONS: [u64; 2] = [2_000, 10_000];

/// The descriptors that this test needs beside its connections.
const OWN: u64 = 200;

/// The connections that the API keeps, according to docs/live.md.
const KEPT: usize = 256;

/// The stated length of a body, and the bytes that buffers may take of it before it is refused.
const BODY: usize = 1 << 30;
const MOST_TAKEN: usize = 64 << 20;

/// The burst of requests that is accepted, according to docs/live.md; the requests that a test sends before it reads their answers, and
/// in total.
const TAKEN_AT_ONCE: usize = 1_000;
const AT_ONCE: usize = 100;
const MOST_ASKED: usize = 100_000;

/// The growth of memory that refused requests may cause.
const MOST_GROWN_KIB: u64 = 16 << 10;

#[test_support::test(Namespaces, Tool("ping"))]
fn thousands_of_connections_leave_the_link_as_it_is_and_others_answered() -> Result<()> {
    let wanted = CONNECTIONS[usize::from(is_soak())];
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard.min(wanted + OWN), hard)?;
    let mut exec = Exec::start("--delay 1ms")?;
    // The shell runs only after farwire listens.
    ensure!(exec.shell("echo on")? == "on", "no shell");
    let before = Usage::of(exec.pid())?;
    let many = wanted.min(hard.saturating_sub(OWN));
    // A connection may be closed again before this end knows that it is open.
    let all: Vec<TcpStream> = (0..many)
        .filter_map(|_| TcpStream::connect(exec.at).ok())
        .collect();
    ensure!(exec.shell(PINGS)? == "0", "the link lost pings");
    process::wait_for("all but some to be closed", || {
        let now = Usage::of(exec.pid())?;
        Ok((now.descriptors <= before.descriptors + KEPT).then_some(()))
    })?;
    let other = IpAddr::from([127, 0, 0, 2]);
    let mut answered = raw::connect(other, exec.at)?;
    write!(
        answered,
        "GET /v1/links HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        exec.at
    )?;
    let mut answer = String::new();
    answered.read_to_string(&mut answer)?;
    ensure!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    drop((all, answered));
    process::wait_for("places to be free again", || {
        let answer = exec.get("/v1/links").ok();
        Ok(answer.filter(|answer| answer.status == 200).map(drop))
    })?;
    before.await_return(exec.pid())?;
    exec.end()
}

#[test_support::test(Namespaces)]
fn a_body_of_a_gibibyte_is_refused_before_it_is_taken() -> Result<()> {
    let exec = Exec::start("--delay 1ms")?;
    let link = exec.link()?;
    let before = heap_kib(exec.pid())?;
    let chunk = vec![b' '; 64 << 10];
    for length in [
        format!("Content-Length: {BODY}"),
        "Transfer-Encoding: chunked".to_owned(),
    ] {
        let mut stream = exec.connect()?;
        let host = exec.at;
        let head = "PUT /v1/links/link HTTP/1.1\r\nContent-Type: application/json";
        write!(stream, "{head}\r\nHost: {host}\r\n{length}\r\n\r\n")?;
        let framed = length.starts_with("Transfer");
        let mut sent = 0;
        while sent < BODY {
            let size = format!("{:x}\r\n", chunk.len());
            let parts: [&[u8]; 3] = match framed {
                true => [size.as_bytes(), &chunk, b"\r\n"],
                false => [b"", &chunk, b""],
            };
            if parts
                .into_iter()
                .any(|part| stream.write_all(part).is_err())
            {
                break;
            }
            sent += chunk.len();
        }
        ensure!(sent < MOST_TAKEN, "{length}: {sent} bytes were taken");
        let mut answer = Vec::new();
        // The connection may be closed right after the refusal.
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        ensure!(answer.starts_with("HTTP/1.1 413 "), "{length}: {answer:?}");
    }
    let after = heap_kib(exec.pid())?;
    ensure!(
        after <= before + MOST_GROWN_KIB,
        "{before} KiB became {after}"
    );
    ensure!(exec.link()? == link, "what was refused changed the link");
    exec.end()
}

/// Sends requests on one connection without a pause until one is refused.
#[test_support::test(Namespaces)]
fn more_requests_than_are_taken_are_told_when_to_ask_again() -> Result<()> {
    let exec = Exec::start("--delay 1ms")?;
    let mut stream = exec.connect()?;
    let some = format!("GET /none HTTP/1.1\r\nHost: {}\r\n\r\n", exec.at).repeat(AT_ONCE);
    let (mut answers, mut asked) = (String::new(), 0);
    while !answers.contains("HTTP/1.1 429 ") {
        ensure!(asked < MOST_ASKED, "all of {asked} requests were answered");
        answers.clear();
        stream.write_all(some.as_bytes())?;
        asked += AT_ONCE;
        let mut chunk = vec![0; 64 << 10];
        while answers.matches("HTTP/1.1 ").count() < AT_ONCE || !answers.ends_with('}') {
            let read = process::uninterrupted(|| stream.read(&mut chunk))?;
            ensure!(read > 0, "closed after {asked} requests");
            answers += std::str::from_utf8(&chunk[..read])?;
        }
    }
    ensure!(asked > TAKEN_AT_ONCE, "request {asked} was refused");
    let refused = answers
        .split("HTTP/1.1 ")
        .find(|answer| answer.starts_with("429"));
    let refused = refused.unwrap_or_default().to_ascii_lowercase();
    has(&refused, "retry-after: 1\r")?;
    has(&refused, "application/problem+json")?;
    process::wait_for("requests to be taken again", || {
        Ok((exec.get("/v1/links")?.status == 200).then_some(()))
    })?;
    exec.end()
}
