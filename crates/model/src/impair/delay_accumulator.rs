//! Statistics of the delays that a stage gave.

use crate::counters::DelayStatistics;
use crate::time::Nanos;

/// Sums over delays. They count from the first delay, so that the squares keep their precision.
#[derive(Debug, Default)]
pub(crate) struct DelayAccumulator {
    packets: u64,
    origin: f64,
    sum: f64,
    squares: f64,
    clamped: u64,
}

impl DelayAccumulator {
    /// Adds a delay; `is_clamped` tells whether it would have been below 0.
    #[inline]
    pub(crate) fn add(&mut self, delay: Nanos, is_clamped: bool) {
        if self.packets == 0 {
            self.origin = delay.0 as f64;
        }
        self.packets += 1;
        self.clamped += u64::from(is_clamped);
        let from_origin = delay.0 as f64 - self.origin;
        self.sum += from_origin;
        self.squares += from_origin * from_origin;
    }

    /// Returns the statistics; `None` if there was no delay.
    pub(crate) fn statistics(&self) -> Option<DelayStatistics> {
        if self.packets == 0 {
            return None;
        }
        let count = self.packets as f64;
        let about_mean = (self.squares - self.sum * self.sum / count).max(0.0);
        let deviation = libm::sqrt(about_mean / (count - 1.0).max(1.0));
        Some(DelayStatistics {
            packets: self.packets,
            mean: nanos(self.origin + self.sum / count),
            deviation: nanos(deviation),
            clamped: self.clamped,
        })
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a mean of delays, which are at least 0; saturates"
)]
fn nanos(value: f64) -> Nanos {
    Nanos(libm::rint(value) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_sample_deviation_cover_all_delays() {
        let mut accumulator = DelayAccumulator::default();
        assert_eq!(accumulator.statistics(), None);
        let hour = 3_600_000_000_000;
        for delay in [2, 4, 4, 4, 5, 5, 7, 9] {
            accumulator.add(Nanos(hour + delay * 1_000), delay == 2);
        }
        let statistics = DelayStatistics {
            packets: 8,
            mean: Nanos(hour + 5_000),
            // The square root of 32/7.
            deviation: Nanos(2_138),
            clamped: 1,
        };
        assert_eq!(accumulator.statistics(), Some(statistics));
    }
}
