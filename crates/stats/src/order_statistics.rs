//! Order statistics: what the ranks of values tell, whatever their distribution.

/// A quantile needs this many independent values on either side. With fewer, its interval would end at the least or the greatest
/// value, and the quantile is that extreme by another name.
pub const FEWEST_BEYOND: f64 = 5.0;

/// The least number of independent values that a quantile at `share` (0 to 1) needs: 10 for the median, 50 for the 90th
/// percentile, 500 for the 99th.
pub fn fewest(share: f64) -> f64 {
    (FEWEST_BEYOND / share.min(1.0 - share)).round()
}

/// `values` from the least to the greatest.
pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The quantile of `sorted` at `share` (0 to 1), on the line between the two values next to rank 1 + share (n - 1); nothing
/// of no values.
///
/// Type 7 of R. J. Hyndman and Y. Fan ("Sample quantiles in statistical packages", 1996), the default of R and NumPy. It is
/// the definition for figures of a few repeats; [`percentile`], for thousands of probes, gives a value that was seen.
pub fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = share.clamp(0.0, 1.0) * last as f64;
    let below = (0..last).take_while(|at| (*at + 1) as f64 <= place).count();
    let above = (below + 1).min(last);
    Some(sorted[below] + (place - below as f64) * (sorted[above] - sorted[below]))
}

/// The least of `sorted` that a fraction `share` (0 to 1) of them is not above; nothing of no values.
pub fn percentile(sorted: &[f64], share: f64) -> Option<f64> {
    let rank = share * sorted.len() as f64;
    at_or_after(sorted, rank).or(sorted.last().copied())
}

/// Between which of `sorted` lies, at 95 %, the median of what they were drawn from.
pub fn median_interval(sorted: &[f64]) -> Option<[f64; 2]> {
    let [low, high] = quantile_ranks(sorted.len() as u64, 0.5)?;
    Some([at_or_after(sorted, low)?, at_or_after(sorted, high)?])
}

/// The ranks, from 1, of `count` values between which, at 95 %, lies the quantile at `share` (0 to 1) of what they were drawn from.
///
/// By the binomial distribution of ranks in its normal approximation (W. J. Conover, "Practical Nonparametric
/// Statistics", §3.2). Nothing of fewer values than [`fewest`] says. The values are independent; for
/// neighbours, which are alike, see [`super::quantile`].
pub fn quantile_ranks(count: u64, share: f64) -> Option<[f64; 2]> {
    const Z: f64 = 1.96;
    let count = count as f64;
    if count < fewest(share) {
        return None;
    }
    let reach = Z * (count * share * (1.0 - share)).sqrt();
    let low = (count * share - reach).floor().max(1.0);
    let high = (1.0 + count * share + reach).ceil().min(count);
    Some([low, high])
}

/// The first of `sorted` whose rank, from 1, is not below `rank`.
pub(crate) fn at_or_after(sorted: &[f64], rank: f64) -> Option<f64> {
    let mut ranked = sorted.iter().zip(1_u32..);
    ranked
        .find(|(_, at)| f64::from(*at) >= rank)
        .map(|(value, _)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: u32) -> Vec<f64> {
        (1..=count).map(f64::from).collect()
    }

    #[test]
    fn a_percentile_is_a_value_that_was_seen() {
        let hundred = numbers(100);
        assert_eq!(percentile(&hundred, 0.9), Some(90.0));
        assert_eq!(percentile(&hundred, 0.99), Some(99.0));
        assert_eq!(percentile(&[7.0], 0.99), Some(7.0));
        assert_eq!(percentile(&[], 0.5), None);
    }

    #[test]
    fn a_quantile_lies_between_two_values() {
        let four = [1.0, 2.0, 4.0, 8.0];
        assert_eq!(quantile(&four, 0.5), Some(3.0));
        assert_eq!(quantile(&four, 0.25), Some(1.75));
        assert_eq!(quantile(&four, 1.0), Some(8.0));
        assert_eq!(quantile(&[7.0], 0.9), Some(7.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn the_median_s_ranks_are_those_of_the_binomial_distribution() {
        // Exact: of 100 values the ranks 40 and 61 hold the median with 96.5 %; of ten the first and the ninth with 98.8 %.
        assert_eq!(median_interval(&numbers(100)), Some([40.0, 61.0]));
        assert_eq!(median_interval(&numbers(10)), Some([1.0, 10.0]));
        assert_eq!(median_interval(&numbers(9)), None);
    }
}
