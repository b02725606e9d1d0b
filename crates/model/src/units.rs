//! The units of a link's conditions: checked when they are created, and written as tc and iperf3 write them.

use core::fmt;
use core::num::NonZeroU64;
use core::str::FromStr;

use alloc::string::{String, ToString};

use crate::decimal::{Number, Quantity, UnitError, split};
use crate::time::Nanos;

pub(crate) const SIZE: Quantity = Quantity {
    what: "a size",
    right: "write a size in bytes with b, kb, mb, gb, KiB, MiB or GiB, as in 64KiB",
    units: &[
        ("GiB", 1 << 30),
        ("gb", 1_000_000_000),
        ("MiB", 1 << 20),
        ("mb", 1_000_000),
        ("KiB", 1 << 10),
        ("kb", 1_000),
        ("b", 1),
    ],
};

pub(crate) const RATE: Quantity = Quantity {
    what: "a rate",
    right: "write a rate of at least 1bit with bit, kbit, mbit, gbit or tbit (per second), as in 10mbit",
    units: &[
        ("tbit", 1_000_000_000_000),
        ("gbit", 1_000_000_000),
        ("mbit", 1_000_000),
        ("kbit", 1_000),
        ("bit", 1),
        ("tibit", 1 << 40),
        ("gibit", 1 << 30),
        ("mibit", 1 << 20),
        ("kibit", 1 << 10),
    ],
};

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

pub(crate) const QUEUE: Quantity = Quantity {
    what: "a queue limit",
    right: "write packets, bytes or a time above 0, as in 100pkt, 64KiB or 50ms",
    units: &[("pkt", 1)],
};

/// Nanoseconds in a second times bits in a byte: bytes times this, divided by bits per second, is nanoseconds.
const NANOBITS_PER_BYTE: u128 = 8 * 1_000_000_000;

/// 2^64, the number of values of a draw.
const DRAWS: f64 = 18_446_744_073_709_551_616.0;

/// A number of bytes.
///
/// Text: `1500b`, `10kb`, `64KiB`. The letter b means bytes, in either case; multiples are decimal unless written KiB,
/// MiB or GiB (tc reads `kb` as 1024 bytes).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl FromStr for Bytes {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        SIZE.parse(text).map(Self)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SIZE.write(self.0, f)
    }
}

/// A rate in bits per second, never 0.
///
/// Text: `300bit`, `10mbit`, `60.9mbit`, and binary multiples such as `kibit`, as in tc(8); a fraction of a bit per
/// second is rounded. `mbps` is refused, because tc reads it as bytes and most people read it as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitsPerSec(NonZeroU64);

impl BitsPerSec {
    /// Creates a rate of `bits` per second.
    ///
    /// # Errors
    /// Returns an error for 0, which would serve nothing.
    pub fn new(bits: u64) -> Result<Self, UnitError> {
        NonZeroU64::new(bits)
            .map(Self)
            .ok_or_else(|| RATE.out_of_range(&bits.to_string()))
    }

    /// Returns the number of bits per second.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// Returns the text in the largest unit that divides the rate: `60900kbit`, while [`Display`](fmt::Display)
    /// writes `60.9mbit`.
    ///
    /// tc reads only this form exactly: it multiplies a fraction in floating point and cuts the result off.
    #[must_use]
    pub fn in_whole_units(self) -> String {
        RATE.whole(self.get())
    }

    /// Returns the time that `bytes` take at this rate, rounded up to whole nanoseconds; more than 584 years saturates.
    #[must_use]
    pub fn time_for(self, bytes: Bytes) -> Nanos {
        self.time_with_credit(bytes, 0).0
    }

