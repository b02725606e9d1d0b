//! iperf3's own client as an instrument, whose JSON (`-J`) is parsed.

use std::net::SocketAddr;

use crate::error::{Result, ensure};
use serde_json::Value;

use super::{SentDatagrams, StreamProgram, StreamTest, enabled_flags, iperf_client};
use crate::endpoint::{CONNECT_TIMEOUT, Local};
use crate::external::{Tool, ToolOutput, word};
use crate::iperf3::messages::LOSS_UNKNOWN;
use crate::iperf3::plan::{Iperf3Test, TestDirection, Transport, Until};
use crate::measured::{figures, samples};
use record::Metric::{
    CongestionWindowBytes, ElapsedS, GoodputBitPerS, JitterMs, LostPackets, LostPercent,
    ReceivedBytes, ReceiverCpuPercent, RetransmittedPackets, SenderCpuPercent, SentBytes,
    SentPackets, SentRateBitPerS, TcpRttMs,
};
use record::Statistic::{Max, Mean, Min, Total};
use record::{Direction, Figure, Measurement, Sample};

/// The iperf3 on PATH.
#[derive(Debug)]
pub(crate) struct Iperf3;

impl StreamProgram for Iperf3 {
    fn tool(&self) -> Result<Tool> {
        Tool::find("iperf3", "--version", "iperf3")
    }

    fn port(&self) -> u16 {
        5201
    }

    fn check(&self, plan: &Iperf3Test) -> Result<()> {
        if let Until::For(time) = plan.until {
            ensure!(
                Tool,
                time.subsec_nanos() == 0,
                "iperf3 measures for whole seconds only, not for {time:?}"
            );
        }
        Ok(())
    }

    fn server_arguments(&self, _target: SocketAddr, _plan: &Iperf3Test) -> Option<Vec<String>> {
        None
    }

    fn arguments(&self, test: &StreamTest<'_>) -> Result<Vec<String>> {
        let plan = test.plan;
        let (time, bytes) = match plan.until {
            Until::For(time) => (word(time.as_secs()), None),
            Until::Bytes(bytes) => (None, word(bytes)),
        };
        let (address, interface) = match test.local {
            Some(Local::Address(address)) => (word(address), None),
            Some(Local::Interface(name)) => (None, word(name)),
            None => (None, None),
        };
        let connect_timeout = test.connect_timeout.unwrap_or(CONNECT_TIMEOUT);
        let omit = word(plan.omit.as_secs());
        let mut arguments = vec!["-J".to_owned()];
        arguments.extend(iperf_client(
            test,
            &[("-t", time), ("-n", bytes), ("-O", omit)],
            &[
                ("-C", plan.congestion.clone()),
                ("-B", address),
                ("--bind-dev", interface),
                (
                    "--connect-timeout",
                    word(connect_timeout.as_millis().max(1)),
                ),
            ],
        ));
        arguments.extend(enabled_flags(&[(
            "--bidir",
            plan.direction == TestDirection::Both,
        )]));
        Ok(arguments)
    }

    fn parse(&self, output: &ToolOutput, plan: &Iperf3Test) -> Measurement {
        // iperf3's own message is more useful than serde_json's error about invalid text.
        let Ok(report) = serde_json::from_str::<Value>(&output.text()) else {
            return Measurement::failed(format!(
                "iperf3 ended with code {} and incomplete JSON: {}",
                output.code,
                output.last_line()
            ));
        };
        let end = &report["end"];
        let mut measurement = Measurement {
            samples: interval_samples(&report["intervals"], plan),
            figures: whole_figures(end, plan, knows_far_loss(&report, plan)),
            failure: failure(&report),
            ..Measurement::default()
        };
        for (fact, value) in [
            ("sender's congestion control", &end["sender_tcp_congestion"]),
            (
                "receiver's congestion control",
                &end["receiver_tcp_congestion"],
            ),
            ("maximum segment size", &report["start"]["tcp_mss_default"]),
        ] {
            let value = match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                _ => continue,
            };
            measurement = measurement.with_fact(fact, value);
        }
        if plan.protocol == Transport::Udp && !knows_far_loss(&report, plan) {
            measurement = measurement.with_fact("loss up", LOSS_UNKNOWN);
        }
        let measurement = super::with_pace(measurement, plan, SentDatagrams::of);
        measurement.with_fact(
            "goodput",
            "bytes that the receiving iperf3 counted (L7), over its own time",
        )
    }
}

/// Returns whether the loss of sent datagrams is known. Before 3.14 an end does not report its loss in the omitted
/// start.
fn knows_far_loss(report: &Value, plan: &Iperf3Test) -> bool {
    let version = report["start"]["version"].as_str().unwrap_or_default();
    let minor = version.strip_prefix("iperf 3.").unwrap_or_default();
    let digits = minor.split(|c: char| !c.is_ascii_digit()).next();
    let minor: Option<u32> = digits.and_then(|digits| digits.parse().ok());
    plan.omit.is_zero()
        || plan.direction == TestDirection::Down
        || minor.is_some_and(|minor| minor >= 14)
}

