//! Changes of conditions while packets are on their way.

use crate::drive::{
    Draw, Hop, HopDirection, any_hops, any_traffic, config, delay, drain, hop, packet, rate,
};
use farwire_model::{
    BitsPerSec, Bytes, CheckedPaths, ConfigError, Delay, Effect, Factor, Gate, Jitter, Law, Link,
    LinkConfig, MOST_STAGES_IN_ALL, Nanos, Ordering, Outcome, PathSpec, QueueLimit, Rate, Side,
    StageSpec,
};
use proptest::prelude::*;

/// The time for which conditions change every millisecond.
const SECONDS: u64 = 60;

/// Returns one direction of a path that never loses a packet: a gate, a bottleneck that may stall, and delays, each
/// present or not.
fn lossless(draw: &mut Draw, direction: &str) -> Vec<StageSpec> {
    let queue = QueueLimit::Packets(u32::MAX);
    let stages = [
        (
            "gate",
            Effect::Gate(Gate {
                open: !draw.one_in(8),
                queue,
            }),
        ),
        (
            "rate",
            Effect::Rate(Rate {
                rate: BitsPerSec::new(draw.below(20) * 100_000_000).ok(),
                fluctuation: None,
                burst: None,
                framing: farwire_model::Framing::L2,
                queue: queue.into(),
            }),
        ),
        (
            "delay",
            Effect::Delay(Delay {
                time: Nanos(draw.below(20_000_000)),
                by_size: draw.one_in(2).then(|| Factor::new(10.0).unwrap()),
                jitter: draw.one_in(2).then(|| {
                    let spread = Nanos(draw.below(2_000_000));
                    let law = if draw.one_in(2) {
                        Law::Uniform
                    } else {
                        Law::Normal
                    };
                    Jitter::new(spread, law)
                }),
                reorder: None,
                ordering: Ordering::Fifo,
            }),
        ),
        (
            "far",
            Effect::Delay(Delay {
                time: Nanos(draw.below(1_000_000)),
                ..Delay::default()
            }),
        ),
    ];
    let named =
        |(kind, effect): (&str, Effect)| StageSpec::new(format!("box.{direction}.{kind}"), effect);
    let mut stages: Vec<StageSpec> = stages.into_iter().map(named).collect();
    // The first and the last stage may be missing, and the middle ones may do nothing, so that each keeps a place that
    // the next change can name.
    for stage in &mut stages[1..3] {
        if draw.one_in(4) {
            stage.effect = Effect::Nothing;
        }
    }
    if draw.one_in(4) {
        stages.remove(0);
    }
    if draw.one_in(4) {
        stages.pop();
    }
    stages
}

fn lossless_paths(draw: &mut Draw) -> Vec<PathSpec> {
    let (up, down) = (lossless(draw, "up"), lossless(draw, "down"));
    LinkConfig::new(1, up, down).paths
}

#[test]
fn a_change_a_millisecond_loses_nothing_and_reorders_nothing() {
    let mut draw = Draw(7);
    let mut link = Link::new(&LinkConfig::new(1, vec![], vec![])).unwrap();
    let (mut last, mut latest) = ([None; 2], [Nanos::ZERO; 2]);
    let mut left = |link: &mut Link, now| {
        while let Some(outcome) = link.poll(now) {
            let Outcome::Deliver { id, due, .. } = outcome else {
                panic!("{outcome:?}");
            };
            let side = usize::try_from(id.0 % 2).unwrap();
            assert!(last[side].replace(id) < Some(id), "{id:?} overtook another");
            assert!(due >= latest[side], "{id:?} is due before an earlier one");
            latest[side] = due;
        }
    };
    let offered = usize::try_from(SECONDS * 100_000).unwrap();
    for id in 0..offered {
        let now = Nanos(id as u64 * 10_000);
        if id % 100 == 0 {
            link.change(now, &lossless_paths(&mut draw)).unwrap();
        }
        let side = if id % 2 == 0 { Side::A } else { Side::B };
        link.offer(now, side, packet(id, Bytes(60 + draw.below(1_454))));
        left(&mut link, now);
    }
    let end = Nanos::from_secs(SECONDS);
    link.change(end, &LinkConfig::new(1, vec![], vec![]).paths)
        .unwrap();
    left(&mut link, Nanos::MAX);
    let counters = link.counters(Side::A) + link.counters(Side::B);
    assert_eq!(counters.packets, offered as u64);
    assert_eq!(counters.delivered, offered as u64);
    assert_eq!(counters.held() + counters.late, 0);
}

proptest! {
    #[test]
    fn counters_add_up_across_any_change(
        links in prop::collection::vec(any_hops(), 2..6),
        traffic in any_traffic(),
    ) {
        let mut link = Link::new(&config(1, 0, &links[0])).unwrap();
        let every = traffic.len() / links.len() + 1;
        let mut outcomes = Vec::new();
        for (id, arrival) in traffic.iter().enumerate() {
            if id % every == every - 1 {
                link.change(arrival.at, &config(1, 0, &links[1 + id / every % (links.len() - 1)]).paths).ok();
            }
            link.offer(arrival.at, arrival.side, packet(id, arrival.len));
            if id % 3 == 0 {
                outcomes.extend(drain(&mut link, arrival.at));
            }
        }
        outcomes.extend(drain(&mut link, Nanos::MAX));
        let mut ids: Vec<u64> = outcomes.iter().map(|outcome| outcome.id().0).collect();
        ids.sort_unstable();
        prop_assert_eq!(ids, (0..traffic.len() as u64).collect::<Vec<_>>());
        prop_assert_eq!((link.counters(Side::A) + link.counters(Side::B)).held(), 0);
    }
}

