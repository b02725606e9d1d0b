//! Loss in the long run.
//!
//! netem's correlation makes each random number x = (1 - c) u + c x' from a fresh number u and the previous x', and
//! compares it with the share. This sum is narrower than u, so that fewer packets are hit than the share says, far
//! fewer for small shares.

use core::num::NonZeroU32;

use alloc::vec;
use alloc::vec::Vec;

use crate::spec::{FourState, GilbertElliott, NetemShare};
use crate::units::Probability;

/// The number of points of the distribution function of x.
const POINTS: usize = 1 << 13;

/// The correlation above which the first number decides for hours.
const FROZEN: f64 = 0.995;

/// The loss of a law in the long run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LongRunLoss {
    /// The share of packets that are lost, 0 to 1.
    pub share: f64,
    /// The average number of packets that are lost in a row; `None` if nothing or everything is lost.
    pub burst: Option<f64>,
}

impl LongRunLoss {
    /// No loss.
    pub const NONE: Self = Self {
        share: 0.0,
        burst: None,
    };

    /// Returns the loss with this share of lost packets and this share of consecutive pairs that are both lost.
    fn of_pairs(share: f64, both: f64) -> Self {
        let begins = share - both;
        Self {
            share,
            burst: (begins > 0.0).then(|| share / begins),
        }
    }

    /// Returns the loss of a chain with this share and this mean run, which is 0 if nothing is lost and infinite if a
    /// run never ends.
    fn of_chain(share: f64, run: f64) -> Self {
        let burst = (run > 0.0 && run.is_finite()).then_some(run);
        Self { share, burst }
    }

    /// Returns the loss of every `n`-th packet.
    pub(crate) fn periodic(n: NonZeroU32) -> Self {
        let burst = (n.get() > 1).then_some(1.0);
        let share = 1.0 / f64::from(n.get());
        Self { share, burst }
    }
}

impl FourState {
    /// Returns its loss in the long run.
    pub(crate) fn long_run(&self) -> LongRunLoss {
        LongRunLoss::of_chain(self.stationary_loss(), self.mean_burst())
    }
}

impl GilbertElliott {
    /// Returns its loss in the long run.
    pub(crate) fn long_run(&self) -> LongRunLoss {
        LongRunLoss::of_chain(self.stationary_loss(), self.mean_burst())
    }
}

impl From<Probability> for NetemShare {
    /// Makes a share without a correlation.
    fn from(share: Probability) -> Self {
        let correlation = None;
        Self { share, correlation }
    }
}

impl NetemShare {
    /// Returns whether each draw repeats a part of the previous one.
    #[must_use]
    pub fn is_correlated(&self) -> bool {
        self.correlation.is_some_and(|of| of > Probability::ZERO)
    }

    /// Returns the share of packets that it hits in the long run and the mean length of a run of hits, with the effect
    /// of its correlation.
    #[must_use]
    pub fn long_run(&self) -> LongRunLoss {
        let correlation = self.correlation.map_or(0.0, Probability::fraction);
        let share = self.share.fraction();
        if correlation == 0.0 || share == 0.0 || share == 1.0 {
            return LongRunLoss::of_pairs(share, share * share);
        }
        if correlation > FROZEN {
            return LongRunLoss::of_pairs(share, share);
        }
        Correlated::of(correlation).below(share)
    }
}

/// The distribution of x in the long run.
struct Correlated {
    correlation: f64,
    /// P(x <= k / POINTS) for each k.
    function: Vec<f64>,
}

impl Correlated {
    /// Computes the distribution as the fixed point of its recursion: F(y) = c (G(y / c) - G((y - 1 + c) / c)) / (1 -
    /// c), where G is the integral of F, and F is 1 above 1.
    fn of(correlation: f64) -> Self {
        let at = |place: usize| place as f64 / POINTS as f64;
        let mut function: Vec<f64> = (0..=POINTS).map(at).collect();
        let mut integral = vec![0.0; POINTS + 1];
        // Each turn reduces the error by a factor of c.
        let turns = libm::ceil(libm::log(1e-12) / libm::log(correlation)).max(8.0);
        let mut turn = 0.0;
        while turn < turns {
            for place in 1..=POINTS {
                let mean = (function[place] + function[place - 1]) / 2.0;
                integral[place] = integral[place - 1] + mean / POINTS as f64;
            }
            let upto = |y: f64| area(&integral, y / correlation);
            for (place, value) in function.iter_mut().enumerate() {
                let y = at(place);
                let fresh = 1.0 - correlation;
                *value = correlation * (upto(y) - upto(y - fresh)) / fresh;
            }
            turn += 1.0;
        }
        Self {
            correlation,
            function,
        }
    }

