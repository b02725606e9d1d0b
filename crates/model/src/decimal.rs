//! Numbers with units as text: one grammar, a table of units for each quantity, and integer arithmetic.

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;

/// The number of digits of a fraction that are read: the largest multiplier is below 10^13, and 10^24 * 10^13 fits into
/// 128 bits.
const FRACTION_DIGITS: usize = 24;

/// A regular expression of the numbers that [`Number::parse`] accepts.
#[cfg(feature = "schema")]
pub(crate) const NUMBER: &str = r"[0-9]+(\.[0-9]+)?";

/// An error in a text that should be a value with a unit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// It is a bare number, and tools disagree on the unit that this has.
    #[error("`{text}` has no unit: {right}")]
    NoUnit {
        /// The text.
        text: String,
        /// The advice on how to write it.
        right: &'static str,
    },
    /// It is not a number, or its unit belongs to another quantity.
    #[error("`{text}` is not {what}: {right}")]
    Malformed {
        /// The text.
        text: String,
        /// The quantity, with its article.
        what: &'static str,
        /// The advice on how to write it.
        right: &'static str,
    },
    /// It is a rate that tools read differently: tc as bytes per second, others as bits.
    #[error(
        "`{text}` is not a rate: its unit is bytes per second for tc, and bits for most other tools: write {bits}, or {bytes} if \
         bytes are meant"
    )]
    BitsOrBytes {
        /// The text.
        text: String,
        /// The rate as it is written if bits are meant.
        bits: String,
        /// The rate as it is written if bytes are meant.
        bytes: String,
    },
    /// The quantity cannot have this value.
    #[error("`{text}` is out of range: {right}")]
    OutOfRange {
        /// The text.
        text: String,
        /// The advice on how to write it.
        right: &'static str,
    },
}

/// A quantity: its name and the way it is written.
pub(crate) struct Quantity {
    /// The name with its article: "a time".
    pub(crate) what: &'static str,
    /// The advice that ends every error.
    pub(crate) right: &'static str,
    /// The units and their multiples of the base unit: first those to print, from the largest to 1, then aliases.
    pub(crate) units: &'static [(&'static str, u64)],
}

impl Quantity {
    /// Parses `text` into base units, rounded to the nearest; case does not matter, as in tc.
    pub(crate) fn parse(&self, text: &str) -> Result<u64, UnitError> {
        let (number, unit) = split(text);
        let number = Number::parse(number).ok_or_else(|| self.malformed(text))?;
        if unit.is_empty() {
            return Err(self.no_unit(text));
        }
        let (_, multiple) = self
            .units
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(unit))
            .ok_or_else(|| self.malformed(text))?;
        number
            .times(*multiple)
            .ok_or_else(|| self.out_of_range(text))
    }

    /// Returns `value` as text in the largest unit that divides it, so that it needs no fraction and no digit is lost.
    pub(crate) fn whole(&self, value: u64) -> String {
        let (name, multiple) = self.largest_unit(value, 1);
        alloc::format!("{}{name}", value / multiple)
    }

    /// Writes the text of [`Quantity::whole`].
    pub(crate) fn write(&self, value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.whole(value))
    }

    /// Writes `value` exactly, in the largest unit in which it needs at most three decimal places: 26.55ms, 1.5s. If it
    /// would then have more than four digits before the point, it is written in the largest unit that is not above it,
    /// with all decimal places that it needs: 27.615618285s. The units down to 1 are powers of ten.
    pub(crate) fn write_decimal(&self, value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut name, mut multiple) = self.largest_unit(value, 1_000);
        if value / multiple >= 10_000 {
            let readable = self.units.iter().find(|(_, multiple)| value >= *multiple);
            (name, multiple) = readable.copied().unwrap_or((name, multiple));
        }
        write!(f, "{}", value / multiple)?;
        let (mut fraction, mut digits) = (value % multiple, multiple.ilog10() as usize);
        if fraction > 0 {
            while fraction.is_multiple_of(10) {
                (fraction, digits) = (fraction / 10, digits - 1);
            }
            write!(f, ".{fraction:0digits$}")?;
        }
        f.write_str(name)
    }

    /// Returns the largest unit that is not above `value` and of which `value` is a multiple of 1 / `parts`; if there is
    /// none, the base unit.
    fn largest_unit(&self, value: u64, parts: u64) -> (&'static str, u64) {
        let fits = |multiple: u64| {
            value >= multiple && (value % multiple * parts).is_multiple_of(multiple)
        };
        *self
            .units
            .iter()
            .find(|&&(_, multiple)| multiple == 1 || fits(multiple))
            .expect("every table has a unit of 1")
    }

    /// Returns a regular expression of what [`Quantity::parse`] accepts, regardless of its range. It lists both cases
    /// of each letter, because JSON Schema cannot ignore case.
    #[cfg(feature = "schema")]
    pub(crate) fn pattern(&self) -> String {
        let either_case = |letter: char| {
            alloc::format!(
                "[{}{}]",
                letter.to_ascii_lowercase(),
                letter.to_ascii_uppercase()
            )
        };
        let unit = |(name, _): &(&str, u64)| name.chars().map(either_case).collect::<String>();
        let units: alloc::vec::Vec<String> = self.units.iter().map(unit).collect();
        alloc::format!("{NUMBER}({})", units.join("|"))
    }

    pub(crate) fn no_unit(&self, text: &str) -> UnitError {
        UnitError::NoUnit {
            text: text.to_owned(),
            right: self.right,
        }
    }

    pub(crate) fn malformed(&self, text: &str) -> UnitError {
        UnitError::Malformed {
            text: text.to_owned(),
            what: self.what,
            right: self.right,
        }
    }

    pub(crate) fn out_of_range(&self, text: &str) -> UnitError {
        UnitError::OutOfRange {
            text: text.to_owned(),
            right: self.right,
        }
    }
}

