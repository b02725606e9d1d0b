//! Loss: its share, and the correlation of losses.

use farwire_model::{
    BitErrorRate, Bytes, Effect, FourState, GilbertElliott, LinkConfig, Nanos, Packet, PacketId,
    Probability,
};

use crate::harness::{Crossing, Law, steady, up};
use crate::statistics::{binomial, geometric, mean_of_batches, normal, runs, worst};

fn percent(percent: f64) -> Probability {
    Probability::from_percent(percent).unwrap()
}

/// Tests Bernoulli loss: the share is binomial, and runs of both kinds are geometric.
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
fn one_percent_of_packets_is_lost_independently() {
    Law {
        packets: 1_000_000,
        traffic: steady,
        link: |factor| up(Effect::Loss(percent(factor).into())),
        judge: |crossing| independent(crossing, 0.01),
    }
    .holds();
}

#[test]
fn thirty_percent_of_packets_are_lost_independently() {
    Law {
        packets: 1_000_000,
        traffic: steady,
        link: |factor| up(Effect::Loss(percent(30.0 * factor).into())),
        judge: |crossing| independent(crossing, 0.3),
    }
    .holds();
}

/// Tests loss by a chain of two states that loses everything in one and nothing in the other: the share, whose variance
/// has the chain's memory (it falls by 1 - p - r with each packet), and the runs of both states, which are geometric.
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
fn bursts_of_eight_packets_have_that_mean() {
    Law {
        packets: 10_000_000,
        traffic: steady,
        link: |factor| up(bursts(1.0, 8.0 * factor)),
        judge: |crossing| in_bursts(crossing, 0.01, 8.0),
    }
    .holds();
}

