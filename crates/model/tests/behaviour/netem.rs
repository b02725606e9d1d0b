//! netem: each part by its definition in `net/sched/sch_netem.c`, and invariants for all options.

use crate::drive::{Arrival, Wake, drain, drive, packet, stream};
use farwire_model::{
    Bytes, DropCause, Ecn, Effect, FourState, GilbertElliott, Link, LinkConfig, Nanos, Netem,
    NetemDistribution, NetemLoss, NetemRate, NetemShare, NetemSlot, NetemSlotDelay, Outcome,
    Packet, Probability, Side, StageSpec,
};
use proptest::option;
use proptest::prelude::*;

fn up(netem: Netem) -> LinkConfig {
    let stage = StageSpec::new("box.up.netem", Effect::Netem(Box::new(netem)));
    LinkConfig::new(5, vec![stage], vec![])
}

fn percent(text: &str) -> Probability {
    text.parse().unwrap()
}

fn ms(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

fn share(text: &str) -> NetemShare {
    NetemShare {
        share: percent(text),
        correlation: None,
    }
}

fn correlated(text: &str, correlation: &str) -> NetemShare {
    NetemShare {
        correlation: Some(percent(correlation)),
        ..share(text)
    }
}

/// Returns the outcomes of `count` packets of 1000 bytes, `gap` apart from time 0 on.
fn outcomes(netem: Netem, count: u64, gap: Nanos) -> Vec<Outcome> {
    drive(&up(netem), &stream(Side::A, count, gap, 1_000), &[])
}

/// Returns the packet, whether it is a copy, and the time of each departure, in order.
fn left(netem: Netem, count: u64, gap: Nanos) -> Vec<(u64, bool, u64)> {
    let of = |outcome: &Outcome| match outcome {
        Outcome::Deliver { id, copy, due, .. } => Some((id.0, *copy > 0, due.0)),
        _ => None,
    };
    outcomes(netem, count, gap).iter().filter_map(of).collect()
}

/// Returns which of `count` packets are lost.
fn lost(netem: Netem, count: u64) -> Vec<bool> {
    let mut lost = vec![false; usize::try_from(count).unwrap()];
    for outcome in outcomes(netem, count, Nanos(1_000)) {
        if let Outcome::Drop {
            id, copy: 0, cause, ..
        } = outcome
        {
            assert_eq!(cause, DropCause::Loss);
            lost[usize::try_from(id.0).unwrap()] = true;
        }
    }
    lost
}

#[test]
fn the_limit_counts_packets_in_flight() {
    let netem = Netem {
        limit: 10,
        delay: ms(100),
        ..Netem::PLAIN
    };
    let drop = |outcome: &Outcome| match outcome {
        Outcome::Drop { id, cause, .. } => Some((id.0, *cause)),
        _ => None,
    };
    // One packet comes each millisecond: 10 fit, and the next that finds room comes when the first one has left.
    let all = outcomes(netem, 105, ms(1));
    let dropped: Vec<_> = all.iter().filter_map(drop).collect();
    let full: Vec<_> = (10..100).map(|id| (id, DropCause::QueueFull)).collect();
    assert_eq!(dropped, full);
}

#[test]
fn a_rate_counts_cells_and_begins_when_the_delay_is_over() {
    // 5 kbit/s are 625 bytes per second; 1000 + 20 bytes are 11 cells of 105 bytes, which take 1.848 s.
    let rate = NetemRate {
        bytes_per_s: 625,
        packet_overhead: 20,
        cell_size: 100,
        cell_overhead: 5,
    };
    let netem = Netem {
        rate: Some(rate),
        ..Netem::PLAIN
    };
    let times = |netem, gap| {
        left(netem, 3, gap)
            .iter()
            .map(|one| one.2 / 1_000_000)
            .collect::<Vec<_>>()
    };
    assert_eq!(times(netem, ms(1)), [1_848, 3_696, 5_544]);
    assert_eq!(times(netem, ms(2_000)), [1_848, 3_848, 5_848]);
    let delayed = Netem {
        delay: ms(3_000),
        ..netem
    };
    // The second packet is due behind the first; alone, the third would be due at 8.848 s.
    assert_eq!(times(delayed, ms(1_000)), [4_848, 6_696, 8_544]);
    for (len, bytes) in [(60, 46), (10, 0)] {
        let stripped = NetemRate {
            packet_overhead: -14,
            cell_size: 0,
            ..rate
        };
        assert_eq!(stripped.time_for(Bytes(len)), Nanos(bytes * 1_600_000));
    }
}

#[test]
fn every_fifth_packet_skips_the_delay_with_a_gap_of_five() {
    let netem = Netem {
        delay: ms(10),
        reorder: Some(share("100%")),
        gap: 5,
        ..Netem::PLAIN
    };
    let undelayed = |(id, _, due): &(u64, bool, u64)| (*due == id * 1_000_000).then_some(*id);
    let all = left(netem, 20, ms(1));
    let first: Vec<u64> = all.iter().filter_map(undelayed).collect();
    assert_eq!(first, [4, 9, 14, 19]);
    assert_eq!(all[0], (4, false, 4_000_000));
    assert_eq!(all.len(), 20);
}

#[test]
fn a_copy_is_not_copied_and_takes_its_turn_behind_its_packet() {
    let rate = NetemRate {
        bytes_per_s: 1_000_000,
        packet_overhead: 0,
        cell_size: 0,
        cell_overhead: 0,
    };
    let netem = Netem {
        duplicate: Some(share("100%")),
        rate: Some(rate),
        ..Netem::PLAIN
    };
    let ms = |n: u64| n * 1_000_000;
    let own = |id, at| (id, false, ms(at));
    let copy = |id, at| (id, true, ms(at));
    assert_eq!(
        left(netem, 2, Nanos(5_000_000)),
        [own(0, 1), copy(0, 2), own(1, 6), copy(1, 7)]
    );
}

#[test]
fn a_packet_that_is_copied_and_lost_passes_once() {
    let loss = NetemLoss::Random(share("100%"));
    let duplicate = Some(share("100%"));
    let netem = Netem {
        loss,
        duplicate,
        ..Netem::PLAIN
    };
    let all = left(netem, 3, ms(1));
    assert_eq!(
        all.iter().map(|one| (one.0, one.1)).collect::<Vec<_>>(),
        [(0, false), (1, false), (2, false)]
    );
    let alone = Netem {
        duplicate: None,
        ..netem
    };
    assert_eq!(left(alone, 3, ms(1)), []);
}

#[test]
fn the_first_of_two_copies_meets_loss_again() {
    // Half are lost. Of the others, either both leave, or only the copy if the packet is lost the second time.
    let netem = Netem {
        loss: NetemLoss::Random(share("50%")),
        duplicate: Some(share("100%")),
        ..Netem::PLAIN
    };
    let mut came = vec![Vec::new(); 1_000];
    for (id, copied, _) in left(netem, 1_000, ms(1)) {
        came[usize::try_from(id).unwrap()].push(copied);
    }
    let mut kinds = [0_u32; 3];
    for own in came {
        let kind = match own[..] {
            [false] => 0,
            [false, true] => 1,
            [true] => 2,
            _ => panic!("{own:?}"),
        };
        kinds[kind] += 1;
    }
    for (seen, share) in kinds.into_iter().zip([0.5, 0.25, 0.25]) {
        let off = f64::from(seen) - 1_000.0 * share;
        assert!(
            off.abs() < 3.89 * (1_000.0 * share * (1.0 - share)).sqrt(),
            "{kinds:?}"
        );
    }
}

#[test]
fn ecn_packets_are_marked_instead_of_lost() {
    let netem = Netem {
        loss: NetemLoss::Random(share("100%")),
        ecn: true,
        ..Netem::PLAIN
    };
    let mut link = Link::new(&up(netem)).unwrap();
    for (id, ecn) in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce]
        .into_iter()
        .enumerate()
    {
        let of = packet(id, Bytes(100));
        link.offer(Nanos(1), Side::A, Packet { ecn, ..of });
    }
    let marks: Vec<_> = drain(&mut link, Nanos::MAX)
        .iter()
        .map(|outcome| matches!(outcome, Outcome::Deliver { mark: true, .. }))
        .collect();
    // A packet that arrived marked leaves with that mark and gets no other.
    assert_eq!(marks, [false, true, true, false]);
    assert_eq!(link.counters(Side::A).dropped(DropCause::Loss), 1);
}

