//! `measure capacity` and its far end: through a known link, against obudpst in both roles, and against impostors.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, Output};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use test_support::far_end::FarEnd;
use test_support::process::{self, farwire, has};
use test_support::suite::{Need, Suite};

const RATE: f64 = 50e6;
/// A time longer than any time-out of the protocol.
const IMPOSTOR_TIMEOUT: Duration = Duration::from_secs(60);
/// Answers of obudpst 9.0.0 to a setup request, and the expected messages.
const REFUSALS: [(u8, &str); 6] = [
    (5, "requires authentication"),
    (9, "requires the bandwidth in advance"),
    (10, "no capacity left"),
    (12, "numbers of the connections"),
    (13, "could not open a socket"),
    (77, "no meaning"),
];

#[test_support::tests]
fn add(suite: &mut Suite) {
    for (direction, address) in [
        ("--down", "10.77.0.2"),
        ("--up", "10.77.0.2"),
        ("--down", "fd77::2"),
        ("--up", "fd77::2"),
    ] {
        let name = format!("capacity {direction} finds the link's rate at {address}");
        suite.serial(name, &[Need::Namespaces], move || {
            finds_the_rate(direction, address, &[])
        });
        let name = format!("capacity {direction} finds the link's rate with obudpst at {address}");
        let needs = [Need::Udpst, Need::Namespaces];
        suite.serial(name, &needs, move || {
            let version = if address.contains(':') { "-6" } else { "-4" };
            finds_the_rate(
                direction,
                address,
                &["--far", &format!("udpst {version} {address}")],
            )
        });
        let name = format!("obudpst finds the link's rate {direction} with us at {address}");
        suite.serial(name, &needs, move || {
            obudpst_finds_the_rate(direction, address)
        });
    }
    for (code, words) in REFUSALS {
        suite.serial(format!("refusal {code} is in words"), &[], move || {
            against(move |_, request| Some(answered(request, code, 1)), words)
        });
    }
}

#[test_support::test(serial)]
fn a_port_without_a_server_is_refused_at_once() -> Result<()> {
    fails(&["127.0.0.1:9"], "no program listens there")
}

#[test_support::test(All)]
fn a_server_that_is_silent_is_given_up_after_the_longest_round_trip() -> Result<()> {
    against(|_, _| None, "does not answer the setup request within 30 s")
}

#[test_support::test(serial)]
fn a_server_that_answers_garbage_is_given_up() -> Result<()> {
    against(
        |_, _| Some(b"GET / HTTP/1.1".to_vec()),
        "setup message of 14 bytes instead of 56",
    )
}

#[test_support::test(serial)]
fn a_server_of_an_unknown_version_is_named() -> Result<()> {
    let answer = |_: &UdpSocket, request: &[u8]| {
        let mut answer = answered(request, 2, 0);
        answer[2..4].copy_from_slice(&99u16.to_be_bytes());
        Some(answer)
    };
    against(
        answer,
        "speaks version 99 of the protocol; farwire speaks 11 to 20",
    )
}

#[test_support::test(serial)]
fn a_server_that_vanishes_before_the_activation_is_given_up() -> Result<()> {
    against(
        accepts_here,
        "does not answer the activation request within 3 s",
    )
}

#[test_support::test(serial)]
fn a_null_request_is_no_answer_to_the_activation() -> Result<()> {
    let null_request = |_: &UdpSocket, request: &[u8]| {
        let test = UdpSocket::bind("127.0.0.1:0").ok()?;
        test.set_read_timeout(Some(IMPOSTOR_TIMEOUT)).ok()?;
        let port = test.local_addr().ok()?.port();
        thread::spawn(move || -> Option<()> {
            let (_, client) = test.recv_from(&mut [0; 256]).ok()?;
            let mut request = [0; 48];
            request[..5].copy_from_slice(&[0xde, 0xad, 0, 20, 1]);
            test.send_to(&request, client).ok()?;
            // The socket stays open, so that the client's next requests are not refused.
            thread::sleep(IMPOSTOR_TIMEOUT);
            Some(())
        });
        Some(answered(request, 1, port))
    };
    against(
        null_request,
        "does not answer the activation request within 3 s: no UDP Speed Test server answers",
    )
}

#[test_support::test(serial)]
fn a_server_that_vanishes_during_the_test_is_given_up() -> Result<()> {
    against(
        sends_load(&[(1, 1222)]),
        "sent nothing for 3 s during the test",
    )
}

#[test_support::test(serial)]
fn load_with_absurd_numbers_is_not_counted() -> Result<()> {
    const LOAD: &[(u32, usize)] = &[(1, 1222), (u32::MAX, 1222), (0, 1222), (2, 40)];
    against(sends_load(LOAD), "2 had impossible numbers: not counted")
}

