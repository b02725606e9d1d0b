//! Where packets wait that passed a stage at a time that lies ahead.

use core::cmp::Ordering;

use alloc::collections::{BinaryHeap, VecDeque};

use crate::in_flight::InFlight;
use crate::time::Nanos;

/// Packets in the order of their times; those of one time in the order in which they came.
#[derive(Debug)]
pub(crate) struct Line {
    /// When the first of them goes on; [`Nanos::MAX`] if there is none.
    next: Nanos,
    in_order: VecDeque<(Nanos, u64, InFlight)>,
    /// What came after one with a later time.
    early: BinaryHeap<Early>,
    pushed: u64,
}

#[derive(Debug)]
struct Early(Nanos, u64, InFlight);

impl Line {
    pub(crate) fn push(&mut self, at: Nanos, t: InFlight) {
        self.pushed += 1;
        self.next = self.next.min(at);
        match self.in_order.back() {
            Some((last, ..)) if at < *last => self.early.push(Early(at, self.pushed, t)),
            _ => self.in_order.push_back((at, self.pushed, t)),
        }
    }

    /// When the first of them goes on.
    #[inline]
    pub(crate) fn next(&self) -> Option<Nanos> {
        (self.next != Nanos::MAX).then_some(self.next)
    }

    /// The first of them, with its time.
    pub(crate) fn pop(&mut self) -> Option<(Nanos, InFlight)> {
        let first = self.pop_first();
        let queued = self.in_order.front().map_or(Nanos::MAX, |queued| queued.0);
        let early = self.early.peek().map_or(Nanos::MAX, |early| early.0);
        self.next = queued.min(early);
        first
    }

    fn pop_first(&mut self) -> Option<(Nanos, InFlight)> {
        let queued = self.in_order.front().map(|(at, order, _)| (*at, *order));
        let is_early = |early: &Early| queued.is_none_or(|queued| (early.0, early.1) < queued);
        if self.early.peek().is_some_and(is_early) {
            return self.early.pop().map(|Early(at, _, t)| (at, t));
        }
        self.in_order.pop_front().map(|(at, _, t)| (at, t))
    }

    pub(crate) fn len(&self) -> usize {
        self.in_order.len() + self.early.len()
    }
}

impl Default for Line {
    fn default() -> Self {
        Self {
            next: Nanos::MAX,
            in_order: VecDeque::new(),
            early: BinaryHeap::new(),
            pushed: 0,
        }
    }
}

impl PartialEq for Early {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Early {}

impl PartialOrd for Early {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Early {
    /// The greatest is the first to go.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.0, other.1).cmp(&(self.0, self.1))
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
        fn a_line_equals_a_sorted_set(ops in prop::collection::vec(prop::option::weighted(0.6, 0u64..50), 1..300)) {
            let (mut line, mut set) = (Line::default(), BTreeSet::new());
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
