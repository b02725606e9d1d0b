//! The fit of hidden links in virtual time: the model carries probes and loads, and the estimators see only what a far
//! end would report.
#![allow(
    clippy::cast_possible_truncation,
    reason = "times of minutes are few nanoseconds, and counts of packets are small"
)]

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
                let delay_ms = (due.0 - offered) as f64 / 1e6;
                if due.0 < start || offered < start {
                    continue;
                }
                match kind {
                    Kind::Probe(at) if copy == 0 => {
                        probes[at].one_way_ms[0] = Some(delay_ms);
                        probes[at].lost = Some(Direction::Down);
                        reordered[0] |= order[0] > Some(at);
                        order[0] = order[0].max(Some(at));
                        events.push(Reverse((due.0, Kind::Answer(at))));
                    }
                    Kind::Answer(at) if copy == 0 => {
                        probes[at].one_way_ms[1] = Some(delay_ms);
                        probes[at].lost = None;
                        probes[at].rtt_ms = Some((due.0 - sent[at]) as f64 / 1e6);
                        reordered[1] |= order[1] > Some(at);
                        order[1] = order[1].max(Some(at));
                    }
                    Kind::Probe(_) | Kind::Answer(_) => duplicates += 1,
                    Kind::Load(at) => {
                        received.arrived[at] = true;
                        let at_s = (due.0 - start) as f64 / 1e9;
                        received.bytes += f64::from(LOAD_BYTES);
                        received.read(at_s, f64::from(LOAD_BYTES));
                        received.first_s.get_or_insert(at_s);
                        received.last_s = received.last_s.max(at_s);
                    }
                    Kind::Train(_) | Kind::TrainAnswer(_) => {}
                }
            }
            let is_due = events.peek().is_some_and(|Reverse((at, _))| *at <= now);
            if is_due && let Some(Reverse((at, kind))) = events.pop() {
                self.offer(at, kind, load);
            }
        }
        self.now = end;
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
                if copy > 0 || offered < start {
                    continue;
                }
                match kind {
                    Kind::Train(number) => {
                        let train = number / length;
                        arrivals[train][0].push(due.0);
                        if number % length == length - 1 {
                            let arrived = arrivals[train][0].len();
                            let answers = (0..arrived).map(|place| train * length + place);
                            events.extend(
                                answers.map(|number| Reverse((due.0, Kind::TrainAnswer(number)))),
                            );
                        }
                    }
                    Kind::TrainAnswer(number) => arrivals[number / length][1].push(due.0),
                    Kind::Probe(_) | Kind::Answer(_) | Kind::Load(_) => {}
                }
            }
            let is_due = events.peek().is_some_and(|Reverse((at, _))| *at <= now);
            if is_due && let Some(Reverse((at, kind))) = events.pop() {
                self.offer(at, kind, None);
            }
        }
        self.now = end;
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

#[test]
fn delays_rate_and_plain_queue_of_a_hidden_link_are_found() {
    let found = fit(
        "rate = '20mbit'\nqueue = '100ms'\nloss = '1%'\n[up]\ndelay = '20ms'\n[down]\ndelay = '35ms'",
    );
    assert!(found.one_way);
    for (way, delay) in [(Direction::Up, 20.0), (Direction::Down, 35.0)] {
        let fit = self::delay(&found, way);
        assert!(is_near(fit.ms.value, delay, 0.1, 0.0), "{fit:?}");
        assert_eq!(fit.jitter, None);
        let bottleneck = found.toward(way).bottleneck.as_ref().unwrap();
        assert!(
            is_near(bottleneck.rate.value, 20e6, 0.0, 0.02),
            "{bottleneck:?}"
        );
        assert_eq!(bottleneck.burst_bytes, None);
        assert!(fit.without_transmission);
        let Some(QueueKind::Fifo {
            ms,
            is_least: false,
        }) = bottleneck.queue
        else {
            panic!("{bottleneck:?}");
        };
        assert!(is_near(ms.value, 100.0, 0.0, 0.05), "{ms:?}");
    }
}

