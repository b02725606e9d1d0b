//! The agreement of both ends on a test, and the outcome that one end knows.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use record::Direction;
use stats::layers::{UDP_HEADER, ip_header};

use super::receiver::LoadTotals;
use super::wire::{FeedbackMessage, Sizes, SubInterval, TestParameters, Version};
use crate::round_trip::several;

/// The time without a message after which the peer counts as gone, as in the reference's watchdog. While the path of
/// messages begins and ends, some round trips are added.
pub(crate) const SILENCE: Duration = Duration::from_secs(3);

/// The round trip from which on a test is extended. The search has enough time on shorter paths.
const LONG_ROUND_TRIP: Duration = Duration::from_secs(1);

/// The agreement of both ends on a test, and the role of this end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TestAgreement {
    /// The address of the other end.
    pub(crate) peer: SocketAddr,
    /// The direction of the load.
    pub(crate) direction: Direction,
    /// The version of the protocol.
    pub(crate) version: Version,
    /// The table of sending rates.
    pub(crate) sizes: Sizes,
    /// The parameters as the server set them.
    pub(crate) parameters: TestParameters,
    /// The round-trip time between a message of the set-up and its answer.
    pub(crate) round_trip: Duration,
    /// Whether this is the server's end.
    pub(crate) is_server: bool,
}

/// One trial interval: its feedback, and the rate chosen because of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrialInterval {
    /// Time since the start of the test.
    pub(crate) at: Duration,
    /// The feedback.
    pub(crate) status: FeedbackMessage,
    /// The chosen row, if the rate is one of the table.
    pub(crate) row: Option<usize>,
    /// The chosen rate at L3 in bit/s.
    pub(crate) l3_bit_per_s: f64,
}

/// A complete sub-interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WholeSubInterval {
    /// Time since the start of the test at which it was known.
    pub(crate) at: Duration,
    /// The counts of the sub-interval.
    pub(crate) counted: SubInterval,
    /// The least round-trip time of the test until then in milliseconds, to which its own ones are relative.
    /// `wire::NO_DELAY` means that there is none.
    pub(crate) least_rtt_ms: u32,
    /// The end of the sub-interval in nanoseconds since 1970, only if this host received the load.
    pub(crate) ended: Option<u64>,
}

/// The outcome of a test as one end knows it.
#[derive(Debug, Default)]
pub(crate) struct TestOutcome {
    /// All trial intervals at a client. A server keeps none, since its memory must not grow with its clients' tests.
    pub(crate) trials: Vec<TrialInterval>,
    /// All complete sub-intervals.
    pub(crate) sub_intervals: Vec<WholeSubInterval>,
    /// The way in which the test ended.
    pub(crate) end: TestEnd,
    /// Datagrams that this host's full socket may have dropped, which the network did not lose.
    pub(crate) host_drops: u32,
    /// Load PDUs for which this host's sending socket had no room.
    pub(crate) unsent: u64,
    /// Time of the schedule whose load this host was too late to send.
    pub(crate) skipped: Duration,
    /// Feedback messages that did not reach the load's sender, as far as it reported them.
    pub(crate) feedback_missed: u64,
    /// Datagrams that were not a message of the test.
    pub(crate) unreadable: u64,
    /// The counts of the load's receiver, or `None` at the sender.
    pub(crate) totals: Option<LoadTotals>,
    /// The number of times that the peer was silent for a second.
    pub(crate) silences: u32,
    /// Whether the kernel stamped the arrivals.
    pub(crate) kernel_stamps: bool,
}

/// The way in which a test ended.
#[derive(Debug, Default, thiserror::Error)]
pub(crate) enum TestEnd {
    /// The test is complete.
    #[default]
    #[error("complete")]
    Complete,
    /// The peer fell silent.
    #[error("sent nothing for {} s during the test", SILENCE.as_secs())]
    Silent,
    /// The client's first feedback does not name the probe. The client may therefore be elsewhere than its source
    /// address says.
    #[error("does not confirm what it received: another host may use its address")]
    Unproven,
    /// The server did not end the test in time.
    #[error("did not end the test in time")]
    Overdue,
    /// The peer's host refuses datagrams to the port.
    #[error("closed its port during the test")]
    Closed,
    /// This end was told to stop.
    #[error("{0}")]
    Stopped(String),
    /// The socket failed.
    #[error("the socket failed: {0}")]
    Failed(io::Error),
}

impl TestAgreement {
    /// Returns whether this end receives the load.
    pub(crate) fn receives_here(&self) -> bool {
        (self.direction == Direction::Down) != self.is_server
    }

    /// Returns the time by which the server extends the test: two round trips if they are long, because the search
    /// begins one round trip after the first load, and needs another one to see the effect of what it chose.
    pub(crate) fn extension(&self) -> Duration {
        if self.round_trip < LONG_ROUND_TRIP {
            return Duration::ZERO;
        }
        several(2, self.round_trip)
    }

    /// Returns the bytes of a datagram's UDP and IP headers.
    pub(crate) fn l3_header(&self) -> u32 {
        l3_header(self.peer)
    }
}

/// Returns the bytes of the UDP and IP headers of a datagram to `peer`.
pub(crate) fn l3_header(peer: SocketAddr) -> u32 {
    UDP_HEADER + ip_header(peer.ip().to_canonical().is_ipv6())
}

impl SubInterval {
    /// Returns the received rate in bit/s, with `header` bytes added to each datagram.
    pub(crate) fn bit_per_s(&self, header: u32) -> f64 {
        let bytes = self.bytes as f64 + f64::from(self.datagrams) * f64::from(header);
        if self.span_us == 0 {
            0.0
        } else {
            bytes * 8e6 / f64::from(self.span_us)
        }
    }
}
