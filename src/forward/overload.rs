//! Decides when a forwarder cannot keep up and drops packets instead of sending them ever later.

use std::fmt;
use std::str::FromStr;

use model::Nanos;
use record::lateness::LateBudget;

/// The delay after its due time at which a packet is dropped if the forwarder cannot keep up. It is
/// at least 1 ms and at most 10 s, 10 ms by default, and written as a time with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LateLimit(Nanos);

/// The time for which a thread was running. A step is shorter than the longest counted gap, and a
/// longer gap is a time in which the host did not run the thread, or in which it slept.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RunningTime {
    ran: Nanos,
    last: Nanos,
}

/// Says since when a link has been in arrears: each of its turns began with packets that were late by
/// more than a quarter of the limit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arrears {
    since: Option<Nanos>,
}

/// The longest gap between two steps that counts as running time.
const LONGEST_STEP: Nanos = Nanos(2_000_000);

impl LateLimit {
    /// The default limit.
    pub(crate) const DEFAULT: Self = Self(Nanos::from_millis(10));
    const LEAST: Nanos = Nanos::from_millis(1);
    const MOST: Nanos = Nanos::from_secs(10);

    /// Returns the limit beside this late budget unless a user has set one: the default, or the budget
    /// if that is longer, because a user who accepts late packets does not want to lose them.
    pub(crate) fn beside(budget: LateBudget) -> Self {
        Self(Self::DEFAULT.0.max(budget.time()))
    }
}

impl fmt::Display for LateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for LateLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let time: Nanos = text.parse().map_err(|cause| format!("{cause}"))?;
        if time < Self::LEAST || time > Self::MOST {
            return Err(format!(
                "`{time}` is out of range: write a time of at least 1ms and at most 10s, as in 10ms"
            ));
        }
        Ok(Self(time))
    }
}

impl RunningTime {
    /// Notes that a step begins at `now`.
    pub(super) fn step(&mut self, now: Nanos) {
        let gap = Nanos(now.0.saturating_sub(self.last.0));
        self.ran += gap.min(LONGEST_STEP);
        self.last = now;
    }
}

impl Arrears {
    /// Notes at the beginning of a turn whether packets are in arrears.
    pub(super) fn note(&mut self, are_in_arrears: bool, time: RunningTime) {
        self.since = are_in_arrears.then(|| self.since.unwrap_or(time.ran));
    }

    /// Returns true if the arrears have lasted while the thread ran for three quarters of the limit.
    /// Packets that a forwarder cannot send in time become later by at most the time that passes, so
    /// none of them reaches the limit sooner.
    ///
    /// A host that stops the thread for a while makes packets late, too. They are not dropped if the
    /// forwarder catches up with them within that time.
    pub(super) fn last(self, limit: LateLimit, time: RunningTime) -> bool {
        let least = Nanos(limit.0.0 / 4 * 3);
        self.since.is_some_and(|since| time.ran >= since + least)
    }
}

impl LateLimit {
    /// Returns the due time before which packets are too late at `now`.
    pub(super) fn too_late_before(self, now: Nanos) -> Nanos {
        Nanos(now.0.saturating_sub(self.0.0))
    }

    /// Returns the due time before which packets are in arrears at `now`.
    pub(super) fn in_arrears_before(self, now: Nanos) -> Nanos {
        Nanos(now.0.saturating_sub(self.0.0 / 4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_written_as_a_time_in_its_range() {
        let limit = |text: &str| text.parse::<LateLimit>();
        assert_eq!(limit("10ms"), Ok(LateLimit::DEFAULT));
        assert_eq!(LateLimit::DEFAULT.to_string(), "10ms");
        assert_eq!(LateLimit::beside(LateBudget::DEFAULT), LateLimit::DEFAULT);
        assert_eq!(LateLimit::beside("1s".parse().unwrap()).to_string(), "1s");
        for wrong in ["999us", "11s"] {
            assert!(
                limit(wrong)
                    .unwrap_err()
                    .contains("at least 1ms and at most 10s")
            );
        }
        assert!(limit("10").is_err());
    }

    #[test]
    fn arrears_count_only_while_the_thread_runs() {
        let (mut time, mut arrears) = (RunningTime::default(), Arrears::default());
        let limit = LateLimit::DEFAULT;
        // The host stops the thread for 50 ms in each of these steps.
        for step in 0..4 {
            time.step(Nanos::from_millis(1_000 + 50 * step));
            arrears.note(true, time);
            assert!(!arrears.last(limit, time), "{step}");
        }
        // The thread has run for at most 2 ms in each.
        time.step(Nanos::from_millis(1_200));
        assert!(arrears.last(limit, time));
        arrears.note(false, time);
        assert!(!arrears.last(limit, time));
    }
}
