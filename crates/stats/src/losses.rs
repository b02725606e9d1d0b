//! The share of lost packets and its interval, from the number of packets, of losses and of bursts.
//!
//! Losses come in bursts on real networks, and a burst carries less information about the share of losses than as many
//! single losses do. The interval is therefore Wilson's for the number of independent packets to which the observed
//! packets are equivalent: their number divided by (1 + c) / (1 - c), where c is the correlation of neighbours in a
//! chain of two states whose bursts have the observed mean length (E. N. Gilbert, "Capacity of a burst-noise channel",
//! 1960). The observed bursts determine their mean length only roughly, so the normal quantile is replaced by Student's
//! with one degree of freedom less than there are bursts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::proportion::{Z, percent, wilson_of};
use crate::t_interval::t_95;

/// The number of packets, of lost ones among them, and of bursts of losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Losses {
    /// The number of packets that should have arrived.
    pub of: u64,
    /// The number of them that were lost.
    pub lost: u64,
    /// The number of bursts: runs of consecutive lost packets, in the order of sending. A single lost packet is a
    /// burst.
    pub bursts: u64,
}

impl Losses {
    /// Creates losses whose order is unknown; they are treated as independent.
    pub fn independent(lost: u64, of: u64) -> Self {
        Self {
            of,
            lost,
            bursts: lost,
        }
    }

    /// Counts packets in the order of sending, each `true` if it was lost.
    pub fn in_order(packets: impl IntoIterator<Item = bool>) -> Self {
        let mut losses = Self::default();
        let mut before = false;
        for lost in packets {
            losses.of += 1;
            losses.lost += u64::from(lost);
            losses.bursts += u64::from(lost && !before);
            before = lost;
        }
        losses
    }

    /// Returns the sums of both.
    pub fn with(self, other: Self) -> Self {
        Self {
            of: self.of.saturating_add(other.of),
            lost: self.lost.saturating_add(other.lost),
            bursts: self.bursts.saturating_add(other.bursts),
        }
    }

    /// Returns the share of lost packets in percent; `None` for no packets.
    pub fn percent(self) -> Option<f64> {
        percent(self.lost, self.of)
    }

    /// Returns the ratio of the variance of the number of losses to that of independent losses; at least 1.
    pub fn inflation(self) -> f64 {
        let share = self.lost as f64 / self.of.max(1) as f64;
        let burst = self.lost as f64 / self.bursts.max(1) as f64;
        inflation(share, burst)
    }

    /// Returns the 95 % interval of the probability that a packet is lost, from 0 to 1; `None` for no packets.
    ///
    /// If every burst is a single packet, it is Wilson's interval. If no packet or every packet was lost, losses are
    /// treated as independent: a network that rarely loses all packets for a long time may not have shown it.
    pub fn interval(self) -> Option<[f64; 2]> {
        self.interval_at_least(1.0)
    }

    /// Returns the same interval, but with a variance of at least `inflation` times that of independent losses.
    pub fn interval_at_least(self, inflation: f64) -> Option<[f64; 2]> {
        // Beyond a thousand bursts, Student's quantile is the normal one to three digits.
        let degrees = usize::try_from(self.bursts.saturating_sub(1).max(1))
            .ok()
            .filter(|degrees| *degrees <= 1000 && self.bursts < self.lost && self.lost < self.of);
        let quantile = degrees.map_or(Some(Z), t_95)?;
        wilson_of(
            self.lost,
            self.of,
            self.inflation().max(inflation),
            quantile,
        )
    }

    /// Returns the 95 % interval of the probability that a packet is lost, from several runs on the same network, from
    /// 0 to 1.
    ///
    /// The counts of all runs are added. If the runs differ by more than chance explains, the interval is wider by that
    /// amount.
    pub fn interval_of_runs(runs: &[Self]) -> Option<[f64; 2]> {
        let all = runs.iter().copied().fold(Self::default(), Self::with);
        let share = all.lost as f64 / all.of.max(1) as f64;
        let varies = |run: &Self| {
            let expected = share * run.of as f64;
            (run.lost as f64 - expected).powi(2) / (expected * (1.0 - share))
        };
        let between: f64 = runs.iter().map(varies).sum::<f64>() / (runs.len() as f64 - 1.0);
        // It is not finite for a single run, and if no packet or every packet was lost.
        let inflation = if between.is_finite() { between } else { 1.0 };
        all.interval_at_least(inflation.max(1.0))
    }
}

