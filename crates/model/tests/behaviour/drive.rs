//! A link driven in virtual time, and strategies for links and traffic.

use farwire_model::{
    BitsPerSec, Bytes, Conditions, Factor, Framing, HopConfig, Link, LinkConfig, Nanos, Outcome,
    Packet, PacketId, Probability, QueueLimit, Rate, Side, Toffee,
};
use proptest::option;
use proptest::prelude::*;

/// A packet to offer; its id is its place in the list of arrivals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) at: Nanos,
    pub(crate) side: Side,
    pub(crate) len: Bytes,
}

/// How the caller wakes up before an arrival.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wake {
    /// Not at all.
    Never,
    /// At every deadline that the link names.
    AtDeadlines,
    /// Once, this share (of 255) of the way to the arrival.
    Once(u8),
}

/// What a link answered, in the order of decision.
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

/// Offers `traffic` and wakes whenever `link` asks for it, to the end; shows each step to `seen`.
pub(crate) fn attend(
    link: &mut Link,
    traffic: &[Arrival],
    mut seen: impl FnMut(&Link, Nanos, Option<Outcome>),
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
            seen(link, now, None);
        } else if let Some(at) = wake {
            now = now.max(at);
            let outcome = link.poll(now);
            seen(link, now, outcome);
        } else {
            return;
        }
    }
}

/// Everything decided by `now`.
pub(crate) fn drain(link: &mut Link, now: Nanos) -> Vec<Outcome> {
    std::iter::from_fn(|| link.poll(now)).collect()
}

/// Each packet's due time, by id; `None` for what was dropped.
pub(crate) fn dues(outcomes: &[Outcome]) -> Vec<Option<Nanos>> {
    let mut dues = vec![None; outcomes.len()];
    for outcome in outcomes {
        if let Outcome::Deliver { id, due } = outcome {
            dues[usize::try_from(id.0).unwrap()] = Some(*due);
        }
    }
    dues
}

/// `count` packets of `len` from `side`, `gap` apart.
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
    Packet {
        id: PacketId(id as u64),
        len,
    }
}

pub(crate) fn link(hops: Vec<HopConfig>) -> LinkConfig {
    LinkConfig {
        seed: 1,
        link: 0,
        hops,
    }
}

pub(crate) fn hop(name: &str, up: Conditions, down: Conditions) -> HopConfig {
    HopConfig {
        name: name.into(),
        up,
        down,
        toffee: None,
    }
}

pub(crate) fn loss(text: &str) -> Conditions {
    Conditions {
        loss: text.parse().unwrap(),
        ..Conditions::default()
    }
}

pub(crate) fn delay(text: &str) -> Conditions {
    Conditions {
        delay: text.parse().unwrap(),
        ..Conditions::default()
    }
}

pub(crate) fn rate(rate: &str, queue: &str) -> Conditions {
    Conditions {
        rate: Some(Rate {
            fluctuation: None,
            rate: rate.parse().unwrap(),
            framing: Framing::L2,
            queue: queue.parse().unwrap(),
        }),
        ..Conditions::default()
    }
}

/// Links of one to three hops with every kind of stage.
pub(crate) fn any_link() -> impl Strategy<Value = LinkConfig> {
    let hop = (any_conditions(), any_conditions(), option::of(any_toffee()));
    (
        any::<u64>(),
        any::<u64>(),
        prop::collection::vec(hop, 1..=3),
    )
        .prop_map(|(seed, link, hops)| LinkConfig {
            seed,
            link,
            hops: hops
                .into_iter()
                .enumerate()
                .map(|(n, (up, down, toffee))| HopConfig {
                    name: format!("hop{n}"),
                    up,
                    down,
                    toffee,
                })
                .collect(),
        })
}

pub(crate) fn any_conditions() -> impl Strategy<Value = Conditions> {
    (
        option::of(any_rate()),
        any_loss(),
        prop_oneof![Just(0), 0..5_000_000_u64],
        option::of(any_factor()),
    )
        .prop_map(|(rate, loss, delay, size_delay)| Conditions {
            rate,
            loss,
            delay: Nanos(delay),
            size_delay,
        })
}

pub(crate) fn any_rate() -> impl Strategy<Value = Rate> {
    (
        1_000_000..1_000_000_000_u64,
        prop_oneof![Just(Framing::L1), Just(Framing::L2)],
        any_queue(),
    )
        .prop_map(|(rate, framing, queue)| Rate {
            fluctuation: None,
            rate: BitsPerSec::new(rate).unwrap(),
            framing,
            queue,
        })
}

pub(crate) fn any_queue() -> impl Strategy<Value = QueueLimit> {
    prop_oneof![
        (1..20_u32).prop_map(QueueLimit::Packets),
        (1..50_000_u64).prop_map(|bytes| QueueLimit::Bytes(Bytes(bytes))),
        (1..50_000_000_u64).prop_map(|time| QueueLimit::Time(Nanos(time))),
    ]
}

pub(crate) fn any_toffee() -> impl Strategy<Value = Toffee> {
    (
        0..1_000_000_u64,
        option::of(any_factor()),
        any_loss(),
        any_queue(),
    )
        .prop_map(|(delay, dynamic, loss, queue)| Toffee {
            delay: Nanos(delay),
            dynamic,
            loss,
            queue,
        })
}

pub(crate) fn any_factor() -> impl Strategy<Value = Factor> {
    (0.5..1_000.0).prop_map(|factor| Factor::new(factor).unwrap())
}

pub(crate) fn any_loss() -> impl Strategy<Value = Probability> {
    prop_oneof![Just(0.0), 0.0..100.0].prop_map(|p| Probability::from_percent(p).unwrap())
}

/// Packets of both sides: bursts at one instant, and gaps.
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
