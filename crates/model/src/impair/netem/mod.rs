//! Linux's netem, packet by packet in the order of `netem_enqueue` and `netem_dequeue` (`net/sched/sch_netem.c`, 6.1).
//!
//! Only its random numbers differ from the kernel's: they are this model's keyed draws, reduced to 32 bits. All
//! packets, copies included, share its chains and the counter of its gap, as in the kernel.

mod crandom;
mod delay;
mod loss;
mod slot;
mod tables;

use alloc::boxed::Box;
use core::mem;
use core::num::NonZeroU8;

use crate::behaviour::{Behaviour, Bottleneck, Damage, Holding, LossLaw, SkipLaw};
use crate::counters::DelayStatistics;
use crate::draw::Draws;
use crate::impair::delay_accumulator::DelayAccumulator;
use crate::in_flight::InFlight;
use crate::packet::{DropCause, Edit};
use crate::spec::{Effect, Netem, NetemLoss, NetemRate};
use crate::stage::{EntryResult, Out, Stage, Timing};
use crate::time::Nanos;
use crate::timed_queue::TimedQueue;
use crate::units::{Probability, QueueLimit};

use self::crandom::{Crandom, Key, Purpose, ShareDraw};
use self::delay::DelayDraw;
use self::loss::LossModel;
use self::slot::NetemSlots;

/// One netem: its options, and the packets that it holds in the order in which they are due (the kernel's tfifo).
#[derive(Debug, Default)]
pub(crate) struct NetemStage {
    start: Nanos,
    draws: Draws,
    spec: Box<Netem>,
    duplicate: ShareDraw,
    loss: LossModel,
    corrupt: ShareDraw,
    bits: Draws,
    reorder: ShareDraw,
    /// The gap; 0 if no packet is reordered.
    gap: u32,
    /// The number of packets that were delayed since one was not.
    counter: u32,
    delay: DelayDraw,
    rate: Option<NetemRate>,
    slots: Option<Box<NetemSlots>>,
    held: TimedQueue,
    /// The time at which the last of the held packets is due.
    last: Nanos,
    longest: usize,
    /// Statistics of the delays that it gave, if they vary.
    accumulator: DelayAccumulator,
    /// The time of the latest call; a packet that is due earlier leaves now.
    now: Nanos,
    /// Whether the copy that it just made enters next.
    copies: bool,
}

/// The options after a netem was removed: held packets keep their times, and new packets pass.
const NOTHING: Netem = Netem {
    limit: u32::MAX,
    ..Netem::PLAIN
};

impl NetemStage {
    pub(crate) fn new(start: Nanos, draws: Draws) -> Self {
        Self {
            start,
            draws,
            spec: Box::new(NOTHING),
            bits: draws,
            ..Self::default()
        }
    }

    /// Returns whether a packet is lost and cannot be marked instead.
    fn loses(&mut self, key: Key, t: &mut InFlight) -> bool {
        self.loss.loses(key) && !(self.spec.ecn && t.mark())
    }

    /// Handles duplication and loss; returns whether `t` passes. A packet that is not lost is copied; one that is both
    /// copied and lost passes once.
    fn passes_duplication_and_loss(
        &mut self,
        at: Nanos,
        key: Key,
        t: &mut InFlight,
        out: &mut Out,
    ) -> bool {
        let is_doubled = self.duplicate.hits(key);
        let is_lost = self.loses(key, t);
        if !is_doubled || is_lost {
            return is_doubled || !is_lost;
        }
        self.copies = true;
        out.copy_again(at, *t);
        // In the kernel, the copy goes first and meets loss once more. The two packets are equal, so here the original
        // takes that place.
        !self.loses(Key { again: true, ..key }, t)
    }

    /// Returns when `t` is due, which came at `at` and is not reordered.
    fn due(&mut self, at: Nanos, key: Key, t: &InFlight) -> Nanos {
        self.counter = self.counter.wrapping_add(1);
        let due = Nanos(at.0.saturating_add_signed(self.delay.draw(key)));
        match &self.rate {
            None => due,
            Some(rate) => {
                let behind = self.held.next().map_or(due, |_| due.max(self.last));
                behind + rate.time_for(t.packet.len)
            }
        }
    }

    fn hold(&mut self, at: Nanos, due: Nanos, t: &InFlight, out: &mut Out) -> EntryResult {
        let first = self.held.next();
        if self.slots.is_none() && due <= at && first.is_none_or(|first| first > at) {
            return EntryResult::Passes(at);
        }
        self.last = first.map_or(due, |_| self.last.max(due));
        self.held.push(due, *t);
        self.longest = self.longest.max(self.held.len());
        self.serve_slots(at, out);
        EntryResult::Taken
    }

    /// If packets leave in slots, makes those leave that are due and fit into the slot that has come.
    fn serve_slots(&mut self, at: Nanos, out: &mut Out) {
        let Some(slots) = &mut self.slots else {
            return;
        };
        while let Some(due) = self.held.next() {
            if !slots.is_open(at, due) {
                break;
            }
            if let Some((_, t)) = self.held.pop() {
                slots.count_departure(at, t.packet.len);
                out.pass(at, t);
            }
        }
    }
}

