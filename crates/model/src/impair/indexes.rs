//! Loss of numbered packets.

use alloc::sync::Arc;

use crate::behaviour::{Behaviour, LossLaw};
use crate::draw::Draws;
use crate::in_flight::{InFlight, Stream};
use crate::packet::DropCause;
use crate::spec::Effect;
use crate::stage::{EntryResult, Out, Stage, Timing};
use crate::time::Nanos;

/// Drops the originals with given numbers.
#[derive(Debug)]
pub(crate) struct Indexes {
    /// The numbers, in ascending order.
    all: Arc<[u64]>,
    /// The number of them that have passed.
    over: usize,
}

impl Indexes {
    pub(crate) fn new(_start: Nanos, _: Draws) -> Self {
        Self {
            all: Arc::default(),
            over: 0,
        }
    }
}

pub(crate) fn behaviour() -> Behaviour<'static> {
    Behaviour {
        loss: LossLaw::Numbered,
        timing: Timing::IN_ORDER,
        ..Behaviour::default()
    }
}

impl Stage for Indexes {
    fn enter(&mut self, at: Nanos, index: u64, t: &mut InFlight, _: &mut Out) -> EntryResult {
        if t.stream() == Stream::Copies {
            return EntryResult::Passes(at);
        }
        while self.all.get(self.over).is_some_and(|own| *own < index) {
            self.over += 1;
        }
        if self.all.get(self.over) == Some(&index) {
            EntryResult::Dropped(DropCause::Loss)
        } else {
            EntryResult::Passes(at)
        }
    }

    fn set(&mut self, _at: Nanos, effect: &Effect) {
        self.over = 0;
        self.all = match effect {
            Effect::Indexes(all) => all.clone(),
            _ => Arc::default(),
        };
    }
}
