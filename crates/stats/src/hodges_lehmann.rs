//! By how much one sample lies above or below another, and whether that is more than chance.

use super::mann_whitney::{self, AT_95};
use super::{order_statistics, pairs};

/// The Hodges–Lehmann shift of a sample against a reference: the median of the differences of all pairs, and its 95 % interval
/// out of the same differences (J. L. Hodges and E. L. Lehmann, "Estimates of location based on rank tests", 1963). It
/// supposes that values are independent, as those of separate runs are, and of no distribution of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Shift {
    /// Values in the reference and in the sample.
    pub counts: [usize; 2],
    /// In the values' unit.
    pub absolute: ShiftEstimate,
    /// In percent of the reference; absent unless all values are above 0.
    ///
    /// Taken of the ratios of all pairs as the absolute one is of the differences, so that its interval is that of a common
    /// factor, in which the reference is as unsure as the sample. (The shift over the reference's median would take that
    /// median for known.) Both show a difference or neither does: a ratio is above 1 where the difference is above 0. Of
    /// two middle ratios it is the geometric mean, so that twice as fast and half as fast undo each other.
    pub percent: Option<ShiftEstimate>,
}

/// So many values in each sample have an interval, whatever they are.
const ENOUGH: usize = 4;

/// A value and between which it lies at 95 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShiftEstimate {
    /// The estimate.
    pub value: f64,
    /// Absent where there are too few values for 95 %: 3 and 4, or 2 and 7.
    pub interval: Option<[f64; 2]>,
}

/// What a shift shows.
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

/// In which words a metric grows.
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
    /// Of `sample` against `reference`, in any order; nothing when one of them is empty or holds a value that is not finite.
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

    /// What it shows at 95 %.
    pub fn change(&self) -> ShiftVerdict {
        match self.absolute.interval {
            None => ShiftVerdict::TooFew,
            Some([low, _]) if low > 0.0 => ShiftVerdict::Greater,
            Some([_, high]) if high < 0.0 => ShiftVerdict::Smaller,
            Some(_) => ShiftVerdict::NotShown,
        }
    }

    /// How many values each sample must have for an interval, when one that has more keeps them: 4 against 4, 3 against 7.
    pub fn enough(&self) -> usize {
        let [reference, sample] = self.counts;
        (reference.min(sample)..ENOUGH)
            .find(|least| {
                let (reference, sample) = (reference.max(*least), sample.max(*least));
                mann_whitney::interval_rank(reference, sample, AT_95).is_some()
            })
            .unwrap_or(ENOUGH)
    }

    /// In plain words: "12.3 % slower, 95 % interval 11.8 to 12.9"; in `unit` where there is no percentage, and of what is
    /// itself a percentage in percentage points.
    pub fn words(&self, sense: Sense, unit: &str) -> String {
        let (estimate, unit) = match (self.percent, unit) {
            (_, "%") => (self.absolute, "percentage points"),
            (Some(percent), _) => (percent, "%"),
            (None, unit) => (self.absolute, unit),
        };
        let [reference, sample] = self.counts;
        let Some([low, high]) = estimate.interval else {
            let value = estimate.value;
            return format!(
                "{value:+.1} {unit}; too few runs for an interval ({reference} and {sample})"
            );
        };
        let digits = digits(high - low);
        let greater = match self.change() {
            ShiftVerdict::Greater => true,
            ShiftVerdict::Smaller => false,
            ShiftVerdict::NotShown | ShiftVerdict::TooFew => {
                return format!("no difference shown: {low:+.digits$} to {high:+.digits$} {unit}");
            }
        };
        let (near, far) = if greater { (low, high) } else { (high, low) };
        let (value, near, far) = (estimate.value.abs(), near.abs(), far.abs());
        let word = sense.word(greater);
        format!("{value:.digits$} {unit} {word}, 95 % interval {near:.digits$} to {far:.digits$}")
    }
}

/// The median over all pairs, two middle ones joined by `middle`, and the interval whose lower end has this rank.
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

