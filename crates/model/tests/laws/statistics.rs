//! p-values: the probability of what was observed, or of something more extreme, under a given distribution.

use statrs::distribution::{ChiSquared, ContinuousCDF as _, Normal, StudentsT};

/// The p-value of a value that is normal with this mean and standard deviation, two-sided.
pub(crate) fn normal(value: f64, mean: f64, deviation: f64) -> f64 {
    let distance = (value - mean).abs() / deviation;
    2.0 * Normal::standard().cdf(-distance)
}

/// The p-value of a number of hits in independent trials, by the normal approximation.
pub(crate) fn binomial(hits: usize, trials: usize, share: f64) -> f64 {
    let trials = trials as f64;
    let deviation = (trials * share * (1.0 - share)).sqrt();
    normal(hits as f64, trials * share, deviation)
}

/// The p-value of the mean of values that depend on their neighbours, by the means of 100 batches that are much longer
/// than the dependence.
pub(crate) fn mean_of_batches(values: &[f64], expected: f64) -> f64 {
    let batches = values.chunks_exact(values.len() / 100);
    let means: Vec<f64> = batches
        .map(|batch| batch.iter().sum::<f64>() / batch.len() as f64)
        .collect();
    let count = means.len() as f64;
    let mean = means.iter().sum::<f64>() / count;
    let variance = means.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let distance = (mean - expected).abs() / (variance / count).sqrt();
    2.0 * StudentsT::new(0.0, 1.0, count - 1.0)
        .unwrap()
        .cdf(-distance)
}

/// The p-value of counts, each with its expectation, by Pearson's chi-square. Neighbouring cells are joined until each
/// expects at least ten.
pub(crate) fn chi_square(cells: impl IntoIterator<Item = (f64, f64)>) -> f64 {
    let mut joined: Vec<(f64, f64)> = Vec::new();
    for (seen, expected) in cells {
        match joined.last_mut() {
            Some(last) if last.1 < 10.0 => *last = (last.0 + seen, last.1 + expected),
            _ => joined.push((seen, expected)),
        }
    }
    if let Some(last) = joined.pop_if(|last| last.1 < 10.0) {
        let before = joined.last_mut().expect("cells that expect ten or more");
        *before = (before.0 + last.0, before.1 + last.1);
    }
    let term = |(seen, expected): &(f64, f64)| (seen - expected).powi(2) / expected;
    let statistic: f64 = joined.iter().map(term).sum();
    match joined.len() - 1 {
        // A single cell has the count that it must have.
        0 => 1.0,
        freedom => ChiSquared::new(freedom as f64).unwrap().sf(statistic),
    }
}

/// The p-value of run lengths, where a run goes on with probability `stay`: chi-square over the lengths, and separately
/// the mean, which detects a small shift sooner.
pub(crate) fn geometric(lengths: &[usize], stay: f64) -> f64 {
    let count = lengths.len() as f64;
    let mean = lengths.iter().sum::<usize>() as f64 / count;
    let of_mean = normal(
        mean,
        1.0 / (1.0 - stay),
        stay.sqrt() / (1.0 - stay) / count.sqrt(),
    );
    let longest = lengths.iter().max().copied().unwrap_or_default();
    let mut seen = vec![0.0; longest + 1];
    lengths.iter().for_each(|length| seen[*length] += 1.0);
    let mut left = count;
    let inner = (1..longest).map(|length| {
        let expected = left * (1.0 - stay);
        left *= stay;
        (seen[length], expected)
    });
    let mut cells: Vec<(f64, f64)> = inner.collect();
    cells.push((seen[longest], left));
    worst([of_mean, chi_square(cells)])
}

