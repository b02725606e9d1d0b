//! Drives a link in virtual time, and generates links and traffic.

use farwire_model::{
    BitsPerSec, Bytes, CheckedPaths, Delay, Effect, Factor, Framing, Link, LinkConfig, Nanos,
    Outcome, Packet, PacketId, Probability, QueueLimit, Rate, ScheduleClock, ScheduleOrder, Side,
    StageSpec, Toffee,
};
use proptest::option;
use proptest::prelude::*;

/// A packet to offer. Its id is its index in the list of arrivals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) at: Nanos,
    pub(crate) side: Side,
    pub(crate) len: Bytes,
}

/// The way in which the caller wakes up before an arrival.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wake {
    /// It does not wake up.
    Never,
    /// It wakes up at every deadline that the link names.
    AtDeadlines,
    /// It wakes up once, after this share (of 255) of the time to the arrival.
    Once(u8),
}

/// Returns the outcomes of a link, in the order of decision.
pub(crate) fn drive(config: &LinkConfig, arrivals: &[Arrival], wakes: &[Wake]) -> Vec<Outcome> {
    let mut link = Link::new(config).unwrap();
    let mut outcomes = Vec::new();
    let mut before = Nanos::ZERO;
    for (id, arrival) in arrivals.iter().enumerate() {
        match wakes.get(id).copied().unwrap_or(Wake::Never) {
            Wake::Never => {}
            Wake::AtDeadlines => {
                while let Some(at) = link.next_at().filter(|&at| at <= arrival.at) {
                    outcomes.extend(link.poll(at));
                }
            }
            Wake::Once(share) => {
                let gap = (arrival.at - before).0 * u64::from(share) / 255;
                outcomes.extend(drain(&mut link, before + Nanos(gap)));
            }
        }
        link.offer(arrival.at, arrival.side, packet(id, arrival.len));
        before = arrival.at;
    }
    outcomes.extend(drain(&mut link, Nanos::MAX));
    outcomes
}

/// Offers `traffic` and wakes up whenever `link` asks for it, to the end; passes each step to `observe`.
pub(crate) fn drive_to_end(
    link: &mut Link,
    traffic: &[Arrival],
    mut observe: impl FnMut(&Link, Nanos, Option<Outcome>),
) {
    let mut now = Nanos::ZERO;
    let mut arrivals = traffic.iter().enumerate().peekable();
    loop {
        let wake = link.next_at();
        if let Some((id, arrival)) =
            arrivals.next_if(|(_, arrival)| wake.is_none_or(|at| arrival.at < at))
        {
            now = arrival.at;
            link.offer(now, arrival.side, packet(id, arrival.len));
            observe(link, now, None);
        } else if let Some(at) = wake {
            now = now.max(at);
            let outcome = link.poll(now);
            observe(link, now, outcome);
        } else {
            return;
        }
    }
}

/// Returns everything decided by `now`.
pub(crate) fn drain(link: &mut Link, now: Nanos) -> Vec<Outcome> {
    std::iter::from_fn(|| link.poll(now)).collect()
}

/// Returns each packet's due time, by id; `None` for dropped packets.
pub(crate) fn dues(outcomes: &[Outcome]) -> Vec<Option<Nanos>> {
    let mut dues = vec![None; outcomes.len()];
    for outcome in outcomes {
        if let Outcome::Deliver { id, due, .. } = outcome {
            dues[usize::try_from(id.0).unwrap()] = Some(*due);
        }
    }
    dues
}

/// Returns `count` packets of `len` bytes from `side`, `gap` apart.
pub(crate) fn stream(side: Side, count: u64, gap: Nanos, len: u64) -> Vec<Arrival> {
    (0..count)
        .map(|n| Arrival {
            at: Nanos(n * gap.0),
            side,
            len: Bytes(len),
        })
        .collect()
}

pub(crate) fn packet(id: usize, len: Bytes) -> Packet {
    Packet::new(PacketId(id as u64), len)
}

/// A link whose schedules' clock is stopped, started and moved.
pub(crate) struct ClockedLink {
    pub(crate) link: Link,
    paths: CheckedPaths,
    clock: ScheduleClock,
}

