//! Student's t: intervals of a mean over few runs.

/// Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom (Abramowitz and Stegun, table 26.10).
const T_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
/// The same of the normal distribution.
const Z_95: f64 = 1.959_964;

/// The arithmetic mean; nothing of nothing.
pub(crate) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The sample standard deviation, n - 1 in the denominator; of two values at least.
pub(crate) fn sample_sd(values: &[f64]) -> Option<f64> {
    let mean = mean(values)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (values.len() - 1) as f64).sqrt())
}

/// The 95 % interval of the mean of what `values` are draws of, by Student's t; of two values at least.
pub(crate) fn mean_interval(values: &[f64]) -> Option<[f64; 2]> {
    let (mean, sd) = (mean(values)?, sample_sd(values)?);
    let half = t_95(values.len() - 1) * sd / (values.len() as f64).sqrt();
    Some([mean - half, mean + half])
}

/// Beyond the table, the first terms of the expansion in 1/n (Abramowitz and Stegun, 26.7.5); right to 0.001.
fn t_95(degrees: usize) -> f64 {
    let (n, z) = (degrees as f64, Z_95);
    let expansion = || {
        let first = (z.powi(3) + z) / (4.0 * n);
        let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * n * n);
        z + first + second
    };
    degrees
        .checked_sub(1)
        .and_then(|row| T_95.get(row).copied())
        .unwrap_or_else(expansion)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_mean_is_student_s() {
        // 5 +- 2.776 * 1.5811 / sqrt(5)
        let [low, high] = mean_interval(&[3.0, 4.0, 5.0, 6.0, 7.0]).unwrap();
        assert!((low - 3.037).abs() < 0.001 && (high - 6.963).abs() < 0.001);
        assert_eq!(mean_interval(&[1.0]), None);
        assert_eq!(mean(&[]), None);
    }

    #[test]
    fn quantiles_beyond_the_table_join_it() {
        assert!((t_95(31) - 2.040).abs() < 0.001);
        assert!((t_95(60) - 2.000).abs() < 0.001);
        assert!((t_95(120) - 1.980).abs() < 0.001);
    }
}
