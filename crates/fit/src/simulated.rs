//! The fit of hidden links in virtual time: the model carries probes and loads, and the estimators see only what a far
//! end would report.
#![allow(
    clippy::cast_possible_truncation,
    reason = "times of minutes are few nanoseconds, and counts of packets are small"
)]

mod different;
mod hidden;
mod parameters;
mod varying;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use conditions::read::toml_text;
use conditions::{Direction, LinkSpec};
use model::{Bytes, Flow, Link, Nanos, Outcome, Packet, PacketId, Side};
use record::{Figure, Measurement, Metric, Phase, Sample, Statistic};
use stats::losses::Losses;
use stats::order_statistics::sorted;

use crate::plan::{self, NextLoad, SEARCH_RATES};
use crate::{
    Comparison, DIRECTIONS, DelayFit, Intensity, JitterLaw, LinkFit, LoadTraffic, LoadedSession,
    LossFit, Origin, OverTime, PathObservations, Probe, ProbeSession, QueueKind, Train,
    TrainSession,
};

/// The L2 bytes of a probe of 104 bytes of UDP over IPv4.
const PROBE_BYTES: u32 = 104 + 8 + 20 + 14;
/// The L2 bytes of a datagram of the load.
const LOAD_BYTES: u32 = 1400 + 8 + 20 + 14;
const INTERVAL_S: f64 = 0.01;
const SETTLE_S: f64 = 5.0;
/// The time of a load before the first probe and after the last one, as `farwire measure probe --under` has them.
const AROUND_S: [f64; 2] = [2.0, 1.0];
/// The time between two readings of what arrived of a load.
const READING_S: f64 = plan::READING_S;
/// The time of the whole measurement.
const TIME_S: f64 = 30.0;

/// A packet: a probe, its answer, a datagram of a load, a packet of a train, or its answer. The number of a packet of a
/// train counts those of the trains before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Probe(usize),
    Answer(usize),
    Load(usize),
    Train(usize),
    TrainAnswer(usize),
}

/// The packets that are still to be sent, each with its time in nanoseconds; the earliest is the first.
type Events = BinaryHeap<Reverse<(u64, Kind)>>;

/// A packet that the link delivers, with its times in nanoseconds.
struct Delivery {
    kind: Kind,
    offered: u64,
    due: u64,
    /// The number of the duplicate, from 1 on; 0 for the packet itself.
    copy: u32,
}

/// A load, in bit/s of L2 bytes. It begins with its session.
#[derive(Clone, Copy)]
struct Load {
    direction: Direction,
    rate: f64,
    lasts_s: f64,
}

/// The part of a load that arrived.
#[derive(Default)]
struct Received {
    bytes: f64,
    first_s: Option<f64>,
    last_s: f64,
    /// Whether each datagram arrived.
    arrived: Vec<bool>,
    /// The bytes that arrived in each interval.
    readings: Vec<f64>,
}

impl Received {
    /// Returns what the far end of a load reports.
    fn traffic(&self, load: Load) -> LoadTraffic {
        let arriving_s = self.last_s - self.first_s.unwrap_or(0.0);
        LoadTraffic {
            wire_bytes: LOAD_BYTES,
            sent: load.rate,
            sending_s: load.lasts_s,
            bytes: self.bytes,
            seconds: arriving_s.max(load.lasts_s),
            error: 0.0,
        }
    }

    /// Counts bytes that arrived at this time.
    fn read(&mut self, at_s: f64, bytes: f64) {
        let place = (at_s / READING_S) as usize;
        if self.readings.len() <= place {
            self.readings.resize(place + 1, 0.0);
        }
        self.readings[place] += bytes;
    }

    /// Returns the rate that arrived in each interval until the load ended, as the receiver of a load reads it.
    fn arrivals(&self, load: Load) -> OverTime {
        let intervals = (load.lasts_s / READING_S).round() as usize;
        let rates = self.readings.iter().take(intervals);
        OverTime {
            every_s: READING_S,
            values: rates.map(|bytes| 8.0 * bytes / READING_S).collect(),
        }
    }
}

/// A path whose conditions the estimators do not know.
struct Path {
    link: Link,
    /// The time of the next session in nanoseconds.
    now: u64,
    packets: Vec<(Kind, u64)>,
}

