//! A summary of a sample.

use super::{order_statistics, t_interval};

/// A summary of a sample of independent values, such as one figure of each repeat, in the values' unit.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleSummary {
    /// The values from the least to the greatest.
    sorted: Vec<f64>,
    /// The arithmetic mean.
    pub mean: f64,
    /// The sample standard deviation, with n - 1 in the denominator; it needs two values.
    pub sd: Option<f64>,
    /// The 95 % interval of the mean by Student's t; it needs two values.
    pub interval: Option<[f64; 2]>,
}

impl SampleSummary {
    /// Summarises `values` in any order; `None` if there are none or one is not finite.
    pub fn of(values: &[f64]) -> Option<Self> {
        if !values.iter().all(|value| value.is_finite()) {
            return None;
        }
        Some(Self {
            sorted: order_statistics::sorted(values),
            mean: t_interval::mean(values)?,
            sd: t_interval::sample_sd(values),
            interval: t_interval::mean_interval(values),
        })
    }

    /// Returns the number of values, at least one.
    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    /// Returns the least value.
    pub fn min(&self) -> f64 {
        self.quantile(0.0)
    }

    /// Returns the middle value; for an even number, the mean of the two in the middle.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Returns the greatest value.
    pub fn max(&self) -> f64 {
        self.quantile(1.0)
    }

    /// Returns the quantile at `share` (0 to 1), as computed by [`order_statistics::quantile`].
    pub fn quantile(&self, share: f64) -> f64 {
        order_statistics::quantile(&self.sorted, share).unwrap_or(self.mean)
    }

    /// Returns the distance from the least to the greatest value without one value at either end, as a fraction of the
    /// median; `None` unless there are at least three values and all are above 0.
    ///
    /// One run that the machine delayed therefore does not affect how well the others repeat.
    pub fn spread(&self) -> Option<f64> {
        let [_, inner @ .., _] = self.sorted.as_slice() else {
            return None;
        };
        let width = inner.last()? - inner.first()?;
        (self.min() > 0.0).then(|| width / self.median())
    }

    /// Returns Tukey's inner fences, 1.5 interquartile ranges beyond the quartiles (J. W. Tukey, "Exploratory Data
    /// Analysis", 1977, §2C). A value outside them is an outlier, which is reported but never removed.
    pub fn fences(&self) -> [f64; 2] {
        let (low, high) = (self.quantile(0.25), self.quantile(0.75));
        let reach = 1.5 * (high - low);
        [low - reach, high + reach]
    }

    /// Returns the values outside the fences, from the least.
    pub fn outliers(&self) -> impl Iterator<Item = f64> {
        let [low, high] = self.fences();
        let sorted = self.sorted.iter().copied();
        sorted.filter(move |value| *value < low || *value > high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_has_no_spread_and_nothing_has_no_summary() {
        let one = SampleSummary::of(&[7.0]).unwrap();
        assert_eq!((one.min(), one.median(), one.max()), (7.0, 7.0, 7.0));
        assert_eq!(one.count(), 1);
        assert_eq!((one.sd, one.interval), (None, None));
        assert_eq!(one.spread(), None);
        assert_eq!(SampleSummary::of(&[]), None);
        assert_eq!(SampleSummary::of(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn the_spread_omits_one_value_at_either_end() {
        let spread = |values: &[f64]| SampleSummary::of(values).unwrap().spread();
        assert_eq!(spread(&[110.0, 10.0, 90.0, 100.0, 900.0]), Some(0.2));
        assert_eq!(spread(&[1.0, 2.0, 3.0]), Some(0.0));
        assert_eq!(spread(&[1.0, 2.0]), None);
        assert_eq!(spread(&[0.0, 1.0, 2.0]), None);
    }

    #[test]
    fn outliers_are_reported_and_still_count() {
        let summary = SampleSummary::of(&[30.0, 10.0, 11.0, 12.0, 11.0, 10.0]).unwrap();
        assert_eq!(summary.outliers().collect::<Vec<_>>(), [30.0]);
        assert_eq!((summary.count(), summary.mean), (6, 14.0));
        let even = SampleSummary::of(&[1.0, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!(even.outliers().count(), 0);
    }
}
