//! Where a series of interval values, taken at equal steps, becomes steady.

use super::t_interval;

/// Values in a batch: the 5 of MSER-5.
const BATCH: usize = 5;
/// Fewer batches have no half that could be cut.
const FEWEST_BATCHES: usize = 4;

/// The start of a series that is not like the rest of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WarmUp {
    /// How many values from the start belong to it; a multiple of 5, at most half of all.
    pub values: usize,
    /// Whether it ends within the first half. If not, the series is too short to say where it becomes steady, or never does.
    pub settles: bool,
}

/// The warm-up of `values` by MSER-5; nothing of fewer than 20.
///
/// Of all the ways to cut whole batches of five from the start, half of them at most, the one that leaves the least squared
/// standard error of the mean: sum of squares over squared number (K. P. White, "An effective truncation heuristic
/// for bias reduction in simulation output", 1997; the limit of one half is that of K. Hoad, S. Robinson and R. Davies,
/// "Automating warm-up length estimation", 2010). Of several, the shortest. What does not fill a batch at the end is not
/// looked at.
pub fn warm_up(values: &[f64]) -> Option<WarmUp> {
    let batches = values.chunks_exact(BATCH).filter_map(t_interval::mean);
    let batches: Vec<f64> = batches.collect();
    if batches.len() < FEWEST_BATCHES {
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

/// Of what is left after each cut: the sum of squared deviations over the squared number. From the end on, a value at a
/// time (B. P. Welford, "Note on a method for calculating corrected sums of squares and products", 1962).
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

/// How many intervals the ramp lasts: up to and including the first whose value reaches `steady`, the mean of what follows the
/// warm-up. 1 if the first value does; times the length of an interval it is the time from the start.
///
/// It is for what rises from nothing, as a throughput does.
pub fn ramp(values: &[f64], steady: f64) -> Option<usize> {
    let reached = values.iter().position(|value| *value >= steady)?;
    Some(reached + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::draws;

    /// 100 around 100, of which the first `slow` rise from 0.
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
    fn what_is_steady_from_the_start_is_left_whole() {
        let steady = [5.0; 40];
        let whole = WarmUp {
            values: 0,
            settles: true,
        };
        assert_eq!(warm_up(&steady), Some(whole));
        assert_eq!(ramp(&steady, 5.0), Some(1));
    }

    #[test]
    fn no_more_than_half_is_cut_and_what_never_settles_is_said() {
        let found = warm_up(&rising(100)).unwrap();
        assert_eq!((found.values, found.settles), (50, false));
    }

    #[test]
    fn a_short_series_says_nothing() {
        assert_eq!(warm_up(&[1.0; 19]), None);
        assert!(warm_up(&[1.0; 20]).is_some());
    }
}
