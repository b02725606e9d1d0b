//! The change from the mean of one sample to the mean of another, for display next to two means.

use statrs::distribution::{ContinuousCDF as _, StudentsT};

use crate::digits::{decimals, fixed, signed, significant};
use crate::hodges_lehmann::{Sense, Shift, ShiftVerdict};
use crate::mann_whitney::{self, AT_95};
use crate::t_interval;

/// The change from the mean of a reference to the mean of a sample, with a 95 % interval.
///
/// The interval of the difference is Welch's (B. L. Welch, "The generalization of 'Student's' problem when several
/// different population variances are involved", 1947). The interval of the factor is the same on the logarithms of the
/// two means, whose standard errors are the means' standard errors divided by the means (the delta method). Both assume
/// independent values, such as those of separate runs. There is no interval where a rank test could have none, for
/// example with three runs each, because Student's t of so few values depends only on their distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The numbers of values in the reference and in the sample.
    pub counts: [usize; 2],
    /// The means of the reference and of the sample.
    pub means: [f64; 2],
    /// The mean of the sample minus that of the reference, in the values' unit.
    pub difference: ChangeEstimate,
    /// The mean of the sample divided by that of the reference; `None` if one of them is near 0 (`NEAR_ZERO`,
    /// `STANDARD_ERRORS`).
    pub factor: Option<ChangeEstimate>,
}

/// An estimate with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChangeEstimate {
    /// The estimate.
    pub value: f64,
    /// The 95 % interval; `None` if there are too few values.
    pub interval: Option<[f64; 2]>,
}

/// The form in which a change is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeForm {
    /// Percentage points, for values that are percentages.
    Points,
    /// Percent of the reference.
    Percent,
    /// A factor, if one mean is more than twice the other.
    Factor,
    /// The values' own unit, if one of the means is near 0.
    Difference,
}

/// The part of [`Change::words`], after the estimate, that says why there is no interval.
pub const TOO_FEW: &str = "; too few runs for an interval";
/// The share of the other mean below which a mean is near 0: a factor between them would then only show how small it
/// is.
const NEAR_ZERO: f64 = 0.01;
/// The number of its standard errors from 0 within which a mean also counts as near 0.
const STANDARD_ERRORS: f64 = 3.0;
/// The ratio of the means above which a change is printed as a factor.
const MAX_RATIO_IN_PERCENT: f64 = 2.0;
/// The number of decimal places of a value in percent or points without an interval.
const PLAIN: i32 = 1;

/// A mean, the square of its standard error, and its degrees of freedom.
#[derive(Clone, Copy)]
struct Mean {
    value: f64,
    square: f64,
    degrees: f64,
}

impl Change {
    /// Computes the change from `reference` to `sample`; `None` if one of them is empty or has a value that is not
    /// finite.
    pub fn of(reference: &[f64], sample: &[f64]) -> Option<Self> {
        let mut all = reference.iter().chain(sample);
        if !all.all(|value| value.is_finite()) {
            return None;
        }
        let [before, after] = [Mean::of(reference)?, Mean::of(sample)?];
        let counts = [reference.len(), sample.len()];
        let is_enough = mann_whitney::interval_rank(counts[0], counts[1], AT_95).is_some();
        let estimate = |value: f64, of: [Mean; 2]| ChangeEstimate {
            value,
            interval: welch(value, of).filter(|_| is_enough),
        };
        let difference = estimate(after.value - before.value, [before, after]);
        let is_near_zero = before.is_near_zero(after) || after.is_near_zero(before);
        let factor = (!is_near_zero).then(|| {
            let logarithm = (after.value / before.value).ln();
            let relative = [before, after].map(Mean::of_logarithm);
            let estimate = estimate(logarithm, relative);
            ChangeEstimate {
                value: after.value / before.value,
                interval: estimate.interval.map(|ends| ends.map(f64::exp)),
            }
        });
        Some(Self {
            counts,
            means: [before.value, after.value],
            difference,
            factor,
        })
    }

