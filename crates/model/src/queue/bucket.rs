//! A token bucket: what it holds passes at once.

use crate::queue::constant::WORK_PER_BYTE;
use crate::time::Nanos;
use crate::units::{BitsPerSec, Bytes};

/// A bucket that a rate fills, as tc-tbf(8) has it; in work, which is bits times 10^9.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    rate: BitsPerSec,
    /// What it holds when it is full.
    depth: u128,
    /// What it holds at `at`, which lies ahead while a packet waits for it.
    tokens: u128,
    at: Nanos,
}

impl Bucket {
    /// A full one.
    pub(crate) fn new(rate: BitsPerSec, depth: Bytes, at: Nanos) -> Self {
        let depth = u128::from(depth.0) * WORK_PER_BYTE;
        Self {
            rate,
            depth,
            tokens: depth,
            at,
        }
    }

    /// With what `before` holds at `at`, as far as it fits: nothing, if a packet waits for more.
    pub(crate) fn following(mut self, before: &Self, at: Nanos) -> Self {
        let mut before = *before;
        before.fill(at);
        self.tokens = match before.at > at {
            true => 0,
            false => before.tokens.min(self.depth),
        };
        self
    }

    pub(crate) fn rate(&self) -> BitsPerSec {
        self.rate
    }

    /// Takes out `work`, if it holds as much at `at`.
    #[inline]
    pub(crate) fn take(&mut self, at: Nanos, work: u128) -> bool {
        self.fill(at);
        match self.tokens.checked_sub(work) {
            Some(tokens) => self.tokens = tokens,
            None => return false,
        }
        true
    }

    /// When it has held `work` that is wanted from `at` on, and has given it away: at once, if it holds as much. More than it
    /// ever holds takes as long as what it lacks.
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

    /// The work that is left at `at` of what ends at `ends`.
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
