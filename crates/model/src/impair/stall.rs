//! A link that stalls for a while in every period.

use crate::behaviour::{Behaviour, Holding};
use crate::draw::Draws;
use crate::in_flight::InFlight;
use crate::spec::{Effect, Stall};
use crate::stage::{Departures, Entries, EntryResult, Out, Stage, Timing};
use crate::time::Nanos;

/// Holds the packets that come during a stall until its end, in order; see [`Stall`].
#[derive(Debug)]
pub(crate) struct StallStage {
    start: Nanos,
    stall: Stall,
    /// The time at which the last of all packets that entered leaves.
    last: Nanos,
}

impl StallStage {
    pub(crate) fn new(start: Nanos, _: Draws) -> Self {
        Self {
            start,
            stall: Stall::default(),
            last: start,
        }
    }

    /// Returns the remaining time of a stall that holds a packet at `at`; 0 if there is none.
    fn remaining(&self, at: Nanos) -> Nanos {
        let Stall { every, lasts } = self.stall;
        match at.0.saturating_sub(self.start.0).checked_rem(every.0) {
            Some(phase) if every.0 - phase <= lasts.0 => Nanos(every.0 - phase),
            Some(_) | None => Nanos::ZERO,
        }
    }
}

impl Stall {
    pub(crate) fn behaviour(&self) -> Behaviour<'static> {
        Behaviour {
            varies: true,
            holds: Holding::Temporarily,
            timing: Timing {
                entries: Entries::InOrder,
                departures: Departures::LaterInOrder,
            },
            ..Behaviour::default()
        }
    }
}

impl Stage for StallStage {
    fn enter(&mut self, at: Nanos, _: u64, _: &mut InFlight, _: &mut Out) -> EntryResult {
        self.last = self.last.max(at + self.remaining(at));
        EntryResult::Passes(self.last)
    }

    fn set(&mut self, _at: Nanos, effect: &Effect) {
        self.stall = match effect {
            Effect::Stall(stall) => *stall,
            _ => Stall::default(),
        };
    }

    fn settled(&self, at: Nanos) -> bool {
        self.last <= at
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    /// Returns when packets leave that come at these times to a link that starts at 1,000.
    fn leave(stall: Stall, times: &[u64]) -> Vec<u64> {
        let draws = Draws::new(1, 0, "box.up.stall");
        let mut stage = StallStage::new(Nanos(1_000), draws);
        stage.set(Nanos(1_000), &Effect::Stall(stall));
        let mut enter = |at: u64| {
            let mut t = InFlight::for_test(100);
            match stage.enter(Nanos(at), 0, &mut t, &mut Out::default()) {
                EntryResult::Passes(leaves) => leaves.0,
                other => panic!("{other:?}"),
            }
        };
        times.iter().map(|at| enter(*at)).collect()
    }

    #[test]
    fn the_last_part_of_every_period_holds_packets_until_its_end() {
        let stall = Stall {
            every: Nanos(100),
            lasts: Nanos(30),
        };
        assert_eq!(
            leave(stall, &[1_000, 1_069, 1_070, 1_099, 1_100, 1_171]),
            [1_000, 1_069, 1_100, 1_100, 1_100, 1_200]
        );
    }

    #[test]
    fn a_stall_of_a_whole_period_releases_packets_once_per_period_and_a_period_of_zero_never_stalls()
     {
        let whole = Stall {
            every: Nanos(100),
            lasts: Nanos(100),
        };
        assert_eq!(leave(whole, &[1_000, 1_099, 1_101]), [1_100, 1_100, 1_200]);
        let never = Stall {
            every: Nanos::ZERO,
            lasts: Nanos(30),
        };
        assert_eq!(leave(never, &[1_000, 1_099]), [1_000, 1_099]);
    }

    #[test]
    fn packets_keep_their_order_when_a_stall_is_removed() {
        let mut stage = StallStage::new(Nanos::ZERO, Draws::new(1, 0, "box.up.stall"));
        let stall = Stall {
            every: Nanos(100),
            lasts: Nanos(50),
        };
        stage.set(Nanos::ZERO, &Effect::Stall(stall));
        let enter = |stage: &mut StallStage, at| {
            let mut t = InFlight::for_test(100);
            stage.enter(Nanos(at), 0, &mut t, &mut Out::default())
        };
        assert_eq!(enter(&mut stage, 60), EntryResult::Passes(Nanos(100)));
        stage.set(Nanos(70), &Effect::Nothing);
        assert_eq!(enter(&mut stage, 80), EntryResult::Passes(Nanos(100)));
        assert!(!stage.settled(Nanos(99)) && stage.settled(Nanos(100)));
    }
}
