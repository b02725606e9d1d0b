//! iperf 2 as an instrument. Its enhanced reports (`-e`) in bits per second are parsed, because its CSV (`-y C`) has
//! neither retransmissions nor RTT.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::error::{Result, bail, ensure};

use super::{
    SentDatagrams, StreamProgram, StreamTest, direction, enabled_flags, iperf_client, parse_amount,
};
use crate::endpoint::Local;
use crate::external::{Tool, ToolOutput, word, words};
use crate::iperf3::plan::{Iperf3Test, TestDirection, Transport};
use crate::measured::{figures, samples};
use record::Metric::{
    self, CongestionWindowBytes, ElapsedS, GoodputBitPerS, JitterMs, LostPackets, LostPercent,
    ReceivedBytes, RetransmittedPackets, SentBytes, SentPackets, SentRateBitPerS, TcpRttMs,
};
use record::Statistic::{Mean, Total};
use record::{Figure, Measurement, Sample};

/// The iperf 2 on PATH.
#[derive(Debug)]
pub(crate) struct Iperf;

impl StreamProgram for Iperf {
    fn tool(&self) -> Result<Tool> {
        Tool::find("iperf", "-v", "iperf")
    }

    fn port(&self) -> u16 {
        5001
    }

    fn check(&self, plan: &Iperf3Test) -> Result<()> {
        // The default of iperf is 1 Mbit/s, and it interprets a rate of 0 as an endless gap.
        ensure!(
            Tool,
            plan.protocol == Transport::Tcp || plan.bitrate.is_some(),
            "iperf sends datagrams only at a rate: add --bitrate"
        );
        super::one_way_time("iperf", plan).map(drop)
    }

    fn server_arguments(&self, target: SocketAddr, plan: &Iperf3Test) -> Option<Vec<String>> {
        let congestion = plan
            .congestion
            .clone()
            .filter(|_| plan.direction == TestDirection::Down);
        let mut arguments = vec!["-s".to_owned()];
        arguments.extend(words(&[("-p", word(target.port())), ("-Z", congestion)]));
        arguments.extend(enabled_flags(&[
            ("-V", target.is_ipv6()),
            ("-u", plan.protocol == Transport::Udp),
        ]));
        Some(arguments)
    }

    fn arguments(&self, test: &StreamTest<'_>) -> Result<Vec<String>> {
        super::check_no_connect_timeout("iperf", test)?;
        let plan = test.plan;
        let time = super::one_way_time("iperf", plan)?;
        let address = match test.local {
            Some(Local::Address(address)) => word(address),
            Some(Local::Interface(name)) => {
                bail!(
                    Tool,
                    "iperf can bind to an address, but not to an interface ({name})"
                )
            }
            None => None,
        };
        ensure!(
            Tool,
            plan.direction == TestDirection::Up || plan.congestion.is_none(),
            "iperf's server chooses the congestion control of a reverse test: start it with -Z"
        );
        let mut arguments = vec!["-e".to_owned()];
        arguments.extend(iperf_client(
            test,
            &[("-f", word("b")), ("-t", word(time.as_secs_f64()))],
            &[("-Z", plan.congestion.clone()), ("-B", address)],
        ));
        arguments.extend(enabled_flags(&[("-V", test.target.is_ipv6())]));
        Ok(arguments)
    }

    fn parse(&self, output: &ToolOutput, plan: &Iperf3Test) -> Measurement {
        let (mut rows, mut server, mut from_server) = (Vec::new(), Vec::new(), false);
        for text in output.texts().map(str::trim) {
            if text.ends_with("Server Report:") {
                from_server = true;
            } else if let Some(row) = StreamRow::parse(text) {
                let rows = if from_server { &mut server } else { &mut rows };
                rows.push(row);
            }
        }
        let (totals, intervals) = split(&rows);
        let down = plan.direction == TestDirection::Down;
        let received: Vec<&StreamRow> = match plan.protocol {
            _ if down => totals.clone(),
            // The server reports the datagrams that it received.
            Transport::Udp => server.iter().collect(),
            Transport::Tcp => Vec::new(),
        };
        let sent = if down { &[][..] } else { &totals };
        let mut figures = rates(sent, plan, SentBytes, SentRateBitPerS);
        figures.extend(rates(&received, plan, ReceivedBytes, GoodputBitPerS));
        figures.extend(other_figures(&totals, &received, plan));
        let measurement = Measurement {
            samples: interval_samples(&intervals, plan),
            figures,
            failure: failure(output, plan, &totals, &received),
            ..Measurement::default()
        };
        let measurement = super::with_pace(measurement, plan, SentDatagrams::of);
        match plan.protocol {
            Transport::Tcp if !down => measurement.with_fact(
                "sent rate",
                "bytes that iperf handed to its socket (L7): up to a socket buffer more than arrived, which iperf does not report",
            ),
            _ => measurement.with_fact("goodput", "bytes that the receiving iperf counted (L7)"),
        }
    }
}

