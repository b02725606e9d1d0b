//! A token bucket: packets pass immediately while it holds enough tokens for them.

use crate::queue::constant::WORK_PER_BYTE;
use crate::time::Nanos;
use crate::units::{BitsPerSec, Bytes};

/// A bucket that a rate fills, as in tc-tbf(8). Its unit is work, which is bits times 10^9.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    rate: BitsPerSec,
    /// The work that it holds when it is full.
    depth: u128,
    /// The work that it holds at `at`, which lies ahead while a packet waits for it.
    tokens: u128,
    at: Nanos,
}

impl Bucket {
    /// Creates a full bucket.
    pub(crate) fn new(rate: BitsPerSec, depth: Bytes, at: Nanos) -> Self {
        let depth = u128::from(depth.0) * WORK_PER_BYTE;
        Self {
            rate,
            depth,
            tokens: depth,
            at,
        }
    }

    /// Returns it with the work that `before` holds at `at`, as far as it fits; this is 0 if a packet waits for more.
    pub(crate) fn following(mut self, before: &Self, at: Nanos) -> Self {
        let mut before = *before;
        before.fill(at);
        self.tokens = if before.at > at {
            0
        } else {
            before.tokens.min(self.depth)
        };
        self
    }

    pub(crate) fn rate(&self) -> BitsPerSec {
        self.rate
    }

    /// Takes out `work` if it holds that much at `at`, and returns whether it did.
    #[inline]
    pub(crate) fn take(&mut self, at: Nanos, work: u128) -> bool {
        self.fill(at);
        match self.tokens.checked_sub(work) {
            Some(tokens) => self.tokens = tokens,
            None => return false,
        }
        true
    }

    /// Returns when it has given away `work` that is wanted from `at` on: immediately, if it holds that much. More than
    /// it can ever hold takes the time in which the missing work arrives.
    #[inline]
    pub(crate) fn serve(&mut self, at: Nanos, work: u128) -> Nanos {
        if self.take(at, work) {
            return at;
        }
        let rate = u128::from(self.rate.get());
        let missing = work - self.tokens;
        let time = missing.div_ceil(rate);
        self.tokens = time * rate - missing;
        self.at = at + Nanos(u64::try_from(time).unwrap_or(u64::MAX));
        self.at
    }

    /// Returns the work that is left at `at` of a service that ends at `ends`.
    pub(crate) fn left(&self, at: Nanos, ends: Nanos) -> u128 {
        let time = u128::from((ends - at).0);
        (time * u128::from(self.rate.get())).saturating_sub(self.tokens)
    }

    #[inline]
    fn fill(&mut self, at: Nanos) {
        if at > self.at {
            let came = u128::from((at - self.at).0) * u128::from(self.rate.get());
            self.tokens = self.tokens.saturating_add(came).min(self.depth);
            self.at = at;
        }
    }
}
