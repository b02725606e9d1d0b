//! The random part of a delay.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::spec::{Jitter, Law};
use crate::time::Nanos;

/// Steps of the normal law's table; between them it is straight.
const STEPS: usize = 4_096;

/// A distribution about 0, ready to be drawn from.
#[derive(Debug)]
pub(crate) enum Offsets {
    /// Up to as many nanoseconds to either side, each alike.
    Uniform(u64),
    /// By the inverse of the distribution function, in nanoseconds.
    Table(Box<[i64]>),
}

impl Offsets {
    pub(crate) const NONE: Self = Self::Uniform(0);

    pub(crate) fn of(jitter: Jitter) -> Self {
        match jitter.law {
            Law::Uniform => Self::Uniform(jitter.spread.0),
            Law::Normal => Self::Table(normal(jitter.spread)),
        }
    }

    /// `mean` and the offset that `draw` stands for; never below 0.
    #[inline]
    pub(crate) fn apply(&self, mean: Nanos, draw: u64) -> Nanos {
        let offset = match self {
            Self::Uniform(spread) => {
                let width = 2 * i128::from(*spread) + 1;
                let drawn = (width * i128::from(draw)) >> 64;
                i64::try_from(drawn - i128::from(*spread)).unwrap_or(i64::MAX)
            }
            Self::Table(table) => interpolated(table, draw),
        };
        Nanos(mean.0.saturating_add_signed(offset))
    }
}

/// The value of `table`, whose first and last entries stand for draws of 0 and 2^64, at `draw`.
fn interpolated(table: &[i64], draw: u64) -> i64 {
    let place = u128::from(draw) * (table.len() as u128 - 1);
    let (index, part) = (place >> 64, place % (1 << 64));
    // Below the table's length, and below 2^64.
    let (index, part) = (
        usize::try_from(index).unwrap_or(0),
        i128::try_from(part).unwrap_or(0),
    );
    let (below, above) = (i128::from(table[index]), i128::from(table[index + 1]));
    i64::try_from(below + (((above - below) * part) >> 64)).unwrap_or(i64::MAX)
}

/// The quantiles of a normal distribution of that standard deviation.
fn normal(deviation: Nanos) -> Box<[i64]> {
    let steps = STEPS as f64;
    let quantile = |step: usize| {
        // Half a step from either end: beyond it the tails are cut, at 3.7 standard deviations.
        let p = (step as f64).clamp(0.5, steps - 0.5) / steps;
        let offset = probit(p) * deviation.0 as f64;
        #[expect(clippy::cast_possible_truncation, reason = "a float's cast saturates")]
        let nanos = libm::round(offset) as i64;
        nanos
    };
    (0..=STEPS).map(quantile).collect::<Vec<_>>().into()
}

/// The inverse of the standard normal distribution function, by bisection of the error function: made once a table.
fn probit(p: f64) -> f64 {
    let (mut low, mut high) = (-10.0, 10.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if libm::erfc(-middle / core::f64::consts::SQRT_2) / 2.0 < p {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
}