    /// Returns the share of numbers that are at most `share`, and the mean run that follows from the pairs of
    /// consecutive numbers that both are.
    fn below(&self, share: f64) -> LongRunLoss {
        let place = share * POINTS as f64;
        let last = libm::floor(place);
        let mut both = 0.0;
        let mut before = 0.0;
        let mut at = 0.0;
        for next in 1..=POINTS {
            let end = (next as f64).min(place);
            let value = between(&self.function, end);
            let middle = (at + end) / 2.0 / POINTS as f64;
            let follows = (share - self.correlation * middle) / (1.0 - self.correlation);
            both += (value - before) * follows.clamp(0.0, 1.0);
            (before, at) = (value, end);
            if next as f64 > last {
                break;
            }
        }
        LongRunLoss::of_pairs(before, both)
    }
}

/// Returns the integral of F from 0 to `y`.
fn area(integral: &[f64], y: f64) -> f64 {
    match y {
        y if y <= 0.0 => 0.0,
        y if y >= 1.0 => integral[POINTS] + y - 1.0,
        y => between(integral, y * POINTS as f64),
    }
}

/// Interpolates linearly between the two values next to `place`.
fn between(values: &[f64], place: f64) -> f64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "0 to POINTS"
    )]
    let below = (place as usize).min(POINTS - 1);
    let part = place - below as f64;
    values[below] + (values[below + 1] - values[below]) * part
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::behaviour::SkipLaw;
    use crate::spec::{Netem, NetemLoss};
    use crate::units::Bytes;

    fn percent(text: &str) -> Probability {
        text.parse().unwrap()
    }

    fn loss(loss: NetemLoss) -> LongRunLoss {
        let netem = Netem {
            loss,
            ..Netem::PLAIN
        };
        let loss = netem.behaviour().loss;
        loss.long_run(Bytes(100)).unwrap()
    }

    fn assert_is(own: LongRunLoss, share: f64, burst: f64) {
        assert!((own.share / share - 1.0).abs() < 0.01, "{own:?}");
        assert!((own.burst.unwrap() / burst - 1.0).abs() < 0.01, "{own:?}");
    }

    #[test]
    fn a_correlation_narrows_the_distribution_of_draws() {
        let of = |share, correlation| {
            let share = NetemShare {
                share: percent(share),
                correlation: Some(percent(correlation)),
            };
            share.long_run()
        };
        assert_is(of("10%", "0%"), 0.1, 1.0 / 0.9);
        assert!((of("50%", "50%").share - 0.5).abs() < 1e-9);
        // These were measured in 10^8 to 10^9 steps of the recursion in the kernel's 32 bits.
        for (share, correlation, own, burst) in [
            ("10%", "25%", 0.017_520, 1.121_6),
            ("25%", "50%", 0.069_469, 1.428_5),
            ("10%", "50%", 0.001_085_1, 1.130_7),
        ] {
            assert_is(of(share, correlation), own, burst);
        }
    }

    #[test]
    fn the_chains_have_their_long_run_loss_and_bursts() {
        // A real kernel lost 6.41 % of 10^5 packets, in runs of 2.634.
        let law = GilbertElliott {
            to_bad: percent("1%"),
            to_good: percent("10%"),
            bad_loss: percent("70%"),
            good_loss: percent("0.1%"),
            ecn: false,
        };
        assert_is(loss(NetemLoss::Gemodel(law)), 0.064_545, 2.642);
        let states = FourState {
            p13: percent("1%"),
            p31: percent("20%"),
            p32: percent("10%"),
            p23: percent("40%"),
            p14: percent("0.5%"),
            ecn: false,
        };
        // The weights of states 1, 3, 2 and 4 are 1 : 0.05 : 0.0125 : 0.005; runs begin with 0.015 + 0.005.
        assert_is(loss(NetemLoss::State(states)), 0.055 / 1.067_5, 2.75);
    }

    #[test]
    fn an_absorbing_state_has_all_packets() {
        let states = |p13, p31, p32, p23| FourState {
            p13: percent(p13),
            p31: percent(p31),
            p32: percent(p32),
            p23: percent(p23),
            p14: percent("0%"),
            ecn: false,
        };
        for (states, share) in [
            (states("0%", "0%", "0%", "0%"), 0.0),
            (states("1%", "0%", "0%", "100%"), 1.0),
            (states("1%", "10%", "10%", "0%"), 0.0),
            (states("1%", "0%", "50%", "50%"), 0.5),
            (states("1%", "99%", "0%", "100%"), 0.01),
        ] {
            let own = loss(NetemLoss::State(states));
            assert!((own.share - share).abs() < 1e-9, "{states:?}: {own:?}");
        }
    }

    #[test]
    fn the_share_that_skips_the_delay_follows_from_gap_and_share() {
        let netem = |share, gap| Netem {
            gap,
            reorder: Some(NetemShare {
                share: percent(share),
                correlation: None,
            }),
            ..Netem::PLAIN
        };
        for (netem, share) in [
            (netem("25%", 0), 0.25),
            (netem("100%", 5), 0.2),
            (netem("25%", 5), 0.125),
            (netem("0%", 5), 0.0),
            (Netem::PLAIN, 0.0),
        ] {
            let skips = netem.behaviour().skips;
            let own = skips.as_ref().map_or(0.0, SkipLaw::long_run);
            assert!((own - share).abs() < 1e-12, "{netem:?}");
        }
    }
}
