//! The parameters of effects that lose, copy, change, drop or reorder packets, or have them leave in bursts.

use core::num::{NonZeroU8, NonZeroU32};
use core::str::FromStr;

use super::Jitter;
use crate::decimal::UnitError;
use crate::time::Nanos;
use crate::units::{BitsPerSec, Bytes, Probability};

/// Every packet is lost with one probability, independently of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RandomLoss {
    /// The probability.
    pub share: Probability,
    /// Whether a packet is marked (CE) in place of being lost, where its sender understands marks (RFC 3168, section 5).
    pub ecn: bool,
}

impl From<Probability> for RandomLoss {
    /// Without marks.
    fn from(share: Probability) -> Self {
        Self { share, ecn: false }
    }
}

impl FromStr for RandomLoss {
    type Err = UnitError;

    /// The share alone, `1%`: without marks.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        text.parse().map(Probability::into)
    }
}

/// Each packet is followed by a copy, with a probability.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Duplication {
    /// The probability.
    pub share: Probability,
    /// How much later than the packet the copy goes on; at most 1 h.
    pub delay: Nanos,
}

impl From<Probability> for Duplication {
    /// At once.
    fn from(share: Probability) -> Self {
        let delay = Nanos::ZERO;
        Self { share, delay }
    }
}

impl FromStr for Duplication {
    type Err = UnitError;

    /// The share alone, `1%`: at once.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        text.parse().map(Probability::into)
    }
}

/// Bits of each packet are flipped, with a probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Corruption {
    /// The probability.
    pub share: Probability,
    /// How many bits, each another one.
    pub bits: NonZeroU8,
    /// Whether the bits are those of what TCP, UDP and ICMP carry, and the checksum is mended, so that nobody but who reads it
    /// can tell; else they lie anywhere behind the IP header, and the checksum stays wrong.
    pub repair: bool,
}

impl From<Probability> for Corruption {
    /// One bit, with a checksum that is wrong.
    fn from(share: Probability) -> Self {
        Self {
            share,
            bits: NonZeroU8::MIN,
            repair: false,
        }
    }
}

impl FromStr for Corruption {
    type Err = UnitError;

    /// The share alone, `0.1%`: one bit, with a checksum that is wrong.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        text.parse().map(Probability::into)
    }
}

/// A policer: drops what comes faster than a rate, but for bursts (tc's police action, with one rate).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Police {
    /// The rate that may pass, of L2 bytes without FCS.
    pub rate: BitsPerSec,
    /// How much may pass at once after a time without packets; at least 1,514 bytes, a full frame of an MTU of 1,500.
    pub burst: Bytes,
}

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

/// A medium that packets get in turns, as netem's `slot` (Linux, `net/sched/sch_netem.c`, `get_slot_next`).
///
/// The first packet that comes when no slot is ahead has the next one open after a wait that is drawn for it. All that comes
/// until then leaves in that slot, as far as it has room; what has none waits for the slot after it, which opens a wait of its own
/// later. Order is kept. As many packets may wait as come.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slots {
    /// The wait for a slot; in the mean, if it varies. netem's minimum and maximum are this, less and more the spread of a uniform
    /// law.
    pub delay: Nanos,
    /// What is drawn for each slot; a wait below 0 is 0. Without half-life.
    pub jitter: Option<Jitter>,
    /// The packets that leave in one slot; as many as there are if there is none.
    pub packets: Option<NonZeroU32>,
    /// The L2 bytes after which a slot is over; the packet that reaches them leaves. Above 0.
    pub bytes: Option<Bytes>,
}
