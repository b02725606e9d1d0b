//! Classes that share a server by weight.

use std::num::NonZeroU8;

use crate::drive::drain;
use farwire_model::{
    Bytes, Discipline, DropCause, Effect, Framing, Link, LinkConfig, Nanos, Outcome, Packet,
    PacketId, PathSpec, Queue, QueueLimit, Rate, Side, StageSpec, Weights,
};

/// Creates a link at 8 Mbit/s, at which 1,000 bytes take 1 ms, with a class for each weight.
fn link(weights: &[u8], limit: QueueLimit) -> Link {
    let mut of = Weights::default();
    for (class, weight) in (0..).zip(weights) {
        of.set(class, NonZeroU8::new(*weight).unwrap());
    }
    let rate = Effect::Rate(Rate {
        rate: "8mbit".parse().ok(),
        fluctuation: None,
        burst: None,
        framing: Framing::L2,
        queue: Queue {
            limit,
            discipline: Discipline::Weighted(of),
        },
    });
    let path = |side, class| PathSpec {
        side,
        class,
        stages: match side {
            Side::A => vec![StageSpec::new("box.up.rate", rate.clone())],
            Side::B => vec![],
        },
    };
    let classes = (0..).zip(weights).map(|(class, _)| class);
    let paths = classes.flat_map(|class| [path(Side::A, class), path(Side::B, class)]);
    let config = LinkConfig {
        paths: paths.collect(),
        ..LinkConfig::default()
    };
    Link::new(&config).unwrap()
}

/// Offers a packet whose number says its class.
fn offer(link: &mut Link, at: Nanos, number: u64, class: u16, len: u64) {
    let id = PacketId(number * 100 + u64::from(class));
    let packet = Packet {
        class,
        ..Packet::new(id, Bytes(len))
    };
    link.offer(at, Side::A, packet);
}

fn class_of(id: PacketId) -> usize {
    usize::try_from(id.0 % 100).unwrap()
}

#[test]
fn classes_that_wait_share_the_rate_by_weight_whatever_their_lengths() {
    let mut link = link(&[1, 2, 5], QueueLimit::Packets(10_000));
    let lens = [1_500, 500, 1_000];
    for number in 0..1_200 {
        for class in 0..3 {
            let len = lens[usize::from(class)];
            offer(&mut link, Nanos::ZERO, number, class, len);
        }
    }
    // All of them wait for longer than a second.
    let second = Nanos::from_secs(1);
    let mut bytes = [0; 3];
    for outcome in drain(&mut link, second) {
        if let Outcome::Deliver { id, .. } = outcome {
            bytes[class_of(id)] += lens[class_of(id)];
        }
    }
    for (bytes, share) in bytes.into_iter().zip([1, 2, 5]) {
        let right = 1_000_000 * share / 8;
        assert!(bytes.abs_diff(right) <= 10_000, "{bytes} bytes of {right}");
    }
}

#[test]
fn a_class_that_waits_alone_has_the_whole_rate() {
    let mut link = link(&[1, 200], QueueLimit::Packets(10_000));
    for number in 0..100 {
        offer(&mut link, Nanos::ZERO, number, 0, 1_000);
    }
    let outcomes = drain(&mut link, Nanos::MAX);
    let last = outcomes.last();
    let Some(Outcome::Deliver { due, .. }) = last else {
        panic!("{last:?}");
    };
    assert_eq!(*due, Nanos::from_millis(100));
}

/// The first class offers three times the rate, the second one a third of the rate, which is within its share.
#[test]
fn a_full_queue_drops_packets_of_the_class_that_exceeds_its_share() {
    let mut link = link(&[1, 1], QueueLimit::Packets(20));
    let mut outcomes = Vec::new();
    for number in 0..3_000 {
        let at = Nanos::from_millis(number);
        for part in 0..3 {
            offer(&mut link, at, 3 * number + part, 0, 1_000);
        }
        if number % 3 == 0 {
            offer(&mut link, at, number, 1, 1_000);
        }
        outcomes.extend(std::iter::from_fn(|| link.poll(at)));
    }
    outcomes.extend(drain(&mut link, Nanos::MAX));
    let mut dropped = [0; 2];
    for outcome in outcomes {
        if let Outcome::Drop { id, cause, .. } = outcome {
            assert_eq!(cause, DropCause::QueueFull);
            dropped[class_of(id)] += 1;
        }
    }
    assert!(dropped[0] > 6_000, "{dropped:?}");
    assert_eq!(dropped[1], 0);
}
