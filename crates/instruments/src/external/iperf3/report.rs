//! What iperf3's JSON (`-J`) says.

use serde_json::Value;

use super::super::launch::Output;
use super::figures::figures;
use crate::iperf3::plan::Plan;
use record::{Direction, Measurement, Metric, Sample};

/// What iperf3 said, as samples and figures.
pub(super) fn parse(output: &Output, plan: &Plan) -> Measurement {
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

/// What `-J` printed.
struct Report<'a> {
    said: Value,
    plan: &'a Plan,
}

impl Report<'_> {
    fn measurement(&self) -> Measurement {
        let mut measurement = Measurement {
            samples: self.samples(),
            figures: figures(self.end(), self.plan),
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
pub(super) fn number(object: &Value, key: &str) -> Option<f64> {
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
pub(in super::super) mod tests {
    use super::super::super::launch::tests::captured;
    use super::super::super::streams::tests::plan;
    use super::*;
    use crate::iperf3::plan::{Protocol, Way};
    use record::{Figure, Statistic};

    /// iperf3 3.12: two streams for a second, a sample each half second.
    pub(in super::super::super) const TCP: &str = include_str!("../fixtures/iperf3_tcp.json");
    const REVERSE: &str = include_str!("../fixtures/iperf3_rev.json");
    pub(in super::super::super) const UDP: &str = include_str!("../fixtures/iperf3_udp.json");
    const BOTH: &str = include_str!("../fixtures/iperf3_bidir.json");
    const UDP_REVERSE: &str = include_str!("../fixtures/iperf3_udprev.json");
    const REFUSED: &str = include_str!("../fixtures/iperf3_refused.json");

    fn parse(text: &str, plan: &Plan) -> Measurement {
        super::parse(&captured(text, 0), plan)
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
        let cause = super::parse(&captured("{\"start\":", 1), &plan)
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
}
