//! The point at which a series of interval values, taken at equal steps, becomes steady.

use super::t_interval;

/// The number of values in a batch, the 5 of MSER-5.
const BATCH: usize = 5;
/// The least number of batches of which half can be cut.
const MIN_BATCHES: usize = 4;

/// The start of a series that differs from the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WarmUp {
    /// The number of values that belong to it; a multiple of 5, at most half of the series.
    pub values: usize,
    /// Whether it ends within the first half. If not, the series is too short to show where it becomes steady, or it
    /// never does.
    pub settles: bool,
}

/// Returns the warm-up of `values` by MSER-5; `None` for fewer than 20.
///
/// Of all numbers of whole batches of five that can be cut from the start, at most half of them, it takes the one that
/// leaves the least squared standard error of the mean: the sum of squares divided by the squared number (K. P. White,
/// "An effective truncation heuristic for bias reduction in simulation output", 1997; the limit of one half is from K.
/// Hoad, S. Robinson and R. Davies, "Automating warm-up length estimation", 2010). Of several, it takes the shortest.
/// Values that do not fill a batch at the end are ignored.
pub fn warm_up(values: &[f64]) -> Option<WarmUp> {
    let batches: Vec<f64> = values
        .chunks_exact(BATCH)
        .filter_map(t_interval::mean)
        .collect();
    if batches.len() < MIN_BATCHES {
        return None;
    }
    let most = batches.len() / 2;
    let errors = squared_errors(&batches);
    let mut cut = 0;
    for next in 1..=most {
        if errors[next] < errors[cut] {
            cut = next;
        }
    }
    Some(WarmUp {
        values: cut * BATCH,
        settles: cut < most,
    })
}

/// Returns, for each cut, the sum of squared deviations of the rest divided by its squared number. It proceeds from the
/// end, one value at a time (B. P. Welford, "Note on a method for calculating corrected sums of squares and products",
/// 1962).
fn squared_errors(batches: &[f64]) -> Vec<f64> {
    let mut errors = vec![0.0; batches.len()];
    let (mut mean, mut squares) = (0.0, 0.0);
    for (cut, value) in batches.iter().enumerate().rev() {
        let count = (batches.len() - cut) as f64;
        let deviation = value - mean;
        mean += deviation / count;
        squares += deviation * (value - mean);
        errors[cut] = squares / count.powi(2);
    }
    errors
}

/// Returns the number of intervals of the ramp, up to and including the first whose value reaches `steady`, the mean
/// after the warm-up. It is 1 if the first value does; multiplied by the length of an interval, it is the time from the
/// start. `None` if no value does.
///
/// It is meant for metrics that rise from 0, as a throughput does.
pub fn ramp(values: &[f64], steady: f64) -> Option<usize> {
    let reached = values.iter().position(|value| *value >= steady)?;
    Some(reached + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::draws;

    /// Returns 100 values around 100, the first `slow` of which rise from 0.
    fn rising(slow: usize) -> Vec<f64> {
        let noise = draws(1, 100);
        let level = |at: usize| 100.0 * (at as f64 / slow as f64).min(1.0);
        noise
            .iter()
            .enumerate()
            .map(|(at, n)| level(at) + n)
            .collect()
    }

    #[test]
    fn a_slow_start_is_found() {
        let found = warm_up(&rising(12)).unwrap();
        assert_eq!((found.values, found.settles), (15, true));
        let reached = ramp(&rising(12), 100.0).unwrap();
        assert!((12..=16).contains(&reached), "{reached}");
    }

    #[test]
    fn a_steady_series_has_no_warm_up() {
        let steady = [5.0; 40];
        let whole = WarmUp {
            values: 0,
            settles: true,
        };
        assert_eq!(warm_up(&steady), Some(whole));
        assert_eq!(ramp(&steady, 5.0), Some(1));
    }

    #[test]
    fn at_most_half_is_cut_and_an_unsettled_series_is_marked() {
        let found = warm_up(&rising(100)).unwrap();
        assert_eq!((found.values, found.settles), (50, false));
    }

    #[test]
    fn a_short_series_has_no_warm_up() {
        assert_eq!(warm_up(&[1.0; 19]), None);
        assert!(warm_up(&[1.0; 20]).is_some());
    }
}
