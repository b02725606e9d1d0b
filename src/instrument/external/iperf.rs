//! iperf 2 as an instrument, by its enhanced reports (`-e`) in bits a second: its CSV (`-y C`) has neither retransmissions nor RTT.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::{Result, bail, ensure};

use super::launch::{Launcher, Output, Tool};
use super::streams::{self, StreamTool, amount, direction, word, words};
use crate::endpoint::Local;
use crate::instrument::iperf3::plan::{Plan, Protocol, Way};
use crate::instrument::{Figure, Measurement, Metric, Sample, Session, Statistic};

/// The port on which iperf serves unless told otherwise.
pub(crate) const PORT: u16 = 5001;

/// Measures streams to and from the iperf 2 server at `target`.
pub(crate) fn measure(
    launcher: &dyn Launcher,
    target: SocketAddr,
    plan: &Plan,
    local: Option<&Local>,
    session: &Session,
) -> Measurement {
    streams::measure(&Iperf, launcher, target, plan, local, session)
}

/// Whether iperf has options for all of `plan`.
///
/// # Errors
/// It has not; says for what.
pub(crate) fn check(target: SocketAddr, plan: &Plan, local: Option<&Local>) -> Result<()> {
    ensure!(
        plan.way != Way::Down || plan.congestion.is_none(),
        "iperf's server chooses the congestion control of a reverse test: start it with -Z"
    );
    Iperf.arguments(target, plan, local).map(drop)
}

/// The iperf on PATH.
///
/// # Errors
/// It is not there.
pub(crate) fn tool() -> Result<Tool> {
    Tool::find("iperf", "-v", "iperf")
}

/// How its server is started for `plan`, at an address of the target's IP version.
pub(crate) fn server_arguments(target: SocketAddr, plan: &Plan) -> Vec<String> {
    let mut arguments = vec!["-s".to_owned()];
    let congestion = plan.congestion.clone().filter(|_| plan.way == Way::Down);
    arguments.extend(words([("-p", word(target.port())), ("-Z", congestion)]));
    for (flag, wanted) in [
        ("-V", target.is_ipv6()),
        ("-u", plan.protocol == Protocol::Udp),
    ] {
        arguments.extend(wanted.then(|| flag.to_owned()));
    }
    arguments
}

pub(super) struct Iperf;

impl StreamTool for Iperf {
    fn tool(&self) -> Result<Tool> {
        tool()
    }

    fn arguments(
        &self,
        target: SocketAddr,
        plan: &Plan,
        local: Option<&Local>,
    ) -> Result<Vec<String>> {
        let time = streams::plain_time("iperf", plan)?;
        let address = match local {
            Some(Local::Address(address)) => word(address),
            Some(Local::Interface(name)) => {
                bail!("iperf takes an address to bind to, not an interface ({name})")
            }
            None => None,
        };
        // The sender's, which is the server in a reverse test.
        let congestion = plan.congestion.clone().filter(|_| plan.way == Way::Up);
        let mut arguments = vec!["-e".to_owned()];
        arguments.extend(words([
            ("-c", word(target.ip())),
            ("-p", word(target.port())),
            ("-f", word("b")),
            ("-t", word(time.as_secs_f64())),
            ("-i", word(plan.interval.as_secs_f64())),
            ("-P", word(plan.parallel)),
            ("-b", plan.bitrate.and_then(word)),
            ("-l", plan.length.and_then(word)),
            ("-w", plan.window.and_then(word)),
            ("-M", plan.mss.and_then(word)),
            ("-S", plan.tos.and_then(word)),
            ("-Z", congestion),
            ("-B", address),
        ]));
        for (flag, wanted) in [
            ("-V", target.is_ipv6()),
            ("-u", plan.protocol == Protocol::Udp),
            ("-R", plan.way == Way::Down),
            ("-N", plan.no_delay),
        ] {
            arguments.extend(wanted.then(|| flag.to_owned()));
        }
        Ok(arguments)
    }

