//! Limits how much of the forwarder's time captures take.

use std::cell::Cell;
use std::rc::Rc;

use model::Nanos;
use netio::clock;

/// Captures of all links of a forwarder take at most one part of its time in this many.
const SHARE: u64 = 4;

/// They may take this much without a pause, after they have taken nothing for four times as long. The receive rings hold what arrives
/// meanwhile.
const BURST: Nanos = Nanos(20_000_000);

/// One look at a frame takes no longer. What is measured beyond it is time in which the host did not run the thread.
const LONGEST: Nanos = Nanos(200_000);

/// The time that captures may still take; its clones share it.
#[derive(Clone, Debug)]
pub(crate) struct TimeShare(Rc<Account>);

#[derive(Debug)]
struct Account {
    clock: fn() -> Nanos,
    /// The time that may be taken, in nanoseconds. It is below 0 if the last look took more than was left.
    left: Cell<i64>,
    /// The time of the last addition.
    at: Cell<Nanos>,
    is_spent: Cell<bool>,
}

impl TimeShare {
    /// Begins with a whole burst. Times are measured with `clock`.
    pub(super) fn measured_by(clock: fn() -> Nanos) -> Self {
        Self(Rc::new(Account {
            clock,
            left: Cell::new(as_signed(BURST)),
            at: Cell::new(Nanos::ZERO),
            is_spent: Cell::new(false),
        }))
    }

    /// The time at which a look at a frame begins; `None` if captures have taken all of their time.
    pub(super) fn begin(&self) -> Option<Nanos> {
        (!self.0.is_spent.get()).then(self.0.clock)
    }

    /// The look that began then is over.
    pub(super) fn end(&self, begun: Nanos) {
        let took = Nanos((self.0.clock)().0.saturating_sub(begun.0));
        let left = self.0.left.get() - as_signed(took.min(LONGEST));
        self.0.left.set(left);
        if left < 0 {
            self.0.is_spent.set(true);
        }
    }

    /// Adds the share of the time that has passed by `now`. Captures that had taken all look again once half of a burst is there.
    /// Returns whether they may look.
    pub(super) fn follow(&self, now: Nanos) -> bool {
        let Account {
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
        Self::measured_by(clock::now)
    }
}

/// A time far below the 292 years that fit.
fn as_signed(time: Nanos) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    static NOW: AtomicU64 = AtomicU64::new(0);

    fn look(share: &TimeShare, takes: u64) -> bool {
        let begun = share.begin();
        if let Some(begun) = begun {
            NOW.fetch_add(takes, Ordering::Relaxed);
            share.end(begun);
        }
        begun.is_some()
    }

    /// A thread that does nothing but look at frames, 100 us each, is kept to a fourth of its time.
    #[test]
    fn captures_take_their_share_and_then_look_away() {
        let share = TimeShare::measured_by(|| Nanos(NOW.load(Ordering::Relaxed)));
        let looks = |until: u64| {
            let mut looks = 0;
            while NOW.load(Ordering::Relaxed) < until {
                share.follow(Nanos(NOW.load(Ordering::Relaxed)));
                if look(&share, 100_000) {
                    looks += 1;
                } else {
                    NOW.fetch_add(100_000, Ordering::Relaxed);
                }
            }
            looks
        };
        assert_eq!(looks(20_000_000), 200, "a burst is taken at once");
        let later = looks(10_020_000_000);
        assert!((24_000..=25_300).contains(&later), "{later} of 100,000");
        // Time in which the host did not run the thread counts little.
        share.follow(Nanos(NOW.load(Ordering::Relaxed) + 1_000_000_000));
        assert!((0..100).all(|_| look(&share, 1_000_000_000)));
    }
}
