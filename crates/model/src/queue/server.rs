//! A bottleneck server: one packet is in service, and the others wait.

use core::{iter, mem};

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::behaviour::{Behaviour, Bottleneck, Holding};
use crate::counters::Waiting;
use crate::draw::Draws;
use crate::framing::Framing;
use crate::in_flight::InFlight;
use crate::queue::AnyDiscipline;
use crate::queue::discipline::{Arrival, QueueDiscipline as _};
use crate::queue::service::Service;
use crate::schedule::ScheduleClock;
use crate::spec::{Discipline, Effect, Queue, Rate, Toffee, Trace};
use crate::stage::{EntryResult, Out, Stage, Timing};
use crate::time::Nanos;
use crate::units::QueueLimit;

/// A bottleneck that serves one packet after the other.
///
/// It holds events and not departures that were computed in advance. Therefore a change of the rate affects the waiting
/// packets and the packet in service, which keeps the part of its service that is done.
#[derive(Debug)]
pub(crate) struct Server {
    start: Nanos,
    /// The clock of the schedules, which a trace follows.
    clock: ScheduleClock,
    draws: Draws,
    effect: Effect,
    service: Service,
    queue: AnyDiscipline,
    in_service: Option<InFlight>,
    /// The time at which the packet in service is done; [`Nanos::MAX`] in a stall.
    ends: Nanos,
    /// The work that is left of the packet in service, in a stall.
    left: u128,
    longest: usize,
}

/// The stream of draws that decide which packets a discipline drops; the other draws are for a rate that fluctuates.
const DISCIPLINE: u64 = 1;

/// The queue of a server that does nothing: no packet waits long, and none is dropped.
const UNLIMITED: Queue = Queue {
    limit: QueueLimit::Packets(u32::MAX),
    discipline: Discipline::DropTail,
};

impl Server {
    pub(crate) fn new(start: Nanos, draws: Draws) -> Self {
        Self {
            start,
            clock: ScheduleClock::default(),
            draws,
            effect: Effect::Nothing,
            service: Service::Unlimited,
            queue: AnyDiscipline::new(start, &UNLIMITED, draws),
            in_service: None,
            ends: Nanos::MAX,
            left: 0,
            longest: 0,
        }
    }

    #[inline]
    fn begin(&mut self, at: Nanos, t: InFlight) {
        self.ends = self.service.serve(at, t.packet.len);
        if self.ends == Nanos::MAX {
            self.left = self.service.work(t.packet.len);
        }
        self.in_service = Some(t);
    }

    fn update_service(&mut self, at: Nanos, effect: &Effect) {
        let len = self.in_service.as_ref().map(|t| t.packet.len);
        if let Some(len) = len.filter(|_| self.ends != Nanos::MAX) {
            self.left = self.service.left(at, len, self.ends);
        }
        let clock = (self.clock, self.start);
        self.service = Service::new(effect, clock, at, self.draws, &self.service);
        if let Some(len) = len {
            self.ends = self.service.resume(at, len, self.left);
        }
    }
}

impl Rate {
    pub(crate) fn behaviour(&self) -> Behaviour<'_> {
        Behaviour {
            varies: self.fluctuation.is_some(),
            holds: match self.rate {
                Some(_) => Holding::Temporarily,
                None => Holding::UntilChanged,
            },
            ..of_server(Bottleneck::Rate(self), self.queue)
        }
    }
}

impl Trace {
    pub(crate) fn behaviour(&self) -> Behaviour<'_> {
        of_server(Bottleneck::Trace(self), self.queue)
    }
}

impl Toffee {
    /// A packet's time varies with the packets of the other direction.
    pub(crate) fn behaviour(&self) -> Behaviour<'_> {
        of_server(Bottleneck::Toffee(self), self.queue)
    }
}

