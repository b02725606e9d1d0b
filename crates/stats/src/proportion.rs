//! A share of a count, and its uncertainty.

use statrs::distribution::{Binomial, DiscreteCDF as _};

/// The two-sided 95 % quantile of the normal distribution.
pub(crate) const Z: f64 = 1.959_964;

/// Returns `part` of `whole` in percent; `None` if `whole` is 0.
pub fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

/// Returns the 95 % interval of the probability of success if `part` of `whole` independent draws succeeded, from 0 to
/// 1; `None` if `whole` is 0 (E. B. Wilson, "Probable inference, the law of succession, and statistical inference",
/// 1927).
pub fn wilson(part: u64, whole: u64) -> Option<[f64; 2]> {
    wilson_of(part, whole, 1.0, Z)
}

/// Returns the same interval with another quantile, for draws whose count has `inflation` times the variance of
/// independent ones.
pub(crate) fn wilson_of(part: u64, whole: u64, inflation: f64, quantile: f64) -> Option<[f64; 2]> {
    if whole == 0 {
        return None;
    }
    let n = whole as f64 / inflation;
    let squared = quantile * quantile;
    let share = (part as f64 / whole as f64).min(1.0);
    let scale = 1.0 + squared / n;
    let middle = (share + squared / (2.0 * n)) / scale;
    let half = quantile / scale * (share * (1.0 - share) / n + squared / (4.0 * n * n)).sqrt();
    // Rounding would move the end of the interval for no success and for only successes away from its exact value.
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

/// Returns the probability that fewer than `count` of `whole` independent draws succeed, each with probability `share`,
/// which is above 0 and below 1: the binomial distribution.
pub fn fewer_than(count: u64, whole: u64, share: f64) -> f64 {
    let below = count.checked_sub(1);
    let at_most = |most| Binomial::new(share, whole).map_or(0.0, |draws| draws.cdf(most));
    below.map_or(0.0, at_most)
}

/// Returns the greatest count that `whole` independent draws miss with a probability of at most `alarm`, if each
/// succeeds with probability `share`. A smaller count is not due to chance.
pub fn least_by_chance(whole: u64, share: f64, alarm: f64) -> u64 {
    let counts = (0..=whole).rev();
    // A probability equal to the limit is accepted.
    let mut likely = counts.filter(|count| fewer_than(*count, whole, share) <= alarm + 1e-12);
    likely.next().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_count_is_reached_by_chance_in_nineteen_cases_of_twenty() {
        // By the binomial distribution, P(3 or fewer of 5 contain it) is 2.3 %, and P(4 or fewer) 22.6 %.
        for (runs, least) in [(1, 1), (2, 1), (3, 2), (5, 4), (20, 17), (300, 279)] {
            assert_eq!(least_by_chance(runs, 0.95, 0.05), least, "{runs}");
        }
    }

    #[test]
    fn the_least_count_falls_with_the_number_of_cells() {
        for (cells, least) in [(3, 15), (4, 14), (29, 14), (30, 13), (350, 13)] {
            let found = least_by_chance(20, 0.95, 1e-3 / f64::from(cells));
            assert_eq!(found, least, "{cells}: {:e}", fewer_than(least, 20, 0.95));
        }
    }

    #[test]
    fn the_interval_is_wilsons() {
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
    fn an_empty_count_has_no_share() {
        assert_eq!((percent(0, 0), wilson(0, 0)), (None, None));
    }
}
