//! The median of values that were taken one after another, whose neighbours are alike, and how many strangers they are worth.
//!
//! Each value says one thing of the median: below it or not. The mean of these yes and no has an interval by batch means, from
//! blocks of consecutive values; where the distribution passes through that interval's ends lie those of the median (R. S. Woodruff,
//! "Confidence intervals for medians and other position measures", 1952). Of strangers these are the ranks of
//! [`crate::order_statistics::median_ranks`].

use super::autocorrelation::SeriesMean;
use super::order_statistics::{at_or_after, quantile, sorted};

/// Values that are worth fewer strangers have no interval.
pub const FEWEST: f64 = 10.0;
/// The cost grows with the square of the length: of more values, neighbours are taken together.
const MOST: usize = 10_000;

/// The median of a series, and how far it can be trusted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Median {
    /// The middle value, or between the two.
    pub value: f64,
    /// How many strangers the series is worth, as far as the median goes; no more than its length.
    pub worth: f64,
    /// Its 95 % interval; none of a series that is worth fewer than [`FEWEST`].
    pub interval: Option<[f64; 2]>,
}

impl Median {
    /// Of `values`, in the order in which they were taken; nothing of none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values);
        let value = quantile(&sorted, 0.5)?;
        let count = values.len() as f64;
        let below = |at: &f64| match at.total_cmp(&value) {
            std::cmp::Ordering::Less => 1.0,
            std::cmp::Ordering::Equal => 0.5,
            std::cmp::Ordering::Greater => 0.0,
        };
        let together = values.len().div_ceil(MOST).max(1);
        let blocks = values.chunks(together);
        let shares: Vec<f64> = blocks
            .map(|block| block.iter().map(below).sum::<f64>() / block.len() as f64)
            .collect();
        let series = SeriesMean::of(&shares);
        let worth = series.map_or(count, |series| series.worth);
        let interval = series.filter(|_| worth >= FEWEST).and_then(|series| {
            let reach = (series.interval[1] - series.interval[0]) / 2.0 * count;
            let low = (count / 2.0 - reach).round().max(1.0);
            let high = count + 1.0 - low;
            Some([at_or_after(&sorted, low)?, at_or_after(&sorted, high)?])
        });
        Some(Self {
            value,
            worth,
            interval,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autocorrelation::tests::series;

    /// Seeds that follow one another give series that are too much alike.
    const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

    /// In how many of 2,000 autoregressive series of 300 values the interval holds the true median, in percent.
    fn coverage(correlation: f64) -> f64 {
        let holds = |seed| {
            let median = Median::of(&series(SEED.wrapping_mul(seed), correlation, 300)).unwrap();
            let [low, high] = median
                .interval
                .unwrap_or([f64::NEG_INFINITY, f64::INFINITY]);
            low <= 0.0 && 0.0 <= high
        };
        (0..2000).filter(|seed| holds(*seed)).count() as f64 / 20.0
    }

    #[test]
    fn the_interval_holds_the_median_of_strangers_and_of_neighbours() {
        for correlation in [0.0, 0.5, 0.8, 0.9] {
            let percent = coverage(correlation);
            assert!(
                (92.0..=98.0).contains(&percent),
                "{correlation}: {percent} %"
            );
        }
    }

    #[test]
    fn ranks_alone_would_hold_the_median_of_neighbours_too_seldom() {
        let holds = |seed: &u64| {
            let values = sorted(&series(*seed, 0.8, 300));
            let [low, high] = crate::order_statistics::median_interval(&values).unwrap();
            low <= 0.0 && 0.0 <= high
        };
        assert!((0..500).filter(holds).count() < 350);
    }

    #[test]
    fn a_series_that_is_worth_too_little_has_no_interval() {
        let rising: Vec<f64> = (0..40).map(f64::from).collect();
        let median = Median::of(&rising).unwrap();
        assert!(median.worth < FEWEST && median.interval.is_none());
        let few = Median::of(&series(1, 0.0, 9)).unwrap();
        assert!(few.worth <= 9.0 && few.interval.is_none());
        assert_eq!(Median::of(&[]), None);
    }

    #[test]
    fn what_never_changes_is_sure_and_many_values_take_no_longer() {
        let median = Median::of(&[5.0; 20]).unwrap();
        assert_eq!(median.interval, Some([5.0, 5.0]));
        let many: Vec<f64> = (0..200_000_u32)
            .map(|i| f64::from(i * 7919 % 1000))
            .collect();
        let [low, high] = Median::of(&many).unwrap().interval.unwrap();
        assert!(low <= 499.5 && 499.5 <= high && high - low < 20.0);
    }
}