/// Returns the behaviour of a bottleneck with this queue.
pub(super) fn of_server(bottleneck: Bottleneck<'_>, queue: Queue) -> Behaviour<'_> {
    Behaviour {
        marks: queue.discipline.marks(),
        reorders: queue.discipline.reorders(),
        varies: true,
        holds: Holding::Temporarily,
        room: Some(queue.limit),
        bottleneck: Some(bottleneck),
        timing: Timing::NOW,
        ..Behaviour::default()
    }
}

impl Stage for Server {
    #[inline]
    fn enter(&mut self, at: Nanos, index: u64, t: &mut InFlight, out: &mut Out) -> EntryResult {
        // It is written only if it changes, because a copy that follows a write immediately has to wait for it.
        if t.since != at {
            t.since = at;
        }
        if self.in_service.is_none() && self.queue.is_plain() {
            self.service.begin_busy_period(at);
            self.begin(at, *t);
            return EntryResult::Taken;
        }
        let entry = Arrival { now: at, index };
        if self.in_service.is_none() {
            let entered = self.queue.enqueue_at_idle(entry, *t, &self.service);
            if entered != EntryResult::Taken {
                return entered;
            }
            if let Some(first) = self.queue.dequeue(at, &self.service, out) {
                self.service.begin_busy_period(at);
                self.begin(at, first);
            }
            return EntryResult::Taken;
        }
        let entered = self.queue.enqueue(entry, *t, &self.service, out);
        self.longest = self.longest.max(self.queue.len());
        entered
    }

    #[inline]
    fn wake(&mut self, at: Nanos, out: &mut Out) -> Option<InFlight> {
        let done = self.in_service.take();
        if let Some(next) = self.queue.dequeue(at, &self.service, out) {
            self.begin(at, next);
        }
        done
    }

    #[inline]
    fn next(&self) -> Option<Nanos> {
        (self.in_service.is_some() && self.ends != Nanos::MAX).then_some(self.ends)
    }

    fn set(&mut self, at: Nanos, effect: &Effect) {
        if *effect == self.effect {
            return;
        }
        // A queue counts packets as the framing says, so the framing changes while the queue is empty.
        let mut waiting = Vec::new();
        if framing(effect) != framing(&self.effect) {
            waiting.extend(iter::from_fn(|| self.queue.remove_head(&self.service)));
        }
        if !is_same_service(effect, &self.effect) {
            self.update_service(at, effect);
        }
        let queue = queue(effect).unwrap_or(&UNLIMITED);
        let at = at.max(self.start);
        let draws = self.draws.stream(DISCIPLINE);
        self.queue.change_to(at, queue, &self.service, draws);
        waiting
            .into_iter()
            .for_each(|t| self.queue.adopt(t, &self.service));
        self.effect = effect.clone();
    }

    fn follow(&mut self, at: Nanos, clock: ScheduleClock) {
        let before = mem::replace(&mut self.clock, clock);
        if before != clock && matches!(self.effect, Effect::Trace(_)) {
            let effect = self.effect.clone();
            self.update_service(at, &effect);
        }
    }

    fn held(&self) -> usize {
        self.queue.len() + usize::from(self.in_service.is_some())
    }

    fn longest_queue(&self) -> usize {
        self.longest
    }

    fn backlog(&self, at: Nanos) -> Option<Waiting> {
        queue(&self.effect)?;
        let waiting = self.queue.backlog();
        let in_service = self.in_service.is_some() && self.ends != Nanos::MAX;
        let rest = if in_service {
            self.ends.0.saturating_sub(at.0)
        } else {
            0
        };
        Some(Waiting {
            packets: self.queue.len() as u64,
            bytes: waiting.bytes,
            delay: waiting.time(at, &self.service) + Nanos(rest),
        })
    }
}

fn queue(effect: &Effect) -> Option<&Queue> {
    match effect {
        Effect::Rate(rate) => Some(&rate.queue),
        Effect::Trace(trace) => Some(&trace.queue),
        Effect::Toffee(toffee) => Some(&toffee.queue),
        _ => None,
    }
}

fn framing(effect: &Effect) -> Framing {
    match effect {
        Effect::Rate(rate) => rate.framing,
        _ => Framing::L2,
    }
}

/// Returns whether two effects are equal except for their queues.
fn is_same_service(one: &Effect, other: &Effect) -> bool {
    match (one, other) {
        (Effect::Rate(one), Effect::Rate(other)) => {
            let queue = other.queue;
            Rate { queue, ..*one } == *other
        }
        (Effect::Toffee(one), Effect::Toffee(other)) => {
            let queue = other.queue;
            Toffee { queue, ..*one } == *other
        }
        (Effect::Trace(one), Effect::Trace(other)) => {
            Arc::ptr_eq(&one.opportunities, &other.opportunities)
        }
        (one, other) => one == other,
    }
}