/// Returns the ratio of the variance of the number of losses to that of independent losses, if this share of packets is
/// lost in bursts of this mean length by a chain of two states; at least 1.
pub fn inflation(share: f64, burst: f64) -> f64 {
    if share <= 0.0 || share >= 1.0 {
        return 1.0;
    }
    let ends = 1.0 / burst.max(1.0);
    let correlation = (1.0 - ends - ends * share / (1.0 - share)).clamp(0.0, 0.999_999);
    (1.0 + correlation) / (1.0 - correlation)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns packets of a chain of two states that loses `share` of them in bursts of `burst` packets on average.
    fn packets(seed: u64, count: usize, share: f64, burst: f64) -> Losses {
        let mut random = fastrand::Rng::with_seed(seed);
        let ends = 1.0 / burst;
        let begins = ends * share / (1.0 - share);
        let mut is_lost = random.f64() < share;
        Losses::in_order((0..count).map(|_| {
            let now = is_lost;
            let changes = if is_lost { ends } else { begins };
            is_lost ^= random.f64() < changes;
            now
        }))
    }

    /// Returns the percentage of 2,000 series whose interval contains `share`.
    fn coverage(share: f64, interval: impl Fn(u64) -> Option<[f64; 2]>) -> f64 {
        let holds = |seed: &u64| {
            let [low, high] = interval(*seed).unwrap();
            low <= share && share <= high
        };
        (1..=2000).filter(holds).count() as f64 / 20.0
    }

    #[test]
    fn intervals_of_bursty_losses_contain_the_probability() {
        for burst in [1.0 / 0.95, 4.0, 8.0, 20.0] {
            let percent = coverage(0.05, |seed| packets(seed, 3000, 0.05, burst).interval());
            assert!((93.0..=99.0).contains(&percent), "{burst}: {percent} %");
        }
        // Wilson's interval alone covers far less, which is the reason for this module.
        let alone = |seed| {
            let found = packets(seed, 3000, 0.05, 4.0);
            crate::proportion::wilson(found.lost, found.of)
        };
        assert!(coverage(0.05, alone) < 70.0);
    }

    #[test]
    fn few_bursts_make_a_wide_interval() {
        for burst in [4.0, 8.0] {
            let percent = coverage(0.05, |seed| packets(seed, 1000, 0.05, burst).interval());
            assert!(percent >= 93.0, "{burst}: {percent} %");
        }
        let two = Losses {
            of: 1000,
            lost: 40,
            bursts: 2,
        };
        let [low, high] = two.interval().unwrap();
        assert!(low < 0.01 && high > 0.3, "{low} {high}");
    }

    #[test]
    fn repeated_runs_are_pooled() {
        // With 0.1 % of 5 times 1,000 packets, Student's t over the five shares would end below 0.
        let percent = coverage(0.001, |seed| {
            let runs: Vec<Losses> = (0..5)
                .map(|run| packets(10_000 * seed + run, 1000, 0.001, 1.0 / 0.999))
                .collect();
            Losses::interval_of_runs(&runs)
        });
        assert!(percent >= 93.0, "{percent} %");
        let none = [Losses::independent(0, 1000); 5];
        let [low, high] = Losses::interval_of_runs(&none).unwrap();
        assert!(low == 0.0 && (high - 0.000_767_7).abs() < 1e-6, "{high}");
    }

    #[test]
    fn runs_that_differ_widen_the_interval() {
        let width = |counts: [u64; 4]| {
            let runs = counts.map(|lost| Losses::independent(lost, 1000));
            let [low, high] = Losses::interval_of_runs(&runs).unwrap();
            high - low
        };
        assert!(width([10, 90, 15, 85]) > 4.0 * width([50, 50, 50, 50]));
    }

    #[test]
    fn extreme_counts_have_an_interval() {
        let most = u64::MAX;
        for (of, lost, bursts) in [(most, most, 1), (most, most - 1, most / 2), (3, 1, most)] {
            let [low, high] = Losses { of, lost, bursts }.interval().unwrap();
            assert!((0.0..=1.0).contains(&low) && low <= high, "{low} {high}");
        }
    }

    #[test]
    fn single_losses_have_wilsons_interval() {
        let found = Losses::in_order([false, true, false, false, true, true, false]);
        assert_eq!((found.of, found.lost, found.bursts), (7, 3, 2));
        let single = Losses::independent(1, 100).interval();
        assert_eq!(single, crate::proportion::wilson(1, 100));
        assert_eq!(Losses::default().interval(), None);
        let all = Losses::in_order([true; 50]);
        assert_eq!(all.interval(), crate::proportion::wilson(50, 50));
    }
}
