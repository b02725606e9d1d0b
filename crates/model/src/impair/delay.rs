//! Propagation delay.

use alloc::boxed::Box;
use alloc::vec;

use crate::behaviour::{Behaviour, Holding, SkipLaw};
use crate::counters::DelayStatistics;
use crate::draw::Draws;
use crate::impair::delay_accumulator::DelayAccumulator;
use crate::impair::jitter::Offsets;
use crate::impair::reorder::DelaySkips;
use crate::in_flight::InFlight;
use crate::packet::Flow;
use crate::spec::{Delay, Effect, Ordering, Reorder};
use crate::stage::{Departures, Entries, EntryResult, Out, Stage, Timing};
use crate::time::Nanos;
use crate::units::Bytes;

/// The number of places to which flows are hashed if each flow keeps its order.
const PLACES: usize = 4_096;

/// A propagation delay: a constant part, optionally a part that grows with the packet's length, optionally a random
/// part.
///
/// If the order is kept, a later packet never leaves before an earlier one of all packets or of its flow: due =
/// max(own, the previous packet's). Packets that skip the delay are the exception.
#[derive(Debug, Default)]
pub(crate) struct DelayLaw {
    law: Delay,
    offsets: Box<Offsets>,
    skips: DelaySkips,
    draws: Draws,
    /// The time at which the last of all packets that entered leaves.
    last: Nanos,
    /// The times at which the last packets of each place leave; empty unless each flow keeps its order.
    last_of_flows: Box<[Nanos]>,
    accumulator: DelayAccumulator,
}

impl DelayLaw {
    pub(crate) fn new(_start: Nanos, draws: Draws) -> Self {
        Self {
            skips: DelaySkips::new(draws.stream(1)),
            draws,
            ..Self::default()
        }
    }

    /// Returns the delay of a packet of `len` bytes without jitter.
    #[inline]
    fn mean(&self, len: Bytes) -> Nanos {
        let growing = self
            .law
            .by_size
            .map_or(Nanos::ZERO, |factor| factor.time_for(len));
        self.law.time + growing
    }

    /// Returns when a packet of `flow` leaves that would leave at `own` on its own.
    #[inline]
    fn leaves(&mut self, own: Nanos, flow: Flow) -> Nanos {
        self.last = self.last.max(own);
        match self.law.ordering {
            Ordering::Fifo => self.last,
            Ordering::Free => own,
            Ordering::PerFlow => {
                let last = &mut self.last_of_flows[flow.id as usize % PLACES];
                *last = (*last).max(own);
                *last
            }
        }
    }
}

impl Delay {
    pub(crate) fn behaviour(&self) -> Behaviour<'_> {
        let is_varied = self.jitter.is_some() || self.reorder.is_some();
        let half_life = self.jitter.as_ref().and_then(|jitter| jitter.half_life);
        let (entries, departures) = match self.ordering {
            // The packets that skip the delay are found by counting.
            _ if self.reorder.is_some() => (Entries::InOrder, Departures::AnyOrder),
            Ordering::Free if half_life.is_some() => (Entries::InOrder, Departures::AnyOrder),
            Ordering::Free => (Entries::AnyOrder, Departures::AnyOrder),
            Ordering::PerFlow => (Entries::InOrder, Departures::AnyOrder),
            Ordering::Fifo => (Entries::InOrder, Departures::LaterInOrder),
        };
        Behaviour {
            propagation: self.time,
            by_size: self.by_size,
            least_delay: if is_varied { Nanos::ZERO } else { self.time },
            skips: self.reorder.map(|Reorder { share, gap }| SkipLaw {
                share: share.into(),
                gap: gap.get(),
            }),
            reorders: departures == Departures::AnyOrder,
            varies: is_varied,
            holds: Holding::Temporarily,
            delay: Some(self),
            timing: Timing {
                entries,
                departures,
            },
            ..Behaviour::default()
        }
    }
}

