//! Student's t: intervals of a mean over a few runs.

use statrs::distribution::{ContinuousCDF as _, StudentsT};

/// Returns the arithmetic mean; `None` for no values.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Returns the sample standard deviation, with n - 1 in the denominator; it needs two values.
pub fn sample_sd(values: &[f64]) -> Option<f64> {
    let mean = mean(values)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (values.len() - 1) as f64).sqrt())
}

/// Returns the mean absolute deviation of `values` from their mean; it needs two values.
pub fn mean_deviation(values: &[f64]) -> Option<f64> {
    let centre = mean(values)?;
    let distances: Vec<f64> = values.iter().map(|value| (value - centre).abs()).collect();
    mean(&distances).filter(|_| values.len() > 1)
}

/// Returns whether the values differ. Equal values, such as counts of 0, do not show how they scatter, and the interval of
/// their mean by Student's t would exclude everything else.
pub fn differ(values: &[f64]) -> bool {
    values.windows(2).any(|pair| pair[0] != pair[1])
}

/// Returns the 95 % interval of the population's mean, by Student's t; it needs two values.
pub fn mean_interval(values: &[f64]) -> Option<[f64; 2]> {
    let (mean, sd) = (mean(values)?, sample_sd(values)?);
    let half = t_95(values.len() - 1)? * sd / (values.len() as f64).sqrt();
    Some([mean - half, mean + half])
}

/// Returns the two-sided 95 % quantile of Student's t; `None` for 0 degrees of freedom.
pub(crate) fn t_95(degrees: usize) -> Option<f64> {
    let t = StudentsT::new(0.0, 1.0, degrees as f64).ok()?;
    Some(t.inverse_cdf(0.975))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::draws;

    #[test]
    fn the_interval_of_a_mean_is_students() {
        // The interval is 5 +- 2.776 * 1.5811 / sqrt(5).
        let [low, high] = mean_interval(&[3.0, 4.0, 5.0, 6.0, 7.0]).unwrap();
        assert!((low - 3.037).abs() < 0.001 && (high - 6.963).abs() < 0.001);
        assert_eq!(mean_interval(&[1.0]), None);
        assert!(differ(&[1.1, 1.1, 1.2]) && !differ(&[1.1; 10]) && !differ(&[]));
        assert_eq!(mean(&[]), None);
    }

    #[test]
    fn the_mean_deviation_is_nettests_variation() {
        let runs = [14.19, 14.18, 14.12, 14.23, 14.14];
        assert!((mean_deviation(&runs).unwrap() - 0.0336).abs() < 1e-9);
        assert_eq!(mean_deviation(&runs[..1]), None);
    }

    #[test]
    fn the_interval_contains_the_true_mean_in_95_percent() {
        for count in [3, 10, 30] {
            let holds = |seed| {
                let [low, high] = mean_interval(&draws(seed, count)).unwrap();
                low <= 0.0 && 0.0 <= high
            };
            let percent = (0..4000).filter(|seed| holds(*seed)).count() as f64 / 40.0;
            assert!((percent - 95.0).abs() < 1.5, "{count}: {percent} %");
        }
    }

    #[test]
    fn quantiles_equal_the_published_ones() {
        // The values are from Abramowitz and Stegun, table 26.10.
        for (degrees, quantile) in [
            (1, 12.706),
            (4, 2.776),
            (30, 2.042),
            (120, 1.980),
            (1_000_000, 1.960),
        ] {
            assert!((t_95(degrees).unwrap() - quantile).abs() < 0.001);
        }
    }
}
