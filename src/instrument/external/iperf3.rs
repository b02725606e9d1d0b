//! iperf3's own client as an instrument, by its JSON (`-J`).

use std::net::SocketAddr;

use anyhow::Result;
use serde_json::Value;

use super::launch::{Launcher, Output, Tool};
use super::streams::{self, StreamTool, word, words};
use crate::endpoint::Local;
use crate::instrument::iperf3::plan::{Plan, Protocol, Until, Way};
use crate::instrument::{Direction, Figure, Measurement, Metric, Sample, Session, Statistic};

/// The port on which iperf3 serves unless told otherwise.
pub(crate) const PORT: u16 = 5201;

/// Measures streams to and from the iperf3 server at `target`.
pub(crate) fn measure(
    launcher: &dyn Launcher,
    target: SocketAddr,
    plan: &Plan,
    local: Option<&Local>,
    session: &Session,
) -> Measurement {
    streams::measure(&Iperf3, launcher, target, plan, local, session)
}

/// Whether iperf3 has options for all of `plan`.
///
/// # Errors
/// It has not; says for what.
pub(crate) fn check(target: SocketAddr, plan: &Plan, local: Option<&Local>) -> Result<()> {
    Iperf3.arguments(target, plan, local).map(drop)
}

/// The iperf3 on PATH.
///
/// # Errors
/// It is not there.
pub(crate) fn tool() -> Result<Tool> {
    Tool::find("iperf3", "--version", "iperf3")
}

pub(super) struct Iperf3;

impl StreamTool for Iperf3 {
    fn tool(&self) -> Result<Tool> {
        tool()
    }

    fn arguments(
        &self,
        target: SocketAddr,
        plan: &Plan,
        local: Option<&Local>,
    ) -> Result<Vec<String>> {
        let (time, bytes) = match plan.until {
            Until::For(time) => (word(time.as_secs_f64().ceil()), None),
            Until::Bytes(bytes) => (None, word(bytes)),
        };
        let (address, interface) = match local {
            Some(Local::Address(address)) => (word(address), None),
            Some(Local::Interface(name)) => (None, word(name)),
            None => (None, None),
        };
        let mut arguments = vec!["-J".to_owned()];
        arguments.extend(words([
            ("-c", word(target.ip())),
            ("-p", word(target.port())),
            ("-t", time),
            ("-n", bytes),
            ("-O", word(plan.omit.as_secs())),
            ("-i", word(plan.interval.as_secs_f64())),
            ("-P", word(plan.parallel)),
            ("-b", plan.bitrate.and_then(word)),
            ("-l", plan.length.and_then(word)),
            ("-w", plan.window.and_then(word)),
            ("-M", plan.mss.and_then(word)),
            ("-S", plan.tos.and_then(word)),
            ("-C", plan.congestion.clone()),
            ("-B", address),
            ("--bind-dev", interface),
            ("--connect-timeout", word(20_000)),
        ]));
        for (flag, wanted) in [
            ("-u", plan.protocol == Protocol::Udp),
            ("-R", plan.way == Way::Down),
            ("--bidir", plan.way == Way::Both),
            ("-N", plan.no_delay),
        ] {
            arguments.extend(wanted.then(|| flag.to_owned()));
        }
        Ok(arguments)
    }

    fn parse(&self, output: &Output, plan: &Plan) -> Measurement {
        // The error message of a serde_json that met garbage helps nobody: iperf3's own words do.
        let Ok(said) = serde_json::from_str::<Value>(&output.text()) else {
            return Measurement::failed(format!(
                "iperf3 ended with code {} and no whole JSON: {}",
                output.code,
                output.last_words()
            ));
        };
        Report { said, plan }.measurement()
    }
}

/// What `-J` printed.
struct Report<'a> {
    said: Value,
    plan: &'a Plan,
}

