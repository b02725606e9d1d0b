//! Packets that come out of order.

use core::num::NonZeroU32;

use crate::time::Nanos;
use crate::units::Probability;

/// Packets that pass a delay at once and so overtake what waits in it, as tc's `reorder` and `gap` (Linux,
/// `net/sched/sch_netem.c`, `netem_enqueue`).
///
/// Behind each packet that passed at once, `gap` less one wait; then each passes with the probability `share`, until one
/// does. In the long run one in gap - 1 + 1/share passes at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reorder {
    /// The probability that a candidate passes at once.
    pub share: Probability,
    /// Every so many-th packet is the first candidate; with 1, each is one.
    pub gap: NonZeroU32,
}

/// Packets that are held back until others have overtaken them.
///
/// One that is held back leaves behind the packet that completes its extent, or when its time is over. Its reordering
/// extent (RFC 4737, section 4.2.1) is then the one asked for, unless others were held back meanwhile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HoldBack {
    /// The probability that a packet is held back.
    pub share: Probability,
    /// How many packets that came later overtake it. Packets held back themselves and copies do not count.
    pub extent: NonZeroU32,
    /// How long it is held at most, if fewer come; above 0 and at most 1 h.
    pub timeout: Nanos,
}
