//! A log that nobody reads, and text from strangers in the log.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use test_support::process::{self, farwire, stderr, stdout};
use test_support::raw;

/// The number of tests; a pipe of 64 KiB holds the lines of about a third.
const TESTS: usize = 2000;
/// Text with control sequences for a terminal: a new line, ECMA-48 in 7 and in 8 bits, reversed text.
const HOSTILE: &str = "x\n\u{1b}[2J\u{9b}31m\u{202e}gnp";

/// A process that is killed at the end of its test.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The services of a far end by name, each with its address.
type Services = Vec<(String, SocketAddr)>;

/// Starts `serve` with an output that only this test reads, when it wants to.
fn serve() -> Result<(Serving, Services)> {
    let (child, services, _) = serve_with(&["--max-tests-per-client", "64"])?;
    Ok((child, services))
}

/// The same with these options; also returns the output at its start.
fn serve_with(options: &[&str]) -> Result<(Serving, Services, Vec<String>)> {
    let ports = [
        "--http-port",
        "--iperf3-port",
        "--messages-port",
        "--capacity-port",
    ];
    let child = farwire()
        .args(["serve", "--bind", "127.0.0.1", "--stamp-port", "0"])
        .args(ports.iter().flat_map(|port| [port, "0"]))
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut child = Serving(child);
    let (mut services, mut said) = (Vec::new(), Vec::new());
    for line in BufReader::new(child.0.stderr.as_mut().context("a pipe")?).lines() {
        let line = line?;
        said.push(line.clone());
        if line.contains("farwire sends ") {
            break;
        }
        let service = line.split_once("farwire serves ");
        if let Some((name, address)) = service.and_then(|(_, service)| service.split_once(" on ")) {
            services.push((name.to_owned(), address.parse()?));
        }
    }
    Ok((child, services, said))
}

fn of(services: &[(String, SocketAddr)], name: &str) -> Result<SocketAddr> {
    let found = services.iter().find(|(service, _)| service == name);
    Ok(found.with_context(|| format!("{name} is not served"))?.1)
}

fn end(child: &mut Child) -> Result<()> {
    kill(Pid::from_raw(i32::try_from(child.id())?), Signal::SIGTERM)?;
    let status = process::end_of(child)?;
    ensure!(status.success(), "{status}");
    Ok(())
}

#[test_support::test]
fn a_log_that_nobody_reads_holds_up_no_test_and_no_end() -> Result<()> {
    let (mut child, services) = serve()?;
    let http = of(&services, "http")?;
    for _ in 0..TESTS {
        let mut stream = TcpStream::connect(http)?;
        stream.write_all(b"GET /bytes/1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        ensure!(answer.starts_with(b"HTTP/1.1 200"), "{answer:?}");
    }
    let stamp = of(&services, "stamp")?.to_string();
    let probe = ["measure", "probe", &stamp, "--count", "3"];
    process::succeeds(farwire().args(probe))?;
    end(&mut child.0)?;
    // The line in progress may end anywhere.
    let mut log = Vec::new();
    child
        .0
        .stdout
        .take()
        .context("a pipe")?
        .read_to_end(&mut log)?;
    let lines = log.iter().filter(|byte| **byte == b'\n').count();
    ensure!(
        (100..TESTS).contains(&lines),
        "{lines} lines fitted into the pipe"
    );
    Ok(())
}

#[test_support::test]
fn nothing_that_a_client_says_is_obeyed_by_the_operators_terminal() -> Result<()> {
    let (mut child, services) = serve()?;
    let mut stream = TcpStream::connect(of(&services, "iperf3")?)?;
    stream.write_all(format!("{:0>36}\0", 1).as_bytes())?;
    let params = serde_json::json!({"tcp": true, "time": 1, "len": 1000, "congestion": HOSTILE});
    let params = params.to_string();
    let length = u32::try_from(params.len())?.to_be_bytes();
    stream.write_all(&[&length[..], params.as_bytes()].concat())?;
    let mut data = TcpStream::connect(of(&services, "iperf3")?)?;
    data.write_all(format!("{:0>36}\0", 1).as_bytes())?;
    let _ = stream.read_to_end(&mut Vec::new());
    drop((stream, data));
    end(&mut child.0)?;
    let mut said = String::new();
    child
        .0
        .stdout
        .take()
        .context("a pipe")?
        .read_to_string(&mut said)?;
    child
        .0
        .stderr
        .take()
        .context("a pipe")?
        .read_to_string(&mut said)?;
    ensure!(said.contains("FAILED"), "{said:?}");
    is_harmless(&said)
}

/// The number of requests of each protocol that are refused.
const REFUSED: u64 = 100;

/// Starts `serve` with `options`, sends it requests of three protocols, and checks that their refusals for `cause` are in its logs and
/// counts. `request` gets a protocol and the number of the request. `reasons` are the words in the log, by protocol.
fn check_refusals(
    options: &[&str],
    cause: &str,
    request: fn(&str, u64) -> Vec<u8>,
    reasons: [(&str, &str); 3],
) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let json = folder.path().join("tests.jsonl");
    let json = json.to_str().context("UTF-8")?;
    let outputs = ["--metrics", "127.0.0.1:0", "--json", json];
    let (mut child, services, said) = serve_with(&[options, &outputs].concat())?;
    for (name, _) in reasons {
        let address = of(&services, name)?;
        for number in 0..REFUSED {
            let mut stream = TcpStream::connect(address)?;
            let _ = stream.write_all(&request(name, number));
            let _ = stream.read_to_end(&mut Vec::new());
        }
    }
    let page = scrape(&said)?;
    for (name, _) in reasons {
        let counted = format!(
            "farwire_refusals_total{{protocol=\"{name}\",cause=\"{cause}\"}} {REFUSED}.0\n"
        );
        process::has(&page, counted)?;
    }
    process::has(
        &page,
        "farwire_tests_total{protocol=\"http\",test=\"http\",result=\"done\"} 0",
    )?;
    end(&mut child.0)?;
    let mut log = String::new();
    let stdout = child.0.stdout.as_mut().context("a pipe")?;
    stdout.read_to_string(&mut log)?;
    for line in log.lines().chain(said.iter().map(String::as_str)) {
        let time = line.split([' ', ',']).next().context("words")?;
        ensure!(time.parse::<jiff::Timestamp>().is_ok(), "{line}");
        ensure!(line.chars().count() <= 160, "{line}");
    }
    let entries = std::fs::read_to_string(json)?;
    let entries: Result<Vec<Value>, _> = entries.lines().map(serde_json::from_str).collect();
    let entries = entries?;
    for (name, why) in reasons {
        let of_it = |line: &&str| line.contains(&format!(", {name}, REFUSED: {why}"));
        let lines = log.lines().filter(of_it).count() as u64;
        // There is one every 10 s; a slow machine may see several.
        ensure!((2..REFUSED / 2).contains(&lines), "{name}: {log}");
        let of_it = |entry: &&Value| entry["protocol"] == name && entry["cause"] == cause;
        let counts = entries
            .iter()
            .filter(of_it)
            .map(|entry| entry["count"].as_u64());
        let sum: u64 = counts.flatten().sum();
        ensure!(sum == REFUSED, "{name}: {entries:?}");
    }
    Ok(())
}

