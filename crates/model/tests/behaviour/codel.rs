//! CoDel and FQ-CoDel, compared packet by packet with models that were written from RFC 8289 and RFC 8290.

use std::collections::{BTreeMap, VecDeque};

use crate::discipline::{
    self, Item, OutcomeCounts, PacketOutcome, every, model, outcomes, patterns,
};
use farwire_model::{Bytes, Codel, Discipline, DropCause, Ecn, FqCodel, Nanos, Queue, QueueLimit};

/// The variables of RFC 8289 with its types: times are in nanoseconds, and 0 means "not yet".
#[derive(Default)]
struct Rfc8289 {
    first_above: u64,
    drop_next: u64,
    count: u64,
    last_count: u64,
    in_drop_state: bool,
}

/// One queue of the model.
#[derive(Default)]
struct FlowQueue {
    items: VecDeque<Item>,
    state: Rfc8289,
    /// The credits of FQ-CoDel.
    credits: i64,
}

/// A model of a bottleneck's whole queue: it takes arrivals and returns the packet to serve next and the outcomes of
/// the others.
struct Model {
    params: FqCodel,
    limit: QueueLimit,
    queues: BTreeMap<u32, FlowQueue>,
    fresh: Vec<u32>,
    stale: Vec<u32>,
    is_fair: bool,
    largest: u64,
}

impl FlowQueue {
    fn bytes(&self) -> u64 {
        self.items.iter().map(|item| item.len).sum()
    }

    /// The RFC's `dodequeue()`, with `elsewhere` bytes in the other queues (section 4.4).
    fn do_dequeue(
        &mut self,
        now: u64,
        params: &Codel,
        largest: u64,
        elsewhere: u64,
    ) -> (Option<Item>, bool) {
        let Some(item) = self.items.pop_front() else {
            self.state.first_above = 0;
            return (None, false);
        };
        let is_below = now - item.at < params.target.0 || self.bytes() + elsewhere <= largest;
        if is_below {
            self.state.first_above = 0;
        } else if self.state.first_above == 0 {
            self.state.first_above = now + params.interval.0;
        } else if now >= self.state.first_above {
            return (Some(item), true);
        }
        (Some(item), false)
    }

    /// The RFC's `dequeue()`, with marks.
    fn dequeue(
        &mut self,
        now: u64,
        params: &Codel,
        largest: u64,
        elsewhere: u64,
        outcomes: &mut [PacketOutcome],
    ) -> Option<Item> {
        let (mut item, mut ok_to_drop) = self.do_dequeue(now, params, largest, elsewhere);
        if self.state.in_drop_state {
            if !ok_to_drop {
                self.state.in_drop_state = false;
            }
            while self.state.in_drop_state && now >= self.state.drop_next {
                let head = item.take().unwrap();
                self.state.count += 1;
                if params.ecn && head.is_ect {
                    outcomes[head.id].mark();
                    self.state.drop_next += interval_by_root(params, self.state.count);
                    return Some(head);
                }
                outcomes[head.id] = PacketOutcome::Dropped(now, DropCause::Aqm);
                (item, ok_to_drop) = self.do_dequeue(now, params, largest, elsewhere);
                if ok_to_drop {
                    self.state.drop_next += interval_by_root(params, self.state.count);
                } else {
                    self.state.in_drop_state = false;
                }
            }
            return item;
        }
        if !ok_to_drop {
            return item;
        }
        let head = item.take().unwrap();
        if params.ecn && head.is_ect {
            outcomes[head.id].mark();
            item = Some(head);
        } else {
            outcomes[head.id] = PacketOutcome::Dropped(now, DropCause::Aqm);
            item = self.do_dequeue(now, params, largest, elsewhere).0;
        }
        self.state.in_drop_state = true;
        let delta = self.state.count - self.state.last_count;
        self.state.count = 1;
        if delta > 1 && (now as i64 - self.state.drop_next as i64) < 16 * params.interval.0 as i64 {
            self.state.count = delta;
        }
        self.state.drop_next = now + interval_by_root(params, self.state.count);
        self.state.last_count = self.state.count;
        item
    }
}

/// Returns interval / sqrt(count): the largest integer whose square, times the count, does not exceed the interval's
/// square.
fn interval_by_root(params: &Codel, count: u64) -> u64 {
    let squared = u128::from(params.interval.0).pow(2);
    let (mut low, mut high) = (0, u128::from(params.interval.0) + 1);
    while high - low > 1 {
        let middle = (low + high) / 2;
        if middle * middle * u128::from(count) <= squared {
            low = middle;
        } else {
            high = middle;
        }
    }
    u64::try_from(low).unwrap()
}