/// One interval of twenty may miss the truth, so that only many paths show whether the intervals are right.
#[test]
fn nineteen_of_twenty_intervals_contain_the_loss() {
    const PATHS: u32 = 50;
    let mut covered = 0;
    for seed in 1..=PATHS {
        let text = format!("seed = {seed}\ndelay = '2ms'\nrate = '20mbit'\nloss = '1%'");
        let mut path = Path::new(&text);
        let (mut idle, _) = path.session([0.0, 8.0], None);
        for way in DIRECTIONS {
            path.search(way, &mut idle);
            let found = LossFit::of(&idle, way).unwrap();
            covered += u32::from(found.percent.contains(1.0));
        }
    }
    assert!(
        covered * 100 >= 90 * 2 * PATHS,
        "{covered} of {}",
        2 * PATHS
    );
}

#[test]
fn a_managed_queue_a_queue_per_flow_and_a_policer_are_distinguished() {
    for rate in ["1mbit", "20mbit", "150mbit"] {
        for (how, name) in [
            (format!("rate = '{rate}'\nqueue = '200ms,10pkt'"), "fifo"),
            (format!("rate = '{rate}'\naqm = 'codel'"), "codel"),
            (format!("rate = '{rate}'\naqm = 'fq_codel'"), "fq_codel"),
            (format!("police = '{rate},burst=32KiB'"), "policer"),
        ] {
            let found = fit(&format!("delay = '15ms'\n{how}"));
            for way in DIRECTIONS {
                let bottleneck = &found.toward(way).bottleneck;
                assert_eq!(kind(&found, way), name, "{how}: {bottleneck:?}");
            }
        }
    }
}

#[test]
fn loss_in_bursts_and_jitter_are_found() {
    let found = fit(
        "rate = '20mbit'\n[up]\ndelay = '40ms'\njitter = '3ms'\nloss = '3%,burst=6'\n[down]\ndelay = '50ms'\njitter = '2ms,normal,half-life=50ms'",
    );
    let lost = loss(&found, Direction::Up);
    assert!(lost.percent.contains(3.0), "{lost:?}");
    assert!(lost.burst.unwrap().contains(6.0), "{lost:?}");
    let [up, down] = DIRECTIONS.map(|way| delay(&found, way));
    let jitter = up.jitter.unwrap();
    assert_eq!(
        (jitter.law, jitter.half_life_ms),
        (JitterLaw::Uniform, None)
    );
    assert!(is_near(jitter.spread_ms.value, 3.0, 0.0, 0.1), "{jitter:?}");
    assert!(is_near(up.ms.value, 40.0, 0.3, 0.0), "{up:?}");
    let jitter = down.jitter.unwrap();
    assert_eq!(jitter.law, JitterLaw::Normal, "{jitter:?}");
    assert!(
        is_near(jitter.spread_ms.value, 2.0, 0.0, 0.25),
        "{jitter:?}"
    );
    assert!(
        is_near(jitter.half_life_ms.unwrap().value, 50.0, 0.0, 0.4),
        "{jitter:?}"
    );
}

#[test]
fn reordering_and_duplicates_are_found() {
    let found = fit("delay = '40ms'\nrate = '20mbit'\nreorder = '4%'\nduplicate = '2%'");
    let up = delay(&found, Direction::Up);
    let skipped = up.skipped_percent.unwrap();
    assert!(skipped.contains(4.0), "{skipped:?}");
    assert!(is_near(up.ms.value, 40.0, 0.3, 0.0), "{up:?}");
    let duplicated = found.duplicated_percent.unwrap();
    assert!(is_near(duplicated.value, 2.0, 0.5, 0.0), "{duplicated:?}");
}

