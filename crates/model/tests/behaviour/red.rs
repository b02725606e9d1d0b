//! RED, compared packet by packet with a model that was written from the paper's pseudo-code, and tested for its
//! purpose.

use std::collections::VecDeque;

use crate::discipline::{
    Item, OutcomeCounts, PacketOutcome, compare, drawn, every, model, outcomes,
};
use farwire_model::{Bytes, Discipline, DropCause, Ecn, Nanos, Queue, QueueLimit, Red};

/// Figure 2 of Floyd and Jacobson, 1993, with its names, in bytes, and with the gentle slope of Floyd, 2000.
struct Model {
    red: Red,
    w_q: f64,
    limit: QueueLimit,
    q: VecDeque<Item>,
    avg: f64,
    count: i32,
    q_time: u64,
    is_empty_and_idle: bool,
}

impl Model {
    fn new(queue: &Queue, w_q: f64) -> Self {
        let Discipline::Red(red) = queue.discipline else {
            panic!("no model of this");
        };
        Self {
            red,
            w_q,
            limit: queue.limit,
            q: VecDeque::new(),
            avg: 0.0,
            count: -1,
            q_time: 0,
            is_empty_and_idle: true,
        }
    }

    fn bytes(&self) -> u64 {
        self.q.iter().map(|item| item.len).sum()
    }

    fn calculate_avg(&mut self, now: u64) {
        if self.is_empty_and_idle {
            // A fraction of a packet counts with that fraction of the weight.
            let packet = (self.red.avpkt.0 * model::NANOS_PER_BYTE) as f64;
            let mut m = (now - self.q_time) as f64 / packet;
            while m > 0.0 {
                self.avg -= self.avg * self.w_q * m.min(1.0);
                m -= 1.0;
            }
        } else {
            self.avg = (1.0 - self.w_q) * self.avg + self.w_q * self.bytes() as f64;
        }
        self.is_empty_and_idle = false;
    }

    /// Returns whether the packet is to be marked or dropped, and whether a mark is enough.
    fn mark(&mut self, id: usize) -> (bool, bool) {
        let (min_th, max_th) = (self.red.min.0 as f64, self.red.max.0 as f64);
        let max_p = self.red.probability.percent() / 100.0;
        let p_b = if self.avg < min_th {
            self.count = -1;
            return (false, true);
        } else if self.avg < max_th {
            max_p * (self.avg - min_th) / (max_th - min_th)
        } else if self.red.gentle && self.avg < 2.0 * max_th {
            max_p + (self.avg - max_th) / max_th * (1.0 - max_p)
        } else {
            self.count = 0;
            return (true, false);
        };
        self.count += 1;
        let certain = f64::from(self.count + 1) * p_b >= 1.0;
        let p_a = if certain {
            1.0
        } else {
            p_b / (1.0 - f64::from(self.count) * p_b)
        };
        let is_marked = drawn(id as u64) < p_a;
        if is_marked {
            self.count = 0;
        }
        (is_marked, true)
    }

    fn is_full(&self, item: &Item) -> bool {
        let bytes = self.bytes() + item.len;
        match self.limit {
            QueueLimit::Packets(packets) => self.q.len() >= packets as usize,
            QueueLimit::Bytes(limit) => bytes > limit.0,
            QueueLimit::Time(time) => bytes * model::NANOS_PER_BYTE > time.0,
            QueueLimit::TimeOrPackets(time, packets) => {
                let is_long = bytes * model::NANOS_PER_BYTE > time.0;
                is_long && self.q.len() >= packets as usize
            }
        }
    }
}

impl model::QueueModel for Model {
    fn arrive(&mut self, now: u64, item: Item, is_idle: bool, outcomes: &mut [PacketOutcome]) {
        self.calculate_avg(now);
        let (is_marked, is_mark_enough) = self.mark(item.id);
        let is_mark_enough = is_mark_enough || !self.red.harddrop;
        let is_ecn = is_mark_enough && self.red.ecn && item.is_ect;
        if is_marked && !is_ecn {
            outcomes[item.id] = PacketOutcome::Dropped(now, DropCause::Aqm);
        } else if !is_idle && self.is_full(&item) {
            outcomes[item.id] = PacketOutcome::Dropped(now, DropCause::QueueFull);
        } else {
            if is_marked {
                outcomes[item.id].mark();
            }
            self.q.push_back(item);
        }
    }

    fn depart(&mut self, now: u64, _: &mut [PacketOutcome]) -> Option<Item> {
        let item = self.q.pop_front();
        if item.is_none() {
            self.is_empty_and_idle = true;
            self.q_time = now;
        }
        item
    }
}

