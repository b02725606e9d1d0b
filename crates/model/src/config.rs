//! A link's conditions as the user stated them: plain data, checked by [`crate::Link::new`].

use alloc::string::String;
use alloc::vec::Vec;

use crate::{BitsPerSec, Bytes, Factor, Framing, Nanos, Probability};

/// A whole link: the seed of its randomness and its hops in the order in which a packet going up meets them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkConfig {
    /// Every random draw follows from it; the same seed gives the same verdicts.
    pub seed: u64,
    /// Tells links of one experiment apart, so that two of them never lose the same packets.
    pub link: u64,
    /// At least one; a packet going down meets them in reverse.
    pub hops: Vec<HopConfig>,
}

/// One hop: conditions up and down, and what both directions share.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HopConfig {
    /// Names the hop in counters and keys its randomness: "wire", "box".
    pub name: String,
    /// From A to B.
    pub up: Conditions,
    /// From B to A.
    pub down: Conditions,
    /// One server that stands in both paths, before `up` and `down`.
    pub toffee: Option<Toffee>,
}

/// One direction of one hop, in the order of its path: rate and queue, loss, delay.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Conditions {
    /// Bottleneck server, if any.
    pub rate: Option<Rate>,
    /// Bernoulli loss after the queue; `Probability::ZERO` for none.
    pub loss: Probability,
    /// Propagation delay, one way.
    pub delay: Nanos,
    /// Propagation that grows with the packet: microseconds = L2 bytes / factor.
    pub size_delay: Option<Factor>,
}

/// A bottleneck: how fast it serves, what it counts, how much may wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Service rate.
    pub rate: BitsPerSec,
    /// The bytes it counts.
    pub framing: Framing,
    /// The waiting room, the packet in service not counted.
    pub queue: QueueLimit,
}

/// How much may wait before a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// Packets waiting.
    Packets(u32),
    /// L2 bytes waiting.
    Bytes(Bytes),
    /// Time that what waits would take at the server's present rate.
    Time(Nanos),
}

/// TOFFEE-Mocha's box: a delay is the service time of one server that both directions share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Toffee {
    /// Constant service time a packet.
    pub delay: Nanos,
    /// Service time that grows with the packet: microseconds = L2 bytes / factor.
    pub dynamic: Option<Factor>,
    /// Drop factor k >= 1: Bernoulli loss of 5.5 % / k^2.5 in each direction.
    pub drop: Option<Factor>,
    /// The waiting room, both directions together.
    pub queue: QueueLimit,
}

/// Conditions that contradict each other or lie out of range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub(crate) String);
