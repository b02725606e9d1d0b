//! What many files add up to.

use super::FilesPlan;
use super::fetch::Fetched;
use crate::Spread;
use crate::http::sizes::Sizes;
use record::{Figure, Metric, Sample, Statistic};
use stats::order_statistics;

/// The times of each file, over `connections` in parallel.
pub(super) fn samples(fetched: &[Fetched], connections: u32) -> Vec<Sample> {
    let of = |file: &Fetched| {
        let sample = |metric, value| {
            let sample = Sample::new(file.at_s, metric, file.index, value).size(file.bytes);
            match connections {
                1 => sample,
                _ => sample.stream(file.connection),
            }
        };
        let connect = file.connect_ms.map(|ms| sample(Metric::ConnectMs, ms));
        connect.into_iter().chain([
            sample(Metric::FirstByteMs, file.first_byte_ms),
            sample(Metric::CompletionMs, file.completion_ms),
        ])
    };
    let mut samples: Vec<Sample> = fetched.iter().flat_map(of).collect();
    samples.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    samples
}

/// The times of all files.
pub(super) fn figures(fetched: &[Fetched], plan: &FilesPlan) -> Vec<Figure> {
    if fetched.is_empty() {
        return Vec::new();
    }
    let bytes: u64 = fetched.iter().map(|file| file.bytes).sum();
    let ends = fetched.iter().map(|f| f.at_s + f.completion_ms / 1e3);
    let elapsed_s = ends.fold(0.0, f64::max);
    let total = |metric, value| Figure::new(metric, Statistic::Total, value);
    let mean = |metric, value| Figure::new(metric, Statistic::Mean, value);
    let mut figures = vec![
        total(Metric::Files, fetched.len() as f64),
        total(Metric::ReceivedBytes, bytes as f64),
        total(Metric::ElapsedS, elapsed_s),
        mean(Metric::FilesPerS, fetched.len() as f64 / elapsed_s),
        mean(Metric::GoodputBitPerS, bytes as f64 * 8.0 / elapsed_s),
    ];
    let of = |values: &dyn Fn(&Fetched) -> Option<f64>| fetched.iter().filter_map(values).collect();
    figures.extend(distribution(Metric::ConnectMs, of(&|f| f.connect_ms)));
    figures.extend(distribution(
        Metric::FirstByteMs,
        of(&|f| Some(f.first_byte_ms)),
    ));
    figures.extend(distribution(
        Metric::CompletionMs,
        of(&|f| Some(f.completion_ms)),
    ));
    // Where sizes come in turn, what a file takes can be told by its size.
    for size in plan.sizes.as_ref().map(Sizes::distinct).unwrap_or_default() {
        let of_size = of(&|f| (f.bytes == size).then_some(f.completion_ms));
        let all = distribution(Metric::CompletionMs, of_size);
        let median = all.into_iter().find(|f| f.statistic == Statistic::Median);
        figures.extend(median.map(|figure| figure.size(size)));
    }
    figures
}

/// Mean, median with its interval, and the upper percentiles.
fn distribution(metric: Metric, mut values: Vec<f64>) -> Vec<Figure> {
    values.sort_by(f64::total_cmp);
    let Some(spread) = Spread::of(&values) else {
        return Vec::new();
    };
    let median = Figure::new(metric, Statistic::Median, spread.median);
    let median = match order_statistics::median_interval(&values) {
        Some([low, high]) => median.within(low, high),
        None => median,
    };
    let percentile = |statistic, share| {
        let value = order_statistics::percentile(&values, share)?;
        Some(Figure::new(metric, statistic, value))
    };
    [
        Some(Figure::new(metric, Statistic::Mean, spread.mean)),
        Some(median),
        percentile(Statistic::P90, 0.90),
        percentile(Statistic::P99, 0.99),
    ]
    .into_iter()
    .flatten()
    .collect()
}
