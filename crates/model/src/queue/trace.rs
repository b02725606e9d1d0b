//! A server whose opportunities come from a trace.

use alloc::sync::Arc;

use crate::schedule::ScheduleClock;
use crate::spec::{OPPORTUNITY_WINDOW, Opportunities};
use crate::time::Nanos;
use crate::units::Bytes;

/// The most opportunities that are skipped in one stride. It keeps their numbers within 64 bits.
const MOST_SKIPPED: u64 = 1 << 62;

/// Serves packets at given times. The rest of an opportunity serves the next packet that waits; an opportunity at which
/// no packet waits is lost (Netravali et al.: "Mahimahi: accurate record-and-replay for HTTP", USENIX ATC 2015).
#[derive(Debug)]
pub(crate) struct Traced {
    opportunities: Arc<dyn Opportunities>,
    /// The time of the model from which on it serves.
    since: Nanos,
    /// The time of the trace at that moment.
    from: Nanos,
    /// The number of the first opportunity from then on.
    first: u64,
    /// The number of opportunities that repeat after each [`OPPORTUNITY_WINDOW`]; `None` while the clock runs.
    repeats: Option<u64>,
    /// The bytes of an opportunity.
    bytes: u64,
    /// The number of the next opportunity, counted from the first one.
    next: u64,
    /// The bytes left over from the last opportunity, as long as packets wait.
    spare: u64,
}

impl Traced {
    /// Serves from `at` on at the times of `clock`, which counts from `start`. While the clock is stopped, the
    /// opportunities of the window before that time repeat, because a single moment of a trace has no rate.
    pub(crate) fn new(
        opportunities: Arc<dyn Opportunities>,
        clock: ScheduleClock,
        start: Nanos,
        at: Nanos,
    ) -> Self {
        let (since, from) = match clock {
            ScheduleClock::Running { since, from } => (start + since, from),
            ScheduleClock::Stopped { at: stopped } => (at.max(start), stopped - OPPORTUNITY_WINDOW),
        };
        let first = opportunities.count_before(from);
        let in_window = || opportunities.count_before(from + OPPORTUNITY_WINDOW) - first;
        Self {
            repeats: (!clock.is_running()).then(in_window),
            bytes: opportunities.bytes().0,
            opportunities,
            since,
            from,
            first,
            next: 0,
            spare: 0,
        }
    }

    pub(crate) fn begin_busy_period(&mut self, at: Nanos) {
        self.spare = 0;
        self.skip_to(at);
    }

    /// Returns when the last of `bytes` that wait from `at` on are served; [`Nanos::MAX`] if the trace ends before.
    pub(crate) fn serve(&mut self, at: Nanos, bytes: Bytes) -> Nanos {
        let mut ends = at;
        let mut left = bytes.0;
        while left > self.spare {
            left -= self.spare;
            ends = self.time(self.next);
            if ends == Nanos::MAX {
                self.spare = 0;
                return ends;
            }
            self.next += 1;
            self.spare = self.bytes;
        }
        self.spare -= left;
        ends
    }

    /// Returns the bytes that are left at `at` of a service that ends at `ends`.
    pub(crate) fn left(&self, at: Nanos, ends: Nanos) -> u64 {
        let to_come = (0..self.next).rev();
        let opportunities = to_come.take_while(|index| (at..=ends).contains(&self.time(*index)));
        (opportunities.count() as u64 * self.bytes).saturating_sub(self.spare)
    }

    fn time(&self, index: u64) -> Nanos {
        let (round, within) = match self.repeats {
            None => (0, index),
            Some(0) => return Nanos::MAX,
            Some(count) => (index / count, index % count),
        };
        let at = self.opportunities.at(self.first.saturating_add(within));
        if at == Nanos::MAX {
            return at;
        }
        self.since + OPPORTUNITY_WINDOW.saturating_mul(round) + (at - self.from)
    }

    /// Skips the opportunities before `at` in strides that double, because a trace may be long and idle.
    fn skip_to(&mut self, at: Nanos) {
        let mut stride = 1;
        while stride < MOST_SKIPPED && self.time(self.next + stride - 1) < at {
            self.next += stride;
            stride *= 2;
        }
        while stride > 1 {
            stride /= 2;
            if self.time(self.next + stride - 1) < at {
                self.next += stride;
            }
        }
    }
}
