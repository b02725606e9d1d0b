//! Every effect of a stage does what it was configured to do. Intervals are those of p = 1e-4: 3.89 standard errors.

use crate::drive::{drain, packet};
use std::num::NonZeroU32;

use farwire_model::{
    Bytes, Corruption, Delay, DropCause, Duplication, Ecn, Edit, Effect, Factor, FourState,
    Framing, GilbertElliott, HoldBack, Jitter, Law, Link, LinkConfig, Nanos, Ordering, Outcome,
    Packet, Probability, QueueLimit, RandomLoss, Rate, Reorder, Reply, Side, StageSpec, Stall,
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

/// Returns the outcomes of `count` packets of `len(id)` bytes, `gap` ns apart, and the link.
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

/// Returns when the packets themselves, without their copies, are due; `None` for dropped ones.
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

#[test]
fn a_stall_holds_its_share_of_the_packets_for_half_its_length_on_average() {
    let stall = Stall {
        every: Nanos::from_millis(100),
        lasts: Nanos::from_millis(20),
    };
    let config = up(vec![("stall", Effect::Stall(stall))]);
    // There are 100,000 packets over 100 periods, one each 100 us.
    let (outcomes, link) = cross(&config, 100_000, 100_000, |_| 1_000);
    let dues = dues(&outcomes, 100_000);
    let waits: Vec<u64> = dues
        .iter()
        .enumerate()
        .map(|(id, due)| due.unwrap() - id as u64 * 100_000)
        .collect();
    assert!(dues.is_sorted());
    let held = waits.iter().filter(|wait| **wait > 0).count();
    assert_eq!(held, 20_000);
    // The waits are 0.1, 0.2, ... 20 ms.
    assert_eq!(waits.iter().sum::<u64>() / 20_000, 10_050_000);
    assert_eq!(waits.iter().max(), Some(&20_000_000));
    assert_eq!(link.stages().next().unwrap().dropped, 0);
}

fn lost(config: &LinkConfig, count: usize) -> Vec<bool> {
    let (outcomes, _) = cross(config, count, 1_000, |_| 1_000);
    dues(&outcomes, count).iter().map(Option::is_none).collect()
}

#[test]
fn gemodel_decides_by_the_state_that_was_left() {
    let always = percent("100%");
    let law = GilbertElliott {
        to_bad: always,
        to_good: always,
        bad_loss: always,
        good_loss: Probability::ZERO,
        ecn: false,
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
        jitter: Some(Jitter::new(spread.parse().unwrap(), law)),
        ordering,
        ..Delay::default()
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
fn copies_pass_the_stages_behind_and_each_has_an_outcome() {
    let count = 20_000;
    let config = up(vec![
        ("box.up.duplicate", Effect::Duplicate(percent("30%").into())),
        ("far.up.rate", rate("8mbit", "20pkt")),
        ("far.up.loss", Effect::Loss(percent("5%").into())),
    ]);
    // Packets come exactly at the rate if none is copied.
    let (outcomes, link) = cross(&config, count, 1_000_000, |_| 1_000);
    let mut promised = vec![Vec::new(); count];
    let mut begun = vec![false; count];
    let mut copies = 0.0;
    for outcome in &outcomes {
        let id = usize::try_from(outcome.id().0).unwrap();
        match *outcome {
            Outcome::Copied { copy, .. } => {
                assert!(!begun[id], "a copy comes before every other outcome");
                assert!(copy != 0, "a copy comes before every other outcome");
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
fn copies_never_change_the_outcomes_of_originals() {
    let count = 50_000;
    let impaired = |copied: &str| {
        let bursts = GilbertElliott::of_bursts(percent("5%"), 4.0).unwrap();
        up(vec![
            (
                "box.up.duplicate",
                Effect::Duplicate(percent(copied).into()),
            ),
            ("box.up.loss", Effect::Loss(percent("20%").into())),
            ("box.up.burst-loss", Effect::GilbertElliott(bursts)),
            ("box.up.delay", jittery(Law::Uniform, "1ms", Ordering::Free)),
        ])
    };
    let due_times = |copied| {
        dues(
            &cross(&impaired(copied), count, 100_000, |_| 1_000).0,
            count,
        )
    };
    assert!(due_times("0%") == due_times("100%"));
}

#[test]
fn a_packet_above_the_mtu_is_dropped_with_a_reply() {
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
    let too_big = Outcome::Drop {
        id: packet(1, Bytes(0)).id,
        copy: 0,
        at: Nanos(7),
        cause: DropCause::TooBig,
        reply: Some(Reply::TooBig { mtu: 1_400 }),
        hop: 0,
    };
    assert_eq!(outcomes[1], too_big);
    assert!(matches!(outcomes[2], Outcome::Deliver { .. }));
}

#[test]
fn ecn_packets_are_marked_instead_of_every_kind_of_loss() {
    let all = percent("100%");
    let losses = [
        Effect::Loss(RandomLoss {
            share: all,
            ecn: true,
        }),
        Effect::GilbertElliott(GilbertElliott {
            to_bad: all,
            to_good: Probability::ZERO,
            bad_loss: all,
            good_loss: all,
            ecn: true,
        }),
    ];
    for effect in losses {
        let mut link = Link::new(&up(vec![("box.up.loss", effect)])).unwrap();
        for (id, ecn) in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce]
            .into_iter()
            .enumerate()
        {
            let packet = Packet {
                ecn,
                ..packet(id, Bytes(100))
            };
            link.offer(Nanos(0), Side::A, packet);
        }
        let marks: Vec<Option<bool>> = drain(&mut link, Nanos(0))
            .iter()
            .map(|outcome| match outcome {
                Outcome::Deliver { mark, .. } => Some(*mark),
                _ => None,
            })
            .collect();
        // A packet that arrived marked gets no new mark.
        assert_eq!(marks, [None, Some(true), Some(true), Some(false)]);
    }
}

#[test]
fn numbered_packets_are_lost_and_their_copies_are_not() {
    let indexes = |all: &[u64]| Effect::Indexes(all.into());
    let numbers = |config: &LinkConfig| -> Vec<usize> {
        let lost = lost(config, 12).into_iter().enumerate();
        lost.filter_map(|(id, lost)| lost.then_some(id)).collect()
    };
    let alone = up(vec![("box.up.indexes", indexes(&[0, 3, 4, 11, 40]))]);
    assert_eq!(numbers(&alone), [0, 3, 4, 11]);
    let copied = up(vec![
        (
            "box.up.duplicate",
            Effect::Duplicate(percent("100%").into()),
        ),
        ("box.up.indexes", indexes(&[0, 3, 4, 11, 40])),
    ]);
    assert_eq!(numbers(&copied), [0, 3, 4, 11]);
    let (_, link) = cross(&copied, 12, 1_000, |_| 100);
    assert_eq!(link.counters(Side::A).dropped(DropCause::Loss), 4);
    // The numbers count the packets that reach the stage itself.
    let behind = up(vec![
        ("box.up.nth", Effect::EveryNth(NonZeroU32::new(2).unwrap())),
        ("box.up.indexes", indexes(&[1, 2])),
    ]);
    assert_eq!(numbers(&behind), [1, 2, 3, 4, 5, 7, 9, 11]);
    // Another list that the schedule sets refers to the same numbers.
    let mut later = up(vec![("box.up.indexes", indexes(&[1, 9]))]);
    later.paths[0].stages[0].schedule = vec![(Nanos(5_000), indexes(&[2, 7, 8]))].into();
    assert_eq!(numbers(&later), [1, 7, 8]);
    let back = up(vec![("box.up.indexes", indexes(&[3, 7, 7]))]);
    assert_eq!(
        Link::new(&back).unwrap_err().to_string(),
        "box.up.indexes: indexes = 7, 7 is out of range: write each packet's number once, in ascending order, as in [0, 3, 7]"
    );
}

#[test]
fn four_states_with_sums_above_100_percent_are_refused() {
    let chain = |p13, p31, p32, p14| FourState {
        p13: percent(p13),
        p31: percent(p31),
        p32: percent(p32),
        p23: percent("100%"),
        p14: percent(p14),
        ecn: false,
    };
    let built = |law| Link::new(&up(vec![("box.up.loss", Effect::FourState(law))]));
    // These are percentages whose sum is not exact in floating point.
    built(chain("0.1%", "70.1%", "29.9%", "99.9%")).unwrap();
    let refused = |law| built(law).unwrap_err().to_string();
    assert_eq!(
        refused(chain("1%", "70%", "31%", "0%")),
        "box.up.loss: p32 = 31% and p31 = 70% is out of range: p31 and p32, which leave state 3, must not exceed 100% together"
    );
    assert!(refused(chain("60%", "1%", "1%", "41%")).contains("p14 = 41% and p13 = 60%"));
}

#[test]
fn four_states_decide_by_the_state_that_is_entered() {
    let (all, none) = (percent("100%"), Probability::ZERO);
    let first = FourState {
        p13: all,
        p31: none,
        p32: all,
        p23: all,
        p14: none,
        ecn: false,
    };
    let config = |law| up(vec![("box.up.four-state", Effect::FourState(law))]);
    // The chain goes from 1 to 3, lost; to 2, received; and to 3 again.
    assert_eq!(lost(&config(first), 5), [true, false, true, false, true]);
    // The chain goes from 1 to 4, lost, and always back to 1.
    let alone = FourState {
        p13: none,
        p14: all,
        ..first
    };
    assert_eq!(lost(&config(alone), 4), [true, false, true, false]);
}

fn reordering(share: &str, gap: u32, ordering: Ordering) -> Effect {
    Effect::Delay(Delay {
        time: Nanos(3_500),
        ordering,
        reorder: Some(Reorder {
            share: percent(share),
            gap: NonZeroU32::new(gap).unwrap(),
        }),
        ..Delay::default()
    })
}

#[test]
fn every_third_packet_skips_a_delay() {
    for ordering in [Ordering::Fifo, Ordering::Free] {
        let config = up(vec![("box.up.delay", reordering("100%", 3, ordering))]);
        let (outcomes, _) = cross(&config, 9, 1_000, |_| 100);
        let due = |id: u64| Some(id * 1_000 + if id % 3 == 2 { 0 } else { 3_500 });
        assert_eq!(dues(&outcomes, 9), (0..9).map(due).collect::<Vec<_>>());
    }
    let never = up(vec![("box.up.delay", reordering("0%", 1, Ordering::Fifo))]);
    assert!(dues(&cross(&never, 9, 1_000, |_| 100).0, 9).is_sorted());
    // A queue behind it gets the packets in the order in which they left.
    let before_a_queue = up(vec![
        ("box.up.delay", reordering("100%", 3, Ordering::Fifo)),
        ("far.up.rate", rate("8gbit", "9pkt")),
    ]);
    let (outcomes, _) = cross(&before_a_queue, 6, 1_000, |_| 1);
    let ids: Vec<u64> = outcomes.iter().map(|outcome| outcome.id().0).collect();
    assert_eq!(ids, [2, 0, 1, 5, 3, 4]);
}

fn holding(share: &str, extent: u32, timeout: u64) -> Effect {
    Effect::HoldBack(HoldBack {
        share: percent(share),
        extent: NonZeroU32::new(extent).unwrap(),
        timeout: Nanos(timeout),
    })
}

#[test]
fn a_held_packet_is_overtaken_by_its_extent() {
    let count = 50_000;
    for extent in [1, 3, 8] {
        let config = up(vec![("box.up.reorder", holding("1%", extent, 1_000_000))]);
        let (outcomes, link) = cross(&config, count, 1_000, |_| 100);
        let times = dues(&outcomes, count);
        let ids: Vec<u64> = outcomes.iter().map(|outcome| outcome.id().0).collect();
        assert_eq!(ids.len(), count);
        let (mut held, mut furthest) = (Vec::new(), None);
        for id in ids {
            match furthest {
                Some(furthest) if id < furthest => held.push(id),
                _ => furthest = Some(id),
            }
        }
        assert!(held.len() > 300, "{}", held.len());
        for id in &held {
            // It leaves when the last of the packets arrives that overtake it; others that are held back do not count.
            let mut later = (id + 1..).filter(|later| !held.contains(later));
            let last = later.nth(usize::try_from(extent).unwrap() - 1).unwrap();
            if last < count as u64 {
                let at = times[usize::try_from(*id).unwrap()];
                assert_eq!(at, Some(last * 1_000), "{id}");
            }
        }
        assert_eq!(link.counters(Side::A).held(), 0);
    }
}

#[test]
fn a_held_packet_leaves_after_its_timeout() {
    let all = up(vec![("box.up.reorder", holding("100%", 2, 5_000))]);
    let (outcomes, _) = cross(&all, 4, 1_000, |_| 100);
    let due = |id: u64| Some(id * 1_000 + 5_000);
    assert_eq!(dues(&outcomes, 4), (0..4).map(due).collect::<Vec<_>>());
    // Its schedule can also release what it holds.
    let mut until = all.clone();
    until.paths[0].stages[0].schedule = vec![(Nanos(2_500), Effect::Nothing)].into();
    let (outcomes, _) = cross(&until, 4, 1_000, |_| 100);
    assert_eq!(
        dues(&outcomes, 4),
        [Some(2_500), Some(2_500), Some(2_500), Some(3_000)]
    );
    // A shorter time applies to the packets that are held, too.
    let mut sooner = all.clone();
    sooner.paths[0].stages[0].schedule = vec![(Nanos(1_500), holding("100%", 2, 1_000))].into();
    let (outcomes, _) = cross(&sooner, 3, 1_000, |_| 100);
    assert_eq!(dues(&outcomes, 3), [Some(2_500), Some(2_500), Some(3_000)]);
    let never = up(vec![("box.up.reorder", holding("1%", 2, 0))]);
    assert_eq!(
        Link::new(&never).unwrap_err().to_string(),
        "box.up.reorder: timeout = 0ms is out of range: a packet must be held for more than 0 and at most 3600s"
    );
    let mut link = Link::new(&all).unwrap();
    link.offer(Nanos(0), Side::A, packet(0, Bytes(100)));
    assert_eq!(link.stop().len(), 1);
}

#[test]
fn a_copy_follows_after_its_delay() {
    let copies = |delay| {
        Effect::Duplicate(Duplication {
            share: percent("100%"),
            delay: Nanos(delay),
        })
    };
    let all_dues = |stages| {
        let (outcomes, link) = cross(&up(stages), 3, 1_000, |_| 100);
        assert_eq!(link.counters(Side::A).held(), 0);
        let mut dues: Vec<_> = outcomes
            .iter()
            .filter_map(|outcome| match outcome {
                Outcome::Deliver { id, copy, due, .. } => Some((id.0, *copy != 0, due.0)),
                _ => None,
            })
            .collect();
        dues.sort_unstable();
        dues
    };
    let later =
        |by| (0..3).flat_map(move |id| [(id, false, id * 1_000), (id, true, id * 1_000 + by)]);
    assert!(
        all_dues(vec![("box.up.duplicate", copies(5_500))])
            .into_iter()
            .eq(later(5_500))
    );
    assert!(
        all_dues(vec![("box.up.duplicate", copies(0))])
            .into_iter()
            .eq(later(0))
    );
    // A stage behind it that keeps order takes the copy when it comes, and no packet waits for it.
    let delayed = Effect::Delay(Delay {
        time: Nanos(100),
        ..Delay::default()
    });
    let behind = all_dues(vec![
        ("box.up.duplicate", copies(5_500)),
        ("box.up.delay", delayed),
    ]);
    assert!(
        behind
            .into_iter()
            .eq(later(5_500).map(|(id, copy, due)| (id, copy, due + 100)))
    );
    let long = up(vec![("box.up.duplicate", copies(4_000_000_000_000))]);
    assert_eq!(
        Link::new(&long).unwrap_err().to_string(),
        "box.up.duplicate: delay = 4000s is out of range: a delay must be at most 3600s"
    );
}

#[test]
fn a_corrupted_packet_states_its_bits_and_whether_the_checksum_is_corrected() {
    for (bits, repair) in [(1, false), (2, true), (255, false)] {
        let count = bits.try_into().unwrap();
        let effect = Effect::Corrupt(Corruption {
            share: percent("100%"),
            bits: count,
            repair,
        });
        let (outcomes, link) = cross(&up(vec![("box.up.corrupt", effect)]), 10, 1_000, |_| 100);
        let is_so = |outcome: &Outcome| {
            let &Outcome::Deliver {
                edit: Some(edit), ..
            } = outcome
            else {
                return false;
            };
            let Edit::FlipBits {
                count: own,
                repair: mended,
                ..
            } = edit;
            own == count && mended == repair
        };
        assert!(outcomes.iter().all(is_so));
        assert_eq!(link.counters(Side::A).edited, 10);
    }
}
