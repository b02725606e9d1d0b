//! Every effect of a stage: what is asked for is what happens. Intervals are those of p = 1e-4: 3.89 standard errors.

use crate::drive::{drain, packet};
use farwire_model::{
    Bytes, Delay, DropCause, Edit, Effect, Factor, Framing, GilbertElliott, Jitter, Law, Link,
    LinkConfig, Nanos, Ordering, Outcome, Probability, QueueLimit, Rate, Reply, Side, StageSpec,
};

const NORMAL: f64 = 3.89;

fn percent(text: &str) -> Probability {
    text.parse().unwrap()
}

fn up(stages: Vec<(&str, Effect)>) -> LinkConfig {
    let stages = stages.into_iter();
    let named = stages.map(|(name, effect)| StageSpec::new(name, effect));
    LinkConfig::new(5, named.collect(), vec![])
}

/// What becomes of `count` packets of `len(id)` bytes, `gap` apart.
fn cross(
    config: &LinkConfig,
    count: usize,
    gap: u64,
    len: impl Fn(usize) -> u64,
) -> (Vec<Outcome>, Link) {
    let mut link = Link::new(config).unwrap();
    let mut outcomes = Vec::new();
    for id in 0..count {
        let at = Nanos(id as u64 * gap);
        link.offer(at, Side::A, packet(id, Bytes(len(id))));
        outcomes.extend(drain(&mut link, at));
    }
    outcomes.extend(drain(&mut link, Nanos::MAX));
    (outcomes, link)
}

/// Which packets themselves, and not their copies, were delivered, and when.
fn dues(outcomes: &[Outcome], count: usize) -> Vec<Option<u64>> {
    let mut dues = vec![None; count];
    for outcome in outcomes {
        if let Outcome::Deliver {
            id, copy: 0, due, ..
        } = outcome
        {
            dues[usize::try_from(id.0).unwrap()] = Some(due.0);
        }
    }
    dues
}

fn lost(config: &LinkConfig, count: usize) -> Vec<bool> {
    let (outcomes, _) = cross(config, count, 1_000, |_| 1_000);
    dues(&outcomes, count).iter().map(Option::is_none).collect()
}

#[test]
fn the_state_that_was_left_decides_after_the_transition() {
    let always = percent("100%");
    let law = GilbertElliott {
        to_bad: always,
        to_good: always,
        bad_loss: always,
        good_loss: Probability::ZERO,
    };
    let lost = lost(
        &up(vec![("box.up.burst-loss", Effect::GilbertElliott(law))]),
        6,
    );
    assert_eq!(lost, [false, true, false, true, false, true]);
}

fn jittery(law: Law, spread: &str, ordering: Ordering) -> Effect {
    Effect::Delay(Delay {
        time: Nanos::from_millis(20),
        by_size: None,
        jitter: Some(Jitter::new(spread.parse().unwrap(), law)),
        ordering,
    })
}

#[test]
fn jitter_keeps_order_unless_it_is_free() {
    for law in [Law::Uniform, Law::Normal] {
        let config = up(vec![("box.up.delay", jittery(law, "5ms", Ordering::Fifo))]);
        let (outcomes, _) = cross(&config, 50_000, 100_000, |_| 1_000);
        assert!(dues(&outcomes, 50_000).is_sorted());
        let ids: Vec<u64> = outcomes.iter().map(|outcome| outcome.id().0).collect();
        assert!(ids.is_sorted());
    }
}

#[test]
fn a_fifo_delay_behind_free_jitter_keeps_the_order_in_which_packets_reach_it() {
    let count = 20_000;
    let jitter = || {
        (
            "wire.up.delay",
            jittery(Law::Uniform, "5ms", Ordering::Free),
        )
    };
    let by_size = Delay {
        time: Nanos::from_millis(1),
        by_size: Factor::new(0.5).ok(),
        ..Delay::default()
    };
    let len = |id: usize| 60 + (id as u64 * 7_919) % 1_455;
    let (first, _) = cross(&up(vec![jitter()]), count, 100_000, len);
    let first = dues(&first, count);
    let both = up(vec![jitter(), ("box.up.delay", Effect::Delay(by_size))]);
    let (both, _) = cross(&both, count, 100_000, len);
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|id| first[*id]);
    assert!(!order.is_sorted());
    let mut last = 0;
    let mut expected = vec![None; count];
    for id in &order {
        last = last.max(first[*id].unwrap() + 1_000_000 + 2_000 * len(*id));
        expected[*id] = Some(last);
    }
    assert!(dues(&both, count) == expected);
    let decided = both
        .iter()
        .map(|outcome| usize::try_from(outcome.id().0).unwrap());
    assert!(decided.eq(order));
}

fn rate(bits: &str, queue: &str) -> Effect {
    Effect::Rate(Rate {
        rate: bits.parse().ok(),
        fluctuation: None,
        burst: None,
        framing: Framing::L2,
        queue: queue.parse::<QueueLimit>().unwrap().into(),
    })
}