    /// Returns the form in which it is printed for values in this unit.
    pub fn form(&self, unit: &str) -> ChangeForm {
        match self.factor {
            _ if unit == "%" => ChangeForm::Points,
            None => ChangeForm::Difference,
            Some(factor) if factor.value.max(1.0 / factor.value) > MAX_RATIO_IN_PERCENT => {
                ChangeForm::Factor
            }
            Some(_) => ChangeForm::Percent,
        }
    }

    /// Returns it in percent of the reference; `None` if a mean is near 0.
    pub fn percent(&self) -> Option<ChangeEstimate> {
        let percent = |factor: f64| (factor - 1.0) * 100.0;
        self.factor.map(|factor| factor.map(percent))
    }

    /// Returns what it shows at 95 %, in the form in which it is printed.
    pub fn verdict(&self, unit: &str) -> ShiftVerdict {
        let (estimate, nothing) = match (self.form(unit), self.factor) {
            (ChangeForm::Percent | ChangeForm::Factor, Some(factor)) => (factor, 1.0),
            _ => (self.difference, 0.0),
        };
        match estimate.interval {
            None => ShiftVerdict::TooFew,
            Some([low, _]) if low > nothing => ShiftVerdict::Greater,
            Some([_, high]) if high < nothing => ShiftVerdict::Smaller,
            Some(_) => ShiftVerdict::NotShown,
        }
    }

    /// Returns whether the means and the shift between the two samples have opposite signs and one of them is
    /// significant: the distributions then differ in shape, and no single number gives the change.
    pub fn differs_in_shape(&self, shift: &Shift, unit: &str) -> bool {
        let is_shown = [self.verdict(unit), shift.change()]
            .iter()
            .any(|verdict| matches!(verdict, ShiftVerdict::Greater | ShiftVerdict::Smaller));
        is_shown && self.difference.value * shift.absolute.value < 0.0
    }

    /// Returns the estimate in the form in which it is printed, with its unit. The argument has the display unit of the
    /// values, and its size in the values' own unit.
    pub fn printed<'u>(&self, (by, unit): (f64, &'u str)) -> (ChangeEstimate, &'u str) {
        match (self.form(unit), self.factor, self.percent()) {
            (ChangeForm::Factor, Some(factor), _) => (factor, "times"),
            (ChangeForm::Percent, _, Some(percent)) => (percent, "%"),
            (ChangeForm::Points, ..) => (self.difference, "percentage points"),
            _ => (self.difference.map(|value| value / by), unit),
        }
    }

    /// Writes it in plain words: "12.3 % lower, 95 % interval 11.8 to 12.9"; "3.2 times as long"; "10.00 ms longer".
    /// The last argument has the display unit of the values, and its size in the values' own unit.
    pub fn words(&self, sense: Sense, (by, unit): (f64, &str)) -> String {
        let form = self.form(unit);
        let (estimate, shown_unit) = self.printed((by, unit));
        let alone = || {
            let short = self.short((by, unit));
            match form {
                ChangeForm::Factor => format!("{short} times {}", as_much(sense)),
                ChangeForm::Difference => short,
                ChangeForm::Percent | ChangeForm::Points => format!("{short} {shown_unit}"),
            }
        };
        let Some([low, high]) = estimate.interval else {
            let [reference, sample] = self.counts;
            return format!("{}{TOO_FEW} ({reference} and {sample})", alone());
        };
        // No value scatters, so the interval has no width.
        if low == high {
            let [reference, sample] = self.means;
            return if reference == sample {
                "no difference".to_owned()
            } else {
                alone()
            };
        }
        let places = estimate.places();
        let shown = |value: f64| fixed(value, places);
        if form == ChangeForm::Factor {
            let (value, low, high) = (shown(estimate.value), shown(low), shown(high));
            return match self.verdict(unit) {
                ShiftVerdict::NotShown | ShiftVerdict::TooFew => {
                    format!(
                        "no difference shown: {low} to {high} times {}",
                        as_much(sense)
                    )
                }
                ShiftVerdict::Greater | ShiftVerdict::Smaller => format!(
                    "{value} times {}, 95 % interval {low} to {high}",
                    as_much(sense)
                ),
            };
        }
        let is_greater = low > 0.0;
        if !is_greater && high >= 0.0 {
            return format!(
                "no difference shown: {} to {} {shown_unit}",
                signed(low, places),
                signed(high, places)
            );
        }
        let [near, far] = if is_greater { [low, high] } else { [high, low] };
        format!(
            "{} {shown_unit} {}, 95 % interval {} to {}",
            shown(estimate.value.abs()),
            more(sense, is_greater),
            shown(near.abs()),
            shown(far.abs())
        )
    }

    /// Writes only the estimate, for a column of percentages or percentage points: "+12.3", "×3.2", "+10.0 ms".
    pub fn in_column(&self, (by, unit): (f64, &str)) -> String {
        let short = self.short((by, unit));
        match self.form(unit) {
            ChangeForm::Factor => format!("×{short}"),
            ChangeForm::Points | ChangeForm::Percent | ChangeForm::Difference => short,
        }
    }

    fn short(&self, (by, unit): (f64, &str)) -> String {
        match (self.form(unit), self.factor, self.percent()) {
            (ChangeForm::Factor, Some(factor), _) => fixed(factor.value, factor.places()),
            (ChangeForm::Percent, _, Some(percent)) => signed(percent.value, percent.places()),
            (ChangeForm::Points, ..) => signed(self.difference.value, self.difference.places()),
            _ => {
                let difference = self.difference.map(|value| value / by);
                let value = signed(difference.value, difference.places());
                format!("{value} {unit}").trim_end().to_owned()
            }
        }
    }
}

