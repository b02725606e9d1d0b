//! Intervals of what is seen in a sample; pure.

use stats::{autocorrelation, order_statistics, t_interval};

/// Sorted values and what they say.
#[derive(Clone, Debug)]
pub(crate) struct Distribution {
    sorted: Vec<f64>,
}

impl Distribution {
    /// Of `values`; nothing when there are none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        (!sorted.is_empty()).then_some(Self { sorted })
    }

    /// The value that a share `q` (0 to 1) of all is not above (nearest rank).
    pub(crate) fn quantile(&self, q: f64) -> f64 {
        order_statistics::percentile(&self.sorted, q).unwrap_or(self.sorted[0])
    }

    /// The middle one; of an even number, between the two in the middle.
    pub(crate) fn median(&self) -> f64 {
        let n = self.sorted.len();
        f64::midpoint(self.sorted[(n - 1) / 2], self.sorted[n / 2])
    }

    /// 95 % interval of the median by order statistics; all that was seen where there are too few.
    pub(crate) fn median_interval(&self) -> [f64; 2] {
        order_statistics::median_interval(&self.sorted).unwrap_or(self.range())
    }

    fn range(&self) -> [f64; 2] {
        [self.sorted[0], self.sorted[self.sorted.len() - 1]]
    }
}

/// The mean of `values`, in the order in which they were taken, and its 95 % interval; nothing of fewer than four, or where
/// neighbours hang together all the way.
pub(crate) fn mean_with_interval(values: &[f64]) -> Option<(f64, [f64; 2])> {
    /// The cost grows with the square of the number of values; means of neighbours say the same.
    const MOST: usize = 10_000;
    let together = values.len().div_ceil(MOST).max(1);
    let means: Vec<f64> = values
        .chunks(together)
        .filter_map(t_interval::mean)
        .collect();
    let (_, low, high) = autocorrelation::mean_with_interval(&means)?;
    let mean = t_interval::mean(values)?;
    Some((mean, [mean.min(low), mean.max(high)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_seen() {
        let d = Distribution::of((1..=100).map(f64::from)).unwrap();
        assert_eq!(
            (d.quantile(0.0), d.quantile(0.9), d.quantile(1.0)),
            (1.0, 90.0, 100.0)
        );
        assert!((d.median() - 50.5).abs() < 1e-12);
        assert!(Distribution::of([]).is_none());
    }

    #[test]
    fn the_interval_of_a_median_has_the_ranks_of_the_binomial_distribution() {
        // Of 100, the 40th and the 61st value (Conover, Practical Nonparametric Statistics, section 3.2).
        let d = Distribution::of((1..=100).map(f64::from)).unwrap();
        assert_eq!(d.median_interval(), [40.0, 61.0]);
        let one = Distribution::of([7.0]).unwrap();
        assert_eq!(one.median_interval(), [7.0; 2]);
    }

    #[test]
    fn the_interval_of_a_mean_holds_it_however_many_values_there_are() {
        let values: Vec<f64> = (0..50_000u32).map(|i| f64::from(i * 7919 % 1000)).collect();
        let (mean, [low, high]) = mean_with_interval(&values).unwrap();
        assert!((mean - 499.5).abs() < 1e-6 && low < mean && mean < high);
        assert!(mean_with_interval(&values[..3]).is_none());
    }
}