impl Path {
    fn new(conditions: &str) -> Self {
        Self::of(&toml_text(conditions).unwrap())
    }

    fn of(spec: &LinkSpec) -> Self {
        let config = spec.to_link("hidden").unwrap().config;
        Self {
            link: Link::new(&config).unwrap(),
            now: 0,
            packets: Vec::new(),
        }
    }

    /// Runs a session of probes between two times, beside a load.
    fn session(
        &mut self,
        [from_s, until_s]: [f64; 2],
        load: Option<Load>,
    ) -> (ProbeSession, Received) {
        let start = self.now;
        let ns = |seconds: f64| start + (seconds * 1e9) as u64;
        let mut received = Received::default();
        let mut events = BinaryHeap::new();
        let count = ((until_s - from_s) / INTERVAL_S) as usize;
        let sent: Vec<u64> = (0..count)
            .map(|at| ns(from_s + at as f64 * INTERVAL_S))
            .collect();
        events.extend((0..count).map(|at| Reverse((sent[at], Kind::Probe(at)))));
        if let Some(load) = load {
            let gap = f64::from(LOAD_BYTES) * 8.0 / load.rate;
            let datagrams = (load.lasts_s / gap) as usize;
            received.arrived = vec![false; datagrams];
            events.extend((0..datagrams).map(|at| Reverse((ns(at as f64 * gap), Kind::Load(at)))));
        }
        let mut probes: Vec<Probe> = sent
            .iter()
            .map(|at| Probe {
                at_s: (at - sent[0]) as f64 / 1e9,
                lost: Some(Direction::Up),
                ..Probe::default()
            })
            .collect();
        let (mut order, mut reordered, mut duplicates) = ([None; 2], [false; 2], 0);
        let lasts_s = load.map_or(until_s, |load| load.lasts_s.max(until_s));
        let end = ns(lasts_s + SETTLE_S);
        self.run(events, end, load, |delivery, events| {
            let Delivery {
                kind,
                due,
                offered,
                copy,
            } = delivery;
            let delay_ms = (due - offered) as f64 / 1e6;
            match kind {
                Kind::Probe(at) if copy == 0 => {
                    probes[at].one_way_ms[0] = Some(delay_ms);
                    probes[at].lost = Some(Direction::Down);
                    reordered[0] |= order[0] > Some(at);
                    order[0] = order[0].max(Some(at));
                    events.push(Reverse((due, Kind::Answer(at))));
                }
                Kind::Answer(at) if copy == 0 => {
                    probes[at].one_way_ms[1] = Some(delay_ms);
                    probes[at].lost = None;
                    probes[at].rtt_ms = Some((due - sent[at]) as f64 / 1e6);
                    reordered[1] |= order[1] > Some(at);
                    order[1] = order[1].max(Some(at));
                }
                Kind::Probe(_) | Kind::Answer(_) => duplicates += 1,
                Kind::Load(at) => {
                    received.arrived[at] = true;
                    let at_s = (due - start) as f64 / 1e9;
                    received.bytes += f64::from(LOAD_BYTES);
                    received.read(at_s, f64::from(LOAD_BYTES));
                    received.first_s.get_or_insert(at_s);
                    received.last_s = received.last_s.max(at_s);
                }
                Kind::Train(_) | Kind::TrainAnswer(_) => {}
            }
        });
        let losses = DIRECTIONS.map(|way| {
            let entered = probes.iter().filter(|probe| probe.entered(way));
            Some(Losses::in_order(entered.map(|probe| !probe.passed(way))))
        });
        let probes = ProbeSession {
            wire_bytes: PROBE_BYTES,
            probes,
            losses,
            reordered,
            duplicates,
            clock_error_ms: 0.0,
            unclear: [0; 2],
        };
        (probes, received)
    }