impl Stage for DelayLaw {
    #[inline]
    fn enter(&mut self, at: Nanos, index: u64, t: &mut InFlight, _: &mut Out) -> EntryResult {
        if self.skips.hits(t.stream(), index) {
            return EntryResult::Passes(at);
        }
        let mean = self.mean(t.packet.len);
        if self.offsets.is_constant() {
            return EntryResult::Passes(self.leaves(at + mean, t.packet.flow));
        }
        let offset = self.offsets.next(at, self.draws, t.stream(), index);
        let own = at + Nanos(mean.0.saturating_add_signed(offset));
        let leaves = self.leaves(own, t.packet.flow);
        let is_clamped = offset < 0 && offset.unsigned_abs() > mean.0;
        self.accumulator.add(leaves - at, is_clamped);
        EntryResult::Passes(leaves)
    }

    fn set(&mut self, _at: Nanos, effect: &Effect) {
        let before = self.law.ordering;
        self.law = match effect {
            Effect::Delay(delay) => delay.clone(),
            _ => Delay::default(),
        };
        self.offsets.set(self.law.jitter.as_ref(), self.law.time);
        self.skips.set(self.law.reorder);
        if self.law.ordering == Ordering::PerFlow && before != Ordering::PerFlow {
            self.last_of_flows = vec![self.last; PLACES].into_boxed_slice();
        }
    }

    fn delays(&self) -> Option<DelayStatistics> {
        self.accumulator.statistics()
    }

    fn settled(&self, at: Nanos) -> bool {
        self.last <= at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Factor;

    #[test]
    fn a_short_packet_does_not_overtake_a_long_one() {
        let mut delay = DelayLaw::new(Nanos::ZERO, Draws::new(1, 0, "box.up.delay"));
        delay.set(
            Nanos::ZERO,
            &Effect::Delay(Delay {
                time: Nanos(100),
                by_size: Factor::new(1.0).ok(),
                ..Delay::default()
            }),
        );
        let mut due = |at, len| {
            let mut t = InFlight::for_test(len);
            delay.enter(Nanos(at), 0, &mut t, &mut Out::default())
        };
        assert_eq!(due(0, 10), EntryResult::Passes(Nanos(10_100)));
        assert_eq!(due(50, 1), EntryResult::Passes(Nanos(10_100)));
        assert_eq!(due(20_000, 1), EntryResult::Passes(Nanos(21_100)));
    }

    #[test]
    fn only_packets_of_one_flow_keep_their_order() {
        let mut delay = DelayLaw::new(Nanos::ZERO, Draws::new(1, 0, "box.up.delay"));
        let per_flow = |ordering| {
            Effect::Delay(Delay {
                by_size: Factor::new(1.0).ok(),
                ordering,
                ..Delay::default()
            })
        };
        delay.set(Nanos::ZERO, &per_flow(Ordering::PerFlow));
        let due = |delay: &mut DelayLaw, at, len, flow| {
            let mut t = InFlight::for_test(len);
            t.packet.flow.id = flow;
            match delay.enter(Nanos(at), 0, &mut t, &mut Out::default()) {
                EntryResult::Passes(due) => due.0,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(due(&mut delay, 0, 10, 1), 10_000);
        assert_eq!(due(&mut delay, 1, 1, 1), 10_000);
        assert_eq!(due(&mut delay, 2, 1, 2), 1_002);
        // Flows that share a place keep a common order.
        assert_eq!(due(&mut delay, 3, 1, 1 + 4_096), 10_000);
        // A packet that passed freely in the meantime is not overtaken by its flow, either.
        delay.set(Nanos(3), &per_flow(Ordering::Free));
        assert_eq!(due(&mut delay, 4, 20, 2), 20_004);
        delay.set(Nanos(4), &per_flow(Ordering::PerFlow));
        assert_eq!(due(&mut delay, 5, 1, 2), 20_004);
    }
}
