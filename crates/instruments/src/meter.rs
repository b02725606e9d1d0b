//! Received bytes in intervals of equal length.

use std::time::Duration;

use record::{Direction, Metric, Sample};

/// A meter that sums bytes per interval. An interval without bytes is a sample of 0, which makes a stall visible.
#[derive(Debug, Default)]
pub(crate) struct IntervalMeter {
    interval_s: f64,
    current: u64,
    total: u64,
    samples: Vec<Sample>,
}

impl IntervalMeter {
    /// Returns a meter without bytes, whose time starts at 0.
    pub(crate) fn new(interval: Duration) -> Self {
        Self {
            interval_s: interval.as_secs_f64(),
            ..Self::default()
        }
    }

    /// Adds `bytes` that arrived at `at_s` seconds. Times never decrease.
    pub(crate) fn add(&mut self, at_s: f64, bytes: u64) {
        while at_s >= self.end_s() {
            self.close(self.end_s());
        }
        self.current += bytes;
        self.total += bytes;
    }

    /// Returns the number of bytes received so far.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Returns the samples. An incomplete last interval that received bytes ends at `at_s`.
    pub(crate) fn finish(mut self, at_s: f64) -> Vec<Sample> {
        self.add(at_s, 0);
        if self.current > 0 {
            self.close(at_s);
        }
        self.samples
    }

    fn end_s(&self) -> f64 {
        (self.samples.len() + 1) as f64 * self.interval_s
    }

    fn close(&mut self, at_s: f64) {
        let index = self.samples.len() as u64 + 1;
        let bytes = self.current as f64;
        self.samples
            .push(Sample::new(at_s, Metric::ReceivedBytes, index, bytes).toward(Direction::Down));
        self.current = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_visible_as_empty_intervals() {
        let mut meter = IntervalMeter::new(Duration::from_secs(1));
        meter.add(0.5, 10);
        meter.add(3.5, 20);
        assert_eq!(meter.total(), 30);
        let samples = meter.finish(3.75);
        let seen: Vec<_> = samples.iter().map(|s| (s.at_s, s.value)).collect();
        assert_eq!(seen, [(1.0, 10.0), (2.0, 0.0), (3.0, 0.0), (3.75, 20.0)]);
    }
}
