//! Queues of classes that share a server by weight.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::in_flight::InFlight;
use crate::packet::DropCause;
use crate::queue::backlog::Backlog;
use crate::queue::discipline::{Arrival, QueueDiscipline};
use crate::queue::service::Service;
use crate::spec::{Discipline, Queue, Weights};
use crate::stage::{EntryResult, Out};
use crate::time::Nanos;
use crate::units::QueueLimit;

/// A queue for each class, served by deficit round robin (Shreedhar and Varghese 1996). The queues have one limit: when
/// it is exceeded, the class with the most bytes for its weight loses the packet that came last (longest queue drop,
/// Suter et al. 1999).
#[derive(Debug)]
pub(crate) struct WeightedQueue {
    limit: QueueLimit,
    weights: Weights,
    /// The queues, by class.
    classes: Vec<ClassQueue>,
    /// The classes of which packets wait, in the order of their turns.
    turns: VecDeque<u16>,
    backlog: Backlog,
    packets: usize,
}

/// The packets of a class.
#[derive(Debug, Default)]
struct ClassQueue {
    waiting: VecDeque<InFlight>,
    /// The L2 bytes that wait.
    bytes: u64,
    /// The L2 bytes that it may still send in its turn.
    credit: u64,
}

/// The L2 bytes that a turn gives for each unit of weight: a full frame of an MTU of 1500.
const QUANTUM: u64 = 1_514;

impl WeightedQueue {
    pub(crate) fn new(limit: QueueLimit, weights: Weights) -> Self {
        Self {
            limit,
            weights,
            classes: Vec::new(),
            turns: VecDeque::new(),
            backlog: Backlog::default(),
            packets: 0,
        }
    }

    fn class(&mut self, class: u16) -> &mut ClassQueue {
        &mut self.classes[usize::from(class)]
    }

    /// Counts a packet that was removed.
    fn removed(&mut self, t: &InFlight, service: &Service) {
        self.class(t.class).bytes -= t.packet.len.0;
        self.backlog = self.backlog.minus(t.packet.len, service);
        self.packets -= 1;
    }

    /// Returns the class with the most bytes for its weight; of several, the one whose turn comes first.
    fn heaviest(&self) -> Option<u16> {
        let share = |class: u16| {
            let bytes = self.classes[usize::from(class)].bytes;
            (bytes, self.weights.of(class))
        };
        let mut turns = self.turns.iter().copied();
        let first = turns.next()?;
        Some(turns.fold(first, |heaviest, class| {
            let ((most, weight), (bytes, own)) = (share(heaviest), share(class));
            if bytes * weight > most * own {
                class
            } else {
                heaviest
            }
        }))
    }

    /// Drops the packet that came last of the class with the most bytes for its weight. Returns whether there was one.
    fn drop_last(&mut self, now: Nanos, service: &Service, out: &mut Out) -> bool {
        let Some(class) = self.heaviest() else {
            return false;
        };
        let Some(t) = self.class(class).waiting.pop_back() else {
            return false;
        };
        self.removed(&t, service);
        if self.class(class).waiting.is_empty() {
            self.class(class).credit = 0;
            self.turns.retain(|other| *other != class);
        }
        out.drop(now, t, DropCause::QueueFull);
        true
    }
}

impl QueueDiscipline for WeightedQueue {
    fn enqueue(
        &mut self,
        at: Arrival,
        t: InFlight,
        service: &Service,
        out: &mut Out,
    ) -> EntryResult {
        self.adopt(t, service);
        while !self.backlog.fits(self.limit, at.now, service) {
            if !self.drop_last(at.now, service, out) {
                break;
            }
        }
        EntryResult::Taken
    }

    fn dequeue(&mut self, _: Nanos, service: &Service, _: &mut Out) -> Option<InFlight> {
        self.remove_head(service)
    }

    fn set(&mut self, _: Nanos, queue: &Queue) -> bool {
        let Discipline::Weighted(weights) = queue.discipline else {
            return false;
        };
        self.weights = weights;
        self.limit = queue.limit;
        true
    }

    fn adopt(&mut self, t: InFlight, service: &Service) {
        let place = usize::from(t.class);
        if self.classes.len() <= place {
            self.classes.resize_with(place + 1, ClassQueue::default);
        }
        let own = &mut self.classes[place];
        if own.waiting.is_empty() {
            self.turns.push_back(t.class);
        }
        own.waiting.push_back(t);
        own.bytes += t.packet.len.0;
        self.backlog = self.backlog.plus(t.packet.len, service);
        self.packets += 1;
    }

    fn remove_head(&mut self, service: &Service) -> Option<InFlight> {
        loop {
            let class = *self.turns.front()?;
            let quantum = QUANTUM * self.weights.of(class);
            let own = self.class(class);
            let len = own.waiting.front()?.packet.len.0;
            if own.credit < len {
                own.credit += quantum;
                self.turns.rotate_left(1);
                continue;
            }
            own.credit -= len;
            let t = own.waiting.pop_front()?;
            let is_empty = own.waiting.is_empty();
            if is_empty {
                own.credit = 0;
                self.turns.pop_front();
            }
            self.removed(&t, service);
            return Some(t);
        }
    }

    fn len(&self) -> usize {
        self.packets
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }
}