#[test]
fn red_equals_the_paper_packet_by_packet() {
    let limits = [
        QueueLimit::Packets(1_000),
        QueueLimit::Packets(40),
        QueueLimit::Bytes(Bytes(100_000)),
        QueueLimit::Time(Nanos::from_millis(120)),
    ];
    let all = |red: Red, w_q: f64| {
        compare(Discipline::Red(red), &limits, |queue| {
            Model::new(queue, w_q)
        })
    };
    // This is the weight for 50 packets of 1,000 bytes and a minimum of 30,000 bytes.
    let gentle = Red::default();
    let OutcomeCounts { aqm, full, marked } = all(gentle, 1.0 / 32.0);
    assert!(aqm > 1_000 && full > 1_000 && marked == 0, "{aqm} {full}");
    let steep = Red {
        gentle: false,
        ecn: true,
        ..gentle
    };
    let OutcomeCounts { aqm, full, marked } = all(steep, 1.0 / 32.0);
    assert!(aqm > 1_000, "{aqm} {full} {marked}");
    assert!(full > 1_000, "{aqm} {full} {marked}");
    assert!(marked > 100, "{aqm} {full} {marked}");
    let soft = Red {
        harddrop: false,
        ..steep
    };
    let of_soft = all(soft, 1.0 / 32.0);
    assert!(of_soft.marked > marked, "{} {marked}", of_soft.marked);
    // 11 lie beyond 9 packets of 500 bytes: (1 - (7/8)^19) * 8 is 7.4, (1 - (15/16)^19) * 16 is 11.3.
    let short = Red {
        min: Bytes(4_500),
        max: Bytes(9_000),
        probability: "10%".parse().unwrap(),
        avpkt: Bytes(500),
        burst: Some(19),
        ecn: true,
        ..gentle
    };
    let OutcomeCounts { aqm, marked, .. } = all(short, 1.0 / 16.0);
    assert!(aqm > 1_000 && marked > 1_000, "{aqm} {marked}");
}

fn red(red: Red) -> Queue {
    Queue {
        limit: QueueLimit::Packets(1_000),
        discipline: Discipline::Red(red),
    }
}

#[test]
fn a_short_burst_is_not_dropped() {
    // The packets that come together are as many as `burst` says.
    let items = every(50, 0, |_| (1_000, 1, Ecn::NotEct));
    let outcomes = outcomes(&red(Red::default()), &items);
    let is_dropped = |outcome: &&PacketOutcome| matches!(outcome, PacketOutcome::Dropped(..));
    assert_eq!(outcomes.iter().filter(is_dropped).count(), 0);
}

#[test]
fn after_an_idle_time_the_average_has_decayed() {
    let mut items = every(1_200, 0, |_| (1_000, 1, Ecn::NotEct));
    let served = |outcome: &PacketOutcome| match outcome {
        PacketOutcome::Delivered { due, .. } => Some(*due),
        _ => None,
    };
    let first = outcomes(&red(Red::default()), &items[..600]);
    let idle_from = first.iter().filter_map(served).max().unwrap();
    let mut first_drop_after = |pause: u64| {
        items[600..]
            .iter_mut()
            .for_each(|item| item.at = idle_from + pause);
        let outcomes = outcomes(&red(Red::default()), &items);
        let mut second = outcomes[600..].iter();
        second
            .position(|outcome| served(outcome).is_none())
            .unwrap()
    };
    // In 1 ms one packet of 1,000 bytes could have been served, and in two seconds 2,000, after which nothing is left
    // of the average.
    let (soon, late) = (first_drop_after(1_000_000), first_drop_after(2_000_000_000));
    assert!(soon <= 1 && late >= 50, "{soon} {late}");
}

#[test]
fn the_average_falls_in_idle_times_shorter_than_a_packet() {
    // After a burst, a packet comes every 1.5 ms; before each, the server is idle for 0.5 ms.
    let mut items = every(1_600, 1_500_000, |_| (1_000, 1, Ecn::NotEct));
    items[..600].iter_mut().for_each(|item| item.at = 0);
    let served = |outcome: &PacketOutcome| match outcome {
        PacketOutcome::Delivered { due, .. } => Some(*due),
        _ => None,
    };
    let red = red(Red::default());
    let burst = outcomes(&red, &items[..600]);
    let idle_from = burst.iter().filter_map(served).max().unwrap();
    for item in &mut items[600..] {
        item.at = item.at - 600 * 1_500_000 + idle_from + 500_000;
    }
    let outcomes = outcomes(&red, &items);
    let dropped = |outcomes: &[PacketOutcome]| {
        outcomes
            .iter()
            .filter(|outcome| served(outcome).is_none())
            .count()
    };
    // With half a packet at a time, the average falls from twice `max` to below `min` in at most 115 packets: 64 ln 6.
    let (first, then) = (dropped(&outcomes[600..750]), dropped(&outcomes[750..]));
    assert!(first > 5 && then == 0, "{first} {then}");
}
