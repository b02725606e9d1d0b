//! Waits for a series of deadlines: it sleeps until a margin before each deadline and spins for the rest.

use std::hint;

use model::Nanos;
use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};

use crate::sleep_margin::SleepMargin;
use crate::{clock, wait};

/// Waits for deadlines, and adapts the margin before each deadline to how late its sleeps end.
#[derive(Clone, Copy, Debug)]
pub struct Sleeper {
    margin: SleepMargin,
}

const LONGEST_MARGIN: Nanos = Nanos(200_000);
/// Number of sleeps of which one ends too late.
const SLEEPS_PER_LATE_ONE: u64 = 400;

/// A shorter time is spun, because a late wake-up would cost more than the sleep saves.
const LEAST_SLEEP: Nanos = Nanos(250_000);

impl Default for Sleeper {
    /// Prepares the calling thread: no timer slack, and short scheduling slices.
    fn default() -> Self {
        wait::reduce_wake_up_delay();
        Self {
            margin: SleepMargin::up_to(LONGEST_MARGIN, SLEEPS_PER_LATE_ONE),
        }
    }
}

impl Sleeper {
    /// Also gives the calling thread real-time priority, if that is allowed and another core is left for other threads.
    /// It is meant for threads that sleep most of the time.
    pub fn urgent() -> Self {
        let sleeper = Self::default();
        wait::run_in_real_time();
        sleeper
    }

    /// Waits until `until`, or returns immediately if that has passed. Returns the present time.
    pub fn wait(&mut self, until: Nanos) -> Nanos {
        let mut now = clock::now();
        let margin = self.margin.time();
        if until > now + margin + LEAST_SLEEP {
            let wake = Nanos(until.0 - margin.0);
            let request = std::time::Duration::from_nanos(wake.0).into();
            // After an interrupted sleep, the rest is spun.
            let _ = clock_nanosleep(
                ClockId::CLOCK_MONOTONIC,
                ClockNanosleepFlags::TIMER_ABSTIME,
                &request,
            );
            now = clock::now();
            self.margin.learn(now > until);
        }
        while now < until {
            hint::spin_loop();
            now = clock::now();
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_never_ends_early() {
        let mut sleeper = Sleeper::default();
        for span in [0, 1_000, 100_000, 1_000_000] {
            let until = clock::now() + Nanos(span);
            assert!(sleeper.wait(until) >= until);
        }
    }

    #[test]
    fn a_deadline_in_the_past_is_not_waited_for() {
        let until = Nanos(clock::now().0 - 1);
        let mut sleeper = Sleeper::default();
        let before = sleeper.margin;
        sleeper.wait(until);
        assert_eq!(sleeper.margin, before);
    }
}
