//! The random part of a delay.

use alloc::boxed::Box;
use alloc::vec;

use crate::spec::{Jitter, Law};
use crate::time::Nanos;

/// Steps of the normal law's table; between them it is straight.
const STEPS: usize = 4_096;

/// What stands for one standard deviation in that table.
const DEVIATION: i64 = 1 << 32;

/// A distribution about 0, ready to be drawn from.
#[derive(Debug, Default)]
pub(crate) struct Offsets {
    jitter: Option<Jitter>,
    /// The quantiles of the standard normal distribution, once they were asked for.
    normal: Option<Box<[i64]>>,
}

impl Offsets {
    pub(crate) fn set(&mut self, jitter: Option<Jitter>) {
        self.jitter = jitter;
        if jitter.is_some_and(|jitter| jitter.law == Law::Normal) {
            self.normal.get_or_insert_with(normal);
        }
    }

    /// `mean` and the offset that `draw` stands for; never below 0.
    #[inline]
    pub(crate) fn apply(&self, mean: Nanos, draw: impl FnOnce() -> u64) -> Nanos {
        let Some(Jitter { spread, law }) = self.jitter else {
            return mean;
        };
        let spread = i128::from(spread.0);
        let offset = match (law, &self.normal) {
            (Law::Normal, Some(table)) => {
                i128::from(interpolated(table, draw())) * spread / i128::from(DEVIATION)
            }
            _ => (((2 * spread + 1) * i128::from(draw())) >> 64) - spread,
        };
        Nanos(
            mean.0
                .saturating_add_signed(i64::try_from(offset).unwrap_or(i64::MAX)),
        )
    }
}

/// The value of `table`, whose first and last entries stand for draws of 0 and 2^64, at `draw`.
fn interpolated(table: &[i64], draw: u64) -> i64 {
    let place = u128::from(draw) * STEPS as u128;
    let [index, part] = [place >> 64, place & u128::from(u64::MAX)];
    let index = usize::try_from(index).unwrap_or(STEPS - 1);
    let (below, above) = (table[index], table[index + 1]);
    // The share of a step in 32 bits: a table's step is far below 2^31 deviations.
    let part = i64::try_from(part >> 32).unwrap_or(0);
    below + ((((above - below) >> 8) * (part >> 8)) >> 16)
}

/// The quantiles of the standard normal distribution; beyond half a step from either end they are cut, at 3.7 deviations.
fn normal() -> Box<[i64]> {
    let mut table = vec![0; STEPS + 1].into_boxed_slice();
    let mut quantile = -4.0;
    for step in 0..STEPS / 2 {
        let share = (step as f64).max(0.5) / STEPS as f64;
        quantile = probit(share, quantile);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a quantile is below 4 deviations"
        )]
        let offset = (quantile * DEVIATION as f64) as i64;
        table[step] = offset;
        table[STEPS - step] = -offset;
    }
    table
}

/// Where the standard normal distribution function is `share`, by Newton's method from `near`.
fn probit(share: f64, near: f64) -> f64 {
    use core::f64::consts::{PI, SQRT_2};
    (0..8).fold(near, |x, _| {
        let excess = libm::erfc(-x / SQRT_2) / 2.0 - share;
        let density = libm::exp(-x * x / 2.0) / libm::sqrt(2.0 * PI);
        x - excess / density
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_quantiles_of_a_normal_distribution() {
        let table = normal();
        // The quantiles of 1/4096, 2.5 %, 25 % and 50 % (R: qnorm).
        for (step, quantile) in [(1, -3.487_104), (1_024, -0.674_490), (2_048, 0.0)] {
            let own = table[step] as f64 / DEVIATION as f64;
            assert!((own - quantile).abs() < 1e-5, "{own} is not {quantile}");
            assert_eq!(table[STEPS - step], -table[step]);
        }
        assert!(table.is_sorted());
    }

    #[test]
    fn an_offset_lies_between_its_neighbours_in_the_table() {
        let table = normal();
        for draw in (0..u64::MAX - (1 << 50)).step_by(1 << 50) {
            let step = usize::try_from(draw >> 52).unwrap();
            let own = interpolated(&table, draw);
            assert!((table[step]..=table[step + 1]).contains(&own), "{draw}");
        }
    }
}
