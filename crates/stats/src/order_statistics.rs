//! Order statistics: conclusions from the ranks of values, whatever their distribution.

/// The number of independent values that a quantile needs on either side. With fewer, its interval would end at the
/// least or the greatest value, and the quantile would be only another name for that extreme.
pub const MIN_BEYOND: f64 = 5.0;

/// Returns the least number of independent values that a quantile at `share` (0 to 1) needs: 10 for the median, 50 for
/// the 90th percentile, 500 for the 99th.
pub fn fewest(share: f64) -> f64 {
    (MIN_BEYOND / share.min(1.0 - share)).round()
}

/// Returns `values` from the least to the greatest.
pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Returns the quantile of `sorted` at `share` (0 to 1), interpolated linearly between the two values next to rank 1 +
/// share (n - 1); `None` for no values.
///
/// It is type 7 of R. J. Hyndman and Y. Fan ("Sample quantiles in statistical packages", 1996), the default of R and
/// NumPy, and the definition for figures of a few repeats. For thousands of probes, [`percentile`] returns an observed
/// value.
pub fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = share.clamp(0.0, 1.0) * last as f64;
    let below = (0..last).take_while(|at| (*at + 1) as f64 <= place).count();
    let above = (below + 1).min(last);
    Some(sorted[below] + (place - below as f64) * (sorted[above] - sorted[below]))
}

/// Returns the least value of `sorted` that at least a fraction `share` (0 to 1) of them does not exceed; `None` for no
/// values.
pub fn percentile(sorted: &[f64], share: f64) -> Option<f64> {
    let rank = share * sorted.len() as f64;
    at_or_after(sorted, rank).or(sorted.last().copied())
}

/// Returns the 95 % interval of the population's median, with values of `sorted` as ends.
pub fn median_interval(sorted: &[f64]) -> Option<[f64; 2]> {
    let [low, high] = quantile_ranks(sorted.len() as u64, 0.5)?;
    Some([at_or_after(sorted, low)?, at_or_after(sorted, high)?])
}

/// Returns the ranks, from 1, of `count` values between which the population's quantile at `share` (0 to 1) lies at 95
/// %. `None` for fewer values than [`fewest`] returns.
///
/// They follow from the binomial distribution of ranks in its normal approximation (W. J. Conover, "Practical
/// Nonparametric Statistics", §3.2). The values must be independent; for correlated neighbours, see
/// [`super::quantile`].
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

/// Returns the first value of `sorted` whose rank, from 1, is at least `rank`.
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
    fn a_percentile_is_an_observed_value() {
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
    fn the_ranks_of_the_median_follow_the_binomial_distribution() {
        // Exactly, the ranks 40 and 61 of 100 values contain the median with 96.5 %; of ten values, the first and the
        // ninth with 98.8 %.
        assert_eq!(median_interval(&numbers(100)), Some([40.0, 61.0]));
        assert_eq!(median_interval(&numbers(10)), Some([1.0, 10.0]));
        assert_eq!(median_interval(&numbers(9)), None);
    }
}