/// Splits `text` behind its leading digits and points.
pub(crate) fn split(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    text.split_at(end)
}

/// An unsigned decimal number: digits, optionally followed by a point and more digits. It has no sign and no exponent.
pub(crate) struct Number<'a> {
    whole: &'a str,
    fraction: &'a str,
}

impl<'a> Number<'a> {
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        (digits(whole) && digits(fraction)).then_some(Self { whole, fraction })
    }

    /// Returns the number times `multiple`, rounded to the nearest integer; `None` above 64 bits.
    fn times(&self, multiple: u64) -> Option<u64> {
        let multiple = u128::from(multiple);
        let whole = self.whole.parse::<u64>().ok()?;
        let kept = &self.fraction[..self.fraction.len().min(FRACTION_DIGITS)];
        let scale = kept.bytes().fold(1_u128, |scale, _| scale * 10);
        let fraction = kept.parse::<u128>().ok()? * multiple;
        let value = u128::from(whole) * multiple + (fraction + scale / 2) / scale;
        u64::try_from(value).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    const LENGTH: Quantity = Quantity {
        what: "a length",
        right: "write it with m or km, as in 5km",
        units: &[("km", 1000), ("m", 1), ("metre", 1)],
    };

    #[test]
    fn fractions_are_exact_and_rounded_to_the_nearest_base_unit() {
        assert_eq!(LENGTH.parse("1.5km"), Ok(1500));
        assert_eq!(LENGTH.parse("0.0014km"), Ok(1));
        assert_eq!(LENGTH.parse("0.0015km"), Ok(2));
        assert_eq!(
            LENGTH.parse("0.99999999999999999999999999999999999999999km"),
            Ok(1000)
        );
    }

    #[test]
    fn aliases_and_case_are_read() {
        assert_eq!(LENGTH.parse("7metre"), Ok(7));
        assert_eq!(LENGTH.parse("7KM"), Ok(7000));
    }

    #[test]
    fn each_error_has_the_text_and_advice() {
        for case in [
            "20 => `20` has no unit: write it with m or km, as in 5km",
            "20s => `20s` is not a length: write it with m or km, as in 5km",
            "-2m => `-2m` is not a length: write it with m or km, as in 5km",
            "1.2.3m => `1.2.3m` is not a length: write it with m or km, as in 5km",
            " => `` is not a length: write it with m or km, as in 5km",
            "18446744073709552km => `18446744073709552km` is out of range: write it with m or km, as in 5km",
        ] {
            let (text, message) = case.split_once(" => ").unwrap();
            assert_eq!(LENGTH.parse(text).unwrap_err().to_string(), message);
        }
    }
}
