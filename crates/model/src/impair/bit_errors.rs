//! Loss by bit errors.

use crate::behaviour::{Behaviour, LossLaw};
use crate::draw::{Chance, Draws};
use crate::in_flight::InFlight;
use crate::packet::DropCause;
use crate::spec::{BitErrorRate, Effect};
use crate::stage::{EntryResult, Out, Stage};
use crate::time::Nanos;

/// Loses a frame if one of its bits is wrong, so that longer frames are lost more often; see [`BitErrorRate`].
#[derive(Debug)]
pub(crate) struct BitErrors {
    rate: BitErrorRate,
    draws: Draws,
}

impl BitErrors {
    pub(crate) fn new(_start: Nanos, draws: Draws) -> Self {
        Self {
            rate: BitErrorRate::ZERO,
            draws,
        }
    }
}

impl BitErrorRate {
    pub(crate) fn behaviour(self) -> Behaviour<'static> {
        Behaviour {
            loss: LossLaw::BitErrors(self),
            ..Behaviour::default()
        }
    }
}

impl Stage for BitErrors {
    fn enter(&mut self, at: Nanos, index: u64, t: &mut InFlight, _: &mut Out) -> EntryResult {
        let draw = self.draws.of(t.stream()).at(index);
        if Chance::of(self.rate.loss(t.packet.len)).hits(draw) {
            EntryResult::Dropped(DropCause::Loss)
        } else {
            EntryResult::Passes(at)
        }
    }

    fn set(&mut self, _at: Nanos, effect: &Effect) {
        self.rate = match effect {
            Effect::BitErrors(rate) => *rate,
            _ => BitErrorRate::ZERO,
        };
    }
}