#[test]
fn the_file_of_a_fit_is_a_profile_whose_numbers_have_a_source() {
    let origin = Origin::of_path("203.0.113.7", "2026-11-27");
    for hidden in [
        "delay = '15ms'\nrate = '20mbit,burst=128KiB'\nqueue = '80ms'\nloss = '2%,burst=4'\njitter = '2ms,normal,half-life=40ms'",
        "delay = '15ms'\npolice = '5mbit,burst=64KiB'\nloss = '1%'\nreorder = '3%'",
        "delay = '1ms'\nrate = '5mbit'\naqm = 'codel'\nduplicate = '1%'",
    ] {
        let text = fit(hidden).to_toml(&origin);
        let spec: LinkSpec = toml_text(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        spec.check()
            .unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(conditions::unfounded(&text), [], "{text}");
    }
}

#[test]
fn flows_that_do_not_wait_for_an_unknown_reason_are_written_with_a_comment() {
    let mut found = fit("delay = '15ms'\npolice = '5mbit,burst=64KiB'");
    for direction in [&mut found.up, &mut found.down] {
        let bottleneck = direction.bottleneck.as_mut().unwrap();
        bottleneck.queue = Some(QueueKind::Unclear { ms: None });
    }
    assert_eq!(kind(&found, Direction::Up), "cannot be distinguished");
    let text = found.to_toml(&Origin::of_path("203.0.113.7", "2026-11-27"));
    let spec: LinkSpec = toml_text(&text).unwrap();
    spec.check().unwrap();
    assert!(text.contains("a policer cannot be distinguished"), "{text}");
}

#[test]
fn the_burst_of_a_policer_that_was_not_visible_is_marked_as_assumed() {
    let mut found = fit("delay = '15ms'\npolice = '5mbit,burst=64KiB'");
    let origin = Origin::of_path("203.0.113.7", "2026-11-27");
    let bursts = |found: &LinkFit| {
        let rows = found.parameters().into_iter();
        let bursts = rows.filter(|row| row.name == "rate burst");
        bursts.map(|row| row.word).collect::<Vec<Option<String>>>()
    };
    assert_eq!(bursts(&found), [None, None]);
    assert!(!found.to_toml(&origin).contains("assumed"));
    for direction in [&mut found.up, &mut found.down] {
        direction.bottleneck.as_mut().unwrap().burst_bytes = None;
    }
    assert_eq!(
        bursts(&found),
        [Some("assumed".to_owned()), Some("assumed".to_owned())]
    );
    let text = found.to_toml(&origin);
    assert!(text.contains(",burst=15140b\""), "{text}");
    assert!(
        text.contains("whose burst was not visible and is assumed"),
        "{text}"
    );
}

#[test]
fn unrelated_clocks_give_half_of_the_round_trip_and_the_same_rate() {
    let mut observed = observe("delay = '20ms'\nrate = '10mbit'\nqueue = '60ms'");
    let sessions = observed.loaded.iter_mut().map(|one| &mut one.probes);
    for session in sessions.chain([&mut observed.idle]) {
        session
            .probes
            .iter_mut()
            .for_each(|probe| probe.one_way_ms = [None; 2]);
    }
    let found = LinkFit::of(&observed);
    assert!(!found.one_way);
    let up = delay(&found, Direction::Up);
    assert!(is_near(up.ms.value, 20.0, 0.1, 0.0), "{up:?}");
    let bottleneck = found.down.bottleneck.as_ref().unwrap();
    assert!(is_near(bottleneck.rate.value, 10e6, 0.0, 0.02));
    assert_eq!(kind(&found, Direction::Down), "fifo", "{bottleneck:?}");
    let evidence = &found.parameters()[0].evidence;
    assert!(evidence.starts_with("half of the round trip"), "{evidence}");
}

#[test]
fn bytes_that_pass_a_token_bucket_faster_are_no_part_of_the_rate() {
    let found = fit("delay = '10ms'\nrate = '20mbit,burst=128KiB'\nqueue = '100ms'");
    for way in DIRECTIONS {
        let bottleneck = found.toward(way).bottleneck.as_ref().unwrap();
        assert!(
            is_near(bottleneck.rate.value, 20e6, 0.0, 0.01),
            "{bottleneck:?}"
        );
        let burst = bottleneck.burst_bytes.unwrap();
        assert!(is_near(burst.value, 131_072.0, 0.0, 0.1), "{burst:?}");
    }
}

#[test]
fn jitter_of_packets_that_keep_their_order_is_neither_a_queue_nor_a_burst() {
    for seed in 1..=4 {
        let path = format!("seed = {seed}\ndelay = '40ms'\njitter = '6ms'");
        let found = fit(&format!("{path}\nrate = '20mbit'\nqueue = '30ms'"));
        for way in DIRECTIONS {
            let bottleneck = found.toward(way).bottleneck.as_ref().unwrap();
            assert_eq!(bottleneck.burst_bytes, None);
            let length = bottleneck.queue.and_then(QueueKind::length).unwrap();
            assert!(length.contains(30.0), "{length:?}");
        }
        let found = fit(&format!("{path}\npolice = '20mbit,burst=64KiB'"));
        for way in DIRECTIONS {
            assert_eq!(kind(&found, way), "policer");
            let bottleneck = found.toward(way).bottleneck.as_ref().unwrap();
            let burst = bottleneck.burst_bytes.unwrap();
            assert!(burst.contains(65_536.0), "{burst:?}");
        }
    }
}

#[test]
fn loads_that_differ_show_a_rate_that_is_not_constant() {
    let mut observed = observe("delay = '10ms'\nrate = '20mbit'\nqueue = '50ms'");
    let evidence = |observed: &PathObservations| {
        let found = LinkFit::of(observed).up.bottleneck.unwrap();
        (found.rate, found.rate_evidence)
    };
    let (_, constant) = evidence(&observed);
    assert!(!constant.contains("not constant"), "{constant}");
    let mut loads = observed.loaded.iter_mut();
    let gentle = loads.find(|one| one.intensity == Intensity::Gentle);
    gentle.unwrap().load.bytes *= 0.8;
    let (rate, varying) = evidence(&observed);
    assert!(varying.contains("not constant"), "{varying}");
    assert!(rate.contains(16e6) && rate.contains(20e6), "{rate:?}");
}

#[test]
fn a_load_that_the_path_carried_before_the_others_changes_nothing() {
    let mut path = Path::new("delay = '20ms'\nrate = '20mbit'\nqueue = '100ms'\nloss = '1%'");
    let probed_s = plan::probed_s(TIME_S);
    let mut observed = path.observe(probed_s);
    let found = LinkFit::of(&observed);
    assert_eq!(kind(&found, Direction::Up), "fifo");
    let carried = path.loaded(Direction::Up, Intensity::Gentle, 15e6, probed_s);
    observed.loaded.insert(0, carried);
    assert_eq!(LinkFit::of(&observed), found);
}

#[test]
fn a_queue_that_never_became_full_is_at_least_as_long_as_it_was() {
    let found = fit("delay = '10ms'\nrate = '5mbit'\nqueue = '20s'");
    let bottleneck = found.up.bottleneck.unwrap();
    let Some(QueueKind::Fifo { ms, is_least: true }) = bottleneck.queue else {
        panic!("{bottleneck:?}");
    };
    assert!(ms.value > 1000.0 && ms.value < 20_000.0, "{ms:?}");
}

#[test]
fn loads_without_probes_show_the_rate_and_nothing_else() {
    let mut observed = observe("delay = '10ms'\nrate = '20mbit'\nqueue = '50ms'\nloss = '1%'");
    observed.idle = ProbeSession::default();
    let loads = observed
        .loaded
        .iter()
        .filter(|one| one.intensity == Intensity::Strong);
    observed.loaded = loads
        .map(|one| LoadedSession::unprobed(one.direction, one.load))
        .collect();
    let found = LinkFit::of(&observed);
    for way in DIRECTIONS {
        let fit = found.toward(way);
        assert_eq!((&fit.delay, &fit.loss), (&None, &None));
        let bottleneck = fit.bottleneck.as_ref().unwrap();
        assert_eq!(bottleneck.queue, None);
        // Neither the loss of 1 % nor the bytes of the probes are known.
        assert!(
            is_near(bottleneck.rate.value, 20e6, 0.0, 0.025),
            "{bottleneck:?}"
        );
    }
    let origin = Origin::of_path("203.0.113.7", "2026-11-27");
    let text = found.to_toml(&origin);
    let keys: Vec<&str> = text
        .lines()
        .filter_map(|line| Some(line.split_once(" = ")?.0))
        .collect();
    assert_eq!(keys, ["rate", "rate"], "{text}");
}

#[test]
fn loads_without_probes_show_no_queue_if_the_idle_path_was_probed() {
    let mut observed = observe("delay = '10ms'\nrate = '20mbit'\nqueue = '50ms'");
    let loads = observed.loaded.iter();
    let unprobed = loads.map(|one| LoadedSession::unprobed(one.direction, one.load));
    observed.loaded = unprobed.collect();
    let found = LinkFit::of(&observed);
    for way in DIRECTIONS {
        assert_eq!(kind(&found, way), "none");
        assert!(found.toward(way).bottleneck.is_some());
    }
}

/// A direction of a hidden link.
struct Hidden {
    delay_ms: f64,
    /// The rate in bit/s.
    rate: f64,
    queue_ms: f64,
    kind: &'static str,
    loss_percent: f64,
    burst: Option<f64>,
    /// The spread in milliseconds, and whether it is that of a normal law.
    jitter: Option<(f64, bool)>,
}

impl Hidden {
    fn draw(random: &mut fastrand::Rng) -> Self {
        let logarithmic =
            |random: &mut fastrand::Rng, low: f64, high: f64| low * (high / low).powf(random.f64());
        let rate = logarithmic(random, 1e6, 200e6);
        let ten_packets_ms = 10.0 * 1514.0 * 8e3 / rate;
        let delay_ms = logarithmic(random, 1.0, 300.0);
        let is_lossy = random.u8(..3) > 0;
        let loss_percent = if is_lossy {
            logarithmic(random, 0.1, 3.0)
        } else {
            0.0
        };
        let in_bursts = is_lossy && random.bool();
        let varies = random.bool();
        Self {
            delay_ms,
            rate,
            queue_ms: logarithmic(random, 10.0, 2000.0).max(ten_packets_ms),
            kind: ["fifo", "codel", "fq_codel", "policer"][random.usize(..4)],
            loss_percent,
            burst: in_bursts.then(|| 2.0 + 6.0 * random.f64()),
            jitter: varies.then(|| {
                let most = (0.2 * delay_ms).min(4.0);
                (
                    logarithmic(random, 0.3, most.max(0.5)).min(delay_ms / 4.0),
                    random.bool(),
                )
            }),
        }
    }

    /// Returns the conditions of the direction, a line each.
    fn conditions(&self) -> String {
        let mut text = format!("delay = '{:.3}ms'\n", self.delay_ms);
        let bits = format!("{:.0}bit", self.rate);
        text += &match self.kind {
            "fifo" => format!("rate = '{bits}'\nqueue = '{:.2}ms'\n", self.queue_ms),
            "policer" => format!("police = '{bits},burst=32KiB'\n"),
            managed => format!("rate = '{bits}'\naqm = '{managed}'\n"),
        };
        if self.loss_percent > 0.0 {
            let burst = self
                .burst
                .map_or(String::new(), |burst| format!(",burst={burst:.2}"));
            text += &format!("loss = '{:.3}%{burst}'\n", self.loss_percent);
        }
        if let Some((spread, is_normal)) = self.jitter {
            let law = if is_normal { ",normal" } else { "" };
            text += &format!("jitter = '{spread:.3}ms{law}'\n");
        }
        text
    }
}

/// Draws links from a seed, and counts what the fit finds.
#[test]
fn most_of_forty_links_drawn_from_a_seed_are_found() {
    let mut random = fastrand::Rng::with_seed(47);
    let (mut right, mut all) = ([0; 7], [0; 7]);
    let mut wrong = String::new();
    for number in 0..40 {
        let hidden = [Hidden::draw(&mut random), Hidden::draw(&mut random)];
        let [up, down] = hidden.each_ref().map(Hidden::conditions);
        let text = format!("seed = {}\n[up]\n{up}[down]\n{down}", number + 1);
        let found = fit(&text);
        for (way, truth) in DIRECTIONS.into_iter().zip(&hidden) {
            let fit = found.toward(way);
            let bottleneck = fit.bottleneck.as_ref();
            let rate = bottleneck.map_or(0.0, |one| one.rate.value);
            let lost = loss(&found, way);
            let mut checks = vec![
                is_near(delay(&found, way).ms.value, truth.delay_ms, 0.3, 0.02),
                is_near(rate, truth.rate, 0.0, 0.02),
                lost.percent.contains(truth.loss_percent),
                kind(&found, way) == truth.kind,
                [truth.kind, "cannot be distinguished"].contains(&kind(&found, way)),
            ];
            let queue = match bottleneck.and_then(|one| one.queue) {
                Some(QueueKind::Fifo { ms, .. } | QueueKind::Unclear { ms: Some(ms) }) => ms.value,
                _ => 0.0,
            };
            let is_fifo = truth.kind == "fifo";
            checks.push(!is_fifo || is_near(queue, truth.queue_ms, 0.0, 0.15));
            let burst = lost.burst.map(|burst| burst.value);
            let ratio = burst.zip(truth.burst).map(|(found, truth)| found / truth);
            checks.push(ratio.is_none_or(|ratio| (1.0 / 1.5..=1.5).contains(&ratio)));
            let counts = [true, true, true, true, true, is_fifo, ratio.is_some()];
            for (at, (check, counts)) in checks.iter().zip(counts).enumerate() {
                right[at] += u32::from(*check && counts);
                all[at] += u32::from(counts);
            }
            if checks.contains(&false) {
                wrong += &format!(
                    "{number} {way:?} {checks:?}\n{}{fit:#?}\n",
                    truth.conditions()
                );
            }
        }
    }
    // A kind that is stated is right.
    let least = [0.9, 0.95, 0.9, 0.85, 1.0, 0.9, 0.5];
    for ((right, all), least) in right.into_iter().zip(all).zip(least) {
        assert!(
            f64::from(right) >= least * f64::from(all),
            "{right} of {all}\n{wrong}"
        );
    }
}

/// The time for which the idle path is probed for a comparison, so that a difference of a fifth in losses is no chance.
const COMPARED_S: f64 = 300.0;

/// Returns what a comparison needs of a measurement, with loads of `rate` in bit/s.
fn measured(conditions: &str, rate: f64) -> Measurement {
    let mut path = Path::new(conditions);
    let mut measurement = Measurement::default();
    let (idle, _) = path.session([0.0, COMPARED_S], None);
    add(&mut measurement, &idle, Phase::Idle);
    for (way, phase) in DIRECTIONS
        .into_iter()
        .zip([Phase::LoadedUp, Phase::LoadedDown])
    {
        let loaded = path.loaded(way, Intensity::Strong, plan::strong(rate), 3.0);
        add(&mut measurement, &loaded.probes, phase);
        let goodput = loaded.load.received();
        let goodput = Figure::new(Metric::GoodputBitPerS, Statistic::Mean, goodput);
        measurement.figures.push(goodput.toward(way).during(phase));
    }
    measurement
}

/// Adds a session of probes to a measurement, as `farwire measure quality` reports it.
fn add(measurement: &mut Measurement, session: &ProbeSession, phase: Phase) {
    let numbered = (1..).zip(&session.probes);
    let samples = numbered.map(|(index, probe)| {
        let (metric, value) = match probe.rtt_ms {
            Some(rtt) => (Metric::RttMs, rtt),
            None => (Metric::LostPackets, 1.0),
        };
        Sample {
            phase: Some(phase),
            direction: probe.lost,
            ..Sample::new(probe.at_s, metric, index, value)
        }
    });
    measurement.samples.extend(samples);
    for (way, losses) in DIRECTIONS.into_iter().zip(session.losses) {
        let figure = Figure::new(Metric::LostPercent, Statistic::Mean, 0.0);
        measurement.figures.push(Figure {
            losses,
            ..figure.toward(way).during(phase)
        });
    }
}

#[test]
fn a_link_with_one_parameter_wrong_by_a_fifth_is_reported_as_different() {
    const LINKS: u64 = 10;
    const PARAMETERS: [&str; 4] = ["rate", "delay", "queue", "loss"];
    let mut random = fastrand::Rng::with_seed(20);
    let (mut found, mut alarms) = ([0; PARAMETERS.len()], 0);
    for seed in 1..=LINKS {
        let mbit = 1.0 + 9.0 * random.f64();
        let truth = [
            mbit,
            10.0 + 90.0 * random.f64(),
            150.0 + 250.0 * random.f64(),
            3.0,
        ];
        let text = |[rate, delay, queue, loss]: [f64; 4], seed| {
            format!(
                "seed = {seed}\nrate = '{:.0}kbit'\ndelay = '{delay:.3}ms'\nqueue = '{queue:.2}ms'\nloss = '{loss:.3}%'",
                1e3 * rate
            )
        };
        let path = measured(&text(truth, seed), 1e6 * mbit);
        let compared = |parameters, seed| {
            Comparison::of(&path, &measured(&text(parameters, seed), 1e6 * mbit)).different
        };
        let unchanged = compared(truth, seed + LINKS);
        alarms += u32::from(!unchanged.is_empty());
        for (at, found) in found.iter_mut().enumerate() {
            let mut wrong = truth;
            wrong[at] *= 1.2;
            *found += u32::from(!compared(wrong, seed + 2 * LINKS).is_empty());
        }
    }
    for (parameter, found) in PARAMETERS.into_iter().zip(found) {
        assert!(found >= 9, "{parameter}: {found} of {LINKS}");
    }
    assert!(alarms <= 1, "{alarms} of {LINKS} right links are reported");
}
