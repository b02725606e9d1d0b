//! `measure quality` through links whose queues are known: its verdicts, and its figures beside the packet log.

use std::fs;
use std::net::UdpSocket;
use std::process::Output;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stats::order_statistics::{percentile, quantile, sorted};

use test_support::process::{self, farwire, has, stderr, stdout};

/// The far end of `farwire exec`.
const SERVER: &str = "10.77.0.2";
/// The port of its STAMP reflector.
const STAMP: &str = "862";
/// The port of the loads.
const IPERF3: &str = "5201";
/// The headers of a TCP segment with timestamps over IPv4 at L2.
const TCP_HEADERS: u64 = 14 + 20 + 32;
/// The phases in their order, each with the directions of its load.
const PHASES: [(&str, &[&str]); 4] = [
    ("idle", &[]),
    ("loaded_down", &["down"]),
    ("loaded_up", &["up"]),
    ("loaded_both", &["up", "down"]),
];
/// The most probes that farwire sends to find the reflector, or to find out whether a queue is empty.
const FEW: usize = 5;

/// A link, and the verdict that it deserves.
struct Known {
    link: &'static str,
    grade: &'static str,
    /// The fact `bloated`, if there is one.
    bloated: Option<&'static str>,
    /// Whether TCP leaves no holes in this link, so that a receiver reads what has just arrived.
    is_steady: bool,
}

#[test_support::test(serial, Namespaces, All)]
fn a_queue_of_a_second_is_bloated_in_both_directions() -> Result<()> {
    let measured = judge(&Known {
        link: "--delay 10ms --rate 10mbit --queue 1s",
        grade: "bloated",
        bloated: Some("up down"),
        is_steady: false,
    })?;
    has(fact(&measured, "queue"), "filled down (packets wait ")?;
    ensure!(measured["facts"]["unfilled"].is_null(), "{measured}");
    for phase in ["loaded_down", "loaded_up", "loaded_both"] {
        let rpm = figure(&measured, "responsiveness_per_min", "mean", phase, None)?;
        // TCP does not fill a queue of a second in every phase, but the round trips are never good.
        ensure!(rpm < 1000.0, "{phase}: {rpm}");
    }
    Ok(())
}

#[test_support::test(serial, Namespaces, All)]
fn fq_codel_at_the_same_rate_is_good() -> Result<()> {
    judge(&Known {
        link: "--delay 10ms --rate 10mbit --queue 1s --aqm fq_codel",
        grade: "good",
        bloated: None,
        is_steady: true,
    })
    .map(drop)
}

#[test_support::test(serial, Namespaces, All)]
fn loss_with_a_short_queue_is_good_latency_and_the_loss_is_named() -> Result<()> {
    let measured = judge(&Known {
        link: "--delay 10ms --rate 20mbit --queue 10ms --loss 3% --seed 1",
        grade: "good",
        bloated: None,
        is_steady: false,
    })?;
    has(fact(&measured, "idle loss"), "% of the probes (")
}

#[test_support::test(serial, Namespaces, All)]
fn a_queue_of_a_second_is_bloated_over_a_satellite_too() -> Result<()> {
    // The default time. Each of the three loads takes up to twenty round trips until its streams run.
    let link = "--delay 300ms --rate 10mbit --queue 1s";
    let (measured, rows, output) = through(link, "20s", Duration::from_secs(120))?;
    let told = || format!("{}{}", stdout(&output), stderr(&output));
    ensure!(fact(&measured, "grade") == "bloated", "{}", told());
    let sessions = sessions(&rows);
    ensure!(
        sessions.len() == PHASES.len(),
        "{} sessions",
        sessions.len()
    );
    // The load fills the link while the probes are sent, and not only afterwards.
    for ((phase, load), session) in PHASES.into_iter().zip(&sessions) {
        for way in load {
            let carried = carried(&rows, way, session);
            ensure!(carried > 2e6, "{phase} {way}: {carried}: {}", told());
        }
    }
    Ok(())
}

#[test_support::test(serial, Namespaces)]
fn a_slow_uplink_with_a_long_queue_is_bloated_upwards_only() -> Result<()> {
    let measured = judge(&Known {
        link: "--delay 10ms --up-rate 1mbit --up-queue 1s --down-rate 20mbit --down-queue 10ms",
        grade: "bloated",
        bloated: Some("up"),
        is_steady: false,
    })?;
    has(fact(&measured, "verdict"), "bloated upwards: ")
}