fn failure(report: &Value) -> Option<String> {
    if let Some(error) = report.get("error") {
        let text = error
            .as_str()
            .map_or_else(|| error.to_string(), str::to_owned);
        return Some(format!("iperf3: {text}"));
    }
    match number(&report["end"]["sum_received"], "bytes") {
        Some(bytes) if bytes > 0.0 => None,
        Some(_) => Some("nothing arrived".to_owned()),
        None => Some("iperf3 does not report what arrived".to_owned()),
    }
}

/// Returns the members of an array, each with its number from 1.
fn members(array: &Value) -> impl Iterator<Item = (&Value, u32)> {
    array.as_array().into_iter().flatten().zip(1..)
}

/// Returns the direction of a stream of the client.
fn stream_direction(stream: &Value) -> Option<Direction> {
    Some(if stream["sender"].as_bool()? {
        Direction::Up
    } else {
        Direction::Down
    })
}

fn interval_samples(intervals: &Value, plan: &Iperf3Test) -> Vec<Sample> {
    let mut all = Vec::new();
    for (interval, index) in members(intervals) {
        for (stream, number) in members(&interval["streams"]) {
            let stream_number = Some(number).filter(|_| plan.parallel > 1);
            let samples = stream_samples(stream, index.into()).into_iter().flatten();
            all.extend(samples.map(|sample| Sample {
                stream: stream_number,
                ..sample
            }));
        }
    }
    all
}

/// Returns the samples of one stream in one interval. `None` means that `-O` omits the interval.
fn stream_samples(stream: &Value, index: u64) -> Option<impl Iterator<Item = Sample> + use<>> {
    if stream["omitted"].as_bool() == Some(true) {
        return None;
    }
    let direction = stream_direction(stream)?;
    let bytes = match direction {
        Direction::Up => SentBytes,
        Direction::Down => ReceivedBytes,
    };
    let tcp_rtt = number(stream, "rtt").filter(|us| *us > 0.0);
    let found = [
        (bytes, number(stream, "bytes")),
        (RetransmittedPackets, number(stream, "retransmits")),
        (CongestionWindowBytes, number(stream, "snd_cwnd")),
        (TcpRttMs, tcp_rtt.map(|us| us / 1e3)),
        (LostPackets, number(stream, "lost_packets")),
        (JitterMs, number(stream, "jitter_ms")),
    ];
    Some(samples(number(stream, "end")?, index, direction, found))
}

/// Returns the figures of `end`: the sums of each direction, the CPU load of both ends, and each stream.
fn whole_figures(end: &Value, plan: &Iperf3Test, knows_far_loss: bool) -> Vec<Figure> {
    // The sums without a suffix are of the first direction, whichever it is.
    let sums: &[(Direction, &str)] = match plan.direction {
        TestDirection::Up => &[(Direction::Up, "")],
        TestDirection::Down => &[(Direction::Down, "")],
        TestDirection::Both => &[(Direction::Up, ""), (Direction::Down, "_bidir_reverse")],
    };
    let mut all = Vec::new();
    for &(direction, ending) in sums {
        let sum = |name: &str| &end[format!("{name}{ending}")];
        let (sent, received, datagrams) = (sum("sum_sent"), sum("sum_received"), sum("sum"));
        let found = [
            (SentBytes, Total, number(sent, "bytes")),
            (SentRateBitPerS, Mean, number(sent, "bits_per_second")),
            (ReceivedBytes, Total, number(received, "bytes")),
            (GoodputBitPerS, Mean, number(received, "bits_per_second")),
            (ElapsedS, Total, number(received, "end")),
        ];
        all.extend(figures(Some(direction), found));
        let known = knows_far_loss || direction == Direction::Down;
        let lost = |name| number(datagrams, name).filter(|_| known);
        // iperf3 does not report which reordered datagrams were duplicates; therefore there is no figure for them.
        let found = match plan.protocol {
            Transport::Tcp => vec![(RetransmittedPackets, Total, number(sent, "retransmits"))],
            Transport::Udp => vec![
                (SentPackets, Total, number(datagrams, "packets")),
                (LostPackets, Total, lost("lost_packets")),
                (LostPercent, Mean, lost("lost_percent")),
                (JitterMs, Mean, number(datagrams, "jitter_ms")),
            ],
        };
        all.extend(figures(Some(direction), found));
        let load = &end["cpu_utilization_percent"];
        let (client, server) = (number(load, "host_total"), number(load, "remote_total"));
        let (sender, receiver) = match direction {
            Direction::Up => (client, server),
            Direction::Down => (server, client),
        };
        let found = [
            (SenderCpuPercent, Mean, sender),
            (ReceiverCpuPercent, Mean, receiver),
        ];
        all.extend(figures(Some(direction), found));
    }
    let several = plan.parallel > 1;
    for (stream, number) in members(&end["streams"]) {
        let found = stream_figures(stream, several);
        let stream = several.then_some(number);
        all.extend(found.map(|figure| Figure { stream, ..figure }));
    }
    all
}