/// A line about one stream, or about the sum of all.
#[derive(Clone, Debug, Default, PartialEq)]
struct StreamRow {
    /// iperf's number of the stream, or `None` for the sum.
    id: Option<u32>,
    start_s: f64,
    end_s: f64,
    bytes: f64,
    bit_per_s: f64,
    retransmits: Option<f64>,
    cwnd_bytes: Option<f64>,
    rtt_ms: Option<f64>,
    jitter_ms: Option<f64>,
    /// Lost and sent datagrams.
    lost: Option<(f64, f64)>,
}

impl StreamRow {
    /// Parses a line such as `[  1] 0.0000-1.0000 sec  626984 Bytes  5015872 bits/sec ...` with its columns.
    fn parse(line: &str) -> Option<Self> {
        let (id, rest) = line.strip_prefix('[')?.split_once(']')?;
        let words: Vec<&str> = rest.split_whitespace().collect();
        let [time, "sec", bytes, "Bytes", rate, "bits/sec", details @ ..] = words.as_slice() else {
            return None;
        };
        let (start, end) = time.split_once('-')?;
        let row = Self {
            id: match id.trim().trim_start_matches('*') {
                "SUM" => None,
                number => Some(number.parse().ok()?),
            },
            start_s: parse_amount(start)?,
            end_s: parse_amount(end)?,
            bytes: parse_amount(bytes)?,
            bit_per_s: parse_amount(rate)?,
            ..Self::default()
        };
        Some(match details {
            // An example is 6435/0 0 1023K/81(19) us 20825886.
            [_writes, retransmits, window, "us", ..] => {
                let (cwnd, rtt) = window.split_once('/').unwrap_or_default();
                let rtt_us = rtt.split('(').next().and_then(parse_amount);
                Self {
                    retransmits: parse_amount(retransmits),
                    cwnd_bytes: cwnd
                        .strip_suffix('K')
                        .and_then(parse_amount)
                        .map(|kib| kib * 1024.0),
                    rtt_ms: rtt_us.map(|us| us / 1e3),
                    ..row
                }
            }
            // An example is 0.000 ms 0/867 (0%).
            [jitter, "ms", counts, ..] => {
                let counts = counts.split_once('/');
                Self {
                    jitter_ms: parse_amount(jitter),
                    lost: counts
                        .and_then(|(lost, sent)| Some((parse_amount(lost)?, parse_amount(sent)?))),
                    ..row
                }
            }
            _ => row,
        })
    }
}

/// Splits the rows into those of each stream's whole time, which is its last row that starts at 0, and those of
/// intervals.
fn split(rows: &[StreamRow]) -> (Vec<&StreamRow>, Vec<&StreamRow>) {
    let streams = || rows.iter().enumerate().filter(|(_, row)| row.id.is_some());
    let from_start = streams().filter(|(_, row)| row.start_s == 0.0);
    let whole: BTreeMap<_, _> = from_start.map(|(at, row)| (row.id, at)).collect();
    let is_whole = |at, row: &StreamRow| whole.get(&row.id) == Some(&at);
    let of = |wanted| {
        let rows = streams().filter(move |(at, row)| is_whole(*at, row) == wanted);
        rows.map(|(_, row)| row).collect()
    };
    (of(true), of(false))
}

fn interval_samples(intervals: &[&StreamRow], plan: &Iperf3Test) -> Vec<Sample> {
    let bytes = match plan.direction {
        TestDirection::Down => ReceivedBytes,
        TestDirection::Up | TestDirection::Both => SentBytes,
    };
    let mut numbers: BTreeMap<Option<u32>, u64> = BTreeMap::new();
    let mut all = Vec::new();
    for row in intervals {
        let index = numbers.entry(row.id).or_default();
        *index += 1;
        let found = [
            (bytes, Some(row.bytes)),
            (RetransmittedPackets, row.retransmits),
            (CongestionWindowBytes, row.cwnd_bytes),
            (TcpRttMs, row.rtt_ms),
            (JitterMs, row.jitter_ms),
            (LostPackets, row.lost.map(|(lost, _)| lost)),
        ];
        let stream = row.id.filter(|_| plan.parallel > 1);
        let samples = samples(row.end_s, *index, direction(plan), found);
        all.extend(samples.map(|sample| Sample { stream, ..sample }));
    }
    all
}

