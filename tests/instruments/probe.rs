//! `measure probe` and the reflector of `serve`: against each other, against another implementation of STAMP, and against faulty
//! reflectors.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Output, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use test_support::far_end::FarEnd;
use test_support::process::{self, farwire, has, stderr, stdout};
use test_support::suite::{Need, Suite};

const PEER: &str = "stamp-suite";
/// The bytes of an answer without extensions.
const BASE: usize = 44;
/// The bytes of an answer of nokia/twampy, which lacks the last three of RFC 5357.
const TRUNCATED: usize = 38;

#[test_support::tests]
fn add(suite: &mut Suite) {
    for state in ["stateless", "stateful"] {
        suite.test(
            format!("another's {state} reflector answers our probes"),
            &[Need::Peer(PEER)],
            move || foreign_reflector(state == "stateful"),
        );
    }
}

#[test_support::test]
fn two_farwires_tell_the_networks_part_and_which_way_is_which() -> Result<()> {
    let far_end = FarEnd::start(farwire().arg("serve"))?;
    let measured = probed(far_end.address("stamp")?, "-c 50 -i 1ms -W 20s")?;
    let of = |metric, statistic| figure(&measured, metric, statistic, None);
    ensure!(of("sent_packets", "total")? == 50.0 && of("lost_packets", "total")? == 0.0);
    ensure!(of("network_rtt_ms", "median")? <= of("rtt_ms", "median")?);
    let clocks = measured["facts"]["one_way_delay"]
        .as_str()
        .context("a fact")?;
    has(clocks, "the same clock")?;
    let one_way =
        ["up", "down"].map(|way| figure(&measured, "one_way_delay_ms", "median", Some(way)));
    let sum: f64 = one_way.into_iter().sum::<Result<_>>()?;
    ensure!(sum > 0.0, "{sum}");
    Ok(())
}

/// Returns the names of the CSV's columns in the documentation, in their order: rows of `| 1 | \`sent_ms\` | ... |`.
fn columns(page: &str) -> impl Iterator<Item = &str> {
    page.lines().filter_map(|line| {
        let (number, rest) = line.strip_prefix("| ")?.split_once(" | `")?;
        number.parse::<u32>().ok()?;
        Some(rest.split_once('`')?.0)
    })
}

#[test_support::test]
fn a_line_a_probe_is_written_as_csv() -> Result<()> {
    let far_end = FarEnd::start(farwire().arg("serve"))?;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("probes.csv");
    let arguments = format!("-c 20 -i 1ms -W 20s --csv {}", file.display());
    probed(far_end.address("stamp")?, &arguments)?;
    let mut reader = csv::Reader::from_path(&file)?;
    let header = reader.headers()?.clone();
    let page = fs::read_to_string("docs/instruments/probe.md")?;
    ensure!(header.iter().eq(columns(&page)), "{header:?}");
    let rows: Vec<csv::StringRecord> = reader.records().collect::<csv::Result<_>>()?;
    ensure!(rows.len() == 20);
    for (number, row) in rows.iter().enumerate() {
        let column = |name: &str| {
            header
                .iter()
                .position(|h| h == name)
                .and_then(|at| row.get(at))
        };
        ensure!(
            column("tx_probes") == Some(&(number + 1).to_string()),
            "{row:?}"
        );
        ensure!(column("lost") == Some("0"), "{row:?}");
        let delay: f64 = column("delay_ms").context("a delay")?.parse()?;
        ensure!(delay >= 0.0, "{row:?}");
    }
    Ok(())
}

