//! Intervals that decide whether a rule is met. They are so wide that chance alone seldom puts the true value outside.
//!
//! The argument `beyond` gives the width: one experiment in `beyond` has the true value beyond each end. There is no
//! interval for fewer values than [`Centre::fewest`], which could contradict nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::distribution::{Binomial, ContinuousCDF as _, DiscreteCDF as _, StudentsT};

use super::{mann_whitney, order_statistics, pairs, t_interval, welch};

/// The width that puts the true value outside in one experiment of 1,000, both ends together.
pub const BEYOND: u32 = 2_000;
/// The least number of values for which Student's t is usable: 8.6 for five values, but 31.6 for three.
const MIN_VALUES: usize = 5;

/// The centre of several values that an expectation refers to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Centre {
    /// The mean. If all values are above 0, its intervals are those of the mean of their logarithms: Student's
    /// intervals of skewed values are too low too often, for log-normal values of σ = 0.5 in 4 of 1,000 experiments of
    /// five instead of 0.5.
    #[default]
    Mean,
    /// The median. Its intervals are computed from ranks, whatever the distribution.
    Median,
}

impl Centre {
    /// Computes it for `values`; `None` for no values.
    pub fn of(self, values: &[f64]) -> Option<f64> {
        match self {
            Self::Mean => t_interval::mean(values),
            Self::Median => order_statistics::quantile(&order_statistics::sorted(values), 0.5),
        }
    }

    /// Returns the interval of this centre in the population of `values`: Student's t, or exact binomial ranks for the
    /// median (W. J. Conover, "Practical Nonparametric Statistics", §3.2).
    pub fn interval(self, values: &[f64], beyond: u32) -> Option<[f64; 2]> {
        match self {
            Self::Mean if values.len() < MIN_VALUES => None,
            Self::Mean if above_zero(values) => {
                let interval = student(&logarithms(values), beyond)?;
                Some(interval.map(f64::exp))
            }
            Self::Mean => student(values, beyond),
            Self::Median => {
                let sorted = order_statistics::sorted(values);
                let low = binomial_rank(sorted.len(), beyond)?;
                Some([sorted[low - 1], sorted[sorted.len() - low]])
            }
        }
    }

    /// Returns the interval of the amount by which `values` lie above `base`: Welch's t, or the Hodges–Lehmann shift of
    /// all pairs.
    pub fn difference(self, base: &[f64], values: &[f64], beyond: u32) -> Option<[f64; 2]> {
        match self {
            Self::Mean => welch(base, values, beyond),
            Self::Median => of_pairs(base, values, |value, base| value - base, beyond),
        }
    }

    /// Returns the interval of the ratio of `values` to `base`, computed in the same way from logarithms; `None` unless
    /// all are above 0.
    pub fn ratio(self, base: &[f64], values: &[f64], beyond: u32) -> Option<[f64; 2]> {
        if !above_zero(base) || !above_zero(values) {
            return None;
        }
        match self {
            Self::Mean => {
                let interval = welch(&logarithms(base), &logarithms(values), beyond)?;
                Some(interval.map(f64::exp))
            }
            Self::Median => of_pairs(base, values, |value, base| value / base, beyond),
        }
    }

    /// Returns the least number of values that have an interval; if two samples are compared, each needs as many.
    pub fn fewest(self, of_two: bool, beyond: u32) -> usize {
        let has_one = |count: &usize| match (self, of_two) {
            (Self::Mean, _) => *count >= MIN_VALUES,
            (Self::Median, false) => binomial_rank(*count, beyond).is_some(),
            (Self::Median, true) => mann_whitney::interval_rank(*count, *count, beyond).is_some(),
        };
        (1..).find(has_one).unwrap_or(usize::MAX)
    }
}

/// Returns whether all values have a logarithm.
pub fn above_zero(values: &[f64]) -> bool {
    values.iter().all(|value| *value > 0.0)
}

pub(crate) fn logarithms(values: &[f64]) -> Vec<f64> {
    values.iter().map(|value| value.ln()).collect()
}

