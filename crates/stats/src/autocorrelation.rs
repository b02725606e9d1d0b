//! The mean of a series whose neighbours hang together, as goodput's do, and how sure it is.

use super::t_interval;

const FEWEST_BATCHES: usize = 4;
/// The time for which a batch is a single value.
const ALONE: f64 = 1.0 / 3.0;

/// Fewer values in a series do not show how much neighbours hang together.
const FEWEST_VALUES: usize = 50;
/// What they must be worth for their interval to be trusted.
const FEWEST_STRANGERS: f64 = 20.0;

/// The mean of a series of neighbours, and how far it can be trusted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeriesMean {
    /// The mean, in the values' unit.
    pub mean: f64,
    /// Its 95 % interval, as [`mean_with_interval`] has it.
    pub interval: [f64; 2],
    /// How many strangers the series is worth: its length over its integrated autocorrelation time, no more than its length.
    pub worth: f64,
    /// Whether the series is long enough, 50 values worth 20 strangers, for the interval to be what it says. If not, it is too
    /// narrow as a rule: docs/statistics.md has figures.
    pub enough: bool,
}

impl SeriesMean {
    /// Of `values`, taken one after another at equal steps; nothing of fewer than four.
    pub fn of(values: &[f64]) -> Option<Self> {
        let (mean, low, high) = mean_with_interval(values)?;
        let count = values.len() as f64;
        let worth = count / autocorrelation_time(values, mean).max(1.0);
        Some(Self {
            mean,
            interval: [low, high],
            worth,
            enough: values.len() >= FEWEST_VALUES && worth >= FEWEST_STRANGERS,
        })
    }
}

/// The mean of `values`, which were taken one after another at equal steps, and its 95 % interval: mean, low, high.
///
/// Neighbours that are alike tell less than as many strangers would. So the series is cut into batches three times as long
/// as its integrated autocorrelation time, but four batches at least, and Student's t is taken over their means: batch
/// means (A. M. Law, "Simulation Modeling and Analysis", §9.5.3), with the initial positive sequence of C. J. Geyer
/// ("Practical Markov Chain Monte Carlo", 1992, §3.3) for the length. Nothing of fewer than four values, which do not say
/// how sure they are.
pub fn mean_with_interval(values: &[f64]) -> Option<(f64, f64, f64)> {
    if values.len() < FEWEST_BATCHES {
        return None;
    }
    let mean = t_interval::mean(values)?;
    let batch = batch_length(values, mean);
    // What does not fill a batch is left out at the start, which is the least steady.
    let whole = values.len() - values.len() % batch;
    let batches = values[values.len() - whole..].chunks_exact(batch);
    let means: Vec<f64> = batches.filter_map(t_interval::mean).collect();
    let [low, high] = t_interval::mean_interval(&means)?;
    let half = (high - low) / 2.0;
    Some((mean, mean - half, mean + half))
}

fn batch_length(values: &[f64], mean: f64) -> usize {
    let wanted = (3.0 * autocorrelation_time(values, mean)).ceil();
    let longest = values.len() / FEWEST_BATCHES;
    (1..longest)
        .find(|length| *length as f64 >= wanted)
        .unwrap_or(longest)
}

/// 1 + 2 times the sum of the autocorrelations, in steps; a third, so that batches are single values, when neighbours are not
/// alike.
fn autocorrelation_time(values: &[f64], mean: f64) -> f64 {
    let covariance = |lag: usize| -> f64 {
        let pairs = values.iter().zip(&values[lag..]);
        pairs.map(|(a, b)| (a - mean) * (b - mean)).sum()
    };
    let variance = covariance(0);
    if variance <= 0.0 {
        return ALONE;
    }
    // Sums of neighbouring autocorrelations of a reversible chain are positive: the first that is not is noise.
    let pairs =
        (0..values.len() / 4).map(|k| (covariance(2 * k) + covariance(2 * k + 1)) / variance);
    let time = 2.0 * pairs.take_while(|sum| *sum > 0.0).sum::<f64>() - 1.0;
    if time <= 1.0 { ALONE } else { time }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::tests::draws;

    /// An autoregressive series around 0 with the given correlation of neighbours.
    pub(crate) fn series(seed: u64, correlation: f64, count: usize) -> Vec<f64> {
        const RUN_IN: usize = 50;
        let mut value = 0.0;
        let step = |noise: &f64| {
            value = correlation * value + noise;
            value
        };
        draws(seed, RUN_IN + count)
            .iter()
            .map(step)
            .skip(RUN_IN)
            .collect()
    }

    /// In how many of 4,000 series of 200 values the interval holds the truth, in percent.
    fn coverage(correlation: f64) -> f64 {
        let holds = |seed| {
            let found = SeriesMean::of(&series(seed, correlation, 200)).unwrap();
            found.interval[0] <= 0.0 && 0.0 <= found.interval[1]
        };
        (0..4000).filter(|seed| holds(*seed)).count() as f64 / 40.0
    }

    #[test]
    fn the_interval_holds_the_truth_for_strangers_and_for_neighbours() {
        for (correlation, tolerance) in [(0.0, 1.5), (0.5, 1.5), (0.8, 3.0)] {
            let percent = coverage(correlation);
            assert!(
                (percent - 95.0).abs() < tolerance,
                "{correlation}: {percent} %"
            );
        }
    }

    #[test]
    fn neighbours_are_worth_as_many_strangers_as_the_formula_says() {
        // Of an autoregressive series, (1 - c) / (1 + c) of its length.
        for correlation in [0.0, 0.5, 0.8] {
            let found = SeriesMean::of(&series(3, correlation, 2000)).unwrap();
            let formula = 2000.0 * (1.0 - correlation) / (1.0 + correlation);
            let ratio = found.worth / formula;
            assert!((0.75..1.25).contains(&ratio), "{correlation}: {ratio}");
            assert!(found.enough);
        }
    }

    #[test]
    fn a_series_that_says_too_little_is_marked() {
        let enough = |correlation, count| {
            let found = SeriesMean::of(&series(1, correlation, count)).unwrap();
            found.enough
        };
        assert!(enough(0.0, 100));
        assert!(!enough(0.95, 100));
        assert!(!enough(0.0, 30));
        assert_eq!(SeriesMean::of(&[1.0; 3]), None);
    }

    #[test]
    fn neighbours_that_hang_together_say_less_than_strangers() {
        let width = |correlation| {
            let values = series(1, correlation, 200);
            let (_, low, high) = mean_with_interval(&values).unwrap();
            (high - low) / t_interval::sample_sd(&values).unwrap()
        };
        assert!(width(0.9) > 2.0 * width(0.0));
    }

    #[test]
    fn a_steady_series_is_sure_and_a_short_one_says_nothing() {
        assert_eq!(mean_with_interval(&[5.0; 10]), Some((5.0, 5.0, 5.0)));
        assert_eq!(mean_with_interval(&[1.0, 2.0, 3.0]), None);
        let rising: Vec<f64> = (0..40).map(f64::from).collect();
        let (mean, low, _) = mean_with_interval(&rising).unwrap();
        assert!(low < mean - 5.0);
    }
}
