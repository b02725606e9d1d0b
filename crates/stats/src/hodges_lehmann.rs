//! The shift of one sample against another, and its significance.

use super::mann_whitney::{self, AT_95};
use super::{order_statistics, pairs};

/// The Hodges–Lehmann shift of a sample against a reference: the median of the differences of all pairs, with a 95 %
/// interval from the same differences (J. L. Hodges and E. L. Lehmann, "Estimates of location based on rank tests",
/// 1963). It assumes independent values, such as those of separate runs, and no particular distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct Shift {
    /// The numbers of values in the reference and in the sample.
    pub counts: [usize; 2],
    /// The shift in the values' unit.
    pub absolute: ShiftEstimate,
    /// The shift in percent of the reference; `None` unless all values are above 0.
    ///
    /// It is computed from the ratios of all pairs as the absolute shift is from the differences, so that its interval
    /// is that of a common factor, in which the reference is as uncertain as the sample. (The shift divided by the
    /// reference's median would treat that median as exact.) Both show a difference or neither does: a ratio is above 1
    /// if the difference is above 0. Of two middle ratios it takes the geometric mean, so that twice as fast and half
    /// as fast cancel.
    pub percent: Option<ShiftEstimate>,
}

/// The number of values in each sample that always have an interval.
pub(crate) const SUFFICIENT_VALUES: usize = 4;

/// An estimate with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShiftEstimate {
    /// The estimate.
    pub value: f64,
    /// The 95 % interval; `None` if there are too few values, such as 3 and 4, or 2 and 7.
    pub interval: Option<[f64; 2]>,
}

/// The result that a shift shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShiftVerdict {
    /// Too few values for an interval.
    TooFew,
    /// 0 lies in the interval.
    NotShown,
    /// The whole interval is above 0.
    Greater,
    /// The whole interval is below 0.
    Smaller,
}

/// The direction in which a metric improves, and the words for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sense {
    /// Greater is slower.
    Time,
    /// Greater is faster.
    Rate,
    /// Greater is more.
    Amount,
}

impl Shift {
    /// Computes the shift of `sample` against `reference`, each in any order; `None` if one of them is empty or has a
    /// value that is not finite.
    pub fn of(reference: &[f64], sample: &[f64]) -> Option<Self> {
        let mut all = reference.iter().chain(sample);
        if reference.is_empty() || sample.is_empty() || !all.all(|value| value.is_finite()) {
            return None;
        }
        let (lower, upper) = (
            order_statistics::sorted(reference),
            order_statistics::sorted(sample),
        );
        let rank = mann_whitney::interval_rank(lower.len(), upper.len(), AT_95);
        let positive = lower[0] > 0.0 && upper[0] > 0.0;
        let percent = positive.then(|| {
            let ratio = estimate(&upper, &lower, |b, a| b / a, |x, y| (x * y).sqrt(), rank);
            ratio.map(|ratio| (ratio - 1.0) * 100.0)
        });
        Some(Self {
            counts: [lower.len(), upper.len()],
            absolute: estimate(&upper, &lower, |b, a| b - a, f64::midpoint, rank),
            percent,
        })
    }

    /// Returns what it shows at 95 %.
    pub fn change(&self) -> ShiftVerdict {
        match self.absolute.interval {
            None => ShiftVerdict::TooFew,
            Some([low, _]) if low > 0.0 => ShiftVerdict::Greater,
            Some([_, high]) if high < 0.0 => ShiftVerdict::Smaller,
            Some(_) => ShiftVerdict::NotShown,
        }
    }

    /// Returns the number of values that each sample needs for an interval, if a sample that has more keeps them: 4
    /// against 4, 3 against 7.
    pub fn enough(&self) -> usize {
        let [reference, sample] = self.counts;
        (reference.min(sample)..SUFFICIENT_VALUES)
            .find(|least| {
                let (reference, sample) = (reference.max(*least), sample.max(*least));
                mann_whitney::interval_rank(reference, sample, AT_95).is_some()
            })
            .unwrap_or(SUFFICIENT_VALUES)
    }
}

