//! Packets that are copied or damaged.

use farwire_model::{Edit, Effect, Outcome, Probability};

use crate::harness::{Crossing, Law, steady, up};
use crate::statistics::{binomial, kolmogorov_smirnov, worst};

fn percent(percent: f64) -> Probability {
    Probability::from_percent(percent).unwrap()
}

fn count(crossing: &Crossing, which: impl Fn(&Outcome) -> bool) -> usize {
    crossing
        .outcomes
        .iter()
        .filter(|outcome| which(outcome))
        .count()
}

#[test]
fn one_packet_in_fifty_is_copied() {
    Law {
        packets: 1_000_000,
        traffic: steady,
        link: |factor| up(Effect::Duplicate(percent(2.0 * factor).into())),
        judge: |crossing| {
            let copies = count(crossing, |outcome| {
                matches!(outcome, Outcome::Copied { .. })
            });
            binomial(copies, usize::try_from(crossing.packets).unwrap(), 0.02)
        },
    }
    .holds();
}

#[test]
fn one_packet_in_fifty_is_corrupted_at_any_of_its_bits() {
    Law {
        packets: 1_000_000,
        traffic: steady,
        link: |factor| up(Effect::Corrupt(percent(2.0 * factor).into())),
        judge: |crossing| {
            let firsts = crossing
                .outcomes
                .iter()
                .filter_map(|outcome| match outcome {
                    Outcome::Deliver {
                        edit: Some(Edit::FlipBits { first, .. }),
                        ..
                    } => Some(f64::from(*first)),
                    _ => None,
                });
            let mut firsts: Vec<f64> = firsts.collect();
            let packets = usize::try_from(crossing.packets).unwrap();
            worst([
                binomial(firsts.len(), packets, 0.02),
                kolmogorov_smirnov(&mut firsts, |first| {
                    (first / 4_294_967_296.0).clamp(0.0, 1.0)
                }),
            ])
        },
    }
    .holds();
}