#[test_support::test(serial, Namespaces, All)]
fn a_clean_path_is_good() -> Result<()> {
    let measured = judge(&Known {
        link: "--rate 50mbit --queue 10ms",
        grade: "good",
        bloated: None,
        is_steady: true,
    })?;
    ensure!(measured["facts"]["idle loss"].is_null(), "{measured}");
    for phase in ["loaded_down", "loaded_up", "loaded_both"] {
        let rpm = figure(&measured, "responsiveness_per_min", "mean", phase, None)?;
        ensure!(rpm > 1000.0, "{phase}: {rpm}");
    }
    Ok(())
}

#[test_support::test]
fn a_far_end_without_a_reflector_is_one_clear_error() -> Result<()> {
    // This port was free a moment ago.
    let port = UdpSocket::bind("127.0.0.1:0")?.local_addr()?.port();
    let mut command = farwire();
    command.args(["measure", "quality", "127.0.0.1", "--stamp-port"]);
    let output = process::run(command.arg(port.to_string()))?;
    process::ends_with(&output, 1, "no STAMP reflector listens there")?;
    Ok(())
}

#[test_support::test]
fn a_time_that_is_too_short_is_bad_input() -> Result<()> {
    let mut command = farwire();
    let output = process::run(command.args(["measure", "quality", "127.0.0.1", "--time", "5s"]))?;
    process::ends_with(&output, 2, "must be from 14s to 3600s")?;
    Ok(())
}

/// Measures through a link and checks the verdict and the figures. Returns the measurement.
fn judge(known: &Known) -> Result<Value> {
    let (measured, rows, output) = through(known.link, "16s", Duration::ZERO)?;
    let text = stdout(&output);
    let told = || format!("{}: {text}{}", known.link, stderr(&output));
    verdict(known, &measured, &text).with_context(told)?;
    agrees(known, &measured, &rows).with_context(told)?;
    Ok(measured)
}

/// Measures through a link in this time and, on a long path, up to `longer`. Returns the measurement, the packets that the
/// link saw, and what the program printed.
fn through(link: &str, time: &str, longer: Duration) -> Result<(Value, Vec<Row>, Output)> {
    let directory = tempfile::tempdir()?;
    let [log, json] = ["log", "measured"].map(|name| directory.path().join(name));
    let mut command = farwire();
    command.arg("exec").args(link.split_whitespace());
    command.arg("--packet-log").arg(&log);
    command.arg("--").arg(process::program());
    command.args(["measure", "quality", SERVER, "--time", time]);
    command.arg("--json").arg(&json);
    let output = process::succeeded(process::run_for(&mut command, longer)?)?;
    let measured = serde_json::from_str(&fs::read_to_string(json)?)?;
    let rows = rows(&fs::read_to_string(log)?)?;
    Ok((measured, rows, output))
}

fn verdict(known: &Known, measured: &Value, text: &str) -> Result<()> {
    let grade = fact(measured, "grade");
    ensure!(grade == known.grade, "{grade}");
    let bloated = measured["facts"]["bloated"].as_str();
    ensure!(bloated == known.bloated, "{bloated:?}");
    has(fact(measured, "thresholds"), "dslreports.com/faq/17930")?;
    has(text, fact(measured, "verdict"))?;
    // One screen of a terminal with 80 columns.
    let height: usize = text
        .lines()
        .map(|line| line.chars().count().div_ceil(80).max(1))
        .sum();
    ensure!(height <= 24, "{height} lines");
    Ok(())
}

/// Checks the figures of all phases against the packet log.
fn agrees(known: &Known, measured: &Value, rows: &[Row]) -> Result<()> {
    let sessions = sessions(rows);
    ensure!(
        sessions.len() == PHASES.len(),
        "{} sessions",
        sessions.len()
    );
    let mut idle = None;
    for ((phase, load), session) in PHASES.into_iter().zip(&sessions) {
        let crossed = Crossed::of(rows, session).with_context(|| phase.to_owned())?;
        let told = || format!("{phase}: {crossed:?}");
        crossed.losses_agree(measured, phase).with_context(told)?;
        crossed.times_agree(measured, phase).with_context(told)?;
        match &idle {
            None => idle = Some(crossed),
            Some(idle) => crossed
                .increases_agree(measured, phase, idle)
                .with_context(told)?,
        }
        for way in load.iter().filter(|_| known.is_steady) {
            let stated = figure(measured, "goodput_bit_per_s", "mean", phase, Some(way))?;
            let carried = carried(rows, way, session);
            let difference = (stated - carried).abs() / carried;
            ensure!(difference < 0.15, "{phase} {way}: {stated}, {carried}");
        }
    }
    Ok(())
}

