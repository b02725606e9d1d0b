//! Mann and Whitney's U: the number of pairs of two samples in which one value is the greater, if there is no
//! difference.

use statrs::distribution::{ContinuousCDF as _, Normal};

/// The largest size of each sample for which arrangements are counted: C(100, 50) arrangements fit into 128 bits.
const MAX_COUNTED: usize = 50;
/// Two-sided 5 %: one arrangement in forty may lie beyond each end.
pub(crate) const AT_95: u32 = 40;

/// Returns the rank, from the least and from 1, of the difference that is the lower end of the interval of the shift,
/// among the differences of all pairs between samples of `m` and `n` values. One arrangement in `beyond` may lie beyond
/// each end, and the upper end is as far from the greatest difference. `None` if the samples are too small: for 95 %, 3
/// and 4, or 2 and 7.
///
/// It is the greatest k with P(U < k) <= 1 / `beyond` (E. L. Lehmann, "Nonparametrics", §2.3; R's `qwilcox`, scipy's
/// `mannwhitneyu`), by counting arrangements up to 50 values in each sample, and otherwise by the normal approximation
/// with continuity correction. With ties, the interval including its ends covers more, never less.
pub(crate) fn interval_rank(m: usize, n: usize, beyond: u32) -> Option<usize> {
    let rank = if m.max(n) <= MAX_COUNTED {
        counted_rank(m, n, beyond)
    } else {
        approximate_rank(m, n, beyond)
    };
    (rank > 0).then_some(rank)
}

fn counted_rank(m: usize, n: usize, beyond: u32) -> usize {
    let counts = arrangements(m, n);
    let total: u128 = counts.iter().sum();
    let mut below = 0;
    let tail = counts.iter().take_while(|count| {
        below += **count;
        below <= total / u128::from(beyond)
    });
    tail.count()
}

/// Returns the numbers of arrangements of `m` and `n` values in which U is 0, 1, ... m n. They are the coefficients of
/// the Gaussian binomial, whose factors (1 - q^(n+i)) / (1 - q^i) are multiplied in one after another.
fn arrangements(m: usize, n: usize) -> Vec<u128> {
    let mut counts = vec![0_u128; m * n + 1];
    counts[0] = 1;
    for i in 1..=m {
        for u in i..counts.len() {
            counts[u] += counts[u - i];
        }
        for u in (n + i..counts.len()).rev() {
            counts[u] -= counts[u - n - i];
        }
    }
    counts
}

fn approximate_rank(m: usize, n: usize, beyond: u32) -> usize {
    let (m, n) = (m as f64, n as f64);
    let deviation = (m * n * (m + n + 1.0) / 12.0).sqrt();
    let quantile = Normal::standard().inverse_cdf(1.0 / f64::from(beyond));
    let rank = (m * n / 2.0 + 0.5 + quantile * deviation).floor();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number from 0 to m n / 2; one sample may be of a single value"
    )]
    let rank = rank.max(0.0) as usize;
    rank
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrangements_are_counted() {
        // For two and two values, the arrangements AABB, ABAB, ABBA, BAAB, BABA and BBAA have U = 0, 1, 2, 2, 3, 4.
        assert_eq!(arrangements(2, 2), [1, 1, 2, 1, 1]);
        let whole: u128 = arrangements(50, 50).iter().sum();
        assert_eq!(whole, 100_891_344_545_564_193_334_812_497_256);
        assert_eq!(arrangements(3, 7), arrangements(7, 3));
    }

    #[test]
    fn small_samples_have_no_interval() {
        assert_eq!(interval_rank(3, 3, AT_95), None);
        assert_eq!(interval_rank(3, 4, AT_95), None);
        assert_eq!(interval_rank(2, 7, AT_95), None);
        assert_eq!(interval_rank(4, 4, AT_95), Some(1));
        assert_eq!(interval_rank(1, 1000, AT_95), None);
        assert_eq!(interval_rank(0, 60, AT_95), None);
    }

    #[test]
    fn counting_and_approximation_agree() {
        for (m, n) in [(50, 50), (40, 50), (20, 50)] {
            let (counted, approximate) = (counted_rank(m, n, AT_95), approximate_rank(m, n, AT_95));
            assert!(counted.abs_diff(approximate) <= 2, "{m} {n}");
        }
    }
}
