//! What reports and analyses need to know of an instrument, so that none of them knows the kinds of instruments.

use serde::{Deserialize, Serialize};

use crate::{Direction, Metric, Statistic};

/// An instrument as it is used: what its numbers are of, and what they are held against.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InstrumentProfile {
    /// Which way payload goes unless a figure says; absent for round trips.
    pub direction: Option<Direction>,
    /// What carries the payload; absent where the packets are neither a TCP sender's nor of one known length.
    pub carrier: Option<Carrier>,
    /// What people look for first.
    pub headlines: Vec<Headline>,
    /// What its samples are of; absent where each is a whole transfer's.
    pub samples: Option<SampleKind>,
    /// What this machine does at best of the same kind.
    pub host_limit: HostLimit,
    /// The series that flent has for it.
    pub flent: Vec<FlentSeries>,
    /// How a calibration finds what it should have measured.
    pub calibration: Calibration,
}

/// What carries an instrument's payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Carrier {
    /// Connections that send as fast as they may.
    Tcp {
        /// How many at the same time in one direction.
        streams: u32,
        /// The senders' congestion control; the case's when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        congestion: Option<String>,
    },
    /// Datagrams.
    Udp {
        /// Payload bytes of each, where they are known beforehand.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        length: Option<u32>,
    },
}

/// A figure of an instrument: of every direction, unless it says one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Headline {
    /// What it is of.
    pub metric: Metric,
    /// What it says of the metric's values.
    pub statistic: Statistic,
    /// Only of what went this way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
}

/// What an instrument's samples are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SampleKind {
    /// Single packets and their answers, each lost or not, numbered as they were sent.
    Probes,
    /// Round trips of messages, of one packet or many.
    Messages,
    /// The amount of every interval.
    Intervals,
}

/// Which figure of the baseline an instrument can come near to; it then measures this machine and not the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostLimit {
    /// The round trip that hosts and emulator take by themselves.
    RoundTrip,
    /// The goodput of one TCP stream.
    TcpRate,
    /// The packets of UDP in a second.
    UdpPackets,
    /// The rate of UDP at L3.
    UdpRate,
}

/// A series of flent's data files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlentSeries {
    /// As flent calls it: "Ping (ms) ICMP", "TCP download".
    pub name: String,
    /// Goodput stands for the amounts of all intervals.
    pub metric: Metric,
    /// Of what went this way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
}

/// How what the emulator logged becomes what the instrument should have measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// The figure that stands for all where nothing was measured.
    pub figure: Headline,
    /// Whether a start is left out of the figures, which the emulator's counters have.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub omits_start: bool,
    /// Whether the kernel sends again what the link drops, so that what is lost there is not what the probes lose.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub sends_again: bool,
    /// Connections one after the other, of which the figure is a mean; one time for all when absent.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub runs: Option<u32>,
    /// Whether the time of a goodput has one way back in it: of the request before the payload, or of the answer after it.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub answers: bool,
    /// Whether it ends by the client's clock: what is still on its way does not count.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub timed: bool,
    /// Seconds of each sub-interval of which the figure is the best.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub sub_interval_s: Option<f64>,
}

impl InstrumentProfile {
    /// Whether a figure is among those that people look for first.
    pub fn is_headline(&self, metric: Metric, statistic: Statistic) -> bool {
        let mut all = self.headlines.iter();
        all.any(|headline| (headline.metric, headline.statistic) == (metric, statistic))
    }

    /// Whether its datagrams are counted interval by interval, at the sender and at the receiver.
    pub fn is_datagram_stream(&self) -> bool {
        let is_udp = matches!(self.carrier, Some(Carrier::Udp { .. }));
        is_udp && self.samples == Some(SampleKind::Intervals)
    }
}

impl Headline {
    /// Of every direction.
    pub const fn new(metric: Metric, statistic: Statistic) -> Self {
        Self {
            metric,
            statistic,
            direction: None,
        }
    }

    /// Only of what goes this way.
    pub const fn toward(mut self, direction: Direction) -> Self {
        self.direction = Some(direction);
        self
    }
}

impl FlentSeries {
    /// The series `name`.
    pub fn new(name: &str, metric: Metric, direction: Option<Direction>) -> Self {
        Self {
            name: name.to_owned(),
            metric,
            direction,
        }
    }

    /// Both ways of a stream's goodput: "TCP download" and "TCP upload".
    pub fn of_streams(protocol: &str) -> Vec<Self> {
        let of = |(way, direction)| {
            let name = format!("{protocol} {way}");
            Self::new(&name, Metric::GoodputBitPerS, Some(direction))
        };
        [("download", Direction::Down), ("upload", Direction::Up)]
            .map(of)
            .into()
    }
}
