//! PIE (RFC 8033): it drops at arrival, with a probability that follows the queue's delay.

use crate::draw::Draws;
use crate::in_flight::InFlight;
use crate::packet::DropCause;
use crate::queue::backlog::Backlog;
use crate::queue::discipline::{Arrival, QueueDiscipline};
use crate::queue::fifo::Fifo;
use crate::queue::service::Service;
use crate::spec::{Discipline, Pie, Queue};
use crate::stage::{EntryResult, Out};
use crate::time::Nanos;

/// One queue under PIE: the pseudo-code of RFC 8033, appendix A, with the additions of sections 5.1, 5.4 and 5.5.
///
/// The delay is taken from time stamps. When the last packet leaves, the delay is 0 (as in Linux); nothing else would
/// inform the controller that the queue is idle. The controller has no timer: it catches up before anything else
/// happens. Its first tick is one `tupdate` after it begins, and a tick comes before anything else at the same instant.
#[derive(Debug)]
pub(crate) struct PieQueue {
    law: Pie,
    draws: Draws,
    fifo: Fifo,
    control: Control,
    /// The sum of the probabilities of all packets since the last one that was dropped or marked.
    accumulated: f64,
    next_tick: Nanos,
}

/// The values that a tick reads and writes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Control {
    probability: f64,
    /// The time that the packet that left last had waited.
    delay: Nanos,
    /// The same at the last tick.
    before: Nanos,
    /// The time for which nothing is dropped any more.
    allowance: Nanos,
}

/// The change of the probability at each tick, for each second of delay above the target (ALPHA) and for each second by
/// which the delay has grown (BETA).
const ALPHA: f64 = 0.125;
const BETA: f64 = 1.25;

/// The divisor of the steps below each probability: the less likely drops are, the smaller the steps are (section 4.2).
const SMALLER_STEPS: [(f64, f64); 6] = [
    (0.000_001, 2_048.0),
    (0.000_01, 512.0),
    (0.000_1, 128.0),
    (0.001, 32.0),
    (0.01, 8.0),
    (0.1, 2.0),
];

/// The probability up to which packets are marked, and from which on it grows by at most [`STEP`] at a tick.
const HIGH_PROBABILITY: f64 = 0.1;
const STEP: f64 = 0.02;

/// The delay above which the probability grows by another [`STEP`] at each tick, as in Linux's `sch_pie.c`.
const LONG_DELAY: Nanos = Nanos::from_millis(250);

/// The probability below which nothing is dropped while the delay is low.
const LOW_PROBABILITY: f64 = 0.2;

/// The sums of probabilities before which no packet is dropped ([`MIN_ACCUMULATED`]) and at which one is dropped in any
/// case ([`MAX_ACCUMULATED`]).
const MIN_ACCUMULATED: f64 = 0.85;
const MAX_ACCUMULATED: f64 = 8.5;

/// The bytes that may always wait: two packets of `MEAN_PKTSIZE`, which is 1,024 bytes in RFC 8034.
const ALWAYS_QUEUED: u64 = 2_048;

impl PieQueue {
    pub(crate) fn new(start: Nanos, queue: &Queue, law: Pie, draws: Draws) -> Self {
        Self {
            law,
            draws,
            fifo: Fifo::new(queue.limit),
            control: Control {
                allowance: law.max_burst,
                ..Control::default()
            },
            accumulated: 0.0,
            next_tick: start + law.tupdate,
        }
    }

    /// Carries out all ticks up to `now`. Nothing else has happened since the last one.
    fn catch_up(&mut self, now: Nanos) {
        while self.next_tick <= now {
            let before = self.control;
            self.control.tick(&self.law);
            // If a tick changed only the allowance, which decreases to 0, further ticks change nothing else either.
            let apart_from_allowance = Control {
                allowance: before.allowance,
                ..self.control
            };
            let alike = if apart_from_allowance == before {
                (now - self.next_tick).0 / self.law.tupdate.0
            } else {
                0
            };
            let allowance = &mut self.control.allowance;
            *allowance = *allowance - self.law.tupdate.saturating_mul(alike);
            let next = self.next_tick + self.law.tupdate.saturating_mul(alike + 1);
            if next == Nanos::MAX {
                return;
            }
            self.next_tick = next;
        }
    }

    /// Decides on `t` when it arrives; it may be marked.
    fn decide(&mut self, now: Nanos, index: u64, t: &mut InFlight) -> EntryResult {
        self.catch_up(now);
        if self.control.is_delay_low(&self.law) && self.control.probability == 0.0 {
            self.control.allowance = self.law.max_burst;
        }
        if self.control.allowance > Nanos::ZERO || !self.drops_early(index, t) {
            return EntryResult::Taken;
        }
        self.accumulated = 0.0;
        if self.law.ecn && self.control.probability < HIGH_PROBABILITY && t.mark() {
            return EntryResult::Taken;
        }
        EntryResult::Dropped(DropCause::Aqm)
    }

