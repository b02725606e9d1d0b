//! PIE (RFC 8033): drops at arrival, with a probability that follows the queue's delay.

use crate::draw::Draws;
use crate::in_flight::InFlight;
use crate::packet::DropCause;
use crate::queue::backlog::Backlog;
use crate::queue::discipline::{Entry, QueueDiscipline};
use crate::queue::fifo::Fifo;
use crate::queue::service::Service;
use crate::spec::{Discipline, Pie, Queue};
use crate::stage::{Entered, Out};
use crate::time::Nanos;

/// One queue under PIE, by the pseudo-code of RFC 8033, appendix A, with what sections 5.1, 5.4 and 5.5 add.
///
/// The delay is taken from time stamps. When the last packet leaves, there is none (as in Linux): nothing would tell the
/// controller of an idle queue otherwise. It has no timer: it catches up before anything else happens, its first tick one
/// `tupdate` after its beginning, a tick before what happens at its instant.
#[derive(Debug)]
pub(crate) struct PieQueue {
    law: Pie,
    draws: Draws,
    fifo: Fifo,
    control: Control,
    /// The probabilities of packets since the last one that was dropped or marked, added up.
    accumulated: f64,
    next_tick: Nanos,
}

/// What a tick reads and writes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Control {
    probability: f64,
    /// How long the packet that left last had waited.
    delay: Nanos,
    /// That at the last tick.
    before: Nanos,
    /// For how long nothing is dropped any more.
    allowance: Nanos,
}

/// How much the probability changes for a second of delay beyond the target, and of growing delay, at each tick.
const ALPHA: f64 = 0.125;
const BETA: f64 = 1.25;

/// The less likely drops are, the smaller the steps are (section 4.2): below which probability, divided by what.
const SMALLER_STEPS: [(f64, f64); 6] = [
    (0.000_001, 2_048.0),
    (0.000_01, 512.0),
    (0.000_1, 128.0),
    (0.001, 32.0),
    (0.01, 8.0),
    (0.1, 2.0),
];

/// The probability up to which packets are marked, and from which on it grows by no more than [`STEP`] at a tick.
const HIGH: f64 = 0.1;
const STEP: f64 = 0.02;

/// The delay above which the probability grows by another [`STEP`] at each tick, of Linux's `sch_pie.c`.
const LONG: Nanos = Nanos::from_millis(250);

/// The probability below which nothing is dropped while the delay is low.
const CALM: f64 = 0.2;

/// The probabilities of packets that must have added up before one is dropped, and at which one is dropped in any case.
const TOO_CLOSE: f64 = 0.85;
const TOO_FAR: f64 = 8.5;

/// The bytes that may always wait: two packets of `MEAN_PKTSIZE`, which RFC 8034 has as 1,024 bytes.
const SPARED: u64 = 2_048;

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

    /// Lets every tick up to `now` happen. Nothing else has happened since the last one.
    fn catch_up(&mut self, now: Nanos) {
        while self.next_tick <= now {
            let before = self.control;
            self.control.tick(&self.law);
            // After a tick that changed only the allowance, which falls to 0, all further ticks change nothing else either.
            let apart_from_allowance = Control {
                allowance: before.allowance,
                ..self.control
            };
            let alike = match apart_from_allowance == before {
                true => (now - self.next_tick).0 / self.law.tupdate.0,
                false => 0,
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

    /// Judges `t` as it comes.
    fn judge(&mut self, now: Nanos, index: u64, t: &mut InFlight) -> Entered {
        self.catch_up(now);
        if self.control.is_calm(&self.law) && self.control.probability == 0.0 {
            self.control.allowance = self.law.max_burst;
        }
        if self.control.allowance > Nanos::ZERO || !self.drops_early(index, t) {
            return Entered::Taken;
        }
        self.accumulated = 0.0;
        if self.law.ecn && self.control.probability < HIGH && t.mark() {
            return Entered::Taken;
        }
        Entered::Dropped(DropCause::Aqm)
    }

    fn drops_early(&mut self, index: u64, t: &InFlight) -> bool {
        let Control {
            probability,
            before,
            ..
        } = self.control;
        let is_spared = is_below_half(before, self.law.target) && probability < CALM;
        if is_spared || self.fifo.bytes().0 <= SPARED {
            return false;
        }
        self.accumulated = if probability == 0.0 {
            0.0
        } else {
            self.accumulated + probability
        };
        self.accumulated >= TOO_FAR
            || self.accumulated >= TOO_CLOSE && self.draws.of(t.stream()).share(index) < probability
    }
}

impl Control {
    /// The RFC's `calculate_drop_prob`.
    fn tick(&mut self, law: &Pie) {
        let seconds = |time: Nanos| time.0 as f64 / 1e9;
        let delay = seconds(self.delay);
        let mut step =
            ALPHA * (delay - seconds(law.target)) + BETA * (delay - seconds(self.before));
        let smaller = SMALLER_STEPS
            .iter()
            .find(|(below, _)| self.probability < *below);
        step /= smaller.map_or(1.0, |(_, by)| *by);
        if self.probability >= HIGH && step > STEP {
            step = STEP;
        }
        if self.delay > LONG {
            step += STEP;
        }
        self.probability += step;
        if self.delay == Nanos::ZERO && self.before == Nanos::ZERO {
            self.probability *= 0.98;
        }
        self.probability = self.probability.clamp(0.0, 1.0);
        self.before = self.delay;
        // Saturates at 0.
        self.allowance = self.allowance - law.tupdate;
    }

    /// Whether delays were short at the last tick, and are.
    fn is_calm(&self, law: &Pie) -> bool {
        is_below_half(self.delay, law.target) && is_below_half(self.before, law.target)
    }
}

fn is_below_half(delay: Nanos, target: Nanos) -> bool {
    delay.saturating_mul(2) < target
}

impl QueueDiscipline for PieQueue {
    fn enqueue(&mut self, at: Entry, mut t: InFlight, service: &Service, out: &mut Out) -> Entered {
        if !self.fifo.has_room_for(at.now, &t, service) {
            self.catch_up(at.now);
            self.accumulated = 0.0;
            return Entered::Dropped(DropCause::QueueFull);
        }
        match self.judge(at.now, at.index, &mut t) {
            Entered::Taken => self.fifo.enqueue(at, t, service, out),
            dropped => dropped,
        }
    }

    /// It is not dropped, since nothing waits, but may be the first of a burst.
    fn enqueue_at_idle(&mut self, at: Entry, mut t: InFlight, service: &Service) -> Entered {
        let entered = self.judge(at.now, at.index, &mut t);
        self.fifo.adopt(t, service);
        entered
    }

    fn dequeue(&mut self, now: Nanos, service: &Service, _: &mut Out) -> Option<InFlight> {
        self.catch_up(now);
        let next = self.fifo.give_up(service)?;
        self.control.delay = match self.fifo.len() {
            0 => Nanos::ZERO,
            _ => now - next.since,
        };
        Some(next)
    }

    /// The next tick stays where it is.
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

    fn give_up(&mut self, service: &Service) -> Option<InFlight> {
        self.fifo.give_up(service)
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
    fn an_allowance_shrinks_by_every_tick_of_an_idle_queue() {
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
    fn an_idle_day_takes_no_longer_than_a_moment() {
        let mut idle = queue(Nanos::from_secs(3_600));
        for day in 1..10_000 {
            idle.control.allowance = idle.law.max_burst;
            idle.catch_up(Nanos::from_secs(86_400 * day));
        }
        assert_eq!(idle.control.allowance, Nanos::ZERO);
    }
}