    fn parse(&self, output: &Output, plan: &Plan) -> Measurement {
        Reports::of(output).measurement(output, plan)
    }
}

/// A line that reports on one stream, or on their sum.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    /// As iperf numbers it; absent for the sum.
    id: Option<u32>,
    start_s: f64,
    end_s: f64,
    bytes: f64,
    bit_per_s: f64,
    details: Details,
}

/// What else a row says.
#[derive(Clone, Debug, Default, PartialEq)]
struct Details {
    retransmits: Option<f64>,
    cwnd_bytes: Option<f64>,
    rtt_ms: Option<f64>,
    jitter_ms: Option<f64>,
    /// Lost and sent datagrams.
    lost: Option<(f64, f64)>,
}

/// Everything that was reported.
#[derive(Debug, Default)]
struct Reports {
    rows: Vec<Row>,
    /// What the server sent back of UDP that it received.
    server: Vec<Row>,
}

impl Reports {
    fn of(output: &Output) -> Self {
        let mut reports = Self::default();
        let mut from_server = false;
        for line in &output.lines {
            let text = line.text.trim();
            if text.ends_with("Server Report:") {
                from_server = true;
            } else if let Some(row) = row(text) {
                if from_server {
                    reports.server.push(row);
                } else {
                    reports.rows.push(row);
                }
            }
        }
        reports
    }

    fn measurement(&self, output: &Output, plan: &Plan) -> Measurement {
        let (intervals, totals) = self.split();
        let down = plan.way == Way::Down;
        let received: Vec<&Row> = match plan.protocol {
            _ if down => totals.clone(),
            Protocol::Udp => self.server.iter().collect(),
            Protocol::Tcp => Vec::new(),
        };
        let sent = if down { &[][..] } else { &totals };
        let mut figures = rates(sent, plan, Metric::SentBytes, Metric::SentRateBitPerS);
        figures.extend(rates(
            &received,
            plan,
            Metric::ReceivedBytes,
            Metric::GoodputBitPerS,
        ));
        figures.extend(details(&totals, plan));
        figures.extend(loss(&received, plan));
        let measurement = Measurement {
            samples: samples(&intervals, plan),
            figures,
            failure: failure(output, plan, &totals, &received),
            ..Measurement::default()
        };
        match plan.protocol {
            Protocol::Tcp if !down => measurement.with_fact(
                "sent rate",
                "what iperf handed to its socket (L7): up to a socket buffer more than arrived, which it does not say",
            ),
            _ => measurement.with_fact("goodput", "what the receiving end's iperf counted (L7)"),
        }
    }

    /// The rows of intervals, and of each stream the one over its whole time: the last that starts at 0.
    fn split(&self) -> (Vec<&Row>, Vec<&Row>) {
        let mut whole: BTreeMap<u32, usize> = BTreeMap::new();
        let streams = || {
            let rows = self.rows.iter().enumerate();
            rows.filter_map(|(at, row)| Some((at, row, row.id?)))
        };
        for (at, row, id) in streams() {
            if row.start_s == 0.0 {
                whole.insert(id, at);
            }
        }
        let (totals, intervals): (Vec<_>, Vec<_>) =
            streams().partition(|(at, _, id)| whole.get(id) == Some(at));
        let rows = |found: Vec<(usize, _, u32)>| found.into_iter().map(|(_, row, _)| row).collect();
        (rows(intervals), rows(totals))
    }
}

/// `[  1] 0.0000-1.0000 sec  626984 Bytes  5015872 bits/sec ...` and what its columns say.
fn row(line: &str) -> Option<Row> {
    let (id, rest) = line.strip_prefix('[')?.split_once(']')?;
    let id = match id.trim().trim_start_matches('*') {
        "SUM" => None,
        number => Some(number.parse().ok()?),
    };
    let mut words = rest.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let mut expect = |unit| words.next().filter(|word| *word == unit);
    expect("sec")?;
    let bytes = amount(words.next()?)?;
    let mut expect = |unit| words.next().filter(|word| *word == unit);
    expect("Bytes")?;
    let bit_per_s = amount(words.next()?)?;
    let mut expect = |unit| words.next().filter(|word| *word == unit);
    expect("bits/sec")?;
    let rest: Vec<&str> = words.collect();
    Some(Row {
        id,
        start_s: amount(start)?,
        end_s: amount(end)?,
        bytes,
        bit_per_s,
        details: Details::of(&rest),
    })
}

