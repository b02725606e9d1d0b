//! Order statistics of all pairs of two samples, without storing the pairs.

/// A function of a pair, which must rise with the first value and fall with the second.
type PairFunction = fn(f64, f64) -> f64;

/// Returns the `rank`-th value, from 1 and from the least, of `of` over all pairs of a value of `upper` and one of
/// `lower`, both sorted; `rank` is at most the number of pairs.
///
/// The result is found by bisection among all numbers, in 64 steps; a walk along both samples counts the pairs up to a
/// guess. Therefore 10,000 by 10,000 values take little time and no memory.
pub(crate) fn nth(upper: &[f64], lower: &[f64], of: PairFunction, rank: usize) -> f64 {
    let (mut least, mut greatest) = (key(f64::NEG_INFINITY), key(f64::INFINITY));
    while least < greatest {
        let middle = least + (greatest - least) / 2;
        if count_up_to(upper, lower, of, value(middle)) >= rank {
            greatest = middle;
        } else {
            least = middle + 1;
        }
    }
    // The addition turns -0.0, which compares as equal to 0.0, into 0.0.
    value(least) + 0.0
}

/// Returns the number of pairs for which `of` is at most `bound`.
fn count_up_to(upper: &[f64], lower: &[f64], of: PairFunction, bound: f64) -> usize {
    let mut first = 0;
    let counts = upper.iter().map(|high| {
        while first < lower.len() && of(*high, lower[first]) > bound {
            first += 1;
        }
        lower.len() - first
    });
    counts.sum()
}

/// Returns an integer that rises with `value`, in the order of `f64::total_cmp`.
fn key(value: f64) -> u64 {
    let bits = value.to_bits();
    if value.is_sign_negative() {
        !bits
    } else {
        bits | SIGN
    }
}

/// Returns the value from which [`key`] made this integer.
fn value(key: u64) -> f64 {
    f64::from_bits(if key & SIGN == 0 { !key } else { key & !SIGN })
}

const SIGN: u64 = 1 << 63;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order_statistics;

    #[test]
    fn every_rank_equals_that_of_the_sorted_pairs() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut draw = |count| -> Vec<f64> {
            let drawn = (0..count).map(|_| f64::from(random.i32(-20..20)) / 8.0);
            order_statistics::sorted(&drawn.collect::<Vec<_>>())
        };
        let (upper, lower) = (draw(9), draw(13));
        let differences = upper.iter().flat_map(|b| lower.iter().map(move |a| b - a));
        let all = order_statistics::sorted(&differences.collect::<Vec<_>>());
        for (rank, expected) in (1..).zip(&all) {
            let found = nth(&upper, &lower, |b, a| b - a, rank);
            assert!((found - expected).abs() < f64::MIN_POSITIVE, "{rank}");
        }
    }
}