/// The packets of a session of probes that the link saw.
struct Session<'a> {
    requests: Vec<&'a Row>,
    answers: Vec<&'a Row>,
}

/// The times of a session in milliseconds, as the link counted them.
#[derive(Debug)]
struct Crossed {
    sent: usize,
    lost: [usize; 2],
    round_trips: Vec<f64>,
    one_way: [Vec<f64>; 2],
}

impl Crossed {
    /// Returns the times of the probes that were answered. The reflector answers in the order of the requests.
    fn of(rows: &[Row], session: &Session<'_>) -> Result<Self> {
        let arrived: Vec<&&Row> = session
            .requests
            .iter()
            .filter(|row| row.is_delivered())
            .collect();
        let answers = &session.answers;
        ensure!(
            arrived.len() == answers.len(),
            "{} requests arrived, {} answers left; {} rows",
            arrived.len(),
            answers.len(),
            rows.len()
        );
        let answered = arrived
            .iter()
            .zip(answers)
            .filter(|(_, answer)| answer.is_delivered());
        let (mut round_trips, mut one_way) = (Vec::new(), [Vec::new(), Vec::new()]);
        for (request, answer) in answered {
            let (up, down) = (request.took_ms()?, answer.took_ms()?);
            round_trips.push(up + down);
            one_way[0].push(up);
            one_way[1].push(down);
        }
        Ok(Self {
            sent: session.requests.len(),
            lost: [
                session.requests.len() - arrived.len(),
                answers.len() - round_trips.len(),
            ],
            round_trips,
            one_way,
        })
    }

    fn losses_agree(&self, measured: &Value, phase: &str) -> Result<()> {
        let stated = |metric, statistic| figure(measured, metric, statistic, phase, None);
        let lost = self.lost[0] + self.lost[1];
        ensure!(stated("sent_packets", "total")? == self.sent as f64);
        ensure!(stated("lost_packets", "total")? == lost as f64);
        let percent = 100.0 * lost as f64 / self.sent as f64;
        ensure!((stated("lost_percent", "mean")? - percent).abs() < 1e-6);
        Ok(())
    }

    /// Checks the quantiles of the round trips. The kernels' stamps include what the hosts add.
    fn times_agree(&self, measured: &Value, phase: &str) -> Result<()> {
        let all = sorted(&self.round_trips);
        let mut of_log = vec![("median", quantile(&all, 0.5))];
        // One interruption of a busy host moves the percentiles of so few probes.
        if test_support::is_all() {
            of_log.push(("p95", percentile(&all, 0.95)));
            of_log.push(("p99", percentile(&all, 0.99)));
        }
        for (statistic, value) in of_log {
            let value = value.context("no probe was answered")?;
            let stated = figure(measured, "network_rtt_ms", statistic, phase, None)?;
            is_near(stated, value).with_context(|| statistic.to_owned())?;
        }
        Ok(())
    }

    fn increases_agree(&self, measured: &Value, phase: &str, idle: &Self) -> Result<()> {
        let median = |values: &[f64]| quantile(&sorted(values), 0.5).context("no values");
        let more = |loaded: &[f64], idle: &[f64]| Ok(median(loaded)? - median(idle)?);
        let compared: [(Option<&str>, Result<f64>); 3] = [
            (None, more(&self.round_trips, &idle.round_trips)),
            (Some("up"), more(&self.one_way[0], &idle.one_way[0])),
            (Some("down"), more(&self.one_way[1], &idle.one_way[1])),
        ];
        for (way, value) in compared {
            let stated = figure(measured, "latency_increase_ms", "median", phase, way)?;
            is_near(stated, value?).with_context(|| format!("increase {way:?}"))?;
        }
        Ok(())
    }
}

/// Fails unless a time of the instrument differs from that of the link by less than a busy machine's hosts may add.
fn is_near(stated: f64, of_log: f64) -> Result<()> {
    let most = 5.0 + 0.03 * of_log.abs();
    ensure!((stated - of_log).abs() < most, "{stated} ms, {of_log} ms");
    Ok(())
}

