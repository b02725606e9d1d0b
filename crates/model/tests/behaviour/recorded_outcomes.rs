//! Outcomes that must not change: ten thousand links, each drawn from its number, and a hash of the outcomes of all
//! packets on each.
//!
//! `recorded_outcomes.bin` was written by the model that had one verdict for each packet, before stages and disciplines
//! replaced it. Of the 1,525 links with a queue in time before a rate that fluctuates, 219 were written again when such
//! a queue began to follow the current rate.

use crate::drive::{Arrival, Draw, Hop, HopDirection, config, drain, packet};
use farwire_model::{
    BitsPerSec, Bytes, DropCause, Factor, Fluctuation, Framing, Link, Nanos, Outcome, Probability,
    QueueLimit, Rate, Side, Toffee,
};

const LINKS: u64 = 10_000;
const RECORDED: &[u8] = include_bytes!("recorded_outcomes.bin");

#[test]
fn ten_thousand_links_give_the_recorded_outcomes() {
    let (hashes, _) = RECORDED.as_chunks::<8>();
    assert_eq!(hashes.len() as u64, LINKS);
    let changed: Vec<u64> = (0..LINKS)
        .zip(hashes)
        .filter(|&(number, recorded)| hash(number) != u64::from_le_bytes(*recorded))
        .map(|(number, _)| number)
        .collect();
    assert!(changed.is_empty(), "{} differ: {changed:?}", changed.len());
}

/// Returns the FNV-1a hash of all packets' outcomes, in the order of their numbers.
fn hash(number: u64) -> u64 {
    let mut draw = Draw(number);
    let (seed, link) = (draw.next(), draw.below(1 << 20));
    let config = config(seed, link, &hops(&mut draw));
    let mut outcomes = outcomes_by_id(&mut Link::new(&config).unwrap(), &mut draw);
    outcomes.sort_unstable();
    outcomes
        .iter()
        .flat_map(|(id, due)| [*id, *due])
        .flat_map(u64::to_le_bytes)
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        })
}

/// Returns each packet's number and the time at which it is due; 0 and 1 stand for the two kinds of drops.
fn outcomes_by_id(link: &mut Link, draw: &mut Draw) -> Vec<(u64, u64)> {
    let mut outcomes = Vec::new();
    let mut at = Nanos(1_000);
    for id in 0..50 + usize::try_from(draw.below(200)).unwrap() {
        let gap = match draw.below(4) {
            0 => draw.below(3),
            1 => draw.below(20_000),
            2 => draw.below(200_000),
            _ => draw.below(3_000_000),
        };
        at += Nanos(gap);
        match draw.below(8) {
            0 => outcomes.extend(drain(link, at)),
            1 => {
                while let Some(wake) = link.next_at().filter(|wake| *wake <= at) {
                    outcomes.extend(link.poll(wake));
                }
            }
            _ => {}
        }
        let side = if draw.below(2) == 0 { Side::A } else { Side::B };
        let late = if draw.below(16) == 0 {
            draw.below(900)
        } else {
            0
        };
        let arrival = Arrival {
            at: Nanos(at.0 - late),
            side,
            len: Bytes(42 + draw.below(9_000)),
        };
        link.offer(arrival.at, arrival.side, packet(id, arrival.len));
    }
    outcomes.extend(drain(link, Nanos::MAX));
    outcomes.iter().map(id_and_due).collect()
}

fn hops(draw: &mut Draw) -> Vec<Hop> {
    let count = 1 + draw.below(3);
    let hop = |n| Hop {
        name: format!("hop{n}"),
        up: hop_direction(draw),
        down: hop_direction(draw),
        toffee: draw.one_in(4).then(|| toffee(draw)),
    };
    (0..count).map(hop).collect()
}

fn hop_direction(draw: &mut Draw) -> HopDirection {
    HopDirection {
        rate: draw.one_in(2).then(|| rate(draw)),
        loss: loss(draw),
        delay: Nanos(if draw.one_in(3) {
            0
        } else {
            draw.below(5_000_000)
        }),
        size_delay: draw.one_in(4).then(|| factor(draw)),
    }
}

fn rate(draw: &mut Draw) -> Rate {
    let fluctuation = Fluctuation {
        spread: percent(draw.below(90)),
        hold: Nanos(1_000_000 + draw.below(50_000_000)),
    };
    Rate {
        rate: BitsPerSec::new(1_000_000 + draw.below(300_000_000)).ok(),
        fluctuation: draw.one_in(4).then_some(fluctuation),
        burst: None,
        framing: if draw.one_in(2) {
            Framing::L1
        } else {
            Framing::L2
        },
        queue: queue(draw).into(),
    }
}

fn toffee(draw: &mut Draw) -> (Toffee, Probability) {
    let delay = Nanos(draw.below(500_000));
    let dynamic = draw.one_in(2).then(|| factor(draw));
    let loss = loss(draw);
    let queue = queue(draw).into();
    (
        Toffee {
            delay,
            dynamic,
            queue,
        },
        loss,
    )
}

fn queue(draw: &mut Draw) -> QueueLimit {
    match draw.below(3) {
        0 => QueueLimit::Packets(1 + u32::try_from(draw.below(20)).unwrap()),
        1 => QueueLimit::Bytes(Bytes(1 + draw.below(50_000))),
        _ => QueueLimit::Time(Nanos(1 + draw.below(50_000_000))),
    }
}

fn factor(draw: &mut Draw) -> Factor {
    Factor::new(0.5 + draw.below(1_000) as f64 / 4.0).unwrap()
}

fn loss(draw: &mut Draw) -> Probability {
    percent(if draw.one_in(2) { 0 } else { draw.below(40) })
}

fn percent(percent: u64) -> Probability {
    Probability::from_percent(percent as f64).unwrap()
}

fn id_and_due(outcome: &Outcome) -> (u64, u64) {
    match outcome {
        Outcome::Deliver { id, due, .. } => (id.0, due.0),
        Outcome::Drop { id, cause, .. } => (id.0, u64::from(*cause != DropCause::Loss)),
        Outcome::Copied { .. } => panic!("nothing here copies"),
    }
}
