//! The packets that passed a stage with a time that lies ahead, until that time comes.

use core::cmp::Reverse;

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;

use crate::in_flight::InFlight;
use crate::time::Nanos;

/// Packets in the order of their times; those with equal times in the order in which they were added.
#[derive(Debug)]
pub(crate) struct TimedQueue {
    /// The time of the first packet; [`Nanos::MAX`] if there is none.
    next: Nanos,
    in_order: VecDeque<Place>,
    /// Packets that were added after one with a later time.
    early: BinaryHeap<Reverse<Place>>,
    pushed: u64,
    /// The packets themselves. They are large, so they stay where they are while their places are sorted.
    packets: Vec<InFlight>,
    /// The indexes of `packets` that are unused.
    free: Vec<u32>,
}

/// A packet's time, its number in the order of addition and its index, in one integer that needs one comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place(u128);

impl Place {
    /// The number of bits of an index: enough for more packets than memory holds.
    const SLOT: u32 = 28;

    /// Makes a place. `pushed` wraps after 2^36 packets; packets with equal times are never that far apart.
    fn new(at: Nanos, pushed: u64, slot: u32) -> Self {
        let behind = u128::from(pushed << Self::SLOT | u64::from(slot));
        Self(u128::from(at.0) << 64 | behind)
    }

    fn at(self) -> Nanos {
        Nanos((self.0 >> 64) as u64)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the lowest bits alone")]
    fn slot(self) -> u32 {
        self.0 as u32 & ((1 << Self::SLOT) - 1)
    }
}

impl TimedQueue {
    pub(crate) fn push(&mut self, at: Nanos, t: InFlight) {
        let slot = self.keep(t);
        self.pushed += 1;
        self.next = self.next.min(at);
        let place = Place::new(at, self.pushed, slot);
        match self.in_order.back() {
            Some(last) if at < last.at() => self.early.push(Reverse(place)),
            _ => self.in_order.push_back(place),
        }
    }

    fn keep(&mut self, t: InFlight) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.packets[slot as usize] = t;
            return slot;
        }
        self.packets.push(t);
        let slot = u32::try_from(self.packets.len() - 1).ok();
        slot.filter(|slot| slot >> Place::SLOT == 0)
            .expect("fewer packets than memory holds")
    }

    /// Returns the time of the first packet.
    #[inline]
    pub(crate) fn next(&self) -> Option<Nanos> {
        (self.next != Nanos::MAX).then_some(self.next)
    }

    /// Removes the first packet and returns it with its time.
    pub(crate) fn pop(&mut self) -> Option<(Nanos, InFlight)> {
        let first = self.pop_first()?;
        let queued = self.in_order.front().map_or(Nanos::MAX, |place| place.at());
        let early = self.early.peek().map_or(Nanos::MAX, |place| place.0.at());
        self.next = queued.min(early);
        let slot = first.slot();
        self.free.push(slot);
        Some((first.at(), self.packets[slot as usize]))
    }

    fn pop_first(&mut self) -> Option<Place> {
        let queued = self.in_order.front();
        match self.early.peek() {
            Some(Reverse(early)) if queued.is_none_or(|queued| early < queued) => {
                self.early.pop().map(|Reverse(early)| early)
            }
            _ => self.in_order.pop_front(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.in_order.len() + self.early.len()
    }
}

impl Default for TimedQueue {
    fn default() -> Self {
        Self {
            next: Nanos::MAX,
            in_order: VecDeque::new(),
            early: BinaryHeap::new(),
            pushed: 0,
            packets: Vec::new(),
            free: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::packet::PacketId;

    fn in_flight(id: u64) -> InFlight {
        let mut t = InFlight::for_test(100);
        t.packet.id = PacketId(id);
        t
    }

    proptest! {
        #[test]
        fn a_timed_queue_equals_a_sorted_set(ops in prop::collection::vec(prop::option::weighted(0.6, 0u64..50), 1..300)) {
            let (mut line, mut set) = (TimedQueue::default(), BTreeSet::new());
            for (id, op) in (0..).zip(ops) {
                match op {
                    Some(at) => {
                        line.push(Nanos(at), in_flight(id));
                        set.insert((Nanos(at), id));
                    }
                    None => {
                        prop_assert_eq!(line.next(), set.first().map(|first| first.0));
                        let popped = line.pop().map(|(at, t)| (at, t.packet.id.0));
                        prop_assert_eq!(popped, set.pop_first());
                    }
                }
                prop_assert_eq!(line.len(), set.len());
            }
        }
    }
}
