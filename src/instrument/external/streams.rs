//! What iperf3, iperf and nuttcp have in common: streams of TCP or UDP from one end to the other for a time.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::launch::{Launcher, Output, Tool};
use crate::endpoint::Local;
use crate::instrument::{Direction, Measurement, Session, seconds};

/// What a tool may take beyond the time of its test: to connect, and to exchange results.
const GRACE: Duration = Duration::from_secs(30);

/// Which streams, and for how long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StreamPlan {
    pub(crate) transport: Transport,
    /// From server to client.
    pub(crate) reverse: bool,
    /// In parallel, from 1.
    pub(crate) streams: u32,
    /// How long to send.
    #[serde(rename = "time_s", with = "seconds")]
    pub(crate) time: Duration,
    /// From one sample to the next.
    #[serde(rename = "interval_s", with = "seconds")]
    pub(crate) interval: Duration,
    /// Bytes of a write, or of a datagram; the tool's own when absent.
    pub(crate) length: Option<u64>,
    /// Bytes of the socket's buffers; the tool's or the system's own when absent.
    pub(crate) window: Option<u64>,
    /// TCP congestion control of the sender; the system's when absent.
    pub(crate) congestion: Option<String>,
}

/// What carries the streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Transport {
    Tcp,
    /// Each stream at so many bits of payload a second.
    Udp {
        bit_per_s: u64,
    },
}

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
        plan: &StreamPlan,
        local: Option<&Local>,
    ) -> Result<Vec<String>>;

    /// What it said, as samples and figures; lines that it did not mean for us are passed over.
    fn parse(&self, output: &Output, plan: &StreamPlan) -> Measurement;
}

/// Measures streams to and from `target` with a tool run by `launcher`.
pub(super) fn measure(
    by: &dyn StreamTool,
    launcher: &dyn Launcher,
    target: SocketAddr,
    plan: &StreamPlan,
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
    let stop = session.stop.within(plan.time + GRACE);
    let measurement = match launcher.launch(&tool, &arguments, &stop) {
        Ok(output) => by.parse(&output, plan),
        Err(error) => Measurement::failed(format!("{error:#}")),
    };
    measurement.with_fact("tool", &tool.version)
}

impl StreamPlan {
    /// Where the data goes.
    pub(super) fn direction(&self) -> Direction {
        if self.reverse {
            Direction::Down
        } else {
            Direction::Up
        }
    }

    /// After which its tool is stopped.
    pub(crate) fn longest(&self) -> Duration {
        self.time + GRACE
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

/// Flags, each with its value, as words of a command line.
pub(super) fn words<const N: usize>(pairs: [(&str, String); N]) -> Vec<String> {
    let words = pairs.into_iter();
    words
        .flat_map(|(flag, value)| [flag.to_owned(), value])
        .collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Two seconds of one TCP stream.
    pub(in super::super) const PLAN: StreamPlan = StreamPlan {
        transport: Transport::Tcp,
        reverse: false,
        streams: 1,
        time: Duration::from_secs(2),
        interval: Duration::from_secs(1),
        length: None,
        window: None,
        congestion: None,
    };

    #[test]
    fn what_cannot_be_an_amount_is_none() {
        assert_eq!(amount("1.5"), Some(1.5));
        for text in ["", "-1", "nan", "inf", "1e23", "x"] {
            assert_eq!(amount(text), None);
        }
    }
}
