//! How many requests a server takes: so many at once, and then one in so long.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Requests that may come at once.
const BURST: u32 = 1_000;

/// The time that each counts for: 500 a second.
const EACH: Duration = Duration::from_millis(2);

/// A token bucket, as the time at which it is full again: the generic cell rate algorithm (ITU-T I.371, annex A).
#[derive(Clone, Debug, Default)]
pub(super) struct Rate(Arc<Mutex<Option<Instant>>>);

impl Rate {
    /// Takes a request that comes at `now`.
    ///
    /// # Errors
    /// There have been too many: in how long the next one is taken.
    pub(super) fn take(&self, now: Instant) -> Result<(), Duration> {
        let mut full = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = full.map_or(now, |full| full.max(now)) + EACH;
        match (next - now).checked_sub(EACH * BURST) {
            None | Some(Duration::ZERO) => {
                *full = Some(next);
                Ok(())
            }
            Some(too_many) => Err(too_many),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of these that come at `now` are taken.
    fn taken(rate: &Rate, of: u32, now: Instant) -> usize {
        (0..of).filter(|_| rate.take(now).is_ok()).count()
    }

    #[test]
    fn a_burst_is_taken_and_then_five_hundred_a_second() {
        let rate = Rate::default();
        let begun = Instant::now();
        assert_eq!(taken(&rate, 2_000, begun), 1_000);
        assert_eq!(rate.take(begun), Err(EACH));
        assert_eq!(taken(&rate, 2_000, begun + Duration::from_secs(1)), 500);
        // No more than a burst is kept for later.
        let later = begun + Duration::from_secs(3_600);
        assert_eq!(taken(&rate, 2_000, later), 1_000);
        // What is refused counts for nothing.
        assert_eq!(taken(&rate, 2_000, later + EACH), 1);
    }
}
