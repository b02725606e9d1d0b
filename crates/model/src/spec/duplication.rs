//! Packets that come twice.

use core::str::FromStr;

use crate::decimal::UnitError;
use crate::time::Nanos;
use crate::units::Probability;

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
