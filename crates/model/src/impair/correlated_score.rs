//! A score that wanders with time.

use core::f64::consts::LN_2;

use crate::in_flight::Stream;
use crate::time::Nanos;

/// A standard normal score that becomes less similar with time: after dt it is rho z + sqrt(1 - rho²) e, with rho =
/// 2^(-dt / half-life) and a fresh score e (Ornstein and Uhlenbeck 1930, at the times of packets). At any one time its
/// law is the standard normal one, however many packets came before.
///
/// Only originals advance it. A copy starts from the latest original, with a fresh score, and no packet starts from a
/// copy: at the same instant a copy has its original's score, and no original's score ever depends on copies.
#[derive(Debug, Default)]
pub(crate) struct CorrelatedScore {
    latest: Option<(Nanos, f64)>,
}

impl CorrelatedScore {
    /// Returns the score of the packet of `stream` that enters at `at`; `fresh` is an independent score for it.
    #[inline]
    pub(crate) fn next(&mut self, at: Nanos, half_life: Nanos, fresh: f64, stream: Stream) -> f64 {
        let score = match self.latest {
            None => fresh,
            Some((then, score)) => {
                let half_lives = (at - then).0 as f64 / half_life.0 as f64;
                // This is 1 - rho², which is far below 1 for packets that follow each other closely.
                let new = -libm::expm1(-2.0 * LN_2 * half_lives);
                libm::sqrt(1.0 - new) * score + libm::sqrt(new) * fresh
            }
        };
        if stream == Stream::Originals {
            self.latest = Some((at, score));
        }
        score
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Nanos = Nanos::from_secs(3_600);

    #[test]
    fn the_correlation_halves_in_a_half_life() {
        let mut correlated_score = CorrelatedScore::default();
        let mut next =
            |at, fresh| correlated_score.next(Nanos(at), Nanos(1_000), fresh, Stream::Originals);
        assert!((next(5, 2.0) - 2.0).abs() < 1e-12);
        assert!((next(5, 9.0) - 2.0).abs() < 1e-12);
        assert!((next(1_005, 0.0) - 1.0).abs() < 1e-12);
        assert!((next(1_505, 0.0) - 0.5_f64.sqrt()).abs() < 1e-12);
        // The fresh score has the weight that keeps the variance at 1.
        assert!((next(2_505, 1.0) - (0.125_f64.sqrt() + 0.75_f64.sqrt())).abs() < 1e-12);
    }

    #[test]
    fn extreme_half_lives_are_exact() {
        let mut correlated_score = CorrelatedScore::default();
        correlated_score.next(Nanos(0), HOUR, 0.0, Stream::Originals);
        let close = correlated_score.next(Nanos(1), HOUR, 1.0, Stream::Originals);
        // The square root of 2 ln 2 / 3.6e12.
        assert!((close - 6.205_7e-7).abs() < 1e-10, "{close}");
        assert_eq!(
            correlated_score.next(HOUR, Nanos(1), 1.0, Stream::Originals),
            1.0
        );
    }

    #[test]
    fn a_copy_starts_from_its_original_and_does_not_affect_others() {
        let mut correlated_score = CorrelatedScore::default();
        let half_life = Nanos(1_000);
        assert_eq!(
            correlated_score.next(Nanos(0), half_life, 4.0, Stream::Originals),
            4.0
        );
        assert_eq!(
            correlated_score.next(Nanos(0), half_life, 1.0, Stream::Copies),
            4.0
        );
        assert_eq!(
            correlated_score.next(Nanos(1_000), half_life, 0.0, Stream::Copies),
            2.0
        );
        assert_eq!(
            correlated_score.next(Nanos(2_000), half_life, 0.0, Stream::Originals),
            1.0
        );
    }
}
