//! The packets that wait to leave through one port, in the order of their due times.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::num::NonZeroU8;

use model::{Edit, Nanos, PacketId};

/// A schedule of departures. If a link keeps the order of packets, its decisions come in the order
/// of due times and a queue suffices. Packets that are due before the last one in the queue go into
/// a heap. Packets with the same due time leave in the order in which they were pushed.
#[derive(Debug, Default)]
pub(crate) struct Departures {
    in_order: VecDeque<QueuedDeparture>,
    early: BinaryHeap<Reverse<QueuedDeparture>>,
    pushed: u64,
}

/// A packet that waits to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScheduledDeparture {
    /// The time at which the packet is due.
    pub(crate) due: Nanos,
    /// The identifier of the packet.
    pub(crate) id: PacketId,
    /// The changes to the packet.
    pub(crate) changes: Changes,
}

/// The differences between a packet that leaves and the one that arrived. The type takes only eight
/// bytes, because every scheduled departure has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Changes {
    /// The packet is a copy that the link made.
    pub(crate) is_copy: bool,
    /// The packet gets a congestion mark.
    pub(crate) is_marked: bool,
    /// The checksum is corrected after flipping bits.
    is_repaired: bool,
    /// The number of flipped bits, and the number that selects them.
    flipped: u8,
    first: u32,
}

/// An entry of the schedule, ordered by due time and then by a unique sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct QueuedDeparture {
    due: Nanos,
    pushed: u64,
    id: PacketId,
    changes: Changes,
}

impl Changes {
    /// No changes.
    pub(crate) const NONE: Self = Self {
        is_copy: false,
        is_marked: false,
        is_repaired: false,
        flipped: 0,
        first: 0,
    };

    pub(crate) fn new(copy: u32, is_marked: bool, edit: Option<Edit>) -> Self {
        let mut changes = Self {
            is_copy: copy != 0,
            is_marked,
            ..Self::NONE
        };
        if let Some(Edit::FlipBits {
            first,
            count,
            repair,
        }) = edit
        {
            changes.is_repaired = repair;
            (changes.flipped, changes.first) = (count.get(), first);
        }
        changes
    }

    pub(crate) fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// Returns the words that logs and captures use.
    pub(crate) fn words(self) -> impl Iterator<Item = &'static str> {
        let all = [
            (self.is_copy, "copy"),
            (self.is_marked, "marked"),
            (self.flipped > 0, "corrupted"),
        ];
        let those = all.into_iter().filter(|(applies, _)| *applies);
        those.map(|(_, word)| word)
    }

    /// Returns the change to the packet's bytes, apart from a congestion mark.
    pub(crate) fn edit(self) -> Option<Edit> {
        Some(Edit::FlipBits {
            first: self.first,
            count: NonZeroU8::new(self.flipped)?,
            repair: self.is_repaired,
        })
    }
}

impl Departures {
    pub(crate) fn push(&mut self, ScheduledDeparture { due, id, changes }: ScheduledDeparture) {
        let entry = QueuedDeparture {
            due,
            pushed: self.pushed,
            id,
            changes,
        };
        self.pushed += 1;
        match self.in_order.back() {
            Some(last) if due < last.due => self.early.push(Reverse(entry)),
            _ => self.in_order.push_back(entry),
        }
    }

    pub(crate) fn next_due(&self) -> Option<Nanos> {
        Some(self.get(0)?.due)
    }

    /// Returns the departure at position `ahead` from the front. Beyond position 0, it is returned
    /// only if it leaves before every departure in the heap.
    pub(crate) fn get(&self, ahead: usize) -> Option<ScheduledDeparture> {
        let queued = self.in_order.get(ahead);
        match self.early.peek() {
            Some(Reverse(early)) if ahead == 0 && queued.is_none_or(|q| early < q) => {
                Some(early.departure())
            }
            Some(Reverse(early)) if queued.is_some_and(|q| early < q) => None,
            _ => queued.map(QueuedDeparture::departure),
        }
    }

    pub(crate) fn pop(&mut self) -> Option<ScheduledDeparture> {
        let early = match (self.early.peek(), self.in_order.front()) {
            (Some(Reverse(early)), Some(queued)) => early < queued,
            (Some(_), None) => true,
            (None, _) => false,
        };
        let entry = if early {
            self.early.pop()?.0
        } else {
            self.in_order.pop_front()?
        };
        Some(entry.departure())
    }
}

impl QueuedDeparture {
    fn departure(&self) -> ScheduledDeparture {
        ScheduledDeparture {
            due: self.due,
            id: self.id,
            changes: self.changes,
        }
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
                    let changes = Changes::NONE;
                    schedule.push(ScheduledDeparture { due: Nanos(due), id: PacketId(n), changes });
                    heap.push(Reverse((Nanos(due), n)));
                } else {
                    let expected = heap.pop().map(|Reverse((due, n))| (due, PacketId(n)));
                    prop_assert_eq!(schedule.get(0).map(|next| (next.due, next.id)), expected);
                    prop_assert_eq!(schedule.pop().map(|next| (next.due, next.id)), expected);
                }
            }
        }
    }

    #[test]
    fn a_departure_costs_every_packet_32_bytes() {
        assert_eq!(size_of::<QueuedDeparture>(), 32);
    }
}
