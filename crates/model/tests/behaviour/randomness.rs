//! The packets that are lost depend on the seed, the link and the stage, and on nothing else.

use crate::drive::{Hop, HopDirection, delay, drive, dues, hop, link, loss, rate, stream};
use farwire_model::{LinkConfig, Nanos, QueueLimit, Side, Toffee};
use proptest::prelude::*;

const PACKETS: u64 = 100_000;

/// Returns which of `PACKETS` packets from `side` are lost.
fn lost_from(config: &LinkConfig, side: Side) -> Vec<bool> {
    let traffic = stream(side, PACKETS, Nanos::from_micros(100), 1_000);
    let dues = dues(&drive(config, &traffic, &[]));
    dues.iter().map(Option::is_none).collect()
}

fn lost(config: &LinkConfig) -> Vec<bool> {
    lost_from(config, Side::A)
}

fn count(lost: impl IntoIterator<Item = bool>) -> usize {
    lost.into_iter().filter(|&lost| lost).count()
}

/// Asserts that the number lost in both is in the 99.9 % interval of independent losses: 1 % of 100,000.
fn assert_independent(one: &[bool], other: &[bool]) {
    let both = count(one.iter().zip(other).map(|(one, other)| *one && *other));
    assert!((897..=1_103).contains(&both), "{both} lost in both");
}

fn ten_percent() -> LinkConfig {
    link(vec![hop("box", loss("10%"), loss("10%"))])
}

#[test]
fn the_measured_loss_lies_in_its_interval() {
    // The bounds are np +- 3.29 sqrt(np(1-p)) for 100,000 packets.
    for (text, low, high) in [
        ("0.1%", 68, 132),
        ("1%", 897, 1_103),
        ("10%", 9_688, 10_312),
    ] {
        let config = link(vec![hop("box", loss(text), loss(text))]);
        for side in [Side::A, Side::B] {
            let lost = count(lost_from(&config, side));
            assert!((low..=high).contains(&lost), "{text}: {lost}");
        }
    }
}

#[test]
fn toffees_loss_holds_in_each_direction() {
    let toffee = Toffee {
        delay: Nanos::ZERO,
        dynamic: None,
        queue: QueueLimit::Packets(1).into(),
    };
    let config = link(vec![Hop {
        name: "box".into(),
        toffee: Some((toffee, "5.5%".parse().unwrap())),
        ..Hop::default()
    }]);
    for side in [Side::A, Side::B] {
        let lost = count(lost_from(&config, side));
        assert!((5_263..=5_737).contains(&lost), "{lost}");
    }
}

#[test]
fn another_seed_link_hop_or_direction_loses_other_packets() {
    let reference = lost(&ten_percent());
    assert_independent(&reference, &lost_from(&ten_percent(), Side::B));
    assert_independent(
        &reference,
        &lost(&LinkConfig {
            seed: 2,
            ..ten_percent()
        }),
    );
    assert_independent(
        &reference,
        &lost(&LinkConfig {
            link: 1,
            ..ten_percent()
        }),
    );
    let other_hop = link(vec![hop("wire", loss("10%"), loss("10%"))]);
    assert_independent(&reference, &lost(&other_hop));
}

#[test]
fn other_stages_do_not_change_which_packets_are_lost() {
    let reference = lost(&ten_percent());
    let busy = HopDirection {
        loss: "10%".parse().unwrap(),
        delay: Nanos::from_millis(7),
        ..rate("1gbit", "100pkt")
    };
    let others = [
        link(vec![hop("box", loss("10%"), loss("0%"))]),
        link(vec![hop("box", loss("10%"), loss("50%"))]),
        link(vec![hop("box", busy, rate("1mbit", "1pkt"))]),
        link(vec![
            hop("wire", delay("1ms"), loss("3%")),
            hop("box", loss("10%"), loss("10%")),
        ]),
    ];
    for other in others {
        assert!(lost(&other) == reference, "{other:?}");
    }
}

#[test]
fn two_hops_lose_packets_independently() {
    let first = lost(&link(vec![hop("box", loss("10%"), loss("0%"))]));
    let mut second = lost(&link(vec![hop("far", loss("10%"), loss("0%"))])).into_iter();
    let both = lost(&link(vec![
        hop("box", loss("10%"), loss("0%")),
        hop("far", loss("10%"), loss("0%")),
    ]));
    // The draws of the second hop count the packets that reach it.
    let expected: Vec<bool> = first
        .into_iter()
        .map(|lost| lost || second.next().unwrap())
        .collect();
    assert!(both == expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn a_seed_gives_the_same_outcomes(seed: u64, link: u64) {
        let config = LinkConfig { seed, link, ..ten_percent() };
        prop_assert!(lost(&config) == lost(&config));
    }
}