/// Returns the median over all pairs, two middle ones joined by `middle`, and the interval whose lower end has this
/// rank.
fn estimate(
    upper: &[f64],
    lower: &[f64],
    of: fn(f64, f64) -> f64,
    middle: fn(f64, f64) -> f64,
    rank: Option<usize>,
) -> ShiftEstimate {
    let count = upper.len() * lower.len();
    let nth = |rank| pairs::nth(upper, lower, of, rank);
    ShiftEstimate {
        value: middle(nth(count.div_ceil(2)), nth(count / 2 + 1)),
        interval: rank.map(|rank| [nth(rank), nth(count + 1 - rank)]),
    }
}

impl ShiftEstimate {
    fn map(self, change: impl Fn(f64) -> f64) -> Self {
        Self {
            value: change(self.value),
            interval: self.interval.map(|ends| ends.map(&change)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::draws;

    #[test]
    fn the_shift_is_the_median_of_all_differences() {
        let shift = Shift::of(&[1.0, 2.0, 3.0, 4.0], &[2.5, 3.5, 4.5, 5.5]).unwrap();
        assert_eq!(shift.counts, [4, 4]);
        assert_eq!(shift.absolute.value, 1.5);
        assert_eq!(shift.absolute.interval, Some([-1.5, 4.5]));
        assert_eq!(shift.change(), ShiftVerdict::NotShown);
        assert_eq!(Shift::of(&[], &[1.0]), None);
        assert_eq!(Shift::of(&[1.0], &[f64::INFINITY]), None);
    }

    #[test]
    fn a_factor_and_its_reciprocal_cancel() {
        let (a, b) = ([1.0, 1.1, 1.3, 0.9], [2.2, 2.1, 1.9, 2.7]);
        let factor = |reference, sample| {
            let percent = Shift::of(reference, sample).unwrap().percent.unwrap();
            percent.value / 100.0 + 1.0
        };
        assert!((factor(&a, &b) * factor(&b, &a) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn the_sufficient_number_of_values_follows_from_the_present_ones() {
        let enough = |m, n| Shift::of(&vec![1.0; m], &vec![2.0; n]).unwrap().enough();
        assert_eq!(enough(3, 3), 4);
        assert_eq!(enough(1, 1), 4);
        assert_eq!(enough(3, 4), 4);
        assert_eq!(enough(2, 7), 3);
        assert_eq!(enough(2, 8), 2);
        for (m, n) in [(1, 1), (3, 3), (2, 7), (1, 30), (1, 1000)] {
            let least = enough(m, n);
            let more = Shift::of(&vec![1.0; m.max(least)], &vec![2.0; n.max(least)]).unwrap();
            assert_ne!(more.change(), ShiftVerdict::TooFew, "{m} and {n}: {least}");
        }
    }

    #[test]
    fn equal_samples_show_no_shift_and_a_base_of_0_has_no_percentage() {
        let values = [10.0, 10.01, 9.99, 10.02, 9.98];
        assert_eq!(
            Shift::of(&values, &values).unwrap().change(),
            ShiftVerdict::NotShown
        );
        let few = Shift::of(&values[..2], &values[..2]).unwrap();
        assert_eq!(few.change(), ShiftVerdict::TooFew);
        assert_eq!(
            Shift::of(&[0.0; 4], &[0.5, 0.6, 0.8, 0.9]).unwrap().percent,
            None
        );
    }

    #[test]
    fn the_interval_contains_the_true_shift_in_95_percent() {
        // The interval covers 95.0 % with 8 and 8 values, and 95.1 % with 12 and 20.
        for (m, n) in [(8, 8), (12, 20)] {
            let holds = |seed| {
                let shift = Shift::of(&draws(seed, m), &draws(seed + 1_000_000, n));
                let [low, high] = shift.unwrap().absolute.interval.unwrap();
                low <= 0.0 && 0.0 <= high
            };
            let held = (0..4000).filter(|seed| holds(*seed)).count();
            let percent = held as f64 / 40.0;
            assert!((percent - 95.0).abs() < 1.5, "{m} and {n}: {percent} %");
        }
    }
}