#[test]
fn packets_leave_when_they_are_due_and_not_before_they_came() {
    let netem = Netem {
        delay: ms(5),
        jitter: ms(20),
        ..Netem::PLAIN
    };
    let all = left(netem, 2_000, ms(1));
    assert!(all.is_sorted_by_key(|one| one.2));
    assert!(!all.is_sorted_by_key(|one| one.0), "some overtake others");
    let wait = |one: &(u64, bool, u64)| one.2 - one.0 * 1_000_000;
    assert!(all.iter().all(|one| wait(one) < 25_000_000));
    // 15 of 40 ms are below 0.
    let undelayed = all.iter().filter(|one| wait(one) == 0).count();
    assert!((660..840).contains(&undelayed), "{undelayed}");
}

/// Returns the correlation of each delay with the previous one.
fn lag_one(netem: Netem, count: u64) -> f64 {
    let mut waits = vec![0.0; usize::try_from(count).unwrap()];
    for (id, _, due) in left(netem, count, ms(1)) {
        waits[usize::try_from(id).unwrap()] = due as f64 - id as f64 * 1e6;
    }
    let mean = waits.iter().sum::<f64>() / count as f64;
    let variance: f64 = waits.iter().map(|wait| (wait - mean).powi(2)).sum();
    let pairs = waits.windows(2);
    pairs
        .map(|pair| (pair[0] - mean) * (pair[1] - mean))
        .sum::<f64>()
        / variance
}