impl ChangeEstimate {
    fn map(self, change: impl Fn(f64) -> f64) -> Self {
        Self {
            value: change(self.value),
            interval: self.interval.map(|ends| ends.map(&change)),
        }
    }

    /// Returns the number of decimal places that show half of its interval with two digits; without an interval, those
    /// that show the value with two digits, but at least one.
    pub fn places(&self) -> i32 {
        let half = self.interval.map(|[low, high]| (high - low) / 2.0);
        match half.and_then(decimals) {
            Some(places) => places,
            None => significant(self.value, 2).unwrap_or(PLAIN).clamp(PLAIN, 3),
        }
    }
}

impl Mean {
    fn of(values: &[f64]) -> Option<Self> {
        let count = values.len() as f64;
        // Rounding would give equal values a scatter.
        let sd = t_interval::sample_sd(values).filter(|_| t_interval::differ(values));
        let sd = sd.unwrap_or_default();
        Some(Self {
            value: t_interval::mean(values)?,
            square: sd * sd / count,
            degrees: count - 1.0,
        })
    }

    fn is_near_zero(self, other: Self) -> bool {
        self.value <= NEAR_ZERO * other.value || self.value <= STANDARD_ERRORS * self.square.sqrt()
    }

    /// Returns the mean of its logarithm, with the variance by the delta method.
    fn of_logarithm(self) -> Self {
        Self {
            value: self.value.ln(),
            square: self.square / (self.value * self.value),
            ..self
        }
    }
}

/// Returns Welch's 95 % interval about `value`, which is a difference of two means.
fn welch(value: f64, [before, after]: [Mean; 2]) -> Option<[f64; 2]> {
    let squares = before.square + after.square;
    // No value scatters.
    if squares == 0.0 {
        return Some([value; 2]);
    }
    let of = |mean: Mean| mean.square.powi(2) / mean.degrees;
    // A sample of one has no scatter, and is not included.
    let parts = [before, after].into_iter().filter(|mean| mean.square > 0.0);
    let degrees = squares.powi(2) / parts.map(of).sum::<f64>();
    let t = StudentsT::new(0.0, 1.0, degrees).ok()?.inverse_cdf(0.975);
    let half = t * squares.sqrt();
    Some([value - half, value + half])
}

/// Returns the end of a sentence such as "3.2 times as long".
pub fn as_much(sense: Sense) -> &'static str {
    match sense {
        Sense::Time => "as long",
        Sense::Rate => "as high",
        Sense::Amount => "as much",
    }
}

