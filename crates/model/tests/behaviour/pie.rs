//! PIE, compared packet by packet with a model that was written from RFC 8033, and tested for its purpose.

use std::collections::VecDeque;

use crate::discipline::packet_of;
use crate::discipline::{
    Item, OutcomeCounts, PacketOutcome, bottleneck, compare, drawn, every, model, outcomes,
};
use farwire_model::{
    Bytes, Discipline, DropCause, Ecn, Link, LinkConfig, Nanos, Outcome, Pie, Queue, QueueLimit,
    Side,
};

/// The functions of the RFC's appendix A, one tick at a time, with ECN (5.1), derandomization (5.4) and the cap (5.5).
/// Times are in seconds.
struct Model {
    qdelay_ref: f64,
    t_update: u64,
    max_burst: u64,
    is_ecn_on: bool,
    limit: QueueLimit,
    queue: VecDeque<Item>,
    drop_prob: f64,
    accu_prob: f64,
    burst_allowance: u64,
    current_qdelay: f64,
    qdelay_old: f64,
    ticked: u64,
}

impl Model {
    fn new(queue: &Queue) -> Self {
        let Discipline::Pie(pie) = queue.discipline else {
            panic!("no model of this");
        };
        Self {
            qdelay_ref: pie.target.0 as f64 / 1e9,
            t_update: pie.tupdate.0,
            max_burst: pie.max_burst.0,
            is_ecn_on: pie.ecn,
            limit: queue.limit,
            queue: VecDeque::new(),
            drop_prob: 0.0,
            accu_prob: 0.0,
            burst_allowance: pie.max_burst.0,
            current_qdelay: 0.0,
            qdelay_old: 0.0,
            ticked: 0,
        }
    }

    fn timers(&mut self, now: u64) {
        while self.ticked + self.t_update <= now {
            self.ticked += self.t_update;
            self.calculate_drop_prob();
        }
    }

    fn calculate_drop_prob(&mut self) {
        let beyond = self.current_qdelay - self.qdelay_ref;
        let trend = self.current_qdelay - self.qdelay_old;
        let mut p = 1.0 / 8.0 * beyond + (1.0 + 1.0 / 4.0) * trend;
        p /= match self.drop_prob {
            low if low < 1e-6 => 2048.0,
            low if low < 1e-5 => 512.0,
            low if low < 1e-4 => 128.0,
            low if low < 1e-3 => 32.0,
            low if low < 1e-2 => 8.0,
            low if low < 1e-1 => 2.0,
            _ => 1.0,
        };
        if self.drop_prob >= 0.1 {
            p = p.min(0.02);
        }
        if self.current_qdelay > 0.25 {
            p += 0.02;
        }
        self.drop_prob += p;
        if self.current_qdelay == 0.0 && self.qdelay_old == 0.0 {
            self.drop_prob *= 0.98;
        }
        self.drop_prob = self.drop_prob.clamp(0.0, 1.0);
        self.qdelay_old = self.current_qdelay;
        self.burst_allowance -= self.burst_allowance.min(self.t_update);
    }

    fn byte_length(&self) -> u64 {
        self.queue.iter().map(|item| item.len).sum()
    }

    fn is_tail_drop(&self, item: &Item) -> bool {
        let bytes = self.byte_length() + item.len;
        match self.limit {
            QueueLimit::Packets(packets) => self.queue.len() >= packets as usize,
            QueueLimit::Bytes(limit) => bytes > limit.0,
            QueueLimit::Time(time) => bytes * model::NANOS_PER_BYTE > time.0,
            QueueLimit::TimeOrPackets(time, packets) => {
                let is_long = bytes * model::NANOS_PER_BYTE > time.0;
                is_long && self.queue.len() >= packets as usize
            }
        }
    }

    fn drop_early(&mut self, item: &Item) -> bool {
        if self.qdelay_old < self.qdelay_ref / 2.0 && self.drop_prob < 0.2 {
            return false;
        }
        if self.byte_length() <= 2 * 1_024 {
            return false;
        }
        if self.drop_prob == 0.0 {
            self.accu_prob = 0.0;
        }
        self.accu_prob += self.drop_prob;
        if self.accu_prob < 0.85 {
            return false;
        }
        if self.accu_prob >= 8.5 {
            return true;
        }
        drawn(item.id as u64) < self.drop_prob
    }
}