#[test_support::test]
fn latency_under_load_stands_beside_idle_latency() -> Result<()> {
    let far_end = FarEnd::start(farwire().arg("serve"))?;
    let port = far_end.address("iperf3")?.port();
    for (load, ways) in [
        ("tcp:2", &["up"][..]),
        ("tcp:2,down", &["down"]),
        ("udp:10mbit,both", &["up", "down"]),
    ] {
        let arguments = format!("-c 50 -i 1ms -W 20s --under {load} --under-port {port}");
        let measured = probed(far_end.address("stamp")?, &arguments)?;
        let figures = measured["figures"].as_array().context("figures")?;
        for phase in ["idle", "loaded"] {
            let has = |metric| {
                let mut of = figures.iter().filter(|figure| figure["phase"] == phase);
                of.any(|figure| figure["metric"] == metric)
            };
            ensure!(has("network_rtt_ms"), "{phase}: {figures:?}");
            ensure!(
                has("goodput_bit_per_s") == (phase == "loaded"),
                "{phase}: {figures:?}"
            );
        }
        for way in ["up", "down"] {
            let goodput = figure(&measured, "goodput_bit_per_s", "mean", Some(way));
            ensure!(goodput.is_ok() == ways.contains(&way), "{load}: {way}");
        }
        let samples = measured["samples"].as_array().context("samples")?;
        let rtts = samples
            .iter()
            .filter(|sample| sample["metric"] == "network_rtt_ms");
        let indexes: Vec<_> = rtts.filter_map(|rtt| rtt["index"].as_u64()).collect();
        ensure!(indexes == (1..=100).collect::<Vec<_>>(), "{indexes:?}");
    }
    Ok(())
}

#[test_support::test]
fn a_summary_fits_a_screen_and_agrees_with_its_table() -> Result<()> {
    let far_end = FarEnd::start(farwire().arg("serve"))?;
    let load = format!("--under-port={}", far_end.address("iperf3")?.port());
    let said = |more: &[&str]| -> Result<String> {
        let address = far_end.address("stamp")?.to_string();
        let mut command = farwire();
        command.args(["measure", "probe", &address, "-c", "20", "-i", "1ms"]);
        command.args(["--under", "tcp:1,both", &load]).args(more);
        Ok(stdout(&process::succeeds(&mut command)?))
    };
    let summary = said(&[])?;
    // The unit of an interval beyond 10 Gbit/s, which a fast loopback reaches, is on a separate line.
    let height: usize = summary
        .lines()
        .filter(|line| line.trim() != "Mbit/s")
        .map(|line| line.chars().count().div_ceil(80).max(1))
        .sum();
    ensure!(height <= 24, "{summary}");
    has(&summary, "network rtt p99: n/a idle, n/a under load")?;
    has(&summary, "--details")?;
    let details = said(&["--details"])?;
    ensure!(
        details.lines().count() > summary.lines().count(),
        "{details}"
    );
    Ok(())
}

#[test_support::test(Namespaces)]
fn loss_by_direction_is_what_the_emulator_counted() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (link, measured) = (
        directory.path().join("link"),
        directory.path().join("measured"),
    );
    let mut command = farwire();
    command.args([
        "exec", "--delay", "5ms", "--loss", "5%", "--seed", "5", "--json",
    ]);
    command.arg(&link).arg("--").arg(process::program());
    command.args([
        "measure",
        "probe",
        "10.77.0.2",
        "-c",
        "400",
        "-i",
        "1ms",
        "--json",
    ]);
    process::succeeds(command.arg(&measured))?;
    let read = |file| -> Result<Value> { Ok(serde_json::from_str(&fs::read_to_string(file)?)?) };
    let (link, measured) = (read(&link)?, read(&measured)?);
    for way in ["up", "down"] {
        let lost =
            |figure: &Value| figure["metric"] == "lost_packets" && figure["direction"] == way;
        let figures = measured["figures"].as_array().context("figures")?;
        let found = figures
            .iter()
            .find(|f| lost(f))
            .context("loss by direction")?;
        let [least, most] = [0, 1].map(|end| found["interval"][end].as_f64());
        let counted = link[way]["dropped"]["loss"].as_f64().context("loss")?;
        // They are equal, except for probes after the last one that came back.
        ensure!(least <= Some(counted), "{way}: {counted} {found}");
        ensure!(Some(counted) <= most, "{way}: {counted} {found}");
        ensure!(counted > 0.0, "{way}: nothing was lost");
    }
    Ok(())
}

