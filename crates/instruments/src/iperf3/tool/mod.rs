//! The common parts of iperf3, iperf and nuttcp, which measure streams of TCP or UDP from one end to the other.

pub(crate) mod iperf;
pub(crate) mod iperf3;
pub(crate) mod nuttcp;
mod socket_drops;

use std::net::SocketAddr;
use std::time::Duration;

use crate::error::{Result, bail, ensure};
use serde::Deserialize;

use clap::ValueEnum;
use serde::Serialize;

use self::iperf::Iperf;
use self::iperf3::Iperf3;
use self::nuttcp::Nuttcp;
use self::socket_drops::SocketWatch;
use crate::Session;
use crate::endpoint::{self, Family, Local};
use crate::external::{FarTool, Tool, ToolNumber, ToolOutput, word, words};
use crate::failure::{Blame, Failure};
use crate::iperf3::plan::{Iperf3Test, TestDirection, Transport, Until};
use record::schedule::Pace;
use record::{Direction, Figure, Measurement, Metric};

/// A program that measures streams of TCP or UDP. The server must be of the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StreamTool {
    /// The iperf3 on PATH (Debian: iperf3)
    Iperf3,
    /// The iperf 2 on PATH (Debian: iperf)
    Iperf,
    /// The nuttcp on PATH (Debian: nuttcp)
    Nuttcp,
}

/// The time that a tool may take beyond its test: to connect, and to exchange results.
const GRACE: Duration = Duration::from_secs(30);

/// A test for a tool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamTest<'a> {
    /// The address where its server listens.
    pub(crate) target: SocketAddr,
    /// The streams.
    pub(crate) plan: &'a Iperf3Test,
    /// The local address or interface to send from.
    pub(crate) local: Option<&'a Local>,
    /// The time-out for a connection, if the user sets one.
    pub(crate) connect_timeout: Option<Duration>,
}

/// A tool that measures streams.
pub(crate) trait StreamProgram {
    /// Returns the tool on PATH.
    ///
    /// # Errors
    /// Returns an error if it is not installed.
    fn tool(&self) -> Result<Tool>;

    /// Returns the default port of its server.
    fn port(&self) -> u16;

    /// Checks that the tool can do what `plan` asks for, independently of the ends.
    ///
    /// # Errors
    /// Returns an error that names a setting for which the tool has no option.
    fn check(&self, plan: &Iperf3Test) -> Result<()>;

    /// Returns the command line of the tool's server for `plan`, at an address of the target's IP version. `None` means
    /// that farwire's far end serves the tool.
    fn server_arguments(&self, target: SocketAddr, plan: &Iperf3Test) -> Option<Vec<String>>;

    /// Returns the client's command line for a plan that was checked.
    ///
    /// # Errors
    /// Returns an error that names a setting of the test's ends for which the tool has no option.
    fn arguments(&self, test: &StreamTest<'_>) -> Result<Vec<String>>;

    /// Parses the tool's output into samples and figures. Other lines are ignored.
    fn parse(&self, output: &ToolOutput, plan: &Iperf3Test) -> Measurement;
}

impl<'a> StreamTest<'a> {
    /// Returns a test from any local address, with the default time-out.
    pub(crate) fn new(target: SocketAddr, plan: &'a Iperf3Test) -> Self {
        Self {
            target,
            plan,
            local: None,
            connect_timeout: None,
        }
    }
}

/// Returns the command line with which the tool `by` does `test`.
///
/// # Errors
/// Returns an error that names a setting for which the tool has no option.
pub(crate) fn command_line(by: &dyn StreamProgram, test: &StreamTest<'_>) -> Result<Vec<String>> {
    by.check(test.plan)?;
    by.arguments(test)
}

/// Returns the direction of the data in a test of one direction.
pub(crate) fn direction(plan: &Iperf3Test) -> Direction {
    match plan.direction {
        TestDirection::Up | TestDirection::Both => Direction::Up,
        TestDirection::Down => Direction::Down,
    }
}

/// Returns the figure of all streams of this direction together.
fn whole(figures: &[Figure], metric: Metric, direction: Direction) -> Option<f64> {
    let is_wanted = |figure: &&Figure| {
        (figure.metric, figure.direction, figure.stream) == (metric, Some(direction), None)
    };
    figures.iter().find(is_wanted).map(|figure| figure.value)
}

/// Adds to a tool's measurement of UDP whether the senders kept their pace. They did not if `sent` datagrams are fewer
/// than requested.
pub(crate) fn with_pace(
    measurement: Measurement,
    plan: &Iperf3Test,
    sent: impl Fn(&[Figure], Direction) -> Option<SentDatagrams>,
) -> Measurement {
    if plan.protocol == Transport::Tcp {
        return measurement;
    }
    let rate = plan.bitrate.filter(|rate| *rate > 0);
    let asked = rate.map(|rate| rate as f64 * f64::from(plan.parallel));
    let paces: Vec<Pace> = [Direction::Up, Direction::Down]
        .into_iter()
        .filter_map(|direction| {
            let sent = sent(&measurement.figures, direction);
            let (asked, sent) = asked.zip(sent.filter(|sent| sent.packets > 0.0))?;
            let packet = nearest(sent.bytes / sent.packets);
            let bytes = nearest(sent.bytes);
            Pace::of_bits(Some(direction), asked, bytes, sent.seconds, packet)
        })
        .collect();
    Measurement {
        paces,
        ..measurement
    }
}

/// The datagrams that a tool reports as sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentDatagrams {
    pub(crate) bytes: f64,
    pub(crate) seconds: f64,
    pub(crate) packets: f64,
}

