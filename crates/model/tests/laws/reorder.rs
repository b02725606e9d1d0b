//! Reordering: packets that skip a delay, and packets that are held back.

use std::num::NonZeroU32;

use farwire_model::{Delay, Effect, HoldBack, LinkConfig, Nanos, Outcome, Probability, Reorder};

use crate::harness::{Crossing, Law, steady, up};
use crate::statistics::{binomial, geometric, normal, runs, worst};

fn percent(percent: f64) -> Probability {
    Probability::from_percent(percent).unwrap()
}

fn reorder(share: f64, gap: u32) -> LinkConfig {
    up(Effect::Delay(Delay {
        time: Nanos::from_micros(5_500),
        reorder: Some(Reorder {
            share: percent(share),
            gap: NonZeroU32::new(gap).unwrap(),
        }),
        ..Delay::default()
    }))
}

/// Tests that after a packet that skips the delay, gap - 1 packets wait for certain, and then a geometric number of
/// them.
fn undelayed(crossing: &Crossing, share: f64, gap: usize) -> f64 {
    let undelayed: Vec<bool> = crossing
        .delays()
        .iter()
        .map(|delay| *delay == 0.0)
        .collect();
    let count = undelayed.iter().filter(|undelayed| **undelayed).count() as f64;
    // The distance from one to the next is gap - 1 and a geometric number of packets, whose variance is (1 - p) / p^2.
    let (n, cycle) = (undelayed.len() as f64, gap as f64 - 1.0 + 1.0 / share);
    let deviation = (n * (1.0 - share) / (share * share) / cycle.powi(3)).sqrt();
    let sure = gap.saturating_sub(2);
    let waits: Option<Vec<usize>> = runs(&undelayed, false)
        .iter()
        .map(|run| run.checked_sub(sure).filter(|wait| *wait > 0))
        .collect();
    let Some(waits) = waits else {
        // This distance is too short.
        return 0.0;
    };
    let geometric = geometric(&waits, 1.0 - share);
    worst([normal(count, n / cycle, deviation), geometric])
}

#[test]
fn one_packet_in_twenty_skips_the_delay() {
    Law {
        packets: 1_000_000,
        traffic: steady,
        link: |factor| reorder(5.0 * factor, 1),
        judge: |crossing| undelayed(crossing, 0.05, 1),
    }
    .holds();
}

#[test]
fn candidates_from_the_third_packet_on_skip_the_delay_with_their_share() {
    Law {
        packets: 1_000_000,
        traffic: steady,
        link: |factor| reorder(40.0 * factor, 3),
        judge: |crossing| undelayed(crossing, 0.4, 3),
    }
    .holds();
}

#[test]
fn a_gap_of_ten_is_exact() {
    Law {
        packets: 1_000_000,
        traffic: steady,
        link: |factor| {
            reorder(
                90.0,
                if factor < 1.0 {
                    9
                } else if factor > 1.0 {
                    11
                } else {
                    10
                },
            )
        },
        judge: |crossing| undelayed(crossing, 0.9, 10),
    }
    .holds();
}

#[test]
fn one_packet_in_a_hundred_is_overtaken_by_three() {
    Law {
        packets: 1_000_000,
        traffic: steady,
        link: |factor| {
            up(Effect::HoldBack(HoldBack {
                share: percent(factor),
                extent: NonZeroU32::new(3).unwrap(),
                timeout: Nanos::from_secs(1),
            }))
        },
        judge: |crossing| {
            let ids = crossing.outcomes.iter().map(|outcome| outcome.id().0);
            let mut furthest = 0;
            let reordered = ids.filter(|id| {
                furthest = furthest.max(*id);
                *id < furthest
            });
            let packets = usize::try_from(crossing.packets).unwrap();
            assert!(
                crossing
                    .outcomes
                    .iter()
                    .all(|outcome| matches!(outcome, Outcome::Deliver { .. }))
            );
            binomial(reordered.count(), packets, 0.01)
        },
    }
    .holds();
}
