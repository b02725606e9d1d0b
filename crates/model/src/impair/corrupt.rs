//! Corruption of packets.

use core::num::NonZeroU8;

use crate::behaviour::{Behaviour, Damage};
use crate::draw::{Chance, Draws};
use crate::in_flight::InFlight;
use crate::packet::Edit;
use crate::spec::{Corruption, Effect};
use crate::stage::{EntryResult, Out, Stage};
use crate::time::Nanos;

/// Flips bits of a packet with a probability; the choice of the bits is drawn, too.
#[derive(Debug)]
pub(crate) struct Corrupt {
    chance: Chance,
    bits: NonZeroU8,
    repair: bool,
    hits: Draws,
    places: Draws,
}

impl Corrupt {
    pub(crate) fn new(_start: Nanos, draws: Draws) -> Self {
        Self {
            chance: Chance::NEVER,
            bits: NonZeroU8::MIN,
            repair: false,
            hits: draws,
            places: draws.stream(1),
        }
    }
}

impl Corruption {
    pub(crate) fn behaviour(&self) -> Behaviour<'static> {
        Behaviour {
            damage: Some(Damage {
                share: self.share.into(),
                repaired: self.repair,
            }),
            ..Behaviour::default()
        }
    }
}

impl Stage for Corrupt {
    fn enter(&mut self, at: Nanos, index: u64, t: &mut InFlight, _: &mut Out) -> EntryResult {
        let stream = t.stream();
        if self.chance.hits(self.hits.of(stream).at(index)) {
            let [.., a, b, c, d] = self.places.of(stream).at(index).to_le_bytes();
            t.edit = Some(Edit::FlipBits {
                first: u32::from_le_bytes([a, b, c, d]),
                count: self.bits,
                repair: self.repair,
            });
        }
        EntryResult::Passes(at)
    }

    fn set(&mut self, _at: Nanos, effect: &Effect) {
        self.chance = Chance::NEVER;
        if let Effect::Corrupt(law) = effect {
            self.chance = Chance::of(law.share);
            (self.bits, self.repair) = (law.bits, law.repair);
        }
    }
}
