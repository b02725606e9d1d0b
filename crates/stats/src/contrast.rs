//! Comparisons of pairs of samples that are judged together, with one probability of error for all of them.
//!
//! A family of many comparisons contains large differences by chance. Holm's procedure decides which of them count, so
//! that a family without any difference claims one in at most 5 % of experiments. The intervals are Bonferroni's: all
//! of them together contain the true values in at least 95 % of experiments.

use std::cmp::Ordering;

use crate::deciding::{above_zero, logarithms};
use crate::hodges_lehmann::SUFFICIENT_VALUES;
use crate::mann_whitney::{self, AT_95};
use crate::welch::{self, Difference};

/// The accepted probability that a family claims a difference that does not exist. It is also the accepted probability
/// that at least one of its intervals misses the true value.
pub const LEVEL: f64 = 0.05;
/// The number of values in each sample that always suffices for a comparison.
pub const FEWEST: usize = SUFFICIENT_VALUES;

/// The quantity by which two samples are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContrastScale {
    /// The ratio of the geometric means, by Welch's t on the logarithms. All values must be above 0.
    Ratio,
    /// The difference between the arithmetic means, by Welch's t.
    Difference,
}

/// Two samples of independent values, such as those of separate runs.
#[derive(Clone, Copy, Debug)]
pub struct SamplePair<'a> {
    /// The sample with which the other one is compared.
    pub base: &'a [f64],
    /// The other sample.
    pub values: &'a [f64],
    /// The quantity by which they are compared.
    pub scale: ContrastScale,
}

/// The comparison of two samples as one of a family.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contrast {
    /// The quantity by which they are compared.
    pub scale: ContrastScale,
    /// The ratio of the values to the base, or their difference from it.
    pub estimate: f64,
    /// The interval of the estimate, which holds together with those of the whole family. It excludes 1, or a
    /// difference of 0, exactly if [`Contrast::finding`] states a difference; then 1 or 0 can be one of its ends.
    pub interval: [f64; 2],
    /// The probability of such a difference if there is none, adjusted for the family by Holm's procedure.
    pub p: f64,
}

