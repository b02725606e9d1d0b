//! The bottleneck: a server and the queue before it. Each discipline has its own file; this one lists them all.

mod backlog;
pub(crate) mod bucket;
pub(crate) mod cell_replay;
mod codel;
pub(crate) mod constant;
mod discipline;
mod drop_head;
mod dual_pi2;
mod fifo;
mod fluctuating;
mod fq_codel;
mod pie;
mod red;
pub(crate) mod server;
mod service;
mod trace;
mod weighted;

use alloc::boxed::Box;

use crate::draw::Draws;
use crate::in_flight::InFlight;
use crate::spec::{Discipline, Queue};
use crate::stage::{EntryResult, Out};
use crate::time::Nanos;
use backlog::Backlog;
use codel::CodelQueue;
use discipline::{Arrival, QueueDiscipline};
use drop_head::DropHead;
use dual_pi2::DualPi2Queue;
use fifo::Fifo;
use fq_codel::FqCodelQueue;
use pie::PieQueue;
use red::RedQueue;
use service::Service;
use weighted::WeightedQueue;

/// A discipline of any kind.
#[derive(Debug)]
pub(crate) enum AnyDiscipline {
    Fifo(Fifo),
    DropHead(DropHead),
    Codel(Box<CodelQueue>),
    FqCodel(Box<FqCodelQueue>),
    DualPi2(Box<DualPi2Queue>),
    Red(Box<RedQueue>),
    Pie(Box<PieQueue>),
    Weighted(Box<WeightedQueue>),
}

/// Calls a method of whichever discipline it is.
macro_rules! each {
    ($any:expr, $queue:ident => $call:expr) => {
        match $any {
            AnyDiscipline::Fifo($queue) => $call,
            AnyDiscipline::DropHead($queue) => $call,
            AnyDiscipline::Codel($queue) => $call,
            AnyDiscipline::FqCodel($queue) => $call,
            AnyDiscipline::DualPi2($queue) => $call,
            AnyDiscipline::Red($queue) => $call,
            AnyDiscipline::Pie($queue) => $call,
            AnyDiscipline::Weighted($queue) => $call,
        }
    };
}

impl AnyDiscipline {
    /// Creates an empty queue at `at`; its random drops are drawn from `draws`.
    pub(crate) fn new(at: Nanos, queue: &Queue, draws: Draws) -> Self {
        match queue.discipline {
            Discipline::DropTail => Self::Fifo(Fifo::new(queue.limit)),
            Discipline::DropHead => Self::DropHead(DropHead(Fifo::new(queue.limit))),
            Discipline::Codel(law) => Self::Codel(CodelQueue::new(queue.limit, law).into()),
            Discipline::FqCodel(law) => Self::FqCodel(FqCodelQueue::new(queue.limit, law).into()),
            Discipline::DualPi2(law) => {
                Self::DualPi2(DualPi2Queue::new(at, queue.limit, law).into())
            }
            Discipline::Red(law) => Self::Red(RedQueue::new(at, queue, law, draws).into()),
            Discipline::Pie(law) => Self::Pie(PieQueue::new(at, queue, law, draws).into()),
            Discipline::Weighted(weights) => {
                Self::Weighted(WeightedQueue::new(queue.limit, weights).into())
            }
        }
    }

    /// Returns whether a packet that finds the server idle goes to it without any check.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self, Self::Fifo(_) | Self::DropHead(_))
    }

    /// Takes over the parameters of `queue` from `at` on. If they are of another kind, it becomes a new discipline that
    /// takes over the waiting packets with their times of arrival.
    pub(crate) fn change_to(&mut self, at: Nanos, queue: &Queue, service: &Service, draws: Draws) {
        if self.set(at, queue) {
            return;
        }
        let mut new = Self::new(at, queue, draws);
        while let Some(t) = self.remove_head(service) {
            new.adopt(t, service);
        }
        *self = new;
    }
}

impl QueueDiscipline for AnyDiscipline {
    #[inline]
    fn enqueue(
        &mut self,
        at: Arrival,
        t: InFlight,
        service: &Service,
        out: &mut Out,
    ) -> EntryResult {
        each!(self, queue => queue.enqueue(at, t, service, out))
    }

    #[inline]
    fn enqueue_at_idle(&mut self, at: Arrival, t: InFlight, service: &Service) -> EntryResult {
        each!(self, queue => queue.enqueue_at_idle(at, t, service))
    }

    #[inline]
    fn dequeue(&mut self, now: Nanos, service: &Service, out: &mut Out) -> Option<InFlight> {
        each!(self, queue => queue.dequeue(now, service, out))
    }

    fn set(&mut self, at: Nanos, spec: &Queue) -> bool {
        each!(self, queue => queue.set(at, spec))
    }

    fn adopt(&mut self, t: InFlight, service: &Service) {
        each!(self, queue => queue.adopt(t, service));
    }

    fn remove_head(&mut self, service: &Service) -> Option<InFlight> {
        each!(self, queue => queue.remove_head(service))
    }

    #[inline]
    fn len(&self) -> usize {
        each!(self, queue => queue.len())
    }

    fn backlog(&self) -> Backlog {
        each!(self, queue => queue.backlog())
    }
}