/// A packet of the log.
struct Row {
    is_up: bool,
    bytes: u64,
    arrival_ns: u64,
    departure_ns: Option<u64>,
    is_tcp: bool,
    /// The ports of source and destination.
    ports: [String; 2],
}

impl Row {
    fn is_delivered(&self) -> bool {
        self.departure_ns.is_some()
    }

    /// Returns the time in the link in milliseconds.
    fn took_ms(&self) -> Result<f64> {
        let departure = self.departure_ns.context("it did not leave")?;
        Ok(departure.saturating_sub(self.arrival_ns) as f64 / 1e6)
    }
}

/// Reads the packets of TCP and UDP.
fn rows(text: &str) -> Result<Vec<Row>> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers()?.clone();
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record?;
        let of = |name: &str| {
            let column = header.iter().position(|column| column == name);
            column
                .and_then(|column| record.get(column))
                .context("a column")
        };
        if !["tcp", "udp"].contains(&of("protocol")?) {
            continue;
        }
        rows.push(Row {
            is_up: of("direction")? == "up",
            bytes: of("bytes")?.parse()?,
            arrival_ns: of("arrival_ns")?.parse()?,
            departure_ns: match of("verdict")? {
                "delivered" => Some(of("departure_ns")?.parse()?),
                _ => None,
            },
            is_tcp: of("protocol")? == "tcp",
            ports: [
                of("source_port")?.to_owned(),
                of("destination_port")?.to_owned(),
            ],
        });
    }
    // Packets of one direction may leave in another order than they arrived in.
    rows.sort_by_key(|row| row.arrival_ns);
    Ok(rows)
}

/// Returns the sessions with the probes of a phase, in their order.
fn sessions(rows: &[Row]) -> Vec<Session<'_>> {
    let mut ports: Vec<&str> = Vec::new();
    let is_request = |row: &Row| !row.is_tcp && row.is_up && row.ports[1] == STAMP;
    for row in rows.iter().filter(|row| is_request(row)) {
        if !ports.contains(&row.ports[0].as_str()) {
            ports.push(&row.ports[0]);
        }
    }
    let of = |port: &str| {
        let is_answer = |row: &Row| !row.is_tcp && !row.is_up && row.ports == [STAMP, port];
        Session {
            requests: rows
                .iter()
                .filter(|row| is_request(row) && row.ports[0] == port)
                .collect(),
            answers: rows.iter().filter(|row| is_answer(row)).collect(),
        }
    };
    let all = ports.into_iter().map(of);
    all.filter(|session| session.requests.len() > FEW).collect()
}

/// Returns the payload in bits a second that the link delivered to the loads' receiver while the probes of a session were sent.
fn carried(rows: &[Row], way: &str, session: &Session<'_>) -> f64 {
    let ends = [session.requests.first(), session.requests.last()];
    let [first, last] = ends.map(|row| row.map_or(0, |row| row.arrival_ns));
    let is_of_load = |row: &&Row| {
        let server = if row.is_up {
            &row.ports[1]
        } else {
            &row.ports[0]
        };
        row.is_tcp && row.is_up == (way == "up") && server == IPERF3
    };
    let is_within = |row: &&Row| {
        let departure = row.departure_ns.unwrap_or_default();
        (first..last).contains(&departure)
    };
    let all = rows.iter().filter(is_of_load).filter(is_within);
    let payload: u64 = all.map(|row| row.bytes.saturating_sub(TCP_HEADERS)).sum();
    payload as f64 * 8e9 / (last - first) as f64
}

fn fact<'a>(measured: &'a Value, name: &str) -> &'a str {
    measured["facts"][name].as_str().unwrap_or_default()
}

/// Returns the value of a figure of a phase.
fn figure(
    measured: &Value,
    metric: &str,
    statistic: &str,
    phase: &str,
    direction: Option<&str>,
) -> Result<f64> {
    let figures = measured["figures"].as_array().context("figures")?;
    let found = figures.iter().find(|figure| {
        figure["metric"] == metric
            && figure["statistic"] == statistic
            && figure["phase"] == phase
            && figure["direction"].as_str() == direction
    });
    let value = found.and_then(|figure| figure["value"].as_f64());
    value.with_context(|| format!("{metric} {statistic} {phase} {direction:?}"))
}