/// A packet of 1,400 L2 bytes takes 1.12 ms at 10 Mbit/s, and the last one of ten arrives nine packets after the first.
#[test_support::test(Namespaces)]
fn both_directions_spread_a_train_by_the_time_of_its_packets() -> Result<()> {
    const PACKET_MS: f64 = 1.12;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("measured");
    let mut command = farwire();
    command.args(["exec", "--rate", "10mbit", "--delay", "5ms", "--"]);
    command.arg(process::program());
    command.args(["measure", "probe", "10.77.0.2", "-c", "500", "-i", "40ms"]);
    command.args(["--train", "10", "-s", "1358", "-W", "20s", "--json"]);
    process::succeeds(command.arg(&file))?;
    let measured: Value = serde_json::from_str(&fs::read_to_string(file)?)?;
    let fact = measured["facts"]["train"].as_str().context("a fact")?;
    has(fact, "(50 of 50 up, 50 down)")?;
    has(
        fact,
        "the far end answers a train when its last probe has arrived",
    )?;
    let of = |metric, statistic, way| figure(&measured, metric, statistic, way);
    for way in ["up", "down"] {
        let spread = of("in_train_ms", "median", Some(way))? / (9.0 * PACKET_MS);
        ensure!((0.8..1.25).contains(&spread), "{way}: {spread}");
        ensure!(of("lost_packets", "total", Some(way))? == 0.0, "{way}");
        ensure!(of("reordered_packets", "total", Some(way))? == 0.0, "{way}");
        let samples = samples(&measured, "in_train_ms", way)?;
        let numbers = samples.iter().filter_map(|sample| sample["index"].as_u64());
        ensure!(
            numbers.eq((1..=50_u64).flat_map(|train| [train; 10])),
            "{way}"
        );
        let firsts = samples.iter().step_by(10);
        ensure!(firsts.clone().count() == 50, "{way}");
        ensure!(firsts.clone().all(|first| first["value"] == 0.0), "{way}");
    }
    ensure!(of("lost_packets", "total", None)? == 0.0);
    // The first packet of a train waits for no other one. The median packet waits for four and a half others in each direction. The
    // wait at the far end is part of rtt only, and lasts until the last packet has arrived.
    let least = of("network_rtt_ms", "min", None)? / (10.0 + 2.0 * PACKET_MS);
    ensure!((0.97..1.5).contains(&least), "{least}");
    let median = of("network_rtt_ms", "median", None)? / (10.0 + 11.0 * PACKET_MS);
    ensure!((0.9..1.5).contains(&median), "{median}");
    let rtt = of("rtt_ms", "median", None)? / (10.0 + 15.5 * PACKET_MS);
    ensure!((0.9..1.5).contains(&rtt), "{rtt}");
    Ok(())
}

/// Returns a request with this number at this place of a train.
fn in_train(number: u8, place: u8, length: u8) -> Vec<u8> {
    let mut request = vec![0; BASE];
    request[3] = number;
    request.extend([0x80, 252, 0, 4, 0, place, 0, length]);
    request
}

#[test_support::test]
fn a_train_is_answered_when_it_is_complete_or_after_a_second() -> Result<()> {
    let far_end = FarEnd::start(farwire().arg("serve"))?;
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_read_timeout(Some(process::PATIENCE))?;
    socket.connect(far_end.address("stamp")?)?;
    let answered = |number: u8| -> Result<()> {
        let mut answer = [0; 100];
        let got = process::uninterrupted(|| socket.recv(&mut answer))?;
        ensure!(got == BASE + 8, "{got} bytes");
        ensure!(answer[27] == number, "{number}: {answer:?}");
        // The reflector has understood the extension.
        ensure!(answer[BASE] == 0, "{number}: {answer:?}");
        Ok(())
    };
    // The last probe of the first train never comes.
    let began = Instant::now();
    socket.send(&in_train(0, 0, 3))?;
    socket.send(&in_train(1, 1, 3))?;
    answered(0)?;
    ensure!(began.elapsed() >= Duration::from_secs(1), "{began:?}");
    answered(1)?;
    socket.send(&in_train(3, 0, 2))?;
    socket.send(&in_train(4, 1, 2))?;
    answered(3)?;
    answered(4)
}

#[test_support::test]
fn a_reflector_that_does_not_know_trains_is_named() -> Result<()> {
    let (address, _reflector) = reflect(20, |socket, request, number, from| {
        socket.send_to(&answer(request, number), from).map(drop)
    })?;
    let measured = probed(address, "-c 20 -i 1ms --train 10 -s 112 -W 20s")?;
    ensure!(figure(&measured, "received_packets", "total", None)? == 20.0);
    let fact = measured["facts"]["train"].as_str().context("a fact")?;
    has(fact, "the far end does not know trains")
}