/// Returns the bytes and rate of all streams together, and the rate of each if there are several.
fn rates(rows: &[&StreamRow], plan: &Iperf3Test, bytes: Metric, rate: Metric) -> Vec<Figure> {
    let sum = |value: fn(&StreamRow) -> f64| {
        let sum = rows.iter().map(|row| value(row)).sum();
        (!rows.is_empty()).then_some(sum)
    };
    let all = [
        (bytes, Total, sum(|row| row.bytes)),
        (rate, Mean, sum(|row| row.bit_per_s)),
    ];
    let several = rows.iter().filter(|_| plan.parallel > 1);
    let each = several.filter_map(|row| {
        let figure = Figure::new(rate, Mean, row.bit_per_s).toward(direction(plan));
        Some(figure.stream(row.id?))
    });
    figures(Some(direction(plan)), all).chain(each).collect()
}

/// Returns the sender's other figures of the whole test, and the datagrams as the receiver counted them.
fn other_figures(
    totals: &[&StreamRow],
    received: &[&StreamRow],
    plan: &Iperf3Test,
) -> impl Iterator<Item = Figure> + use<> {
    let retransmits = totals
        .iter()
        .filter_map(|row| row.retransmits)
        .reduce(|sum, more| sum + more);
    let elapsed = totals.iter().map(|row| row.end_s).reduce(f64::max);
    let counts = received
        .iter()
        .filter_map(|row| row.lost)
        .reduce(|(lost, sent), more| (lost + more.0, sent + more.1));
    let lost_percent = counts.and_then(|(lost, sent)| (sent > 0.0).then(|| 100.0 * lost / sent));
    let jitters: Vec<f64> = received.iter().filter_map(|row| row.jitter_ms).collect();
    let jitter = jitters.iter().sum::<f64>() / jitters.len().max(1) as f64;
    let found = [
        (ElapsedS, Total, elapsed),
        (RetransmittedPackets, Total, retransmits),
        (SentPackets, Total, counts.map(|(_, sent)| sent)),
        (LostPackets, Total, counts.map(|(lost, _)| lost)),
        (LostPercent, Mean, lost_percent),
        (JitterMs, Mean, counts.map(|_| jitter)),
    ];
    figures(Some(direction(plan)), found)
}

