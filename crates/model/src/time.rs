//! Model time: points and spans in whole nanoseconds.

use alloc::string::String;
use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use core::str::FromStr;
use core::time::Duration;

use crate::decimal::{Quantity, UnitError};

pub(crate) const TIME: Quantity = Quantity {
    what: "a time",
    right: "write a time with ns, us, ms, s, min or h, as in 20ms",
    units: &[
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
        ("us", 1_000),
        ("ns", 1),
        ("sec", 1_000_000_000),
        ("secs", 1_000_000_000),
        ("msec", 1_000_000),
        ("msecs", 1_000_000),
        ("usec", 1_000),
        ("usecs", 1_000),
        ("nsec", 1),
        ("nsecs", 1),
        ("min", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ],
};

/// The text of a time of 0, in the unit in which people write most times.
const ZERO: &str = "0ms";

/// A point in time or a span, in whole nanoseconds. A point counts from an origin that the caller chooses.
///
/// Range: 0 to 584 years. Sums and differences saturate, so that no input can make time run backwards.
///
/// Text: `500us`, `20ms`, `1.5s`, as in tc(8); a fraction of a nanosecond is rounded. Unlike tc, it also has `10min`
/// and `24h`. `m` is not a unit, because it could mean minutes, months or milliseconds. A bare number is refused,
/// because tc reads it as microseconds and ping as seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The origin, or an empty span.
    pub const ZERO: Self = Self(0);
    /// The latest point in time and the longest span. Where an event may be absent, it means never.
    pub const MAX: Self = Self(u64::MAX);

    /// Creates a time of whole microseconds; it saturates.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// Creates a time of whole milliseconds; it saturates.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Creates a time of whole seconds; it saturates.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// Returns this span multiplied by `times`; the product saturates.
    #[must_use]
    pub const fn saturating_mul(self, times: u64) -> Self {
        Self(self.0.saturating_mul(times))
    }

    /// Returns the text in the largest unit that divides the time: `26550us`, while [`Display`](fmt::Display)
    /// writes `26.55ms`.
    ///
    /// tc reads only this form exactly: it multiplies a fraction in floating point and cuts the result off.
    #[must_use]
    pub fn in_whole_units(self) -> String {
        if self == Self::ZERO {
            return String::from(ZERO);
        }
        TIME.whole(self.0)
    }
}

impl Add for Nanos {
    type Output = Self;

    fn add(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, span: Self) {
        *self = *self + span;
    }
}

impl Sub for Nanos {
    type Output = Self;

    /// Returns the span since `earlier`; 0 if `earlier` is the later one.
    fn sub(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl From<Nanos> for Duration {
    fn from(time: Nanos) -> Self {
        Self::from_nanos(time.0)
    }
}

impl From<Duration> for Nanos {
    /// Converts a duration; more than 584 years saturates.
    fn from(time: Duration) -> Self {
        Self(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl FromStr for Nanos {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        TIME.parse(text).map(Self)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ZERO {
            return f.write_str(ZERO);
        }
        TIME.write_decimal(self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn times_are_read_in_the_units_of_tc_and_in_minutes_and_hours() {
        for (text, nanos) in [
            ("100ns", 100),
            ("500us", 500_000),
            ("0.71ms", 710_000),
            ("20ms", 20_000_000),
            ("1.5s", 1_500_000_000),
            ("3secs", 3_000_000_000),
            ("1.5min", 90_000_000_000),
            ("24h", 86_400_000_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn times_are_written_exactly_with_three_decimal_places_or_in_whole_units() {
        for (nanos, short, whole) in [
            (0, "0ms", "0ms"),
            (710_000, "710us", "710us"),
            (26_550_000, "26.55ms", "26550us"),
            (413_500_000, "413.5ms", "413500us"),
            (1_500_000_000, "1.5s", "1500ms"),
            (1_001_000_000, "1.001s", "1001ms"),
            (90_000_000_000, "90s", "90s"),
            (1_234_567, "1234.567us", "1234567ns"),
            (12_345_678, "12.345678ms", "12345678ns"),
            (1_234_567_890, "1.23456789s", "1234567890ns"),
            (27_615_618_285_000, "27615.618285s", "27615618285us"),
            (u64::MAX, "18446744073.709551615s", "18446744073709551615ns"),
        ] {
            let time = Nanos(nanos);
            assert_eq!(time.to_string(), short);
            assert_eq!(time.in_whole_units(), whole);
            assert_eq!(
                [short, whole].map(str::parse::<Nanos>),
                [Ok(time), Ok(time)]
            );
        }
    }

    #[test]
    fn a_bare_number_is_refused_with_the_valid_units() {
        assert_eq!(
            "20".parse::<Nanos>().unwrap_err().to_string(),
            "`20` has no unit: write a time with ns, us, ms, s, min or h, as in 20ms"
        );
        assert!("10m".parse::<Nanos>().is_err(), "minutes, or a thousandth?");
    }

    #[test]
    fn time_never_wraps() {
        assert_eq!(Nanos::MAX + Nanos(1), Nanos::MAX);
        assert_eq!(Nanos(1) - Nanos(2), Nanos::ZERO);
        assert_eq!(Nanos::from(Duration::MAX), Nanos::MAX);
    }
}
