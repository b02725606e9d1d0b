//! Bit error rates.

use core::fmt;
use core::str::FromStr;

use alloc::string::ToString;

use crate::decimal::{Quantity, UnitError};
use crate::units::{Bytes, Probability};

const BIT_ERROR_RATE: Quantity = Quantity {
    what: "a bit error rate",
    right: "write the share of bits that are wrong, 0 or more and below 1, as in 1e-6",
    units: &[],
};

/// A regular expression of bit error rates, regardless of their range.
#[cfg(feature = "schema")]
pub(crate) const PATTERN: &str = r"[0-9]+(\.[0-9]+)?([eE]-?[0-9]+)?";

/// The probability that a bit is wrong, independently of the others; at least 0 and below 1.
///
/// A frame with a wrong bit is lost, because its checksum (FCS) detects it: with probability 1 - (1 - b)^n for its n
/// bits from the destination's address to the FCS, `8 max(64, L2 + 4)`.
///
/// Text: `1e-6`, `0.000001`, without a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct BitErrorRate(f64);

impl BitErrorRate {
    /// No bit is wrong.
    pub const ZERO: Self = Self(0.0);

    /// Creates a rate with this share of wrong bits.
    ///
    /// # Errors
    /// Returns an error for a share below 0 or from 1 on, and for NaN.
    pub fn new(share: f64) -> Result<Self, UnitError> {
        if (0.0..1.0).contains(&share) {
            // Adding 0 turns the -0.0 that the range admits into 0.0.
            Ok(Self(share + 0.0))
        } else {
            Err(BIT_ERROR_RATE.out_of_range(&share.to_string()))
        }
    }

    /// Returns the share of bits that are wrong.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }

    /// Returns the probability that a frame of `l2_len` bytes (without FCS) is lost.
    #[must_use]
    pub fn loss(self, l2_len: Bytes) -> Probability {
        // A frame has at least 64 bytes with its FCS. No checksum covers preamble and gap.
        let bytes = l2_len.0.max(60) + 4;
        let whole = -libm::expm1(8.0 * bytes as f64 * libm::log1p(-self.0));
        Probability::from_percent(100.0 * whole).expect("from 0 to 1")
    }
}

impl FromStr for BitErrorRate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let malformed = || BIT_ERROR_RATE.malformed(text);
        let is_number = text.starts_with(|c: char| c.is_ascii_digit());
        let share: f64 = text.parse().map_err(|_| malformed())?;
        if !is_number {
            return Err(malformed());
        }
        Self::new(share).map_err(|_| BIT_ERROR_RATE.out_of_range(text))
    }
}

impl fmt::Display for BitErrorRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0.0 => f.write_str("0"),
            share => write!(f, "{share:e}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_frame_is_lost_more_often() {
        let rate = BitErrorRate::new(1e-6).unwrap();
        let percent = |len| rate.loss(Bytes(len)).percent();
        // 100 (1 - (1 - 1e-6)^n), where n is 8 (1514 + 4), or 8 * 64 for a short frame.
        assert!(
            (percent(1_514) - 1.207_056_5).abs() < 1e-6,
            "{}",
            percent(1_514)
        );
        assert!((percent(42) - 0.051_186_9).abs() < 1e-6, "{}", percent(42));
        assert_eq!(percent(42), percent(60));
        assert!(percent(61) > percent(60));
        assert_eq!(BitErrorRate::ZERO.loss(Bytes(1_514)), Probability::ZERO);
        let certain = BitErrorRate::new(0.999).unwrap().loss(Bytes(u64::MAX >> 4));
        assert_eq!(certain.percent(), 100.0);
    }

    #[test]
    fn a_rate_is_a_number_below_one() {
        for (text, share) in [
            ("1e-6", 1e-6),
            ("0", 0.0),
            ("0.000001", 1e-6),
            ("2.5E-4", 2.5e-4),
        ] {
            let rate: BitErrorRate = text.parse().unwrap();
            assert_eq!(rate.get(), share);
            assert_eq!(rate.to_string().parse(), Ok(rate));
        }
        for text in [
            "1", "1e0", "2", "-1e-6", "1e-6%", "nan", "inf", "", ".5", "+1e-6", "1%",
        ] {
            let refused = text.parse::<BitErrorRate>().unwrap_err().to_string();
            assert!(refused.contains("as in 1e-6"), "{refused}");
        }
    }
}
