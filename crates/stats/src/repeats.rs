//! When there are repeats enough.

use super::t_interval;

/// Fewer repeats say nothing of how they scatter.
pub const FEWEST: u32 = 3;
/// More are not worth the time.
pub const MOST: u32 = 30;

/// Whether the 95 % interval of the mean of `values`, one a repeat, is at most `half_width` (a fraction of the mean: 0.025 for
/// 2.5 %) to each side, after [`FEWEST`] at least; netperf's rule (`-I`, `-i`), which states the whole width.
///
/// Looking after every repeat stops now and then at an interval that is narrow by chance, so that the final one
/// holds the truth a little less often than 95 %.
pub fn are_enough(values: &[f64], half_width: f64) -> bool {
    let narrow = || {
        let [low, high] = t_interval::mean_interval(values)?;
        let mean = t_interval::mean(values)?;
        Some((high - low) / 2.0 <= half_width * mean.abs())
    };
    values.len() >= FEWEST as usize && narrow() == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_enough_when_the_interval_is_narrow() {
        // 100 +- 4.303 * 1 / sqrt(3) is 2.48 % to each side.
        let values = [99.0, 100.0, 101.0];
        assert!(are_enough(&values, 0.025));
        assert!(!are_enough(&values, 0.024));
        assert!(!are_enough(&[f64::NAN; 30], 0.01));
    }

    #[test]
    fn fewer_than_three_are_never_enough() {
        assert!(!are_enough(&[5.0; 2], 0.5));
        assert!(are_enough(&[5.0; 3], 0.0));
    }
}
