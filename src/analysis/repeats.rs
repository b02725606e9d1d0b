//! When there are repeats enough.

use super::student;

/// Fewer repeats say nothing of how they scatter.
pub(crate) const FEWEST: usize = 3;
/// More are not worth the time.
pub(crate) const MOST: usize = 30;

/// Whether to repeat once more after these values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The interval is not narrow enough yet.
    Repeat,
    /// It is.
    Narrow,
    /// It is not, and there were [`MOST`] repeats.
    GiveUp,
}

/// Whether the 95 % interval of the mean of `values`, one a repeat, is at most `half_width` (a fraction of the mean: 0.025 for
/// 2.5 %) to each side, after 3 repeats at least and 30 at most; netperf's rule (`-I`, `-i`), which states the whole width.
///
/// Looking after every repeat stops now and then at an interval that is narrow by chance, so that the final one
/// holds the truth a little less often than 95 %.
pub(crate) fn next(values: &[f64], half_width: f64) -> Next {
    let narrow = || {
        let [low, high] = student::mean_interval(values)?;
        let mean = student::mean(values)?;
        Some((high - low) / 2.0 <= half_width * mean.abs())
    };
    if values.len() < FEWEST {
        Next::Repeat
    } else if narrow() == Some(true) {
        Next::Narrow
    } else if values.len() < MOST {
        Next::Repeat
    } else {
        Next::GiveUp
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_until_the_interval_is_narrow() {
        // 100 +- 4.303 * 1 / sqrt(3) is 2.48 % to each side.
        let values = [99.0, 100.0, 101.0];
        assert_eq!(next(&values, 0.025), Next::Narrow);
        assert_eq!(next(&values, 0.024), Next::Repeat);
    }

    #[test]
    fn three_are_the_fewest_and_thirty_the_most() {
        assert_eq!(next(&[5.0; 2], 0.5), Next::Repeat);
        assert_eq!(next(&[5.0; 3], 0.0), Next::Narrow);
        let wide: Vec<f64> = (0..30).map(f64::from).collect();
        assert_eq!(next(&wide[..29], 0.01), Next::Repeat);
        assert_eq!(next(&wide, 0.01), Next::GiveUp);
        assert_eq!(next(&[f64::NAN; 30], 0.01), Next::GiveUp);
    }
}