impl SentDatagrams {
    /// Computes the counts from the figures of sent bytes, rate and packets.
    pub(crate) fn of(figures: &[Figure], direction: Direction) -> Option<Self> {
        let whole = |metric| whole(figures, metric, direction);
        let bytes = whole(Metric::SentBytes)?;
        let rate = whole(Metric::SentRateBitPerS).filter(|rate| *rate > 0.0)?;
        Some(Self {
            bytes,
            seconds: bytes * 8.0 / rate,
            packets: whole(Metric::SentPackets)?,
        })
    }
}

/// Returns the nearest whole number to a tool's count, which is not negative.
#[expect(
    clippy::cast_possible_truncation,
    reason = "whole, and what is beyond an integer becomes the largest"
)]
fn nearest(count: f64) -> u64 {
    count.round() as u64
}

/// Returns the duration of a test, for tools that are used in one direction, for a time without an omitted start.
///
/// # Errors
/// Returns an error that names `tool` if the plan asks for something else.
pub(crate) fn one_way_time(tool: &str, plan: &Iperf3Test) -> Result<Duration> {
    ensure!(
        Tool,
        plan.direction != TestDirection::Both,
        "farwire uses {tool} in one direction at a time"
    );
    ensure!(Tool, plan.omit.is_zero(), "{tool} cannot omit the start");
    match plan.until {
        Until::For(time) => Ok(time),
        Until::Bytes(_) => bail!(
            Tool,
            "farwire uses {tool} for a time, not for a number of bytes"
        ),
    }
}

/// Checks that no time-out for a connection is set, for tools that have no option for it.
///
/// # Errors
/// Returns an error that names `tool` if one is set.
pub(crate) fn check_no_connect_timeout(tool: &str, test: &StreamTest<'_>) -> Result<()> {
    ensure!(
        Tool,
        test.connect_timeout.is_none(),
        "{tool} has no option for the time of connecting"
    );
    Ok(())
}

/// Parses a tool's amount. `None` means that the text is not one.
pub(crate) fn parse_amount(text: &str) -> Option<f64> {
    let number = text.parse::<f64>().ok()?;
    ToolNumber::try_from(number)
        .ok()
        .map(|ToolNumber(value)| value)
}

/// Returns the flags that are wanted.
pub(crate) fn enabled_flags(flags: &[(&str, bool)]) -> impl Iterator<Item = String> {
    let wanted = flags.iter().filter(|(_, wanted)| *wanted);
    wanted.map(|(flag, _)| (*flag).to_owned())
}

/// Returns the arguments that the clients of iperf and iperf3 share, with the tool's own arguments for the test's
/// `length` and the `rest`.
pub(crate) fn iperf_client(
    test: &StreamTest<'_>,
    length: &[(&str, Option<String>)],
    rest: &[(&str, Option<String>)],
) -> Vec<String> {
    let (target, plan) = (test.target, test.plan);
    // iperf3's default is 1 Mbit/s for datagrams; 0 means as fast as possible.
    let unlimited = (plan.protocol == Transport::Udp).then_some(0);
    let mut arguments = words(&[("-c", word(target.ip())), ("-p", word(target.port()))]);
    arguments.extend(words(length));
    arguments.extend(words(&[
        ("-i", word(plan.interval.as_secs_f64())),
        ("-P", word(plan.parallel)),
        ("-b", plan.bitrate.or(unlimited).and_then(word)),
        ("-l", plan.length.and_then(word)),
        ("-w", plan.window.and_then(word)),
        ("-M", plan.mss.and_then(word)),
        ("-S", plan.tos.and_then(word)),
    ]));
    arguments.extend(words(rest));
    arguments.extend(enabled_flags(&[
        ("-u", plan.protocol == Transport::Udp),
        ("-R", plan.direction == TestDirection::Down),
        ("-N", plan.no_delay),
    ]));
    arguments
}

impl StreamTool {
    /// Returns the default port of its server.
    pub(crate) fn port(self) -> u16 {
        self.external().port()
    }

    /// Returns the program on PATH.
    ///
    /// # Errors
    /// Returns an error if it is not installed.
    pub(crate) fn find_tool(self) -> Result<Tool> {
        self.external().tool()
    }

