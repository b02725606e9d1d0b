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

/// RTT_max, the longest round-trip time for which the gains are made, in nanoseconds.
const RTT_MAX: f64 = 1e8;

/// The probability does not grow while a delay that grows evenly is shorter than the target by 3 RTT_max, because there
/// the two terms of a tick add up to 0. Another RTT_max is a margin for rounding.
const NEAR: Nanos = Nanos::from_millis(400);

/// Above this number of ticks, those whose outcome is known up to rounding are skipped; fewer cost little.
const MANY: u64 = 1_000;

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
            self.skip((now - self.next_tick).0 / self.law.t_update.0);
            self.tick();
            let next = self.next_tick + self.law.t_update;
            if next == self.next_tick {
                return;
            }
            self.next_tick = next;
        }
    }

    /// Skips those of the next `ticks` whose outcome is known without carrying them out. There are millions of them if
    /// the queue was idle for a long time, or is served slowly.
    fn skip(&mut self, ticks: u64) {
        let t_update = self.law.t_update;
        let skipped = match self.longer_delay(self.next_tick) {
            // No packet waits, and the probability is 0 or decreases by the same amount at every tick.
            None if self.before == 0.0 && (self.base == 0.0 || ticks > MANY) => {
                let decrease = self.alpha() * self.target() * ticks as f64;
                self.base = (self.base - decrease).max(0.0);
                ticks
            }
            None => 0,
            Some(waited) => {
                let (delay, growth) = (waited.0 as f64, waited.0 as f64 - self.before);
                if self.base == 1.0 && growth > 0.0 && delay >= self.target() {
                    // The delay grows from here on, and the probability cannot.
                    ticks
                } else if self.base == 0.0 && growth <= t_update.0 as f64 && ticks > MANY {
                    // The delay grows by `t_update` at every tick, and the probability stays 0 until the delay is
                    // near the target.
                    let until_near = (self.law.target - NEAR - waited).0 / t_update.0;
                    let skipped = ticks.min(until_near);
                    if let Some(last) = skipped.checked_sub(1) {
                        self.before = (waited + t_update.saturating_mul(last)).0 as f64;
                    }
                    skipped
                } else {
                    0
                }
            }
        };
        self.next_tick += t_update.saturating_mul(skipped);
    }

    /// Carries out a tick (the RFC's `dualpi2_update`).
    fn tick(&mut self) {
        let beta = 0.3 / RTT_MAX;
        let delay = self.longer_delay(self.next_tick).unwrap_or_default();
        let delay = delay.0 as f64;
        let change = self.alpha() * (delay - self.target()) + beta * (delay - self.before);
        self.base = (self.base + change).clamp(0.0, 1.0);
        self.before = delay;
    }

    /// Returns the gain on the distance from the target, for each nanosecond.
    fn alpha(&self) -> f64 {
        0.1 * self.law.t_update.0 as f64 / (RTT_MAX * RTT_MAX)
    }

    fn target(&self) -> f64 {
        self.law.target.0 as f64
    }

    /// Returns the longer of the times that the first packets of both queues have waited at `at`, if they came before
    /// `at`.
    fn longer_delay(&self, at: Nanos) -> Option<Nanos> {
        let first = |queue: &SubQueue| {
            let first = queue.waiting.front().filter(|t| t.since < at)?;
            Some(at - first.since)
        };
        first(&self.l4s).max(first(&self.classic))
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
        let coupled = self.coupling() * self.base;
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
        // From 1 / k^2 on, where p_CL is 1, packets are dropped even if they could be marked.
        let most = 1.0 / (self.coupling() * self.coupling());
        (!is_hit || (squared < most && t.mark())).then_some(t)
    }

    /// Returns the factor k of the base probability with which L4S packets are marked.
    fn coupling(&self) -> f64 {
        f64::from(self.law.coupling)
    }

    /// Returns the share of L4S packets to mark after this delay in their queue, 0 to 1.
    fn ramp(&self, delay: Nanos) -> f64 {
        let beyond = delay - self.law.l_threshold;
        if beyond >= self.law.ramp {
            return f64::from(beyond > Nanos::ZERO);
        }
        beyond.0 as f64 / self.law.ramp.0 as f64
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

#[cfg(test)]
mod tests {
    use super::*;

    const T_UPDATE: Nanos = Nanos::from_millis(1);

    /// Creates a queue whose controller has the probability `base`. A packet waits in it if `waits` is true.
    fn queue(target: Nanos, base: f64, waits: bool) -> DualPi2Queue {
        let law = DualPi2 {
            target,
            t_update: T_UPDATE,
            ..DualPi2::default()
        };
        let mut queue = DualPi2Queue::new(Nanos::ZERO, QueueLimit::Packets(10), law);
        queue.base = base;
        if waits {
            queue.classic.waiting.push_back(InFlight::for_test(100));
        }
        queue
    }

    #[test]
    fn the_ramp_of_marks_begins_at_the_threshold_and_may_be_a_step() {
        let share = |ramp, delay| {
            let mut one = queue(Nanos::from_millis(15), 0.0, false);
            one.law.ramp = Nanos::from_micros(ramp);
            one.ramp(Nanos::from_micros(delay))
        };
        for (delay, expected) in [
            (700, 0.0),
            (800, 0.0),
            (1_000, 0.5),
            (1_200, 1.0),
            (9_000, 1.0),
        ] {
            assert!((share(400, delay) - expected).abs() < 1e-12, "{delay}");
        }
        for (delay, expected) in [(799, 0.0), (800, 0.0), (801, 1.0)] {
            assert!((share(0, delay) - expected).abs() < 1e-12, "{delay}");
        }
    }

    #[test]
    fn the_coupling_factor_scales_marks_and_limits_classic_ones() {
        use crate::packet::{Packet, PacketId, Side};
        use crate::units::Bytes;
        let packet = |ecn| {
            let packet = Packet {
                ecn,
                ..Packet::new(PacketId(0), Bytes(100))
            };
            InFlight::of(packet, Side::A, Nanos::ZERO)
        };
        // With a base probability of 0.2, a factor of 2 marks 40 % of L4S packets, and a factor of 4 marks 80 %. Classic
        // packets, 4 % of which are hit, are marked up to 1 / k^2: 25 % and 6.25 %. A factor of 5 is overload.
        for (coupling, marked, dropped_classic) in [(2, 400, 0), (4, 800, 0), (5, 960, 40)] {
            let mut one = queue(Nanos::from_millis(15), 0.2, false);
            one.law.coupling = coupling;
            let l4s = (0..1_000).filter_map(|_| one.decide_l4s(Nanos::ZERO, packet(Ecn::Ect1)));
            let marks = l4s.filter(|t| t.ecn() == Ecn::Ce).count();
            assert!(marks.abs_diff(marked) <= 1, "{coupling}: {marks}");
            let passed = (0..1_000).filter_map(|_| one.decide_classic(packet(Ecn::Ect0)));
            let dropped = 1_000 - passed.count();
            assert!(
                dropped.abs_diff(dropped_classic) <= 1,
                "{coupling}: {dropped}"
            );
        }
    }

    #[test]
    fn skipping_ticks_has_the_outcome_of_carrying_them_out() {
        let now = Nanos::from_secs(60);
        for (target, base, waits) in [
            (Nanos(10_000), 1.0, false),
            (Nanos::from_secs(1), 1.0, false),
            (Nanos::from_secs(50), 0.0, true),
            (Nanos::from_secs(100), 0.0, true),
            (Nanos::from_secs(100), 1.0, true),
        ] {
            let mut skipping = queue(target, base, waits);
            skipping.catch_up(now);
            let mut ticking = queue(target, base, waits);
            while ticking.next_tick <= now {
                ticking.tick();
                ticking.next_tick += T_UPDATE;
            }
            let apart = (skipping.base - ticking.base).abs();
            assert!(apart < 1e-9, "{target}, {base}, {waits}: {apart}");
            assert_eq!(skipping.before, ticking.before, "{target}");
            assert_eq!(skipping.next_tick, ticking.next_tick, "{target}");
        }
    }

    #[test]
    fn days_without_packets_are_caught_up_in_a_few_ticks() {
        let mut idle = queue(Nanos(1), 1.0, false);
        let mut waiting = queue(Nanos::from_secs(3_600), 0.0, true);
        for day in 1..1_000 {
            idle.catch_up(Nanos::from_secs(86_400 * day));
            waiting.catch_up(Nanos::from_secs(86_400 * day));
        }
        assert!(idle.base > 0.0 && waiting.base == 1.0);
    }
}
