//! Limits the share of the forwarder's time that captures take.

use std::cell::Cell;
use std::rc::Rc;

use model::Nanos;
use netio::clock;

/// Captures of all links of a forwarder together take at most one part in this many of its time.
const SHARE: u64 = 4;

/// The time that captures may take without a pause, after a pause of at least four times that
/// length. The receive rings hold the frames that arrive meanwhile.
const BURST: Nanos = Nanos(20_000_000);

/// The longest time that is charged for one observed frame. A longer measured time includes a pause
/// in which the host did not run the thread.
const LONGEST: Nanos = Nanos(200_000);

/// The remaining time of captures. All clones share it.
#[derive(Clone, Debug)]
pub(crate) struct TimeShare(Rc<Budget>);

#[derive(Debug)]
struct Budget {
    clock: fn() -> Nanos,
    /// The remaining time in nanoseconds. It is negative if the last frame took more than was left.
    left: Cell<i64>,
    /// The time at which `left` was last increased.
    at: Cell<Nanos>,
    is_spent: Cell<bool>,
}

impl TimeShare {
    /// Creates a budget with a full burst. `clock` measures times.
    pub(super) fn with_clock(clock: fn() -> Nanos) -> Self {
        Self(Rc::new(Budget {
            clock,
            left: Cell::new(as_signed(BURST)),
            at: Cell::new(Nanos::ZERO),
            is_spent: Cell::new(false),
        }))
    }

    /// Returns the time at which the observation of a frame begins, or `None` if the budget is used
    /// up.
    pub(super) fn begin(&self) -> Option<Nanos> {
        (!self.0.is_spent.get()).then(self.0.clock)
    }

    /// Charges the time since `begun` to the budget.
    pub(super) fn end(&self, begun: Nanos) {
        let took = Nanos((self.0.clock)().0.saturating_sub(begun.0));
        let left = self.0.left.get() - as_signed(took.min(LONGEST));
        self.0.left.set(left);
        if left < 0 {
            self.0.is_spent.set(true);
        }
    }

    /// Adds the share of the time that has passed by `now`. Captures that had used up their budget
    /// may continue once half a burst is available. Returns true if captures may observe frames.
    pub(super) fn follow(&self, now: Nanos) -> bool {
        let Budget {
            left, at, is_spent, ..
        } = &*self.0;
        let passed = Nanos(now.0.saturating_sub(at.replace(now.max(at.get())).0));
        let share = as_signed(Nanos(passed.0 / SHARE).min(BURST));
        left.set((left.get() + share).min(as_signed(BURST)));
        if left.get() >= as_signed(BURST) / 2 {
            is_spent.set(false);
        }
        !is_spent.get()
    }
}

impl Default for TimeShare {
    fn default() -> Self {
        Self::with_clock(clock::now)
    }
}

/// Converts a time, which is far below the 292 years that fit.
fn as_signed(time: Nanos) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    static NOW: AtomicU64 = AtomicU64::new(0);

    fn observe(share: &TimeShare, takes: u64) -> bool {
        let begun = share.begin();
        if let Some(begun) = begun {
            NOW.fetch_add(takes, Ordering::Relaxed);
            share.end(begun);
        }
        begun.is_some()
    }

    /// A thread that does nothing except observe frames, 100 us each, is limited to a fourth of its
    /// time.
    #[test]
    fn captures_take_their_share_and_then_pause() {
        let share = TimeShare::with_clock(|| Nanos(NOW.load(Ordering::Relaxed)));
        let observations = |until: u64| {
            let mut count = 0;
            while NOW.load(Ordering::Relaxed) < until {
                share.follow(Nanos(NOW.load(Ordering::Relaxed)));
                if observe(&share, 100_000) {
                    count += 1;
                } else {
                    NOW.fetch_add(100_000, Ordering::Relaxed);
                }
            }
            count
        };
        assert_eq!(observations(20_000_000), 200, "a burst is taken at once");
        let later = observations(10_020_000_000);
        assert!((24_000..=25_300).contains(&later), "{later} of 100,000");
        // A pause in which the host did not run the thread is charged only in part.
        share.follow(Nanos(NOW.load(Ordering::Relaxed) + 1_000_000_000));
        assert!((0..100).all(|_| observe(&share, 1_000_000_000)));
    }
}
