//! The random part of a delay: the offset that follows from a draw.

use alloc::boxed::Box;

use once_cell::race::OnceBox;

use crate::draw::Draws;
use crate::impair::correlated_score::CorrelatedScore;
use crate::impair::score::{Scores, share_below};
use crate::in_flight::Stream;
use crate::spec::{Jitter, Law, Table};
use crate::time::Nanos;

/// The largest value of netem's laws, in spreads: the limit of its 16-bit tables.
const NETEM_MOST: f64 = i16::MAX as f64 / Table::SCALE as f64;

/// The offsets of one delay from its mean.
#[derive(Debug, Default)]
pub(crate) struct Offsets {
    /// The law; `None` if every offset is 0.
    law: Option<SpreadLaw>,
    /// The score, which is kept when the law changes.
    correlated_score: CorrelatedScore,
    scores: Option<&'static Scores>,
}

/// A law with its spread, prepared for drawing.
#[derive(Debug)]
struct SpreadLaw {
    spread: Nanos,
    half_life: Option<Nanos>,
    shape: Shape,
}

/// The function by which an offset follows from a draw or from a score.
#[derive(Debug)]
enum Shape {
    /// Each value is equally likely; the curve gives the share of draws below a score.
    Uniform(&'static Curve),
    /// Each value of the table is equally likely; the curve gives the share of draws below a score.
    Table(Table, &'static Curve),
    /// The offset is the score.
    Normal,
    /// The offset is the value of the curve, up to [`NETEM_MOST`].
    Pareto(&'static Curve),
    /// The offset is three quarters of the same value and a quarter of the score, up to [`NETEM_MOST`].
    ParetoNormal(&'static Curve),
    /// The offset is the value of the curve.
    LogNormal(Curve),
}

impl Offsets {
    /// Draws from `jitter` about `mean` from now on; a `jitter` of `None` makes the delay constant.
    pub(crate) fn set(&mut self, jitter: Option<&Jitter>, mean: Nanos) {
        self.law = jitter.map(|jitter| SpreadLaw {
            spread: jitter.spread,
            half_life: jitter.half_life,
            shape: Shape::new(jitter, mean),
        });
        let needs_scores = |law: &SpreadLaw| law.half_life.is_some() || law.shape.is_of_score();
        if self.law.as_ref().is_some_and(needs_scores) {
            self.scores.get_or_insert_with(Scores::shared);
        }
    }

    /// Returns whether every offset is 0.
    #[inline]
    pub(crate) fn is_constant(&self) -> bool {
        self.law.is_none()
    }

    /// Returns the offset in nanoseconds for the packet that enters at `at` as number `index` of `stream`.
    #[inline]
    pub(crate) fn next(&mut self, at: Nanos, draws: Draws, stream: Stream, index: u64) -> i64 {
        let Some(law) = &self.law else {
            return 0;
        };
        let draw = draws.of(stream).at(index);
        let spread = law.spread.0 as f64;
        let offset = match (law.half_life, self.scores) {
            (Some(half_life), Some(scores)) => {
                let fresh = scores.of(draw);
                spread
                    * law
                        .shape
                        .of_score(self.correlated_score.next(at, half_life, fresh, stream))
            }
            (None, Some(scores)) if law.shape.is_of_score() => {
                spread * law.shape.of_score(scores.of(draw))
            }
            _ => return law.shape.of_draw(law.spread, draw),
        };
        #[expect(
            clippy::cast_possible_truncation,
            reason = "saturates: in check, a spread is at most an hour"
        )]
        let offset = libm::rint(offset) as i64;
        offset
    }
}

impl Shape {
    fn new(jitter: &Jitter, mean: Nanos) -> Self {
        match &jitter.law {
            Law::Uniform => Self::Uniform(Curve::shares()),
            Law::Table(table) => Self::Table(table.clone(), Curve::shares()),
            Law::Normal => Self::Normal,
            Law::Pareto => Self::Pareto(Curve::pareto()),
            Law::ParetoNormal => Self::ParetoNormal(Curve::pareto()),
            Law::LogNormal => {
                let [mean, spread] = [mean.0.max(1) as f64, jitter.spread.0.max(1) as f64];
                let variance = libm::log1p((spread / mean) * (spread / mean));
                let deviation = libm::sqrt(variance);
                let above = |score| libm::expm1(deviation * score - variance / 2.0) * mean / spread;
                Self::LogNormal(Curve::of(above))
            }
        }
    }

    /// Returns whether it needs a draw's score.
    #[inline]
    fn is_of_score(&self) -> bool {
        !matches!(self, Self::Uniform(_) | Self::Table(..))
    }

    /// Returns the offset of `draw` in nanoseconds, for laws that need no score; it is exact.
    #[inline]
    fn of_draw(&self, spread: Nanos, draw: u64) -> i64 {
        let spread = i128::from(spread.0);
        let offset = match self {
            Self::Table(table, _) => {
                let values = table.values();
                let place = (u128::from(draw) * values.len() as u128) >> 64;
                let value = usize::try_from(place).map_or(0, |place| values[place]);
                spread * i128::from(value) / i128::from(Table::SCALE)
            }
            _ => (((2 * spread + 1) * i128::from(draw)) >> 64) - spread,
        };
        i64::try_from(offset).unwrap_or(i64::MAX)
    }

    /// Returns the offset of a score, in spreads.
    #[inline]
    fn of_score(&self, score: f64) -> f64 {
        match self {
            Self::Normal => score,
            Self::Uniform(share) => 2.0 * share.at(score) - 1.0,
            Self::Table(table, share) => {
                let values = table.values();
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a share of few values"
                )]
                let place = (share.at(score) * values.len() as f64) as usize;
                f64::from(values[place.min(values.len() - 1)]) / f64::from(Table::SCALE)
            }
            Self::Pareto(pareto) => pareto.at(score).min(NETEM_MOST),
            Self::ParetoNormal(pareto) => {
                let both = 0.75 * pareto.at(score).min(NETEM_MOST) + 0.25 * score;
                both.min(NETEM_MOST)
            }
            Self::LogNormal(curve) => curve.at(score),
        }
    }
}