    fn drops_early(&mut self, index: u64, t: &InFlight) -> bool {
        let Control {
            probability,
            before,
            ..
        } = self.control;
        let is_spared = is_below_half(before, self.law.target) && probability < LOW_PROBABILITY;
        if is_spared || self.fifo.bytes().0 <= ALWAYS_QUEUED {
            return false;
        }
        self.accumulated = if probability == 0.0 {
            0.0
        } else {
            self.accumulated + probability
        };
        self.accumulated >= MAX_ACCUMULATED
            || self.accumulated >= MIN_ACCUMULATED
                && self.draws.of(t.stream()).share(index) < probability
    }
}

impl Control {
    /// Carries out a tick (the RFC's `calculate_drop_prob`).
    fn tick(&mut self, law: &Pie) {
        let seconds = |time: Nanos| time.0 as f64 / 1e9;
        let delay = seconds(self.delay);
        let mut step =
            ALPHA * (delay - seconds(law.target)) + BETA * (delay - seconds(self.before));
        let smaller = SMALLER_STEPS
            .iter()
            .find(|(below, _)| self.probability < *below);
        step /= smaller.map_or(1.0, |(_, by)| *by);
        if self.probability >= HIGH_PROBABILITY && step > STEP {
            step = STEP;
        }
        if self.delay > LONG_DELAY {
            step += STEP;
        }
        self.probability += step;
        if self.delay == Nanos::ZERO && self.before == Nanos::ZERO {
            self.probability *= 0.98;
        }
        self.probability = self.probability.clamp(0.0, 1.0);
        self.before = self.delay;
        // The difference saturates at 0.
        self.allowance = self.allowance - law.tupdate;
    }

    /// Returns whether the delay is short and was short at the last tick.
    fn is_delay_low(&self, law: &Pie) -> bool {
        is_below_half(self.delay, law.target) && is_below_half(self.before, law.target)
    }
}

fn is_below_half(delay: Nanos, target: Nanos) -> bool {
    delay.saturating_mul(2) < target
}

impl QueueDiscipline for PieQueue {
    fn enqueue(
        &mut self,
        at: Arrival,
        mut t: InFlight,
        service: &Service,
        out: &mut Out,
    ) -> EntryResult {
        if !self.fifo.has_room_for(at.now, &t, service) {
            self.catch_up(at.now);
            self.accumulated = 0.0;
            return EntryResult::Dropped(DropCause::QueueFull);
        }
        match self.decide(at.now, at.index, &mut t) {
            EntryResult::Taken => self.fifo.enqueue(at, t, service, out),
            dropped => dropped,
        }
    }

    /// Takes in `t`. It is not dropped, because no packet waits, but it may be the first of a burst.
    fn enqueue_at_idle(&mut self, at: Arrival, mut t: InFlight, service: &Service) -> EntryResult {
        let entered = self.decide(at.now, at.index, &mut t);
        self.fifo.adopt(t, service);
        entered
    }

    fn dequeue(&mut self, now: Nanos, service: &Service, _: &mut Out) -> Option<InFlight> {
        self.catch_up(now);
        let next = self.fifo.remove_head(service)?;
        self.control.delay = match self.fifo.len() {
            0 => Nanos::ZERO,
            _ => now - next.since,
        };
        Some(next)
    }

    /// Takes over the parameters; the next tick keeps its time.
    fn set(&mut self, at: Nanos, queue: &Queue) -> bool {
        let Discipline::Pie(law) = queue.discipline else {
            return false;
        };
        self.catch_up(at);
        self.fifo.limit = queue.limit;
        self.law = law;
        true
    }

    fn adopt(&mut self, t: InFlight, service: &Service) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::QueueLimit;

    fn queue(max_burst: Nanos) -> PieQueue {
        let law = Pie {
            tupdate: Nanos::from_millis(1),
            max_burst,
            ..Pie::default()
        };
        let queue = Queue {
            limit: QueueLimit::Packets(10),
            discipline: Discipline::Pie(law),
        };
        PieQueue::new(Nanos::ZERO, &queue, law, Draws::new(1, 0, "box.up.rate"))
    }

    #[test]
    fn every_skipped_tick_of_an_idle_queue_reduces_the_allowance() {
        let now = Nanos(12_345_678_900);
        for max_burst in [0, 1_500_000, 12_000_000_000, 3_600_000_000_000].map(Nanos) {
            let mut skipping = queue(max_burst);
            skipping.catch_up(now);
            let mut ticking = queue(max_burst);
            while ticking.next_tick <= now {
                ticking.control.tick(&ticking.law);
                ticking.next_tick += ticking.law.tupdate;
            }
            assert_eq!(skipping.control, ticking.control, "{max_burst}");
            assert_eq!(skipping.next_tick, ticking.next_tick, "{max_burst}");
        }
    }

    #[test]
    fn days_without_packets_are_caught_up_in_a_few_ticks() {
        let mut idle = queue(Nanos::from_secs(3_600));
        for day in 1..10_000 {
            idle.control.allowance = idle.law.max_burst;
            idle.catch_up(Nanos::from_secs(86_400 * day));
        }
        assert_eq!(idle.control.allowance, Nanos::ZERO);
    }
}