    /// Returns the number of whole bytes that it serves in `time`; more than 2^64 saturates.
    #[must_use]
    pub fn bytes_in(self, time: Nanos) -> Bytes {
        let bytes = u128::from(self.get()) * u128::from(time.0) / NANOBITS_PER_BYTE;
        Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// Returns the time that `bytes` take when `credit` of their work is already done, and the credit that rounding up
    /// leaves.
    ///
    /// Credit is in nanoseconds times the rate and less than one nanosecond. Carried from packet to packet, it keeps a
    /// busy server at exactly its rate; rounding each packet up would cost 0.7 % at 100 gbit.
    pub(crate) fn time_with_credit(self, bytes: Bytes, credit: u64) -> (Nanos, u64) {
        let rate = self.get();
        let work = u128::from(bytes.0) * NANOBITS_PER_BYTE;
        let due = work.saturating_sub(u128::from(credit));
        // Up to 2.3 GB this fits into 64 bits: one hardware division instead of a library call.
        let nanos = match u64::try_from(due) {
            Ok(due) => u128::from(due.div_ceil(rate)),
            Err(_) => due.div_ceil(u128::from(rate)),
        };
        let left = nanos * u128::from(rate) + u128::from(credit) - work;
        (
            Nanos(u64::try_from(nanos).unwrap_or(u64::MAX)),
            u64::try_from(left).expect("rounding up leaves less than a nanosecond of work"),
        )
    }
}

impl FromStr for BitsPerSec {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let bits = RATE.parse(text);
        let bits = bits.map_err(|error| bits_or_bytes(text).unwrap_or(error))?;
        NonZeroU64::new(bits)
            .map(Self)
            .ok_or_else(|| RATE.out_of_range(text))
    }
}

/// Returns the error for a rate whose unit ends in `bps`, with both rates that it may mean.
fn bits_or_bytes(text: &str) -> Option<UnitError> {
    let (number, unit) = split(text);
    let unit = unit.to_ascii_lowercase();
    let multiple = unit.strip_suffix("bps")?;
    let bits: BitsPerSec = alloc::format!("{number}{multiple}bit").parse().ok()?;
    let bytes = BitsPerSec::new(bits.get().checked_mul(8)?).ok()?;
    Some(UnitError::BitsOrBytes {
        text: text.to_string(),
        bits: bits.to_string(),
        bytes: bytes.to_string(),
    })
}

impl fmt::Display for BitsPerSec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        RATE.write_decimal(self.get(), f)
    }
}

/// A probability from 0 % to 100 %.
///
/// Text: `1%`, `0.1%`. A bare number is refused, because it could be a fraction or a percentage. The percentage is kept
/// as it was written, so that text and value round-trip.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Probability {
    percent: f64,
}

impl Probability {
    /// 0 %: never.
    pub const ZERO: Self = Self { percent: 0.0 };

    /// Creates a probability of `percent` per cent.
    ///
    /// # Errors
    /// Returns an error for a value outside 0 to 100, NaN included.
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

    /// Returns the percentage, 0 to 100.
    #[must_use]
    pub const fn percent(self) -> f64 {
        self.percent
    }

    /// Returns the fraction, 0 to 1.
    #[must_use]
    pub const fn fraction(self) -> f64 {
        self.percent / 100.0
    }

    /// Returns how many of the 2^64 values of a draw are hits: 0 means never, 2^64 always.
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

/// A divisor above 0, as in TOFFEE's dynamic delay: microseconds = bytes / factor.
///
/// Text: a plain number without a unit, `1` or `1.5`.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Factor(f64);

impl Factor {
    /// Creates a factor of `value`.
    ///
    /// # Errors
    /// Returns an error for 0, a negative number, infinity and NaN.
    pub fn new(value: f64) -> Result<Self, UnitError> {
        if value.is_finite() && value > 0.0 {
            Ok(Self(value))
        } else {
            Err(FACTOR.out_of_range(&value.to_string()))
        }
    }

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }

    /// Returns `bytes` / factor as a time in microseconds, rounded to the nanosecond; more than 584 years saturates.
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

/// The most that may wait before a server. Text: `100pkt`, `64KiB`, `50ms` or `100ms,20pkt`; 0 is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// A number of waiting packets.
    Packets(u32),
    /// A number of waiting L2 bytes.
    Bytes(Bytes),
    /// The time that the server would need for all waiting packets at its current rate.
    Time(Nanos),
    /// The larger of a time and a number of packets: a packet may wait if either of the two limits allows it.
    TimeOrPackets(Nanos, u32),
}

