//! Counters of what a link did. They add up: packets + copies = delivered + dropped + held.

use alloc::string::String;

use crate::packet::{DropCause, Side};
use crate::spec::Effect;
use crate::time::Nanos;
use crate::units::Bytes;

/// Counters of the packets of one class that entered at one side.
///
/// A packet counts as delivered or dropped when its outcome is polled; until then it is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets offered.
    pub packets: u64,
    /// L2 bytes of the packets offered.
    pub bytes: u64,
    /// Copies made of them.
    pub copies: u64,
    /// Packets and copies delivered, with their outcome polled.
    pub delivered: u64,
    /// L2 bytes delivered.
    pub delivered_bytes: u64,
    /// Packets and copies delivered with a congestion mark that they did not have on arrival.
    pub marked: u64,
    /// Packets and copies delivered with changed bytes.
    pub edited: u64,
    dropped: [u64; DropCause::ALL.len()],
    /// Packets that arrived before the latest arrival or event of their direction, and were treated as if they arrived
    /// then.
    pub late: u64,
}

impl Counters {
    /// Returns the number of packets and copies dropped for `cause`.
    #[must_use]
    pub fn dropped(&self, cause: DropCause) -> u64 {
        self.dropped[cause as usize]
    }

    /// Returns the number of packets and copies dropped for any cause.
    #[must_use]
    pub fn all_dropped(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// Returns the number of packets and copies whose outcome was not polled yet.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.packets + self.copies - self.delivered - self.all_dropped()
    }

    pub(crate) fn drop(&mut self, cause: DropCause) {
        self.dropped[cause as usize] += 1;
    }
}

impl core::ops::Add for Counters {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.copies += other.copies;
        self.delivered += other.delivered;
        self.delivered_bytes += other.delivered_bytes;
        self.marked += other.marked;
        self.edited += other.edited;
        self.late += other.late;
        for (own, others) in self.dropped.iter_mut().zip(other.dropped) {
            *own += others;
        }
        self
    }
}

/// Counters of the packets and copies that the stages of one hop dropped.
///
/// A drop counts when its outcome is polled. The counters of a hop that no stage names any more stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HopCounters {
    name: String,
    dropped: [[u64; DropCause::ALL.len()]; 2],
}

impl HopCounters {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            dropped: [[0; DropCause::ALL.len()]; 2],
        }
    }

    /// Returns the name of the hop.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of packets and copies from `ingress` that it dropped for `cause`.
    #[must_use]
    pub fn dropped(&self, ingress: Side, cause: DropCause) -> u64 {
        self.dropped[ingress.index()][cause as usize]
    }

    pub(crate) fn drop(&mut self, ingress: Side, cause: DropCause) {
        self.dropped[ingress.index()][cause as usize] += 1;
    }
}

/// A report of what one stage of a link did, summed over all paths that contain it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageReport<'a> {
    /// Its name: "box.up.loss", or "box.toffee" for a stage that both directions share.
    pub name: &'a str,
    /// Packets and copies that entered it.
    pub packets: u64,
    /// Its effect, if that has never changed.
    pub effect: Option<&'a Effect>,
    /// Packets and copies that it dropped.
    pub dropped: u64,
    /// Runs of consecutive packets that it dropped as they entered. If nothing waits in the stage, a run has
    /// `dropped / runs` packets on average.
    pub runs: u64,
    /// Copies that it made.
    pub copied: u64,
    /// Packets in it now: in flight, waiting or in service.
    pub held: u64,
    /// The most packets that ever waited in its queue.
    pub longest_queue: u64,
    /// Statistics of its delays, if they vary at random.
    pub delays: Option<DelayStatistics>,
}

/// The packets that wait for a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// The number of packets that wait, without the one in service.
    pub packets: u64,
    /// Their L2 bytes.
    pub bytes: Bytes,
    /// The time that a packet that arrives now would wait, behind all others, until its own service begins, at the
    /// current rate. For a trace, and in a stall, it is the time that remains of the packet in service.
    pub delay: Nanos,
}

/// Statistics of the delays that a stage gave, where they vary at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayStatistics {
    /// Packets and copies that it delayed.
    pub packets: u64,
    /// The mean of their delays, including what keeping the order added.
    pub mean: Nanos,
    /// The sample standard deviation of their delays.
    pub deviation: Nanos,
    /// Packets and copies whose own delay would have been below 0 and was set to 0.
    pub clamped: u64,
}
