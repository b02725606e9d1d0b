//! Where a set of values lies.

use record::{Figure, Metric, Statistic};

/// Where a set of values lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub(crate) min: f64,
    pub(crate) mean: f64,
    pub(crate) median: f64,
    pub(crate) max: f64,
    /// ping(8)'s: the square root of the mean square less the squared mean.
    pub(crate) mdev: f64,
}

impl Spread {
    /// Of `values`; nothing when there are none.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let count = sorted.len() as f64;
        let mean = sorted.iter().sum::<f64>() / count;
        let mean_square = sorted.iter().map(|v| v * v).sum::<f64>() / count;
        let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Some(Self {
            min,
            mean,
            median: f64::midpoint(low, high),
            max,
            mdev: (mean_square - mean * mean).max(0.0).sqrt(),
        })
    }

    /// As figures of `metric`.
    pub(crate) fn figures(&self, metric: Metric) -> Vec<Figure> {
        [
            (Statistic::Min, self.min),
            (Statistic::Mean, self.mean),
            (Statistic::Median, self.median),
            (Statistic::Max, self.max),
            (Statistic::Mdev, self.mdev),
        ]
        .map(|(statistic, value)| Figure::new(metric, statistic, value))
        .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_pings_mdev_and_the_middle_of_an_even_count() {
        // From a real run of ping(8): rtt min/avg/max/mdev = 0.034/0.326/0.907/0.410 ms
        let spread = Spread::of(&[0.907, 0.038, 0.034]).unwrap();
        assert!((spread.mean - 0.326).abs() < 0.001);
        assert!((spread.mdev - 0.410).abs() < 0.001);
        assert!((spread.median - 0.038).abs() < 1e-12);
        assert!((Spread::of(&[1.0, 2.0]).unwrap().median - 1.5).abs() < 1e-12);
        assert_eq!(Spread::of(&[]), None);
    }
}
