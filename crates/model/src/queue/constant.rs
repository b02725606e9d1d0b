//! A server with a constant rate.

use crate::time::Nanos;
use crate::units::{BitsPerSec, Bytes};

/// Work is in bits times 10^9, so that a rate of N bit/s does N units of work in each nanosecond.
pub(crate) const WORK_PER_BYTE: u128 = 8_000_000_000;

/// A rate, and the work that rounding up the service times of this busy period has done in advance.
#[derive(Debug)]
pub(crate) struct ConstantRate {
    pub(crate) rate: BitsPerSec,
    pub(crate) credit: u64,
}

impl ConstantRate {
    /// Returns when `bytes` whose service begins at `at` are done.
    #[inline]
    pub(crate) fn serve(&mut self, at: Nanos, bytes: Bytes) -> Nanos {
        let (time, credit) = self.rate.time_with_credit(bytes, self.credit);
        self.credit = credit;
        at + time
    }

    /// Returns the work that is left at `at` of a service that ends at `ends`.
    pub(crate) fn left(&self, at: Nanos, ends: Nanos) -> u128 {
        let time = u128::from(ends.0.saturating_sub(at.0));
        (time * u128::from(self.rate.get())).saturating_sub(u128::from(self.credit))
    }

    /// Returns when `work` that is resumed at `at` is done.
    pub(crate) fn resume(&mut self, at: Nanos, work: u128) -> Nanos {
        let rate = u128::from(self.rate.get());
        let time = work.div_ceil(rate);
        // The difference is less than the rate, so it fits.
        self.credit = u64::try_from(time * rate - work).unwrap_or(0);
        at + Nanos(u64::try_from(time).unwrap_or(u64::MAX))
    }
}
