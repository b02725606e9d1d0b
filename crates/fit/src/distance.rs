//! Distances between two distributions, with bootstrap intervals.
//!
//! Neighbouring delays are similar, so that single values would give too narrow intervals. The bootstrap therefore draws
//! blocks of consecutive values (H. R. Künsch, "The jackknife and the bootstrap for general stationary observations",
//! 1989).

use serde::Serialize;
use stats::order_statistics::{quantile, sorted};

use crate::estimate::Estimate;

/// The number of bootstrap samples.
const SAMPLES: usize = 300;
/// A block is this part of a series.
const BLOCKS: usize = 20;
/// The seed of the bootstrap, so that a report is a function of its observations.
const SEED: u64 = 1;

/// The distances between two distributions of delays.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Distance {
    /// The distance of Kolmogorov and Smirnov: the largest difference between the shares of values below any value,
    /// from 0 to 1.
    pub kolmogorov_smirnov: Estimate,
    /// The first distance of Wasserstein: the mean distance by which values must be moved, in their unit.
    pub wasserstein: Estimate,
}

/// Returns the distances between two series of values, each in the order in which it was taken; `None` if either is
/// empty.
///
/// Intervals are percentiles of the bootstrap. Both distances are at least 0 and grow with chance, so that an interval
/// of two samples of one distribution does not reach 0.
pub fn distances(one: &[f64], other: &[f64]) -> Option<Distance> {
    if one.is_empty() || other.is_empty() {
        return None;
    }
    let found = both(&sorted(one), &sorted(other));
    let mut random = fastrand::Rng::with_seed(SEED);
    let drawn: Vec<[f64; 2]> = (0..SAMPLES)
        .map(|_| {
            let one = resampled(one, &mut random);
            both(&one, &resampled(other, &mut random))
        })
        .collect();
    let interval = |which: usize| {
        let values: Vec<f64> = drawn.iter().map(|pair| pair[which]).collect();
        let values = sorted(&values);
        [0.025, 0.975].map(|share| quantile(&values, share).unwrap_or_default())
    };
    Some(Distance {
        kolmogorov_smirnov: Estimate::new(found[0], interval(0)),
        wasserstein: Estimate::new(found[1], interval(1)),
    })
}

/// Returns both distances between the first and the second half of a series: that of Kolmogorov and Smirnov, and that of
/// Wasserstein in the unit of the values. They show how much a path differs from itself. They are 0 for fewer than two
/// values.
pub(crate) fn between_halves(values: &[f64]) -> [f64; 2] {
    let (first, second) = values.split_at(values.len() / 2);
    match first.is_empty() {
        true => [0.0; 2],
        false => both(&sorted(first), &sorted(second)),
    }
}

/// Returns as many values in ascending order, drawn as blocks of neighbours.
fn resampled(values: &[f64], random: &mut fastrand::Rng) -> Vec<f64> {
    let block = values.len().div_ceil(BLOCKS);
    let mut drawn = Vec::with_capacity(values.len() + block);
    while drawn.len() < values.len() {
        let start = random.usize(..=values.len() - block);
        drawn.extend_from_slice(&values[start..start + block]);
    }
    drawn.truncate(values.len());
    sorted(&drawn)
}

/// Returns both distances between ascending values: the largest distance of the two distribution functions, and the
/// area between them.
fn both(one: &[f64], other: &[f64]) -> [f64; 2] {
    let (mut at, mut beside) = (0, 0);
    let (mut largest, mut area) = (0.0_f64, 0.0);
    let mut before = None;
    while at < one.len() || beside < other.len() {
        let next = [one.get(at), other.get(beside)];
        let value = next
            .into_iter()
            .flatten()
            .copied()
            .fold(f64::INFINITY, f64::min);
        let share = |place: usize, all: &[f64]| place as f64 / all.len() as f64;
        let difference = (share(at, one) - share(beside, other)).abs();
        area += difference * before.map_or(0.0, |before| value - before);
        at += one[at..].iter().take_while(|one| **one <= value).count();
        beside += other[beside..]
            .iter()
            .take_while(|one| **one <= value)
            .count();
        largest = largest.max((share(at, one) - share(beside, other)).abs());
        before = Some(value);
    }
    [largest, area]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_have_no_distance_and_a_shift_is_its_own_distance() {
        let values: Vec<f64> = (0..200).map(|one| f64::from(one * 37 % 200)).collect();
        let same = distances(&values, &values).unwrap();
        assert_eq!(same.kolmogorov_smirnov.value, 0.0);
        assert_eq!(same.wasserstein.value, 0.0);
        let shifted: Vec<f64> = values.iter().map(|value| value + 20.0).collect();
        let found = distances(&values, &shifted).unwrap();
        assert!((found.wasserstein.value - 20.0).abs() < 1e-9, "{found:?}");
        assert!(
            (found.kolmogorov_smirnov.value - 0.1).abs() < 1e-9,
            "{found:?}"
        );
        assert!(found.wasserstein.contains(20.0));
        assert_eq!(distances(&values, &[]), None);
    }

    #[test]
    fn halves_show_how_much_a_series_differs_from_itself() {
        let steady: Vec<f64> = (0..200).map(|one| f64::from(one % 10)).collect();
        assert_eq!(between_halves(&steady), [0.0; 2]);
        let stepped: Vec<f64> = (0..200).map(|one| f64::from(one / 100 * 5)).collect();
        assert_eq!(between_halves(&stepped), [1.0, 5.0]);
        assert_eq!(between_halves(&[1.0]), [0.0; 2]);
    }

    #[test]
    fn separate_distributions_are_as_far_apart_as_they_can_be() {
        let found = distances(&[1.0, 2.0, 3.0], &[10.0, 11.0]).unwrap();
        assert_eq!(found.kolmogorov_smirnov.value, 1.0);
        assert!((found.wasserstein.value - 8.5).abs() < 1e-9);
    }
}
