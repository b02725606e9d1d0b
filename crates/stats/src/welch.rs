//! Whether two samples differ, and how sure one can be of that among many such questions.

use statrs::distribution::{ContinuousCDF as _, StudentsT};

use super::t_interval;

/// The two-sided p of no difference between the means of what both are draws of (B. L. Welch, "The generalization of
/// 'Student's' problem when several different population variances are involved", 1947); of the logarithms where all values are
/// above 0, so that scatter in proportion to the value does not matter. Two values each at least, all finite.
///
/// A rank test of so few values cannot be sure enough among many: of 6 against 6 its least p is 0.0022.
pub fn p_value(one: &[f64], other: &[f64]) -> Option<f64> {
    let mut all = one.iter().chain(other);
    if all.clone().any(|value| !value.is_finite()) {
        return None;
    }
    let logarithms = all.all(|value| *value > 0.0);
    let difference = match logarithms {
        true => {
            let of = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<_>>();
            Difference::of(&of(one), &of(other))?
        }
        false => Difference::of(one, other)?,
    };
    // Nothing scatters.
    if difference.error == 0.0 {
        return Some(if difference.value == 0.0 { 1.0 } else { 0.0 });
    }
    let t = StudentsT::new(0.0, 1.0, difference.degrees).ok()?;
    Some(2.0 * t.sf(difference.value.abs() / difference.error))
}

/// How far the mean of one sample lies above that of another.
pub(crate) struct Difference {
    pub(crate) value: f64,
    /// Its standard error; 0 where nothing scatters.
    pub(crate) error: f64,
    /// Degrees of freedom of Student's t for it; not a number where nothing scatters.
    pub(crate) degrees: f64,
}

impl Difference {
    /// Of `values` above `base`, two each at least.
    pub(crate) fn of(base: &[f64], values: &[f64]) -> Option<Self> {
        let of = |values: &[f64]| {
            let (mean, sd) = (t_interval::mean(values)?, t_interval::sample_sd(values)?);
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
}

/// The p of each, adjusted for all of them (S. Holm, "A simple sequentially rejective multiple test procedure", 1979): where only
/// what is at most 5 % then counts, one or more of those without a difference count in at most 5 % of families.
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
    fn it_is_welchs() {
        // "Student", "The probable error of a mean", 1908, as R's `t.test(extra ~ group, data = sleep)` has it: t = -1.8608,
        // 17.776 degrees of freedom, p = 0.07939.
        let one = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
        let other = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
        assert!((p_value(&one, &other).unwrap() - 0.07939).abs() < 1e-5);
        let grown = |values: [f64; 10]| values.map(f64::exp);
        assert!((p_value(&grown(one), &grown(other)).unwrap() - 0.07939).abs() < 1e-5);
    }

    #[test]
    fn what_does_not_scatter_is_the_same_or_not() {
        assert_eq!(p_value(&[0.0; 5], &[0.0; 5]), Some(1.0));
        assert_eq!(p_value(&[0.0; 5], &[1.0; 5]), Some(0.0));
        assert_eq!(p_value(&[1.0], &[1.0, 2.0]), None);
        assert_eq!(p_value(&[1.0, f64::NAN], &[1.0, 2.0]), None);
    }

    #[test]
    fn holm_takes_the_least_for_all_and_each_further_for_one_less() {
        // 0.01 * 4, 0.02 * 3, 0.03 * 2 (but no less than the one before), 0.5.
        assert_eq!(holm(&[0.03, 0.01, 0.5, 0.02]), [0.06, 0.04, 0.5, 0.06]);
        assert_eq!(holm(&[0.9, 0.8]), [1.0, 1.0]);
        assert_eq!(holm(&[]), [0.0; 0]);
    }

    #[test]
    fn under_no_difference_p_is_uniform() {
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
