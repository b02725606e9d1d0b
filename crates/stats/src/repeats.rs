//! The number of repeats, in two stages: the first five determine the total number (C. Stein, "A two-sample test for a
//! linear hypothesis whose power is independent of the variance", 1945).
//!
//! A procedure that checks after every repeat whether the interval is narrow stops when it is narrow by chance: such
//! intervals contain the true value in 90 % of procedures instead of 95 %. Here the number is fixed by the first stage,
//! and the interval of the mean of all repeats uses the first stage's standard deviation. Therefore it contains the
//! true value in 95 % of procedures for normal values, however many repeats follow.

use super::t_interval;

/// The number of repeats of the first stage.
pub const FIRST: usize = 5;
/// The largest total number; more repeats are not worth the time.
pub const MOST: usize = 30;

/// Returns the number of repeats after which half the 95 % interval of the mean is `share` of the mean (0.05 for 5 %);
/// it can exceed [`MOST`]. `values` has one value for each repeat, in order, and only the first stage counts. `None`
/// before the first stage is complete, if its mean is 0 or if a value is not finite.
#[expect(
    clippy::cast_possible_truncation,
    reason = "whole, and what is beyond an integer becomes the largest"
)]
pub fn needed(values: &[f64], share: f64) -> Option<u64> {
    let first = values.get(..FIRST)?;
    let (mean, half) = (t_interval::mean(first)?, half_width(first, 1)?);
    let times = (half / (share * mean)).powi(2).ceil();
    (times.is_finite() && mean != 0.0).then(|| (times as u64).max(FIRST as u64))
}

/// Returns the 95 % interval of the mean of `values`, one for each repeat in order, whose number was fixed by
/// [`needed`].
pub fn mean_interval(values: &[f64]) -> Option<[f64; 2]> {
    let (mean, half) = (
        t_interval::mean(values)?,
        half_width(values.get(..FIRST)?, values.len())?,
    );
    Some([mean - half, mean + half])
}

/// Returns half the interval of the mean of `count` values, by the standard deviation of the first stage.
fn half_width(first: &[f64], count: usize) -> Option<f64> {
    let sd = t_interval::sample_sd(first)?;
    Some(t_interval::t_95(FIRST - 1)? * sd / (count as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::draws;

    /// Returns the percentage of procedures whose interval contains the true mean.
    fn coverage(procedures: u64, truth: f64, share: f64, value: impl Fn(f64) -> f64) -> f64 {
        let holds = |seed| {
            let values: Vec<f64> = draws(seed, MOST).into_iter().map(&value).collect();
            let needed = needed(&values, share).unwrap().min(MOST as u64);
            let count = usize::try_from(needed).unwrap();
            let [low, high] = mean_interval(&values[..count]).unwrap();
            low <= truth && truth <= high
        };
        (0..procedures).filter(|seed| holds(*seed)).count() as f64 / procedures as f64 * 100.0
    }

    #[test]
    fn the_first_five_determine_the_number() {
        // 2.776 * 1.5811 = 4.390 is the distance to either side for a single value: (4.390 / 2)^2 = 4.8, (4.390 / 1)^2
        // = 19.3.
        let values = [98.0, 99.0, 100.0, 101.0, 102.0];
        assert_eq!(needed(&values, 0.02), Some(5));
        assert_eq!(needed(&values, 0.01), Some(20));
        assert_eq!(needed(&values.map(|value| -value), 0.01), Some(20));
        let more = [values.as_slice(), &[500.0; 3]].concat();
        assert_eq!(needed(&more, 0.01), Some(20));
        assert!(needed(&values, 1e-6).unwrap() > 1_000_000_000);
    }

    #[test]
    fn equal_values_need_five_and_a_mean_of_zero_has_no_number() {
        assert_eq!(needed(&[7.0; 5], 0.01), Some(5));
        assert_eq!(mean_interval(&[7.0; 5]), Some([7.0, 7.0]));
        assert_eq!(needed(&[7.0; 4], 0.01), None);
        assert_eq!(needed(&[0.0; 5], 0.01), None);
        assert_eq!(needed(&[-1.0, 1.0, 0.0, 2.0, -2.0], 0.01), None);
        assert_eq!(needed(&[1.0, 1.0, f64::NAN, 1.0, 1.0], 0.01), None);
    }

    #[test]
    fn the_interval_contains_the_true_mean_in_95_percent_of_normal_procedures() {
        // The cases range from five repeats that are enough to more than are allowed.
        for sd in [1.0, 3.0, 6.0, 20.0] {
            let percent = coverage(20_000, 100.0, 0.05, |draw| 100.0 + sd * draw);
            assert!((94.0..=96.0).contains(&percent), "{sd}: {percent} %");
        }
    }

    #[test]
    fn the_interval_contains_the_true_mean_less_often_for_skewed_values() {
        // This is the figure in docs/statistics.md.
        let mean = (0.5_f64 * 0.5 / 2.0).exp();
        let percent = coverage(20_000, mean, 0.05, |draw| (0.5 * draw).exp());
        assert!((percent - 90.9).abs() < 0.1, "{percent} %");
    }
}