#[test]
fn copies_go_through_what_follows_and_every_one_has_an_outcome() {
    let count = 20_000;
    let config = up(vec![
        ("box.up.duplicate", Effect::Duplicate(percent("30%"))),
        ("far.up.rate", rate("8mbit", "20pkt")),
        ("far.up.loss", Effect::Loss(percent("5%"))),
    ]);
    // At the rate if nothing were copied.
    let (outcomes, link) = cross(&config, count, 1_000_000, |_| 1_000);
    let mut promised = vec![Vec::new(); count];
    let mut begun = vec![false; count];
    let mut copies = 0.0;
    for outcome in &outcomes {
        let id = usize::try_from(outcome.id().0).unwrap();
        match *outcome {
            Outcome::Copied { copy, .. } => {
                assert!(
                    !begun[id] && copy != 0,
                    "a copy comes before every other outcome"
                );
                promised[id].push(copy);
                copies += 1.0;
            }
            Outcome::Deliver { copy, .. } | Outcome::Drop { copy, .. } => {
                begun[id] = true;
                if copy != 0 {
                    let place = promised[id].iter().position(|one| *one == copy);
                    promised[id].remove(place.expect("a copy that was announced, once"));
                }
            }
        }
    }
    assert!(promised.iter().all(Vec::is_empty) && begun.iter().all(|begun| *begun));
    let n = count as f64;
    assert!(
        (copies / n - 0.3).abs() < NORMAL * (0.21 / n).sqrt(),
        "{copies}"
    );
    let counters = link.counters(Side::A);
    assert_eq!(counters.copies as f64, copies);
    assert!(counters.dropped(DropCause::QueueFull) > 1_000);
    assert_eq!(
        counters.packets + counters.copies,
        counters.delivered + counters.all_dropped()
    );
    assert_eq!(counters.held(), 0);
}

#[test]
fn copies_never_change_what_becomes_of_originals() {
    let count = 50_000;
    let impaired = |copied: &str| {
        let bursts = GilbertElliott::of_bursts(percent("5%"), 4.0).unwrap();
        up(vec![
            ("box.up.duplicate", Effect::Duplicate(percent(copied))),
            ("box.up.loss", Effect::Loss(percent("20%"))),
            ("box.up.burst-loss", Effect::GilbertElliott(bursts)),
            ("box.up.delay", jittery(Law::Uniform, "1ms", Ordering::Free)),
        ])
    };
    let fates = |copied| {
        dues(
            &cross(&impaired(copied), count, 100_000, |_| 1_000).0,
            count,
        )
    };
    assert!(fates("0%") == fates("100%"));
}

#[test]
fn packets_are_corrupted_at_the_share_that_was_asked_for() {
    let count = 200_000;
    let config = up(vec![("box.up.corrupt", Effect::Corrupt(percent("10%")))]);
    let (outcomes, link) = cross(&config, count, 1_000, |_| 1_000);
    let bits: Vec<u32> = outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            Outcome::Deliver { edit, .. } => *edit,
            _ => panic!("nothing drops"),
        })
        .map(|Edit::FlipBit(bit)| bit)
        .collect();
    let (n, edited) = (count as f64, bits.len() as f64);
    assert!(
        (edited / n - 0.1).abs() < NORMAL * (0.09 / n).sqrt(),
        "{edited}"
    );
    assert_eq!(link.counters(Side::A).edited, bits.len() as u64);
    // Every bit of a packet alike: its number is uniform.
    let high = bits.iter().filter(|bit| **bit >= 1 << 31).count() as f64;
    assert!(
        (high / edited - 0.5).abs() < NORMAL * (0.25 / edited).sqrt(),
        "{high}"
    );
}

#[test]
fn what_is_too_long_is_dropped_and_its_sender_told() {
    let config = up(vec![("box.up.mtu", Effect::Mtu(1_400))]);
    let mut link = Link::new(&config).unwrap();
    let mut tagged = packet(2, Bytes(1_418));
    tagged.l3_at = 18;
    link.offer(Nanos(7), Side::A, packet(0, Bytes(1_414)));
    link.offer(Nanos(7), Side::A, packet(1, Bytes(1_415)));
    link.offer(Nanos(7), Side::A, tagged);
    let outcomes = drain(&mut link, Nanos(7));
    assert!(matches!(
        outcomes[0],
        Outcome::Deliver { due: Nanos(7), .. }
    ));
    let told = Outcome::Drop {
        id: packet(1, Bytes(0)).id,
        copy: 0,
        at: Nanos(7),
        cause: DropCause::TooBig,
        reply: Some(Reply::TooBig { mtu: 1_400 }),
    };
    assert_eq!(outcomes[1], told);
    assert!(matches!(outcomes[2], Outcome::Deliver { .. }));
}
