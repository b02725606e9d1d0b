//! A share of a count, and how sure it is.

/// The two-sided 95 % quantile of the normal distribution.
const Z: f64 = 1.959_964;

/// `part` of `whole` in percent; absent of nothing.
pub fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

/// The 95 % interval of the share that `part` of `whole` independent draws were found to be, from 0 to 1; absent of nothing
/// (E. B. Wilson, "Probable inference, the law of succession, and statistical inference", 1927).
pub fn wilson(part: u64, whole: u64) -> Option<[f64; 2]> {
    if whole == 0 {
        return None;
    }
    let n = whole as f64;
    let share = (part as f64 / n).min(1.0);
    let scale = 1.0 + Z * Z / n;
    let middle = (share + Z * Z / (2.0 * n)) / scale;
    let half = Z / scale * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
    // The ends of none and of all are exact, which rounding would make them miss.
    let low = if part == 0 {
        0.0
    } else {
        (middle - half).max(0.0)
    };
    let high = if part >= whole {
        1.0
    } else {
        (middle + half).min(1.0)
    };
    Some([low, high])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_wilson_s() {
        for (part, whole, expected) in [
            (0, 10, [0.0, 0.2775]),
            (1, 10, [0.0179, 0.4042]),
            (81, 263, [0.2553, 0.3662]),
            (10, 10, [0.7225, 1.0]),
        ] {
            let interval = wilson(part, whole).unwrap();
            for (found, expected) in interval.into_iter().zip(expected) {
                assert!((found - expected).abs() < 1e-4, "{interval:?}");
            }
        }
    }

    #[test]
    fn nothing_has_no_share() {
        assert_eq!((percent(0, 0), wilson(0, 0)), (None, None));
    }
}