impl Report<'_> {
    fn measurement(&self) -> Measurement {
        let mut measurement = Measurement {
            samples: self.samples(),
            figures: self.figures(),
            failure: self.failure(),
            ..Measurement::default()
        };
        for (fact, place) in [
            ("sender's congestion control", "/end/sender_tcp_congestion"),
            (
                "receiver's congestion control",
                "/end/receiver_tcp_congestion",
            ),
            ("maximum segment size", "/start/tcp_mss_default"),
        ] {
            let value = match self.said.pointer(place) {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Number(number)) => number.to_string(),
                _ => continue,
            };
            measurement = measurement.with_fact(fact, value);
        }
        measurement.with_fact(
            "goodput",
            "what the receiving end's iperf3 counted (L7), over its own time",
        )
    }

    fn failure(&self) -> Option<String> {
        if let Some(error) = self.said.get("error") {
            let text = error
                .as_str()
                .map_or_else(|| error.to_string(), str::to_owned);
            return Some(format!("iperf3: {text}"));
        }
        match number(&self.end()["sum_received"], "bytes") {
            Some(bytes) if bytes > 0.0 => None,
            Some(_) => Some("nothing arrived".to_owned()),
            None => Some("iperf3 does not say what arrived".to_owned()),
        }
    }

    fn end(&self) -> &Value {
        &self.said["end"]
    }

    fn samples(&self) -> Vec<Sample> {
        let intervals = self.said["intervals"].as_array();
        let mut samples = Vec::new();
        for (interval, index) in intervals.into_iter().flatten().zip(1..) {
            let streams = interval["streams"].as_array();
            for (stream, of) in streams.into_iter().flatten().zip(1..) {
                samples.extend(interval_samples(stream, index, of));
            }
        }
        if self.plan.parallel == 1 {
            for sample in &mut samples {
                sample.stream = None;
            }
        }
        samples
    }

    fn figures(&self) -> Vec<Figure> {
        // The sums without an ending are of the first direction, whichever it is.
        let sums: &[(Direction, &str)] = match self.plan.way {
            Way::Up => &[(Direction::Up, "")],
            Way::Down => &[(Direction::Down, "")],
            Way::Both => &[(Direction::Up, ""), (Direction::Down, "_bidir_reverse")],
        };
        let mut figures = Vec::new();
        for (direction, ending) in sums {
            figures.extend(self.sums(*direction, ending));
            figures.extend(self.load(*direction));
        }
        figures.extend(self.stream_figures());
        figures
    }

    fn sums(&self, direction: Direction, ending: &str) -> Vec<Figure> {
        let sum = |name: &str| &self.end()[format!("{name}{ending}")];
        let (sent, received, datagrams) = (sum("sum_sent"), sum("sum_received"), sum("sum"));
        let mut found = vec![
            (Metric::SentBytes, Statistic::Total, number(sent, "bytes")),
            (
                Metric::SentRateBitPerS,
                Statistic::Mean,
                number(sent, "bits_per_second"),
            ),
            (
                Metric::ReceivedBytes,
                Statistic::Total,
                number(received, "bytes"),
            ),
            (
                Metric::GoodputBitPerS,
                Statistic::Mean,
                number(received, "bits_per_second"),
            ),
            (Metric::ElapsedS, Statistic::Total, number(received, "end")),
        ];
        // Of datagrams behind others iperf3 does not say which were duplicates: they are left out.
        match self.plan.protocol {
            Protocol::Tcp => found.push((
                Metric::RetransmittedPackets,
                Statistic::Total,
                number(sent, "retransmits"),
            )),
            Protocol::Udp => found.extend([
                (
                    Metric::SentPackets,
                    Statistic::Total,
                    number(datagrams, "packets"),
                ),
                (
                    Metric::LostPackets,
                    Statistic::Total,
                    number(datagrams, "lost_packets"),
                ),
                (
                    Metric::LostPercent,
                    Statistic::Mean,
                    number(datagrams, "lost_percent"),
                ),
                (
                    Metric::JitterMs,
                    Statistic::Mean,
                    number(datagrams, "jitter_ms"),
                ),
            ]),
        }
        known(found, direction)
    }

    /// Of the processors at both ends, over the whole test.
    fn load(&self, direction: Direction) -> Vec<Figure> {
        let load = &self.end()["cpu_utilization_percent"];
        let (client, server) = (number(load, "host_total"), number(load, "remote_total"));
        let (sender, receiver) = match direction {
            Direction::Up => (client, server),
            Direction::Down => (server, client),
        };
        let found = vec![
            (Metric::SenderCpuPercent, Statistic::Mean, sender),
            (Metric::ReceiverCpuPercent, Statistic::Mean, receiver),
        ];
        known(found, direction)
    }

    /// Of each of several streams its goodput, and of each what TCP took for the round-trip time.
    fn stream_figures(&self) -> Vec<Figure> {
        let several = self.plan.parallel > 1;
        let streams = self.end()["streams"].as_array();
        let mut figures = Vec::new();
        for (stream, of) in streams.into_iter().flatten().zip(1..) {
            let (sender, receiver) = (&stream["sender"], &stream["receiver"]);
            let Some(sends) = sender["sender"].as_bool() else {
                continue;
            };
            let goodput = number(receiver, "bits_per_second").filter(|_| several);
            // The far end's iperf3 keeps these to itself: of what it sends they are 0 here.
            let rtt = |key| number(sender, key).filter(|us| *us > 0.0);
            let found = vec![
                (Metric::GoodputBitPerS, Statistic::Mean, goodput),
                (
                    Metric::TcpRttMs,
                    Statistic::Mean,
                    rtt("mean_rtt").map(|us| us / 1e3),
                ),
                (
                    Metric::TcpRttMs,
                    Statistic::Min,
                    rtt("min_rtt").map(|us| us / 1e3),
                ),
                (
                    Metric::TcpRttMs,
                    Statistic::Max,
                    rtt("max_rtt").map(|us| us / 1e3),
                ),
            ];
            let direction = if sends {
                Direction::Up
            } else {
                Direction::Down
            };
            let found = known(found, direction).into_iter();
            figures.extend(found.map(|figure| if several { figure.stream(of) } else { figure }));
        }
        figures
    }
}