#[test_support::test]
fn a_train_without_room_for_its_extension_is_bad_input() -> Result<()> {
    for (arguments, cause) in [
        ("--train 2", "must have 112 to 65507 payload bytes, not 104"),
        ("--train 2 -s 112 --under tcp:1", "cannot be used with"),
    ] {
        let output = probe(SocketAddr::from(([127, 0, 0, 1], 9)), arguments)?;
        ensure!(output.status.code() == Some(2), "{}", said(&output));
        has(&said(&output), cause)?;
    }
    Ok(())
}

fn foreign_reflector(stateful: bool) -> Result<()> {
    let port = UdpSocket::bind("127.0.0.1:0")?.local_addr()?.port();
    let mut command = Command::new(process::peer(PEER));
    command.args([
        "--is-reflector",
        "--local-addr",
        "127.0.0.1",
        "--local-port",
    ]);
    command.arg(port.to_string());
    if stateful {
        command.arg("--stateful-reflector");
    }
    let _reflector = Running::start(&mut command)?;
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let attempt = || {
        let output = probe(address, "-c 1 -W 100ms")?;
        Ok(output.status.success().then_some(()))
    };
    process::wait_for("the reflector to answer", attempt)?;
    let measured = probed(address, "-c 100 -i 1ms -W 20s")?;
    ensure!(figure(&measured, "lost_packets", "total", None)? == 0.0);
    ensure!(figure(&measured, "network_rtt_ms", "median", None)? > 0.0);
    let fact = |name: &str| {
        measured["facts"][name]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    ensure!(
        fact("far_end").starts_with("not farwire"),
        "{}",
        fact("far_end")
    );
    ensure!(
        fact("one_way_delay").starts_with("variation only"),
        "{}",
        fact("one_way_delay")
    );
    let told = fact("network_rtt").contains("Follow-Up");
    ensure!(told == stateful, "{}", fact("network_rtt"));
    Ok(())
}

#[test_support::test(Peer(PEER))]
fn anothers_sender_takes_our_reflectors_answers() -> Result<()> {
    let far_end = FarEnd::start(farwire().arg("serve"))?;
    let port = far_end.address("stamp")?.port().to_string();
    let mut command = Command::new(process::peer(PEER));
    command.args(["--remote-addr", "127.0.0.1", "--remote-port", &port]);
    command.args(["--count", "20", "--send-delay", "5ms"]);
    // farwire does not know the extensions for location and time stamp information.
    command.args([
        "--follow-up-telemetry",
        "--direct-measurement",
        "--cos",
        "--location",
        "--timestamp-info",
    ]);
    let output = process::succeeds(&mut command)?;
    let text = stdout(&output);
    for line in [
        "Packets received: 20",
        "Replies: 20 unique, 0 additional, 0 late, 0 duplicates, 0 reordered, 0 unknown",
        "forward missing 0, reverse missing 0",
        "Follow-Up: 19 matched, 0 repeated, 0 unmatched",
    ] {
        ensure!(text.contains(line), "{line}: {text}");
    }
    Ok(())
}

#[test_support::test]
fn a_sender_of_twamp_light_gets_its_answer_of_less_than_three_times_its_length() -> Result<()> {
    let far_end = FarEnd::start(farwire().arg("serve"))?;
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    socket.connect(far_end.address("stamp")?)?;
    // The request has number, time, error estimate, and padding that is not zero.
    let mut request = [0xa5; 44];
    for (count, (length, due)) in [(13, None), (14, Some(41)), (41, Some(41)), (44, Some(44))]
        .into_iter()
        .enumerate()
    {
        request[3] = u8::try_from(count)?;
        socket.send(&request[..length])?;
        let Some(due) = due else { continue };
        let mut answer = [0; 100];
        let got = process::uninterrupted(|| socket.recv(&mut answer))?;
        ensure!(got == due, "{got} bytes for {length}");
        // The answer has the request as it came, and the TTL of a loopback.
        ensure!(answer[24..38] == request[..14], "{answer:?}");
        ensure!(answer[40] == 64, "{answer:?}");
    }
    Ok(())
}

#[test_support::test]
fn a_port_where_nobody_listens_is_one_clear_error() -> Result<()> {
    // This port was free a moment ago.
    let address = UdpSocket::bind("127.0.0.1:0")?.local_addr()?;
    fails(
        address,
        "-c 100",
        "refuses, as 127.0.0.1 reports (ICMP port unreachable)",
    )
}

#[test_support::test]
fn a_reflector_that_never_answers_is_one_clear_error() -> Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    fails(
        socket.local_addr()?,
        "-c 3 -i 1ms -W 50ms",
        "no answer from 127.0.0.1:",
    )
}

