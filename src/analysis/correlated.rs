//! The mean of a series whose neighbours hang together, as goodput's do, and how sure it is.

use super::student;

const FEWEST_BATCHES: usize = 4;
/// The time for which a batch is a single value.
const ALONE: f64 = 1.0 / 3.0;

/// The mean of `values`, which were taken one after another at equal steps, and its 95 % interval: mean, low, high.
///
/// Neighbours that are alike tell less than as many strangers would. So the series is cut into batches three times as long
/// as its integrated autocorrelation time, but four batches at least, and Student's t is taken over their means: batch
/// means (A. M. Law, "Simulation Modeling and Analysis", §9.5.3), with the initial positive sequence of C. J. Geyer
/// ("Practical Markov Chain Monte Carlo", 1992, §3.3) for the length. Nothing of fewer than four values, which do not say
/// how sure they are.
pub(crate) fn mean_with_interval(values: &[f64]) -> Option<(f64, f64, f64)> {
    if values.len() < FEWEST_BATCHES {
        return None;
    }
    let mean = student::mean(values)?;
    let batch = batch_length(values, mean);
    // What does not fill a batch is left out at the start, which is the least steady.
    let whole = values.len() - values.len() % batch;
    let batches = values[values.len() - whole..].chunks_exact(batch);
    let means: Vec<f64> = batches.filter_map(student::mean).collect();
    let [low, high] = student::mean_interval(&means)?;
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
mod tests {
    use super::*;

    /// An autoregressive series around 0 with the given correlation of neighbours.
    fn series(seed: u64, correlation: f64, count: usize) -> Vec<f64> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut value = 0.0;
        let mut next = || {
            let noise: f64 = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
            value = correlation * value + noise;
            value
        };
        for _ in 0..50 {
            next();
        }
        (0..count).map(|_| next()).collect()
    }

    /// In how many of 400 series the interval holds the truth, in percent.
    fn coverage(correlation: f64) -> u32 {
        let holds = |seed| {
            let (_, low, high) = mean_with_interval(&series(seed, correlation, 100)).unwrap();
            low <= 0.0 && 0.0 <= high
        };
        u32::try_from((0..400).filter(|seed| holds(*seed)).count()).unwrap() / 4
    }

    #[test]
    fn the_interval_holds_the_truth_for_strangers_and_for_neighbours() {
        let (strangers, neighbours) = (coverage(0.0), coverage(0.8));
        assert!(strangers >= 92, "{strangers} %");
        assert!(neighbours >= 90, "{neighbours} %");
    }

    #[test]
    fn neighbours_that_hang_together_say_less_than_strangers() {
        let width = |correlation| {
            let values = series(1, correlation, 200);
            let (_, low, high) = mean_with_interval(&values).unwrap();
            (high - low) / student::sample_sd(&values).unwrap()
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
