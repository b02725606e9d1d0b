//! Loss by counting.

use core::num::NonZeroU32;

use crate::behaviour::{Behaviour, LossLaw};
use crate::draw::Draws;
use crate::in_flight::InFlight;
use crate::packet::DropCause;
use crate::spec::Effect;
use crate::stage::{EntryResult, Out, Stage, Timing};
use crate::time::Nanos;

/// Drops every n-th packet. Copies have a separate count, and every n-th of them is dropped.
#[derive(Debug)]
pub(crate) struct EveryNth {
    n: Option<NonZeroU32>,
}

impl EveryNth {
    pub(crate) fn new(_start: Nanos, _: Draws) -> Self {
        Self { n: None }
    }
}

pub(crate) fn behaviour(n: NonZeroU32) -> Behaviour<'static> {
    Behaviour {
        loss: LossLaw::EveryNth(n),
        timing: Timing::IN_ORDER,
        ..Behaviour::default()
    }
}

impl Stage for EveryNth {
    fn enter(&mut self, at: Nanos, index: u64, _: &mut InFlight, _: &mut Out) -> EntryResult {
        match self.n {
            Some(n) if (index + 1).is_multiple_of(u64::from(n.get())) => {
                EntryResult::Dropped(DropCause::Loss)
            }
            _ => EntryResult::Passes(at),
        }
    }

    fn set(&mut self, _at: Nanos, effect: &Effect) {
        self.n = match effect {
            Effect::EveryNth(n) => Some(*n),
            _ => None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_third_of_ten_is_dropped() {
        let mut stage = EveryNth::new(Nanos::ZERO, Draws::new(1, 0, "box.up.nth"));
        stage.set(Nanos::ZERO, &Effect::EveryNth(NonZeroU32::new(3).unwrap()));
        let mut is_dropped = |index| {
            let mut t = InFlight::for_test(100);
            stage.enter(Nanos(index), index, &mut t, &mut Out::default())
                == EntryResult::Dropped(DropCause::Loss)
        };
        let dropped: std::vec::Vec<u64> = (0..10).filter(|index| is_dropped(*index)).collect();
        assert_eq!(dropped, [2, 5, 8]);
    }
}
