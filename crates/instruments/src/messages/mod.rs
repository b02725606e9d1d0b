//! Messages over TCP or UDP: `pingpong` for round-trip times and `blast` for throughput against message size, as nettest sent
//! them ("Experiment on Oct 10", kernel 2.4.10); `transfer` for the reads at the receiver ("Perl TCP Transfer Test").
//! One small framing of ours carries all three: see [`wire`].

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

/// Bytes of a MiB.
const MIB: f64 = 1024.0 * 1024.0;

/// What the variation of the runs is, as a fact.
const VARIATION: &str = "mean absolute deviation of the runs, as \"Experiment on Oct 10\" has it; SD is the sample standard deviation (n - 1)";

/// The time of a run, over all runs of a size.
fn elapsed() -> MetricRow {
    MetricRow::new(Metric::ElapsedS, &[Mean, Sd, MeanDeviation]).headlines(&[Mean])
}

/// Its figures.
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

/// Whether Nagle's algorithm is on, as a fact.
fn nagle_in_words(on: bool) -> &'static str {
    if on { "on" } else { "off (TCP_NODELAY)" }
}

#[cfg(test)]
mod tests;
