//! Numbers and quantities as tc reads them: by C's strtod or strtoul, and then a unit in either case (iproute2 6.1,
//! `lib/utils.c` and `lib/utils_math.c`).
//!
//! tc converts what does not fit into its integers, or is no number at all, to some other number. Here these are refused.

use model::Nanos;

/// Units of rates in bits per second; tc's `bps` are bytes per second.
const RATES: &[(&str, f64)] = &[
    ("", 1.0),
    ("bit", 1.0),
    ("kbit", 1e3),
    ("mbit", 1e6),
    ("gbit", 1e9),
    ("tbit", 1e12),
    ("kibit", 1_024.0),
    ("mibit", 1_048_576.0),
    ("gibit", 1_073_741_824.0),
    ("tibit", 1_099_511_627_776.0),
    ("bps", 8.0),
    ("kbps", 8e3),
    ("mbps", 8e6),
    ("gbps", 8e9),
    ("tbps", 8e12),
    ("kibps", 8_192.0),
    ("mibps", 8_388_608.0),
    ("gibps", 8_589_934_592.0),
    ("tibps", 8_796_093_022_208.0),
];

/// Units of sizes in bytes; tc's multiples are powers of 1024.
const SIZES: &[(&str, f64)] = &[
    ("", 1.0),
    ("b", 1.0),
    ("k", 1_024.0),
    ("kb", 1_024.0),
    ("kbit", 128.0),
    ("m", 1_048_576.0),
    ("mb", 1_048_576.0),
    ("mbit", 131_072.0),
    ("g", 1_073_741_824.0),
    ("gb", 1_073_741_824.0),
    ("gbit", 134_217_728.0),
];

/// The highest rate in bytes per second that is read: 8 Pbit/s, which a double still holds to the bit.
const HIGHEST_RATE: f64 = 1e15;

/// The reason why a word is not a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// It is not a number, or its unit is not one of this quantity.
    Malformed,
    /// It is a number that the quantity cannot have.
    OutOfRange,
    /// It is a time other than 0 without a unit.
    NoUnit,
}

/// Reads a rate in whole bytes per second, rounded down as by tc.
pub(crate) fn rate(word: &str) -> Result<u64, Wrong> {
    let bytes = in_units(word, RATES)? / 8.0;
    match bytes <= HIGHEST_RATE {
        true => truncated(bytes),
        false => Err(Wrong::OutOfRange),
    }
}

/// Reads a size in whole bytes, or a number of packets, rounded down as by tc.
pub(crate) fn size(word: &str) -> Result<u32, Wrong> {
    let size = truncated(in_units(word, SIZES)?)?;
    u32::try_from(size).map_err(|_| Wrong::OutOfRange)
}

/// Reads a time. Unlike tc, it needs a unit unless it is 0, and the units of [`Nanos`] are read.
pub(crate) fn time(word: &str) -> Result<Nanos, Wrong> {
    // A plain decimal is read exactly, where tc multiplies in floating point.
    if let Ok(time) = word.parse() {
        return Ok(time);
    }
    let (number, unit) = leading(word).ok_or(Wrong::Malformed)?;
    match unit.chars().next() {
        None if number == 0.0 => Ok(Nanos::ZERO),
        None => Err(Wrong::NoUnit),
        Some(first) if first.is_ascii_alphabetic() => {
            let one: Result<Nanos, _> = format!("1{unit}").parse();
            let Nanos(multiple) = one.map_err(|_| Wrong::Malformed)?;
            truncated((number * multiple as f64).round()).map(Nanos)
        }
        Some(_) => Err(Wrong::Malformed),
    }
}

/// Reads a percentage; the percent sign is optional, as in tc.
pub(crate) fn percent(word: &str) -> Result<f64, Wrong> {
    match leading(word) {
        Some((percent, "" | "%")) if (0.0..=100.0).contains(&percent) => Ok(percent),
        Some((_, "" | "%")) => Err(Wrong::OutOfRange),
        _ => Err(Wrong::Malformed),
    }
}

/// Reads an integer as strtol does with this base: base 0 takes `0x10` as hexadecimal and `010` as octal.
pub(crate) fn integer(word: &str, base: u32) -> Option<i128> {
    let unsigned = word.strip_prefix(['-', '+']).unwrap_or(word);
    let hexadecimal = unsigned
        .strip_prefix("0x")
        .or_else(|| unsigned.strip_prefix("0X"))
        .filter(|_| matches!(base, 0 | 16));
    let (digits, radix) = match (hexadecimal, base) {
        (Some(digits), _) => (digits, 16),
        (None, 0) if unsigned.starts_with('0') => (unsigned, 8),
        (None, 0) => (unsigned, 10),
        (None, base) => (unsigned, base),
    };
    // A second sign would be read as part of the number.
    if digits.starts_with(['-', '+']) {
        return None;
    }
    let value = i128::from(u64::from_str_radix(digits, radix).ok()?);
    Some(if word.starts_with('-') { -value } else { value })
}

