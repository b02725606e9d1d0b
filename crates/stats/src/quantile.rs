//! A quantile of values that were taken one after another, so that neighbours are correlated, and the number of
//! independent samples to which they are equivalent.
//!
//! Each value either lies below the quantile or does not. The mean of these indicators has an interval by batch means,
//! from blocks of consecutive values; the values at the ranks where that interval ends are the ends of the quantile's
//! interval (R. S. Woodruff, "Confidence intervals for medians and other position measures", 1952). For independent
//! values, these are the ranks of [`crate::order_statistics::quantile_ranks`].

use super::autocorrelation::SeriesMean;
use super::order_statistics::{self, at_or_after, fewest, sorted};

/// The largest number of blocks. The cost grows with the square of the length, so neighbouring values are combined
/// beyond it.
const MAX_BLOCKS: usize = 10_000;

/// A quantile of a series, and how far it can be trusted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantile {
    /// The quantile. The median is the middle value or lies between the two middle values; any other quantile is an
    /// observed value.
    pub value: f64,
    /// The number of independent samples to which the series is equivalent for this quantile; at most its length.
    pub effective_samples: f64,
    /// Its 95 % interval; `None` if the series is equivalent to fewer than [`fewest`] samples.
    pub interval: Option<[f64; 2]>,
}

impl Quantile {
    /// Computes the quantile at `share` (0 to 1) of `values`, in the order in which they were taken; `None` for no
    /// values.
    pub fn of(values: &[f64], share: f64) -> Option<Self> {
        Self::of_sorted(values, &sorted(values), share)
    }

    /// Computes the same if the caller already has the values `sorted`.
    pub fn of_sorted(values: &[f64], sorted: &[f64], share: f64) -> Option<Self> {
        let is_median = share == 0.5;
        let value = if is_median {
            order_statistics::quantile(sorted, share)?
        } else {
            order_statistics::percentile(sorted, share)?
        };
        let count = values.len() as f64;
        // A value equal to the median counts half as below it; one equal to a percentile is not beyond it.
        let equal = if is_median { 0.5 } else { 1.0 };
        let below = |at: &f64| match at.total_cmp(&value) {
            std::cmp::Ordering::Less => 1.0,
            std::cmp::Ordering::Equal => equal,
            std::cmp::Ordering::Greater => 0.0,
        };
        let together = values.len().div_ceil(MAX_BLOCKS).max(1);
        let blocks = values.chunks(together);
        let shares: Vec<f64> = blocks
            .map(|block| block.iter().map(below).sum::<f64>() / block.len() as f64)
            .collect();
        let series = SeriesMean::of(&shares);
        let effective_samples = series.map_or(count, |series| series.effective_samples);
        let interval = series
            .filter(|_| effective_samples >= fewest(share))
            .and_then(|series| {
                let reach = (series.interval[1] - series.interval[0]) / 2.0 * count;
                let low = (count * share - reach).round().max(1.0);
                let high = ((count * share + reach).round() + 1.0).min(count);
                Some([at_or_after(sorted, low)?, at_or_after(sorted, high)?])
            });
        Some(Self {
            value,
            effective_samples,
            interval,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autocorrelation::tests::series;

    /// The factor of seeds, because consecutive seeds give series that are too similar.
    const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

    /// Returns the percentage of autoregressive series of `count` values whose interval contains the true quantile at
    /// `share`, which is `normal` for the standard normal distribution.
    fn coverage(seeds: u64, count: usize, correlation: f64, [share, normal]: [f64; 2]) -> f64 {
        let truth = normal / (1.0 - correlation * correlation).sqrt();
        let holds = |seed: &u64| {
            let values = series(SEED.wrapping_mul(*seed), correlation, count);
            let [low, high] = Quantile::of(&values, share)
                .unwrap()
                .interval
                .unwrap_or([f64::NEG_INFINITY, f64::INFINITY]);
            low <= truth && truth <= high
        };
        100.0 * (0..seeds).filter(holds).count() as f64 / seeds as f64
    }

    #[test]
    fn the_interval_contains_the_median_with_and_without_correlation() {
        for correlation in [0.0, 0.5, 0.8, 0.9] {
            let percent = coverage(2000, 300, correlation, [0.5, 0.0]);
            assert!(
                (92.0..=98.0).contains(&percent),
                "{correlation}: {percent} %"
            );
        }
    }

    #[test]
    fn the_interval_contains_percentiles() {
        for (count, correlation, quantile) in [
            (300, 0.0, [0.9, 1.281_552]),
            (300, 0.5, [0.9, 1.281_552]),
            (1000, 0.8, [0.9, 1.281_552]),
            (1000, 0.0, [0.99, 2.326_348]),
            (1000, 0.5, [0.99, 2.326_348]),
        ] {
            let percent = coverage(500, count, correlation, quantile);
            let name = quantile[0];
            assert!(
                (91.0..=99.5).contains(&percent),
                "{name} of {count}, {correlation}: {percent} %"
            );
        }
    }

    #[test]
    fn a_percentile_with_fewer_than_five_values_beyond_it_has_no_interval() {
        for (share, least) in [(0.5, 10.0), (0.9, 50.0), (0.99, 500.0)] {
            assert_eq!(fewest(share), least);
        }
        let interval = |count| Quantile::of(&series(1, 0.0, count), 0.99).unwrap().interval;
        assert_eq!(interval(499), None);
        assert!(interval(2000).is_some());
    }

    #[test]
    fn ranks_alone_contain_the_median_of_correlated_values_too_seldom() {
        let holds = |seed: &u64| {
            let values = sorted(&series(*seed, 0.8, 300));
            let [low, high] = order_statistics::median_interval(&values).unwrap();
            low <= 0.0 && 0.0 <= high
        };
        assert!((0..500).filter(holds).count() < 350);
    }

    #[test]
    fn a_series_with_too_few_effective_samples_has_no_interval() {
        let rising: Vec<f64> = (0..40).map(f64::from).collect();
        let median = Quantile::of(&rising, 0.5).unwrap();
        assert!(median.effective_samples < fewest(0.5) && median.interval.is_none());
        let few = Quantile::of(&series(1, 0.0, 9), 0.5).unwrap();
        assert!(few.effective_samples <= 9.0 && few.interval.is_none());
        assert_eq!(Quantile::of(&[], 0.5), None);
    }

    #[test]
    fn a_constant_series_has_an_exact_median_and_long_series_are_fast() {
        let median = Quantile::of(&[5.0; 20], 0.5).unwrap();
        assert_eq!(median.interval, Some([5.0, 5.0]));
        let many: Vec<f64> = (0..200_000_u32)
            .map(|i| f64::from(i * 7919 % 1000))
            .collect();
        let [low, high] = Quantile::of(&many, 0.5).unwrap().interval.unwrap();
        assert!(low <= 499.5 && 499.5 <= high && high - low < 20.0);
    }
}
