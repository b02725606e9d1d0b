//! What a link did, counted so that it adds up: offered = delivered + dropped + held.

/// Why a packet is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropCause {
    /// A Bernoulli draw said so.
    Loss,
    /// The waiting room was full.
    QueueFull,
}

/// Counts of one direction.
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
    /// Arrivals older than model time, clamped to it.
    pub late: u64,
}
