//! What a link did, in counters that add up: offered = delivered + lost + queue full + held.

use crate::packet::DropCause;

/// Counts of one direction.
///
/// A packet counts as delivered or dropped when its outcome is handed out; until then it is held
/// ([`crate::Link::held`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets offered.
    pub packets: u64,
    /// Their L2 bytes.
    pub bytes: u64,
    /// Packets delivered: their outcome was handed out.
    pub delivered: u64,
    /// L2 bytes delivered.
    pub delivered_bytes: u64,
    /// Dropped by [`DropCause::Loss`].
    pub lost: u64,
    /// Dropped by [`DropCause::QueueFull`].
    pub queue_full: u64,
    /// Arrivals older than what was already decided for their direction, and taken as if they came then.
    pub late: u64,
}

/// What one stage of a link did, both directions together where it stands in both paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageReport<'a> {
    /// Hop, direction and kind: "box.up.loss", or "box.toffee" for what both directions share.
    pub name: &'a str,
    /// Packets that came to it.
    pub packets: u64,
    /// Packets that it dropped.
    pub dropped: u64,
    /// Why it drops, if it can.
    pub cause: Option<DropCause>,
    /// Packets in it now: in flight, waiting or in service.
    pub held: u64,
    /// The most packets that ever waited in its queue.
    pub longest_queue: u64,
}
