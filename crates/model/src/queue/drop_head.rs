//! A drop-head queue: first in, first out; a packet that finds it full pushes out the packets that have waited longest.

use crate::in_flight::InFlight;
use crate::packet::DropCause;
use crate::queue::backlog::Backlog;
use crate::queue::discipline::{Arrival, QueueDiscipline};
use crate::queue::fifo::Fifo;
use crate::queue::service::Service;
use crate::spec::{Discipline, Queue};
use crate::stage::{EntryResult, Out};
use crate::time::Nanos;

/// A queue like tc's `pfifo_head_drop`, with a limit in any unit. It drops as many packets as make room for the one
/// that arrives, and that one, too, if it does not fit into an empty queue.
#[derive(Debug)]
pub(crate) struct DropHead(pub(crate) Fifo);

impl QueueDiscipline for DropHead {
    fn enqueue(
        &mut self,
        at: Arrival,
        t: InFlight,
        service: &Service,
        out: &mut Out,
    ) -> EntryResult {
        self.0.adopt(t, service);
        while !self.0.fits(at.now, service) {
            match self.0.remove_head(service) {
                Some(first) => out.drop(at.now, first, DropCause::QueueFull),
                None => break,
            }
        }
        EntryResult::Taken
    }

    fn dequeue(&mut self, _: Nanos, service: &Service, _: &mut Out) -> Option<InFlight> {
        self.0.remove_head(service)
    }

    fn set(&mut self, _: Nanos, queue: &Queue) -> bool {
        self.0.limit = queue.limit;
        queue.discipline == Discipline::DropHead
    }

    fn adopt(&mut self, t: InFlight, service: &Service) {
        self.0.adopt(t, service);
    }

    fn remove_head(&mut self, service: &Service) -> Option<InFlight> {
        self.0.remove_head(service)
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn backlog(&self) -> Backlog {
        self.0.backlog()
    }
}
