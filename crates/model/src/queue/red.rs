//! RED (Floyd and Jacobson 1993): it drops at arrival, with a probability that grows with the average queue.

use crate::draw::Draws;
use crate::in_flight::InFlight;
use crate::packet::DropCause;
use crate::queue::backlog::Backlog;
use crate::queue::discipline::{Arrival, QueueDiscipline};
use crate::queue::fifo::Fifo;
use crate::queue::service::Service;
use crate::spec::{Discipline, Queue, Red, power};
use crate::stage::{EntryResult, Out};
use crate::time::Nanos;

/// One queue under RED, by the paper's pseudo-code.
///
/// The average is of the bytes that wait when a packet arrives, without the packet in service. It is updated at every
/// arrival, even if the packet finds the server idle or the queue full. After an idle time, it is updated as if an
/// empty queue had received as many packets of `avpkt` bytes as the server could have served; a fraction of a packet
/// counts with that fraction of the weight, and the arrival itself adds no other sample. Where everything is dropped, a
/// packet is not marked instead, unless the parameters say so.
#[derive(Debug)]
pub(crate) struct RedQueue {
    law: Red,
    weight: f64,
    draws: Draws,
    fifo: Fifo,
    /// The paper's `avg`, in bytes.
    average: f64,
    /// The number of packets since the last one that was dropped or marked; -1 below `min`.
    count: i64,
    /// The time since which the server has been idle: the paper's `q_time`. `None` while it serves.
    idle_since: Option<Nanos>,
}

/// The verdict of the average on a packet.
enum RedVerdict {
    Enqueue,
    /// A mark if possible, otherwise a drop.
    MarkOrDrop,
    Drop,
}

impl RedQueue {
    pub(crate) fn new(start: Nanos, queue: &Queue, law: Red, draws: Draws) -> Self {
        Self {
            law,
            weight: weight(&law),
            draws,
            fifo: Fifo::new(queue.limit),
            average: 0.0,
            count: -1,
            idle_since: Some(start),
        }
    }

    fn update_average(&mut self, now: Nanos, service: &Service) {
        let Some(since) = self.idle_since.take() else {
            self.average += self.weight * (self.fifo.bytes().0 as f64 - self.average);
            return;
        };
        let (idle, packet) = (
            (now - since).0,
            service.time(now, service.load(self.law.avpkt)).0,
        );
        // If the server has no rate, nobody knows how many packets it could have served.
        self.average *= match idle.checked_div(packet) {
            Some(packets) => {
                let part = (idle % packet) as f64 / packet as f64;
                power(1.0 - self.weight, packets) * (1.0 - self.weight * part)
            }
            None => 0.0,
        };
    }

    /// Returns the paper's p_b; `None` where everything is dropped.
    fn probability(&self) -> Option<f64> {
        let (min, max) = (self.law.min.0 as f64, self.law.max.0 as f64);
        let at_max = self.law.probability.fraction();
        if self.average < max {
            return Some(at_max * (self.average - min) / (max - min));
        }
        (self.law.gentle && self.average < 2.0 * max)
            .then(|| at_max + (1.0 - at_max) * (self.average - max) / max)
    }

    fn verdict(&mut self, index: u64, t: &InFlight) -> RedVerdict {
        if self.average < self.law.min.0 as f64 {
            self.count = -1;
            return RedVerdict::Enqueue;
        }
        let Some(p_b) = self.probability() else {
            self.count = 0;
            return RedVerdict::Drop;
        };
        self.count += 1;
        let left = 1.0 - self.count as f64 * p_b;
        // p_a = p_b / left is 1 as soon as `left` is at most p_b.
        let is_hit = left <= p_b || self.draws.of(t.stream()).share(index) < p_b / left;
        if !is_hit {
            return RedVerdict::Enqueue;
        }
        self.count = 0;
        RedVerdict::MarkOrDrop
    }

    /// Decides on `t` when it arrives; it may be marked.
    fn decide(
        &mut self,
        now: Nanos,
        index: u64,
        t: &mut InFlight,
        service: &Service,
    ) -> EntryResult {
        self.update_average(now, service);
        match self.verdict(index, t) {
            RedVerdict::Enqueue => EntryResult::Taken,
            RedVerdict::MarkOrDrop if self.law.ecn && t.mark() => EntryResult::Taken,
            RedVerdict::Drop if self.law.ecn && !self.law.harddrop && t.mark() => {
                EntryResult::Taken
            }
            RedVerdict::MarkOrDrop | RedVerdict::Drop => EntryResult::Dropped(DropCause::Aqm),
        }
    }
}

impl QueueDiscipline for RedQueue {
    fn enqueue(
        &mut self,
        at: Arrival,
        mut t: InFlight,
        service: &Service,
        out: &mut Out,
    ) -> EntryResult {
        match self.decide(at.now, at.index, &mut t, service) {
            EntryResult::Taken => self.fifo.enqueue(at, t, service, out),
            dropped => dropped,
        }
    }

    /// Takes in `t`. The average may still be high when no packet waits any more.
    fn enqueue_at_idle(&mut self, at: Arrival, mut t: InFlight, service: &Service) -> EntryResult {
        let entered = self.decide(at.now, at.index, &mut t, service);
        if entered == EntryResult::Taken {
            self.fifo.adopt(t, service);
        } else {
            self.idle_since = Some(at.now);
        }
        entered
    }

    fn dequeue(&mut self, now: Nanos, service: &Service, _: &mut Out) -> Option<InFlight> {
        let next = self.fifo.remove_head(service);
        if next.is_none() {
            self.idle_since = Some(now);
        }
        next
    }

    /// Takes over the parameters; the average stays.
    fn set(&mut self, _: Nanos, queue: &Queue) -> bool {
        let Discipline::Red(law) = queue.discipline else {
            return false;
        };
        self.fifo.limit = queue.limit;
        self.law = law;
        self.weight = weight(&law);
        true
    }

    fn adopt(&mut self, t: InFlight, service: &Service) {
        self.idle_since = None;
        self.fifo.adopt(t, service);
    }

    fn remove_head(&mut self, service: &Service) -> Option<InFlight> {
        self.fifo.remove_head(service)
    }

    fn len(&self) -> usize {
        self.fifo.len()
    }

    fn backlog(&self) -> Backlog {
        self.fifo.backlog()
    }
}

/// Returns the weight. The check of conditions refuses a law without one.
fn weight(law: &Red) -> f64 {
    law.weight().unwrap_or(1.0)
}
