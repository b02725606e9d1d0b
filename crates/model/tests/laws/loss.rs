//! Loss: shares, and how losses follow each other.

use farwire_model::{Effect, GilbertElliott, Probability};

use crate::harness::{Crossing, Law, steady, up};
use crate::statistics::{binomial, geometric, mean_of_batches, normal, runs, worst};

fn percent(percent: f64) -> Probability {
    Probability::from_percent(percent).unwrap()
}

/// Bernoulli loss: the share is binomial, and either run is geometric.
fn independent(crossing: &Crossing, share: f64) -> f64 {
    let lost = crossing.lost();
    let count = lost.iter().filter(|lost| **lost).count();
    worst([
        binomial(count, lost.len(), share),
        geometric(&runs(&lost, true), share),
        geometric(&runs(&lost, false), 1.0 - share),
    ])
}

#[test]
fn one_percent_of_packets_is_lost_each_by_itself() {
    Law {
        packets: 1_000_000,
        traffic: steady,
        link: |factor| up(Effect::Loss(percent(factor))),
        judge: |crossing| independent(crossing, 0.01),
    }
    .holds();
}

#[test]
fn thirty_percent_of_packets_are_lost_each_by_itself() {
    Law {
        packets: 1_000_000,
        traffic: steady,
        link: |factor| up(Effect::Loss(percent(30.0 * factor))),
        judge: |crossing| independent(crossing, 0.3),
    }
    .holds();
}

/// Loss that a chain of two states decides, all in one and nothing in the other: the share, whose variance has the chain's
/// memory (it falls by 1 - p - r a packet), and the runs of both states, which are geometric.
fn in_bursts(crossing: &Crossing, share: f64, burst: f64) -> f64 {
    let (r, n) = (1.0 / burst, crossing.packets as f64);
    let p = r * share / (1.0 - share);
    let memory = 1.0 - p - r;
    let deviation = (share * (1.0 - share) * (1.0 + memory) / (1.0 - memory) / n).sqrt();
    let lost = crossing.lost();
    let count = lost.iter().filter(|lost| **lost).count() as f64;
    worst([
        normal(count / n, share, deviation),
        geometric(&runs(&lost, true), 1.0 - r),
        geometric(&runs(&lost, false), 1.0 - p),
    ])
}

fn bursts(share: f64, burst: f64) -> Effect {
    Effect::GilbertElliott(GilbertElliott::of_bursts(percent(share), burst).unwrap())
}

#[test]
fn one_percent_comes_in_bursts_of_eight() {
    Law {
        packets: 10_000_000,
        traffic: steady,
        link: |factor| up(bursts(factor, 8.0)),
        judge: |crossing| in_bursts(crossing, 0.01, 8.0),
    }
    .holds();
}

#[test]
fn a_burst_of_eight_is_eight_long() {
    Law {
        packets: 10_000_000,
        traffic: steady,
        link: |factor| up(bursts(1.0, 8.0 * factor)),
        judge: |crossing| in_bursts(crossing, 0.01, 8.0),
    }
    .holds();
}

/// tc's gemodel with loss in both states, which a run length no longer tells: the share, and how often two losses follow
/// each other.
#[test]
fn both_states_of_a_chain_lose_what_they_should() {
    Law {
        packets: 10_000_000,
        traffic: steady,
        link: |factor| {
            up(Effect::GilbertElliott(GilbertElliott {
                to_bad: percent(2.0),
                to_good: percent(20.0),
                bad_loss: percent(60.0 * factor),
                good_loss: percent(1.0),
            }))
        },
        judge: |crossing| {
            let lost = crossing.lost();
            let (p, r, bad, good): (f64, f64, f64, f64) = (0.02, 0.2, 0.6, 0.01);
            let in_bad = p / (p + r);
            let share = in_bad * bad + (1.0 - in_bad) * good;
            // The states' covariance falls by 1 - p - r a packet.
            let pair =
                share * share + in_bad * (1.0 - in_bad) * (bad - good).powi(2) * (1.0 - p - r);
            let losses: Vec<f64> = lost.iter().map(|lost| f64::from(u8::from(*lost))).collect();
            let pairs: Vec<f64> = losses.windows(2).map(|pair| pair[0] * pair[1]).collect();
            worst([
                mean_of_batches(&losses, share),
                mean_of_batches(&pairs, pair),
            ])
        },
    }
    .holds();
}
