//! Delays: their distribution, and the correlation of neighbouring delays.

use farwire_model::{
    Bytes, Delay, Effect, Jitter, Law as Shape, LinkConfig, Nanos, Ordering, Packet, PacketId,
    Slots, Table,
};
use statrs::distribution::{ContinuousCDF as _, LogNormal, Normal, Uniform};

use crate::harness::{Crossing, Law, steady, up};
use crate::statistics::{kolmogorov_smirnov, mean_of_batches, worst};

/// Creates a delay with jitter in which packets may overtake each other.
fn free(delay_ms: f64, jitter: Jitter) -> LinkConfig {
    up(Effect::Delay(Delay {
        time: ms(delay_ms),
        jitter: Some(jitter),
        ordering: Ordering::Free,
        ..Delay::default()
    }))
}

fn ms(milliseconds: f64) -> Nanos {
    format!("{milliseconds}ms").parse().unwrap()
}

/// Creates a jitter whose spread is wrong by the factor.
fn spread(law: Shape, spread_ms: f64, factor: f64) -> Jitter {
    Jitter::new(ms(spread_ms * factor), law)
}

/// A law with independent draws for all packets.
const INDEPENDENT: Law = Law {
    packets: 1_000_000,
    traffic: steady,
    link: |_| panic!("each law has its own"),
    judge: |_| panic!("each law has its own"),
};

#[test]
fn free_jitter_is_uniform_within_its_spread() {
    Law {
        link: |factor| free(20.0, spread(Shape::Uniform, 5.0, factor)),
        judge: |crossing| {
            let law = Uniform::new(15.0, 25.0).unwrap();
            kolmogorov_smirnov(&mut crossing.delays(), |delay| law.cdf(delay))
        },
        ..INDEPENDENT
    }
    .holds();
}

#[test]
fn free_jitter_is_normal_with_its_standard_deviation() {
    Law {
        link: |factor| free(20.0, spread(Shape::Normal, 3.0, factor)),
        judge: |crossing| {
            let law = Normal::new(20.0, 3.0).unwrap();
            kolmogorov_smirnov(&mut crossing.delays(), |delay| law.cdf(delay))
        },
        ..INDEPENDENT
    }
    .holds();
}

/// The distribution function of a normal delay of 2 ms whose part below 0 is at 0.
fn clamped_normal(delay: f64) -> f64 {
    if delay < 0.0 {
        0.0
    } else {
        Normal::new(2.0, 2.0).unwrap().cdf(delay)
    }
}

#[test]
fn delays_below_zero_are_set_to_zero() {
    Law {
        link: |factor| free(2.0, spread(Shape::Normal, 2.0, factor)),
        judge: |crossing| kolmogorov_smirnov(&mut crossing.delays(), clamped_normal),
        ..INDEPENDENT
    }
    .holds();
}

/// The distribution function of netem's Pareto law of 2.048 ms about 20 ms, with its end at 32767/8192 of that: P(4/3
/// (V^(-1/3) - 3/2) <= x).
fn pareto(delay: f64) -> f64 {
    let end = 28.191_75;
    let base = 1.5 + 0.75 * (delay - 20.0) / 2.048;
    match base {
        _ if delay >= end => 1.0,
        base if base <= 1.0 => 0.0,
        base => 1.0 - base.powi(-3),
    }
}

#[test]
fn pareto_jitter_has_netems_law() {
    Law {
        link: |factor| free(20.0, spread(Shape::Pareto, 2.048, factor)),
        judge: |crossing| kolmogorov_smirnov(&mut crossing.delays(), pareto),
        ..INDEPENDENT
    }
    .holds();
}

/// The distribution function of netem's Pareto-normal law of 2 ms about 20 ms: the share at which its quantile is
/// `delay`, by bisection.
fn pareto_normal(delay: f64) -> f64 {
    let normal = Normal::standard();
    let most = 32_767.0 / 8_192.0;
    let quantile = |share: f64| {
        let pareto = (4.0 / 3.0 * ((1.0 - share).powf(-1.0 / 3.0) - 1.5)).min(most);
        20.0 + 2.0 * (0.25 * normal.inverse_cdf(share) + 0.75 * pareto)
    };
    let (mut below, mut above) = (0.0, 1.0);
    for _ in 0..40 {
        let middle = (below + above) / 2.0;
        if quantile(middle) <= delay {
            below = middle;
        } else {
            above = middle;
        }
    }
    below
}