/// Returns the word for a change in this direction, as in "12.3 % lower".
pub fn more(sense: Sense, is_greater: bool) -> &'static str {
    match (sense, is_greater) {
        (Sense::Time, true) => "longer",
        (Sense::Time, false) => "shorter",
        (Sense::Rate | Sense::Amount, true) => "higher",
        (Sense::Rate | Sense::Amount, false) => "lower",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::draws;

    const MS: (f64, &str) = (1.0, "ms");
    const MBIT: (f64, &str) = (1e6, "Mbit/s");
    const PERCENT: (f64, &str) = (1.0, "%");

    fn change(reference: &[f64], sample: &[f64]) -> Change {
        Change::of(reference, sample).unwrap()
    }

    #[test]
    fn the_interval_of_the_difference_is_welchs() {
        // This is Student's data on sleep, for which R's `t.test(extra ~ group, data = sleep)` gives -3.3654832 to
        // 0.2054832 for 0.75 - 2.33.
        let one = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
        let other = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
        let found = change(&other, &one);
        assert!((found.difference.value + 1.58).abs() < 1e-12);
        let [low, high] = found.difference.interval.unwrap();
        assert!((low + 3.365_483_2).abs() < 1e-5 && (high - 0.205_483_2).abs() < 1e-5);
        // 0.75 is within three of its standard errors of 0, so it is not the base of a percentage.
        assert_eq!(found.form("h"), ChangeForm::Difference);
    }

    #[test]
    fn the_change_next_to_two_means_has_their_sign_and_size() {
        // The means are 961.8 and 934.2, which differ by 2.87 %; most of the pairs differ the other way.
        let before = [960.0, 961.0, 962.0, 961.0, 965.0].map(|rate| rate * 1e6);
        let after = [965.0, 966.0, 964.0, 965.0, 811.0].map(|rate| rate * 1e6);
        let found = change(&before, &after);
        assert!((found.means[0] - 961.8e6).abs() < 1.0 && (found.means[1] - 934.2e6).abs() < 1.0);
        let shift = Shift::of(&before, &after).unwrap();
        assert!(shift.absolute.value > 0.0);
        let percent = found.percent().unwrap();
        assert!((percent.value + 2.87).abs() < 0.005, "{}", percent.value);
        assert!(found.in_column(MBIT).starts_with('-'));
    }

    #[test]
    fn means_and_shift_of_opposite_signs_show_a_difference_in_shape() {
        let before = [100.0, 100.1, 100.2, 100.1, 100.0, 100.2];
        let after = [101.0, 101.1, 101.0, 101.2, 101.1, 60.0];
        let (found, shift) = (change(&before, &after), Shift::of(&before, &after).unwrap());
        assert_eq!(shift.change(), ShiftVerdict::NotShown);
        assert!(!found.differs_in_shape(&shift, "ms"));
        let after = [
            101.0, 101.1, 101.0, 101.2, 101.1, 101.0, 101.1, 101.2, 101.0, 60.0,
        ];
        let (found, shift) = (change(&before, &after), Shift::of(&before, &after).unwrap());
        assert_eq!(shift.change(), ShiftVerdict::Greater);
        assert!(found.difference.value < 0.0);
        assert!(found.differs_in_shape(&shift, "ms"));
    }

    #[test]
    fn a_loss_from_zero_is_given_in_percentage_points() {
        // The mean rises from 0 to 2.700 %; the shift of the pairs would be 3.0.
        let after = [1.2, 3.0, 3.0, 3.0, 3.3];
        let found = change(&[0.0; 5], &after);
        let words = found.words(Sense::Amount, PERCENT);
        assert_eq!(
            words,
            "2.7 percentage points higher, 95 % interval 1.6 to 3.8"
        );
        assert_eq!(found.in_column(PERCENT), "+2.7");
    }

    #[test]
    fn a_change_above_a_factor_of_two_is_a_factor_and_near_zero_a_difference() {
        // 9.98 to 10.1 are 22,122 % more than 0.045, which nobody would read as a percentage.
        let idle = [0.044, 0.045, 0.045, 0.045, 0.046];
        let loaded = [9.98, 10.01, 10.04, 10.07, 10.1];
        let found = change(&idle, &loaded);
        assert_eq!(found.form("ms"), ChangeForm::Difference);
        let words = found.words(Sense::Time, MS);
        assert!(
            words.starts_with("9.995 ms longer, 95 % interval 9.9"),
            "{words}"
        );
        let found = change(&[2.0, 2.1, 1.9, 2.0], &[6.4, 6.3, 6.5, 6.4]);
        assert_eq!(found.form("ms"), ChangeForm::Factor);
        let words = found.words(Sense::Time, MS);
        assert!(
            words.starts_with("3.20 times as long, 95 % interval 3."),
            "{words}"
        );
        assert_eq!(found.in_column(MS), "×3.20");
        let less = change(&[6.4, 6.3, 6.5, 6.4], &[2.0, 2.1, 1.9, 2.0]);
        let words = less.words(Sense::Rate, MBIT);
        assert!(
            words.starts_with("0.312 times as high") || words.starts_with("0.313 times as high"),
            "{words}"
        );
    }

    #[test]
    fn a_change_between_values_that_do_not_scatter_has_no_interval_in_words() {
        let packets = |before: f64, after: f64| {
            change(&[before; 5], &[after; 5]).words(Sense::Amount, (1.0, "packets"))
        };
        assert_eq!(packets(0.0, 5.0), "+5.0 packets");
        assert_eq!(packets(1.1, 1.1), "no difference");
        assert_eq!(packets(10.0, 1.0), "0.10 times as much");
    }

    #[test]
    fn a_factor_and_its_reciprocal_cancel() {
        let (a, b) = ([1.0, 1.1, 1.3, 0.9], [2.2, 2.1, 1.9, 2.7]);
        let [there, back] = [change(&a, &b), change(&b, &a)].map(|found| found.factor.unwrap());
        assert!((there.value * back.value - 1.0).abs() < 1e-12);
        let ([low, _], [_, high]) = (there.interval.unwrap(), back.interval.unwrap());
        assert!((low * high - 1.0).abs() < 1e-12);
    }

    #[test]
    fn an_insignificant_change_is_not_stated_and_too_few_runs_have_no_interval() {
        let values = [10.0, 10.01, 9.99, 10.02, 9.98];
        let none = change(&values, &values).words(Sense::Time, MS);
        assert_eq!(none, "no difference shown: -0.23 to +0.23 %");
        let few = change(&[10.0, 10.2], &[11.0, 11.2]).words(Sense::Time, MS);
        assert_eq!(few, "+9.9 %; too few runs for an interval (2 and 2)");
        let one = change(&[2.0], &[8.0]).words(Sense::Time, MS);
        assert_eq!(
            one,
            "4.0 times as long; too few runs for an interval (1 and 1)"
        );
        assert_eq!(Change::of(&[], &[1.0]), None);
        assert_eq!(Change::of(&[1.0], &[f64::NAN]), None);
    }

    #[test]
    fn the_intervals_contain_the_true_change_in_95_percent() {
        for (m, n, sd) in [(5, 5, 0.05), (5, 10, 0.2), (12, 20, 0.2)] {
            let mut held = [0; 2];
            for seed in 0..4_000 {
                let around = |mean: f64, seed, count| {
                    let draws = draws(seed, count).into_iter();
                    draws
                        .map(|draw| mean * (1.0 + sd * draw))
                        .collect::<Vec<f64>>()
                };
                let found = change(&around(10.0, seed, m), &around(13.0, seed + 1_000_000, n));
                let holds = |estimate: ChangeEstimate, truth: f64| {
                    let [low, high] = estimate.interval.unwrap();
                    u32::from(low <= truth && truth <= high)
                };
                held[0] += holds(found.difference, 3.0);
                held[1] += holds(found.factor.unwrap(), 1.3);
            }
            for held in held {
                let percent = f64::from(held) / 40.0;
                // Welch's interval for five and five values covers a little more.
                assert!(
                    (94.0..97.5).contains(&percent),
                    "{m} and {n}, {sd}: {percent} %"
                );
            }
        }
    }
}
