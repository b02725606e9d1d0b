//! What a few rounds came to: median, least, most, and how sure the median is.

use std::fmt;

use serde::{Deserialize, Serialize};
use stats::order_statistics::{median_interval, quantile, sorted};

/// Of at least one value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
    pub(crate) lower_quartile: f64,
    /// Between which the median lies at 95 %; of fewer than ten values there is none.
    pub(crate) interval: Option<[f64; 2]>,
}

impl Spread {
    /// Nothing of no values.
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

    /// The median's interval where there is one, else the least and the most value: what an error bar shows.
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

/// Three digits that count; none behind the point of what is 1,000 or more.
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
