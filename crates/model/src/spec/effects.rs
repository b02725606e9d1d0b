//! The parameters of effects that lose, copy, change, drop or reorder packets, or make them leave in bursts.

use core::num::{NonZeroU8, NonZeroU32};
use core::str::FromStr;

use super::Jitter;
use crate::decimal::UnitError;
use crate::time::Nanos;
use crate::units::{BitsPerSec, Bytes, Probability};

/// Random loss: every packet is lost with one probability, independently of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RandomLoss {
    /// The probability.
    pub share: Probability,
    /// Whether a packet is marked (CE) instead of lost, if its sender understands marks (RFC 3168, section 5).
    pub ecn: bool,
}

impl From<Probability> for RandomLoss {
    /// Makes a loss without marks.
    fn from(share: Probability) -> Self {
        Self { share, ecn: false }
    }
}

impl FromStr for RandomLoss {
    type Err = UnitError;

    /// Parses the share alone, `1%`: a loss without marks.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        text.parse().map(Probability::into)
    }
}

/// Duplication: each packet is followed by a copy with a probability.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Duplication {
    /// The probability.
    pub share: Probability,
    /// The time by which the copy continues later than the packet, at most 1 h.
    pub delay: Nanos,
}

impl From<Probability> for Duplication {
    /// Makes a duplication whose copies follow immediately.
    fn from(share: Probability) -> Self {
        let delay = Nanos::ZERO;
        Self { share, delay }
    }
}

impl FromStr for Duplication {
    type Err = UnitError;

    /// Parses the share alone, `1%`: copies follow immediately.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        text.parse().map(Probability::into)
    }
}

/// Corruption: bits of a packet are flipped with a probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Corruption {
    /// The probability.
    pub share: Probability,
    /// The number of bits, all different.
    pub bits: NonZeroU8,
    /// Whether the bits are among those that TCP, UDP or ICMP carry, and the checksum is corrected, so that only the
    /// application can notice. Otherwise they are anywhere behind the IP header, and the checksum stays wrong.
    pub repair: bool,
}

impl From<Probability> for Corruption {
    /// Makes a corruption of one bit that leaves the checksum wrong.
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

    /// Parses the share alone, `0.1%`: one bit, and the checksum stays wrong.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        text.parse().map(Probability::into)
    }
}

/// A policer: it drops packets that exceed a rate and a burst (tc's police action, with one rate).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Police {
    /// The rate that may pass, in L2 bytes without FCS.
    pub rate: BitsPerSec,
    /// The bytes that may pass immediately after a time without packets; at least 1,514, a full frame at an MTU of
    /// 1,500.
    pub burst: Bytes,
}

/// Reordering by packets that skip a delay and so overtake those in it, as tc's `reorder` and `gap` (Linux,
/// `net/sched/sch_netem.c`, `netem_enqueue`).
///
/// After each packet that skips the delay, `gap` - 1 packets wait; from then on, each packet is a candidate and skips
/// it with the probability `share`, until one does. In the long run, one in gap - 1 + 1/share packets skips the delay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reorder {
    /// The probability that a candidate skips the delay.
    pub share: Probability,
    /// The distance in packets from one that skips the delay to the next candidate; with 1, each packet is a candidate.
    pub gap: NonZeroU32,
}

/// Reordering by packets that are held back until others have overtaken them.
///
/// A held packet leaves behind the packet that completes its extent, or when its time is over. Its reordering extent
/// (RFC 4737, section 4.2.1) is then `extent`, unless other packets were held back meanwhile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HoldBack {
    /// The probability that a packet is held back.
    pub share: Probability,
    /// The number of later packets that overtake it. Packets that are held back themselves, and copies, do not count.
    pub extent: NonZeroU32,
    /// The longest time for which it is held if fewer packets come; above 0 and at most 1 h.
    pub timeout: Nanos,
}

/// A medium that packets get in turns, as netem's `slot` (Linux, `net/sched/sch_netem.c`, `get_slot_next`).
///
/// A packet that comes when no slot lies ahead opens the next slot after a wait that is drawn for it. All packets that
/// come until then leave in that slot, as far as it has room. The others wait for the next slot, which opens after
/// another wait. Order is kept, and any number of packets may wait.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slots {
    /// The wait for a slot; the mean wait, if it varies. The minimum and maximum of netem are this minus and plus the
    /// spread of a uniform law.
    pub delay: Nanos,
    /// The random part that is drawn for each slot; a wait below 0 is set to 0. It has no half-life.
    pub jitter: Option<Jitter>,
    /// The number of packets that leave in one slot; `None` is unlimited.
    pub packets: Option<NonZeroU32>,
    /// The L2 bytes after which a slot is over, above 0; the packet that reaches them still leaves. `None` is
    /// unlimited.
    pub bytes: Option<Bytes>,
}
