//! The properties of an instrument that reports and analyses need, so that they do not depend on the kinds of
//! instruments.

use serde::{Deserialize, Serialize};

use crate::{Direction, Metric, Statistic};

/// The properties of an instrument with its arguments: what its figures describe, and with which values they can be
/// compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InstrumentProfile {
    /// The direction of the payload, unless a figure has its own; absent for round trips.
    pub direction: Option<Direction>,
    /// The transport of the payload; absent if the packets are neither those of a TCP sender nor of one known length.
    pub carrier: Option<Carrier>,
    /// The figures that reports show first.
    pub headlines: Vec<Headline>,
    /// The kind of its samples; absent if each sample describes a whole transfer.
    pub samples: Option<SampleKind>,
    /// The limit of this machine for the same kind of figure.
    pub host_limit: HostLimit,
    /// The series in flent's data files.
    pub flent: Vec<FlentSeries>,
    /// The way in which a calibration computes the reference values of its figures.
    pub calibration: Calibration,
}

/// The transport of an instrument's payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Carrier {
    /// TCP connections that send as fast as possible.
    Tcp {
        /// Number of simultaneous connections in one direction.
        streams: u32,
        /// Congestion control of the senders; that of the case when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        congestion: Option<String>,
    },
    /// UDP datagrams.
    Udp {
        /// Payload bytes of each datagram, if they are known in advance.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        length: Option<u32>,
    },
}

/// A figure of an instrument, in all directions unless one is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Headline {
    /// The metric.
    pub metric: Metric,
    /// The statistic over the metric's values.
    pub statistic: Statistic,
    /// The only direction; all directions when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
}

/// The kind of an instrument's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SampleKind {
    /// Single packets and their answers, each received or lost, numbered in the order of sending.
    Probes,
    /// Round trips of messages, each of one or more packets.
    Messages,
    /// Amounts per interval.
    Intervals,
}

/// The figure of the host baseline that limits an instrument. A figure near that limit describes this machine and not
/// the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostLimit {
    /// The round-trip time of hosts and emulator without conditions.
    RoundTrip,
    /// The goodput of one TCP stream.
    TcpRate,
    /// UDP packets per second.
    UdpPackets,
    /// The rate of UDP at L3.
    UdpRate,
}

/// A series of flent's data files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlentSeries {
    /// The name in flent: "Ping (ms) ICMP", "TCP download".
    pub name: String,
    /// The metric; goodput is computed from the amounts of all intervals.
    pub metric: Metric,
    /// The direction; absent for round trips.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
}

/// The way in which the emulator's log is turned into the reference values of an instrument's figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// The figure that represents the instrument if nothing was measured.
    pub figure: Headline,
    /// Whether the figures leave out time at the start that the emulator's counters include.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub omits_start: bool,
    /// Whether the kernel retransmits packets that the link drops, so that the link's loss differs from that of the
    /// probes.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub sends_again: bool,
    /// Number of consecutive connections whose mean is the figure; when absent, there is one time for all of them.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub runs: Option<u32>,
    /// Whether the time of a goodput includes the delay of the opposite direction: that of the request before the
    /// payload, or of the answer after it.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub answers: bool,
    /// Whether the measurement ends by the client's clock, so that data still in flight does not count.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub timed: bool,
    /// Duration in seconds of the sub-intervals, of which the figure is the best.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub sub_interval_s: Option<f64>,
}

impl InstrumentProfile {
    /// Returns whether the figure is one that reports show first.
    pub fn is_headline(&self, metric: Metric, statistic: Statistic) -> bool {
        let mut all = self.headlines.iter();
        all.any(|headline| (headline.metric, headline.statistic) == (metric, statistic))
    }

    /// Returns whether its datagrams are counted in intervals, at the sender and at the receiver.
    pub fn is_datagram_stream(&self) -> bool {
        let is_udp = matches!(self.carrier, Some(Carrier::Udp { .. }));
        is_udp && self.samples == Some(SampleKind::Intervals)
    }
}

impl Headline {
    /// Creates a headline for all directions.
    pub const fn new(metric: Metric, statistic: Statistic) -> Self {
        Self {
            metric,
            statistic,
            direction: None,
        }
    }

    /// Restricts the headline to this direction.
    pub const fn toward(mut self, direction: Direction) -> Self {
        self.direction = Some(direction);
        self
    }
}

impl FlentSeries {
    /// Creates the series `name`.
    pub fn new(name: &str, metric: Metric, direction: Option<Direction>) -> Self {
        Self {
            name: name.to_owned(),
            metric,
            direction,
        }
    }

    /// Returns the series for the goodput of streams in both directions: "TCP download" and "TCP upload".
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
