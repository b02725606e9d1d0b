//! What iperf3, iperf and nuttcp have in common: streams of TCP or UDP from one end to the other for a time.

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

/// What measures streams of TCP or UDP; the server must be of the same kind.
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

/// What a tool may take beyond the time of its test: to connect, and to exchange results.
const GRACE: Duration = Duration::from_secs(30);

/// What a tool is to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamTest<'a> {
    /// Where its server listens.
    pub(crate) target: SocketAddr,
    /// Which streams.
    pub(crate) plan: &'a Iperf3Test,
    /// Where to send from.
    pub(crate) local: Option<&'a Local>,
    /// How long a connection may take to come about; absent unless the user says.
    pub(crate) connect_timeout: Option<Duration>,
}

/// A tool that measures streams.
pub(crate) trait StreamProgram {
    /// The one on PATH.
    ///
    /// # Errors
    /// It is not there.
    fn tool(&self) -> Result<Tool>;

    /// The port on which it serves unless told otherwise.
    fn port(&self) -> u16;

    /// Whether it can do what `plan` asks for, wherever.
    ///
    /// # Errors
    /// It has no option for something; says for what.
    fn check(&self, plan: &Iperf3Test) -> Result<()>;

    /// How its own server is started for `plan`, at an address of the target's IP version; absent where farwire's far end
    /// serves it.
    fn server_arguments(&self, target: SocketAddr, plan: &Iperf3Test) -> Option<Vec<String>>;

    /// Its command line for a plan that was checked.
    ///
    /// # Errors
    /// As [`Self::check`], of the test's ends.
    fn arguments(&self, test: &StreamTest<'_>) -> Result<Vec<String>>;

    /// What it said, as samples and figures; lines that it did not mean for us are passed over.
    fn parse(&self, output: &ToolOutput, plan: &Iperf3Test) -> Measurement;
}

impl<'a> StreamTest<'a> {
    /// From whichever address, with the usual patience.
    pub(crate) fn new(target: SocketAddr, plan: &'a Iperf3Test) -> Self {
        Self {
            target,
            plan,
            local: None,
            connect_timeout: None,
        }
    }
}

/// The command line with which `by` does `test`.
///
/// # Errors
/// It has no option for something; says for what.
pub(crate) fn command_line(by: &dyn StreamProgram, test: &StreamTest<'_>) -> Result<Vec<String>> {
    by.check(test.plan)?;
    by.arguments(test)
}

/// Where the data goes, in a test of one direction.
pub(crate) fn direction(plan: &Iperf3Test) -> Direction {
    match plan.way {
        TestDirection::Up | TestDirection::Both => Direction::Up,
        TestDirection::Down => Direction::Down,
    }
}

/// The figure of all streams that went this way.
fn whole(figures: &[Figure], metric: Metric, direction: Direction) -> Option<f64> {
    let mut figures = figures.iter();
    let is_it = |figure: &&Figure| {
        (figure.metric, figure.direction, figure.stream) == (metric, Some(direction), None)
    };
    figures.find(is_it).map(|figure| figure.value)
}

/// What UDP of a tool needs beside the tool's own numbers: whether its senders kept their pace, which they did not where `sent`, in
/// bytes over seconds and in packets, is less than was asked for.
pub(crate) fn judged(
    measurement: Measurement,
    plan: &Iperf3Test,
    sent: impl Fn(&[Figure], Direction) -> Option<SentDatagrams>,
) -> Measurement {
    if plan.protocol == Transport::Tcp {
        return measurement;
    }
    let rate = plan.bitrate.filter(|rate| *rate > 0);
    let asked = rate.map(|rate| rate as f64 * f64::from(plan.parallel));
    let paces = [Direction::Up, Direction::Down].into_iter();
    let paces: Vec<Pace> = paces
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

/// The datagrams that a tool says it sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentDatagrams {
    pub(crate) bytes: f64,
    pub(crate) seconds: f64,
    pub(crate) packets: f64,
}

impl SentDatagrams {
    /// By the figures of bytes, rate and packets that were sent.
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

/// The nearest whole number to a count of a tool, which is not below 0.
#[expect(
    clippy::cast_possible_truncation,
    reason = "whole, and what is beyond an integer becomes the largest"
)]
fn nearest(count: f64) -> u64 {
    count.round() as u64
}