fn student(values: &[f64], beyond: u32) -> Option<[f64; 2]> {
    let (mean, sd) = (t_interval::mean(values)?, t_interval::sample_sd(values)?);
    let half = t(values.len() as f64 - 1.0, beyond)? * sd / (values.len() as f64).sqrt();
    Some([mean - half, mean + half])
}

fn welch(base: &[f64], values: &[f64], beyond: u32) -> Option<[f64; 2]> {
    if base.len().min(values.len()) < MIN_VALUES {
        return None;
    }
    welch::Difference::of(base, values)?.interval(1.0 / f64::from(beyond))
}

fn t(degrees: f64, beyond: u32) -> Option<f64> {
    let t = StudentsT::new(0.0, 1.0, degrees).ok()?;
    Some(-t.inverse_cdf(1.0 / f64::from(beyond)))
}

/// Returns the interval of the median of `of` over all pairs. `of` rises with its first argument and falls with its
/// second.
fn of_pairs(
    base: &[f64],
    values: &[f64],
    of: fn(f64, f64) -> f64,
    beyond: u32,
) -> Option<[f64; 2]> {
    let (lower, upper) = (
        order_statistics::sorted(base),
        order_statistics::sorted(values),
    );
    let rank = mann_whitney::interval_rank(lower.len(), upper.len(), beyond)?;
    let nth = |rank| pairs::nth(&upper, &lower, of, rank);
    Some([nth(rank), nth(lower.len() * upper.len() + 1 - rank)])
}

