//! Messages over TCP or UDP. `pingpong` measures round-trip times and `blast` throughput by message size, as nettest
//! does ("Experiment on Oct 10", kernel 2.4.10). `transfer` measures the reads at the receiver ("Perl TCP Transfer
//! Test"). All three use the small protocol that [`wire`] describes.

pub mod args;
pub mod blast;
mod client;
mod connection;
pub mod pingpong;
mod round_trips;
pub(crate) mod server;
pub mod sizes;
pub(crate) mod tables;
pub mod transfer;
pub mod wire;

pub(crate) use client::{MessageTarget, SILENCE};

use crate::measured;
use record::Statistic::{Mean, MeanDeviation, Sd};
use record::metric_table::MetricRow;
use record::{Figure, Metric};
use stats::t_interval;

/// The number of bytes in a MiB.
const MIB: f64 = 1024.0 * 1024.0;

/// The definition of the variation of the runs, stated among the facts of a measurement.
const VARIATION: &str = "mean absolute deviation of the runs, as \"Experiment on Oct 10\" has it; SD is the sample standard deviation (n - 1)";

/// Returns the metric of the duration of a run, over all runs of a size.
fn elapsed() -> MetricRow {
    MetricRow::new(Metric::ElapsedS, &[Mean, Sd, MeanDeviation]).headlines(&[Mean])
}

/// Returns the figures of the durations of all runs of a size.
fn elapsed_figures(elapsed_s: &[f64]) -> impl Iterator<Item = Figure> {
    let found = [
        (Metric::ElapsedS, Mean, t_interval::mean(elapsed_s)),
        (Metric::ElapsedS, Sd, t_interval::sample_sd(elapsed_s)),
        (
            Metric::ElapsedS,
            MeanDeviation,
            t_interval::mean_deviation(elapsed_s),
        ),
    ];
    measured::figures(None, found)
}

/// Returns a fact that tells whether Nagle's algorithm is on.
fn nagle_in_words(on: bool) -> &'static str {
    if on { "on" } else { "off (TCP_NODELAY)" }
}

#[cfg(test)]
mod tests;