fn failure(
    output: &ToolOutput,
    plan: &Iperf3Test,
    totals: &[&StreamRow],
    received: &[&StreamRow],
) -> Option<String> {
    if totals.is_empty() {
        return Some(output.exit_message("iperf"));
    }
    let expects_report = plan.direction == TestDirection::Down || plan.protocol == Transport::Udp;
    if expects_report && received.is_empty() {
        return Some("the server did not report what it received".to_owned());
    }
    let arrived: f64 = received.iter().map(|row| row.bytes).sum();
    (expects_report && arrived <= 0.0).then(|| "nothing arrived".to_owned())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::command_line;
    use super::super::tests::plan;
    use super::*;
    use crate::external::tests::captured;
    use record::Direction;

    /// Output of iperf 2.1.8: two streams for two seconds, a row per second.
    pub(crate) const TCP: &str = include_str!("fixtures/iperf_tcp.txt");
    pub(crate) const REVERSE: &str = include_str!("fixtures/iperf_rev.txt");
    pub(crate) const UDP: &str = include_str!("fixtures/iperf_udp.txt");
    pub(crate) const SILENT: &str = include_str!("fixtures/iperf_silent.txt");

    fn parse(text: &str, plan: &Iperf3Test) -> Measurement {
        Iperf.parse(&captured(text, 0), plan)
    }

    fn figures(measurement: &Measurement, metric: Metric) -> Vec<f64> {
        let figures = measurement.figures.iter().filter(|f| f.metric == metric);
        figures.map(|figure| figure.value).collect()
    }

    #[test]
    fn data_buffered_by_a_tcp_client_is_not_goodput() {
        let plan = Iperf3Test {
            parallel: 2,
            ..plan(Transport::Tcp, TestDirection::Up)
        };
        let measurement = parse(TCP, &plan);
        assert_eq!(measurement.failure, None);
        assert!(figures(&measurement, GoodputBitPerS).is_empty());
        let sent = 34_166_343_768.0 + 18_111_033_443.0;
        let rates = figures(&measurement, SentRateBitPerS);
        assert_eq!(rates, [sent, 34_166_343_768.0, 18_111_033_443.0]);
        assert_eq!(figures(&measurement, RetransmittedPackets), [1.0]);
        let rtts: Vec<_> = measurement
            .samples
            .iter()
            .filter(|s| s.metric == TcpRttMs)
            .map(|s| (s.index, s.stream, s.value))
            .collect();
        assert_eq!(rtts[..2], [(1, Some(2), 0.107), (1, Some(1), 0.111)]);
        assert_eq!(rtts.len(), 4);
        let cwnd = measurement
            .samples
            .iter()
            .find(|s| s.metric == CongestionWindowBytes);
        assert_eq!(cwnd.unwrap().value, 4412.0 * 1024.0);
    }

    #[test]
    fn a_reverse_test_counts_what_arrived() {
        let measurement = parse(REVERSE, &plan(Transport::Tcp, TestDirection::Down));
        assert_eq!(measurement.failure, None);
        assert_eq!(figures(&measurement, ReceivedBytes), [3_061_448_704.0]);
        let direction = |figure: &Figure| figure.direction == Some(Direction::Down);
        assert!(measurement.figures.iter().all(direction));
    }

    #[test]
    fn udp_figures_are_those_of_the_server() {
        let plan = plan(Transport::Udp, TestDirection::Up);
        let measurement = parse(UDP, &plan);
        assert_eq!(measurement.failure, None);
        assert_eq!(figures(&measurement, GoodputBitPerS), [5_011_343.0]);
        assert_eq!(figures(&measurement, SentPackets), [867.0]);
        assert_eq!(figures(&measurement, LostPercent), [0.0]);
        let without = UDP.split("Server Report:").next().unwrap();
        let measurement = parse(without, &plan);
        assert!(figures(&measurement, GoodputBitPerS).is_empty());
        let cause = measurement.failure.unwrap();
        assert!(cause.contains("did not report what it received"), "{cause}");
    }

    #[test]
    fn a_test_without_arrivals_is_a_failure() {
        let silent = plan(Transport::Udp, TestDirection::Down);
        assert_eq!(parse(SILENT, &silent).failure.unwrap(), "nothing arrived");
        let output = captured("tcp connect failed: Connection refused\n", 0);
        let cause = Iperf
            .parse(&output, &plan(Transport::Tcp, TestDirection::Up))
            .failure
            .unwrap();
        assert!(cause.contains("Connection refused"), "{cause}");
    }

    #[test]
    fn an_interval_is_not_mistaken_for_the_whole_test() {
        let text = "\
[  1] 0.0000-1.0000 sec  100 Bytes  800 bits/sec  1/0          0     10K/81(19) us  2
[  1] 0.0000-1.0119 sec  101 Bytes  798 bits/sec  1/0          0     10K/81(19) us  2
";
        let measurement = parse(text, &plan(Transport::Tcp, TestDirection::Up));
        assert_eq!(figures(&measurement, SentBytes), [101.0]);
        let sent = measurement.samples.iter().filter(|s| s.metric == SentBytes);
        assert_eq!(sent.map(|s| s.value).collect::<Vec<_>>(), [100.0]);
    }

    #[test]
    fn the_congestion_control_is_set_at_the_sender() {
        let target = "127.0.0.1:5001".parse().unwrap();
        let with = |way| Iperf3Test {
            congestion: Some("reno".to_owned()),
            ..plan(Transport::Tcp, way)
        };
        let client = |way| {
            let plan = with(way);
            let line = command_line(&Iperf, &StreamTest::new(target, &plan));
            line.map(|line| line.join(" "))
        };
        let server = |way| {
            Iperf
                .server_arguments(target, &with(way))
                .unwrap()
                .join(" ")
        };
        assert!(client(TestDirection::Up).unwrap().contains("-Z reno"));
        assert!(!server(TestDirection::Up).contains("-Z"));
        assert!(server(TestDirection::Down).contains("-Z reno"));
        let error = client(TestDirection::Down).unwrap_err().to_string();
        assert!(error.contains("start it with -Z"), "{error}");
    }

    #[test]
    fn datagrams_without_a_rate_are_refused() {
        let udp = plan(Transport::Udp, TestDirection::Up);
        let plan = |bitrate| Iperf3Test {
            bitrate,
            ..udp.clone()
        };
        Iperf.check(&plan(Some(1))).unwrap();
        let error = Iperf.check(&plan(None)).unwrap_err().to_string();
        assert!(error.contains("only at a rate"), "{error}");
    }

    #[test]
    fn an_interface_is_not_an_address() {
        let local = "lo".parse().unwrap();
        let plan = plan(Transport::Tcp, TestDirection::Up);
        let test = StreamTest {
            local: Some(&local),
            ..StreamTest::new("127.0.0.1:1".parse().unwrap(), &plan)
        };
        let error = command_line(&Iperf, &test);
        assert!(
            error
                .unwrap_err()
                .to_string()
                .contains("not to an interface")
        );
    }
}