/// Returns the greatest rank, from 1, of `count` values below which the median of the population lies in at most one of
/// `beyond` experiments; `None` if there is no such rank.
fn binomial_rank(count: usize, beyond: u32) -> Option<usize> {
    let below = Binomial::new(0.5, count as u64).ok()?;
    let ranks = (0..count as u64).take_while(|rank| below.cdf(*rank) <= 1.0 / f64::from(beyond));
    Some(ranks.count()).filter(|rank| *rank > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::draws;

    const EXPERIMENTS: u64 = 100_000;

    /// Returns in how many of 100,000 experiments with `count` values, whose logarithms have σ = 0.5, each interval
    /// excludes the true value: of one sample below and above, and of the ratio of two equal ones.
    fn excluded(centre: Centre, count: usize) -> [u32; 3] {
        let mut excluded = [0; 3];
        for seed in 0..EXPERIMENTS {
            // Consecutive seeds give draws that are too similar.
            let all: Vec<f64> = draws(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), 2 * count)
                .iter()
                .map(|draw| (0.5 * draw).exp())
                .collect();
            let (base, values) = all.split_at(count);
            if let Some([low, high]) = centre.interval(values, BEYOND) {
                excluded[0] += u32::from(high < 1.0);
                excluded[1] += u32::from(low > 1.0);
            }
            let [low, high] = centre.ratio(base, values, BEYOND).unwrap();
            excluded[2] += u32::from(high < 1.0 || low > 1.0);
        }
        excluded
    }

    #[test]
    fn the_true_value_is_excluded_in_one_of_two_thousand_experiments_at_each_end() {
        for (centre, count) in [
            (Centre::Mean, 5),
            (Centre::Mean, 10),
            (Centre::Median, 7),
            (Centre::Median, 11),
        ] {
            let [below, above, ratio] = excluded(centre, count);
            // About 50 are expected at each end, with a deviation of 7; ranks exclude fewer.
            assert!(
                below.max(above) <= 80 && ratio <= 140,
                "{centre:?} {count}: {below} {above} {ratio}"
            );
        }
    }

    #[test]
    fn intervals_are_not_wider_than_necessary() {
        let [below, above, ratio] = excluded(Centre::Mean, 10);
        assert!(below >= 25, "{below} {above} {ratio}");
        assert!(above >= 25, "{below} {above} {ratio}");
        assert!(ratio >= 50, "{below} {above} {ratio}");
    }

    #[test]
    fn means_have_students_and_welchs_intervals() {
        // Student's t with 4 degrees of freedom is 8.610 at 99.95 % (table 26.10 of Abramowitz and Stegun).
        let values = [-2.0, -1.0, 0.0, 1.0, 2.0];
        let [low, high] = Centre::Mean.interval(&values, BEYOND).unwrap();
        let half = 8.610 * 2.5_f64.sqrt() / 5.0_f64.sqrt();
        assert!((low + half).abs() < 0.001 && (high - half).abs() < 0.001);
        let grown = values.map(f64::exp);
        let [low, high] = Centre::Mean.interval(&grown, BEYOND).unwrap();
        assert!((low.ln() + half).abs() < 0.001 && (high.ln() - half).abs() < 0.001);
        // Equal spreads and counts have 8 degrees of freedom: 5.041.
        let half = 5.041 * (2.0 * 2.5 / 5.0_f64).sqrt();
        let above = values.map(|value| value + 3.0);
        let [low, high] = Centre::Mean.difference(&values, &above, BEYOND).unwrap();
        assert!((low - 3.0 + half).abs() < 0.001 && (high - 3.0 - half).abs() < 0.001);
        let above = grown.map(|value| 3.0 * value);
        let [low, high] = Centre::Mean.ratio(&grown, &above, BEYOND).unwrap();
        assert!(((low / 3.0).ln() + half).abs() < 0.001);
        assert!(((high / 3.0).ln() - half).abs() < 0.001);
        assert_eq!(Centre::Mean.ratio(&values, &above, BEYOND), None);
    }

    #[test]
    fn medians_have_intervals_of_ranks() {
        // 2 / 2^11 is below 1 in 1,000, and 2 / 2^10 is not.
        let values: Vec<f64> = (1..=11).map(f64::from).collect();
        assert_eq!(Centre::Median.interval(&values, BEYOND), Some([1.0, 11.0]));
        assert_eq!(Centre::Median.interval(&values[1..], BEYOND), None);
        // P(B <= 2) = 0.0002 and P(B <= 3) = 0.0013 for 20 values.
        let values: Vec<f64> = (1..=20).map(f64::from).collect();
        assert_eq!(Centre::Median.interval(&values, BEYOND), Some([3.0, 18.0]));
        // There are C(14, 7) = 3432 and C(12, 6) = 924 arrangements.
        let base = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
        let twice = base.map(|value| 2.0 * value);
        assert_eq!(
            Centre::Median.ratio(&base, &twice, BEYOND),
            Some([2.0 / 7.0, 14.0])
        );
        assert_eq!(
            Centre::Median.difference(&base, &twice, BEYOND),
            Some([-5.0, 13.0])
        );
        assert_eq!(Centre::Median.ratio(&base[1..], &twice[1..], BEYOND), None);
    }

    #[test]
    fn too_few_values_have_no_interval() {
        let fewest = |centre: Centre| [centre.fewest(false, BEYOND), centre.fewest(true, BEYOND)];
        assert_eq!(fewest(Centre::Mean), [5, 5]);
        assert_eq!(fewest(Centre::Median), [11, 7]);
        // These are three steps, each with a third of the probability.
        assert_eq!(Centre::Median.fewest(true, 3 * BEYOND), 8);
        let values = draws(1, 5);
        assert!(Centre::Mean.interval(&values, BEYOND).is_some());
        assert_eq!(Centre::Mean.interval(&values[1..], BEYOND), None);
        assert_eq!(Centre::Mean.difference(&values, &values[1..], BEYOND), None);
    }

    #[test]
    fn equal_values_have_an_interval_of_zero_width() {
        assert_eq!(Centre::Mean.interval(&[0.0; 5], BEYOND), Some([0.0, 0.0]));
        assert_eq!(
            Centre::Mean.difference(&[0.0; 5], &[1.0; 5], BEYOND),
            Some([1.0, 1.0])
        );
    }
}
