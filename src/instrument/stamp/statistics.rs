//! Intervals of what is seen in a sample; pure.

use crate::analysis::{correlated, student};

/// The standard normal distribution's 97.5 % quantile: 2.5 % lie beyond it at either end.
const Z: f64 = 1.959_964;

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
        self.ranked((q * self.sorted.len() as f64).ceil())
    }

    /// The middle one; of an even number, between the two in the middle.
    pub(crate) fn median(&self) -> f64 {
        let n = self.sorted.len();
        f64::midpoint(self.sorted[(n - 1) / 2], self.sorted[n / 2])
    }

    /// 95 % interval of the median by order statistics: the binomial distribution's, in its normal approximation; all
    /// that was seen where there are too few.
    pub(crate) fn median_interval(&self) -> [f64; 2] {
        let n = self.sorted.len() as f64;
        let half = Z * n.sqrt() / 2.0;
        [(n / 2.0 - half).floor(), (n / 2.0 + half + 1.0).ceil()].map(|rank| self.ranked(rank))
    }

    /// The value of this rank, from 1 for the least; of the nearest rank that there is.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "saturates, and is then clamped"
    )]
    fn ranked(&self, rank: f64) -> f64 {
        self.sorted[(rank as usize).clamp(1, self.sorted.len()) - 1]
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
        .map(|chunk| chunk.iter().sum::<f64>() / chunk.len() as f64)
        .collect();
    let (_, low, high) = correlated::mean_with_interval(&means)?;
    let mean = student::mean(values)?;
    Some((mean, [mean.min(low), mean.max(high)]))
}

/// Wilson's 95 % interval of a probability of which `hits` of `tries` were seen, in percent; 0 to 100 without a try.
pub(crate) fn wilson_percent(hits: u64, tries: u64) -> [f64; 2] {
    if tries == 0 {
        return [0.0, 100.0];
    }
    let (n, share) = (tries as f64, hits as f64 / tries as f64);
    let centre = share + Z * Z / (2.0 * n);
    let half = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
    let scale = 100.0 / (1.0 + Z * Z / n);
    [
        ((centre - half) * scale).max(0.0),
        ((centre + half) * scale).min(100.0),
    ]
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

    #[test]
    fn wilson_s_interval_is_the_published_one() {
        // Newcombe 1998, table I: 81 of 263 gives 0.2553 to 0.3662, 0 of 20 gives 0 to 0.1611.
        let [low, high] = wilson_percent(81, 263);
        assert!((low - 25.53).abs() < 0.01 && (high - 36.62).abs() < 0.01);
        let [low, high] = wilson_percent(0, 20);
        assert!(low == 0.0 && (high - 16.11).abs() < 0.01);
    }
}