impl Model {
    fn new(queue: &Queue) -> Self {
        let (params, is_fair) = match queue.discipline {
            Discipline::Codel(codel) => {
                let params = FqCodel {
                    codel,
                    ..FqCodel::default()
                };
                (params, false)
            }
            Discipline::FqCodel(params) => (params, true),
            _ => panic!("no model of this"),
        };
        Self {
            params,
            limit: queue.limit,
            queues: BTreeMap::new(),
            fresh: Vec::new(),
            stale: Vec::new(),
            is_fair,
            largest: 0,
        }
    }

    fn is_over_limit(&self) -> bool {
        let items = || {
            self.queues
                .values()
                .flat_map(|flow_queue| &flow_queue.items)
        };
        let bytes: u64 = items().map(|item| item.len).sum();
        match self.limit {
            QueueLimit::Packets(packets) => items().count() > packets as usize,
            QueueLimit::Bytes(limit) => bytes > limit.0,
            QueueLimit::Time(time) => bytes * model::NANOS_PER_BYTE > time.0,
            QueueLimit::TimeOrPackets(time, packets) => {
                let is_long = bytes * model::NANOS_PER_BYTE > time.0;
                is_long && items().count() > packets as usize
            }
        }
    }

    fn place(&mut self, item: Item) -> u32 {
        let place = if self.is_fair {
            item.flow % u32::from(self.params.flows)
        } else {
            0
        };
        self.largest = self.largest.max(item.len);
        self.queues.entry(place).or_default().items.push_back(item);
        let is_known = self.fresh.contains(&place) || self.stale.contains(&place);
        if self.is_fair && !is_known {
            self.queues.get_mut(&place).unwrap().credits = i64::from(self.params.quantum);
            self.fresh.push(place);
        }
        place
    }

    /// The overflow of RFC 8290, section 4.1, second half.
    fn drop_half_of_the_largest(&mut self, now: u64, outcomes: &mut [PacketOutcome]) {
        let most = self.queues.values().map(FlowQueue::bytes).max().unwrap();
        let largest = self
            .queues
            .values_mut()
            .find(|flow_queue| flow_queue.bytes() == most);
        let items = &mut largest.unwrap().items;
        let half = items.len() - items.len() / 2;
        for item in items.drain(..half.min(64)) {
            outcomes[item.id] = PacketOutcome::Dropped(now, DropCause::QueueFull);
        }
    }

    /// The scheduler of RFC 8290, section 4.2.
    fn dequeue_fairly(&mut self, now: u64, outcomes: &mut [PacketOutcome]) -> Option<Item> {
        loop {
            let is_fresh = !self.fresh.is_empty();
            let list = if is_fresh {
                &mut self.fresh
            } else {
                &mut self.stale
            };
            let place = *list.first()?;
            let all: u64 = self.queues.values().map(FlowQueue::bytes).sum();
            let flow_queue = self.queues.get_mut(&place).unwrap();
            let elsewhere = all - flow_queue.bytes();
            if flow_queue.credits <= 0 {
                flow_queue.credits += i64::from(self.params.quantum);
                list.remove(0);
                self.stale.push(place);
                continue;
            }
            match flow_queue.dequeue(now, &self.params.codel, self.largest, elsewhere, outcomes) {
                Some(item) => {
                    flow_queue.credits -= item.len as i64;
                    return Some(item);
                }
                None if is_fresh => {
                    list.remove(0);
                    self.stale.push(place);
                }
                None => {
                    list.remove(0);
                }
            }
        }
    }
}

impl model::QueueModel for Model {
    fn arrive(&mut self, now: u64, item: Item, is_idle: bool, outcomes: &mut [PacketOutcome]) {
        let place = self.place(item);
        if is_idle {
            return;
        }
        if self.is_fair {
            while self.is_over_limit() {
                self.drop_half_of_the_largest(now, outcomes);
            }
        } else if self.is_over_limit() {
            self.queues.get_mut(&place).unwrap().items.pop_back();
            outcomes[item.id] = PacketOutcome::Dropped(now, DropCause::QueueFull);
        }
    }

    fn depart(&mut self, now: u64, outcomes: &mut [PacketOutcome]) -> Option<Item> {
        let item = if self.is_fair {
            self.dequeue_fairly(now, outcomes)?
        } else {
            let flow_queue = self.queues.get_mut(&0)?;
            flow_queue.dequeue(now, &self.params.codel, self.largest, 0, outcomes)?
        };
        let is_above = |threshold: Nanos| now - item.at > threshold.0;
        if item.is_ect && self.params.codel.ce_threshold.is_some_and(is_above) {
            outcomes[item.id].mark();
        }
        Some(item)
    }
}

/// Compares the link with the model.
fn compare(discipline: Discipline) -> OutcomeCounts {
    let limits = [
        QueueLimit::Packets(1_000),
        QueueLimit::Packets(40),
        QueueLimit::Bytes(Bytes(200_000)),
        QueueLimit::Time(Nanos::from_millis(150)),
        QueueLimit::TimeOrPackets(Nanos::from_millis(20), 40),
    ];
    discipline::compare(discipline, &limits, Model::new)
}