/// Returns the number with which a word begins, as strtod reads it, and the rest: `1e-3ms`, `.5ms`, `0x10ms`. It may be
/// infinite. The names of infinity and of no number are not numbers here.
pub(crate) fn leading(word: &str) -> Option<(f64, &str)> {
    let (sign, unsigned) = match word.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, word.strip_prefix('+').unwrap_or(word)),
    };
    let (number, rest) = hexadecimal(unsigned).or_else(|| decimal(unsigned))?;
    Some((sign * number, rest))
}

fn decimal(text: &str) -> Option<(f64, &str)> {
    let bytes = text.as_bytes();
    let digits = mantissa(bytes, u8::is_ascii_digit)?;
    let (number, rest) = text.split_at(digits + exponent(&bytes[digits..], b'e'));
    Some((number.parse().ok()?, rest))
}

/// Reads a hexadecimal number; digits beyond the 53 bits of a double are rounded one by one.
fn hexadecimal(text: &str) -> Option<(f64, &str)> {
    let text = text
        .strip_prefix("0x")
        .or_else(|| text.strip_prefix("0X"))?;
    let bytes = text.as_bytes();
    let digits = mantissa(bytes, u8::is_ascii_hexdigit)?;
    let power = exponent(&bytes[digits..], b'p');
    let (number, rest) = text.split_at(digits + power);
    let (number, power) = number.split_at(digits);
    let digit = |value: f64, digit: char| value * 16.0 + f64::from(digit.to_digit(16).unwrap_or(0));
    let whole = number.chars().filter(|one| *one != '.').fold(0.0, digit);
    let behind_point = number.split_once('.').map_or(0, |(_, behind)| behind.len());
    let power = match power.get(1..) {
        None => 0,
        Some(power) if power.starts_with('-') => power.parse().unwrap_or(i32::MIN),
        Some(power) => power.parse().unwrap_or(i32::MAX),
    };
    let fraction = 16_f64.powi(-i32::try_from(behind_point).ok()?);
    Some((whole * fraction * 2_f64.powi(power), rest))
}

/// Returns the length of the digits with which `bytes` begin, with at most one point among them; `None` without a
/// digit.
fn mantissa(bytes: &[u8], is_digit: fn(&u8) -> bool) -> Option<usize> {
    let run = |from: usize| {
        let behind = bytes.iter().skip(from);
        behind.take_while(|byte| is_digit(byte)).count()
    };
    let whole = run(0);
    let (fraction, point) = match bytes.get(whole) {
        Some(b'.') => (run(whole + 1), 1),
        _ => (0, 0),
    };
    (whole + fraction > 0).then_some(whole + fraction + point)
}

/// Returns the length of the exponent with which `bytes` begin, or 0.
fn exponent(bytes: &[u8], letter: u8) -> usize {
    let has_letter = bytes
        .first()
        .is_some_and(|byte| byte.eq_ignore_ascii_case(&letter));
    let sign = usize::from(matches!(bytes.get(1), Some(b'+' | b'-')));
    let behind = bytes.iter().skip(1 + sign);
    match behind.take_while(|byte| byte.is_ascii_digit()).count() {
        0 => 0,
        _ if !has_letter => 0,
        digits => 1 + sign + digits,
    }
}

/// Returns the number in the base unit.
fn in_units(word: &str, units: &[(&str, f64)]) -> Result<f64, Wrong> {
    let (number, unit) = leading(word).ok_or(Wrong::Malformed)?;
    let is_unit = |(name, _): &&(&str, f64)| name.eq_ignore_ascii_case(unit);
    let (_, multiple) = units.iter().find(is_unit).ok_or(Wrong::Malformed)?;
    Ok(number * multiple)
}