    /// Offers the packets of `events` to the link until the time `end`, and hands over each delivery of them, which may
    /// add further ones. The next session begins at `end`.
    fn run(
        &mut self,
        mut events: Events,
        end: u64,
        load: Option<Load>,
        mut delivered: impl FnMut(Delivery, &mut Events),
    ) {
        let start = self.now;
        loop {
            let event = events.peek().map(|Reverse((at, _))| *at);
            let held = self.link.next_at().map(|at| at.0);
            let next = [event, held].into_iter().flatten().min();
            let Some(now) = next.filter(|now| *now < end) else {
                break;
            };
            while let Some(outcome) = self.link.poll(Nanos(now)) {
                let Outcome::Deliver { id, due, copy, .. } = outcome else {
                    continue;
                };
                let (kind, offered) = self.packets[id.0 as usize];
                // Packets of an earlier session are late.
                if offered < start {
                    continue;
                }
                let delivery = Delivery {
                    kind,
                    offered,
                    due: due.0,
                    copy,
                };
                delivered(delivery, &mut events);
            }
            let is_due = events.peek().is_some_and(|Reverse((at, _))| *at <= now);
            if is_due && let Some(Reverse((at, kind))) = events.pop() {
                self.offer(at, kind, load);
            }
        }
        self.now = end;
    }

    fn offer(&mut self, at: u64, kind: Kind, load: Option<Load>) {
        let (side, bytes, flow) = match kind {
            Kind::Probe(_) => (Side::A, PROBE_BYTES, 1),
            Kind::Answer(_) => (Side::B, PROBE_BYTES, 2),
            Kind::Load(_) => {
                let side = load.unwrap().direction.choose(Side::A, Side::B);
                (side, LOAD_BYTES, 3)
            }
            Kind::Train(_) => (Side::A, plan::TRAIN_WIRE_BYTES, 4),
            Kind::TrainAnswer(_) => (Side::B, plan::TRAIN_WIRE_BYTES, 5),
        };
        let id = PacketId(self.packets.len() as u64);
        self.packets.push((kind, at));
        let flow = Flow {
            id: flow,
            source: flow,
            destination: flow,
        };
        let packet = Packet::new(id, Bytes(bytes.into()));
        self.link.offer(Nanos(at), side, Packet { flow, ..packet });
    }

    /// Sends trains of packets on the idle path for a number of seconds. The answers of a train are sent when its last
    /// packet has arrived, so that the way back has a train as well.
    fn trains(&mut self, lasts_s: f64, interval_s: f64) -> TrainSession {
        let start = self.now;
        let ns = |seconds: f64| start + (seconds * 1e9) as u64;
        let length = plan::TRAIN as usize;
        let count = (lasts_s / interval_s) as usize;
        let mut events = BinaryHeap::new();
        for number in 0..count * length {
            let at = ns((number / length) as f64 * interval_s);
            events.push(Reverse((at, Kind::Train(number))));
        }
        let mut arrivals = vec![[Vec::new(), Vec::new()]; count];
        let end = ns(lasts_s + SETTLE_S);
        self.run(events, end, None, |delivery, events| match delivery.kind {
            Kind::Train(number) if delivery.copy == 0 => {
                let train = number / length;
                arrivals[train][0].push(delivery.due);
                if number % length == length - 1 {
                    let arrived = arrivals[train][0].len();
                    let answers = (0..arrived).map(|place| train * length + place);
                    events.extend(
                        answers.map(|number| Reverse((delivery.due, Kind::TrainAnswer(number)))),
                    );
                }
            }
            Kind::TrainAnswer(number) if delivery.copy == 0 => {
                arrivals[number / length][1].push(delivery.due);
            }
            _ => {}
        });
        let since_first = |times: Vec<u64>| {
            let first = times.iter().copied().min().unwrap_or_default();
            let times = times.iter().map(|at| (at - first) as f64 / 1e6);
            sorted(&times.collect::<Vec<f64>>())
        };
        let trains = arrivals
            .into_iter()
            .enumerate()
            .map(|(at, arrivals)| Train {
                at_s: at as f64 * interval_s,
                arrivals_ms: arrivals.map(since_first),
            });
        TrainSession {
            wire_bytes: plan::TRAIN_WIRE_BYTES,
            length,
            trains: trains.collect(),
        }
    }

    /// Sends datagrams at rising rates until the path carries less than was sent.
    fn search(&mut self, way: Direction, idle: &mut ProbeSession) -> LoadTraffic {
        let random = LossFit::of(idle, way);
        let mut below = Vec::new();
        for rate in SEARCH_RATES {
            let load = Load {
                direction: way,
                rate,
                lasts_s: plan::search_s(100.0),
            };
            let (_, received) = self.session([0.0; 2], Some(load));
            let found = received.traffic(load);
            if plan::is_full(&found, random.as_ref()) {
                let rate = plan::served(&found, random.as_ref());
                below.retain(|(sent, _)| plan::is_far_below(*sent, rate));
                below
                    .into_iter()
                    .for_each(|(_, losses)| idle.add_losses(way, losses));
                return found;
            }
            let lost = received.arrived.iter().map(|arrived| !arrived);
            below.push((rate, Losses::in_order(lost)));
        }
        panic!("no load exceeded the rate");
    }

