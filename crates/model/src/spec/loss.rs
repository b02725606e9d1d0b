//! Loss at random.

use core::str::FromStr;

use crate::decimal::UnitError;
use crate::units::Probability;

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
