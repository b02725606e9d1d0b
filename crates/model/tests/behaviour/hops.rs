//! Drops are counted by the hop whose stages drop.

use std::ops::Range;

use crate::drive::{drain, packet};
use farwire_model::{Bytes, DropCause, Effect, Link, LinkConfig, Nanos, Outcome, Side, StageSpec};

/// Creates a stage of a hop that loses the packets with these numbers.
fn loses(hop: &str, indexes: &[u64]) -> StageSpec {
    StageSpec {
        hop: hop.to_owned(),
        ..StageSpec::new(format!("box.{hop}.up"), Effect::Indexes(indexes.into()))
    }
}

fn config(stages: Vec<StageSpec>) -> LinkConfig {
    LinkConfig::new(1, stages, Vec::new())
}

/// Offers packets from side A, and returns the number of the hop for each that is dropped.
fn hops_of_drops(link: &mut Link, ids: Range<usize>) -> Vec<u16> {
    for id in ids {
        link.offer(Nanos(id as u64), Side::A, packet(id, Bytes(100)));
    }
    let outcomes = drain(link, Nanos::MAX);
    let hops = outcomes.iter().filter_map(|outcome| match outcome {
        Outcome::Drop { hop, .. } => Some(*hop),
        Outcome::Copied { .. } | Outcome::Deliver { .. } => None,
    });
    hops.collect()
}

/// Returns the names of the hops and the losses from side A.
fn losses(link: &Link) -> Vec<(&str, u64)> {
    let hops = link.hops().iter();
    hops.map(|hop| (hop.name(), hop.dropped(Side::A, DropCause::Loss)))
        .collect()
}

#[test]
fn a_drop_has_the_number_of_its_hop_and_is_counted_there() {
    let stages = vec![loses("", &[0]), loses("a", &[0]), loses("b", &[0, 1])];
    let mut link = Link::new(&config(stages)).unwrap();
    assert_eq!(losses(&link), [("a", 0), ("b", 0)]);
    assert_eq!(hops_of_drops(&mut link, 0..5), [0, 1, 2, 2]);
    assert_eq!(losses(&link), [("a", 1), ("b", 2)]);
    assert_eq!(link.hops()[1].dropped(Side::B, DropCause::Loss), 0);
    assert_eq!(link.hops()[1].dropped(Side::A, DropCause::QueueFull), 0);
    assert_eq!(link.counters(Side::A).dropped(DropCause::Loss), 4);
}

#[test]
fn hops_keep_their_numbers_and_counters_while_the_link_changes() {
    let stages = vec![loses("a", &[0]), loses("b", &[0])];
    let mut link = Link::new(&config(stages)).unwrap();
    assert_eq!(hops_of_drops(&mut link, 0..3), [1, 2]);
    let changed = config(vec![loses("c", &[0]), loses("b", &[0])]);
    link.change(Nanos(10), &changed.paths).unwrap();
    assert_eq!(losses(&link), [("a", 1), ("b", 1), ("c", 0)]);
    assert_eq!(hops_of_drops(&mut link, 11..14), [3]);
    assert_eq!(losses(&link), [("a", 1), ("b", 1), ("c", 1)]);
}

#[test]
fn drops_of_hops_beyond_the_limit_count_in_the_totals_only() {
    let mut link = Link::new(&config(Vec::new())).unwrap();
    for number in 0..300 {
        let changed = config(vec![loses(&format!("h{number}"), &[0])]);
        link.change(Nanos(number), &changed.paths).unwrap();
    }
    assert_eq!(link.hops().len(), 256);
    assert_eq!(hops_of_drops(&mut link, 400..401), [0]);
    assert_eq!(link.counters(Side::A).dropped(DropCause::Loss), 1);
}