impl Details {
    fn of(words: &[&str]) -> Self {
        match words {
            // 6435/0 0 1023K/81(19) us 20825886
            [_writes, retransmits, window, "us", ..] => {
                let (cwnd, rtt) = window.split_once('/').unwrap_or_default();
                let rtt_us = rtt.split('(').next().and_then(amount);
                Self {
                    retransmits: amount(retransmits),
                    cwnd_bytes: kibibytes(cwnd),
                    rtt_ms: rtt_us.map(|us| us / 1e3),
                    ..Self::default()
                }
            }
            // 0.000 ms 0/867 (0%)
            [jitter, "ms", counts, ..] => {
                let counts = counts.split_once('/');
                Self {
                    jitter_ms: amount(jitter),
                    lost: counts.and_then(|(lost, sent)| Some((amount(lost)?, amount(sent)?))),
                    ..Self::default()
                }
            }
            _ => Self::default(),
        }
    }
}

/// `1023K`.
fn kibibytes(text: &str) -> Option<f64> {
    amount(text.strip_suffix('K')?).map(|kib| kib * 1024.0)
}

fn samples(intervals: &[&Row], plan: &Plan) -> Vec<Sample> {
    let direction = direction(plan);
    let bytes = match plan.way {
        Way::Down => Metric::ReceivedBytes,
        Way::Up | Way::Both => Metric::SentBytes,
    };
    let mut numbers: BTreeMap<Option<u32>, u64> = BTreeMap::new();
    let mut samples = Vec::new();
    for row in intervals {
        let index = numbers.entry(row.id).or_default();
        *index += 1;
        let details = &row.details;
        let found = [
            (bytes, Some(row.bytes)),
            (Metric::RetransmittedPackets, details.retransmits),
            (Metric::CongestionWindowBytes, details.cwnd_bytes),
            (Metric::TcpRttMs, details.rtt_ms),
            (Metric::JitterMs, details.jitter_ms),
            (Metric::LostPackets, details.lost.map(|(lost, _)| lost)),
        ];
        samples.extend(found.into_iter().filter_map(|(metric, value)| {
            let sample = Sample::new(row.end_s, metric, *index, value?).toward(direction);
            Some(match row.id {
                Some(id) if plan.parallel > 1 => sample.stream(id),
                _ => sample,
            })
        }));
    }
    samples
}

/// Bytes and rate of all streams together, and of each of several.
fn rates(totals: &[&Row], plan: &Plan, bytes: Metric, rate: Metric) -> Vec<Figure> {
    if totals.is_empty() {
        return Vec::new();
    }
    let direction = direction(plan);
    let sum = |value: fn(&Row) -> f64| totals.iter().map(|row| value(row)).sum::<f64>();
    let mut figures = vec![
        Figure::new(bytes, Statistic::Total, sum(|row| row.bytes)).toward(direction),
        Figure::new(rate, Statistic::Mean, sum(|row| row.bit_per_s)).toward(direction),
    ];
    for row in totals.iter().filter(|_| plan.parallel > 1) {
        let figure = Figure::new(rate, Statistic::Mean, row.bit_per_s).toward(direction);
        figures.extend(row.id.map(|id| figure.stream(id)));
    }
    figures
}

fn details(totals: &[&Row], plan: &Plan) -> Vec<Figure> {
    let direction = direction(plan);
    let retransmits: Vec<f64> = totals
        .iter()
        .filter_map(|r| r.details.retransmits)
        .collect();
    let sum = (!retransmits.is_empty()).then(|| retransmits.iter().sum());
    let ends = totals.iter().map(|row| row.end_s);
    let elapsed = ends.reduce(f64::max);
    [
        (Metric::ElapsedS, elapsed),
        (Metric::RetransmittedPackets, sum),
    ]
    .into_iter()
    .filter_map(|(metric, value)| {
        Some(Figure::new(metric, Statistic::Total, value?).toward(direction))
    })
    .collect()
}

