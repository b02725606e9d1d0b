//! Tests whether two samples differ, also among many such tests.

use statrs::distribution::{ContinuousCDF as _, StudentsT};

use super::t_interval;

/// Returns the two-sided p-value of equal means (B. L. Welch, "The generalization of 'Student's' problem when several
/// different population variances are involved", 1947). If all values are above 0, it compares their logarithms, so
/// that scatter in proportion to the value does not matter. Each sample needs two values, and all must be finite.
///
/// A rank test of so few values is not significant enough among many: with 6 against 6, its least p-value is 0.0022.
pub fn p_value(one: &[f64], other: &[f64]) -> Option<f64> {
    let mut all = one.iter().chain(other);
    if all.clone().any(|value| !value.is_finite()) {
        return None;
    }
    let logarithms = all.all(|value| *value > 0.0);
    let difference = if logarithms {
        let of = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<_>>();
        Difference::of(&of(one), &of(other))?
    } else {
        Difference::of(one, other)?
    };
    difference.p()
}

/// The difference of the means of two samples.
pub(crate) struct Difference {
    pub(crate) value: f64,
    /// Its standard error; 0 if no value scatters.
    pub(crate) error: f64,
    /// The degrees of freedom of Student's t for it; NaN if no value scatters.
    pub(crate) degrees: f64,
}

impl Difference {
    /// Computes by how much the mean of `values` lies above that of `base`; each needs two values.
    pub(crate) fn of(base: &[f64], values: &[f64]) -> Option<Self> {
        let of = |values: &[f64]| {
            let sd = t_interval::sample_sd(values)?;
            // The rounding error of a sum would make equal values scatter.
            let (mean, sd) = match values.first() {
                Some(first) if values.iter().all(|value| value == first) => (*first, 0.0),
                _ => (t_interval::mean(values)?, sd),
            };
            let count = values.len() as f64;
            Some((mean, sd * sd / count, count - 1.0))
        };
        let ((base, base_square, base_degrees), (mean, square, degrees)) = (of(base)?, of(values)?);
        let squares = base_square + square;
        Some(Self {
            value: mean - base,
            error: squares.sqrt(),
            degrees: squares.powi(2)
                / (base_square.powi(2) / base_degrees + square.powi(2) / degrees),
        })
    }

    /// Returns the two-sided p-value of no difference; `None` if the numbers are too large or too small for a test.
    pub(crate) fn p(&self) -> Option<f64> {
        // No value scatters.
        if self.error == 0.0 {
            return Some(if self.value == 0.0 { 1.0 } else { 0.0 });
        }
        Some(2.0 * self.student()?.sf(self.value.abs() / self.error))
    }

    /// Returns the interval beyond each end of which the true difference lies with the probability `beyond`; `None` if
    /// the numbers are too large or too small for one.
    pub(crate) fn interval(&self, beyond: f64) -> Option<[f64; 2]> {
        let half = match self.error {
            0.0 => 0.0,
            error => -self.student()?.inverse_cdf(beyond) * error,
        };
        Some([self.value - half, self.value + half])
    }

    /// Returns Student's t for the difference over its standard error.
    fn student(&self) -> Option<StudentsT> {
        let mut numbers = [self.value, self.error, self.degrees].into_iter();
        let t = StudentsT::new(0.0, 1.0, self.degrees).ok();
        t.filter(|_| numbers.all(f64::is_finite))
    }
}

/// Returns the p-values adjusted for their number (S. Holm, "A simple sequentially rejective multiple test procedure",
/// 1979). If only adjusted values up to 5 % count as significant, a family of tests without any difference has a
/// significant one in at most 5 % of cases.
pub fn holm(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut adjusted = vec![1.0; values.len()];
    let mut greatest: f64 = 0.0;
    for (rank, at) in order.into_iter().enumerate() {
        greatest = greatest.max(values[at] * (values.len() - rank) as f64);
        adjusted[at] = greatest.min(1.0);
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::draws;

    #[test]
    fn the_p_value_is_welchs() {
        // "Student", "The probable error of a mean", 1908: R's `t.test(extra ~ group, data = sleep)` gives t = -1.8608,
        // 17.776 degrees of freedom, p = 0.07939.
        let one = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
        let other = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
        assert!((p_value(&one, &other).unwrap() - 0.07939).abs() < 1e-5);
        let grown = |values: [f64; 10]| values.map(f64::exp);
        assert!((p_value(&grown(one), &grown(other)).unwrap() - 0.07939).abs() < 1e-5);
    }

    #[test]
    fn equal_values_have_a_p_value_of_zero_or_one() {
        assert_eq!(p_value(&[0.0; 5], &[0.0; 5]), Some(1.0));
        assert_eq!(p_value(&[0.0; 5], &[1.0; 5]), Some(0.0));
        // Sums of these have rounding errors.
        assert_eq!(p_value(&[0.1; 5], &[0.1; 7]), Some(1.0));
        assert_eq!(p_value(&[0.1; 5], &[0.3; 7]), Some(0.0));
        assert_eq!(p_value(&[1.0], &[1.0, 2.0]), None);
        assert_eq!(p_value(&[1.0, f64::NAN], &[1.0, 2.0]), None);
    }

    #[test]
    fn holm_multiplies_each_p_value_by_the_number_of_those_left() {
        // These are 0.01 * 4, 0.02 * 3, 0.03 * 2 (but at least the one before), and 0.5.
        assert_eq!(holm(&[0.03, 0.01, 0.5, 0.02]), [0.06, 0.04, 0.5, 0.06]);
        assert_eq!(holm(&[0.9, 0.8]), [1.0, 1.0]);
        assert_eq!(holm(&[]), [0.0; 0]);
    }

    #[test]
    fn the_p_value_is_uniform_under_no_difference() {
        let below = |p: f64| {
            let mut count = 0;
            for seed in 0..4_000 {
                let (one, other) = (draws(seed, 5), draws(seed + 1_000_000, 7));
                count += u32::from(p_value(&one, &other).unwrap() <= p);
            }
            f64::from(count) / 4_000.0
        };
        for p in [0.05, 0.5] {
            assert!((below(p) - p).abs() < 0.02, "{p}: {}", below(p));
        }
    }
}