/// Compares the samples of each pair. The result has `None` for a pair whose samples are too small
/// ([`has_enough`]), have values that are not finite, or have no ratio although one is wanted. Such pairs do not count
/// in the family.
///
/// Holm's procedure can claim a difference where Bonferroni's interval still reaches 1, because the procedure is less
/// strict after each difference that it has found. The interval of such a comparison is cut at 1.
pub fn family(pairs: &[SamplePair<'_>]) -> Vec<Option<Contrast>> {
    let tests: Vec<Option<Test>> = pairs.iter().map(Test::of).collect();
    let told: Vec<f64> = tests.iter().flatten().map(|test| test.p).collect();
    let beyond = LEVEL / 2.0 / told.len().max(1) as f64;
    let mut adjusted = welch::holm(&told).into_iter();
    let mut judged = |test: Option<Test>| {
        let test = test?;
        let p = adjusted.next()?;
        test.judged(p, beyond)
    };
    tests.into_iter().map(&mut judged).collect()
}

/// Returns whether samples of these sizes can be compared: the least p-value of a rank test of them is at most 5 %, as
/// for 4 and 4, or 3 and 7. The result of Welch's t for fewer values depends mainly on their distribution.
pub fn has_enough([base, values]: [usize; 2]) -> bool {
    base.min(values) > 1 && mann_whitney::interval_rank(base, values, AT_95).is_some()
}

/// Welch's test of one pair.
struct Test {
    scale: ContrastScale,
    difference: Difference,
    p: f64,
}

impl Test {
    fn of(pair: &SamplePair<'_>) -> Option<Self> {
        let SamplePair {
            base,
            values,
            scale,
        } = *pair;
        let is_finite = base.iter().chain(values).all(|value| value.is_finite());
        if !is_finite || !has_enough([base.len(), values.len()]) {
            return None;
        }
        let difference = match scale {
            ContrastScale::Ratio if !above_zero(base) || !above_zero(values) => return None,
            ContrastScale::Ratio => Difference::of(&logarithms(base), &logarithms(values))?,
            ContrastScale::Difference => Difference::of(base, values)?,
        };
        let p = difference.p()?;
        Some(Self {
            scale,
            difference,
            p,
        })
    }

    /// Returns the comparison with the adjusted p-value `p` and an interval that leaves out `beyond` at each end.
    fn judged(&self, p: f64, beyond: f64) -> Option<Contrast> {
        let value = self.difference.value;
        let [low, high] = self.difference.interval(beyond)?;
        // Rounding could otherwise make the interval contradict the procedure.
        let ends = match (p <= LEVEL, value > 0.0) {
            (true, true) => [low.max(0.0), high],
            (true, false) => [low, high.min(0.0)],
            (false, _) => [low.min(0.0), high.max(0.0)],
        };
        let scaled = |value: f64| match self.scale {
            ContrastScale::Ratio => value.exp(),
            ContrastScale::Difference => value,
        };
        Some(Contrast {
            scale: self.scale,
            estimate: scaled(value),
            interval: ends.map(scaled),
            p,
        })
    }
}

impl Contrast {
    /// Returns whether the values are greater or smaller than the base, beyond chance in the whole family; `None` if no
    /// difference was found.
    pub fn finding(&self) -> Option<Ordering> {
        let nothing = match self.scale {
            ContrastScale::Ratio => 1.0,
            ContrastScale::Difference => 0.0,
        };
        let order = self.estimate.partial_cmp(&nothing)?;
        (self.p <= LEVEL && order != Ordering::Equal).then_some(order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::draws;

    fn ratio<'a>(base: &'a [f64], values: &'a [f64]) -> SamplePair<'a> {
        SamplePair {
            base,
            values,
            scale: ContrastScale::Ratio,
        }
    }

    fn difference<'a>(base: &'a [f64], values: &'a [f64]) -> SamplePair<'a> {
        SamplePair {
            scale: ContrastScale::Difference,
            ..ratio(base, values)
        }
    }

    /// Returns `count` log-normal values with this median and this standard deviation of their logarithms.
    fn around(median: f64, sigma: f64, seed: u64, count: usize) -> Vec<f64> {
        let draws = draws(seed, count).into_iter();
        draws.map(|draw| median * (sigma * draw).exp()).collect()
    }

    #[test]
    fn one_comparison_has_welchs_p_and_interval() {
        // R's `t.test(extra ~ group, data = sleep)` gives p = 0.07939 and -3.3654832 to 0.2054832 for Student's data.
        let one = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
        let other = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
        let close = |contrast: Contrast, change: fn(f64) -> f64| {
            let [low, high] = contrast.interval.map(change);
            assert!((contrast.p - 0.07939).abs() < 1e-5, "{contrast:?}");
            assert!((low + 3.365_483_2).abs() < 1e-5 && (high - 0.205_483_2).abs() < 1e-5);
            assert_eq!(contrast.finding(), None);
        };
        close(family(&[difference(&other, &one)])[0].unwrap(), |end| end);
        let grown = [other, one].map(|values| values.map(f64::exp));
        close(family(&[ratio(&grown[0], &grown[1])])[0].unwrap(), f64::ln);
    }

    #[test]
    fn more_comparisons_have_wider_intervals_and_greater_p_values() {
        let (base, values) = ([1.0, 1.1, 1.2, 0.9, 1.0], [1.5, 1.4, 1.7, 1.6, 1.5]);
        let alone = family(&[ratio(&base, &values)])[0].unwrap();
        let all = family(&[ratio(&base, &values); 10]);
        let among = all[0].unwrap();
        assert!((among.p - 10.0 * alone.p).abs() < 1e-12);
        assert!(among.interval[0] < alone.interval[0] && among.interval[1] > alone.interval[1]);
        assert!((among.estimate - alone.estimate).abs() < 1e-12);
        assert_eq!(among.finding(), Some(Ordering::Greater));
        let back = family(&[ratio(&values, &base)])[0].unwrap();
        assert!((back.estimate * alone.estimate - 1.0).abs() < 1e-12);
        assert_eq!(back.finding(), Some(Ordering::Less));
    }

    #[test]
    fn an_interval_excludes_no_difference_exactly_if_one_was_found() {
        let (mut cut, mut found) = (0, 0);
        for experiment in 0..300 {
            // The sixteen great differences leave the other two almost alone.
            let samples: Vec<[Vec<f64>; 2]> = (0..18)
                .map(|pair| {
                    let seed = 1_000 * experiment + 2 * pair;
                    let median = if pair < 16 { 3.0 } else { 1.15 };
                    [
                        around(1.0, 0.05, seed, 5),
                        around(median, 0.05, seed + 1, 5),
                    ]
                })
                .collect();
            let pairs: Vec<SamplePair<'_>> = samples.iter().map(|[a, b]| ratio(a, b)).collect();
            for contrast in family(&pairs).into_iter().flatten() {
                let [low, high] = contrast.interval;
                let excludes = low >= 1.0 || high <= 1.0;
                assert_eq!(excludes, contrast.finding().is_some(), "{contrast:?}");
                assert!(low <= contrast.estimate && contrast.estimate <= high);
                found += u32::from(excludes);
                cut += u32::from(excludes && (low == 1.0 || high == 1.0));
            }
        }
        assert!(cut > 10 && found > 300 * 16, "{cut} {found}");
    }

    #[test]
    fn pairs_that_cannot_be_compared_do_not_count() {
        let (few, zero, enough) = ([1.0, 2.0, 3.0], [0.0, 1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0]);
        let infinite = [1.0, 2.0, 3.0, f64::INFINITY];
        let huge = [1e308, 1.7e308, 1e308, 1.7e308];
        let found = family(&[
            ratio(&few, &few),
            ratio(&zero, &enough),
            ratio(&enough, &infinite),
            difference(&huge, &enough),
            ratio(&enough, &enough),
        ]);
        let alone = family(&[ratio(&enough, &enough)]);
        assert_eq!(found, [None, None, None, None, alone[0]]);
        assert!(family(&[]).is_empty());
        assert!(has_enough([4, 4]) && has_enough([3, 7]));
        assert!(!has_enough([3, 4]) && !has_enough([1, 1_000]) && !has_enough([0, 60]));
    }

    #[test]
    fn values_that_do_not_scatter_have_an_interval_without_width() {
        let found = family(&[
            difference(&[0.0; 5], &[1.0; 5]),
            ratio(&[2.0; 5], &[2.0; 5]),
        ]);
        let [other, same] = [found[0].unwrap(), found[1].unwrap()];
        assert_eq!((other.estimate, other.interval), (1.0, [1.0, 1.0]));
        assert_eq!(other.finding(), Some(Ordering::Greater));
        assert_eq!((same.estimate, same.interval), (1.0, [1.0, 1.0]));
        assert_eq!(same.finding(), None);
    }

    #[test]
    fn all_intervals_together_contain_the_true_ratios_in_95_percent() {
        // Half of the eighteen pairs differ. These are the figures in docs/statistics.md. All draws are of one stream,
        // because those of neighbouring seeds are not independent.
        const EXPERIMENTS: usize = 2_000;
        let medians = [1.0, 1.3].repeat(9);
        let mut draws = draws(1, EXPERIMENTS * medians.len() * 10).into_iter();
        let mut held = 0;
        for _ in 0..EXPERIMENTS {
            let mut around = |median: f64| -> Vec<f64> {
                let own = draws.by_ref().take(5);
                own.map(|draw| median * (0.1 * draw).exp()).collect()
            };
            let samples: Vec<[Vec<f64>; 2]> = medians
                .iter()
                .map(|median| [around(1.0), around(*median)])
                .collect();
            let pairs: Vec<SamplePair<'_>> = samples.iter().map(|[a, b]| ratio(a, b)).collect();
            let contrasts = family(&pairs).into_iter().flatten();
            let mut all = contrasts.zip(&medians);
            let holds = |(contrast, median): (Contrast, &f64)| {
                let [low, high] = contrast.interval;
                low <= *median && *median <= high
            };
            held += u32::from(all.all(holds));
        }
        assert!(held >= 1_880, "{held} of 2000");
    }
}