#[test_support::test]
fn a_reflector_that_vanishes_leaves_what_was_measured() -> Result<()> {
    let (address, reflector) = reflect(10, |socket, request, number, from| {
        socket.send_to(&answer(request, number), from).map(drop)
    })?;
    let output = probe(address, "-c 1000 -i 5ms")?;
    reflector
        .join()
        .map_err(|_| anyhow::anyhow!("the reflector panicked"))??;
    ensure!(output.status.code() == Some(1), "{}", said(&output));
    has(&said(&output), "the reflector disappeared after 10 answers")?;
    let measured: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(figure(&measured, "received_packets", "total", None)? == 10.0);
    Ok(())
}

#[test_support::test]
fn garbage_is_no_answer() -> Result<()> {
    let (address, _reflector) = reflect(30, |socket, request, number, from| {
        let mut wrong = answer(request, number);
        match number % 3 {
            0 => wrong.truncate(TRUNCATED - 1),
            // The time stamp of another request.
            1 => wrong[30] ^= 1,
            // A number that was not sent.
            _ => wrong[24] = 0xff,
        }
        socket.send_to(&wrong, from).map(drop)
    })?;
    fails(
        address,
        "-c 30 -i 1ms -W 2s",
        " packets arrived that answer none of them",
    )
}

#[test_support::test]
fn a_reflector_whose_answers_lack_their_end_is_recognised_and_named() -> Result<()> {
    let (address, _reflector) = reflect(20, |socket, request, number, from| {
        socket
            .send_to(&answer(request, number)[..TRUNCATED], from)
            .map(drop)
    })?;
    let measured = probed(address, "-c 20 -i 1ms -W 20s")?;
    ensure!(figure(&measured, "received_packets", "total", None)? == 20.0);
    let far_end = measured["facts"]["far_end"].as_str().context("a fact")?;
    has(far_end, "not farwire")?;
    has(far_end, "answers of 38 bytes, without the TTL")?;
    has(far_end, "nokia/twampy")
}

#[test_support::test]
fn an_answer_from_elsewhere_is_no_answer() -> Result<()> {
    let other = UdpSocket::bind("127.0.0.1:0")?;
    let (address, _reflector) = reflect(5, move |_, request, number, from| {
        other.send_to(&answer(request, number), from).map(drop)
    })?;
    fails(address, "-c 5 -i 1ms -W 100ms", "no answer from")
}

#[test_support::test]
fn a_replayed_answer_is_a_duplicate() -> Result<()> {
    let (address, reflector) = reflect(20, |socket, request, number, from| {
        let answer = answer(request, number);
        socket.send_to(&answer, from)?;
        socket.send_to(&answer, from).map(drop)
    })?;
    let measured = probed(address, "-c 20 -i 2ms -W 20s")?;
    reflector
        .join()
        .map_err(|_| anyhow::anyhow!("the reflector panicked"))??;
    ensure!(figure(&measured, "received_packets", "total", None)? == 20.0);
    ensure!(figure(&measured, "lost_packets", "total", None)? == 0.0);
    // The duplicate of the last answer may come after the measurement has all its answers.
    ensure!(figure(&measured, "duplicate_packets", "total", None)? >= 19.0);
    Ok(())
}

#[test_support::test]
fn answers_without_end_end_the_measurement() -> Result<()> {
    let (address, reflector) = reflect(1, |socket, request, number, from| {
        let answer = answer(request, number);
        // Only a connected socket learns that the other end is closed.
        socket.connect(from)?;
        while socket.send(&answer).is_ok() {}
        Ok(())
    })?;
    fails(address, "-c 100 -i 100ms", "keeps sending packets")?;
    let ended = reflector.join();
    ended.map_err(|_| anyhow::anyhow!("the reflector panicked"))??;
    Ok(())
}

