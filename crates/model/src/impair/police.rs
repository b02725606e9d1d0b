//! A policer: packets that exceed a rate and a burst are dropped, and no packet waits.

use crate::behaviour::{Behaviour, LossLaw};
use crate::draw::Draws;
use crate::in_flight::InFlight;
use crate::packet::DropCause;
use crate::queue::bucket::Bucket;
use crate::queue::constant::WORK_PER_BYTE;
use crate::spec::{Effect, Police};
use crate::stage::{EntryResult, Out, Stage, Timing};
use crate::time::Nanos;

/// Drops packets for which a token bucket holds too little, like tc's police action with one rate. Copies count like
/// originals.
#[derive(Debug)]
pub(crate) struct Policer {
    bucket: Option<Bucket>,
}

impl Policer {
    pub(crate) fn new(_start: Nanos, _draws: Draws) -> Self {
        Self { bucket: None }
    }
}

impl Police {
    /// Packets must enter in order, because the first one takes the tokens.
    pub(crate) fn behaviour(&self) -> Behaviour<'static> {
        Behaviour {
            loss: LossLaw::FasterThan(self.rate),
            timing: Timing::IN_ORDER,
            ..Behaviour::default()
        }
    }
}

impl Stage for Policer {
    #[inline]
    fn enter(&mut self, at: Nanos, _: u64, t: &mut InFlight, _: &mut Out) -> EntryResult {
        let work = u128::from(t.packet.len.0) * WORK_PER_BYTE;
        let bucket = self.bucket.as_mut();
        if bucket.is_none_or(|bucket| bucket.take(at, work)) {
            EntryResult::Passes(at)
        } else {
            EntryResult::Dropped(DropCause::Policed)
        }
    }

    /// Takes over the parameters. A new bucket is full; a changed one keeps what it holds, as far as it fits.
    fn set(&mut self, at: Nanos, effect: &Effect) {
        let Effect::Police(police) = effect else {
            self.bucket = None;
            return;
        };
        let bucket = Bucket::new(police.rate, police.burst, at);
        self.bucket = Some(match &self.bucket {
            Some(before) => bucket.following(before, at),
            None => bucket,
        });
    }
}
