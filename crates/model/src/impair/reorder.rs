//! Packets that skip a delay.

use crate::draw::{Chance, Draws};
use crate::in_flight::Stream;
use crate::spec::Reorder;

/// Finds the packets that skip a delay; see [`Reorder`].
///
/// Originals and copies are counted separately, so that duplication changes nothing for originals.
#[derive(Debug, Default)]
pub(crate) struct DelaySkips {
    chance: Chance,
    gap: u32,
    /// The numbers of originals and of copies that have waited since the last one that did not.
    waited: [u32; 2],
    draws: Draws,
}

impl DelaySkips {
    pub(crate) fn new(draws: Draws) -> Self {
        Self {
            draws,
            ..Self::default()
        }
    }

    pub(crate) fn set(&mut self, law: Option<Reorder>) {
        self.chance = law.map_or(Chance::NEVER, |law| Chance::of(law.share));
        self.gap = law.map_or(0, |law| law.gap.get());
    }

    /// Returns whether packet number `index` of `stream` skips the delay.
    #[inline]
    pub(crate) fn hits(&mut self, stream: Stream, index: u64) -> bool {
        if self.gap == 0 {
            return false;
        }
        let waited = &mut self.waited[usize::from(stream == Stream::Copies)];
        let is_candidate = *waited >= self.gap - 1;
        if is_candidate && self.chance.hits(self.draws.of(stream).at(index)) {
            *waited = 0;
            return true;
        }
        *waited = waited.saturating_add(1);
        false
    }
}
