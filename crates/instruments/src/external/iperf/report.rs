//! What iperf's reports add up to.

use std::collections::BTreeMap;

use super::super::launch::Output;
use super::super::streams::direction;
use super::rows::{Row, row};
use crate::iperf3::plan::{Plan, Protocol, Way};
use record::{Figure, Measurement, Metric, Sample, Statistic};

/// What iperf said, as samples and figures.
pub(super) fn parse(output: &Output, plan: &Plan) -> Measurement {
    Reports::of(output).measurement(output, plan)
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
pub(in super::super) mod tests {
    use super::super::super::launch::tests::captured;
    use super::super::super::streams::tests::plan;
    use super::*;
    use record::Direction;

    /// iperf 2.1.8: two streams for two seconds, a row each second.
    pub(in super::super::super) const TCP: &str = include_str!("../fixtures/iperf_tcp.txt");
    const REVERSE: &str = include_str!("../fixtures/iperf_rev.txt");
    pub(in super::super::super) const UDP: &str = include_str!("../fixtures/iperf_udp.txt");
    const SILENT: &str = include_str!("../fixtures/iperf_silent.txt");

    fn parse(text: &str, plan: &Plan) -> Measurement {
        super::parse(&captured(text, 0), plan)
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
        let cause = super::parse(&output, &plan(Protocol::Tcp, Way::Up))
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
}
