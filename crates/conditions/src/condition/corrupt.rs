//! Corruption of packets.

use std::fmt;
use std::num::NonZeroU8;

use model::{Corruption, Effect, Probability};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{describe, text_form};
use crate::read::OrText;

/// Flipped bits, written `0.1%`, `0.1%,bits=2` or `0.1%,repair`, or as a table.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a text such as 0.1%,bits=2,repair, or a table"
)]
#[schemars(transform = OrText::of("share"))]
pub struct CorruptSpec {
    /// The share of packets with flipped bits.
    pub share: Probability,
    /// The number of flipped bits in each, from 1 to 255; 1 when absent.
    #[serde(default = "one")]
    pub bits: NonZeroU8,
    /// Whether the bits are in the payload, and the checksum is corrected.
    #[serde(default)]
    pub repair: bool,
}

fn one() -> NonZeroU8 {
    NonZeroU8::MIN
}

describe! {
    CorruptSpec: "corrupt" = "PERCENT[,bits=N][,repair]", as in "0.1%,bits=2,repair", shapes Corrupt;
    "Share of packets with flipped bits: 0.1%"
    + "bits=2 flips two bits of each (1 to 255 bits): 0.1%,bits=2. `repair` flips payload bits and fixes the checksum, so the application sees the damage: 0.1%,repair"
}

impl CorruptSpec {
    pub(crate) fn effect(self) -> Effect {
        let Self {
            share,
            bits,
            repair,
        } = self;
        Effect::Corrupt(Corruption {
            share,
            bits,
            repair,
        })
    }
}

impl fmt::Display for CorruptSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.share.fmt(f)?;
        if self.bits > NonZeroU8::MIN {
            write!(f, ",bits={}", self.bits)?;
        }
        f.write_str(if self.repair { ",repair" } else { "" })
    }
}

text_form!(CorruptSpec);