fn finds_the_rate(direction: &str, address: &str, far: &[&str]) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("measured");
    let mut command = farwire();
    command.args(["exec", "--rate", "50mbit", "--delay", "5ms"]);
    command
        .args(far)
        .args(["--", process::program(), "measure", "capacity", address]);
    command.args([direction, "-t", "5", "--quiet", "--json"]);
    process::succeeds(command.arg(&file))?;
    let measured = read(&file)?;
    let l2 = figure(&measured, "l2_rate_bit_per_s").context("an L2 rate")?;
    // A busy machine sends less, and a late emulator passes up to its lateness more in one second. `make truth` tests the accuracy
    // of the figure.
    ensure!((RATE * 0.5..RATE * 1.5).contains(&l2), "{l2}");
    let trials = measured["samples"].as_array().context("samples")?.iter();
    let rows = trials.filter(|sample| sample["metric"] == "rate_row");
    ensure!(rows.count() > 50, "a row for each feedback");
    Ok(())
}

fn obudpst_finds_the_rate(direction: &str, address: &str) -> Result<()> {
    let direction = if direction == "--up" { "-u" } else { "-d" };
    let mut command = farwire();
    command.args(["exec", "--rate", "50mbit", "--delay", "5ms", "--"]);
    command.args(["udpst", direction, "-s", "-t", "5", "-f", "json", address]);
    let found: Value = process::json(&mut command)?;
    let mbit = found["Output"]["AtMax"]["MaxETHCapacityNoFCS"].as_f64();
    let l2 = mbit.with_context(|| found.to_string())? * 1e6;
    ensure!((RATE * 0.5..RATE * 1.5).contains(&l2), "{l2}");
    Ok(())
}

#[test_support::test(serial)]
fn several_capacity_tests_run_at_once() -> Result<()> {
    let far_end = FarEnd::start(farwire().arg("serve"))?;
    let address = far_end.address("capacity")?;
    let tests: Vec<JoinHandle<Result<Output>>> = ["--up", "--down", "--down"]
        .map(|direction| thread::spawn(move || process::run(&mut measure(address, direction))))
        .into_iter()
        .collect();
    for test in tests {
        process::succeeded(test.join().expect("a client does not panic")?)?;
    }
    Ok(())
}

#[test_support::test(serial)]
fn a_full_server_says_so() -> Result<()> {
    let far_end = FarEnd::start(farwire().args(["serve", "--max-tests", "1"]))?;
    let address = far_end.address("capacity")?;
    let mut holder = TcpStream::connect(far_end.address("http")?)?;
    holder.write_all(b"GET /seconds/3600 HTTP/1.1\r\nHost: x\r\n\r\n")?;
    holder.read_exact(&mut [0; 1000])?;
    fails(&[&address.to_string()], "no capacity left for another test")
}

/// A client asks for a test and for load, and disappears: the server ends the test by itself and serves the next client.
#[test_support::test(serial)]
fn a_client_that_vanishes_is_forgotten() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let log = directory.path().join("log");
    let far_end = FarEnd::start(
        farwire()
            .args(["serve", "--max-tests", "1", "--json"])
            .arg(&log),
    )?;
    let address = far_end.address("capacity")?;
    let client = UdpSocket::bind("127.0.0.1:0")?;
    client.set_read_timeout(Some(IMPOSTOR_TIMEOUT))?;
    client.send_to(&setup_request(), address)?;
    let mut answer = [0; 64];
    // The null request comes from the test's port and may overtake the answer.
    while process::uninterrupted(|| client.recv_from(&mut answer))?.1 != address {}
    let port = u16::from_be_bytes([answer[12], answer[13]]);
    client.send_to(&activation_request(), (address.ip(), port))?;
    process::uninterrupted(|| client.recv_from(&mut answer))?;
    drop(client);
    let logged = || {
        Ok(std::fs::read_to_string(&log)
            .ok()
            .filter(|text| text.ends_with('\n')))
    };
    let line = process::wait_for("the test to be logged", logged)?;
    let failure = serde_json::from_str::<Value>(&line)?["failure"].to_string();
    ensure!(
        failure.contains("closed its port") || failure.contains("sent nothing"),
        "{line}"
    );
    process::succeeds(&mut measure(address, "--down"))?;
    Ok(())
}