impl ClockedLink {
    pub(crate) fn new(config: LinkConfig) -> Self {
        Self {
            link: Link::new(&config).unwrap(),
            paths: CheckedPaths::new(config.paths).unwrap(),
            clock: ScheduleClock::default(),
        }
    }

    /// Carries out `order` at a time in milliseconds.
    pub(crate) fn order(&mut self, at_ms: u64, order: ScheduleOrder) {
        let at = Nanos::from_millis(at_ms);
        let paths = self.paths.clone();
        self.link
            .change_by_clock(at, paths, self.clock, order)
            .unwrap();
        self.clock = self.clock.ordered(at, order);
    }
}

/// Stops or starts a clock, at a time in milliseconds if there is one.
pub(crate) fn order(runs: bool, to_ms: Option<u64>) -> ScheduleOrder {
    ScheduleOrder {
        runs: Some(runs),
        to: to_ms.map(Nanos::from_millis),
    }
}

/// A hop: the stages of each direction, and a stage that both share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hop {
    pub(crate) name: String,
    pub(crate) up: HopDirection,
    pub(crate) down: HopDirection,
    /// TOFFEE's server in front of everything else, and its loss in each direction.
    pub(crate) toffee: Option<(Toffee, Probability)>,
}

/// One direction of a hop, with its stages in this order.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HopDirection {
    pub(crate) rate: Option<Rate>,
    pub(crate) loss: Probability,
    pub(crate) delay: Nanos,
    pub(crate) size_delay: Option<Factor>,
}

impl Hop {
    fn stages(&self, name: &str, direction: &HopDirection) -> Vec<StageSpec> {
        let mut stages = Vec::new();
        let mut add = |kind: &str, effect| {
            let stage = format!("{}.{name}.{kind}", self.name);
            stages.push(StageSpec::new(stage, effect));
        };
        if let Some((_, loss)) = self.toffee.filter(|(_, loss)| *loss != Probability::ZERO) {
            add("drop", Effect::Loss(loss.into()));
        }
        if let Some(rate) = direction.rate {
            add("rate", Effect::Rate(rate));
        }
        if direction.loss != Probability::ZERO {
            add("loss", Effect::Loss(direction.loss.into()));
        }
        if direction.delay != Nanos::ZERO || direction.size_delay.is_some() {
            let (time, by_size) = (direction.delay, direction.size_delay);
            add(
                "delay",
                Effect::Delay(Delay {
                    time,
                    by_size,
                    ..Delay::default()
                }),
            );
        }
        let server = self
            .toffee
            .map(|(toffee, _)| toffee)
            .filter(|t| t.delay != Nanos::ZERO || t.dynamic.is_some());
        let shared =
            server.map(|t| StageSpec::new(format!("{}.toffee", self.name), Effect::Toffee(t)));
        shared.into_iter().chain(stages).collect()
    }
}

/// Creates a link of hops, which a packet going down meets in reverse order.
pub(crate) fn config(seed: u64, link: u64, hops: &[Hop]) -> LinkConfig {
    let up = hops.iter().flat_map(|hop| hop.stages("up", &hop.up));
    let down = hops
        .iter()
        .rev()
        .flat_map(|hop| hop.stages("down", &hop.down));
    LinkConfig {
        link,
        ..LinkConfig::new(seed, up.collect(), down.collect())
    }
}

pub(crate) fn link(hops: Vec<Hop>) -> LinkConfig {
    config(1, 0, &hops)
}

pub(crate) fn hop(name: &str, up: HopDirection, down: HopDirection) -> Hop {
    Hop {
        name: name.into(),
        up,
        down,
        toffee: None,
    }
}

pub(crate) fn loss(text: &str) -> HopDirection {
    HopDirection {
        loss: text.parse().unwrap(),
        ..HopDirection::default()
    }
}

pub(crate) fn delay(text: &str) -> HopDirection {
    HopDirection {
        delay: text.parse().unwrap(),
        ..HopDirection::default()
    }
}

pub(crate) fn rate(rate: &str, queue: &str) -> HopDirection {
    HopDirection {
        rate: Some(Rate {
            fluctuation: None,
            burst: None,
            rate: rate.parse().ok(),
            framing: Framing::L2,
            queue: queue.parse::<QueueLimit>().unwrap().into(),
        }),
        ..HopDirection::default()
    }
}

