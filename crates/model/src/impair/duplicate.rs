//! Duplication of packets.

use crate::behaviour::Behaviour;
use crate::draw::{Chance, Draws};
use crate::in_flight::InFlight;
use crate::spec::{Duplication, Effect};
use crate::stage::{Departures, EntryResult, Out, Stage, Timing};
use crate::time::Nanos;

/// Has each packet followed by a copy with a probability, immediately or later. Copies are copied, too, by separate
/// draws.
#[derive(Debug)]
pub(crate) struct Duplicate {
    chance: Chance,
    delay: Nanos,
    draws: Draws,
}

impl Duplicate {
    pub(crate) fn new(_start: Nanos, draws: Draws) -> Self {
        Self {
            chance: Chance::NEVER,
            delay: Nanos::ZERO,
            draws,
        }
    }
}

impl Duplication {
    pub(crate) fn behaviour(&self) -> Behaviour<'static> {
        let is_late = self.delay > Nanos::ZERO;
        Behaviour {
            copies: Some(self.share.into()),
            reorders: is_late,
            timing: Timing {
                departures: if is_late {
                    Departures::AnyOrder
                } else {
                    Departures::Immediate
                },
                ..Timing::NONE
            },
            ..Behaviour::default()
        }
    }
}

impl Stage for Duplicate {
    fn enter(&mut self, at: Nanos, index: u64, t: &mut InFlight, out: &mut Out) -> EntryResult {
        if self.chance.hits(self.draws.of(t.stream()).at(index)) {
            out.copy(at + self.delay, *t);
        }
        EntryResult::Passes(at)
    }

    fn set(&mut self, _at: Nanos, effect: &Effect) {
        let law = match effect {
            Effect::Duplicate(law) => *law,
            _ => Duplication::default(),
        };
        self.chance = Chance::of(law.share);
        self.delay = law.delay;
    }
}
