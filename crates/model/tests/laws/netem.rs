//! netem: the distributions of its options, derived independently from `net/sched/sch_netem.c`.

use farwire_model::{
    Effect, FourState, GilbertElliott, LinkConfig, Nanos, Netem, NetemDistribution, NetemLoss,
    NetemRate, NetemShare, Outcome, Probability,
};
use statrs::distribution::{ContinuousCDF as _, Normal, Uniform};

use crate::harness::{Crossing, Law, steady, up};
use crate::statistics::{binomial, geometric, kolmogorov_smirnov, mean_of_batches, worst};

fn percent(percent: f64) -> Probability {
    Probability::from_percent(percent).unwrap()
}

fn netem(options: Netem) -> LinkConfig {
    up(Effect::Netem(Box::new(options)))
}

fn share(share: f64, correlation: Option<f64>) -> NetemShare {
    NetemShare {
        share: percent(share),
        correlation: correlation.map(percent),
    }
}

fn lossy(loss: NetemLoss) -> LinkConfig {
    netem(Netem {
        loss,
        ..Netem::PLAIN
    })
}

/// Returns the probability that x = (1 - c) u + c x' is below `share`, by iterating the density from a uniform one.
fn correlated(share: f64, c: f64) -> f64 {
    const CELLS: usize = 4_000;
    let width = 1.0 / CELLS as f64;
    let mut below: Vec<f64> = (0..=CELLS).map(|cell| cell as f64 * width).collect();
    let at = |below: &[f64], x: f64| {
        let place = x.clamp(0.0, 1.0) * CELLS as f64;
        #[expect(clippy::cast_possible_truncation, reason = "0 to CELLS")]
        let cell = (place as usize).min(CELLS - 1);
        below[cell] + (below[cell + 1] - below[cell]) * (place - cell as f64)
    };
    for _ in 0..60 {
        let density = |cell: usize| {
            let x = (cell as f64 + 0.5) * width;
            (at(&below, x / c) - at(&below, (x - 1.0 + c) / c)) / (1.0 - c)
        };
        let mut sum = 0.0;
        let mut next = vec![0.0];
        for cell in 0..CELLS {
            sum += density(cell) * width;
            next.push(sum);
        }
        below = next;
    }
    at(&below, share)
}

/// Tests the share that is lost, and the share of neighbouring pairs that are both lost.
fn lost_and_pairs(crossing: &Crossing, share: f64, pair: f64) -> f64 {
    let lost = crossing.lost();
    let losses: Vec<f64> = lost.iter().map(|lost| f64::from(u8::from(*lost))).collect();
    let pairs: Vec<f64> = losses.windows(2).map(|pair| pair[0] * pair[1]).collect();
    worst([
        mean_of_batches(&losses, share),
        mean_of_batches(&pairs, pair),
    ])
}

#[test]
fn a_correlated_loss_of_ten_percent_follows_its_recursion() {
    // In a kernel, 1.777 % of 10^5 packets were lost.
    assert!((correlated(0.1, 0.25) - 0.017_5).abs() < 2e-4);
    Law {
        packets: 1_000_000,
        traffic: steady,
        link: |factor| lossy(NetemLoss::Random(share(10.0 * factor, Some(25.0)))),
        judge: |crossing| {
            let lost = crossing.lost();
            let losses: Vec<f64> = lost.iter().map(|lost| f64::from(u8::from(*lost))).collect();
            mean_of_batches(&losses, correlated(0.1, 0.25))
        },
    }
    .holds();
}

#[test]
fn gemodel_loses_its_share_in_both_states() {
    Law {
        packets: 1_000_000,
        traffic: steady,
        link: |factor| {
            lossy(NetemLoss::Gemodel(GilbertElliott {
                to_bad: percent(2.0),
                to_good: percent(20.0),
                bad_loss: percent(60.0 * factor),
                good_loss: percent(1.0),
                ecn: false,
            }))
        },
        judge: |crossing| {
            let (p, r, bad, good) = (0.02, 0.2, 0.6, 0.01);
            let in_bad = p / (p + r);
            let after_bad = r * good + (1.0 - r) * bad;
            let after_good = p * bad + (1.0 - p) * good;
            lost_and_pairs(
                crossing,
                in_bad * bad + (1.0 - in_bad) * good,
                in_bad * bad * after_bad + (1.0 - in_bad) * good * after_good,
            )
        },
    }
    .holds();
}

#[test]
fn four_states_lose_packets_in_two_of_them() {
    Law {
        packets: 1_000_000,
        traffic: steady,
        link: |factor| {
            lossy(NetemLoss::State(FourState {
                p13: percent(2.0 * factor),
                p31: percent(20.0),
                p32: percent(10.0),
                p23: percent(40.0),
                p14: percent(0.5),
                ecn: false,
            }))
        },
        judge: |crossing| {
            // For each packet in state 1, there are 2/20 in 3, a quarter of these in 2, and 0.5 % in 4.
            let all = 1.0 + 0.1 + 0.025 + 0.005;
            lost_and_pairs(crossing, 0.105 / all, 0.1 * 0.7 / all)
        },
    }
    .holds();
}

/// Creates a delay of 10 ms that some packets skip.
fn reordering(reorder: NetemShare, gap: u32) -> LinkConfig {
    netem(Netem {
        delay: Nanos::from_millis(10),
        reorder: Some(reorder),
        gap,
        ..Netem::PLAIN
    })
}