impl Netem {
    pub(crate) fn behaviour(&self) -> Behaviour<'_> {
        let varies = self.jitter > Nanos::ZERO || self.reorder.is_some();
        let loss = match &self.loss {
            NetemLoss::Nothing => LossLaw::Never,
            NetemLoss::Random(share) => LossLaw::Random(*share),
            NetemLoss::State(law) => LossLaw::Bursts(law.long_run()),
            NetemLoss::Gemodel(law) => LossLaw::Bursts(law.long_run()),
        };
        Behaviour {
            loss,
            marks: self.ecn,
            copies: self.duplicate,
            damage: self.corrupt.map(|share| Damage {
                share,
                repaired: false,
            }),
            propagation: self.delay,
            skips: self.reorder.map(|share| SkipLaw {
                share,
                gap: self.gap.max(1),
            }),
            reorders: varies,
            varies: varies || self.slot.is_some(),
            holds: Holding::Temporarily,
            room: Some(QueueLimit::Packets(self.limit)),
            bottleneck: self.rate.map(Bottleneck::Netem),
            netem: Some(self),
            timing: Timing::NOW,
            ..Behaviour::default()
        }
    }
}

impl Stage for NetemStage {
    fn enter(&mut self, at: Nanos, index: u64, t: &mut InFlight, out: &mut Out) -> EntryResult {
        self.now = at;
        let key = Key {
            stream: t.stream(),
            index,
            again: false,
        };
        let is_copy = mem::take(&mut self.copies);
        if !is_copy && !self.passes_duplication_and_loss(at, key, t, out) {
            return EntryResult::Dropped(DropCause::Loss);
        }
        if self.corrupt.hits(key) {
            let [a, b, c, d, ..] = self.bits.of(key.stream).at(index).to_le_bytes();
            t.edit = Some(Edit::FlipBits {
                first: u32::from_le_bytes([a, b, c, d]),
                count: NonZeroU8::MIN,
                repair: false,
            });
        }
        if self.held.len() >= self.spec.limit as usize {
            return EntryResult::Dropped(DropCause::QueueFull);
        }
        if self.gap > 0 && self.counter >= self.gap - 1 && self.reorder.hits(key) {
            self.counter = 0;
            return EntryResult::Passes(at);
        }
        let due = self.due(at, key, t);
        if self.spec.jitter > Nanos::ZERO {
            self.accumulator.add(due.max(at) - at, due < at);
        }
        self.hold(at, due, t, out)
    }

    fn wake(&mut self, at: Nanos, out: &mut Out) -> Option<InFlight> {
        self.now = at;
        if self.slots.is_none() {
            return self.held.pop().map(|(_, t)| t);
        }
        self.serve_slots(at, out);
        None
    }

    #[inline]
    fn next(&self) -> Option<Nanos> {
        let due = self.held.next()?;
        let slot = self
            .slots
            .as_ref()
            .map_or(Nanos::ZERO, |slots| slots.next());
        Some(due.max(slot).max(self.now))
    }

    fn set(&mut self, at: Nanos, effect: &Effect) {
        let spec = match effect {
            Effect::Netem(netem) => **netem,
            _ => NOTHING,
        };
        if spec == *self.spec {
            return;
        }
        let at = at.max(self.start);
        let seeded = |seed| self.draws.stream(Purpose::SEEDED).stream(seed);
        let draws = spec.seed.map_or(self.draws, seeded);
        let crandom = |purpose, correlation| Crandom::new(draws, purpose, correlation);
        let hits = |purpose, share| ShareDraw::new(draws, purpose, share);
        self.duplicate = ShareDraw::of(
            spec.duplicate.map(|of| of.share),
            crandom(Purpose::Duplicate, spec.duplicate_correlation()),
        );
        self.loss = LossModel::new(&spec.loss, draws);
        self.corrupt = hits(Purpose::Corrupt, spec.corrupt);
        self.bits = draws.stream(Purpose::Bit as u64);
        self.reorder = hits(Purpose::Reorder, spec.reorder);
        self.gap = match spec.reorder {
            Some(of) if of.share > Probability::ZERO => spec.gap.max(1),
            _ => 0,
        };
        self.counter = 0;
        let delay = crandom(Purpose::Delay, spec.delay_correlation);
        self.delay
            .set([spec.delay, spec.jitter], spec.distribution, delay);
        self.rate = spec.rate;
        let slots = spec.slot.and_then(|slot| NetemSlots::new(&slot, at, draws));
        self.slots = slots.map(Box::new);
        self.now = self.now.max(at);
        *self.spec = spec;
    }

    fn delays(&self) -> Option<DelayStatistics> {
        self.accumulator.statistics()
    }

    fn held(&self) -> usize {
        self.held.len()
    }

    fn longest_queue(&self) -> usize {
        self.longest
    }
}
