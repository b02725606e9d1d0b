//! What one farwire tells another about a stream beyond what iperf3 has names for: the key `farwire` of a stream's results.

use serde::{Deserialize, Serialize};

use super::account::Tally;
use super::sender::Sent;
use crate::instrument::udp::pacing::Pacing;

/// More about a stream, by the end that says it. iperf3 passes over the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Detail {
    /// From the end that sent.
    Sender(SenderDetail),
    /// From the end that received.
    Receiver(ReceiverDetail),
}

/// How the datagrams left; without what is omitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SenderDetail {
    /// Trains that left, where they were paced.
    pub(crate) trains: u64,
    /// Datagrams of a full train.
    pub(crate) burst: u64,
    /// Trains that left late, by [`super::pacing::LATE`].
    pub(crate) late: u64,
    /// |gap - ideal gap| between trains in nanoseconds: median, 99th percentile, largest.
    pub(crate) gap_error_ns: Option<[u64; 3]>,
    /// Time that the schedule gave up, in nanoseconds.
    pub(crate) given_up_ns: u64,
    /// Sends that full buffers held up.
    pub(crate) held_up: u64,
}

/// What came; without what is omitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReceiverDetail {
    /// Datagrams, each number once.
    pub(crate) received: u64,
    /// Further copies.
    pub(crate) duplicates: u64,
    /// Datagrams that one with a higher number overtook.
    pub(crate) reordered: u64,
    /// The largest reordering extent, in datagrams.
    pub(crate) largest_extent: u64,
    /// Datagrams that the receiver's host dropped.
    pub(crate) host_dropped: u64,
    /// How often it did.
    pub(crate) drops: u64,
    /// What was no datagram of the test.
    pub(crate) garbage: u64,
    /// Payload bytes that came after the first arrival, and the nanoseconds from that to the last one.
    pub(crate) after_first: [u64; 2],
}

impl Detail {
    pub(super) fn of_sender(sent: &Sent) -> Self {
        Self::Sender(SenderDetail::of(&sent.pacing, sent.held_up))
    }

    pub(super) fn of_receiver(tally: &Tally) -> Self {
        Self::Receiver(ReceiverDetail::of(tally))
    }
}

impl SenderDetail {
    pub(super) fn of(pacing: &Pacing, held_up: u64) -> Self {
        let gap_error = |quantile| pacing.gap_error(quantile).map(|error| error.0);
        let gap_errors = [gap_error(0.5), gap_error(0.99), gap_error(1.0)];
        Self {
            trains: pacing.trains,
            burst: pacing.burst,
            late: pacing.late,
            gap_error_ns: match gap_errors {
                [Some(median), Some(p99), Some(max)] => Some([median, p99, max]),
                _ => None,
            },
            given_up_ns: pacing.given_up.0,
            held_up,
        }
    }
}

impl ReceiverDetail {
    pub(super) fn of(tally: &Tally) -> Self {
        let span = tally.arrivals.map_or(0, |[first, last]| last.0 - first.0);
        Self {
            received: tally.received,
            duplicates: tally.duplicates,
            reordered: tally.reordered,
            largest_extent: tally.largest_extent,
            host_dropped: tally.host_dropped,
            drops: tally.drops,
            garbage: tally.garbage,
            after_first: [tally.bytes - tally.first_bytes, span],
        }
    }
}