#[test_support::test]
fn a_size_that_no_packet_can_have_is_bad_input() -> Result<()> {
    let output = process::run(farwire().args(["measure", "probe", "127.0.0.1", "-s", "45"]))?;
    ensure!(output.status.code() == Some(2), "{}", said(&output));
    ensure!(said(&output).contains("use 44 or 48"), "{}", said(&output));
    Ok(())
}

/// Starts a reflector that calls `react` for each of the first `most` requests, and then ends.
fn reflect(
    most: u32,
    react: impl Fn(&UdpSocket, &[u8], u32, SocketAddr) -> std::io::Result<()> + Send + 'static,
) -> Result<(SocketAddr, JoinHandle<std::io::Result<()>>)> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_read_timeout(Some(process::PATIENCE))?;
    let address = socket.local_addr()?;
    let reflector = thread::spawn(move || {
        let mut buffer = [0; 2048];
        for number in 0..most {
            let (length, from) = process::uninterrupted(|| socket.recv_from(&mut buffer))?;
            react(&socket, &buffer[..length], number, from)?;
        }
        Ok(())
    });
    Ok((address, reflector))
}

/// Builds the answer to `request` that RFC 8762 requires, from a reflector that counts and whose clock does not advance.
fn answer(request: &[u8], number: u32) -> Vec<u8> {
    let mut answer = vec![0; BASE];
    answer[0..4].copy_from_slice(&number.to_be_bytes());
    answer[4..12].copy_from_slice(&request[4..12]);
    answer[13] = 1;
    answer[14..16].copy_from_slice(&request[14..16]);
    answer[16..24].copy_from_slice(&request[4..12]);
    answer[24..38].copy_from_slice(&request[0..14]);
    answer[40] = 64;
    answer
}

/// A program that is ended with the test.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Result<Self> {
        let null = Stdio::null;
        Ok(Self(
            command
                .stdin(null())
                .stdout(null())
                .stderr(null())
                .spawn()?,
        ))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test_support::test]
fn a_file_that_cannot_be_written_is_found_before_measuring() -> Result<()> {
    for option in ["--json", "--csv"] {
        let mut command = farwire();
        // If it measured, it would fail with 1.
        command.args(["measure", "probe", "127.0.0.1:9", "-c", "1"]);
        let output = process::run(command.args([option, "/nowhere/results"]))?;
        ensure!(output.status.code() == Some(2), "{}", said(&output));
        let cause = "/nowhere/results: cannot write";
        ensure!(said(&output).contains(cause), "{}", said(&output));
        ensure!(output.stdout.is_empty(), "{output:?}");
    }
    Ok(())
}

fn probe(address: SocketAddr, arguments: &str) -> Result<Output> {
    let mut command = farwire();
    command.args(["measure", "probe", &address.to_string(), "--json", "-"]);
    process::run(command.args(arguments.split_whitespace()))
}

fn probed(address: SocketAddr, arguments: &str) -> Result<Value> {
    let output = process::succeeded(probe(address, arguments)?)?;
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn fails(address: SocketAddr, arguments: &str, cause: &str) -> Result<()> {
    let output = probe(address, arguments)?;
    ensure!(output.status.code() == Some(1), "{}", said(&output));
    ensure!(said(&output).contains(cause), "{}", said(&output));
    Ok(())
}

fn said(output: &Output) -> String {
    stderr(output)
}

fn samples<'a>(measured: &'a Value, metric: &str, direction: &str) -> Result<Vec<&'a Value>> {
    let samples = measured["samples"].as_array().context("samples")?;
    let wanted = |sample: &&Value| sample["metric"] == metric && sample["direction"] == direction;
    Ok(samples.iter().filter(wanted).collect())
}

fn figure(measured: &Value, metric: &str, statistic: &str, direction: Option<&str>) -> Result<f64> {
    let figures = measured["figures"].as_array().context("figures")?;
    let found = figures.iter().find(|figure| {
        figure["metric"] == metric
            && figure["statistic"] == statistic
            && figure["direction"].as_str() == direction
    });
    let value = found.and_then(|figure| figure["value"].as_f64());
    value.with_context(|| format!("{metric} {statistic} {direction:?}: {figures:?}"))
}
