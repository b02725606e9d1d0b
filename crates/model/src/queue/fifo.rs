//! A drop-tail queue, which also holds the packets of other disciplines.

use alloc::collections::VecDeque;

use crate::in_flight::InFlight;
use crate::packet::DropCause;
use crate::queue::backlog::Backlog;
use crate::queue::discipline::{Arrival, QueueDiscipline};
use crate::queue::service::Service;
use crate::spec::{Discipline, Queue};
use crate::stage::{EntryResult, Out};
use crate::time::Nanos;
use crate::units::{Bytes, QueueLimit};

/// A queue that is first in, first out, up to a limit. It contains neither the packet in service nor those further
/// along the path.
#[derive(Debug)]
pub(crate) struct Fifo {
    pub(crate) limit: QueueLimit,
    waiting: VecDeque<InFlight>,
    backlog: Backlog,
}

impl Fifo {
    pub(crate) fn new(limit: QueueLimit) -> Self {
        Self {
            limit,
            waiting: VecDeque::new(),
            backlog: Backlog::default(),
        }
    }

    /// Returns the L2 bytes that wait.
    pub(crate) fn bytes(&self) -> Bytes {
        self.backlog.bytes
    }

    /// Returns whether the packets that wait are within the limit.
    pub(crate) fn fits(&self, now: Nanos, service: &Service) -> bool {
        self.backlog.fits(self.limit, now, service)
    }

    /// Returns whether `t` could wait, too.
    pub(crate) fn has_room_for(&self, now: Nanos, t: &InFlight, service: &Service) -> bool {
        let backlog = self.backlog.plus(t.packet.len, service);
        backlog.fits(self.limit, now, service)
    }
}

impl QueueDiscipline for Fifo {
    #[inline]
    fn enqueue(&mut self, at: Arrival, t: InFlight, service: &Service, _: &mut Out) -> EntryResult {
        let backlog = self.backlog.plus(t.packet.len, service);
        if !backlog.fits(self.limit, at.now, service) {
            return EntryResult::Dropped(DropCause::QueueFull);
        }
        self.backlog = backlog;
        self.waiting.push_back(t);
        EntryResult::Taken
    }

    #[inline]
    fn dequeue(&mut self, _: Nanos, service: &Service, _: &mut Out) -> Option<InFlight> {
        self.remove_head(service)
    }

    fn set(&mut self, _: Nanos, queue: &Queue) -> bool {
        self.limit = queue.limit;
        queue.discipline == Discipline::DropTail
    }

    fn adopt(&mut self, t: InFlight, service: &Service) {
        self.backlog = self.backlog.plus(t.packet.len, service);
        self.waiting.push_back(t);
    }

    #[inline]
    fn remove_head(&mut self, service: &Service) -> Option<InFlight> {
        let t = self.waiting.pop_front()?;
        self.backlog = self.backlog.minus(t.packet.len, service);
        Some(t)
    }

    fn len(&self) -> usize {
        self.waiting.len()
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }
}
