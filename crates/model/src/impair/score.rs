//! Standard normal scores: from a draw, and back to a share.

use core::f64::consts::{FRAC_1_SQRT_2, PI, SQRT_2};

use alloc::boxed::Box;
use alloc::vec::Vec;

use once_cell::race::OnceBox;

/// The number of tabulated halvings of the share: the score is limited to 6.3, which fewer than one draw in 2^32 would
/// exceed.
const OCTAVES: u32 = 32;

/// The steps between a share and its half, as a power of two. Between them the score is interpolated linearly, with an
/// error of at most 2e-5.
const STEP_BITS: u32 = 6;

/// The number of entries of an octave, both ends included.
const ENTRIES: usize = (1 << STEP_BITS) + 1;

/// The scores of draws: the quantiles of the standard normal distribution, with the same relative resolution in its
/// tails as in its middle.
#[derive(Debug)]
pub(crate) struct Scores {
    /// The scores of the shares 2^-(k+1) (1 + m / 64), with m from 0 to 64 and k from 1.
    table: Box<[f64]>,
}

impl Scores {
    /// Returns the table that all delays share, which is made by the first call.
    pub(crate) fn shared() -> &'static Self {
        static SCORES: OnceBox<Scores> = OnceBox::new();
        SCORES.get_or_init(|| Box::new(Self::new()))
    }

    pub(crate) fn new() -> Self {
        let mut table = Vec::with_capacity(OCTAVES as usize * ENTRIES);
        for octave in 1..=OCTAVES {
            let least = libm::exp2(-f64::from(octave + 1));
            let steps = f64::from(1_u32 << STEP_BITS);
            // In the tail, the share is about the density over the score, to first order.
            let mut near = -libm::sqrt(2.0 * f64::from(octave) * core::f64::consts::LN_2);
            for step in 0..=1 << STEP_BITS {
                near = quantile(least * (1.0 + f64::from(step) / steps), near);
                table.push(near);
            }
        }
        Self {
            table: table.into_boxed_slice(),
        }
    }

    /// Returns the score of `draw`: the lower half of draws has scores below 0.
    #[inline]
    pub(crate) fn of(&self, draw: u64) -> f64 {
        let is_upper = draw >> 63 == 1;
        let share = if is_upper { !draw } else { draw };
        let share = share.max(1 << (63 - OCTAVES));
        let octave = share.leading_zeros();
        let behind = share << octave << 1;
        let step = (behind >> (64 - STEP_BITS)) as usize;
        let part = (behind << STEP_BITS >> 11) as f64 / (1_u64 << 53) as f64;
        let place = (octave - 1) as usize * ENTRIES + step;
        let (below, above) = (self.table[place], self.table[place + 1]);
        let score = below + (above - below) * part;
        if is_upper { -score } else { score }
    }
}

/// Returns the share of the standard normal distribution below `score`.
pub(crate) fn share_below(score: f64) -> f64 {
    libm::erfc(-score * FRAC_1_SQRT_2) / 2.0
}

/// Returns the quantile of the standard normal distribution at `share`, which is at most a half. It uses Newton's
/// method from `near` on the logarithm, which is nearly linear in the tail.
fn quantile(share: f64, near: f64) -> f64 {
    let mut score = near;
    for _ in 0..60 {
        let below = share_below(score);
        let density = libm::exp(-score * score / 2.0) / (SQRT_2 * libm::sqrt(PI));
        let step = libm::log(below / share) * below / density;
        score -= step;
        if libm::fabs(step) < 1e-12 {
            break;
        }
    }
    score
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_the_quantiles_of_a_normal_distribution() {
        let scores = Scores::new();
        // These are powers of 2, which are entries of the table, and then 97.5 % (Wichura 1988, AS 241).
        for (draw, score) in [
            (1 << 63, 0.0),
            (1 << 62, -0.674_489_750),
            (1 << 60, -1.534_120_544),
            (1 << 44, -4.763_001_034),
            (1 << 34, -6.009_353_566),
            (0xc000_0000_0000_0000, 0.674_489_750),
        ] {
            let own = scores.of(draw);
            assert!((own - score).abs() < 1e-6, "{own} is not {score}");
        }
        let own = scores.of(0xf999_9999_9999_9999);
        assert!((own - 1.959_963_985).abs() < 2e-5, "{own}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "it takes too many draws")]
    fn scores_rise_with_the_draw_and_mirror_each_other() {
        let scores = Scores::new();
        let mut last = f64::NEG_INFINITY;
        for draw in (0..=u64::MAX >> 44).map(|step| step << 44) {
            let own = scores.of(draw);
            assert!(own >= last, "{draw}");
            assert!((own + scores.of(!draw)).abs() < 1e-12, "{draw}");
            last = own;
        }
        assert!(scores.of(0) < -6.2 && scores.of(0) > -6.5);
    }

    #[test]
    fn scores_are_interpolated_between_entries() {
        let scores = Scores::new();
        for draw in [
            3_u64 << 61,
            5 << 60,
            0x7f80_0000_0000_0000,
            0x0123_4567_89ab_cdef,
        ] {
            let share = draw as f64 / 2.0_f64.powi(64);
            let own = share_below(scores.of(draw));
            assert!((own / share - 1.0).abs() < 1e-4, "{own} is not {share}");
        }
    }
}
