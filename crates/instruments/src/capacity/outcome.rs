//! What both ends agreed upon, and what one of them knows when the test is over.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use record::Direction;
use stats::layers::{UDP_HEADER, ip_header};

use super::receiver::LoadTotals;
use super::wire::{FeedbackMessage, Sizes, SubInterval, TestParameters, Version};

/// After so long without a message of the peer, it is gone (the reference's watchdog).
pub(crate) const SILENCE: Duration = Duration::from_secs(3);

/// What both ends agreed upon, and which of them this is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreed {
    /// The other end.
    pub(crate) peer: SocketAddr,
    /// Which way the load goes.
    pub(crate) direction: Direction,
    /// The protocol's version.
    pub(crate) version: Version,
    /// Which table of sending rates.
    pub(crate) sizes: Sizes,
    /// As the server set them.
    pub(crate) parameters: TestParameters,
    /// Whether this is the server's end.
    pub(crate) is_server: bool,
}

/// One trial interval: what its feedback said, and the rate chosen by it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrialInterval {
    /// Since the start of the test.
    pub(crate) at: Duration,
    /// As fed back.
    pub(crate) status: FeedbackMessage,
    /// The row chosen, where the rate is one of the table.
    pub(crate) row: Option<usize>,
    /// The rate chosen, at L3.
    pub(crate) l3_bit_per_s: f64,
}

/// A whole sub-interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WholeSubInterval {
    /// When it was known, since the start of the test.
    pub(crate) at: Duration,
    /// What was counted in it.
    pub(crate) counted: SubInterval,
    /// The least round trip of the test by then, in milliseconds, above which its own are stated; `wire::NO_DELAY` without any.
    pub(crate) least_rtt_ms: u32,
    /// When it ended, in nanoseconds since 1970; only where this host received the load.
    pub(crate) ended: Option<u64>,
}

/// What one end knows when the test is over.
#[derive(Debug, Default)]
pub(crate) struct TestOutcome {
    /// Every trial interval at a client; a server's memory must not grow with its clients' tests.
    pub(crate) trials: Vec<TrialInterval>,
    /// Every whole sub-interval.
    pub(crate) sub_intervals: Vec<WholeSubInterval>,
    /// How it ended.
    pub(crate) end: End,
    /// Datagrams that this host's full socket may have dropped: no loss of the network.
    pub(crate) host_drops: u32,
    /// Load that this host's sending socket had no room for.
    pub(crate) unsent: u64,
    /// Time whose load this host was too late for.
    pub(crate) skipped: Duration,
    /// Feedback messages that did not reach the load's sender, as far as it said.
    pub(crate) feedback_missed: u64,
    /// Datagrams that were no message of the test.
    pub(crate) unreadable: u64,
    /// What the load's receiver counted; none at the end that sent it.
    pub(crate) totals: Option<LoadTotals>,
    /// How often nothing came of the peer for a second.
    pub(crate) silences: u32,
    /// Whether arrivals were stamped by the kernel.
    pub(crate) kernel_stamps: bool,
}

/// How a test ended.
#[derive(Debug, Default, thiserror::Error)]
pub(crate) enum End {
    /// As agreed upon.
    #[default]
    #[error("complete")]
    Complete,
    /// The peer fell silent.
    #[error("sent nothing for {} s during the test", SILENCE.as_secs())]
    Silent,
    /// The client's first feedback does not name the probe, so that it need not be where its datagrams come from.
    #[error("does not confirm what it received: another host may use its address")]
    Unproven,
    /// The server did not end it.
    #[error("did not end the test in time")]
    Overdue,
    /// The peer's host says that nobody listens any more.
    #[error("closed its port during the test")]
    Closed,
    /// This end was told to stop.
    #[error("{0}")]
    Stopped(String),
    /// The socket failed.
    #[error("the socket failed: {0}")]
    Failed(io::Error),
}

impl Agreed {
    /// Whether this end receives the load.
    pub(crate) fn receives_here(&self) -> bool {
        (self.direction == Direction::Down) != self.is_server
    }

    /// Bytes of a datagram's UDP and IP headers.
    pub(crate) fn l3_header(&self) -> u32 {
        l3_header(self.peer)
    }
}

/// Bytes of the UDP and IP headers of a datagram to `peer`.
pub(crate) fn l3_header(peer: SocketAddr) -> u32 {
    UDP_HEADER + ip_header(peer.ip().to_canonical().is_ipv6())
}

impl SubInterval {
    /// What was received, in bit/s, with `header` bytes counted for each datagram.
    pub(crate) fn bit_per_s(&self, header: u32) -> f64 {
        let bytes = self.bytes as f64 + f64::from(self.datagrams) * f64::from(header);
        if self.span_us == 0 {
            0.0
        } else {
            bytes * 8e6 / f64::from(self.span_us)
        }
    }
}