/// Returns which packets passed without delay.
fn undelayed(crossing: &Crossing) -> Vec<bool> {
    crossing
        .delays()
        .iter()
        .map(|delay| *delay == 0.0)
        .collect()
}

#[test]
fn a_quarter_of_the_candidates_skips_the_delay() {
    Law {
        packets: 1_000_000,
        traffic: steady,
        link: |factor| reordering(share(25.0 * factor, None), 5),
        judge: |crossing| {
            let undelayed = undelayed(crossing);
            let places: Vec<usize> = (0..undelayed.len())
                .filter(|place| undelayed[*place])
                .collect();
            // Four packets are delayed, then each passes with probability 1/4.
            let tries: Vec<usize> = places
                .windows(2)
                .map(|pair| pair[1] - pair[0] - 4)
                .collect();
            geometric(&tries, 0.75)
        },
    }
    .holds();
}

#[test]
fn a_correlated_share_skips_the_delay_by_its_recursion() {
    // In a kernel, it was 5.54 % of 10^5 packets.
    let expected = || 1.0 / (4.0 + 1.0 / correlated(0.25, 0.5));
    assert!((expected() - 0.0544).abs() < 2e-4, "{}", expected());
    Law {
        packets: 1_000_000,
        traffic: steady,
        link: |factor| reordering(share(25.0 * factor, Some(50.0)), 5),
        judge: |crossing| {
            let undelayed: Vec<f64> = undelayed(crossing)
                .into_iter()
                .map(|is| f64::from(u8::from(is)))
                .collect();
            mean_of_batches(&undelayed, 1.0 / (4.0 + 1.0 / correlated(0.25, 0.5)))
        },
    }
    .holds();
}

#[test]
fn a_tenth_is_copied_and_copies_are_not() {
    Law {
        packets: 1_000_000,
        traffic: steady,
        link: |factor| {
            netem(Netem {
                duplicate: Some(share(10.0 * factor, None)),
                ..Netem::PLAIN
            })
        },
        judge: |crossing| {
            let is_copied = |outcome: &&Outcome| matches!(outcome, Outcome::Copied { .. });
            let copies = crossing.outcomes.iter().filter(is_copied).count();
            binomial(copies, usize::try_from(crossing.packets).unwrap(), 0.1)
        },
    }
    .holds();
}

#[test]
fn a_rate_with_cells_is_exact_to_the_nanosecond() {
    Law {
        packets: 100_000,
        traffic: steady,
        link: |factor| {
            netem(Netem {
                limit: u32::MAX,
                rate: Some(NetemRate {
                    bytes_per_s: format!("{:.0}", 1e6 * factor).parse().unwrap(),
                    packet_overhead: 20,
                    cell_size: 48,
                    cell_overhead: 5,
                }),
                ..Netem::PLAIN
            })
        },
        // 1020 bytes are 22 cells of 53 bytes: 1.166 ms each, while one packet comes each millisecond.
        judge: |crossing| {
            let delays = crossing.delays();
            let mut due = (0..).map(|number| 1.166 + f64::from(number) * 0.166);
            let is_due = |delay: &f64| due.next().is_some_and(|due| (delay - due).abs() < 1e-6);
            f64::from(u8::from(delays.iter().all(is_due)))
        },
    }
    .holds();
}

/// Creates a delay of 20 ms with jitter.
fn jittery(jitter_ms: f64, distribution: Option<NetemDistribution>) -> LinkConfig {
    netem(Netem {
        delay: Nanos::from_millis(20),
        jitter: format!("{jitter_ms}ms").parse().unwrap(),
        distribution,
        ..Netem::PLAIN
    })
}

#[test]
fn a_delay_without_a_distribution_is_uniform() {
    Law {
        packets: 1_000_000,
        traffic: steady,
        link: |factor| jittery(5.0 * factor, None),
        judge: |crossing| {
            let law = Uniform::new(15.0, 25.0).unwrap();
            kolmogorov_smirnov(&mut crossing.delays(), |delay| law.cdf(delay))
        },
    }
    .holds();
}

#[test]
fn a_delay_of_the_normal_table_is_normal() {
    Law {
        packets: 1_000_000,
        traffic: steady,
        link: |factor| jittery(3.0 * factor, Some(NetemDistribution::Normal)),
        judge: |crossing| {
            let law = Normal::new(20.0, 3.0).unwrap();
            kolmogorov_smirnov(&mut crossing.delays(), |delay| law.cdf(delay))
        },
    }
    .holds();
}

#[test]
fn a_delay_of_the_pareto_table_has_a_pareto_law_up_to_four_jitters() {
    Law {
        packets: 1_000_000,
        traffic: steady,
        link: |factor| jittery(3.0 * factor, Some(NetemDistribution::Pareto)),
        judge: |crossing| {
            // The law is 4/3 (v - 3/2) with P(v > x) = x^-3.
            let below = |delay: f64| {
                let v = (delay - 20.0) / 3.0 * 0.75 + 1.5;
                // The last entries are 32767, which is 11.999634 ms.
                if delay >= 31.999_634 {
                    1.0
                } else {
                    1.0 - v.max(1.0).powi(-3)
                }
            };
            kolmogorov_smirnov(&mut crossing.delays(), below)
        },
    }
    .holds();
}