/// Figures of what was said.
fn known(found: Vec<(Metric, Statistic, Option<f64>)>, direction: Direction) -> Vec<Figure> {
    let figure = |(metric, statistic, value)| {
        let value: Option<f64> = value;
        Some(Figure::new(metric, statistic, value?).toward(direction))
    };
    found.into_iter().filter_map(figure).collect()
}

/// One stream in one interval.
fn interval_samples(stream: &Value, index: u64, of: u32) -> Vec<Sample> {
    // What `-O` omits is not part of the test.
    let omitted = stream["omitted"].as_bool().unwrap_or(false);
    let (Some(at_s), false) = (number(stream, "end"), omitted) else {
        return Vec::new();
    };
    // The client sends upward and receives downward.
    let (direction, bytes) = match stream["sender"].as_bool() {
        Some(true) => (Direction::Up, Metric::SentBytes),
        Some(false) => (Direction::Down, Metric::ReceivedBytes),
        None => return Vec::new(),
    };
    let tcp_rtt = number(stream, "rtt").filter(|us| *us > 0.0);
    [
        (bytes, number(stream, "bytes")),
        (Metric::RetransmittedPackets, number(stream, "retransmits")),
        (Metric::CongestionWindowBytes, number(stream, "snd_cwnd")),
        (Metric::TcpRttMs, tcp_rtt.map(|us| us / 1e3)),
        (Metric::LostPackets, number(stream, "lost_packets")),
        (Metric::JitterMs, number(stream, "jitter_ms")),
    ]
    .into_iter()
    .filter_map(|(metric, value)| {
        let sample = Sample::new(at_s, metric, index, value?);
        Some(sample.toward(direction).stream(of))
    })
    .collect()
}