/// Generates one to three hops with every kind of stage that keeps order.
pub(crate) fn any_hops() -> impl Strategy<Value = Vec<Hop>> {
    let hop = (any_direction(), any_direction(), option::of(any_toffee()));
    let named = |(n, (up, down, toffee))| Hop {
        name: format!("hop{n}"),
        up,
        down,
        toffee,
    };
    prop::collection::vec(hop, 1..=3)
        .prop_map(move |hops| hops.into_iter().enumerate().map(named).collect())
}

/// Generates links of such hops.
pub(crate) fn any_link() -> impl Strategy<Value = LinkConfig> {
    (any::<u64>(), any::<u64>(), any_hops())
        .prop_map(|(seed, link, hops)| config(seed, link, &hops))
}

pub(crate) fn any_direction() -> impl Strategy<Value = HopDirection> {
    (
        option::of(any_rate()),
        any_loss(),
        prop_oneof![Just(0), 0..5_000_000_u64],
        option::of(any_factor()),
    )
        .prop_map(|(rate, loss, delay, size_delay)| HopDirection {
            rate,
            loss,
            delay: Nanos(delay),
            size_delay,
        })
}

pub(crate) fn any_rate() -> impl Strategy<Value = Rate> {
    (
        1_000_000..1_000_000_000_u64,
        prop_oneof![
            Just(Framing::L1),
            Just(Framing::L2),
            Just("atm,overhead=26".parse().unwrap())
        ],
        any_queue(),
    )
        .prop_map(|(rate, framing, queue)| Rate {
            fluctuation: None,
            burst: None,
            rate: BitsPerSec::new(rate).ok(),
            framing,
            queue: queue.into(),
        })
}

pub(crate) fn any_queue() -> impl Strategy<Value = QueueLimit> {
    prop_oneof![
        (1..20_u32).prop_map(QueueLimit::Packets),
        (1..50_000_u64).prop_map(|bytes| QueueLimit::Bytes(Bytes(bytes))),
        (1..50_000_000_u64).prop_map(|time| QueueLimit::Time(Nanos(time))),
        (1..50_000_000_u64, 1..20_u32)
            .prop_map(|(time, packets)| QueueLimit::TimeOrPackets(Nanos(time), packets)),
    ]
}

pub(crate) fn any_toffee() -> impl Strategy<Value = (Toffee, Probability)> {
    (
        0..1_000_000_u64,
        option::of(any_factor()),
        any_loss(),
        any_queue(),
    )
        .prop_map(|(delay, dynamic, loss, queue)| {
            let toffee = Toffee {
                delay: Nanos(delay),
                dynamic,
                queue: queue.into(),
            };
            (toffee, loss)
        })
}

pub(crate) fn any_factor() -> impl Strategy<Value = Factor> {
    (0.5..1_000.0).prop_map(|factor| Factor::new(factor).unwrap())
}

pub(crate) fn any_loss() -> impl Strategy<Value = Probability> {
    prop_oneof![Just(0.0), 0.0..100.0].prop_map(|p| Probability::from_percent(p).unwrap())
}

/// Generates packets from both sides, with bursts at one instant and gaps.
pub(crate) fn any_traffic() -> impl Strategy<Value = Vec<Arrival>> {
    let gap = prop_oneof![Just(0), 0..100_000_u64, 0..3_000_000_u64];
    let side = prop_oneof![Just(Side::A), Just(Side::B)];
    prop::collection::vec((gap, side, 42..9_018_u64), 1..200).prop_map(|packets| {
        let mut at = Nanos(1);
        let arrive = |(gap, side, len)| {
            at += Nanos(gap);
            Arrival {
                at,
                side,
                len: Bytes(len),
            }
        };
        packets.into_iter().map(arrive).collect()
    })
}

pub(crate) fn any_wakes() -> impl Strategy<Value = Vec<Wake>> {
    let wake = prop_oneof![
        Just(Wake::Never),
        Just(Wake::AtDeadlines),
        any::<u8>().prop_map(Wake::Once)
    ];
    prop::collection::vec(wake, 200)
}

/// Numbers that follow from the first one alone (splitmix64), so that a case is always the same.
#[derive(Debug)]
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }
}