impl model::QueueModel for Model {
    fn arrive(&mut self, now: u64, item: Item, is_idle: bool, outcomes: &mut [PacketOutcome]) {
        self.timers(now);
        if !is_idle && self.is_tail_drop(&item) {
            self.accu_prob = 0.0;
            outcomes[item.id] = PacketOutcome::Dropped(now, DropCause::QueueFull);
            return;
        }
        let half = self.qdelay_ref / 2.0;
        if self.drop_prob == 0.0 && self.current_qdelay < half && self.qdelay_old < half {
            self.burst_allowance = self.max_burst;
        }
        if self.burst_allowance == 0 && self.drop_early(&item) {
            self.accu_prob = 0.0;
            if !(self.is_ecn_on && self.drop_prob < 0.1 && item.is_ect) {
                outcomes[item.id] = PacketOutcome::Dropped(now, DropCause::Aqm);
                return;
            }
            outcomes[item.id].mark();
        }
        self.queue.push_back(item);
    }

    fn depart(&mut self, now: u64, _: &mut [PacketOutcome]) -> Option<Item> {
        self.timers(now);
        let item = self.queue.pop_front()?;
        self.current_qdelay = (now - item.at) as f64 / 1e9;
        if self.queue.is_empty() {
            self.current_qdelay = 0.0;
        }
        Some(item)
    }
}

fn pie(pie: Pie) -> Queue {
    Queue {
        limit: QueueLimit::Packets(1_000),
        discipline: Discipline::Pie(pie),
    }
}

#[test]
fn pie_equals_rfc_8033_packet_by_packet() {
    let limits = [
        QueueLimit::Packets(1_000),
        QueueLimit::Packets(100),
        QueueLimit::Bytes(Bytes(200_000)),
        QueueLimit::Time(Nanos::from_millis(400)),
    ];
    let drops = Pie::default();
    let OutcomeCounts { aqm, full, marked } = compare(Discipline::Pie(drops), &limits, Model::new);
    assert!(aqm > 1_000 && full > 1_000 && marked == 0, "{aqm} {full}");
    let marks = Pie { ecn: true, ..drops };
    let OutcomeCounts { aqm, full, marked } = compare(Discipline::Pie(marks), &limits, Model::new);
    assert!(aqm > 1_000, "{aqm} {full} {marked}");
    assert!(full > 1_000, "{aqm} {full} {marked}");
    assert!(marked > 100, "{aqm} {full} {marked}");
    let hasty = Pie {
        target: Nanos(3_000_001),
        tupdate: Nanos::from_millis(2),
        max_burst: Nanos::from_millis(9),
        ecn: true,
    };
    compare(Discipline::Pie(hasty), &limits, Model::new);
}

#[test]
fn a_burst_into_an_empty_queue_is_not_dropped_for_max_burst() {
    // Twice the load that is served comes for two seconds.
    let items = every(4_000, 500_000, |_| (1_000, 1, Ecn::NotEct));
    let outcomes = outcomes(&pie(Pie::default()), &items);
    let is_dropped =
        |outcome: &PacketOutcome| matches!(outcome, PacketOutcome::Dropped(_, DropCause::Aqm));
    let first = outcomes.iter().position(is_dropped).unwrap();
    // Packet 300 comes at 150 ms, and the probability has to grow from 0 until then.
    assert!((300..1_200).contains(&first), "{first}");
    let last = &outcomes[3_000..];
    let share = last.iter().filter(|outcome| is_dropped(outcome)).count() as f64 / 1_000.0;
    assert!((0.35..0.65).contains(&share), "{share}");
}

#[test]
fn an_idle_controller_costs_nothing_and_forgets() {
    let config = LinkConfig {
        start: Nanos::from_secs(1_000_000_000),
        ..bottleneck(&pie(Pie::default()))
    };
    let mut link = Link::new(&config).unwrap();
    let dropped = |link: &mut Link, from: Nanos| {
        let items = every(2_000, 500_000, |_| (1_000, 1, Ecn::Ect0));
        items.iter().for_each(|item| {
            link.offer(from + Nanos(item.at), Side::A, packet_of(item));
        });
        let outcomes: Vec<_> = std::iter::from_fn(|| link.poll(Nanos::MAX)).collect();
        let drops = outcomes.iter().filter_map(|outcome| match outcome {
            Outcome::Drop { at, .. } => Some((*at - from).0),
            _ => None,
        });
        drops.collect::<Vec<_>>()
    };
    let first = dropped(&mut link, config.start);
    // 500 years later, no trace of the past is left.
    let again = dropped(&mut link, config.start + Nanos::from_secs(16_000_000_000));
    assert!(first[0] >= 150_000_000 && again[0] >= 150_000_000);
    assert!(first.len().abs_diff(again.len()) < first.len() / 4);
}