    /// Returns the server that the tool needs at `host` for `plan`, unless farwire's far end serves it.
    ///
    /// # Errors
    /// Returns an error if the server is not installed, or has no option for a setting of the plan.
    pub(crate) fn server(self, host: &str, plan: &Iperf3Test) -> Result<Option<FarTool>> {
        let tool = self.external();
        tool.check(plan)?;
        let port = tool.port();
        let target = endpoint::resolve(host, port, Family::Any)?;
        let Some(arguments) = tool.server_arguments(target, plan) else {
            return Ok(None);
        };
        Ok(Some(FarTool {
            tool: tool.tool()?,
            arguments,
            port,
        }))
    }

    /// Measures in the calling thread's network namespace.
    ///
    /// # Errors
    /// Returns a failure if the tool is not installed, or has no option for a setting.
    pub(crate) fn measure(
        self,
        test: &StreamTest<'_>,
        session: &Session,
    ) -> Result<Measurement, Failure> {
        let by = self.external();
        let mut plan = test.plan.clone();
        if session.in_bed && plan.direction == TestDirection::Down {
            // The sending server was started with the congestion control.
            plan.congestion = None;
        }
        let test = &StreamTest {
            plan: &plan,
            ..*test
        };
        let arguments = command_line(by, test).or_bad_input()?;
        let tool = by.tool().or_machine()?;
        let stop = match test.plan.duration() {
            Some(time) => session.stop.within(time + GRACE),
            None => session.stop.clone(),
        };
        let launcher = session.launcher();
        let parse = |output: &ToolOutput| {
            let measurement = by.parse(output, test.plan);
            test.plan.with_requested_rate(measurement)
        };
        let is_served_by_farwire = by.server_arguments(test.target, test.plan).is_none();
        let watch = SocketWatch::begin(session, is_served_by_farwire);
        let measurement = launcher.measure(&tool, &arguments, &stop, parse);
        Ok(watch.end().widen_intervals(measurement))
    }

    fn external(self) -> &'static dyn StreamProgram {
        match self {
            Self::Iperf3 => &Iperf3,
            Self::Iperf => &Iperf,
            Self::Nuttcp => &Nuttcp,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a test of one stream for two seconds.
    pub(in super::super) fn plan(protocol: Transport, way: TestDirection) -> Iperf3Test {
        Iperf3Test {
            direction: way,
            until: Until::For(Duration::from_secs(2)),
            ..Iperf3Test::new(protocol)
        }
    }

    #[test]
    fn unsupported_plans_are_refused() {
        let plain = plan(Transport::Tcp, TestDirection::Down);
        assert_eq!(one_way_time("x", &plain).unwrap(), Duration::from_secs(2));
        let second = Duration::from_secs(1);
        for plan in [
            Iperf3Test {
                direction: TestDirection::Both,
                ..plain.clone()
            },
            Iperf3Test {
                omit: second,
                ..plain.clone()
            },
            Iperf3Test {
                until: Until::Bytes(9),
                ..plain
            },
        ] {
            assert!(one_way_time("x", &plan).is_err(), "{plan:?}");
        }
    }

    /// Returns a measurement of 10 Mbit/s for 2 s in 2,000 datagrams of 1,250 bytes, with these numbers sent and lost.
    pub(super) fn tool_measurement(sent: f64, lost: f64) -> Measurement {
        use record::Statistic::{Mean, Total};
        let plan = Iperf3Test {
            bitrate: Some(10_000_000),
            ..plan(Transport::Udp, TestDirection::Up)
        };
        let figure =
            |metric, statistic, value| Figure::new(metric, statistic, value).toward(Direction::Up);
        let figures = vec![
            figure(Metric::SentBytes, Total, sent * 1250.0),
            figure(Metric::SentRateBitPerS, Mean, sent * 5000.0),
            figure(Metric::SentPackets, Total, sent),
            figure(Metric::GoodputBitPerS, Mean, (sent - lost) * 5000.0),
            figure(Metric::LostPackets, Total, lost),
            figure(Metric::LostPercent, Mean, 100.0 * lost / sent),
        ];
        let measurement = Measurement {
            figures,
            ..Measurement::default()
        };
        with_pace(measurement, &plan, SentDatagrams::of)
    }

    #[test]
    fn a_tool_that_sent_less_than_it_was_asked_for_fell_short() {
        assert_eq!(
            tool_measurement(1981.0, 0.0).shortfall(Duration::from_millis(1)),
            None
        );
        let cause = tool_measurement(1900.0, 0.0)
            .shortfall(Duration::from_millis(1))
            .unwrap();
        assert!(
            cause.ends_with("it sent 9.50 of the requested 10.0 Mbit/s up"),
            "{cause}"
        );
    }

    #[test]
    fn an_invalid_amount_is_none() {
        assert_eq!(parse_amount("1.5"), Some(1.5));
        for text in ["", "-1", "nan", "inf", "1e23", "x"] {
            assert_eq!(parse_amount(text), None);
        }
    }
}
