//! Corruption.

use crate::draw::{Chance, Draws};
use crate::in_flight::InFlight;
use crate::packet::Edit;
use crate::spec::Effect;
use crate::stage::{Entered, Out, Stage};
use crate::time::Nanos;

/// One bit of a packet is flipped, with a probability; which one is drawn too.
#[derive(Debug)]
pub(crate) struct Corrupt {
    chance: Chance,
    hits: Draws,
    bits: Draws,
}

impl Corrupt {
    pub(crate) fn new(_start: Nanos, draws: Draws) -> Self {
        Self {
            chance: Chance::NEVER,
            hits: draws,
            bits: draws.stream(1),
        }
    }
}

impl Stage for Corrupt {
    fn enter(&mut self, at: Nanos, index: u64, t: &mut InFlight, _: &mut Out) -> Entered {
        let stream = t.stream();
        if self.chance.hits(self.hits.of(stream).at(index)) {
            let [.., a, b, c, d] = self.bits.of(stream).at(index).to_le_bytes();
            t.edit = Some(Edit::FlipBit(u32::from_le_bytes([a, b, c, d])));
        }
        Entered::Passes(at)
    }

    fn set(&mut self, _at: Nanos, effect: &Effect) {
        self.chance = match effect {
            Effect::Corrupt(probability) => Chance::of(*probability),
            _ => Chance::NEVER,
        };
    }
}