impl FromStr for QueueLimit {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let limit = if let Some((time, packets)) = text.split_once(',') {
            let time = time.trim().parse().map_err(|_| QUEUE.malformed(text))?;
            Self::TimeOrPackets(time, whole_packets(packets.trim())?)
        } else if let Ok(bytes) = text.parse() {
            Self::Bytes(bytes)
        } else if let Ok(time) = text.parse() {
            Self::Time(time)
        } else {
            Self::Packets(whole_packets(text)?)
        };
        let is_nothing = match limit {
            Self::Packets(packets) => packets == 0,
            Self::Bytes(bytes) => bytes.0 == 0,
            Self::Time(time) => time == Nanos::ZERO,
            Self::TimeOrPackets(time, packets) => time == Nanos::ZERO || packets == 0,
        };
        if is_nothing {
            Err(QUEUE.out_of_range(text))
        } else {
            Ok(limit)
        }
    }
}

/// Parses a number of packets.
fn whole_packets(text: &str) -> Result<u32, UnitError> {
    let packets = u32::try_from(QUEUE.parse(text)?);
    packets.map_err(|_| QUEUE.out_of_range(text))
}

impl fmt::Display for QueueLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packets(packets) => QUEUE.write(u64::from(*packets), f),
            Self::Bytes(bytes) => bytes.fmt(f),
            Self::Time(time) => time.fmt(f),
            Self::TimeOrPackets(time, packets) => {
                write!(f, "{time},")?;
                QUEUE.write(u64::from(*packets), f)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(text: &str) -> BitsPerSec {
        text.parse().unwrap()
    }

    #[test]
    fn rates_are_read_in_the_units_of_tc() {
        for (text, bits) in [
            ("300bit", 300),
            ("800kbit", 800_000),
            ("60.9mbit", 60_900_000),
            ("10Mbit", 10_000_000),
            ("1gbit", 1_000_000_000),
            ("8kibit", 8_192),
        ] {
            assert_eq!(rate(text).get(), bits, "{text}");
        }
    }

    #[test]
    fn rates_are_written_exactly_with_three_decimal_places_or_in_whole_units() {
        for (bits, short, whole) in [
            (300, "300bit", "300bit"),
            (10_000_000, "10mbit", "10mbit"),
            (60_900_000, "60.9mbit", "60900kbit"),
            (4_371_945_485_992, "4.371945485992tbit", "4371945485992bit"),
        ] {
            let of = BitsPerSec::new(bits).unwrap();
            assert_eq!(of.to_string(), short);
            assert_eq!(of.in_whole_units(), whole);
            assert_eq!([short, whole].map(rate), [of, of]);
        }
    }

    #[test]
    fn an_invalid_rate_is_refused() {
        for (text, start) in [
            ("10", "`10` has no unit: write a rate"),
            (
                "0bit",
                "`0bit` is out of range: write a rate of at least 1bit",
            ),
            ("10mbps", "`10mbps` is not a rate"),
            ("20ms", "`20ms` is not a rate"),
        ] {
            let message = text.parse::<BitsPerSec>().unwrap_err().to_string();
            assert!(message.starts_with(start), "{message}");
        }
        assert!(BitsPerSec::new(0).is_err());
    }

    #[test]
    fn a_rate_in_bps_is_refused_with_both_rates_that_it_may_mean() {
        for (text, bits, bytes) in [
            ("5mbps", "5mbit", "40mbit"),
            ("2.5Mbps", "2.5mbit", "20mbit"),
            ("300bps", "300bit", "2.4kbit"),
            ("1gbps", "1gbit", "8gbit"),
        ] {
            let message = text.parse::<BitsPerSec>().unwrap_err().to_string();
            let end = alloc::format!("write {bits}, or {bytes} if bytes are meant");
            assert!(message.ends_with(&end), "{message}");
        }
        for text in ["xbps", "5xbps", "0mbps", "99999999999tbps"] {
            let message = text.parse::<BitsPerSec>().unwrap_err().to_string();
            assert!(message.contains("is not a rate: write a rate"), "{message}");
        }
    }

    #[test]
    fn sizes_are_decimal_unless_written_binary() {
        for (text, bytes) in [
            ("1500b", 1_500),
            ("10kb", 10_000),
            ("64KiB", 65_536),
            ("1MB", 1_000_000),
            ("2MiB", 2_097_152),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        assert_eq!(Bytes(1_500).to_string(), "1500b");
        assert_eq!(Bytes(65_536).to_string(), "64KiB");
        assert!("64".parse::<Bytes>().is_err());
    }

    #[test]
    fn a_time_for_bytes_is_exact_and_rounded_up() {
        assert_eq!(rate("10mbit").time_for(Bytes(1_250)), Nanos::from_millis(1));
        assert_eq!(rate("10gbit").time_for(Bytes(1_514)), Nanos(1_212));
        assert_eq!(rate("3bit").time_for(Bytes(1)), Nanos(2_666_666_667));
        assert_eq!(rate("1bit").time_for(Bytes(u64::MAX)), Nanos::MAX);
        assert_eq!(rate("8gbit").time_for(Bytes(u64::MAX)), Nanos::MAX);
        assert_eq!(rate("1gbit").time_for(Bytes(1 << 40)), Nanos(8 << 40));
    }

    #[test]
    fn credit_carried_forward_makes_many_packets_exact() {
        let rate = rate("100gbit");
        let (mut total, mut credit) = (Nanos::ZERO, 0);
        for _ in 0..1_000 {
            let (time, left) = rate.time_with_credit(Bytes(1_514), credit);
            total += time;
            credit = left;
        }
        assert_eq!(total, rate.time_for(Bytes(1_514_000)));
    }

    #[test]
    fn packets_shorter_than_a_nanosecond_use_up_the_credit() {
        let rate = rate("100tbit");
        let (mut total, mut credit) = (Nanos::ZERO, 0);
        for _ in 0..1_000 {
            let (time, left) = rate.time_with_credit(Bytes(64), credit);
            total += time;
            credit = left;
        }
        assert_eq!(total, rate.time_for(Bytes(64_000)));
    }

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
    fn an_invalid_probability_is_refused() {
        let right = "write a probability from 0% to 100%, as in 0.1%";
        for (text, fault) in [
            ("0.1", "`0.1` has no unit"),
            ("101%", "`101%` is out of range"),
            ("-1%", "`-1%` is not a probability"),
            ("1e1%", "`1e1%` is not a probability"),
            ("%", "`%` is not a probability"),
        ] {
            let message = text.parse::<Probability>().unwrap_err().to_string();
            assert_eq!(message, alloc::format!("{fault}: {right}"));
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

    #[test]
    fn a_queue_limit_is_in_packets_bytes_or_time() {
        assert_eq!("100pkt".parse(), Ok(QueueLimit::Packets(100)));
        assert_eq!("64KiB".parse(), Ok(QueueLimit::Bytes(Bytes(65_536))));
        assert_eq!("50ms".parse(), Ok(QueueLimit::Time(Nanos::from_millis(50))));
        let larger = QueueLimit::TimeOrPackets(Nanos::from_millis(100), 20);
        assert_eq!("100ms, 20pkt".parse(), Ok(larger));
        assert_eq!(larger.to_string(), "100ms,20pkt");
        let right = "write packets, bytes or a time above 0, as in 100pkt, 64KiB or 50ms";
        for (text, fault) in [
            ("100", "`100` has no unit"),
            ("5mbit", "`5mbit` is not a queue limit"),
            ("5000000000pkt", "`5000000000pkt` is out of range"),
            ("0pkt", "`0pkt` is out of range"),
            ("0KiB", "`0KiB` is out of range"),
            ("0ms", "`0ms` is out of range"),
            ("100ms,0pkt", "`100ms,0pkt` is out of range"),
            ("0ms,20pkt", "`0ms,20pkt` is out of range"),
            ("20pkt,100ms", "`20pkt,100ms` is not a queue limit"),
            ("100ms,", "`` is not a queue limit"),
        ] {
            let message = text.parse::<QueueLimit>().unwrap_err().to_string();
            assert_eq!(message, alloc::format!("{fault}: {right}"));
        }
    }
}
