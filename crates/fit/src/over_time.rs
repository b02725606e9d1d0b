//! Values over time: one for each of consecutive intervals of equal length.

use serde::{Deserialize, Serialize};
use stats::order_statistics::{quantile, sorted};
use stats::t_interval;

use crate::estimate::Estimate;

/// The probability by chance below which values over time count as varying.
pub(crate) const CHANCE: f64 = 0.001;

/// The values of consecutive intervals of equal length.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OverTime {
    /// The length of an interval in seconds.
    pub every_s: f64,
    /// The value of each interval.
    pub values: Vec<f64>,
}

impl OverTime {
    /// Returns whether there is no interval.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns the length of all intervals together, in seconds.
    pub fn lasts_s(&self) -> f64 {
        self.every_s * self.values.len() as f64
    }

    /// Returns all values, each changed by `change`.
    pub(crate) fn map(&self, change: impl Fn(f64) -> f64) -> Self {
        Self {
            values: self.values.iter().copied().map(change).collect(),
            ..*self
        }
    }

    /// Returns the means of this number of neighbours. Values at the end that are fewer are left out.
    pub(crate) fn joined(&self, count: usize) -> Self {
        let count = count.max(1);
        let means = self.values.chunks_exact(count);
        Self {
            every_s: self.every_s * count as f64,
            values: means.filter_map(t_interval::mean).collect(),
        }
    }

    /// Returns the median; its interval has nine of ten values.
    pub(crate) fn spread(&self) -> Option<Estimate> {
        let ordered = sorted(&self.values);
        let of = |share| quantile(&ordered, share);
        Some(Estimate::new(of(0.5)?, [of(0.05)?, of(0.95)?]))
    }

    /// Returns the mean from one time to another, in seconds since the first interval began. After the last interval, the
    /// values begin again.
    pub(crate) fn mean_between(&self, from_s: f64, until_s: f64) -> f64 {
        (self.integral(until_s) - self.integral(from_s)) / (until_s - from_s).max(1e-9)
    }

    /// Returns the integral from the first interval to this time.
    fn integral(&self, until_s: f64) -> f64 {
        let lasts_s = self.lasts_s();
        if lasts_s <= 0.0 {
            return 0.0;
        }
        let rounds = (until_s / lasts_s).floor();
        let whole: f64 = self.values.iter().sum();
        let mut left = (until_s - rounds * lasts_s) / self.every_s;
        let mut within = 0.0;
        for value in &self.values {
            within += value * left.clamp(0.0, 1.0);
            left -= 1.0;
        }
        self.every_s * (rounds * whole + within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> OverTime {
        OverTime {
            every_s: 0.5,
            values: vec![2.0, 4.0, 6.0],
        }
    }

    #[test]
    fn a_mean_counts_the_time_of_each_value_and_begins_again_at_the_end() {
        let mean = |from_s, until_s| values().mean_between(from_s, until_s);
        assert!((mean(0.0, 1.0) - 3.0).abs() < 1e-9);
        assert!((mean(0.25, 1.25) - 4.0).abs() < 1e-9);
        assert!((mean(1.25, 1.75) - 4.0).abs() < 1e-9);
        assert!((mean(0.0, 6.0) - 4.0).abs() < 1e-9);
        assert_eq!(OverTime::default().mean_between(0.0, 1.0), 0.0);
    }

    #[test]
    fn neighbours_are_joined_and_the_spread_has_nine_of_ten() {
        let joined = values().joined(2);
        assert_eq!((joined.every_s, joined.values), (1.0, vec![3.0]));
        let all = OverTime {
            every_s: 1.0,
            values: (0..=100).map(f64::from).collect(),
        };
        let spread = all.spread().unwrap();
        assert_eq!((spread.value, spread.interval), (50.0, [5.0, 95.0]));
        assert_eq!(OverTime::default().spread(), None);
    }
}