/// Datagrams as the receiver counted them.
fn loss(received: &[&Row], plan: &Plan) -> Vec<Figure> {
    let counts: Vec<(f64, f64)> = received.iter().filter_map(|row| row.details.lost).collect();
    if counts.is_empty() {
        return Vec::new();
    }
    let direction = direction(plan);
    let lost: f64 = counts.iter().map(|(lost, _)| lost).sum();
    let sent: f64 = counts.iter().map(|(_, sent)| sent).sum();
    let percent = (sent > 0.0).then(|| 100.0 * lost / sent);
    let jitters: Vec<f64> = received
        .iter()
        .filter_map(|r| r.details.jitter_ms)
        .collect();
    let jitter = jitters.iter().sum::<f64>() / jitters.len().max(1) as f64;
    [
        (Metric::SentPackets, Statistic::Total, Some(sent)),
        (Metric::LostPackets, Statistic::Total, Some(lost)),
        (Metric::LostPercent, Statistic::Mean, percent),
        (Metric::JitterMs, Statistic::Mean, Some(jitter)),
    ]
    .into_iter()
    .filter_map(|(metric, statistic, value)| {
        Some(Figure::new(metric, statistic, value?).toward(direction))
    })
    .collect()
}

fn failure(output: &Output, plan: &Plan, totals: &[&Row], received: &[&Row]) -> Option<String> {
    if totals.is_empty() {
        return Some(format!(
            "iperf ended with code {}: {}",
            output.code,
            output.last_words()
        ));
    }
    let expects_report = plan.way == Way::Down || plan.protocol == Protocol::Udp;
    if expects_report && received.is_empty() {
        return Some("the server did not report what it received".to_owned());
    }
    let arrived: f64 = received.iter().map(|row| row.bytes).sum();
    (expects_report && arrived <= 0.0).then(|| "nothing arrived".to_owned())
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::launch::tests::captured;
    use super::super::streams::tests::plan;
    use super::*;
    use crate::instrument::Direction;

    /// iperf 2.1.8: two streams for two seconds, a row each second.
    pub(in super::super) const TCP: &str = include_str!("fixtures/iperf_tcp.txt");
    const REVERSE: &str = include_str!("fixtures/iperf_rev.txt");
    pub(in super::super) const UDP: &str = include_str!("fixtures/iperf_udp.txt");
    const SILENT: &str = include_str!("fixtures/iperf_silent.txt");

    fn parse(text: &str, plan: &Plan) -> Measurement {
        Iperf.parse(&captured(text, 0), plan)
    }

    fn figures(measurement: &Measurement, metric: Metric) -> Vec<f64> {
        let figures = measurement.figures.iter().filter(|f| f.metric == metric);
        figures.map(|figure| figure.value).collect()
    }

    #[test]
    fn what_a_tcp_client_buffered_is_not_called_goodput() {
        let plan = Plan {
            parallel: 2,
            ..plan(Protocol::Tcp, Way::Up)
        };
        let measurement = parse(TCP, &plan);
        assert_eq!(measurement.failure, None);
        assert!(figures(&measurement, Metric::GoodputBitPerS).is_empty());
        let sent = 34_166_343_768.0 + 18_111_033_443.0;
        let rates = figures(&measurement, Metric::SentRateBitPerS);
        assert_eq!(rates, [sent, 34_166_343_768.0, 18_111_033_443.0]);
        assert_eq!(figures(&measurement, Metric::RetransmittedPackets), [1.0]);
        let rtts = measurement
            .samples
            .iter()
            .filter(|s| s.metric == Metric::TcpRttMs);
        let rtts: Vec<_> = rtts.map(|s| (s.index, s.stream, s.value)).collect();
        assert_eq!(rtts[..2], [(1, Some(2), 0.107), (1, Some(1), 0.111)]);
        assert_eq!(rtts.len(), 4);
        let cwnd = measurement
            .samples
            .iter()
            .find(|s| s.metric == Metric::CongestionWindowBytes);
        assert_eq!(cwnd.unwrap().value, 4412.0 * 1024.0);
    }

    #[test]
    fn a_reverse_test_counts_what_arrived() {
        let measurement = parse(REVERSE, &plan(Protocol::Tcp, Way::Down));
        assert_eq!(measurement.failure, None);
        assert_eq!(
            figures(&measurement, Metric::ReceivedBytes),
            [3_061_448_704.0]
        );
        let direction = |figure: &Figure| figure.direction == Some(Direction::Down);
        assert!(measurement.figures.iter().all(direction));
    }

    #[test]
    fn udp_is_what_the_server_reported() {
        let plan = plan(Protocol::Udp, Way::Up);
        let measurement = parse(UDP, &plan);
        assert_eq!(measurement.failure, None);
        assert_eq!(figures(&measurement, Metric::GoodputBitPerS), [5_011_343.0]);
        assert_eq!(figures(&measurement, Metric::SentPackets), [867.0]);
        assert_eq!(figures(&measurement, Metric::LostPercent), [0.0]);
        let without = UDP.split("Server Report:").next().unwrap();
        let measurement = parse(without, &plan);
        assert!(figures(&measurement, Metric::GoodputBitPerS).is_empty());
        let cause = measurement.failure.unwrap();
        assert!(cause.contains("did not report what it received"), "{cause}");
    }

    #[test]
    fn a_test_in_which_nothing_arrived_has_failed() {
        let silent = plan(Protocol::Udp, Way::Down);
        assert_eq!(parse(SILENT, &silent).failure.unwrap(), "nothing arrived");
        let output = captured("tcp connect failed: Connection refused\n", 0);
        let cause = Iperf
            .parse(&output, &plan(Protocol::Tcp, Way::Up))
            .failure
            .unwrap();
        assert!(cause.contains("Connection refused"), "{cause}");
    }

    #[test]
    fn one_interval_is_not_taken_for_the_whole() {
        let text = "\
[  1] 0.0000-1.0000 sec  100 Bytes  800 bits/sec  1/0          0     10K/81(19) us  2
[  1] 0.0000-1.0119 sec  101 Bytes  798 bits/sec  1/0          0     10K/81(19) us  2
";
        let measurement = parse(text, &plan(Protocol::Tcp, Way::Up));
        assert_eq!(figures(&measurement, Metric::SentBytes), [101.0]);
        let sent = measurement
            .samples
            .iter()
            .filter(|s| s.metric == Metric::SentBytes);
        assert_eq!(sent.map(|s| s.value).collect::<Vec<_>>(), [100.0]);
    }

    #[test]
    fn the_sender_is_told_the_congestion_control() {
        let target = "127.0.0.1:5001".parse().unwrap();
        let with = |way| Plan {
            congestion: Some("reno".to_owned()),
            ..plan(Protocol::Tcp, way)
        };
        let client = |way| Iperf.arguments(target, &with(way), None).unwrap().join(" ");
        let server = |way| server_arguments(target, &with(way)).join(" ");
        assert!(client(Way::Up).contains("-Z reno") && !server(Way::Up).contains("-Z"));
        assert!(server(Way::Down).contains("-Z reno") && !client(Way::Down).contains("-Z"));
        assert!(check(target, &with(Way::Down), None).is_err());
    }

    #[test]
    fn an_interface_is_not_an_address() {
        let local = "lo".parse().unwrap();
        let plan = plan(Protocol::Tcp, Way::Up);
        let error = Iperf.arguments("127.0.0.1:1".parse().unwrap(), &plan, Some(&local));
        assert!(error.unwrap_err().to_string().contains("not an interface"));
    }
}