#[test]
fn a_correlation_of_delays_has_no_effect_below_two_seconds_of_jitter() {
    let netem = |delay, jitter| Netem {
        limit: 100_000,
        delay: ms(delay),
        jitter: ms(jitter),
        delay_correlation: Some(percent("75%")),
        ..Netem::PLAIN
    };
    let count = 20_000;
    // Independent delays have a correlation within 3.89 / sqrt(20,000).
    assert!(lag_one(netem(100, 10), count).abs() < 0.028);
    let normal = Netem {
        distribution: Some(NetemDistribution::Normal),
        ..netem(100, 10)
    };
    assert!(lag_one(normal, count).abs() < 0.028);
    assert!((lag_one(netem(3_000, 2_147), count) - 0.75).abs() < 0.028);
}

#[test]
fn a_correlation_of_copies_alone_has_no_effect() {
    let netem = |correlation| Netem {
        duplicate: Some(NetemShare {
            correlation,
            ..share("10%")
        }),
        ..Netem::PLAIN
    };
    let half = Some(percent("50%"));
    let plain = left(netem(None), 2_000, ms(1));
    assert_eq!(left(netem(half), 2_000, ms(1)), plain);
    // If another correlation is stated, even of 0 %, this one has an effect.
    let with_another = |correlation| Netem {
        loss: NetemLoss::Random(correlated("0%", "0%")),
        ..netem(correlation)
    };
    assert_eq!(left(with_another(None), 2_000, ms(1)), plain);
    assert_ne!(left(with_another(half), 2_000, ms(1)), plain);
}

#[test]
fn chains_move_as_in_the_kernel() {
    let all = percent("100%");
    let none = Probability::ZERO;
    // The chain always changes its state; the state that was left decides, and it begins in the good one.
    let gemodel = NetemLoss::Gemodel(GilbertElliott {
        to_bad: all,
        to_good: all,
        bad_loss: all,
        good_loss: none,
        ecn: false,
    });
    let of = |loss| Netem {
        loss,
        ..Netem::PLAIN
    };
    assert_eq!(lost(of(gemodel), 4), [false, true, false, true]);
    let states = FourState {
        p13: all,
        p31: none,
        p32: all,
        p23: all,
        p14: none,
        ecn: false,
    };
    // The state that is entered decides: 1 to 3 is lost, 3 to 2 is not, 2 to 3 is.
    assert_eq!(
        lost(of(NetemLoss::State(states)), 5),
        [true, false, true, false, true]
    );
    let single = FourState {
        p13: none,
        p14: all,
        ..states
    };
    assert_eq!(
        lost(of(NetemLoss::State(single)), 4),
        [true, false, true, false]
    );
}

