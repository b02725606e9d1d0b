//! The time by which a sleep must end early so that the work after it is on time.

use model::Nanos;

/// The time before a deadline in which a thread does not sleep. It is adapted to how late the thread's sleeps end.
///
/// It grows whenever a sleep ended too late and shrinks a little whenever one did not, so it settles where one sleep in
/// a few hundred is late, however busy the machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SleepMargin {
    time: Nanos,
    longest: Nanos,
    /// One late sleep has the weight of this many sleeps that were on time.
    on_time: u64,
}

const FIRST: Nanos = Nanos(60_000);
const GROWS_BY: Nanos = Nanos(20_000);

impl SleepMargin {
    /// Creates a margin that starts at 60 us and grows up to `longest`; spinning longer costs the machine more than it
    /// gains. It settles where one sleep of `on_time` is late.
    pub(crate) const fn up_to(longest: Nanos, on_time: u64) -> Self {
        Self {
            time: FIRST,
            longest,
            on_time,
        }
    }

    /// Returns the time by which a sleep must end before its deadline.
    pub(crate) fn time(self) -> Nanos {
        self.time
    }

    /// Adapts the margin after a sleep that should have ended by the margin before its deadline. `was_late` is whether
    /// it ended after the deadline.
    pub(crate) fn learn(&mut self, was_late: bool) {
        self.time = if was_late {
            (self.time + GROWS_BY).min(self.longest)
        } else {
            Nanos(self.time.0.saturating_sub(GROWS_BY.0 / self.on_time))
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_margin_settles_where_one_sleep_in_some_hundred_is_late() {
        // Sleeps end up to 100 us late, with a uniform distribution.
        let mut margin = SleepMargin::up_to(Nanos(200_000), 400);
        let (mut late, mut state) = (0, 1u64);
        const SLEEPS: u32 = 200_000;
        for _ in 0..SLEEPS {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let ended = Nanos((state >> 33) % 100_000);
            let was_late = ended > margin.time();
            late += u32::from(was_late);
            margin.learn(was_late);
        }
        let share = f64::from(late) / f64::from(SLEEPS);
        assert!((0.001..0.006).contains(&share), "{share}");
    }

    #[test]
    fn the_margin_stops_at_its_maximum() {
        let mut margin = SleepMargin::up_to(Nanos(100_000), 400);
        (0..10).for_each(|_| margin.learn(true));
        assert_eq!(margin.time(), Nanos(100_000));
    }
}
