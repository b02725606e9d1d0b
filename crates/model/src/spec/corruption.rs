//! Packets whose bits are wrong when they arrive.

use core::num::NonZeroU8;
use core::str::FromStr;

use crate::decimal::UnitError;
use crate::units::Probability;

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
