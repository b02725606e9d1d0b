//! nuttcp as an instrument, whose `key=value` output (`-fparse`) is parsed.

use std::collections::HashMap;
use std::net::SocketAddr;

use crate::error::{Result, bail, ensure};

use super::{SentDatagrams, StreamProgram, StreamTest, direction, enabled_flags, parse_amount};
use crate::external::{Tool, ToolOutput};
use crate::iperf3::plan::{Iperf3Test, TestDirection, Transport};
use crate::measured::{figures, samples};
use record::Metric::{
    ConnectMs, ElapsedS, GoodputBitPerS, LostPackets, LostPercent, ReceivedBytes,
    ReceiverCpuPercent, SenderCpuPercent, SentPackets,
};
use record::Statistic::{Mean, Total};
use record::{Figure, Measurement, Sample};

/// The default port of its control connections, which is also the lowest allowed. Data uses the ports from 5001 on.
const PORT: u16 = 5000;
/// The bytes of nuttcp's megabyte.
const MEGABYTE: f64 = 1_048_576.0;

/// The nuttcp on PATH.
#[derive(Debug)]
pub(crate) struct Nuttcp;

impl StreamProgram for Nuttcp {
    fn tool(&self) -> Result<Tool> {
        Tool::find("nuttcp", "-V", "nuttcp")
    }

    fn port(&self) -> u16 {
        PORT
    }

    fn check(&self, plan: &Iperf3Test) -> Result<()> {
        if let Some(congestion) = &plan.congestion {
            bail!(
                Tool,
                "nuttcp has no option for the congestion control {congestion}"
            );
        }
        super::one_way_time("nuttcp", plan).map(drop)
    }

    fn server_arguments(&self, target: SocketAddr, _plan: &Iperf3Test) -> Option<Vec<String>> {
        let version = if target.is_ipv6() { "-6" } else { "-4" };
        let port = format!("-P{}", target.port());
        Some(["-S", version, &port, "--nofork"].map(str::to_owned).into())
    }

    fn arguments(&self, test: &StreamTest<'_>) -> Result<Vec<String>> {
        super::check_no_connect_timeout("nuttcp", test)?;
        let (target, plan) = (test.target, test.plan);
        if let Some(local) = test.local {
            bail!(Tool, "nuttcp has no option to bind to {local}");
        }
        ensure!(
            Tool,
            target.port() >= PORT,
            "nuttcp allows control ports from {PORT} on, not {}",
            target.port()
        );
        let time = super::one_way_time("nuttcp", plan)?;
        // The default of nuttcp is 1 Mbit/s for datagrams; 0 means as fast as possible.
        let rate = plan.bitrate.map_or(0, |rate| rate.div_ceil(1000));
        let window = plan.window.map(|bytes| bytes.div_ceil(1024));
        let mut arguments = vec![
            "-fparse".to_owned(),
            format!("-T{}", time.as_secs_f64()),
            format!("-i{}", plan.interval.as_secs_f64()),
            format!("-P{}", target.port()),
            format!("-N{}", plan.parallel),
            format!("-R{rate}k"),
        ];
        arguments.extend(enabled_flags(&[
            ("-4", target.is_ipv4()),
            ("-6", target.is_ipv6()),
            ("-u", plan.protocol == Transport::Udp),
            ("-r", plan.direction == TestDirection::Down),
            ("-D", plan.no_delay),
        ]));
        arguments.extend(plan.length.map(|bytes| format!("-l{bytes}")));
        arguments.extend(window.map(|kib| format!("-w{kib}k")));
        arguments.extend(plan.mss.map(|bytes| format!("-M{bytes}")));
        arguments.extend(plan.tos.map(|tos| format!("-c{tos}t")));
        arguments.push(target.ip().to_string());
        Ok(arguments)
    }

    fn parse(&self, output: &ToolOutput, plan: &Iperf3Test) -> Measurement {
        let reports: Vec<Pairs<'_>> = output.texts().filter_map(report).collect();
        let mut wholes = reports
            .iter()
            .filter(|report| report.contains_key("real_seconds"));
        let whole = wholes.next();
        let figures = whole.map(|report| whole_figures(report, plan));
        let measurement = Measurement {
            samples: interval_samples(&reports, plan),
            figures: figures.unwrap_or_default(),
            failure: failure(output, whole),
            ..Measurement::default()
        };
        let sent = |_: &[Figure], way| {
            whole
                .filter(|_| way == direction(plan))
                .and_then(|report| sent(report, plan))
        };
        super::with_pace(measurement, plan, sent)
            .with_fact("goodput", "bytes that the receiving nuttcp counted (L7)")
            .with_fact("connect", "nuttcp's RTT, which is the time of connecting")
    }
}

/// The pairs of one line.
type Pairs<'a> = HashMap<&'a str, f64>;

