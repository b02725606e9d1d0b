//! The details of a stream for which iperf3's results have no names. farwire sends them as the key `farwire` of a
//! stream's results.

use serde::{Deserialize, Serialize};

/// Details of a stream from the end that counted them. iperf3 ignores the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StreamDetail {
    /// The details of the sending end of UDP.
    Sender(SenderDetail),
    /// The details of the receiving end of UDP.
    Receiver(ReceiverDetail),
    /// The details of the receiving end of TCP.
    Tcp(TcpDetail),
}

/// The arrival of a TCP stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TcpDetail {
    /// Time from the start of counting to the first byte, in nanoseconds.
    pub(crate) waited_ns: u64,
}

/// The departures of the datagrams, without the omitted start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SenderDetail {
    /// Trains that left, if they were paced.
    pub(crate) trains: u64,
    /// Datagrams in a full train.
    pub(crate) burst: u64,
    /// Trains that left more than 50 us late.
    pub(crate) late: u64,
    /// |gap - ideal gap| between trains in nanoseconds: median, 99th percentile, largest.
    pub(crate) gap_error_ns: Option<[u64; 3]>,
    /// Time that the schedule skipped, in nanoseconds.
    pub(crate) given_up_ns: u64,
    /// Sends that full buffers delayed.
    pub(crate) held_up: u64,
    /// Time from the first departure to the last, in nanoseconds.
    pub(crate) active_ns: u64,
}

/// The arrivals of the datagrams, without the omitted start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReceiverDetail {
    /// Datagrams received, without duplicates.
    pub(crate) received: u64,
    /// Duplicates.
    pub(crate) duplicates: u64,
    /// Datagrams that arrived after one with a higher number.
    pub(crate) reordered: u64,
    /// The largest reordering extent, in datagrams.
    pub(crate) largest_extent: u64,
    /// Datagrams that the receiver's host dropped.
    pub(crate) host_dropped: u64,
    /// The number of drops that are certain.
    pub(crate) drops: u64,
    /// Runs of consecutive datagrams that did not arrive.
    #[serde(default)]
    pub(crate) bursts: u64,
    /// Further datagrams that the host dropped or that had a wrong checksum. Nothing distinguishes the two.
    #[serde(default)]
    pub(crate) unsure: u64,
    /// Packets that were not a datagram of the test.
    pub(crate) garbage: u64,
    /// Payload bytes that arrived after the first arrival, and the nanoseconds from that to the last arrival.
    pub(crate) after_first: [u64; 2],
}

impl SenderDetail {
    /// Returns the sum with another stream. Of the gap errors the larger count.
    pub(crate) fn with(self, other: &Self) -> Self {
        let gap_error_ns = self.gap_error_ns.zip(other.gap_error_ns);
        Self {
            trains: self.trains.saturating_add(other.trains),
            burst: self.burst.max(other.burst),
            late: self.late.saturating_add(other.late),
            gap_error_ns: gap_error_ns.map(|(a, b)| [0, 1, 2].map(|i| a[i].max(b[i]))),
            given_up_ns: self.given_up_ns.saturating_add(other.given_up_ns),
            held_up: self.held_up.saturating_add(other.held_up),
            active_ns: self.active_ns.max(other.active_ns),
        }
    }
}

impl ReceiverDetail {
    /// Returns the sum with another stream.
    pub(crate) fn with(self, other: &Self) -> Self {
        let [bytes, span] = self.after_first;
        let [more, other_span] = other.after_first;
        Self {
            received: self.received.saturating_add(other.received),
            duplicates: self.duplicates.saturating_add(other.duplicates),
            reordered: self.reordered.saturating_add(other.reordered),
            largest_extent: self.largest_extent.max(other.largest_extent),
            host_dropped: self.host_dropped.saturating_add(other.host_dropped),
            drops: self.drops.saturating_add(other.drops),
            bursts: self.bursts.saturating_add(other.bursts),
            unsure: self.unsure.saturating_add(other.unsure),
            garbage: self.garbage.saturating_add(other.garbage),
            after_first: [bytes.saturating_add(more), span.max(other_span)],
        }
    }
}