#[test]
fn due_packets_leave_in_slots() {
    let slot = NetemSlot {
        delay: NetemSlotDelay::Uniform(ms(10), ms(10)),
        packets: 2,
        bytes: 0,
    };
    let netem = Netem {
        slot: Some(slot),
        ..Netem::PLAIN
    };
    let ids = |netem, gap| {
        let all = left(netem, 5, gap);
        all.iter()
            .map(|one| (one.0, one.2 / 1_000_000))
            .collect::<Vec<_>>()
    };
    // The first slot is there from the start; each further one comes 10 ms after two packets.
    assert_eq!(
        ids(netem, Nanos(0)),
        [(0, 0), (1, 0), (2, 10), (3, 10), (4, 20)]
    );
    // With a limit in bytes, the packet that exceeds it leaves, too.
    let by_bytes = Netem {
        slot: Some(NetemSlot {
            packets: 0,
            bytes: 1_500,
            ..slot
        }),
        ..netem
    };
    assert_eq!(
        ids(by_bytes, Nanos(0)),
        [(0, 0), (1, 0), (2, 10), (3, 10), (4, 20)]
    );
    // A slot that began before a packet was due is over. The next one comes 10 ms after the packet is found due.
    let late = Netem {
        delay: ms(3),
        ..netem
    };
    assert_eq!(
        ids(late, Nanos(0)),
        [(0, 10), (1, 10), (2, 20), (3, 20), (4, 30)]
    );
}

#[test]
fn a_seed_of_netem_changes_the_draws() {
    let netem = |seed| Netem {
        seed,
        loss: NetemLoss::Random(share("50%")),
        ..Netem::PLAIN
    };
    let plain = lost(netem(None), 200);
    let [zero, one] = [0, 1].map(|seed| lost(netem(Some(seed)), 200));
    assert_eq!(lost(netem(Some(1)), 200), one);
    assert!(plain != zero && zero != one && plain != one);
}

