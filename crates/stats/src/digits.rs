//! The number of digits that a value deserves.

/// Returns the number of decimal places that show an uncertainty with two significant digits (JCGM 100:2008, "Guide to
/// the expression of uncertainty in measurement", 7.2.6). A negative number ends before the decimal point: -1 means
/// tens. `None` for an uncertainty of 0 and for one that is not finite, which does not determine digits.
pub fn decimals(uncertainty: f64) -> Option<i32> {
    significant(uncertainty, 2)
}

/// Returns the number of decimal places that show `value` with this many significant digits; `None` for 0 and for a
/// value that is not finite.
pub fn significant(value: f64, digits: i32) -> Option<i32> {
    /// The largest number of places; a smaller value is 0 to any reader.
    const MAX_PLACES: i32 = 9;
    let size = value.abs();
    if !size.is_finite() || size == 0.0 {
        return None;
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the logarithm of a finite number lies between -324 and 309"
    )]
    let first = size.log10().floor() as i32;
    let places = digits - 1 - first;
    // 0.996 rounds to 1.0, which has one place less.
    let carried = (size * 10_f64.powi(places)).round() >= 10_f64.powi(digits);
    Some((places - i32::from(carried)).min(MAX_PLACES))
}

/// Writes `value` with this many decimal places, rounded to tens, hundreds and so on if `decimals` is negative. A zero
/// never has a minus sign.
pub fn fixed(value: f64, decimals: i32) -> String {
    let text = match usize::try_from(decimals) {
        Ok(places) => format!("{value:.places$}"),
        Err(_) => {
            let step = 10_f64.powi(-decimals);
            format!("{:.0}", (value / step).round() * step)
        }
    };
    match text.strip_prefix('-') {
        Some(size) if size.chars().all(|c| matches!(c, '0' | '.')) => size.to_owned(),
        _ => text,
    }
}

/// Writes `value` like [`fixed`], with a plus sign unless it is negative.
pub fn signed(value: f64, decimals: i32) -> String {
    let text = fixed(value, decimals);
    if text.starts_with('-') {
        text
    } else {
        format!("+{text}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_uncertainty_has_two_digits_and_its_value_as_many_decimal_places() {
        for (value, uncertainty, shown) in [
            (3.14259, 0.1061, ["3.14", "0.11"]),
            (13_575.131, 412.0, ["13580", "410"]),
            (106.2, 1.234, ["106.2", "1.2"]),
            (7.519, 0.485, ["7.52", "0.48"]),
            (0.0451, 0.000_996, ["0.0451", "0.0010"]),
            (99.7, 9.96, ["100", "10"]),
        ] {
            let places = decimals(uncertainty).unwrap();
            assert_eq!([value, uncertainty].map(|it| fixed(it, places)), shown);
        }
        assert_eq!(decimals(0.0), None);
        assert_eq!(decimals(f64::INFINITY), None);
        assert_eq!(decimals(1e-30), Some(9));
    }

    #[test]
    fn a_rounded_zero_has_no_minus() {
        assert_eq!(fixed(-0.0001, 2), "0.00");
        assert_eq!(fixed(-4.0, -1), "0");
        assert_eq!(fixed(-0.006, 2), "-0.01");
        let changes = [-0.04, 0.04, -2.5, 2.5].map(|change| signed(change, 1));
        assert_eq!(changes, ["+0.0", "+0.0", "-2.5", "+2.5"]);
    }
}
