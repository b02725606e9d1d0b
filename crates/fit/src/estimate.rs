//! A fitted number with its interval.

use serde::{Deserialize, Serialize};

/// A fitted number and its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The best value.
    pub value: f64,
    /// The 95 % interval. It contains `value`.
    pub interval: [f64; 2],
}

impl Estimate {
    /// Creates an estimate; the interval is extended so that it contains `value`.
    pub fn new(value: f64, [low, high]: [f64; 2]) -> Self {
        Self {
            value,
            interval: [low.min(value), high.max(value)],
        }
    }

    /// Creates an estimate whose interval reaches `half` to either side.
    pub fn within(value: f64, half: f64) -> Self {
        Self::new(value, [value - half, value + half])
    }

    /// Returns the estimate with both ends of its interval moved outward by `more`.
    pub(crate) fn widened(self, more: f64) -> Self {
        let [low, high] = self.interval;
        Self::new(self.value, [low - more, high + more])
    }

    /// Returns value and interval, each changed by the increasing function `change`.
    pub(crate) fn map(self, change: impl Fn(f64) -> f64) -> Self {
        Self {
            value: change(self.value),
            interval: self.interval.map(change),
        }
    }

    /// Returns whether the interval contains `truth`.
    pub fn contains(self, truth: f64) -> bool {
        (self.interval[0]..=self.interval[1]).contains(&truth)
    }
}
