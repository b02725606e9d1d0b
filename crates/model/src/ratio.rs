//! Probabilities and factors: the two quantities that are no whole numbers.

use core::fmt;
use core::str::FromStr;

use alloc::string::ToString;

use crate::decimal::{Number, Quantity, split};
use crate::{Bytes, Nanos, UnitError};

const PROBABILITY: Quantity = Quantity {
    what: "a probability",
    right: "write a probability from 0% to 100%, as in 0.1%",
    units: &[],
};

const FACTOR: Quantity = Quantity {
    what: "a factor",
    right: "write a factor as a number above 0, as in 1.5",
    units: &[],
};

/// 2^64, the number of values that a draw can take.
const DRAWS: f64 = 18_446_744_073_709_551_616.0;

/// A probability from 0 % to 100 %.
///
/// Text: `1%`, `0.1%`; a bare number is refused, because it could be a share or a percentage. Kept as
/// the percentage that was written, so that text and value round-trip.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Probability {
    percent: f64,
}

impl Probability {
    /// What never happens.
    pub const ZERO: Self = Self { percent: 0.0 };

    /// A probability of `percent` in a hundred.
    ///
    /// # Errors
    /// Anything outside 0 to 100, NaN included.
    pub fn from_percent(percent: f64) -> Result<Self, UnitError> {
        if (0.0..=100.0).contains(&percent) {
            // Adding 0 turns the -0.0 that the range admits into 0.0.
            Ok(Self {
                percent: percent + 0.0,
            })
        } else {
            Err(PROBABILITY.out_of_range(&percent.to_string()))
        }
    }

    /// In a hundred.
    #[must_use]
    pub const fn percent(self) -> f64 {
        self.percent
    }

    /// From 0 to 1.
    #[must_use]
    pub const fn fraction(self) -> f64 {
        self.percent / 100.0
    }

    /// How many of the 2^64 values of a draw are hits: 0 for never, 2^64 for always.
    pub(crate) fn threshold(self) -> u128 {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "0 to 2^64 fits, and the part of a draw that is cut off cannot be drawn"
        )]
        let threshold = (self.fraction() * DRAWS) as u128;
        threshold
    }
}

impl FromStr for Probability {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (number, unit) = split(text);
        if Number::parse(number).is_none() {
            return Err(PROBABILITY.malformed(text));
        }
        let percent = match unit {
            "%" => number.parse().map_err(|_| PROBABILITY.malformed(text))?,
            "" => return Err(PROBABILITY.no_unit(text)),
            _ => return Err(PROBABILITY.malformed(text)),
        };
        Self::from_percent(percent).map_err(|_| PROBABILITY.out_of_range(text))
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.percent)
    }
}

/// A divisor above 0, as TOFFEE's dynamic delay takes it: microseconds = bytes / factor.
///
/// Text: a plain number, `1` or `1.5`; it has no unit.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Factor(f64);

impl Factor {
    /// A factor of `value`.
    ///
    /// # Errors
    /// 0, a negative number, infinity, NaN.
    pub fn new(value: f64) -> Result<Self, UnitError> {
        if value.is_finite() && value > 0.0 {
            Ok(Self(value))
        } else {
            Err(FACTOR.out_of_range(&value.to_string()))
        }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }

    /// `bytes` over the factor in microseconds, rounded to the nanosecond; what exceeds 584 years saturates.
    #[must_use]
    pub fn time_for(self, bytes: Bytes) -> Nanos {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the half added before makes cutting the fraction off a rounding"
        )]
        let nanos = (bytes.0 as f64 * 1_000.0 / self.0 + 0.5) as u64;
        Nanos(nanos)
    }
}

impl FromStr for Factor {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let value = text.parse().map_err(|_| FACTOR.malformed(text))?;
        Self::new(value).map_err(|_| FACTOR.out_of_range(text))
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probability(text: &str) -> Probability {
        text.parse().unwrap()
    }

    #[test]
    fn a_probability_prints_as_it_was_written() {
        for text in ["0%", "0.0001%", "0.07%", "7%", "33.3%", "100%"] {
            assert_eq!(probability(text).to_string(), text);
        }
    }

    #[test]
    fn a_probability_that_is_none_is_refused() {
        let right = "write a probability from 0% to 100%, as in 0.1%";
        for (text, fault) in [
            ("0.1", "`0.1` has no unit"),
            ("101%", "`101%` is out of range"),
            ("-1%", "`-1%` is not a probability"),
            ("1e1%", "`1e1%` is not a probability"),
            ("%", "`%` is not a probability"),
        ] {
            let message = text.parse::<Probability>().unwrap_err().to_string();
            assert_eq!(message, std::format!("{fault}: {right}"));
        }
        assert!(Probability::from_percent(f64::NAN).is_err());
    }

    #[test]
    fn zero_never_hits_and_one_always_does() {
        assert_eq!(Probability::ZERO.threshold(), 0);
        assert_eq!(probability("50%").threshold(), 1 << 63);
        assert!(probability("100%").threshold() > u128::from(u64::MAX));
    }

    #[test]
    fn a_factor_is_a_plain_number_above_zero() {
        assert_eq!("1.5".parse(), Factor::new(1.5));
        for text in ["0", "-1", "inf", "nan", "2x", ""] {
            let message = text.parse::<Factor>().unwrap_err().to_string();
            assert!(message.ends_with(FACTOR.right), "{message}");
        }
    }

    #[test]
    fn a_factor_divides_bytes_into_microseconds() {
        let time = |factor: f64, bytes| Factor::new(factor).unwrap().time_for(Bytes(bytes));
        assert_eq!(time(1.0, 1_242), Nanos::from_micros(1_242));
        assert_eq!(time(2.0, 1_242), Nanos::from_micros(621));
        assert_eq!(time(3.0, 1), Nanos(333));
        assert_eq!(time(f64::MIN_POSITIVE, 1), Nanos::MAX);
    }
}
