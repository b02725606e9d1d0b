//! A server whose opportunities come from a trace.

use alloc::sync::Arc;

use crate::spec::Opportunities;
use crate::time::Nanos;
use crate::units::Bytes;

/// Serves packets at given times. The rest of an opportunity serves the next packet that waits; an opportunity at which
/// no packet waits is lost (Netravali et al.: "Mahimahi: accurate record-and-replay for HTTP", USENIX ATC 2015).
#[derive(Debug)]
pub(crate) struct Traced {
    opportunities: Arc<dyn Opportunities>,
    start: Nanos,
    /// The bytes of an opportunity.
    bytes: u64,
    /// The number of the next opportunity.
    next: u64,
    /// The bytes left over from the last opportunity, as long as packets wait.
    spare: u64,
}

impl Traced {
    pub(crate) fn new(opportunities: Arc<dyn Opportunities>, start: Nanos) -> Self {
        Self {
            bytes: opportunities.bytes().0,
            opportunities,
            start,
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
        self.start + self.opportunities.at(index)
    }

    /// Skips the opportunities before `at` in strides that double, because a trace may be long and idle.
    fn skip_to(&mut self, at: Nanos) {
        let mut stride = 1;
        while self.time(self.next + stride - 1) < at {
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