/// Parses a line such as `megabytes=839.6875 real_sec=0.50 rate_Mbps=14075.0074 retrans=0`. A line without bytes is not
/// a report.
fn report(line: &str) -> Option<Pairs<'_>> {
    let pairs = line.split_whitespace().filter_map(|word| {
        let (key, value) = word.split_once('=')?;
        Some((key, parse_amount(value)?))
    });
    let report: Pairs<'_> = pairs.collect();
    report.contains_key("megabytes").then_some(report)
}

fn bytes(report: &Pairs<'_>) -> Option<f64> {
    Some(report.get("megabytes")? * MEGABYTE)
}

/// Returns the received data of each interval. nuttcp does not report the incomplete last interval.
fn interval_samples(reports: &[Pairs<'_>], plan: &Iperf3Test) -> Vec<Sample> {
    let mut at_s = 0.0;
    let mut all = Vec::new();
    let intervals = reports
        .iter()
        .filter_map(|report| Some((report, report.get("real_sec")?)));
    for ((report, length_s), index) in intervals.zip(1..) {
        at_s += length_s;
        let found = [
            (ReceivedBytes, bytes(report)),
            (LostPackets, report.get("drop").copied()),
        ];
        all.extend(samples(at_s, index, direction(plan), found));
    }
    all
}

/// Returns the sent datagrams. nuttcp reports only their number; the size comes from those that arrived. It sends for
/// the requested time, whereas the reported time is the receiver's, which continues while queues empty.
fn sent(report: &Pairs<'_>, plan: &Iperf3Test) -> Option<SentDatagrams> {
    let packets = *report.get("pkt")?;
    let arrived = packets - report.get("drop")?;
    let length = bytes(report).filter(|_| arrived > 0.0)? / arrived;
    Some(SentDatagrams {
        bytes: packets * length,
        seconds: plan.duration()?.as_secs_f64(),
        packets,
    })
}

fn whole_figures(report: &Pairs<'_>, plan: &Iperf3Test) -> Vec<Figure> {
    let get = |key: &str| report.get(key).copied();
    let along = [
        (ReceivedBytes, Total, bytes(report)),
        (
            GoodputBitPerS,
            Mean,
            get("rate_Mbps").map(|mbps| mbps * 1e6),
        ),
        (ElapsedS, Total, get("real_seconds")),
        (SentPackets, Total, get("pkt")),
        (LostPackets, Total, get("drop")),
    ];
    let around = [
        (ConnectMs, Mean, get("rtt_ms")),
        (SenderCpuPercent, Mean, get("tx_cpu")),
        (ReceiverCpuPercent, Mean, get("rx_cpu")),
    ];
    let along = figures(Some(direction(plan)), along);
    // nuttcp prints its CPU load in whole percent, and by default its loss too; the counts are exact.
    let around = figures(None, around).map(|figure| match figure.metric {
        SenderCpuPercent | ReceiverCpuPercent => figure.in_steps_of(1.0),
        _ => figure,
    });
    let counts = get("drop").zip(get("pkt")).filter(|(_, sent)| *sent > 0.0);
    let of_counts = counts.map(|(lost, sent)| (LostPercent, Mean, Some(100.0 * lost / sent)));
    let lost = figures(Some(direction(plan)), of_counts);
    along.chain(lost).chain(around).collect()
}

fn failure(output: &ToolOutput, whole: Option<&Pairs<'_>>) -> Option<String> {
    let mut lines = output.texts();
    if let Some((_, cause)) = lines.find_map(|line| line.split_once("Error: ")) {
        return Some(format!("nuttcp: {}", cause.trim()));
    }
    match whole.and_then(bytes) {
        Some(bytes) if bytes > 0.0 => None,
        Some(_) => Some("nothing arrived".to_owned()),
        None => Some(output.exit_message("nuttcp")),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::super::command_line;
    use super::super::tests::plan;
    use super::*;
    use crate::external::tests::captured;
    use crate::iperf3::plan::Until;
    use record::Metric::RetransmittedPackets;
    use record::{Direction, Metric};

    /// Output of nuttcp 6.1.2.
    pub(crate) const TCP: &str = include_str!("fixtures/nuttcp_tcp.txt");
    pub(crate) const REVERSE: &str = include_str!("fixtures/nuttcp_rev.txt");
    pub(crate) const UDP: &str = include_str!("fixtures/nuttcp_udp.txt");

    fn parse(text: &str, plan: &Iperf3Test) -> Measurement {
        Nuttcp.parse(&captured(text, 0), plan)
    }

    fn figure(measurement: &Measurement, metric: Metric) -> Option<f64> {
        measurement
            .figures
            .iter()
            .find(|f| f.metric == metric)
            .map(|f| f.value)
    }

    #[test]
    fn cpu_loads_state_their_resolution_and_loss_is_computed_from_counts() {
        let text = UDP.replace(
            "drop=0 pkt=432 data_loss=0.00000",
            "drop=1 pkt=432 data_loss=0",
        );
        let measurement = parse(&text, &plan(Transport::Udp, TestDirection::Up));
        let of = |metric| {
            measurement
                .figures
                .iter()
                .find(|f| f.metric == metric)
                .unwrap()
        };
        assert_eq!(
            (
                of(ReceiverCpuPercent).value,
                of(ReceiverCpuPercent).resolution
            ),
            (0.0, Some(1.0))
        );
        // One of 432 was lost, which nuttcp may print as 0.
        assert!((of(LostPercent).value - 0.231_481).abs() < 1e-6);
        assert_eq!(of(LostPercent).resolution, None);
    }

    #[test]
    fn tcp_has_a_connect_time_and_the_cpu_load_of_both_ends() {
        let measurement = parse(TCP, &plan(Transport::Tcp, TestDirection::Up));
        assert_eq!(measurement.failure, None);
        let get = |metric| figure(&measurement, metric).unwrap();
        assert_eq!(get(GoodputBitPerS), 12_162_266_300.0);
        assert_eq!(get(ReceivedBytes), 1450.625 * MEGABYTE);
        // nuttcp prints retrans=0, whatever is retransmitted.
        assert_eq!(figure(&measurement, RetransmittedPackets), None);
        assert_eq!(get(ConnectMs), 0.10);
        assert_eq!(get(SenderCpuPercent), 44.0);
        assert_eq!(get(ReceiverCpuPercent), 31.0);
        assert_eq!(measurement.samples[0].value, 839.6875 * MEGABYTE);
    }

    #[test]
    fn a_reverse_test_goes_down() {
        let measurement = parse(REVERSE, &plan(Transport::Tcp, TestDirection::Down));
        assert_eq!(figure(&measurement, SenderCpuPercent), Some(25.0));
        assert_eq!(measurement.samples[0].direction, Some(Direction::Down));
        assert_eq!(figure(&measurement, ConnectMs), None);
    }

    #[test]
    fn udp_has_loss() {
        let measurement = parse(UDP, &plan(Transport::Udp, TestDirection::Up));
        assert_eq!(figure(&measurement, SentPackets), Some(432.0));
        assert_eq!(figure(&measurement, LostPercent), Some(0.0));
    }

    #[test]
    fn a_sender_below_its_requested_rate_fell_short() {
        // The tool sent 432 datagrams of 1,448 bytes in the requested second.
        let asked = |bitrate| {
            let plan = Iperf3Test {
                bitrate: Some(bitrate),
                until: Until::For(Duration::from_secs(1)),
                ..plan(Transport::Udp, TestDirection::Up)
            };
            parse(UDP, &plan).shortfall(Duration::from_millis(1))
        };
        assert_eq!(asked(5_000_000), None);
        let cause = asked(20_000_000).unwrap();
        assert!(
            cause.ends_with("it sent 5.00 of the requested 20.0 Mbit/s up"),
            "{cause}"
        );
    }

    #[test]
    fn the_error_of_nuttcp_is_the_failure() {
        let plan = plan(Transport::Tcp, TestDirection::Up);
        let refused = "nuttcp-t: v6.1.2: Error: connect: Connection refused\nerrno=111\n";
        let cause = Nuttcp.parse(&captured(refused, 1), &plan).failure.unwrap();
        assert_eq!(cause, "nuttcp: connect: Connection refused");
        let cause = Nuttcp
            .parse(&captured("invalid ctlport = 9\n", 1), &plan)
            .failure
            .unwrap();
        assert_eq!(cause, "nuttcp ended with code 1: invalid ctlport = 9");
        let cut_off = TCP.split("\n\n").next().unwrap();
        let measurement = parse(cut_off, &plan);
        assert!(measurement.failure.is_some() && measurement.figures.is_empty());
        assert!(!measurement.samples.is_empty());
    }

    #[test]
    fn unsupported_settings_are_refused() {
        let target = "127.0.0.1:5000".parse().unwrap();
        let local = "127.0.0.1".parse().unwrap();
        let plain = plan(Transport::Tcp, TestDirection::Up);
        let refused = |test| command_line(&Nuttcp, &test).unwrap_err().to_string();
        let error = refused(StreamTest {
            local: Some(&local),
            ..StreamTest::new(target, &plain)
        });
        assert!(error.contains("no option to bind to 127.0.0.1"), "{error}");
        let error = refused(StreamTest {
            connect_timeout: Some(Duration::from_secs(1)),
            ..StreamTest::new(target, &plain)
        });
        assert!(
            error.contains("no option for the time of connecting"),
            "{error}"
        );
        let plan = Iperf3Test {
            congestion: Some("reno".to_owned()),
            ..plain
        };
        let error = refused(StreamTest::new(target, &plan));
        assert!(error.contains("congestion control reno"), "{error}");
    }

    #[test]
    fn datagrams_without_a_rate_are_sent_as_fast_as_possible() {
        let target = "127.0.0.1:5000".parse().unwrap();
        let plan = Iperf3Test {
            bitrate: None,
            ..plan(Transport::Udp, TestDirection::Up)
        };
        let line = command_line(&Nuttcp, &StreamTest::new(target, &plan)).unwrap();
        assert!(line.contains(&"-R0k".to_owned()), "{line:?}");
    }
}
