//! iperf3's own client as an instrument, by its JSON (`-J`).

use std::net::SocketAddr;

use anyhow::Result;
use serde_json::Value;

use super::launch::{Launcher, Output, Tool};
use super::streams::{self, StreamPlan, StreamTool, Transport, words};
use crate::endpoint::Local;
use crate::instrument::{Direction, Figure, Measurement, Metric, Sample, Session, Statistic};

/// The port on which iperf3 serves unless told otherwise.
pub(crate) const PORT: u16 = 5201;

/// Measures streams to and from the iperf3 server at `target`.
pub(crate) fn measure(
    launcher: &dyn Launcher,
    target: SocketAddr,
    plan: &StreamPlan,
    local: Option<&Local>,
    session: &Session,
) -> Measurement {
    streams::measure(&Iperf3, launcher, target, plan, local, session)
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
        plan: &StreamPlan,
        local: Option<&Local>,
    ) -> Result<Vec<String>> {
        let mut arguments = vec!["-J".to_owned()];
        arguments.extend(words([
            ("-c", target.ip().to_string()),
            ("-p", target.port().to_string()),
            ("-t", format!("{}", plan.time.as_secs_f64().ceil())),
            ("-i", plan.interval.as_secs_f64().to_string()),
            ("-P", plan.streams.to_string()),
            ("--connect-timeout", "20000".to_owned()),
        ]));
        if plan.reverse {
            arguments.push("-R".to_owned());
        }
        if let Transport::Udp { bit_per_s } = plan.transport {
            arguments.push("-u".to_owned());
            arguments.extend(words([("-b", bit_per_s.to_string())]));
        }
        for (flag, value) in [
            ("-l", plan.length.map(|bytes| bytes.to_string())),
            ("-w", plan.window.map(|bytes| bytes.to_string())),
            ("-C", plan.congestion.clone()),
        ] {
            arguments.extend(value.into_iter().flat_map(|value| words([(flag, value)])));
        }
        match local {
            Some(Local::Address(address)) => {
                arguments.extend(words([("-B", address.to_string())]));
            }
            Some(Local::Interface(name)) => {
                arguments.extend(words([("--bind-dev", name.clone())]));
            }
            None => {}
        }
        Ok(arguments)
    }

    fn parse(&self, output: &Output, plan: &StreamPlan) -> Measurement {
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
    plan: &'a StreamPlan,
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
        if self.plan.streams == 1 {
            for sample in &mut samples {
                sample.stream = None;
            }
        }
        samples
    }

    fn figures(&self) -> Vec<Figure> {
        let direction = self.plan.direction();
        let end = self.end();
        let (sent, received) = (&end["sum_sent"], &end["sum_received"]);
        let figure = |metric, statistic, value: Option<f64>| {
            value.map(|value| Figure::new(metric, statistic, value).toward(direction))
        };
        let mut figures: Vec<Figure> = [
            figure(Metric::SentBytes, Statistic::Total, number(sent, "bytes")),
            figure(
                Metric::SentRateBitPerS,
                Statistic::Mean,
                number(sent, "bits_per_second"),
            ),
            figure(
                Metric::ReceivedBytes,
                Statistic::Total,
                number(received, "bytes"),
            ),
            figure(
                Metric::GoodputBitPerS,
                Statistic::Mean,
                number(received, "bits_per_second"),
            ),
            figure(Metric::ElapsedS, Statistic::Total, number(received, "end")),
            figure(
                Metric::RetransmittedPackets,
                Statistic::Total,
                number(sent, "retransmits"),
            ),
        ]
        .into_iter()
        .flatten()
        .collect();
        if matches!(self.plan.transport, Transport::Udp { .. }) {
            figures.extend(self.udp_figures(&end["sum"]));
        }
        figures.extend(self.stream_figures());
        let load = &end["cpu_utilization_percent"];
        for (metric, key) in [
            (Metric::ClientCpuPercent, "host_total"),
            (Metric::ServerCpuPercent, "remote_total"),
        ] {
            let value = number(load, key);
            figures.extend(value.map(|value| Figure::new(metric, Statistic::Mean, value)));
        }
        figures
    }

    fn udp_figures(&self, all: &Value) -> Vec<Figure> {
        let direction = self.plan.direction();
        // iperf3's duplicates and reordered packets are not told apart: see `out_of_order` in its iperf_udp.c.
        [
            (Metric::SentPackets, Statistic::Total, "packets"),
            (Metric::LostPackets, Statistic::Total, "lost_packets"),
            (Metric::LostPercent, Statistic::Mean, "lost_percent"),
            (Metric::JitterMs, Statistic::Mean, "jitter_ms"),
        ]
        .into_iter()
        .filter_map(|(metric, statistic, key)| {
            Some(Figure::new(metric, statistic, number(all, key)?).toward(direction))
        })
        .collect()
    }

    /// Of each of several streams, and of the only one its round-trip time as TCP had it.
    fn stream_figures(&self) -> Vec<Figure> {
        let direction = self.plan.direction();
        let streams = self.end()["streams"].as_array();
        let mut figures = Vec::new();
        for (stream, of) in streams.into_iter().flatten().zip(1..) {
            let goodput = number(&stream["receiver"], "bits_per_second");
            // The far end's iperf3 keeps these to itself: in a reverse test they are 0 here.
            let rtt = |key| number(&stream["sender"], key).filter(|us| *us > 0.0);
            let found = [
                (
                    Metric::GoodputBitPerS,
                    Statistic::Mean,
                    goodput.filter(|_| self.plan.streams > 1),
                ),
                (
                    Metric::RttMs,
                    Statistic::Mean,
                    rtt("mean_rtt").map(|us| us / 1e3),
                ),
                (
                    Metric::RttMs,
                    Statistic::Min,
                    rtt("min_rtt").map(|us| us / 1e3),
                ),
                (
                    Metric::RttMs,
                    Statistic::Max,
                    rtt("max_rtt").map(|us| us / 1e3),
                ),
            ];
            figures.extend(found.into_iter().filter_map(|(metric, statistic, value)| {
                let figure = Figure::new(metric, statistic, value?).toward(direction);
                Some(match self.plan.streams {
                    1 => figure,
                    _ => figure.stream(of),
                })
            }));
        }
        figures
    }
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
        (Metric::RttMs, tcp_rtt.map(|us| us / 1e3)),
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
    use super::super::streams::tests::PLAN;
    use super::*;

    /// iperf3 3.12: two streams for a second, a sample each half second.
    pub(in super::super) const TCP: &str = include_str!("fixtures/iperf3_tcp.json");
    const REVERSE: &str = include_str!("fixtures/iperf3_rev.json");
    pub(in super::super) const UDP: &str = include_str!("fixtures/iperf3_udp.json");
    const UDP_REVERSE: &str = include_str!("fixtures/iperf3_udprev.json");
    const REFUSED: &str = include_str!("fixtures/iperf3_refused.json");

    const UDP_PLAN: StreamPlan = StreamPlan {
        transport: Transport::Udp {
            bit_per_s: 5_000_000,
        },
        ..PLAN
    };

    fn parse(text: &str, plan: &StreamPlan) -> Measurement {
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
        let plan = StreamPlan { streams: 2, ..PLAN };
        let measurement = parse(TCP, &plan);
        assert_eq!(measurement.failure, None);
        let up = |metric, statistic| figure(&measurement, metric, statistic, Direction::Up);
        assert_eq!(up(Metric::SentBytes, Statistic::Total), 3_765_698_560.0);
        assert_eq!(up(Metric::ReceivedBytes, Statistic::Total), 3_765_698_560.0);
        assert!(
            (up(Metric::GoodputBitPerS, Statistic::Mean) / 30_100_574_902.0 - 1.0).abs() < 1e-9
        );
        assert_eq!(up(Metric::RetransmittedPackets, Statistic::Total), 0.0);
        let load = measurement.figure(Metric::ServerCpuPercent, Statistic::Mean);
        assert!((load.unwrap() - 85.15).abs() < 0.01);
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
            .filter(|s| s.metric == Metric::RttMs);
        assert_eq!(rtts.map(|s| s.value).next(), Some(0.045));
        assert_eq!(measurement.facts["sender's congestion control"], "cubic");
    }

    #[test]
    fn a_reverse_test_goes_down_and_has_no_rtt_of_the_far_end() {
        let plan = StreamPlan {
            reverse: true,
            ..PLAN
        };
        let measurement = parse(REVERSE, &plan);
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
                .all(|f| f.metric != Metric::RttMs)
        );
    }

    #[test]
    fn udp_has_loss_and_jitter_as_the_receiver_counted_them() {
        for (text, reverse, direction) in [
            (UDP, false, Direction::Up),
            (UDP_REVERSE, true, Direction::Down),
        ] {
            let measurement = parse(
                text,
                &StreamPlan {
                    reverse,
                    ..UDP_PLAN
                },
            );
            assert_eq!(measurement.failure, None);
            let get = |metric, statistic| figure(&measurement, metric, statistic, direction);
            assert_eq!(get(Metric::SentPackets, Statistic::Total), 432.0);
            assert_eq!(get(Metric::LostPercent, Statistic::Mean), 0.0);
            assert!(get(Metric::JitterMs, Statistic::Mean) < 0.02);
        }
    }

    #[test]
    fn iperf3_s_own_words_are_the_failure() {
        let cause = parse(REFUSED, &PLAN).failure.unwrap();
        assert_eq!(
            cause,
            "iperf3: unable to connect to server: Connection refused"
        );
        let cause = Iperf3
            .parse(&captured("{\"start\":", 1), &PLAN)
            .failure
            .unwrap();
        assert!(cause.contains("code 1 and no whole JSON"), "{cause}");
        let deep = "[".repeat(10_000);
        assert!(parse(&deep, &PLAN).failure.is_some());
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
        let plan = StreamPlan {
            reverse: true,
            streams: 4,
            congestion: Some("cubic".to_owned()),
            length: Some(1448),
            time: Duration::from_millis(1500),
            ..UDP_PLAN
        };
        let local = "lo".parse().unwrap();
        let target = "[::1]:5201".parse().unwrap();
        let arguments = Iperf3
            .arguments(target, &plan, Some(&local))
            .unwrap()
            .join(" ");
        for wanted in [
            "-c ::1 -p 5201 -t 2 -i 1 -P 4",
            "-R -u -b 5000000 -l 1448 -C cubic",
            "--bind-dev lo",
        ] {
            assert!(arguments.contains(wanted), "{arguments}");
        }
    }
}
