//! Measurements put together from tables of what was found; what was not found is left out.

use record::{Direction, Figure, Measurement, Metric, Sample, Statistic};

/// Figures of what was found, all of one direction if they are of any.
pub(crate) fn figures(
    direction: Option<Direction>,
    found: impl IntoIterator<Item = (Metric, Statistic, Option<f64>)>,
) -> impl Iterator<Item = Figure> {
    found
        .into_iter()
        .filter_map(move |(metric, statistic, value)| {
            let figure = Figure::new(metric, statistic, value?);
            Some(Figure {
                direction,
                ..figure
            })
        })
}

/// Samples of what was found in the interval or probe `index`, taken at `at_s`.
pub(crate) fn samples(
    at_s: f64,
    index: u64,
    direction: Direction,
    found: impl IntoIterator<Item = (Metric, Option<f64>)>,
) -> impl Iterator<Item = Sample> {
    found.into_iter().filter_map(move |(metric, value)| {
        Some(Sample::new(at_s, metric, index, value?).toward(direction))
    })
}

/// A measurement that never came about, with all causes of the error.
pub(crate) fn failed(error: anyhow::Error) -> Measurement {
    Measurement::failed(format!("{error:#}"))
}

/// Why something did not end well, with all causes; nothing if it did.
pub(crate) fn failure(outcome: anyhow::Result<()>) -> Option<String> {
    outcome.err().map(|error| format!("{error:#}"))
}