/// Returns TCP's round-trip times, and the goodput of one of several streams.
fn stream_figures(stream: &Value, several: bool) -> impl Iterator<Item = Figure> + use<> {
    let (sender, receiver) = (&stream["sender"], &stream["receiver"]);
    let goodput = number(receiver, "bits_per_second").filter(|_| several);
    // The far end's iperf3 does not report these values; for data that it sends, they are 0 here.
    let rtt_us = |key| number(sender, key).filter(|us| *us > 0.0);
    let rtt_ms = |key| rtt_us(key).map(|us| us / 1e3);
    let found = [
        (GoodputBitPerS, Mean, goodput),
        (TcpRttMs, Mean, rtt_ms("mean_rtt")),
        (TcpRttMs, Min, rtt_ms("min_rtt")),
        (TcpRttMs, Max, rtt_ms("max_rtt")),
    ];
    let direction = stream_direction(sender);
    figures(direction, found).filter(move |_| direction.is_some())
}

/// Returns a number that is present and can be an amount. iperf3 writes an unknown value as -1, signed or unsigned.
fn number(object: &Value, key: &str) -> Option<f64> {
    let value = object.get(key)?;
    if value.as_u64() == Some(u64::MAX) {
        return None;
    }
    let number = value.as_f64();
    number.filter(|number| number.is_finite() && *number >= 0.0)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::super::command_line;
    use super::super::tests::plan;
    use super::*;
    use crate::external::tests::captured;
    use record::{Metric, Statistic};

    /// Output of iperf3 3.12: two streams for a second, a sample every half second.
    pub(crate) const TCP: &str = include_str!("fixtures/iperf3_tcp.json");
    pub(crate) const REVERSE: &str = include_str!("fixtures/iperf3_rev.json");
    pub(crate) const UDP: &str = include_str!("fixtures/iperf3_udp.json");
    pub(crate) const BOTH: &str = include_str!("fixtures/iperf3_bidir.json");
    const UDP_REVERSE: &str = include_str!("fixtures/iperf3_udprev.json");
    pub(crate) const REFUSED: &str = include_str!("fixtures/iperf3_refused.json");

    fn parse(text: &str, plan: &Iperf3Test) -> Measurement {
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
                interval: None,
                ..(*f).clone()
            } == wanted
        });
        found
            .unwrap_or_else(|| panic!("{metric:?}: {measurement:?}"))
            .value
    }

    #[test]
    fn the_loss_after_an_omitted_start_is_known_from_3_14_on() {
        let plan = Iperf3Test {
            omit: Duration::from_secs(1),
            ..plan(Transport::Udp, TestDirection::Up)
        };
        let known = |version: &str| {
            let text = UDP.replace("iperf 3.12", version);
            let measurement = parse(&text, &plan);
            let figures = measurement.figures.iter();
            let lost = figures.filter(|f| [LostPackets, LostPercent].contains(&f.metric));
            (lost.count(), measurement.facts.contains_key("loss up"))
        };
        assert_eq!(known("iperf 3.12"), (0, true));
        assert_eq!(known("iperf 3.13-mt1"), (0, true));
        assert_eq!(known("iperf 3.14"), (2, false));
        assert_eq!(known("iperf 3.21+"), (2, false));
    }

    #[test]
    fn both_ends_of_tcp_and_its_streams_have_separate_figures() {
        let plan = Iperf3Test {
            parallel: 2,
            ..plan(Transport::Tcp, TestDirection::Up)
        };
        let measurement = parse(TCP, &plan);
        assert_eq!(measurement.failure, None);
        let up = |metric, statistic| figure(&measurement, metric, statistic, Direction::Up);
        assert_eq!(up(SentBytes, Total), 3_765_698_560.0);
        assert_eq!(up(ReceivedBytes, Total), 3_765_698_560.0);
        assert!((up(GoodputBitPerS, Mean) / 30_100_574_902.0 - 1.0).abs() < 1e-9);
        assert_eq!(up(RetransmittedPackets, Total), 0.0);
        assert!((up(ReceiverCpuPercent, Mean) - 85.15).abs() < 0.01);
        let sent = |s: &&Sample| s.metric == SentBytes && s.direction == Some(Direction::Up);
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
        let rtts = measurement.samples.iter().filter(|s| s.metric == TcpRttMs);
        assert_eq!(rtts.map(|s| s.value).next(), Some(0.045));
        assert_eq!(measurement.facts["sender's congestion control"], "cubic");
    }

    #[test]
    fn a_reverse_test_goes_down_and_has_no_rtt_of_the_far_end() {
        let measurement = parse(REVERSE, &plan(Transport::Tcp, TestDirection::Down));
        let down = |metric, statistic| figure(&measurement, metric, statistic, Direction::Down);
        assert_eq!(down(ReceivedBytes, Total), 2_326_790_038.0);
        assert_eq!(down(RetransmittedPackets, Total), 2.0);
        assert!(measurement.figures.iter().all(|f| f.metric != TcpRttMs));
    }

    #[test]
    fn udp_loss_and_jitter_are_those_of_the_receiver() {
        for (text, way, direction) in [
            (UDP, TestDirection::Up, Direction::Up),
            (UDP_REVERSE, TestDirection::Down, Direction::Down),
        ] {
            let measurement = parse(text, &plan(Transport::Udp, way));
            assert_eq!(measurement.failure, None);
            let get = |metric, statistic| figure(&measurement, metric, statistic, direction);
            assert_eq!(get(SentPackets, Total), 432.0);
            assert_eq!(get(LostPercent, Mean), 0.0);
            assert!(get(JitterMs, Mean) < 0.02);
        }
    }

    #[test]
    fn both_directions_have_separate_figures() {
        let measurement = parse(BOTH, &plan(Transport::Tcp, TestDirection::Both));
        let sent = |direction| figure(&measurement, RetransmittedPackets, Total, direction);
        assert_eq!((sent(Direction::Up), sent(Direction::Down)), (2.0, 9.0));
    }

    #[test]
    fn the_error_of_iperf3_is_the_failure() {
        let plan = plan(Transport::Tcp, TestDirection::Up);
        let cause = parse(REFUSED, &plan).failure.unwrap();
        assert_eq!(
            cause,
            "iperf3: unable to connect to server: Connection refused"
        );
        let cause = Iperf3
            .parse(&captured("{\"start\":", 1), &plan)
            .failure
            .unwrap();
        assert!(cause.contains("code 1 and incomplete JSON"), "{cause}");
        let deep = "[".repeat(10_000);
        assert!(parse(&deep, &plan).failure.is_some());
    }

    #[test]
    fn an_unknown_value_is_not_a_figure() {
        let object: Value =
            serde_json::from_str(r#"{"a":18446744073709551615,"b":-1,"c":"5","d":5,"e":null}"#)
                .unwrap();
        let found = ["a", "b", "c", "d", "e", "f"].map(|key| number(&object, key));
        assert_eq!(found, [None, None, None, Some(5.0), None, None]);
    }

    fn options(test: &StreamTest<'_>) -> String {
        command_line(&Iperf3, test).unwrap().join(" ")
    }

    #[test]
    fn a_plan_becomes_iperf3_s_options() {
        let plan = Iperf3Test {
            parallel: 4,
            congestion: Some("cubic".to_owned()),
            bitrate: Some(5_000_000),
            ..plan(Transport::Udp, TestDirection::Down)
        };
        let local = "lo".parse().unwrap();
        let arguments = options(&StreamTest {
            local: Some(&local),
            connect_timeout: Some(Duration::from_millis(500)),
            ..StreamTest::new("[::1]:5201".parse().unwrap(), &plan)
        });
        for wanted in [
            "-c ::1 -p 5201 -t 2 -O 0 -i 1 -P 4 -b 5000000 -C cubic",
            "--bind-dev lo --connect-timeout 500",
            "-u -R",
        ] {
            assert!(arguments.contains(wanted), "{arguments}");
        }
    }

    #[test]
    fn datagrams_without_a_rate_are_sent_as_fast_as_possible() {
        let target = "127.0.0.1:5201".parse().unwrap();
        let udp = plan(Transport::Udp, TestDirection::Up);
        let udp = Iperf3Test {
            bitrate: None,
            ..udp
        };
        assert!(options(&StreamTest::new(target, &udp)).contains("-b 0"));
        let tcp = plan(Transport::Tcp, TestDirection::Up);
        assert!(!options(&StreamTest::new(target, &tcp)).contains("-b"));
    }

    #[test]
    fn a_part_of_a_second_is_refused() {
        let plan = Iperf3Test {
            until: Until::For(Duration::from_millis(1500)),
            ..plan(Transport::Tcp, TestDirection::Up)
        };
        let error = Iperf3.check(&plan).unwrap_err().to_string();
        assert!(
            error.contains("whole seconds only, not for 1.5s"),
            "{error}"
        );
    }
}