    fn loaded(
        &mut self,
        direction: Direction,
        intensity: Intensity,
        rate: f64,
        probed_s: f64,
    ) -> LoadedSession {
        let [before_s, after_s] = AROUND_S;
        let load = Load {
            direction,
            rate,
            lasts_s: before_s + probed_s + after_s,
        };
        let (probes, received) = self.session([before_s, before_s + probed_s], Some(load));
        LoadedSession {
            direction,
            intensity,
            probes,
            from_s: -before_s,
            until_s: load.lasts_s - before_s,
            load: received.traffic(load),
            arrivals: received.arrivals(load),
        }
    }

    /// Adds a session of probes on the idle path.
    fn idle(&mut self, observed: &mut PathObservations, probed_s: f64) {
        let (idle, _) = self.session([0.0, probed_s], None);
        observed.idle.join(idle);
    }

    /// Measures the path as `farwire fit` does.
    fn observe(&mut self, probed_s: f64) -> PathObservations {
        let mut observed = PathObservations::default();
        self.idle(&mut observed, probed_s);
        let found = DIRECTIONS.map(|way| {
            let load = self.search(way, &mut observed.idle);
            let random = LossFit::of(&observed.idle, way);
            (way, load, plan::served(&load, random.as_ref()))
        });
        let mut varies = false;
        for (way, search, rate) in found {
            observed.searches.push((way, search));
            let mut rate = plan::strong(rate);
            for _ in 0..=plan::MOST_FASTER {
                self.idle(&mut observed, probed_s);
                let strong = self.loaded(way, Intensity::Strong, rate, probed_s);
                let random = LossFit::of(&observed.idle, way);
                let served = plan::served(&strong.load, random.as_ref());
                let next = plan::next(&observed, &strong, served);
                let load = strong.load;
                observed.loaded.push(strong);
                match next {
                    NextLoad::Faster(faster) => rate = faster,
                    NextLoad::Nothing => {
                        varies = true;
                        break;
                    }
                    NextLoad::Gentle(_) => {
                        self.idle(&mut observed, probed_s);
                        let random = LossFit::of(&observed.idle, way);
                        let gentle = plan::gentle(plan::served(&load, random.as_ref()), LOAD_BYTES);
                        let gentle = self.loaded(way, Intensity::Gentle, gentle, probed_s);
                        observed.loaded.push(gentle);
                        break;
                    }
                }
            }
        }
        if varies {
            let found = LinkFit::of(&observed);
            let rates = DIRECTIONS.map(|way| found.toward(way).bottleneck.as_ref());
            let slowest = rates.into_iter().flatten().map(|one| one.rate.interval[0]);
            let slowest = slowest.fold(f64::INFINITY, f64::min);
            let around_s: f64 = AROUND_S.iter().sum();
            let interval_s = plan::train_interval_s(slowest);
            observed.trains = self.trains(probed_s + around_s, interval_s);
        }
        observed
    }
}

fn observe(conditions: &str) -> PathObservations {
    Path::new(conditions).observe(plan::probed_s(TIME_S))
}

fn fit(conditions: &str) -> LinkFit {
    LinkFit::of(&observe(conditions))
}

/// Returns the loss of a direction, which was learnt.
fn loss(fit: &LinkFit, way: Direction) -> LossFit {
    fit.toward(way).loss.unwrap()
}

/// Returns the delay of a direction, which was learnt.
fn delay(fit: &LinkFit, way: Direction) -> &DelayFit {
    fit.toward(way).delay.as_ref().unwrap()
}

/// Returns the name of the kind of queue, which was learnt.
fn kind(fit: &LinkFit, way: Direction) -> &'static str {
    let queue = fit
        .toward(way)
        .bottleneck
        .as_ref()
        .and_then(|one| one.queue);
    queue.map_or("none", QueueKind::name)
}

fn is_near(found: f64, truth: f64, absolute: f64, relative: f64) -> bool {
    (found - truth).abs() <= absolute.max(relative * truth)
}