#[test]
fn codel_equals_rfc_8289_packet_by_packet() {
    let OutcomeCounts { aqm, full, marked } = compare(Discipline::Codel(Codel::default()));
    assert!(aqm > 1_000 && full > 1_000 && marked == 0);
    let ecn = Codel {
        ecn: true,
        ..Codel::default()
    };
    let OutcomeCounts { aqm, full, marked } = compare(Discipline::Codel(ecn));
    assert!(aqm > 1_000 && full > 1_000 && marked > 1_000);
    let hasty = Codel {
        target: Nanos::from_micros(1_500),
        interval: Nanos::from_millis(20),
        ecn: true,
        ce_threshold: None,
    };
    compare(Discipline::Codel(hasty));
}

#[test]
fn packets_that_waited_longer_than_a_threshold_are_marked() {
    // Without `ecn`, CoDel itself only drops.
    let codel = Codel {
        ce_threshold: Some(Nanos::from_millis(2)),
        ..Codel::default()
    };
    let OutcomeCounts { aqm, full, marked } = compare(Discipline::Codel(codel));
    assert!(aqm > 1_000 && full > 1_000 && marked > 1_000);
    let fair = FqCodel {
        codel: Codel { ecn: true, ..codel },
        ..FqCodel::default()
    };
    assert!(compare(Discipline::FqCodel(fair)).marked > 1_000);
}

#[test]
fn fq_codel_equals_rfc_8290_packet_by_packet() {
    let OutcomeCounts { aqm, full, marked } = compare(Discipline::FqCodel(FqCodel::default()));
    assert!(aqm > 500, "{aqm} {full} {marked}");
    assert!(full > 500, "{aqm} {full} {marked}");
    assert!(marked > 500, "{aqm} {full} {marked}");
    let crowded = FqCodel {
        flows: 3,
        quantum: 300,
        ..FqCodel::default()
    };
    compare(Discipline::FqCodel(crowded));
}

#[test]
fn a_sparse_flow_does_not_wait_for_a_bulk_flow_under_fq_codel() {
    let (_, items) = patterns()
        .into_iter()
        .find(|(name, _)| *name == "a fat flow and a sparse one")
        .unwrap();
    let of = |discipline| {
        let limit = QueueLimit::Packets(1_000);
        let outcomes = outcomes(&Queue { limit, discipline }, &items);
        let sparse = items
            .iter()
            .zip(outcomes)
            .filter(|(item, _)| item.flow == 7);
        let waits = sparse.map(|(item, outcome)| match outcome {
            PacketOutcome::Delivered { due, .. } => due - item.at,
            _ => u64::MAX,
        });
        waits.max().unwrap()
    };
    // The packet waits for its own 60 bytes and a packet of 1,500 that may be in service, at 1 us for each byte.
    assert!(of(Discipline::FqCodel(FqCodel::default())) <= 1_560_000);
    assert!(of(Discipline::DropTail) > 100_000_000);
}

#[test]
fn many_flows_under_fq_codel_wait_no_longer_than_one() {
    // The load is a tenth too high for a minute. A single packet of each of 200 flows takes 300 ms in total.
    let settled = |flows| {
        let items = every(44_000, 1_363_636, |n| (1_500, n % flows, Ecn::NotEct));
        let limit = QueueLimit::Packets(10_240);
        let discipline = Discipline::FqCodel(FqCodel::default());
        let outcomes = outcomes(&Queue { limit, discipline }, &items);
        let waits: Vec<f64> = items
            .iter()
            .zip(outcomes)
            .skip(22_000)
            .filter_map(|(item, outcome)| match outcome {
                PacketOutcome::Delivered { due, .. } => Some((due - item.at) as f64 / 1e6),
                _ => None,
            })
            .collect();
        waits.iter().sum::<f64>() / waits.len() as f64
    };
    let (one, many) = (settled(1), settled(200));
    assert!(one < 20.0 && many < 20.0, "{one} {many}");
}

#[test]
fn a_jumbo_that_found_the_queue_full_is_the_longest_packet() {
    // Twenty small packets always wait. They take 6 ms, which is above target, but have fewer bytes than the jumbo
    // frame.
    let items = every(4_000, 200_000, |n| match n {
        100 => (9_000, 1, Ecn::NotEct),
        _ => (300, 1, Ecn::NotEct),
    });
    let limit = QueueLimit::Packets(20);
    let discipline = Discipline::Codel(Codel::default());
    let outcomes = outcomes(&Queue { limit, discipline }, &items);
    assert!(matches!(
        outcomes[100],
        PacketOutcome::Dropped(_, DropCause::QueueFull)
    ));
    let by_codel =
        |outcome: &&PacketOutcome| matches!(outcome, PacketOutcome::Dropped(_, DropCause::Aqm));
    assert_eq!(outcomes.iter().filter(by_codel).count(), 0);
}
