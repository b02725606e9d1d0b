//! DualPI2 (RFC 9332, appendix A): a queue for L4S and a Classic one, with coupled marks and drops.

use alloc::collections::VecDeque;

use crate::in_flight::InFlight;
use crate::packet::{DropCause, Ecn};
use crate::queue::backlog::Backlog;
use crate::queue::discipline::{Arrival, QueueDiscipline};
use crate::queue::service::Service;
use crate::spec::{Discipline, DualPi2, Queue};
use crate::stage::{EntryResult, Out};
use crate::time::Nanos;
use crate::units::QueueLimit;

/// Two queues with a common limit, an AQM for each, and a controller for both.
///
/// It follows the pseudo-code of appendix A with its overload handling (A.2). Likelihoods are accumulated by `recur`,
/// so nothing is drawn at random. A weighted round robin by bytes chooses between the queues, 15 to 1 for L4S, while
/// both have packets. The controller has no timer: it catches up before anything else happens. Its first tick is one
/// `t_update` after it begins, and a tick comes before anything else at the same instant.
#[derive(Debug)]
pub(crate) struct DualPi2Queue {
    limit: QueueLimit,
    law: DualPi2,
    l4s: SubQueue,
    classic: SubQueue,
    backlog: Backlog,
    /// The bytes by which the Classic queue's turn has come; its turn is when this is above 0.
    turn: i64,
    /// The base probability p'.
    base: f64,
    /// The delay of the longer queue at the last tick, in nanoseconds.
    before: f64,
    next_tick: Nanos,
}

/// A queue, and the accumulated likelihood of its packets.
#[derive(Debug, Default)]
struct SubQueue {
    waiting: VecDeque<InFlight>,
    count: f64,
}

/// The factor k of the base probability with which L4S packets are marked.
const COUPLING: f64 = 2.0;

/// The probability from which on Classic packets are dropped even if they could be marked: 1 / k^2, at which p_CL is 1.
const CLASSIC_MAX: f64 = 1.0 / (COUPLING * COUPLING);

/// RTT_max, the longest round-trip time for which the gains are made, in nanoseconds.
const RTT_MAX: f64 = 1e8;

/// The length of the ramp of L4S marks above its threshold.
const RAMP: Nanos = Nanos::from_micros(400);

/// The number of L4S packets that may wait behind one without it being marked for the delay of its queue.
const UNMARKED: usize = 1;

/// The bytes of L4S that are served for one byte of Classic while both queues have packets.
const WEIGHT: i64 = 15;

impl DualPi2Queue {
    pub(crate) fn new(start: Nanos, limit: QueueLimit, law: DualPi2) -> Self {
        Self {
            limit,
            law,
            l4s: SubQueue::default(),
            classic: SubQueue::default(),
            backlog: Backlog::default(),
            turn: 0,
            base: 0.0,
            before: 0.0,
            next_tick: start + law.t_update,
        }
    }

    /// Carries out all ticks up to `now`. Nothing else has happened since the last one.
    fn catch_up(&mut self, now: Nanos) {
        while self.next_tick <= now {
            let is_settled = match self.longer_delay(self.next_tick) {
                // No packet waits, and no trace is left of earlier ones.
                None => self.base == 0.0 && self.before == 0.0,
                // The delay grows from here on, and the probability cannot.
                Some(delay) => self.base == 1.0 && delay > self.before && delay >= self.target(),
            };
            if is_settled {
                let ticks = (now - self.next_tick).0 / self.law.t_update.0;
                self.next_tick += self.law.t_update.saturating_mul(ticks);
            }
            self.tick();
            let next = self.next_tick + self.law.t_update;
            if next == self.next_tick {
                return;
            }
            self.next_tick = next;
        }
    }

    /// Carries out a tick (the RFC's `dualpi2_update`).
    fn tick(&mut self) {
        let t_update = self.law.t_update.0 as f64;
        let alpha = 0.1 * t_update / (RTT_MAX * RTT_MAX);
        let beta = 0.3 / RTT_MAX;
        let delay = self.longer_delay(self.next_tick).unwrap_or(0.0);
        let change = alpha * (delay - self.target()) + beta * (delay - self.before);
        self.base = (self.base + change).clamp(0.0, 1.0);
        self.before = delay;
    }

    fn target(&self) -> f64 {
        self.law.target.0 as f64
    }

    /// Returns the longer of the times that the first packets of both queues have waited at `at`, if they came before
    /// `at`.
    fn longer_delay(&self, at: Nanos) -> Option<f64> {
        let first = |queue: &SubQueue| {
            let first = queue.waiting.front().filter(|t| t.since < at)?;
            Some((at - first.since).0)
        };
        let longer = first(&self.l4s).max(first(&self.classic));
        longer.map(|delay| delay as f64)
    }