#[test]
fn decided_outcomes_stay_and_later_packets_do_not_overtake_them() {
    let mut link = Link::new(&crate::drive::link(vec![hop(
        "box",
        delay("20ms"),
        HopDirection::default(),
    )]))
    .unwrap();
    link.offer(Nanos(5), Side::A, packet(0, Bytes(100)));
    let at = Nanos::from_millis(1);
    let none = crate::drive::link(vec![Hop {
        name: "box".into(),
        ..Hop::default()
    }]);
    assert_eq!(link.change(at, &none.paths), Ok(at));
    let mut due = |id, at: Nanos| {
        link.offer(at, Side::A, packet(id, Bytes(100)));
        let outcomes = drain(&mut link, at);
        outcomes.iter().find_map(|outcome| match outcome {
            Outcome::Deliver { id: of, due, .. } if of.0 == id as u64 => Some(*due),
            _ => None,
        })
    };
    let decided = Nanos::from_millis(20) + Nanos(5);
    assert_eq!(due(1, Nanos::from_millis(2)), Some(decided));
    // The delay has left by now, and its place with it.
    let later = Nanos::from_millis(21);
    assert_eq!(due(2, later), Some(later));
    assert_eq!(link.stages().count(), 0);
}

#[test]
fn a_refused_change_changes_nothing() {
    let hops = |first: HopDirection, second: HopDirection| {
        let hops = [
            hop("wire", first, HopDirection::default()),
            hop("box", second, HopDirection::default()),
        ];
        config(1, 0, &hops).paths
    };
    let mut link = Link::new(&LinkConfig {
        paths: hops(delay("1ms"), rate("8mbit", "10pkt")),
        ..LinkConfig::default()
    })
    .unwrap();
    let mut swapped = hops(delay("1ms"), rate("8mbit", "10pkt"));
    swapped[0].stages.reverse();
    assert_eq!(
        link.change(Nanos(1), &swapped),
        Err(ConfigError::Reordered("box.up.rate".into()))
    );
    let mut other = hops(delay("1ms"), rate("8mbit", "10pkt"));
    other[0].stages[0].effect = Effect::Mtu(1_400);
    assert_eq!(
        link.change(Nanos(1), &other),
        Err(ConfigError::OtherKind("wire.up.delay".into()))
    );
    let mut unnamed = hops(delay("1ms"), rate("8mbit", "10pkt"));
    unnamed[0].stages[1].name.clear();
    assert_eq!(
        link.change(Nanos(1), &unnamed),
        Err(ConfigError::Unnamed(2))
    );

    link.offer(Nanos(0), Side::A, packet(0, Bytes(1_000)));
    let due = Nanos::from_millis(2);
    assert_eq!(
        crate::drive::dues(&drain(&mut link, Nanos::MAX)),
        [Some(due)]
    );
    link.stop();
    assert_eq!(link.change(Nanos(9), &swapped), Err(ConfigError::Stopped));
}

#[test]
fn a_stage_that_paths_share_leaves_all_of_them_or_none() {
    let gate = |name: &str| {
        let queue = QueueLimit::Packets(10);
        StageSpec::new(name, Effect::Gate(Gate { open: true, queue }))
    };
    let both = LinkConfig::new(1, vec![gate("gate")], vec![gate("gate")]);
    let half = LinkConfig::new(1, vec![gate("gate")], vec![]);
    let mut link = Link::new(&both).unwrap();
    assert_eq!(
        link.change(Nanos(1), &half.paths),
        Err(ConfigError::LeavesHalf("gate".into()))
    );
    let checked = |config: &LinkConfig| CheckedPaths::new(config.paths.clone()).unwrap();
    assert_eq!(
        checked(&both).check_successor(&checked(&half)),
        Err(ConfigError::LeavesHalf("gate".into()))
    );
    assert_eq!(checked(&half).check_successor(&checked(&both)), Ok(()));
    assert_eq!(
        link.change(Nanos(1), &LinkConfig::new(1, vec![], vec![]).paths),
        Ok(Nanos(1))
    );
}

#[test]
fn stages_that_leave_with_packets_on_their_way_are_limited() {
    let under = |number: u64| {
        let delay = Effect::Delay(Delay {
            time: Nanos::from_secs(1_000),
            ..Delay::default()
        });
        let stage = StageSpec::new(format!("box.up.{number}"), delay);
        LinkConfig::new(1, vec![stage], vec![])
    };
    let mut link = Link::new(&under(0)).unwrap();
    let mut refusals = (1..1_000).zip(1..).filter_map(|(number, id)| {
        link.offer(Nanos(number), Side::A, packet(id, Bytes(1_000)));
        link.change(Nanos(number), &under(number).paths).err()
    });
    let stages = MOST_STAGES_IN_ALL + 1;
    assert_eq!(refusals.next(), Some(ConfigError::TooManyLeave { stages }));
}