/// Decimals that show an interval of this width: one, or as many as it takes to tell its ends apart, four at most.
fn digits(width: f64) -> usize {
    (1..4)
        .find(|digits| width >= 0.1_f64.powi(*digits))
        .map_or(if width > 0.0 { 4 } else { 1 }, |digits| {
            digits.unsigned_abs() as usize
        })
}

impl ShiftEstimate {
    fn map(self, change: impl Fn(f64) -> f64) -> Self {
        Self {
            value: change(self.value),
            interval: self.interval.map(|ends| ends.map(&change)),
        }
    }
}

impl Sense {
    fn word(self, greater: bool) -> &'static str {
        match (self, greater) {
            (Self::Time, true) | (Self::Rate, false) => "slower",
            (Self::Time, false) | (Self::Rate, true) => "faster",
            (Self::Amount, true) => "more",
            (Self::Amount, false) => "less",
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
    fn a_factor_and_its_reciprocal_undo_each_other() {
        let (a, b) = ([1.0, 1.1, 1.3, 0.9], [2.2, 2.1, 1.9, 2.7]);
        let factor = |reference, sample| {
            let percent = Shift::of(reference, sample).unwrap().percent.unwrap();
            percent.value / 100.0 + 1.0
        };
        assert!((factor(&a, &b) * factor(&b, &a) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn the_words_fit_the_metric() {
        let reference = [100.0, 100.1, 100.2, 100.3, 100.4];
        let more = reference.map(|value| value * 1.1);
        let shift = Shift::of(&reference, &more).unwrap();
        let slower = "10.0 % slower, 95 % interval 9.7 to 10.3";
        assert_eq!(shift.words(Sense::Time, "ms"), slower);
        assert!(shift.words(Sense::Rate, "bit/s").contains("faster"));
        assert!(shift.words(Sense::Amount, "packets").contains("more"));
        let less = Shift::of(&more, &reference).unwrap();
        let slower = "9.1 % slower, 95 % interval 8.8 to 9.4";
        assert_eq!(less.words(Sense::Rate, "bit/s"), slower);
        assert!(less.words(Sense::Time, "ms").contains("faster"));
    }

    #[test]
    fn a_change_of_a_percentage_is_in_points() {
        let shift = Shift::of(&[2.0; 4], &[3.0, 3.1, 3.1, 3.3]).unwrap();
        let words = shift.words(Sense::Amount, "%");
        let points = "1.1 percentage points more, 95 % interval 1.0 to 1.3";
        assert_eq!(words, points);
    }

    #[test]
    fn what_is_not_shown_is_not_said() {
        let values = [10.0, 10.01, 9.99, 10.02, 9.98];
        let none = Shift::of(&values, &values).unwrap();
        let words = none.words(Sense::Time, "ms");
        assert_eq!(words, "no difference shown: -0.3 to +0.3 %");
        let few = Shift::of(&values[..2], &values[..2]).unwrap();
        assert_eq!(few.change(), ShiftVerdict::TooFew);
        let words = few.words(Sense::Time, "ms");
        assert_eq!(words, "+0.0 %; too few runs for an interval (2 and 2)");
        let same = Shift::of(&[5.0; 4], &[5.0; 4]).unwrap();
        let words = same.words(Sense::Time, "ms");
        assert_eq!(words, "no difference shown: +0.0 to +0.0 %");
    }

    #[test]
    fn how_many_values_are_enough_follows_from_those_that_are_there() {
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
    fn against_nothing_there_is_no_percentage() {
        let shift = Shift::of(&[0.0; 4], &[0.5, 0.6, 0.8, 0.9]).unwrap();
        assert_eq!(shift.percent, None);
        let words = shift.words(Sense::Amount, "percentage points");
        assert_eq!(
            words,
            "0.7 percentage points more, 95 % interval 0.5 to 0.9"
        );
    }

    #[test]
    fn the_interval_holds_the_true_shift_in_95_percent() {
        // 8 and 8, whose interval covers 95.0 %, and 12 and 20, with 95.1 %.
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
