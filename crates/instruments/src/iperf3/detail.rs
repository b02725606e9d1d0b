//! What one farwire tells another about a stream beyond what iperf3 has names for: the key `farwire` of a stream's results.

use serde::{Deserialize, Serialize};

/// More about a stream, by the end that says it. iperf3 passes over the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Detail {
    /// From the end that sent.
    Sender(SenderDetail),
    /// From the end that received.
    Receiver(ReceiverDetail),
    /// From the end that received TCP.
    Tcp(TcpDetail),
}

/// When a TCP stream came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TcpDetail {
    /// From the start of what counts to the first byte, in nanoseconds.
    pub(crate) waited_ns: u64,
}

/// How the datagrams left; without what is omitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SenderDetail {
    /// Trains that left, where they were paced.
    pub(crate) trains: u64,
    /// Datagrams of a full train.
    pub(crate) burst: u64,
    /// Trains that left late, by more than 50 us.
    pub(crate) late: u64,
    /// |gap - ideal gap| between trains in nanoseconds: median, 99th percentile, largest.
    pub(crate) gap_error_ns: Option<[u64; 3]>,
    /// Time that the schedule gave up, in nanoseconds.
    pub(crate) given_up_ns: u64,
    /// Sends that full buffers held up.
    pub(crate) held_up: u64,
    /// From the first departure to the last, in nanoseconds.
    pub(crate) active_ns: u64,
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
    /// The number of times that it certainly did.
    pub(crate) drops: u64,
    /// Runs of consecutive datagrams that did not come.
    #[serde(default)]
    pub(crate) bursts: u64,
    /// Datagrams beside these that it dropped, or that came with a wrong checksum: nobody can tell which.
    #[serde(default)]
    pub(crate) unsure: u64,
    /// What was no datagram of the test.
    pub(crate) garbage: u64,
    /// Payload bytes that came after the first arrival, and the nanoseconds from that to the last one.
    pub(crate) after_first: [u64; 2],
}

impl SenderDetail {
    /// With another stream; of gaps the worse counts.
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
    /// With another stream.
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