    /// Takes a packet from the queue whose turn it is; returns it, and whether that is the L4S queue.
    fn take(&mut self, service: &Service) -> Option<(InFlight, bool)> {
        let both = !self.l4s.waiting.is_empty() && !self.classic.waiting.is_empty();
        let is_l4s = !self.l4s.waiting.is_empty() && (!both || self.turn <= 0);
        let queue = if is_l4s {
            &mut self.l4s
        } else {
            &mut self.classic
        };
        let t = queue.waiting.pop_front()?;
        self.backlog = self.backlog.minus(t.packet.len, service);
        let len = i64::try_from(t.packet.len.0).unwrap_or(i64::MAX);
        self.turn = match (both, is_l4s) {
            (false, _) => 0,
            (true, true) => self.turn.saturating_add(len),
            (true, false) => self.turn.saturating_sub(len.saturating_mul(WEIGHT)),
        };
        Some((t, is_l4s))
    }

    /// Marks an L4S packet that leaves its queue if it has to be; returns `None` if it is dropped.
    fn decide_l4s(&mut self, now: Nanos, mut t: InFlight) -> Option<InFlight> {
        let coupled = COUPLING * self.base;
        let is_hit = if coupled < 1.0 {
            let own = if self.l4s.waiting.len() > UNMARKED {
                self.ramp(now - t.since)
            } else {
                0.0
            };
            self.l4s.recur(own.max(coupled))
        } else {
            // In overload, marks alone cannot limit the queue any more.
            if self.l4s.recur(self.base * self.base) {
                return None;
            }
            self.l4s.recur(1.0)
        };
        if is_hit {
            t.mark();
        }
        Some(t)
    }

    /// Marks a Classic packet that leaves its queue if it has to be; returns `None` if it is dropped.
    fn decide_classic(&mut self, mut t: InFlight) -> Option<InFlight> {
        let squared = self.base * self.base;
        let is_hit = self.classic.recur(squared);
        (!is_hit || (squared < CLASSIC_MAX && t.mark())).then_some(t)
    }

    /// Returns the share of L4S packets to mark after this delay in their queue, 0 to 1.
    fn ramp(&self, delay: Nanos) -> f64 {
        let beyond = (delay - self.law.l_threshold).0 as f64;
        (beyond / RAMP.0 as f64).min(1.0)
    }
}

impl SubQueue {
    /// Adds a packet's likelihood, and returns whether the sum exceeds 1; it is then reduced by 1.
    fn recur(&mut self, likelihood: f64) -> bool {
        self.count += likelihood;
        let is_hit = self.count > 1.0;
        if is_hit {
            self.count -= 1.0;
        }
        is_hit
    }
}

impl QueueDiscipline for DualPi2Queue {
    fn enqueue(&mut self, at: Arrival, t: InFlight, service: &Service, _: &mut Out) -> EntryResult {
        self.catch_up(at.now);
        if !self
            .backlog
            .plus(t.packet.len, service)
            .fits(self.limit, at.now, service)
        {
            return EntryResult::Dropped(DropCause::QueueFull);
        }
        self.adopt(t, service);
        EntryResult::Taken
    }

    fn dequeue(&mut self, now: Nanos, service: &Service, out: &mut Out) -> Option<InFlight> {
        self.catch_up(now);
        loop {
            let (t, is_l4s) = self.take(service)?;
            let served = if is_l4s {
                self.decide_l4s(now, t)
            } else {
                self.decide_classic(t)
            };
            if served.is_some() {
                return served;
            }
            out.drop(now, t, DropCause::Aqm);
        }
    }

    /// Takes over the parameters; the next tick keeps its time.
    fn set(&mut self, at: Nanos, queue: &Queue) -> bool {
        let Discipline::DualPi2(law) = queue.discipline else {
            return false;
        };
        self.catch_up(at);
        self.limit = queue.limit;
        self.law = law;
        true
    }

    fn adopt(&mut self, t: InFlight, service: &Service) {
        self.backlog = self.backlog.plus(t.packet.len, service);
        match t.ecn() {
            Ecn::Ect1 | Ecn::Ce => self.l4s.waiting.push_back(t),
            Ecn::NotEct | Ecn::Ect0 => self.classic.waiting.push_back(t),
        }
    }

    /// Removes packets in the order of their arrival, as if there was one queue.
    fn remove_head(&mut self, service: &Service) -> Option<InFlight> {
        let since = |queue: &SubQueue| queue.waiting.front().map(|t| t.since);
        let queue = match (since(&self.l4s), since(&self.classic)) {
            (Some(l4s), Some(classic)) if l4s <= classic => &mut self.l4s,
            (Some(_), None) => &mut self.l4s,
            _ => &mut self.classic,
        };
        let t = queue.waiting.pop_front()?;
        self.backlog = self.backlog.minus(t.packet.len, service);
        Some(t)
    }

    fn len(&self) -> usize {
        self.l4s.waiting.len() + self.classic.waiting.len()
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }
}
