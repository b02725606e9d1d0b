//! Token buckets, before which packets wait or at which they are dropped. They are compared with the theoretical
//! arrival time of ITU-T I.371's generic cell rate algorithm, an equivalent definition of the same law.

use crate::drive::{Draw, drain, dues, packet};
use farwire_model::{
    Bytes, DropCause, Effect, Framing, Link, LinkConfig, Nanos, Outcome, Police, QueueLimit, Rate,
    Side, StageSpec,
};

/// The time of a byte at 8 Mbit/s.
const NANOS_PER_BYTE: i128 = 1_000;

fn bucket(rate: &str, burst: u64) -> Effect {
    Effect::Rate(Rate {
        rate: rate.parse().ok(),
        fluctuation: None,
        burst: Some(Bytes(burst)),
        framing: Framing::L2,
        queue: QueueLimit::Packets(100_000).into(),
    })
}

fn policer(rate: &str, burst: u64) -> Effect {
    Effect::Police(Police {
        rate: rate.parse().unwrap(),
        burst: Bytes(burst),
    })
}

fn link(effect: Effect, schedule: Vec<(Nanos, Effect)>) -> Link {
    let stage = StageSpec {
        schedule: schedule.into(),
        ..StageSpec::new("box.up", effect)
    };
    Link::new(&LinkConfig::new(1, vec![stage], vec![])).unwrap()
}

/// Returns when each packet leaves; `None` if it is dropped.
fn leave(link: &mut Link, arrivals: &[(u64, u64)]) -> Vec<Option<Nanos>> {
    for (id, (at, len)) in arrivals.iter().enumerate() {
        link.offer(Nanos(*at), Side::A, packet(id, Bytes(*len)));
    }
    dues(&drain(link, Nanos::MAX))
}

/// Returns packets of all sizes, with bursts at one instant, gaps that fill a bucket, and everything in between.
fn traffic(seed: u64) -> Vec<(u64, u64)> {
    let mut draw = Draw(seed);
    let mut at = 0;
    let arrivals = (0..4_000).map(|_| {
        at += match draw.below(10) {
            0..5 => 0,
            5..9 => draw.below(1_500_000),
            _ => draw.below(12_000_000),
        };
        (at, 60 + draw.below(1_455))
    });
    arrivals.collect()
}

/// Returns when a packet of `len` bytes with the theoretical arrival time `theory` conforms to a bucket of `burst`
/// bytes.
fn conforms_at(theory: i128, len: u64, burst: u64) -> i128 {
    theory + (i128::from(len) - i128::from(burst)) * NANOS_PER_BYTE
}

#[test]
fn a_packet_leaves_when_it_conforms() {
    for (seed, burst) in [(1, 1_514), (2, 5_000), (3, 40_000)] {
        let arrivals = traffic(seed);
        let ours = leave(&mut link(bucket("8mbit", burst), vec![]), &arrivals);
        let (mut theory, mut before) = (0, 0);
        for ((at, len), ours) in arrivals.iter().zip(ours) {
            let earliest = i128::from(*at).max(before);
            before = earliest.max(conforms_at(theory, *len, burst));
            theory = theory.max(before) + i128::from(*len) * NANOS_PER_BYTE;
            assert_eq!(i128::from(ours.unwrap().0), before, "burst of {burst}");
        }
    }
}

#[test]
fn a_policer_drops_packets_that_do_not_conform() {
    for (seed, burst) in [(4, 1_514), (5, 5_000), (6, 40_000)] {
        let arrivals = traffic(seed);
        let mut link = link(policer("8mbit", burst), vec![]);
        let ours = leave(&mut link, &arrivals);
        let mut theory = 0;
        let mut dropped = 0;
        for ((at, len), ours) in arrivals.iter().zip(ours) {
            let now = i128::from(*at);
            let passes = now >= conforms_at(theory, *len, burst);
            assert_eq!(ours, passes.then_some(Nanos(*at)), "burst of {burst}");
            if passes {
                theory = theory.max(now) + i128::from(*len) * NANOS_PER_BYTE;
            } else {
                dropped += 1;
            }
        }
        assert_eq!(link.counters(Side::A).dropped(DropCause::Policed), dropped);
        assert!((10..3_900).contains(&dropped), "{dropped}");
    }
}

#[test]
fn packets_within_the_bucket_pass_immediately() {
    let ms = Nanos::from_millis;
    let mut link = link(bucket("8mbit", 10_000), vec![]);
    // The arrivals are 12 packets of 1,000 bytes, and 8 more when 5 ms have filled half of the bucket.
    let arrivals: Vec<_> = (0..20)
        .map(|id| (if id < 12 { 0 } else { 7_000_000 }, 1_000))
        .collect();
    let dues: Vec<u64> = leave(&mut link, &arrivals)
        .iter()
        .map(|due| due.unwrap().0 / ms(1).0)
        .collect();
    let expected = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 7, 7, 7, 7, 7, 8, 9, 10];
    assert_eq!(dues, expected);
}

#[test]
fn a_packet_longer_than_the_bucket_waits_for_the_rest() {
    let ms = Nanos::from_millis;
    let two = [(0, 10_000), (0, 10_000)];
    let waits = |schedule| leave(&mut link(bucket("8mbit", 2_000), schedule), &two);
    assert_eq!(waits(vec![]), [Some(ms(8)), Some(ms(18))]);
    // 4,000 bytes are left at 4 ms; at twice the rate they take half the time.
    let faster = vec![(ms(4), bucket("16mbit", 2_000))];
    assert_eq!(waits(faster), [Some(ms(6)), Some(ms(11))]);
    let plain = vec![(
        ms(4),
        match bucket("8mbit", 2_000) {
            Effect::Rate(rate) => Effect::Rate(Rate {
                burst: None,
                ..rate
            }),
            other => other,
        },
    )];
    assert_eq!(waits(plain), [Some(ms(8)), Some(ms(18))]);
}

#[test]
fn a_bucket_that_changes_keeps_its_tokens() {
    let ms = Nanos::from_millis;
    for (effect, other) in [
        (bucket("8mbit", 10_000), bucket("8mbit", 20_000)),
        (policer("8mbit", 10_000), policer("8mbit", 20_000)),
    ] {
        // The bucket is empty at 0 and holds 4,000 bytes at 4 ms, when it becomes a larger one.
        let mut link = link(effect, vec![(ms(4), other)]);
        let arrivals: Vec<_> = (0..20)
            .map(|id| (if id < 10 { 0 } else { 4_000_000 }, 1_000))
            .collect();
        for (id, (at, len)) in arrivals.iter().enumerate() {
            link.offer(Nanos(*at), Side::A, packet(id, Bytes(*len)));
        }
        let immediate = drain(&mut link, Nanos::MAX)
            .iter()
            .filter(|outcome| matches!(outcome, Outcome::Deliver { due, .. } if *due <= ms(4)))
            .count();
        assert_eq!(immediate, 14);
    }
}