/// netem's Pareto law: a shape of 3, minus its mean of 3/2, times 4/3.
fn pareto(score: f64) -> f64 {
    4.0 / 3.0 * (1.0 / libm::cbrt(share_below(-score)) - 1.5)
}

/// A tabulated function of a score, linear between its entries.
#[derive(Debug)]
struct Curve(Box<[f64]>);

impl Curve {
    /// The table's range: all scores lie within this distance of 0, because the rarest draw has a score of 6.3.
    const END: i32 = 7;
    /// The number of entries for each unit of the score.
    const STEPS: i32 = 64;

    /// Returns the table of the shares below scores, which is made by the first call.
    fn shares() -> &'static Self {
        static SHARES: OnceBox<Curve> = OnceBox::new();
        SHARES.get_or_init(|| Box::new(Self::of(share_below)))
    }

    /// Returns the table of the Pareto law, which is made by the first call.
    fn pareto() -> &'static Self {
        static PARETO: OnceBox<Curve> = OnceBox::new();
        PARETO.get_or_init(|| Box::new(Self::of(pareto)))
    }

    fn of(function: impl Fn(f64) -> f64) -> Self {
        let entries = -Self::END * Self::STEPS..=Self::END * Self::STEPS;
        let entry = |step| function(f64::from(step) / f64::from(Self::STEPS));
        Self(entries.map(entry).collect())
    }

    #[inline]
    fn at(&self, score: f64) -> f64 {
        let end = f64::from(Self::END);
        let place = (score.clamp(-end, end) + end) * f64::from(Self::STEPS);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "0 to 896"
        )]
        let index = (place as usize).min(self.0.len() - 2);
        let (below, above) = (self.0[index], self.0[index + 1]);
        below + (above - below) * (place - index as f64)
    }
}

#[cfg(test)]
mod tests {
    use std::vec;

    use super::*;

    fn shape(law: Law) -> Shape {
        Shape::new(&Jitter::new(Nanos(1_000_000), law), Nanos(2_000_000))
    }

    /// The scores of the shares 0.1, 0.5, 0.9 and 0.999 (Wichura 1988, AS 241).
    const SCORES: [f64; 4] = [-1.281_551_566, 0.0, 1.281_551_566, 3.090_232_306];

    fn assert_quantiles(law: Law, quantiles: [f64; 4]) {
        let shape = shape(law.clone());
        for (score, quantile) in SCORES.into_iter().zip(quantiles) {
            let own = shape.of_score(score);
            assert!(
                (own - quantile).abs() < 1e-4,
                "{law:?}: {own} is not {quantile}"
            );
        }
    }

    #[test]
    fn each_law_has_its_quantiles() {
        assert_quantiles(Law::Uniform, [-0.8, 0.0, 0.8, 0.998]);
        assert_quantiles(Law::Normal, SCORES);
        // These are 4/3 ((1-u)^(-1/3) - 3/2); the last one would be 11.3.
        let pareto = [-0.619_008, -0.320_105, 0.872_579, NETEM_MOST];
        assert_quantiles(Law::Pareto, pareto);
        let both = [0, 1, 2, 3].map(|place| 0.75 * pareto[place] + 0.25 * SCORES[place]);
        assert_quantiles(Law::ParetoNormal, both);
        // Mean 2, deviation 1: with s^2 = ln(5/4), these are 2 exp(s z - s^2/2) - 2.
        assert_quantiles(
            Law::LogNormal,
            [-1.023_523_8, -0.211_145_6, 1.277_089_4, 5.700_933_8],
        );
        let table = Table::new(vec![8_192, -8_192, 0, 4_096]).unwrap();
        assert_quantiles(Law::Table(table), [-1.0, 0.5, 1.0, 1.0]);
    }

    #[test]
    fn a_draw_and_its_score_give_the_same_offset() {
        let scores = Scores::new();
        let table = Table::new(vec![-3, 10, 8_192]).unwrap();
        for law in [Law::Uniform, Law::Table(table)] {
            let shape = shape(law.clone());
            for draw in [1, 1 << 60, 1 << 62, 0x8123_0000_0000_0000, u64::MAX - 5] {
                let exact = shape.of_draw(Nanos(1_000_000), draw) as f64;
                let own = shape.of_score(scores.of(draw)) * 1e6;
                assert!((own - exact).abs() < 20.0, "{law:?}: {own} is not {exact}");
            }
        }
    }

    #[test]
    fn a_uniform_offset_reaches_both_ends_of_its_spread_and_no_further() {
        let shape = shape(Law::Uniform);
        assert_eq!(shape.of_draw(Nanos(10), 0), -10);
        assert_eq!(shape.of_draw(Nanos(10), u64::MAX), 10);
    }
}
