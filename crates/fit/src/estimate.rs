//! A fitted number with its interval.

use serde::{Deserialize, Serialize};

/// The interval of a value of which there are too few samples.
const UNKNOWN: [f64; 2] = [f64::NEG_INFINITY, f64::INFINITY];

/// A fitted number and its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The best value.
    pub value: f64,
    /// The 95 % interval. It contains `value`. An end is infinite if there are too few samples for an interval.
    #[serde(default = "unknown", skip_serializing_if = "is_unknown")]
    pub interval: [f64; 2],
}

fn unknown() -> [f64; 2] {
    UNKNOWN
}

fn is_unknown(interval: &[f64; 2]) -> bool {
    interval.iter().any(|end| !end.is_finite())
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

    /// Creates an estimate with an interval, if there are enough samples for one.
    pub(crate) fn with_known(value: f64, interval: Option<[f64; 2]>) -> Self {
        Self::new(value, interval.unwrap_or(UNKNOWN))
    }

    /// Returns the interval; `None` if there are too few samples for one.
    pub fn known_interval(self) -> Option<[f64; 2]> {
        (!is_unknown(&self.interval)).then_some(self.interval)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_too_few_samples_has_no_interval_whatever_is_computed_from_it() {
        let found = Estimate::with_known(2.0, None);
        let changed = found.widened(0.1).map(|value| value.max(0.0) / 2.0);
        assert_eq!((changed.value, changed.known_interval()), (1.0, None));
        let json = serde_json::to_string(&changed).unwrap();
        assert_eq!(json, r#"{"value":1.0}"#);
        let read: Estimate = serde_json::from_str(&json).unwrap();
        assert_eq!((read.value, read.known_interval()), (1.0, None));
        let known = Estimate::with_known(2.0, Some([1.0, 3.0]));
        assert_eq!(known.known_interval(), Some([1.0, 3.0]));
    }
}