/// The p-value of Kolmogorov and Smirnov for values and their distribution function (the probability of at most a
/// value). If the function jumps, it is conservative. It uses the limiting distribution with Stephens' correction (J.
/// R. Stat. Soc. B 32, 1970).
pub(crate) fn kolmogorov_smirnov(values: &mut [f64], below: impl Fn(f64) -> f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let count = values.len() as f64;
    let (mut apart, mut before): (f64, usize) = (0.0, 0);
    for alike in values.chunk_by(|one, other| one == other) {
        let up_to = before + alike.len();
        let just_below = below(alike[0].next_down()) - before as f64 / count;
        let at = below(alike[0]) - up_to as f64 / count;
        apart = apart.max(just_below.abs()).max(at.abs());
        before = up_to;
    }
    let statistic = (count.sqrt() + 0.12 + 0.11 / count.sqrt()) * apart;
    // Below this, the sum of the series is practically 1, and it converges slowly.
    if statistic < 0.2 {
        return 1.0;
    }
    let term = |k: i32| (-2.0 * (f64::from(k) * statistic).powi(2)).exp();
    let pairs = (1..100).step_by(2).map(|k| term(k) - term(k + 1));
    (2.0 * pairs.sum::<f64>()).clamp(0.0, 1.0)
}

/// The p-value of several tests that must all hold (Bonferroni).
pub(crate) fn worst<const N: usize>(p_values: [f64; N]) -> f64 {
    let least = p_values.into_iter().fold(1.0, f64::min);
    (least * N as f64).min(1.0)
}

/// Returns the lengths of the runs of `value`, without the first and the last run, which may be cut off.
pub(crate) fn runs(values: &[bool], value: bool) -> Vec<usize> {
    let mut lengths = Vec::new();
    let all = values.chunk_by(|one, other| one == other);
    lengths.extend(all.map(|run| (run[0] == value, run.len())));
    lengths.pop();
    let inner = lengths.into_iter().skip(1);
    inner
        .filter_map(|(is, length)| is.then_some(length))
        .collect()
}

#[test]
fn p_values_equal_published_tables() {
    let near = |p: f64, table: f64| assert!((p / table - 1.0).abs() < 5e-3, "{p} is not {table}");
    // These are the 5 % points of the normal, chi-square (10 degrees of freedom) and Kolmogorov distributions.
    near(normal(1.959_964, 0.0, 1.0), 0.05);
    near(binomial(5_098, 10_000, 0.5), 0.05);
    // The statistic is 10 d^2 / 100 + (10 d)^2 / 100 = 18.307.
    let d = (18.307_f64 / 1.1).sqrt();
    let cells = (0..11).map(|cell| (100.0 + if cell < 10 { d } else { -10.0 * d }, 100.0));
    near(chi_square(cells), 0.05);
    // The values are evenly spread, and all of them are too high by the same amount.
    let by = 1.358_1 / 1_000.0;
    let value = |place: u32| (f64::from(place) + 0.5) / 1e6 + by;
    let mut values: Vec<f64> = (0..1_000_000).map(value).collect();
    near(kolmogorov_smirnov(&mut values, |x| x.clamp(0.0, 1.0)), 0.05);
    // This is Student's distribution with 99 degrees of freedom: each batch is one value, half of them 0 and half 2.
    let values: Vec<f64> = (0..100).map(|place| f64::from(place % 2) * 2.0).collect();
    near(
        mean_of_batches(&values, 1.0 + 1.984_217 / 99.0_f64.sqrt()),
        0.05,
    );
}

#[test]
fn kolmogorov_smirnov_accepts_a_distribution_with_jumps() {
    // A quarter of the values is 0, the rest is uniform up to 1.
    let law = |x: f64| {
        if x < 0.0 {
            0.0
        } else {
            (0.25 + 0.75 * x).min(1.0)
        }
    };
    let values = |share: f64| -> Vec<f64> {
        let value = |place: u32| (f64::from(place) / 1e4 - share).max(0.0) / (1.0 - share);
        (0..10_000).map(value).collect()
    };
    assert!(kolmogorov_smirnov(&mut values(0.25), law) > 0.99);
    assert!(kolmogorov_smirnov(&mut values(0.225), law) < 1e-4);
}

#[test]
fn runs_exclude_the_first_and_the_last() {
    let values = [true, true, false, true, false, false, true];
    assert_eq!(runs(&values, true), [1]);
    assert_eq!(runs(&values, false), [1, 2]);
}