/// [`pareto_normal`] interpolated between 10,001 points, because it is slow.
fn pareto_normal_table() -> impl Fn(f64) -> f64 {
    let at = |place: usize| 10.0 + place as f64 * 0.002;
    let table: Vec<f64> = (0..=10_000).map(|place| pareto_normal(at(place))).collect();
    move |delay| {
        let place = ((delay - 10.0) / 0.002).clamp(0.0, 9_999.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let index = place as usize;
        table[index] + (table[index + 1] - table[index]) * (place - index as f64)
    }
}

#[test]
fn pareto_normal_jitter_has_netems_law() {
    Law {
        link: |factor| free(20.0, spread(Shape::ParetoNormal, 2.0, factor)),
        judge: |crossing| kolmogorov_smirnov(&mut crossing.delays(), pareto_normal_table()),
        ..INDEPENDENT
    }
    .holds();
}

#[test]
fn a_log_normal_delay_has_its_mean_and_its_standard_deviation() {
    Law {
        link: |factor| free(20.0, spread(Shape::LogNormal, 15.0, factor)),
        judge: |crossing| {
            let variance = (1.0_f64 + (15.0_f64 / 20.0).powi(2)).ln();
            let law = LogNormal::new(20.0_f64.ln() - variance / 2.0, variance.sqrt()).unwrap();
            kolmogorov_smirnov(&mut crossing.delays(), |delay| law.cdf(delay))
        },
        ..INDEPENDENT
    }
    .holds();
}

/// A table with half of its values at 0 spreads, a quarter at -1 and a quarter at 2.
fn three_values() -> Shape {
    Shape::Table(Table::new(vec![-8_192, 0, 16_384, 0]).unwrap())
}

#[test]
fn the_values_of_a_table_are_equally_likely() {
    Law {
        link: |factor| free(20.0, spread(three_values(), 2.0, factor)),
        judge: |crossing| {
            kolmogorov_smirnov(&mut crossing.delays(), |delay| match delay {
                delay if delay < 18.0 => 0.0,
                delay if delay < 20.0 => 0.25,
                delay if delay < 24.0 => 0.75,
                _ => 1.0,
            })
        },
        ..INDEPENDENT
    }
    .holds();
}

/// Creates a jitter with a half-life of a millisecond, the time between two packets of [`steady`].
fn correlated(law: Shape, spread_ms: f64, factor: f64) -> Jitter {
    Jitter {
        half_life: Some(ms(1.0)),
        ..spread(law, spread_ms, factor)
    }
}

/// Returns every tenth delay: at a distance of ten half-lives, their correlation is a thousandth.
fn apart(crossing: &Crossing) -> Vec<f64> {
    crossing.delays().into_iter().step_by(10).collect()
}

#[test]
fn correlated_jitter_keeps_a_normal_law() {
    Law {
        link: |factor| free(2.0, correlated(Shape::Normal, 2.0, factor)),
        judge: |crossing| kolmogorov_smirnov(&mut apart(crossing), clamped_normal),
        ..INDEPENDENT
    }
    .holds();
}

#[test]
fn correlated_jitter_keeps_a_pareto_law() {
    Law {
        link: |factor| free(20.0, correlated(Shape::Pareto, 2.048, factor)),
        judge: |crossing| kolmogorov_smirnov(&mut apart(crossing), pareto),
        ..INDEPENDENT
    }
    .holds();
}

#[test]
fn correlated_jitter_keeps_a_uniform_law() {
    Law {
        link: |factor| free(20.0, correlated(Shape::Uniform, 5.0, factor)),
        judge: |crossing| {
            let law = Uniform::new(15.0, 25.0).unwrap();
            kolmogorov_smirnov(&mut apart(crossing), |delay| law.cdf(delay))
        },
        ..INDEPENDENT
    }
    .holds();
}

/// 100,000 packets per second: a hundred in a half-life of 1 ms.
fn fast(number: u64) -> (Nanos, Packet) {
    let packet = Packet::new(PacketId(number), Bytes(1_000));
    (Nanos(number * 10_000), packet)
}

/// Tests the mean, the variance and the correlation at one and two half-lives of scores about 20 ms with a standard
/// deviation of 3 ms.
fn scores(crossing: &Crossing) -> f64 {
    let delays = crossing.delays();
    let scores: Vec<f64> = delays.iter().map(|delay| (delay - 20.0) / 3.0).collect();
    let likeness = |lag: usize| -> Vec<f64> {
        let pairs = scores.iter().zip(&scores[lag..]);
        pairs.map(|(one, other)| one * other).collect()
    };
    worst([
        mean_of_batches(&scores, 0.0),
        mean_of_batches(&likeness(0), 1.0),
        mean_of_batches(&likeness(100), 0.5),
        mean_of_batches(&likeness(200), 0.25),
    ])
}

#[test]
fn a_half_life_is_exact_at_any_packet_rate() {
    Law {
        packets: 10_000_000,
        traffic: fast,
        link: |factor| {
            let half_life = Some(ms(factor));
            free(
                20.0,
                Jitter {
                    half_life,
                    ..spread(Shape::Normal, 3.0, 1.0)
                },
            )
        },
        judge: scores,
    }
    .holds();
}

#[test]
fn correlated_jitter_keeps_its_standard_deviation_at_any_packet_rate() {
    Law {
        packets: 10_000_000,
        traffic: fast,
        link: |factor| free(20.0, correlated(Shape::Normal, 3.0, factor)),
        judge: scores,
    }
    .holds();
}

#[test]
fn a_slot_opens_its_delay_after_the_first_packet() {
    Law {
        link: |factor| {
            up(Effect::Slots(Slots {
                delay: ms(0.5),
                jitter: Some(spread(Shape::Uniform, 0.4, factor)),
                ..Slots::default()
            }))
        },
        judge: |crossing| {
            let law = Uniform::new(0.1, 0.9).unwrap();
            kolmogorov_smirnov(&mut crossing.delays(), |delay| law.cdf(delay))
        },
        ..INDEPENDENT
    }
    .holds();
}
