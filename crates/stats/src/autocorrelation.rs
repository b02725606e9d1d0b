//! The mean of a series whose neighbouring values are correlated, as those of goodput are, and its uncertainty.

use super::t_interval;

const MIN_BATCHES: usize = 4;
/// The autocorrelation time for which a batch is a single value.
const SINGLE_VALUE_TIME: f64 = 1.0 / 3.0;

/// The least length of a series that shows how much its neighbours are correlated.
const MIN_VALUES: usize = 50;
/// The least number of effective samples for which the interval can be trusted.
const MIN_EFFECTIVE_SAMPLES: f64 = 20.0;

/// The mean of a series of correlated values, and how far it can be trusted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeriesMean {
    /// The mean, in the values' unit.
    pub mean: f64,
    /// Its 95 % interval, as computed by [`mean_with_interval`].
    pub interval: [f64; 2],
    /// The number of independent samples to which the series is equivalent: its length divided by its integrated
    /// autocorrelation time, at most its length.
    pub effective_samples: f64,
    /// Whether the series is long enough for its interval to be trusted: 50 values that are equivalent to 20
    /// independent samples. If not, the interval is usually too narrow; docs/statistics.md has figures.
    pub enough: bool,
}

impl SeriesMean {
    /// Computes it for `values`, which were taken one after another at equal steps; `None` for fewer than four.
    pub fn of(values: &[f64]) -> Option<Self> {
        let (mean, low, high) = mean_with_interval(values)?;
        let count = values.len() as f64;
        let effective_samples = count / autocorrelation_time(values, mean).max(1.0);
        Some(Self {
            mean,
            interval: [low, high],
            effective_samples,
            enough: values.len() >= MIN_VALUES && effective_samples >= MIN_EFFECTIVE_SAMPLES,
        })
    }
}

/// Returns the mean of `values`, which were taken one after another at equal steps, and its 95 % interval: mean, low,
/// high. `None` for fewer than four values, which do not show their uncertainty.
///
/// Correlated neighbours carry less information than as many independent samples would. Therefore the series is cut
/// into batches three times as long as its integrated autocorrelation time, but at least four batches, and Student's t
/// is computed over their means: batch means (A. M. Law, "Simulation Modeling and Analysis", §9.5.3), with the initial
/// positive sequence of C. J. Geyer ("Practical Markov Chain Monte Carlo", 1992, §3.3) for the length.
pub fn mean_with_interval(values: &[f64]) -> Option<(f64, f64, f64)> {
    if values.len() < MIN_BATCHES {
        return None;
    }
    let mean = t_interval::mean(values)?;
    let batch = batch_length(values, mean);
    // Values that do not fill a batch are omitted at the start, which is the least steady part.
    let whole = values.len() - values.len() % batch;
    let batches = values[values.len() - whole..].chunks_exact(batch);
    let means: Vec<f64> = batches.filter_map(t_interval::mean).collect();
    let [low, high] = t_interval::mean_interval(&means)?;
    let half = (high - low) / 2.0;
    Some((mean, mean - half, mean + half))
}

fn batch_length(values: &[f64], mean: f64) -> usize {
    let wanted = (3.0 * autocorrelation_time(values, mean)).ceil();
    let longest = values.len() / MIN_BATCHES;
    (1..longest)
        .find(|length| *length as f64 >= wanted)
        .unwrap_or(longest)
}

/// Returns 1 + 2 times the sum of the autocorrelations, in steps; a third if neighbours are not correlated, so that
/// batches are single values.
fn autocorrelation_time(values: &[f64], mean: f64) -> f64 {
    let covariance = |lag: usize| -> f64 {
        let pairs = values.iter().zip(&values[lag..]);
        pairs.map(|(a, b)| (a - mean) * (b - mean)).sum()
    };
    let variance = covariance(0);
    if variance <= 0.0 {
        return SINGLE_VALUE_TIME;
    }
    // In a reversible chain, sums of neighbouring autocorrelations are positive, so the first sum that is not positive
    // is noise.
    let pairs =
        (0..values.len() / 4).map(|k| (covariance(2 * k) + covariance(2 * k + 1)) / variance);
    let time = 2.0 * pairs.take_while(|sum| *sum > 0.0).sum::<f64>() - 1.0;
    if time <= 1.0 { SINGLE_VALUE_TIME } else { time }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::tests::draws;

    /// Returns an autoregressive series around 0 with the given correlation of neighbours.
    pub(crate) fn series(seed: u64, correlation: f64, count: usize) -> Vec<f64> {
        const BURN_IN: usize = 50;
        let mut value = 0.0;
        let step = |noise: &f64| {
            value = correlation * value + noise;
            value
        };
        draws(seed, BURN_IN + count)
            .iter()
            .map(step)
            .skip(BURN_IN)
            .collect()
    }

    /// Returns the percentage of 4,000 series of 200 values whose interval contains the true mean.
    fn coverage(correlation: f64) -> f64 {
        let holds = |seed| {
            let found = SeriesMean::of(&series(seed, correlation, 200)).unwrap();
            found.interval[0] <= 0.0 && 0.0 <= found.interval[1]
        };
        (0..4000).filter(|seed| holds(*seed)).count() as f64 / 40.0
    }

    #[test]
    fn the_interval_contains_the_true_mean_with_and_without_correlation() {
        for (correlation, tolerance) in [(0.0, 1.5), (0.5, 1.5), (0.8, 3.0)] {
            let percent = coverage(correlation);
            assert!(
                (percent - 95.0).abs() < tolerance,
                "{correlation}: {percent} %"
            );
        }
    }

    #[test]
    fn effective_samples_follow_the_formula_of_an_autoregressive_series() {
        // An autoregressive series has (1 - c) / (1 + c) of its length in effective samples.
        for correlation in [0.0, 0.5, 0.8] {
            let found = SeriesMean::of(&series(3, correlation, 2000)).unwrap();
            let formula = 2000.0 * (1.0 - correlation) / (1.0 + correlation);
            let ratio = found.effective_samples / formula;
            assert!((0.75..1.25).contains(&ratio), "{correlation}: {ratio}");
            assert!(found.enough);
        }
    }

    #[test]
    fn a_series_with_too_few_effective_samples_is_marked() {
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
    fn correlated_samples_have_a_wider_interval() {
        let width = |correlation| {
            let values = series(1, correlation, 200);
            let (_, low, high) = mean_with_interval(&values).unwrap();
            (high - low) / t_interval::sample_sd(&values).unwrap()
        };
        assert!(width(0.9) > 2.0 * width(0.0));
    }

    #[test]
    fn a_constant_series_has_no_uncertainty_and_a_short_one_no_interval() {
        assert_eq!(mean_with_interval(&[5.0; 10]), Some((5.0, 5.0, 5.0)));
        assert_eq!(mean_with_interval(&[1.0, 2.0, 3.0]), None);
        let rising: Vec<f64> = (0..40).map(f64::from).collect();
        let (mean, low, _) = mean_with_interval(&rising).unwrap();
        assert!(low < mean - 5.0);
    }
}
