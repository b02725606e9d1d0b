//! The packets that wait to leave by one port, in the order in which they are due.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use model::{Nanos, PacketId};

/// A schedule of departures. A link that keeps order decides in order of due times, so a queue serves;
/// what is due before its end goes to a heap beside it. Packets due at one time leave in the order pushed.
#[derive(Debug, Default)]
pub(crate) struct Departures {
    in_order: VecDeque<(Nanos, u64, PacketId)>,
    early: BinaryHeap<Reverse<(Nanos, u64, PacketId)>>,
    pushed: u64,
}

impl Departures {
    pub(crate) fn push(&mut self, due: Nanos, id: PacketId) {
        let entry = (due, self.pushed, id);
        self.pushed += 1;
        match self.in_order.back() {
            Some((last, ..)) if due < *last => self.early.push(Reverse(entry)),
            _ => self.in_order.push_back(entry),
        }
    }

    pub(crate) fn next_due(&self) -> Option<Nanos> {
        Some(self.get(0)?.0)
    }

    /// The entry `ahead` places from the front; past the first only as far as the front is in order.
    pub(crate) fn get(&self, ahead: usize) -> Option<(Nanos, PacketId)> {
        let queued = self.in_order.get(ahead);
        match self.early.peek() {
            Some(Reverse(early)) if ahead == 0 && queued.is_none_or(|q| early < q) => {
                Some((early.0, early.2))
            }
            Some(Reverse(early)) if queued.is_some_and(|q| early < q) => None,
            _ => queued.map(|(due, _, id)| (*due, *id)),
        }
    }

    pub(crate) fn pop(&mut self) -> Option<(Nanos, PacketId)> {
        let early = match (self.early.peek(), self.in_order.front()) {
            (Some(Reverse(early)), Some(queued)) => early < queued,
            (Some(_), None) => true,
            (None, _) => false,
        };
        let (due, _, id) = if early {
            self.early.pop()?.0
        } else {
            self.in_order.pop_front()?
        };
        Some((due, id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_schedule_equals_a_heap(ops in prop::collection::vec(prop::option::weighted(0.6, 0u64..50), 1..300)) {
            let mut schedule = Departures::default();
            let mut heap = BinaryHeap::new();
            for (n, op) in (0..).zip(ops) {
                if let Some(due) = op {
                    schedule.push(Nanos(due), PacketId(n));
                    heap.push(Reverse((Nanos(due), n)));
                } else {
                    let expected = heap.pop().map(|Reverse((due, n))| (due, PacketId(n)));
                    prop_assert_eq!(schedule.get(0), expected);
                    prop_assert_eq!(schedule.pop(), expected);
                }
            }
        }
    }
}