#[test]
fn held_packets_keep_their_times_when_netem_is_removed() {
    let netem = Netem {
        delay: ms(10),
        ..Netem::PLAIN
    };
    let mut link = Link::new(&up(netem)).unwrap();
    link.offer(Nanos(0), Side::A, packet(0, Bytes(100)));
    link.change(ms(1), &LinkConfig::new(5, vec![], vec![]).paths)
        .unwrap();
    link.offer(ms(2), Side::A, packet(1, Bytes(100)));
    let dues: Vec<_> = drain(&mut link, Nanos::MAX)
        .iter()
        .map(|outcome| match outcome {
            Outcome::Deliver { id, due, .. } => (id.0, due.0 / 1_000_000),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(dues, [(1, 2), (0, 10)]);
}

fn any_share() -> impl Strategy<Value = NetemShare> {
    let part = || (0_u32..=100).prop_map(|n| Probability::from_percent(f64::from(n)).unwrap());
    (part(), option::of(part())).prop_map(|(share, correlation)| NetemShare { share, correlation })
}

fn any_slot() -> impl Strategy<Value = NetemSlot> {
    let delay = prop_oneof![
        (0_u64..5_000, 0_u64..5_000).prop_map(|(least, more)| {
            NetemSlotDelay::Uniform(Nanos(least), Nanos(least + more))
        }),
        (0_u64..5_000, 1_u64..5_000).prop_map(|(mean, jitter)| {
            NetemSlotDelay::Table(NetemDistribution::Pareto, Nanos(mean), Nanos(jitter))
        }),
    ];
    (delay, 0_u32..4, 0_u32..4_000).prop_map(|(delay, packets, bytes)| NetemSlot {
        delay,
        packets,
        bytes,
    })
}

fn any_netem() -> impl Strategy<Value = Netem> {
    let rate = (
        100_000_u64..1_000_000_000,
        -30_i32..30,
        0_u32..200,
        -5_i32..5,
    );
    let rate =
        rate.prop_map(
            |(bytes_per_s, packet_overhead, cell_size, cell_overhead)| NetemRate {
                bytes_per_s,
                packet_overhead,
                cell_size,
                cell_overhead,
            },
        );
    let shares = [any_share(), any_share(), any_share(), any_share()].map(option::of);
    let times = (0_u64..20_000, 0_u64..20_000);
    (
        1_u32..20,
        times,
        shares,
        option::of(rate),
        option::of(any_slot()),
        0_u32..4,
    )
        .prop_map(
            |(limit, (delay, jitter), [loss, corrupt, duplicate, reorder], rate, slot, gap)| {
                Netem {
                    limit,
                    delay: Nanos(delay),
                    jitter: Nanos(jitter),
                    delay_correlation: loss.and_then(|of| of.correlation),
                    loss: loss.map_or(NetemLoss::Nothing, NetemLoss::Random),
                    ecn: gap == 2,
                    corrupt,
                    duplicate,
                    reorder,
                    gap,
                    rate,
                    slot,
                    ..Netem::PLAIN
                }
            },
        )
}

fn any_traffic() -> impl Strategy<Value = Vec<Arrival>> {
    prop::collection::vec((0_u64..5_000, 40_u64..2_000), 1..80).prop_map(|steps| {
        let mut at = 0;
        let arrival = |(gap, len)| {
            at += gap;
            Arrival {
                at: Nanos(at),
                side: Side::A,
                len: Bytes(len),
            }
        };
        steps.into_iter().map(arrival).collect()
    })
}

fn any_wakes() -> impl Strategy<Value = Vec<Wake>> {
    let wake = prop_oneof![
        Just(Wake::Never),
        Just(Wake::AtDeadlines),
        any::<u8>().prop_map(Wake::Once)
    ];
    prop::collection::vec(wake, 0..80)
}

proptest! {
    #[test]
    fn every_packet_and_copy_has_one_outcome_not_before_its_arrival(
        netem in any_netem(), traffic in any_traffic(), wakes in any_wakes(),
    ) {
        let config = up(netem);
        let all = drive(&config, &traffic, &wakes);
        prop_assert_eq!(&all, &drive(&config, &traffic, &[]));
        let copies = all.iter().filter(|outcome| matches!(outcome, Outcome::Copied { .. })).count();
        prop_assert_eq!(all.len(), traffic.len() + 2 * copies);
        prop_assert!(copies <= traffic.len());
        for outcome in &all {
            if let Outcome::Deliver { id, due, .. } = outcome {
                prop_assert!(*due >= traffic[usize::try_from(id.0).unwrap()].at);
            }
        }
    }
}

#[test]
fn statistics_count_only_varying_delays() {
    let after = |netem: Netem| {
        let mut link = Link::new(&up(netem)).unwrap();
        for number in 0..20_000 {
            link.offer(ms(number as u64), Side::A, packet(number, Bytes(1_000)));
            while link.poll(ms(number as u64)).is_some() {}
        }
        let mut stages = link.stages();
        stages.next().unwrap().delays
    };
    let uniform = Netem {
        limit: 100_000,
        delay: ms(5),
        jitter: ms(10),
        ..Netem::PLAIN
    };
    let came_to = after(uniform).unwrap();
    assert_eq!(came_to.packets, 20_000);
    // A quarter of the delays would be below 0 and is 0: up to 15 ms, the mean is 3/4 of 7.5 ms. The tolerance is 3.89
    // standard errors.
    assert!(
        (came_to.mean.0 as f64 / 1e6 - 5.625).abs() < 0.14,
        "{came_to:?}"
    );
    assert!(
        (came_to.clamped as f64 / 20_000.0 - 0.25).abs() < 0.012,
        "{came_to:?}"
    );
    let constant = Netem {
        jitter: Nanos::ZERO,
        ..uniform
    };
    assert_eq!(after(constant), None);
}
