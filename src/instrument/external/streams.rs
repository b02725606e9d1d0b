//! What iperf3, iperf and nuttcp have in common: streams of TCP or UDP from one end to the other for a time.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use super::launch::{Launcher, Output, Tool};
use crate::endpoint::Local;
use crate::instrument::iperf3::plan::{Plan, Until, Way};
use crate::instrument::{Direction, Measurement, Session};

/// What a tool may take beyond the time of its test: to connect, and to exchange results.
const GRACE: Duration = Duration::from_secs(30);

/// A tool that measures streams.
pub(super) trait StreamTool {
    /// The one on PATH.
    fn tool(&self) -> Result<Tool>;

    /// Its command line.
    ///
    /// # Errors
    /// The tool cannot do what the plan asks for.
    fn arguments(
        &self,
        target: SocketAddr,
        plan: &Plan,
        local: Option<&Local>,
    ) -> Result<Vec<String>>;

    /// What it said, as samples and figures; lines that it did not mean for us are passed over.
    fn parse(&self, output: &Output, plan: &Plan) -> Measurement;
}

/// Measures streams to and from `target` with a tool run by `launcher`.
pub(super) fn measure(
    by: &dyn StreamTool,
    launcher: &dyn Launcher,
    target: SocketAddr,
    plan: &Plan,
    local: Option<&Local>,
    session: &Session,
) -> Measurement {
    let prepared = by
        .tool()
        .and_then(|tool| Ok((tool, by.arguments(target, plan, local)?)));
    let (tool, arguments) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return Measurement::failed(format!("{error:#}")),
    };
    let stop = match plan.duration() {
        Some(time) => session.stop.within(time + GRACE),
        None => session.stop.clone(),
    };
    let measurement = match launcher.launch(&tool, &arguments, &stop) {
        Ok(output) => by.parse(&output, plan),
        Err(error) => Measurement::failed(format!("{error:#}")),
    };
    measurement.with_fact("tool", &tool.version)
}

/// Where the data goes, in a test of one direction.
pub(super) fn direction(plan: &Plan) -> Direction {
    match plan.way {
        Way::Up | Way::Both => Direction::Up,
        Way::Down => Direction::Down,
    }
}

/// For tools that are used in one direction, for a time, all of which counts: how long.
///
/// # Errors
/// The plan asks for something else; names `tool`.
pub(crate) fn plain_time(tool: &str, plan: &Plan) -> Result<Duration> {
    ensure!(
        plan.way != Way::Both,
        "{tool} is used in one direction at a time"
    );
    ensure!(plan.omit.is_zero(), "{tool} cannot leave the start out");
    match plan.until {
        Until::For(time) => Ok(time),
        Until::Bytes(_) => bail!("{tool} is used for a time, not for a number of bytes"),
    }
}

/// A number that a tool said, if it can be one.
pub(super) fn amount(text: &str) -> Option<f64> {
    text.parse().ok().filter(|value| is_amount(*value))
}

/// Whether `value` can be an amount of anything here: not negative, and no more than a year at 100 Tbit/s has bits.
pub(super) fn is_amount(value: f64) -> bool {
    const MOST: f64 = 1e22;
    (0.0..=MOST).contains(&value)
}

/// Flags, each with its value, as words of a command line; without those that have none.
pub(super) fn words<const N: usize>(pairs: [(&str, Option<String>); N]) -> Vec<String> {
    let said = pairs
        .into_iter()
        .filter_map(|(flag, value)| Some([flag.to_owned(), value?]));
    said.flatten().collect()
}

/// A number as a word of a command line.
pub(super) fn word(number: impl ToString) -> Option<String> {
    Some(number.to_string())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::instrument::iperf3::plan::Protocol;

    /// Two seconds of one stream.
    pub(in super::super) fn plan(protocol: Protocol, way: Way) -> Plan {
        Plan {
            way,
            until: Until::For(Duration::from_secs(2)),
            ..Plan::new(protocol)
        }
    }

    #[test]
    fn what_a_plain_tool_cannot_do_is_refused() {
        let plain = plan(Protocol::Tcp, Way::Down);
        assert_eq!(plain_time("x", &plain).unwrap(), Duration::from_secs(2));
        let second = Duration::from_secs(1);
        for plan in [
            Plan {
                way: Way::Both,
                ..plain.clone()
            },
            Plan {
                omit: second,
                ..plain.clone()
            },
            Plan {
                until: Until::Bytes(9),
                ..plain
            },
        ] {
            assert!(plain_time("x", &plan).is_err(), "{plan:?}");
        }
    }

    #[test]
    fn what_cannot_be_an_amount_is_none() {
        assert_eq!(amount("1.5"), Some(1.5));
        for text in ["", "-1", "nan", "inf", "1e23", "x"] {
            assert_eq!(amount(text), None);
        }
    }
}
