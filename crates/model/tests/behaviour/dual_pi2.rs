//! DualPI2, compared with a model that was written from RFC 9332, appendix A, and tested for its purpose.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::discipline::{
    Item, OutcomeCounts, PacketOutcome, bottleneck, compare, every, model, outcomes, packet_of,
};
use farwire_model::{
    Bytes, Discipline, DropCause, DualPi2, Ecn, Effect, Link, LinkConfig, Nanos, Outcome, Queue,
    QueueLimit, Side,
};

/// The RFC's pseudo-code with overload handling, one tick at a time. Queue delays are in seconds.
struct Model {
    params: DualPi2,
    limit: QueueLimit,
    l: VecDeque<Item>,
    c: VecDeque<Item>,
    p: f64,
    prevq: f64,
    l_count: f64,
    c_count: f64,
    /// The number of bytes by which L is ahead of its share.
    ahead: i64,
    ticked: u64,
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

fn recur(count: &mut f64, likelihood: f64) -> bool {
    *count += likelihood;
    if *count > 1.0 {
        *count -= 1.0;
        return true;
    }
    false
}

impl Model {
    fn new(queue: &Queue) -> Self {
        let Discipline::DualPi2(params) = queue.discipline else {
            panic!("no model of this");
        };
        Self {
            params,
            limit: queue.limit,
            l: VecDeque::new(),
            c: VecDeque::new(),
            p: 0.0,
            prevq: 0.0,
            l_count: 0.0,
            c_count: 0.0,
            ahead: 0,
            ticked: 0,
        }
    }

    fn update(&mut self, now: u64) {
        let (t_update, rtt_max) = (seconds(self.params.t_update.0), 0.1);
        let (alpha, beta) = (0.1 * t_update / (rtt_max * rtt_max), 0.3 / rtt_max);
        while self.ticked + self.params.t_update.0 <= now {
            self.ticked += self.params.t_update.0;
            let time =
                |queue: &VecDeque<Item>| queue.front().map_or(0, |item| self.ticked - item.at);
            let curq = seconds(time(&self.l).max(time(&self.c)));
            self.p += alpha * (curq - seconds(self.params.target.0)) + beta * (curq - self.prevq);
            self.p = self.p.clamp(0.0, 1.0);
            self.prevq = curq;
        }
    }

    fn schedule_l(&mut self) -> bool {
        let is_l = match (self.l.front(), self.c.front()) {
            (Some(_), None) => true,
            (Some(_), Some(_)) => self.ahead <= 0,
            _ => false,
        };
        self.ahead = match (self.l.front(), self.c.front()) {
            (Some(item), Some(_)) if is_l => self.ahead + item.len as i64,
            (Some(_), Some(item)) => self.ahead - 15 * item.len as i64,
            _ => 0,
        };
        is_l
    }
}

impl model::QueueModel for Model {
    fn arrive(&mut self, now: u64, item: Item, is_idle: bool, outcomes: &mut [PacketOutcome]) {
        self.update(now);
        let bytes: u64 = self.l.iter().chain(&self.c).map(|item| item.len).sum();
        let fits = match self.limit {
            QueueLimit::Packets(limit) => self.l.len() + self.c.len() < limit as usize,
            QueueLimit::Bytes(limit) => bytes + item.len <= limit.0,
            QueueLimit::Time(limit) => (bytes + item.len) * model::NANOS_PER_BYTE <= limit.0,
            QueueLimit::TimeOrPackets(limit, packets) => {
                let is_short = (bytes + item.len) * model::NANOS_PER_BYTE <= limit.0;
                is_short || self.l.len() + self.c.len() < packets as usize
            }
        };
        if !fits && !is_idle {
            outcomes[item.id] = PacketOutcome::Dropped(now, DropCause::QueueFull);
        } else if matches!(item.ecn, Ecn::Ect1 | Ecn::Ce) {
            self.l.push_back(item);
        } else {
            self.c.push_back(item);
        }
    }