/// Returns the metrics of a `serve` that printed these lines.
fn scrape(said: &[String]) -> Result<String> {
    let exports = said
        .iter()
        .find_map(|line| line.split_once("metrics at http://"));
    let (_, url) = exports.context("it says nowhere where its metrics are")?;
    let (address, path) = url.split_once('/').context("a path")?;
    let mut stream = TcpStream::connect(address)?;
    write!(
        stream,
        "GET /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    Ok(page)
}

#[test_support::test]
fn refusals_are_logged_with_their_number_and_counted_for_prometheus() -> Result<()> {
    // HTTP answers only after a request.
    let request = |_: &str, _: u64| b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec();
    let reasons = ["http", "iperf3", "messages"].map(|name| (name, "this address is not allowed"));
    check_refusals(
        &["--allow", "192.0.2.0/24"],
        "outside-allow",
        request,
        reasons,
    )
}

#[test_support::test]
fn tests_over_a_limit_are_logged_and_counted_as_refusals_too() -> Result<()> {
    /// Each asks for 60 s.
    fn request(name: &str, number: u64) -> Vec<u8> {
        match name {
            "http" => b"GET /seconds/60 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_vec(),
            "messages" => {
                b"farwire-messages/1 transfer block=1000 bytes=1000 nagle=no latency_us=60000000\n"
                    .to_vec()
            }
            _ => {
                let params = raw::framed(br#"{"tcp":true,"time":60,"len":1000}"#);
                [&raw::cookie(number)[..], &params].concat()
            }
        }
    }
    check_refusals(
        &["--max-duration", "10s", "--idle-timeout", "10s"],
        "over-limit",
        request,
        [
            ("http", "60 s exceed the 10 s of a test here"),
            ("messages", "a latency of 60 s exceeds the 10 s of silence"),
            ("iperf3", ""),
        ],
    )
}

#[test_support::test]
fn nothing_that_a_server_says_is_obeyed_by_the_clients_terminal() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    // It answers every request with hostile text.
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // A client that has gone is no reason to refuse the next one.
            let _ = stream.read(&mut [0; 4096]);
            let answer = format!(
                "HTTP/1.1 200 {HOSTILE}\r\nfarwire-congestion-control: \u{9b}31m\u{202e}\r\nContent-Length: 1\r\n\r\nx"
            );
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    for (instrument, target) in [
        ("http", format!("http://{address}/bytes/1")),
        ("tcp", address.clone()),
        ("pingpong", address.clone()),
        ("transfer", address),
    ] {
        for json in [&[][..], &["--json", "-"]] {
            let mut command: Command = farwire();
            command.args(["measure", instrument, &target]).args(json);
            let output = process::run(&mut command)?;
            is_harmless(&stdout(&output))?;
            is_harmless(&stderr(&output))?;
        }
    }
    Ok(())
}

/// Checks that no character moves a cursor or reverses text.
fn is_harmless(said: &str) -> Result<()> {
    let obeyed = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    ensure!(!said.contains(obeyed), "{said:?}");
    Ok(())
}
