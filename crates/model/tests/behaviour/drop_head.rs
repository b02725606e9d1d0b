//! A drop-head queue, compared packet by packet with a list that loses packets at its front until the rest fits.

use crate::discipline::{Item, OutcomeCounts, PacketOutcome, compare, every, model, outcomes};
use farwire_model::{Bytes, Discipline, DropCause, Ecn, Nanos, Queue, QueueLimit};

struct Model {
    limit: QueueLimit,
    list: Vec<Item>,
}

impl Model {
    fn new(queue: &Queue) -> Self {
        Self {
            limit: queue.limit,
            list: Vec::new(),
        }
    }

    fn is_over_limit(&self) -> bool {
        let bytes: u64 = self.list.iter().map(|item| item.len).sum();
        match self.limit {
            QueueLimit::Packets(packets) => self.list.len() > packets as usize,
            QueueLimit::Bytes(limit) => bytes > limit.0,
            QueueLimit::Time(time) => bytes * model::NANOS_PER_BYTE > time.0,
            QueueLimit::TimeOrPackets(time, packets) => {
                let is_long = bytes * model::NANOS_PER_BYTE > time.0;
                is_long && self.list.len() > packets as usize
            }
        }
    }
}

impl model::QueueModel for Model {
    fn arrive(&mut self, now: u64, item: Item, is_idle: bool, outcomes: &mut [PacketOutcome]) {
        self.list.push(item);
        while !is_idle && self.is_over_limit() {
            let first = self.list.remove(0);
            outcomes[first.id] = PacketOutcome::Dropped(now, DropCause::QueueFull);
        }
    }

    fn depart(&mut self, _: u64, _: &mut [PacketOutcome]) -> Option<Item> {
        (!self.list.is_empty()).then(|| self.list.remove(0))
    }
}

#[test]
fn the_oldest_packet_is_dropped_when_the_queue_is_full() {
    let limits = [
        QueueLimit::Packets(40),
        QueueLimit::Bytes(Bytes(8_000)),
        QueueLimit::Time(Nanos::from_millis(50)),
    ];
    let OutcomeCounts { aqm, full, marked } = compare(Discipline::DropHead, &limits, Model::new);
    assert!(full > 1_000 && aqm == 0 && marked == 0, "{full}");
    let queue = Queue {
        limit: QueueLimit::Packets(2),
        discipline: Discipline::DropHead,
    };
    let items = every(5, 1, |_| (1_500, 1, Ecn::NotEct));
    let due = |due| PacketOutcome::Delivered { due, mark: false };
    let gone = |at| PacketOutcome::Dropped(at, DropCause::QueueFull);
    let expected = [
        due(1_500_000),
        gone(3),
        gone(4),
        due(3_000_000),
        due(4_500_000),
    ];
    assert_eq!(outcomes(&queue, &items), expected);
}
