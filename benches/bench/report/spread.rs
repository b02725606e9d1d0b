//! The spread of a few rounds: median, minimum, maximum, and the interval of the median.

use std::fmt;

use serde::{Deserialize, Serialize};
use stats::order_statistics::{median_interval, quantile, sorted};

/// The spread of at least one value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
    pub(crate) lower_quartile: f64,
    /// The 95 % interval of the median; none with fewer than ten values.
    pub(crate) interval: Option<[f64; 2]>,
}

impl Spread {
    /// Computes the spread of values; nothing if there are none.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values);
        Some(Self {
            median: quantile(&sorted, 0.5)?,
            least: *sorted.first()?,
            most: *sorted.last()?,
            lower_quartile: quantile(&sorted, 0.25)?,
            interval: median_interval(&sorted),
        })
    }

    /// Returns the ends of an error bar: the median's interval if there is one, else the smallest and the largest value.
    pub(crate) fn ends(&self) -> [f64; 2] {
        self.interval.unwrap_or([self.least, self.most])
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [low, high] = self.ends().map(short);
        write!(f, "{} ({low} to {high})", short(self.median))
    }
}

/// Formats a value with three significant digits, and without decimal places from 1,000 on.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        size if size >= 0.1 => format!("{value:.3}"),
        _ => format!("{value:.4}"),
    }
}