/// Measures against a server that answers the setup request as `answer` does; it must fail with these words.
fn against(
    answer: impl Fn(&UdpSocket, &[u8]) -> Option<Vec<u8>> + Send + 'static,
    words: &str,
) -> Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_read_timeout(Some(IMPOSTOR_TIMEOUT))?;
    let address = socket.local_addr()?.to_string();
    let done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let ended = std::sync::Arc::clone(&done);
    let impostor = thread::spawn(move || {
        let mut request = [0; 256];
        while !ended.load(std::sync::atomic::Ordering::Relaxed) {
            let Ok((length, client)) = socket.recv_from(&mut request) else {
                continue;
            };
            if let Some(answer) = answer(&socket, &request[..length]) {
                let _ = socket.send_to(&answer, client);
            }
        }
    });
    let failed = fails(&[&address], words);
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    // Any datagram ends the wait for the next request.
    UdpSocket::bind("127.0.0.1:0")?.send_to(b"end", &address)?;
    impostor.join().expect("the impostor does not panic");
    failed
}

/// Accepts the setup and names a port that never answers.
fn accepts_here(_: &UdpSocket, request: &[u8]) -> Option<Vec<u8>> {
    // The activation is not answered either.
    let silent = UdpSocket::bind("127.0.0.1:0").ok()?;
    let port = silent.local_addr().ok()?.port();
    std::mem::forget(silent);
    Some(answered(request, 1, port))
}

/// Accepts setup and activation, then sends load PDUs with these numbers and sizes, and nothing more.
fn sends_load(
    load: &'static [(u32, usize)],
) -> impl Fn(&UdpSocket, &[u8]) -> Option<Vec<u8>> + Send + 'static {
    move |_, request| {
        let test = UdpSocket::bind("127.0.0.1:0").ok()?;
        test.set_read_timeout(Some(IMPOSTOR_TIMEOUT)).ok()?;
        let port = test.local_addr().ok()?.port();
        thread::spawn(move || -> Option<()> {
            let mut activation = [0; 256];
            let (length, client) =
                process::uninterrupted(|| test.recv_from(&mut activation)).ok()?;
            activation[5] = 1;
            test.send_to(&activation[..length], client).ok()?;
            for (sequence, size) in load {
                let mut pdu = vec![0; *size];
                pdu[..2].copy_from_slice(&[0xbe, 0xef]);
                pdu[4..8].copy_from_slice(&sequence.to_be_bytes());
                pdu[8..10].copy_from_slice(&[0xff, 0xff]);
                test.send_to(&pdu, client).ok()?;
            }
            // The socket stays open, so that the client notices only silence.
            thread::sleep(IMPOSTOR_TIMEOUT);
            Some(())
        });
        Some(answered(request, 1, port))
    }
}

/// Builds the answer to a setup request.
fn answered(request: &[u8], code: u8, port: u16) -> Vec<u8> {
    let mut answer = request.to_vec();
    answer.resize(56, 0);
    answer[8..10].copy_from_slice(&[2, code]);
    answer[12..14].copy_from_slice(&port.to_be_bytes());
    answer
}

/// Builds RFC 9946's setup request: identifier, version 20, connection 0 of 1, a client's number, request.
fn setup_request() -> [u8; 56] {
    let mut request = [0; 56];
    request[..9].copy_from_slice(&[0xac, 0xe1, 0, 20, 0, 1, 0, 7, 1]);
    request
}

/// Builds RFC 9946's activation request for a downstream test with the server's parameters.
fn activation_request() -> [u8; 104] {
    let mut request = [0; 104];
    request[..5].copy_from_slice(&[0xac, 0xe2, 0, 20, 2]);
    request
}

fn measure(address: SocketAddr, direction: &str) -> Command {
    let mut command = farwire();
    command.args(["measure", "capacity", &address.to_string(), direction]);
    command.args(["-t", "1", "-i", "500ms"]);
    command
}

/// Checks that `measure capacity` ends with code 1 and prints these words.
fn fails(arguments: &[&str], words: &str) -> Result<()> {
    let mut command = farwire();
    command.args(["measure", "capacity", "-t", "1", "-i", "200ms"]);
    let output = process::run(command.args(arguments))?;
    let said = [&output.stderr[..], &output.stdout].concat();
    let said = String::from_utf8_lossy(&said);
    // The terminal's width breaks lines.
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(output.status.code() == Some(1), "{output:?}");
    has(&said, words)?;
    Ok(())
}

fn read(file: &Path) -> Result<Value> {
    Ok(serde_json::from_str(&std::fs::read_to_string(file)?)?)
}

fn figure(measured: &Value, metric: &str) -> Option<f64> {
    let mut figures = measured["figures"].as_array()?.iter();
    figures.find(|figure| figure["metric"] == metric)?["value"].as_f64()
}