    fn depart(&mut self, now: u64, outcomes: &mut [PacketOutcome]) -> Option<Item> {
        self.update(now);
        let k = f64::from(self.params.coupling);
        while !self.l.is_empty() || !self.c.is_empty() {
            let (p_c, p_cl) = (self.p * self.p, (k * self.p).min(1.0));
            if self.schedule_l() {
                let item = self.l.pop_front()?;
                if p_cl < 1.0 {
                    let waited = seconds(now - item.at);
                    let beyond = waited - seconds(self.params.l_threshold.0);
                    let range = seconds(self.params.ramp.0);
                    let native = match self.l.len() {
                        0..=1 => 0.0,
                        _ if range == 0.0 => f64::from(beyond > 0.0),
                        _ => (beyond / range).clamp(0.0, 1.0),
                    };
                    if recur(&mut self.l_count, native.max(p_cl)) {
                        outcomes[item.id].mark();
                    }
                } else {
                    if recur(&mut self.l_count, p_c) {
                        outcomes[item.id] = PacketOutcome::Dropped(now, DropCause::Aqm);
                        continue;
                    }
                    if recur(&mut self.l_count, p_cl) {
                        outcomes[item.id].mark();
                    }
                }
                return Some(item);
            }
            let item = self.c.pop_front()?;
            if recur(&mut self.c_count, p_c) {
                if item.ecn == Ecn::NotEct || p_c >= 1.0 / (k * k) {
                    outcomes[item.id] = PacketOutcome::Dropped(now, DropCause::Aqm);
                    continue;
                }
                outcomes[item.id].mark();
            }
            return Some(item);
        }
        None
    }
}

fn dual_pi2(limit: QueueLimit) -> Queue {
    let discipline = Discipline::DualPi2(DualPi2::default());
    Queue { limit, discipline }
}

#[test]
fn dual_pi2_equals_rfc_9332_packet_by_packet() {
    let limits = [
        QueueLimit::Packets(1_000),
        QueueLimit::Bytes(Bytes(100_000)),
        QueueLimit::Time(Nanos::from_millis(250)),
    ];
    // The defaults, and a step instead of a ramp with another coupling factor.
    let step = DualPi2 {
        l_threshold: Nanos::from_millis(1),
        ramp: Nanos::ZERO,
        coupling: 3,
        ..DualPi2::default()
    };
    for params in [DualPi2::default(), step] {
        let discipline = Discipline::DualPi2(params);
        let OutcomeCounts { aqm, full, marked } = compare(discipline, &limits, Model::new);
        assert!(aqm > 1_000, "{aqm} {full} {marked}");
        assert!(full > 1_000, "{aqm} {full} {marked}");
        assert!(marked > 1_000, "{aqm} {full} {marked}");
    }
}

/// A sender's response to congestion.
#[derive(Clone, Copy, PartialEq)]
enum Sender {
    /// It halves its window once per round trip.
    Classic(Ecn),
    /// It reduces its window by half a packet for each mark, as scalable congestion controls do on average.
    Scalable,
}

/// Counts for one sender after it had settled.
#[derive(Clone, Copy, Debug, Default)]
struct SenderStats {
    packets: f64,
    /// Packets marked or dropped.
    signalled: f64,
    dropped: f64,
    /// The total time in the bottleneck, in milliseconds.
    waited: f64,
}

/// Runs senders that always have data to send, for a minute over 100 Mbit/s and 20 ms. The first ten seconds do not
/// count.
fn compete(queue: &Queue, senders: &[Sender]) -> Vec<SenderStats> {
    let round_trip = 20_000_000;
    let mut config = bottleneck(queue);
    if let Effect::Rate(rate) = &mut config.paths[0].stages[0].effect {
        rate.rate = "100mbit".parse().ok();
    }
    let mut link = Link::new(&config).unwrap();
    let mut stats = vec![SenderStats::default(); senders.len()];
    let mut windows = vec![10.0_f64; senders.len()];
    let mut out = vec![0.0; senders.len()];
    let mut calm_until = vec![0; senders.len()];
    let mut sent: Vec<(usize, u64)> = Vec::new();
    // The time when the outcome of a packet is known, its sender's number, whether the sender is to slow down, and
    // whether the packet was lost.
    let mut feedback: BinaryHeap<Reverse<(u64, usize, bool, bool)>> = BinaryHeap::new();
    let mut now = 0;
    loop {
        for (number, sender) in senders.iter().enumerate() {
            let ecn = match sender {
                Sender::Classic(ecn) => *ecn,
                Sender::Scalable => Ecn::Ect1,
            };
            while out[number] + 1.0 <= windows[number] {
                let item = Item {
                    id: sent.len(),
                    at: now,
                    len: 1_500,
                    flow: 0,
                    ecn,
                    is_ect: ecn != Ecn::NotEct,
                };
                sent.push((number, now));
                link.offer(Nanos(now), Side::A, packet_of(&item));
                out[number] += 1.0;
            }
        }
        let next_feedback = feedback.peek().map(|Reverse(first)| first.0);
        let wakes = link.next_at().map(|at| at.0.max(now));
        now = next_feedback.into_iter().chain(wakes).min().unwrap();
        if now > 60_000_000_000 {
            return stats;
        }
        while let Some(outcome) = link.poll(Nanos(now)) {
            let id = usize::try_from(outcome.id().0).unwrap();
            let (at, mark, lost) = match outcome {
                Outcome::Deliver { due, mark, .. } => (due.0, mark, false),
                Outcome::Drop { at, .. } => (at.0, true, true),
                Outcome::Copied { .. } => panic!("nothing here copies"),
            };
            feedback.push(Reverse((at + round_trip, id, mark, lost)));
            let (number, from) = sent[id];
            if now > 10_000_000_000 {
                let stats = &mut stats[number];
                stats.packets += 1.0;
                stats.signalled += f64::from(u8::from(mark));
                stats.dropped += f64::from(u8::from(lost));
                stats.waited += (at - from) as f64 / 1e6;
            }
        }
        while let Some(Reverse((_, id, slow, _))) = feedback.pop_if_due(now) {
            let (number, from) = sent[id];
            out[number] -= 1.0;
            let window = &mut windows[number];
            match (senders[number], slow) {
                (_, false) => *window += 1.0 / *window,
                (Sender::Scalable, true) => *window = (*window - 0.5).max(2.0),
                (Sender::Classic(_), true) if from >= calm_until[number] => {
                    *window = (*window / 2.0).max(2.0);
                    calm_until[number] = now;
                }
                (Sender::Classic(_), true) => {}
            }
        }
    }
}

trait PopIfDue {
    fn pop_if_due(&mut self, now: u64) -> Option<Reverse<(u64, usize, bool, bool)>>;
}

impl PopIfDue for BinaryHeap<Reverse<(u64, usize, bool, bool)>> {
    fn pop_if_due(&mut self, now: u64) -> Option<Reverse<(u64, usize, bool, bool)>> {
        self.peek().filter(|first| first.0.0 <= now)?;
        self.pop()
    }
}

#[test]
fn classic_delay_settles_near_target_and_l4s_delay_far_below() {
    for classic in [Ecn::NotEct, Ecn::Ect0] {
        let senders = [
            Sender::Classic(classic),
            Sender::Classic(classic),
            Sender::Scalable,
            Sender::Scalable,
        ];
        let stats = compete(&dual_pi2(QueueLimit::Packets(2_000)), &senders);
        let [first, second, third, fourth] = stats[..] else {
            panic!("four senders");
        };
        let sum = |one: SenderStats, other: SenderStats| SenderStats {
            packets: one.packets + other.packets,
            signalled: one.signalled + other.signalled,
            dropped: one.dropped + other.dropped,
            waited: one.waited + other.waited,
        };
        let (classics, l4s) = (sum(first, second), sum(third, fourth));
        let wait = |stats: SenderStats| stats.waited / stats.packets;
        assert!((10.0..20.0).contains(&wait(classics)), "{stats:?}");
        assert!(wait(l4s) < 1.5, "{stats:?}");
        assert!(l4s.dropped == 0.0);
        assert!((classics.dropped > 0.0) == (classic == Ecn::NotEct));
        // p_L = k p' and p_C = p'^2, so the L4S share is twice the square root of the Classic one, minus an effect of
        // the variation of p'.
        let share = |stats: SenderStats| stats.signalled / stats.packets;
        let coupling = share(l4s) / share(classics).sqrt();
        assert!((1.6..2.05).contains(&coupling), "{coupling} {stats:?}");
        // Neither sender starves: they are within a factor of two of each other.
        let balance = l4s.packets / classics.packets;
        assert!((0.5..2.0).contains(&balance), "{balance}");
    }
}

#[test]
fn l4s_packets_are_dropped_only_in_overload() {
    let queue = dual_pi2(QueueLimit::Packets(10_000));
    let aqm = |gap| {
        let items = every(8_000, gap, |_| (1_000, 1, Ecn::Ect1));
        let outcomes = outcomes(&queue, &items);
        let count =
            |is: fn(&PacketOutcome) -> bool| outcomes.iter().filter(|outcome| is(outcome)).count();
        (
            count(|outcome| matches!(outcome, PacketOutcome::Dropped(_, DropCause::Aqm))),
            count(|outcome| matches!(outcome, PacketOutcome::Delivered { mark: true, .. })),
        )
    };
    // First the load is exactly what is served, then twice as much, from senders that do not respond.
    assert_eq!(aqm(1_000_000), (0, 0));
    let (dropped, marked) = aqm(500_000);
    assert!(dropped > 2_500 && marked > 3_500, "{dropped} {marked}");
}

#[test]
fn an_idle_controller_costs_nothing_and_forgets_in_time() {
    let config = LinkConfig {
        start: Nanos::from_secs(1_000_000_000),
        ..bottleneck(&dual_pi2(QueueLimit::Packets(1_000)))
    };
    let mut link = Link::new(&config).unwrap();
    let marked = |link: &mut Link, from: Nanos| {
        let items = every(300, 500_000, |_| (1_000, 1, Ecn::Ect0));
        items.iter().for_each(|item| {
            link.offer(from + Nanos(item.at), Side::A, packet_of(item));
        });
        let outcomes = std::iter::from_fn(|| link.poll(Nanos::MAX));
        outcomes
            .map(|outcome| !matches!(outcome, Outcome::Deliver { mark: false, .. }))
            .collect::<Vec<_>>()
    };
    let first = marked(&mut link, config.start);
    assert!(first.contains(&true));
    // 500 years later, a tick falls on the same time as at first: 16 ms divides the time in between.
    let later = config.start + Nanos::from_millis(16 * 1_000_000_000_000);
    let again = marked(&mut link, later);
    // Only the sum of `recur` is left.
    let count = |marks: &[bool]| marks.iter().filter(|mark| **mark).count();
    assert!(count(&first).abs_diff(count(&again)) <= 1);
}