/// A number that is there and can be an amount: iperf3 writes what it does not know as -1, signed or not.
fn number(object: &Value, key: &str) -> Option<f64> {
    const UNKNOWN: u64 = u64::MAX;
    let value = object.get(key)?;
    if value.as_u64() == Some(UNKNOWN) {
        return None;
    }
    value
        .as_f64()
        .filter(|number| number.is_finite() && *number >= 0.0)
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::super::launch::tests::captured;
    use super::super::streams::tests::plan;
    use super::*;

    /// iperf3 3.12: two streams for a second, a sample each half second.
    pub(in super::super) const TCP: &str = include_str!("fixtures/iperf3_tcp.json");
    const REVERSE: &str = include_str!("fixtures/iperf3_rev.json");
    pub(in super::super) const UDP: &str = include_str!("fixtures/iperf3_udp.json");
    const BOTH: &str = include_str!("fixtures/iperf3_bidir.json");
    const UDP_REVERSE: &str = include_str!("fixtures/iperf3_udprev.json");
    const REFUSED: &str = include_str!("fixtures/iperf3_refused.json");

    fn parse(text: &str, plan: &Plan) -> Measurement {
        Iperf3.parse(&captured(text, 0), plan)
    }

    fn figure(
        measurement: &Measurement,
        metric: Metric,
        statistic: Statistic,
        direction: Direction,
    ) -> f64 {
        let wanted = Figure::new(metric, statistic, 0.0).toward(direction);
        let mut figures = measurement.figures.iter();
        let found = figures.find(|f| {
            Figure {
                value: 0.0,
                ..(*f).clone()
            } == wanted
        });
        found
            .unwrap_or_else(|| panic!("{metric:?}: {measurement:?}"))
            .value
    }

    #[test]
    fn both_ends_of_tcp_and_each_stream_are_told_apart() {
        let plan = Plan {
            parallel: 2,
            ..plan(Protocol::Tcp, Way::Up)
        };
        let measurement = parse(TCP, &plan);
        assert_eq!(measurement.failure, None);
        let up = |metric, statistic| figure(&measurement, metric, statistic, Direction::Up);
        assert_eq!(up(Metric::SentBytes, Statistic::Total), 3_765_698_560.0);
        assert_eq!(up(Metric::ReceivedBytes, Statistic::Total), 3_765_698_560.0);
        assert!(
            (up(Metric::GoodputBitPerS, Statistic::Mean) / 30_100_574_902.0 - 1.0).abs() < 1e-9
        );
        assert_eq!(up(Metric::RetransmittedPackets, Statistic::Total), 0.0);
        assert!((up(Metric::ReceiverCpuPercent, Statistic::Mean) - 85.15).abs() < 0.01);
        let sent =
            |s: &&Sample| s.metric == Metric::SentBytes && s.direction == Some(Direction::Up);
        let streams: Vec<_> = measurement
            .samples
            .iter()
            .filter(sent)
            .map(|s| (s.index, s.stream))
            .collect();
        assert_eq!(
            streams,
            [(1, Some(1)), (1, Some(2)), (2, Some(1)), (2, Some(2))]
        );
        let rtts = measurement
            .samples
            .iter()
            .filter(|s| s.metric == Metric::TcpRttMs);
        assert_eq!(rtts.map(|s| s.value).next(), Some(0.045));
        assert_eq!(measurement.facts["sender's congestion control"], "cubic");
    }

    #[test]
    fn a_reverse_test_goes_down_and_has_no_rtt_of_the_far_end() {
        let measurement = parse(REVERSE, &plan(Protocol::Tcp, Way::Down));
        let down = |metric, statistic| figure(&measurement, metric, statistic, Direction::Down);
        assert_eq!(
            down(Metric::ReceivedBytes, Statistic::Total),
            2_326_790_038.0
        );
        assert_eq!(down(Metric::RetransmittedPackets, Statistic::Total), 2.0);
        assert!(
            measurement
                .figures
                .iter()
                .all(|f| f.metric != Metric::TcpRttMs)
        );
    }

    #[test]
    fn udp_has_loss_and_jitter_as_the_receiver_counted_them() {
        for (text, way, direction) in [
            (UDP, Way::Up, Direction::Up),
            (UDP_REVERSE, Way::Down, Direction::Down),
        ] {
            let measurement = parse(text, &plan(Protocol::Udp, way));
            assert_eq!(measurement.failure, None);
            let get = |metric, statistic| figure(&measurement, metric, statistic, direction);
            assert_eq!(get(Metric::SentPackets, Statistic::Total), 432.0);
            assert_eq!(get(Metric::LostPercent, Statistic::Mean), 0.0);
            assert!(get(Metric::JitterMs, Statistic::Mean) < 0.02);
        }
    }

    #[test]
    fn both_directions_have_figures_of_their_own() {
        let measurement = parse(BOTH, &plan(Protocol::Tcp, Way::Both));
        let sent = |direction| {
            figure(
                &measurement,
                Metric::RetransmittedPackets,
                Statistic::Total,
                direction,
            )
        };
        assert_eq!((sent(Direction::Up), sent(Direction::Down)), (2.0, 9.0));
    }

    #[test]
    fn iperf3_s_own_words_are_the_failure() {
        let plan = plan(Protocol::Tcp, Way::Up);
        let cause = parse(REFUSED, &plan).failure.unwrap();
        assert_eq!(
            cause,
            "iperf3: unable to connect to server: Connection refused"
        );
        let cause = Iperf3
            .parse(&captured("{\"start\":", 1), &plan)
            .failure
            .unwrap();
        assert!(cause.contains("code 1 and no whole JSON"), "{cause}");
        let deep = "[".repeat(10_000);
        assert!(parse(&deep, &plan).failure.is_some());
    }

    #[test]
    fn what_iperf3_does_not_know_is_not_a_figure() {
        let object: Value =
            serde_json::from_str(r#"{"a":18446744073709551615,"b":-1,"c":"5","d":5,"e":null}"#)
                .unwrap();
        let found = ["a", "b", "c", "d", "e", "f"].map(|key| number(&object, key));
        assert_eq!(found, [None, None, None, Some(5.0), None, None]);
    }

    #[test]
    fn a_plan_becomes_iperf3_s_options() {
        let plan = Plan {
            parallel: 4,
            congestion: Some("cubic".to_owned()),
            bitrate: Some(5_000_000),
            until: Until::For(Duration::from_millis(1500)),
            ..plan(Protocol::Udp, Way::Down)
        };
        let local = "lo".parse().unwrap();
        let target = "[::1]:5201".parse().unwrap();
        let arguments = Iperf3
            .arguments(target, &plan, Some(&local))
            .unwrap()
            .join(" ");
        for wanted in [
            "-c ::1 -p 5201 -t 2 -O 0 -i 1 -P 4 -b 5000000 -C cubic",
            "--bind-dev lo",
            "-u -R",
        ] {
            assert!(arguments.contains(wanted), "{arguments}");
        }
    }
}