/// For tools that are used in one direction, for a time, all of which counts: how long.
///
/// # Errors
/// The plan asks for something else; names `tool`.
pub(crate) fn plain_time(tool: &str, plan: &Iperf3Test) -> Result<Duration> {
    ensure!(
        Tool,
        plan.way != TestDirection::Both,
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

/// For tools that have no option for it: that no time-out for connecting is asked for.
///
/// # Errors
/// One is; names `tool`.
pub(crate) fn no_connect_timeout(tool: &str, test: &StreamTest<'_>) -> Result<()> {
    ensure!(
        Tool,
        test.connect_timeout.is_none(),
        "{tool} has no option for the time of connecting"
    );
    Ok(())
}

/// An amount that a tool said, if it is one.
pub(crate) fn amount(text: &str) -> Option<f64> {
    let amount = ToolNumber::try_from(text.parse::<f64>().ok()?);
    amount.ok().map(|ToolNumber(value)| value)
}

/// The flags that are wanted.
pub(crate) fn switches(flags: &[(&str, bool)]) -> impl Iterator<Item = String> {
    let wanted = flags.iter().filter(|(_, wanted)| *wanted);
    wanted.map(|(flag, _)| (*flag).to_owned())
}

/// What the clients of iperf and iperf3 take alike, with each one's own words for the test's `length` and for the `rest`.
pub(crate) fn iperf_client(
    test: &StreamTest<'_>,
    length: &[(&str, Option<String>)],
    rest: &[(&str, Option<String>)],
) -> Vec<String> {
    let (target, plan) = (test.target, test.plan);
    // Unless told, iperf3 sends 1 Mbit/s of datagrams; 0 is as fast as it goes.
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
    arguments.extend(switches(&[
        ("-u", plan.protocol == Transport::Udp),
        ("-R", plan.way == TestDirection::Down),
        ("-N", plan.no_delay),
    ]));
    arguments
}

impl StreamTool {
    /// Where its server listens unless told otherwise.
    pub(crate) fn port(self) -> u16 {
        self.external().port()
    }

    /// The one on PATH.
    ///
    /// # Errors
    /// It is not there.
    pub(crate) fn found(self) -> Result<Tool> {
        self.external().tool()
    }

    /// The server that it needs at `host` for `plan`, where that is not farwire's.
    ///
    /// # Errors
    /// It is not there, or has no option for something in the plan.
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

    /// Measures in the calling thread's namespace.
    ///
    /// # Errors
    /// The tool is not here, or has no option for something that is asked for.
    pub(crate) fn measure(
        self,
        test: &StreamTest<'_>,
        session: &Session,
    ) -> Result<Measurement, Failure> {
        let by = self.external();
        let mut plan = test.plan.clone();
        if session.in_bed && plan.way == TestDirection::Down {
            // The server that sends was started with it.
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
        Ok(watch.end().allowed_for(measurement))
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

    /// Two seconds of one stream.
    pub(in super::super) fn plan(protocol: Transport, way: TestDirection) -> Iperf3Test {
        Iperf3Test {
            way,
            until: Until::For(Duration::from_secs(2)),
            ..Iperf3Test::new(protocol)
        }
    }

    #[test]
    fn what_a_plain_tool_cannot_do_is_refused() {
        let plain = plan(Transport::Tcp, TestDirection::Down);
        assert_eq!(plain_time("x", &plain).unwrap(), Duration::from_secs(2));
        let second = Duration::from_secs(1);
        for plan in [
            Iperf3Test {
                way: TestDirection::Both,
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
            assert!(plain_time("x", &plan).is_err(), "{plan:?}");
        }
    }

    /// 10 Mbit/s for 2 s in datagrams of 1,250 bytes, 2,000 of them, with these numbers sent and lost.
    pub(super) fn told(sent: f64, lost: f64) -> Measurement {
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
        judged(measurement, &plan, SentDatagrams::of)
    }

    #[test]
    fn a_tool_that_sent_less_than_it_was_asked_for_fell_short() {
        assert_eq!(told(1981.0, 0.0).shortfall(Duration::from_millis(1)), None);
        let cause = told(1900.0, 0.0)
            .shortfall(Duration::from_millis(1))
            .unwrap();
        assert!(
            cause.ends_with("it sent 9.50 of the requested 10.0 Mbit/s up"),
            "{cause}"
        );
    }

    #[test]
    fn what_cannot_be_an_amount_is_none() {
        assert_eq!(amount("1.5"), Some(1.5));
        for text in ["", "-1", "nan", "inf", "1e23", "x"] {
            assert_eq!(amount(text), None);
        }
    }
}