/// tc's gemodel with loss in both states, which the length of runs does not show: the share, and how often two losses
/// follow each other.
#[test]
fn both_states_of_a_chain_lose_their_shares() {
    Law {
        packets: 10_000_000,
        traffic: steady,
        link: |factor| {
            up(Effect::GilbertElliott(GilbertElliott {
                to_bad: percent(2.0),
                to_good: percent(20.0),
                bad_loss: percent(60.0 * factor),
                good_loss: percent(1.0),
                ecn: false,
            }))
        },
        judge: |crossing| {
            let lost = crossing.lost();
            let (p, r, bad, good): (f64, f64, f64, f64) = (0.02, 0.2, 0.6, 0.01);
            let in_bad = p / (p + r);
            let share = in_bad * bad + (1.0 - in_bad) * good;
            // The covariance of the states falls by 1 - p - r with each packet.
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

/// The probabilities p13, p31, p32, p23 and p14 in per cent.
const CHAIN: [f64; 5] = [1.0, 30.0, 20.0, 50.0, 0.5];

fn chain([p13, p31, p32, p23, p14]: [f64; 5]) -> FourState {
    FourState {
        p13: percent(p13),
        p31: percent(p31),
        p32: percent(p32),
        p23: percent(p23),
        p14: percent(p14),
        ecn: false,
    }
}

/// Creates [`CHAIN`] with one of its probabilities multiplied by a factor.
fn off(place: usize, factor: f64) -> LinkConfig {
    let mut all = CHAIN;
    all[place] *= factor;
    up(Effect::FourState(chain(all)))
}

/// Returns the share of packets in each state, by stepping the chain until it is stationary.
fn stationary([p13, p31, p32, p23, p14]: [f64; 5]) -> [f64; 4] {
    let [p13, p31, p32, p23, p14] = [p13, p31, p32, p23, p14].map(|percent| percent / 100.0);
    (0..100_000).fold([1.0, 0.0, 0.0, 0.0], |[one, two, three, four], _| {
        [
            one * (1.0 - p13 - p14) + three * p31 + four,
            two * (1.0 - p23) + three * p32,
            one * p13 + two * p23 + three * (1.0 - p31 - p32),
            one * p14,
        ]
    })
}

/// Tests the four states by their transitions: losses, pairs of losses, single losses, two losses around a received
/// packet, and the continuation of runs that are longer than one, all of which are in state 3.
fn four_states(crossing: &Crossing) -> f64 {
    let lost = crossing.lost();
    let [p13, p31, p32, p23, p14] = CHAIN.map(|percent| percent / 100.0);
    let [one, two, three, four] = stationary(CHAIN);
    let share = |pattern: &[bool], expected: f64| {
        let found: Vec<f64> = lost
            .windows(pattern.len())
            .map(|w| f64::from(u8::from(w == pattern)))
            .collect();
        mean_of_batches(&found, expected)
    };
    let stay = 1.0 - p31 - p32;
    let begins = one * p13 + two * p23;
    let longer: Vec<usize> = runs(&lost, true)
        .into_iter()
        .filter_map(|run| run.checked_sub(1))
        .filter(|more| *more > 0)
        .collect();
    worst([
        share(&[true], three + four),
        share(&[true, true], three * stay),
        share(&[false, true, false], one * p14 + begins * (p31 + p32)),
        share(
            &[true, false, true],
            three * p32 * p23 + (three * p31 + four) * (p13 + p14),
        ),
        geometric(&longer, stay),
    ])
}

const FOUR_STATES: Law = Law {
    packets: 4_000_000,
    traffic: steady,
    link: |factor| off(0, factor),
    judge: four_states,
};

#[test]
fn bursts_of_four_states_begin_with_p13() {
    FOUR_STATES.holds();
}

#[test]
fn bursts_of_four_states_end_with_p31() {
    Law {
        link: |factor| off(1, factor),
        ..FOUR_STATES
    }
    .holds();
}

#[test]
fn bursts_of_four_states_pause_with_p32() {
    Law {
        link: |factor| off(2, factor),
        ..FOUR_STATES
    }
    .holds();
}

#[test]
fn bursts_of_four_states_continue_with_p23() {
    Law {
        link: |factor| off(3, factor),
        ..FOUR_STATES
    }
    .holds();
}

#[test]
fn single_losses_of_four_states_come_with_p14() {
    Law {
        link: |factor| off(4, factor),
        ..FOUR_STATES
    }
    .holds();
}

#[test]
fn a_chain_states_its_long_run_loss_and_mean_burst() {
    let near = |one: f64, other: f64| assert!((one - other).abs() < 1e-9, "{one} is not {other}");
    for all in [
        CHAIN,
        [1.0, 99.0, 0.0, 100.0, 0.0],
        [2.0, 10.0, 90.0, 3.0, 98.0],
        [5.0, 20.0, 0.0, 0.0, 1.0],
        [0.0, 20.0, 10.0, 10.0, 3.0],
        [4.0, 0.0, 20.0, 30.0, 0.0],
    ] {
        let [one, two, three, four] = stationary(all);
        near(chain(all).stationary_loss(), three + four);
        let [p13, _, _, p23, p14] = all.map(|percent| percent / 100.0);
        let begun = one * (p13 + p14) + two * p23;
        near(chain(all).mean_burst(), (three + four) / begun);
    }
    let ended = |all| (chain(all).stationary_loss(), chain(all).mean_burst());
    assert_eq!(ended([0.0, 50.0, 0.0, 100.0, 0.0]), (0.0, 0.0));
    assert_eq!(ended([1.0, 0.0, 10.0, 0.0, 0.0]), (0.0, 0.0));
    assert_eq!(ended([1.0, 0.0, 0.0, 100.0, 0.0]), (1.0, f64::INFINITY));
    let bursts = GilbertElliott::of_bursts(percent(1.0), 8.0).unwrap();
    near(bursts.mean_burst(), 8.0);
    let both = GilbertElliott {
        to_bad: percent(50.0),
        to_good: percent(50.0),
        bad_loss: percent(60.0),
        good_loss: percent(20.0),
        ecn: false,
    };
    // Each state forgets the previous one, so that losses are independent: 40 %.
    near(both.mean_burst(), 1.0 / 0.6);
}

/// Long and short packets alternate.
fn of_two_sizes(number: u64) -> (Nanos, Packet) {
    let len = if number.is_multiple_of(2) { 1_514 } else { 60 };
    let packet = Packet::new(PacketId(number), Bytes(len));
    (Nanos::from_micros(number), packet)
}

#[test]
fn bit_errors_lose_frames_by_their_number_of_bits() {
    Law {
        packets: 1_000_000,
        traffic: of_two_sizes,
        link: |factor| up(Effect::BitErrors(BitErrorRate::new(1e-5 * factor).unwrap())),
        judge: |crossing| {
            let lost = crossing.lost();
            let of = |first: usize, bytes: f64| {
                let own = lost.iter().skip(first).step_by(2);
                let hits = own.filter(|lost| **lost).count();
                binomial(
                    hits,
                    lost.len() / 2,
                    1.0 - (1.0 - 1e-5_f64).powf(8.0 * bytes),
                )
            };
            worst([of(0, 1_518.0), of(1, 64.0)])
        },
    }
    .holds();
}