/// Returns a number without its fraction.
fn truncated(number: f64) -> Result<u64, Wrong> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "cutting off the fraction is the purpose, and the range is checked"
    )]
    let whole = number as u64;
    let is_right = (0.0..u64::MAX as f64).contains(&number);
    is_right.then_some(whole).ok_or(Wrong::OutOfRange)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_number_is_read_as_by_strtod() {
        for (word, number, rest) in [
            ("10ms", 10.0, "ms"),
            (".5ms", 0.5, "ms"),
            ("5.%", 5.0, "%"),
            ("1e-3s", 0.001, "s"),
            ("1E1ms", 10.0, "ms"),
            ("1e", 1.0, "e"),
            ("1e+ms", 1.0, "e+ms"),
            ("+5k", 5.0, "k"),
            ("-2.5", -2.5, ""),
            ("0x10ms", 16.0, "ms"),
            ("0xabit", 171.0, "it"),
            ("0x1p3ms", 8.0, "ms"),
            ("0x.8s", 0.5, "s"),
            ("0x1.8p-1", 0.75, ""),
            ("0x", 0.0, "x"),
            ("0xms", 0.0, "xms"),
            ("1e400s", f64::INFINITY, "s"),
            ("1,5ms", 1.0, ",5ms"),
        ] {
            assert_eq!(leading(word), Some((number, rest)), "{word}");
        }
        for word in ["", "ms", ".", "-", "+-1", "%", "e5", "inf", "nan", ".e5"] {
            assert_eq!(leading(word), None, "{word}");
        }
    }

    #[test]
    fn an_integer_is_read_as_by_strtol() {
        for (word, base, number) in [
            ("10", 0, Some(10)),
            ("010", 0, Some(8)),
            ("0x1F", 0, Some(31)),
            ("0x1F", 16, Some(31)),
            ("1F", 16, Some(31)),
            ("010", 10, Some(10)),
            ("-5", 0, Some(-5)),
            ("+5", 0, Some(5)),
            ("0", 0, Some(0)),
            ("08", 0, None),
            ("0x", 0, None),
            ("0x5", 10, None),
            ("5k", 0, None),
            ("1.5", 0, None),
            ("--5", 0, None),
            ("0x-5", 0, None),
            ("", 0, None),
            ("18446744073709551615", 0, Some(u64::MAX.into())),
            ("18446744073709551616", 0, None),
        ] {
            assert_eq!(integer(word, base), number, "{word}");
        }
    }

    #[test]
    fn quantities_have_tcs_units_and_are_cut_off_as_by_tc() {
        assert_eq!(rate("1e6"), Ok(125_000));
        assert_eq!(rate("1.5MBIT"), Ok(187_500));
        assert_eq!(rate("0x10mbit"), Ok(2_000_000));
        assert_eq!(rate("7bit"), Ok(0));
        assert_eq!(rate("10mb"), Err(Wrong::Malformed));
        assert_eq!(rate("-1mbit"), Err(Wrong::OutOfRange));
        assert_eq!(rate("1e400mbit"), Err(Wrong::OutOfRange));
        assert_eq!(size("1.5k"), Ok(1_536));
        assert_eq!(size("1.9"), Ok(1));
        assert_eq!(size("1mbit"), Ok(131_072));
        assert_eq!(size("4294967296"), Err(Wrong::OutOfRange));
        assert_eq!(size("-0.5"), Err(Wrong::OutOfRange));
        assert_eq!(size("9kib"), Err(Wrong::Malformed));
        assert_eq!(time("0.1ms"), Ok(Nanos::from_micros(100)));
        assert_eq!(time(".5ms"), Ok(Nanos::from_micros(500)));
        assert_eq!(time("1e-3s"), Ok(Nanos::from_millis(1)));
        assert_eq!(time("0x10ms"), Ok(Nanos::from_millis(16)));
        assert_eq!(time("-0"), Ok(Nanos::ZERO));
        assert_eq!(time("5"), Err(Wrong::NoUnit));
        assert_eq!(time("-1ms"), Err(Wrong::OutOfRange));
        assert_eq!(time("1e400s"), Err(Wrong::OutOfRange));
        assert_eq!(time("5parsec"), Err(Wrong::Malformed));
        assert_eq!(time("1.5.5ms"), Err(Wrong::Malformed));
        assert_eq!(percent("1e-05%"), Ok(0.000_01));
        assert_eq!(percent(".5"), Ok(0.5));
        assert_eq!(percent("101%"), Err(Wrong::OutOfRange));
        assert_eq!(percent("1%%"), Err(Wrong::Malformed));
    }

    proptest! {
        #[test]
        fn no_word_makes_a_reader_panic(word in "\\PC*", near in "[-+0x.epbitkmsn%]{0,9}") {
            for word in [word, near] {
                let _ = (rate(&word), size(&word), time(&word), percent(&word));
                let _ = [0, 10, 16].map(|base| integer(&word, base));
            }
        }

        #[test]
        fn a_decimal_number_has_the_value_that_rust_gives_it(number in any::<f64>()) {
            let text = format!("{number:e}ms");
            let read = leading(&text);
            prop_assert_eq!(read, number.is_finite().then_some((number, "ms")));
        }
    }
}
