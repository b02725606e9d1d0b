//! Duplication.

use crate::draw::{Chance, Draws};
use crate::in_flight::InFlight;
use crate::spec::Effect;
use crate::stage::{Entered, Out, Stage};
use crate::time::Nanos;

/// Each packet is followed at once by a copy, with a probability. Copies are copied too, by draws of their own.
#[derive(Debug)]
pub(crate) struct Duplicate {
    chance: Chance,
    draws: Draws,
}

impl Duplicate {
    pub(crate) fn new(_start: Nanos, draws: Draws) -> Self {
        Self {
            chance: Chance::NEVER,
            draws,
        }
    }
}

impl Stage for Duplicate {
    fn enter(&mut self, at: Nanos, index: u64, t: &mut InFlight, out: &mut Out) -> Entered {
        if self.chance.hits(self.draws.of(t.stream()).at(index)) {
            out.copy(at, *t);
        }
        Entered::Passes(at)
    }

    fn set(&mut self, _at: Nanos, effect: &Effect) {
        self.chance = match effect {
            Effect::Duplicate(probability) => Chance::of(*probability),
            _ => Chance::NEVER,
        };
    }
}
