//! Delays: how they are distributed.

use farwire_model::{Delay, Effect, Jitter, Law as Shape, LinkConfig, Nanos, Ordering};
use statrs::distribution::{ContinuousCDF as _, Normal, Uniform};

use crate::harness::{Law, steady, up};
use crate::statistics::kolmogorov_smirnov;

/// 20 ms with jitter, in which packets may overtake each other.
fn free(law: Shape, spread_ms: f64) -> LinkConfig {
    up(Effect::Delay(Delay {
        time: Nanos::from_millis(20),
        jitter: Some(Jitter {
            spread: format!("{spread_ms}ms").parse().unwrap(),
            law,
        }),
        ordering: Ordering::Free,
        ..Delay::default()
    }))
}

#[test]
fn free_jitter_is_uniform_within_its_spread() {
    Law {
        packets: 1_000_000,
        traffic: steady,
        link: |factor| free(Shape::Uniform, 5.0 * factor),
        judge: |crossing| {
            let law = Uniform::new(15.0, 25.0).unwrap();
            kolmogorov_smirnov(&mut crossing.delays(), |delay| law.cdf(delay))
        },
    }
    .holds();
}

#[test]
fn free_jitter_is_normal_with_its_standard_deviation() {
    Law {
        packets: 1_000_000,
        traffic: steady,
        link: |factor| free(Shape::Normal, 3.0 * factor),
        judge: |crossing| {
            let law = Normal::new(20.0, 3.0).unwrap();
            kolmogorov_smirnov(&mut crossing.delays(), |delay| law.cdf(delay))
        },
    }
    .holds();
}
