//! A queue discipline: who waits, who goes next, and who is dropped or marked. The contract, and every kind.

use crate::draw::Draws;
use crate::in_flight::InFlight;
use crate::queue::fifo::Fifo;
use crate::queue::service::Service;
use crate::spec::Queue;
use crate::stage::{Entered, Out};
use crate::time::Nanos;

/// What waits for a server.
///
/// It is work-conserving: while something waits, [`Discipline::dequeue`] gives a packet, or drops all. It has no timers: a
/// controller catches up when it is asked. The server alone says when to dequeue.
pub(crate) trait Discipline {
    /// Takes in `t`, which came at `t.since`. It and others may be marked; others may be dropped through `out`.
    fn enqueue(&mut self, now: Nanos, t: InFlight, service: &Service, out: &mut Out) -> Entered;

    /// The packet that is served next; others, of any flow, may be dropped through `out`.
    fn dequeue(&mut self, now: Nanos, service: &Service, out: &mut Out) -> Option<InFlight>;

    /// Takes over `queue`'s parameters, if it is of their kind.
    fn set(&mut self, queue: &Queue) -> bool;

    /// Takes in a packet that another discipline held, whatever the limit.
    fn adopt(&mut self, t: InFlight, service: &Service);

    /// Gives up the packet that would go next if nobody was dropped.
    fn give_up(&mut self, service: &Service) -> Option<InFlight>;

    /// Packets waiting.
    fn len(&self) -> usize;
}

/// A discipline of any kind.
#[derive(Debug)]
pub(crate) enum AnyDiscipline {
    Fifo(Fifo),
}

impl AnyDiscipline {
    /// An empty queue.
    pub(crate) fn new(queue: &Queue, draws: Draws) -> Self {
        match &queue.discipline {
            _ => Self::Fifo(Fifo::new(queue.limit)),
        }
    }

    /// Whether a packet that finds the server idle goes to it without looking at anything else.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self, Self::Fifo(_))
    }

    /// Follows `queue`'s parameters; if they are of another kind, as a new discipline that takes over what waits, with the
    /// times of arrival.
    pub(crate) fn turn_into(&mut self, queue: &Queue, service: &Service, draws: Draws) {
        if self.set(queue) {
            return;
        }
        let mut new = Self::new(queue, draws);
        while let Some(t) = self.give_up(service) {
            new.adopt(t, service);
        }
        *self = new;
    }
}

impl Discipline for AnyDiscipline {
    #[inline]
    fn enqueue(&mut self, now: Nanos, t: InFlight, service: &Service, out: &mut Out) -> Entered {
        match self {
            Self::Fifo(queue) => queue.enqueue(now, t, service, out),
        }
    }

    #[inline]
    fn dequeue(&mut self, now: Nanos, service: &Service, out: &mut Out) -> Option<InFlight> {
        match self {
            Self::Fifo(queue) => queue.dequeue(now, service, out),
        }
    }

    fn set(&mut self, queue: &Queue) -> bool {
        match self {
            Self::Fifo(own) => own.set(queue),
        }
    }

    fn adopt(&mut self, t: InFlight, service: &Service) {
        match self {
            Self::Fifo(queue) => queue.adopt(t, service),
        }
    }

    fn give_up(&mut self, service: &Service) -> Option<InFlight> {
        match self {
            Self::Fifo(queue) => queue.give_up(service),
        }
    }

    #[inline]
    fn len(&self) -> usize {
        match self {
            Self::Fifo(queue) => queue.len(),
        }
    }
}
