//! Random loss on the idle path, its bursts, and duplication.

use conditions::Direction;
use stats::losses::{self, Losses};
use stats::proportion;

use crate::estimate::Estimate;
use crate::observations::{ProbeSession, index};

/// The probability by chance below which losses in a row are bursts.
const ALARM: f64 = 0.01;
/// The normal quantile of 95 % intervals.
const Z: f64 = 1.96;

/// The random loss of a direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossFit {
    /// The share of lost packets in percent.
    pub percent: Estimate,
    /// The mean number of packets that are lost in a row, if they are lost in bursts.
    pub burst: Option<Estimate>,
    /// The counts behind both.
    pub counts: Losses,
    /// Whether the direction is unknown, so that each direction has half of the round trip's loss.
    pub is_half: bool,
}

impl LossFit {
    /// Fits the loss of a direction to the probes on the idle path; `None` without probes.
    pub fn of(idle: &ProbeSession, way: Direction) -> Option<Self> {
        let lost = idle.probes.iter().map(|probe| probe.rtt_ms.is_none());
        let round_trip = Losses::in_order(lost);
        let (counts, is_half) = match idle.losses[index(way)] {
            Some(counts) => (counts, false),
            None => (round_trip, true),
        };
        let interval = counts.interval()?;
        let share = counts.lost as f64 / counts.of.max(1) as f64;
        // Two directions with the same loss lose 1 - (1 - p)^2 together.
        let percent = Estimate::new(share, interval).map(|share| match is_half {
            true => 100.0 * (1.0 - (1.0 - share).sqrt()),
            false => 100.0 * share,
        });
        Some(Self {
            percent,
            burst: burst(counts),
            counts,
            is_half,
        })
    }

    /// Returns the share of packets that are lost, from 0 to 1.
    pub(crate) fn share(&self) -> Estimate {
        self.percent.map(|percent| percent / 100.0)
    }
}

/// Returns the share of packets that pass a direction with this random loss; all of them if it is not known.
pub(crate) fn passes(random: Option<&LossFit>) -> f64 {
    random.map_or(1.0, |random| 1.0 - random.share().value)
}

/// Returns the mean length of bursts, if more losses follow each other than independent losses would.
///
/// After a lost packet, the next one is lost with the share of losses if losses are independent. The count of losses
/// that follow another one is compared with the binomial distribution. Bursts of a Gilbert channel have a geometric
/// length, whose mean has the relative standard error sqrt((1 - 1/B) / bursts).
fn burst(counts: Losses) -> Option<Estimate> {
    let Losses { of, lost, bursts } = counts;
    let following = lost.saturating_sub(bursts);
    if following < 2 || lost >= of {
        return None;
    }
    let share = lost as f64 / of as f64;
    if 1.0 - proportion::fewer_than(following, lost, share) > ALARM {
        return None;
    }
    let mean = lost as f64 / bursts as f64;
    let relative = ((1.0 - 1.0 / mean) / bursts as f64).sqrt();
    let reach = (Z * relative).exp();
    Some(Estimate::new(mean, [(mean / reach).max(1.0), mean * reach]))
}

/// Returns the share of packets that are duplicated in each direction, in percent; `None` if no answer was duplicated.
pub(crate) fn duplicated(idle: &ProbeSession) -> Option<Estimate> {
    let sent = idle.probes.len() as u64;
    let count = idle.duplicates.min(sent);
    if count == 0 {
        return None;
    }
    let share = count as f64 / sent as f64;
    let interval = proportion::wilson(count, sent)?;
    Some(Estimate::new(share, interval).map(|share| 100.0 * share / 2.0))
}

/// Returns whether `lost` of `of` packets are more than the random loss explains.
pub(crate) fn exceeds(lost: u64, of: u64, random: &LossFit) -> bool {
    let share = random.share().interval[1].min(1.0);
    let burst = random.burst.map_or(1.0, |burst| burst.value);
    let expected = share * of as f64;
    let variance = expected * (1.0 - share) * losses::inflation(share, burst);
    lost as f64 > expected + 3.0 * variance.sqrt() + 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn independent_losses_have_no_bursts_and_long_runs_do() {
        let of = |of, lost, bursts| burst(Losses { of, lost, bursts });
        assert_eq!(of(1000, 30, 29), None);
        assert_eq!(of(1000, 2, 1), None);
        let found = of(1000, 40, 10).unwrap();
        assert!(
            (found.value - 4.0).abs() < 1e-9 && found.contains(5.0),
            "{found:?}"
        );
    }

    #[test]
    fn loss_beyond_the_random_part_is_found() {
        let random = |percent: f64| LossFit {
            percent: Estimate::within(percent, 0.5),
            burst: None,
            counts: Losses::default(),
            is_half: false,
        };
        assert!(!exceeds(2, 300, &random(0.0)));
        assert!(exceeds(30, 300, &random(1.0)));
        assert!(!exceeds(9, 300, &random(2.0)));
    }
}
