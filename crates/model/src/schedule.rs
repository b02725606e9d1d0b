//! The clock of a link's schedules and traces: it runs, stops or jumps to another time, while the link's own time goes on.

use crate::time::Nanos;

/// The relation of the schedules' time to the link's time, which counts from its start. At first both are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleClock {
    /// It runs.
    Running {
        /// The time of the link from which on it runs.
        since: Nanos,
        /// The time of the schedules at that moment.
        from: Nanos,
    },
    /// It is stopped.
    Stopped {
        /// The time of the schedules at which it stopped.
        at: Nanos,
    },
}

/// A change of the schedules' clock; by default it changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScheduleOrder {
    /// Whether the clock runs from now on; `None` leaves that as it is.
    pub runs: Option<bool>,
    /// The time to which the clock jumps; `None` keeps its time.
    pub to: Option<Nanos>,
}

impl ScheduleClock {
    /// Returns whether it runs.
    #[must_use]
    pub const fn is_running(self) -> bool {
        matches!(self, Self::Running { .. })
    }

    /// Returns the schedules' time at a time of the link.
    #[must_use]
    pub fn at(self, link: Nanos) -> Nanos {
        match self {
            Self::Running { since, from } => from + (link - since),
            Self::Stopped { at } => at,
        }
    }

    /// Returns the link's time at which an entry that a schedule has for `step` takes effect: 0 if it already has,
    /// [`Nanos::MAX`] if it never will.
    #[must_use]
    pub fn link_time(self, step: Nanos) -> Nanos {
        match self {
            Self::Running { from, .. } if step <= from => Nanos::ZERO,
            Self::Running { since, from } => since + (step - from),
            Self::Stopped { at } if step <= at => Nanos::ZERO,
            Self::Stopped { .. } => Nanos::MAX,
        }
    }

    /// Returns the clock after `order` was carried out at `link`, a time of the link.
    #[must_use]
    pub fn ordered(self, link: Nanos, order: ScheduleOrder) -> Self {
        let runs = order.runs.unwrap_or(self.is_running());
        if order.to.is_none() && runs == self.is_running() {
            return self;
        }
        let at = order.to.unwrap_or_else(|| self.at(link));
        if runs {
            Self::Running {
                since: link,
                from: at,
            }
        } else {
            Self::Stopped { at }
        }
    }
}

impl Default for ScheduleClock {
    fn default() -> Self {
        Self::Running {
            since: Nanos::ZERO,
            from: Nanos::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Nanos {
        Nanos::from_millis(millis)
    }

    fn order(runs: Option<bool>, to: Option<u64>) -> ScheduleOrder {
        ScheduleOrder {
            runs,
            to: to.map(ms),
        }
    }

    #[test]
    fn at_first_schedules_have_the_time_of_the_link() {
        let clock = ScheduleClock::default();
        assert_eq!(clock.at(ms(7)), ms(7));
        assert_eq!(clock.link_time(ms(7)), ms(7));
    }

    #[test]
    fn a_stopped_clock_continues_where_it_stopped() {
        let stopped = ScheduleClock::default().ordered(ms(300), order(Some(false), None));
        assert_eq!(stopped, ScheduleClock::Stopped { at: ms(300) });
        assert_eq!(stopped.at(ms(900)), ms(300));
        assert_eq!(
            stopped.link_time(ms(300)),
            Nanos::ZERO,
            "what is over stays in force"
        );
        assert_eq!(stopped.link_time(ms(301)), Nanos::MAX, "nothing comes");
        let again = stopped.ordered(ms(1_000), order(Some(true), None));
        assert_eq!(again.at(ms(1_000)), ms(300));
        assert_eq!(again.link_time(ms(300)), Nanos::ZERO);
        assert_eq!(again.link_time(ms(350)), ms(1_050));
    }

    #[test]
    fn a_clock_jumps_and_stays_stopped_if_it_was() {
        let ahead = ScheduleClock::default().ordered(ms(100), order(None, Some(10_000)));
        assert_eq!(ahead.link_time(ms(10_000)), Nanos::ZERO);
        assert_eq!(ahead.link_time(ms(10_001)), ms(101));
        let back = ahead.ordered(ms(200), order(None, Some(0)));
        assert_eq!(back.link_time(ms(5)), ms(205));
        let stopped = back.ordered(ms(300), order(Some(false), Some(50)));
        assert_eq!(stopped, ScheduleClock::Stopped { at: ms(50) });
        let moved = stopped.ordered(ms(400), order(None, Some(60)));
        assert_eq!(moved, ScheduleClock::Stopped { at: ms(60) });
    }

    #[test]
    fn an_empty_order_changes_nothing() {
        let running = ScheduleClock::Running {
            since: ms(5),
            from: ms(40),
        };
        for clock in [running, ScheduleClock::Stopped { at: ms(7) }] {
            let same = order(Some(clock.is_running()), None);
            for none in [ScheduleOrder::default(), same] {
                assert_eq!(clock.ordered(ms(100), none), clock);
            }
        }
    }
}
