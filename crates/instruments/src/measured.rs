//! Figures and samples of a measurement, made from tables of values. Absent values are left out.

use crate::error::{Error, Result};
use record::metric_table::MetricRow;
use record::profile::FlentSeries;
use record::{Direction, Figure, Measurement, Metric, Sample, Statistic};
use stats::layers::Layers;
use stats::losses::Losses;
use stats::quantile::Quantile;
use stats::{order_statistics, t_interval};

/// The method behind the confidence intervals of quantiles of consecutive samples, stated among the facts of a
/// measurement.
pub(crate) const QUANTILE_INTERVAL: &str =
    "of quantiles by Woodruff's method, from blocks of neighbouring samples";

/// Returns the table row for the goodput of streams of `protocol`.
pub(crate) fn goodput(protocol: &str) -> MetricRow {
    let series = FlentSeries::of_streams(protocol);
    MetricRow::mean(Metric::GoodputBitPerS)
        .headline()
        .flent_series(series)
}

/// Returns a figure for each value that is present, all with the same direction, if there is one.
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

/// Returns a sample for each value that is present, taken at `at_s` seconds in the interval or for the probe `index`.
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

/// Returns a figure with a total count.
pub(crate) fn total(metric: Metric, count: u64) -> Figure {
    Figure::new(metric, Statistic::Total, count as f64)
}

/// Returns a figure with a mean.
pub(crate) fn mean(metric: Metric, value: f64) -> Figure {
    Figure::new(metric, Statistic::Mean, value)
}

/// Returns the percentage of lost packets, with its confidence interval.
pub(crate) fn lost_percent(losses: Losses) -> Figure {
    let interval = losses.interval();
    Figure {
        interval: interval.map(|share| share.map(|end| 100.0 * end)),
        losses: Some(losses),
        ..mean(Metric::LostPercent, losses.percent().unwrap_or_default())
    }
}

/// The meaning of the interval of [`lost_percent`], stated among the facts of a measurement.
pub(crate) const LOSS_INTERVAL: &str =
    "of the probability with which a packet is lost, from the observed bursts of losses";

/// Returns the share of values, from 0 to 1, below which a quantile lies. `None` means that the statistic is no
/// quantile.
pub(crate) fn quantile_share(statistic: Statistic) -> Option<f64> {
    match statistic {
        Statistic::Median => Some(0.5),
        Statistic::P90 => Some(0.9),
        Statistic::P95 => Some(0.95),
        Statistic::P99 => Some(0.99),
        _ => None,
    }
}

/// Returns these statistics of `values`, which are in the order of measurement. The intervals of quantiles are computed
/// from blocks of neighbouring values. Without values there are no figures.
pub(crate) fn distribution(
    metric: Metric,
    values: &[f64],
    statistics: &[Statistic],
) -> Vec<Figure> {
    let sorted = order_statistics::sorted(values);
    let figure = |&statistic: &Statistic| {
        let share = quantile_share(statistic);
        let quantile = share.and_then(|share| Quantile::of_sorted(values, &sorted, share));
        let value = match statistic {
            Statistic::Min => sorted.first().copied(),
            Statistic::Mean => t_interval::mean(values),
            Statistic::Max => sorted.last().copied(),
            _ => quantile.map(|quantile| quantile.value),
        };
        Some(Figure {
            interval: quantile.and_then(|quantile| quantile.interval),
            effective_samples: quantile.map(|quantile| quantile.effective_samples),
            ..Figure::new(metric, statistic, value?)
        })
    };
    statistics.iter().filter_map(figure).collect()
}

/// Returns a goodput and the rates that it causes on layers 3, 2 and 1, if `layers` is known.
pub(crate) fn at_layers(goodput: f64, layers: Option<Layers>) -> Vec<(Metric, f64)> {
    let below = layers.map(|layers| {
        [
            (Metric::L3RateBitPerS, layers.l3(goodput)),
            (Metric::L2RateBitPerS, layers.l2(goodput)),
            (Metric::L1RateBitPerS, layers.l1(goodput)),
        ]
    });
    let all = [(Metric::GoodputBitPerS, goodput)].into_iter();
    all.chain(below.into_iter().flatten()).collect()
}

/// Returns the rates of [`at_layers`] as figures. The bounds of the goodput's interval are converted in the same way.
pub(crate) fn rates(
    goodput: f64,
    interval: Option<[f64; 2]>,
    layers: Option<Layers>,
) -> impl Iterator<Item = Figure> {
    let bounds = interval.map(|bounds| bounds.map(|bound| at_layers(bound, layers)));
    let rates = at_layers(goodput, layers).into_iter().enumerate();
    rates.map(move |(at, (metric, rate))| Figure {
        interval: bounds.as_ref().map(|[low, high]| [low[at].1, high[at].1]),
        ..mean(metric, rate)
    })
}

/// Returns a failed measurement that states the error with all its causes.
pub(crate) fn failed(error: Error) -> Measurement {
    Measurement::failed(format!("{error:#}"))
}

/// Returns the text of an error with all its causes, or `None` after success.
pub(crate) fn failure(outcome: Result<()>) -> Option<String> {
    outcome.err().map(|error| format!("{error:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns 400 values whose neighbours have a correlation of 0.9.
    fn alike() -> Vec<f64> {
        let mut random = fastrand::Rng::with_seed(1);
        let mut value = 0.0;
        let mut next = || {
            // The sum of twelve uniform draws is nearly normal, with a variance of 1.
            let draw = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
            value = 0.9 * value + 0.19_f64.sqrt() * draw;
            100.0 + value
        };
        (0..400).map(|_| next()).collect()
    }

    #[test]
    fn the_interval_of_a_median_is_woodruff_s_as_documented() {
        let values = alike();
        let figures = distribution(Metric::RttMs, &values, &[Statistic::Median]);
        let [low, high] = figures[0].interval.unwrap();
        // The ranks of the binomial distribution assume independent probes: they would be the 181st and the 220th of
        // 400.
        let sorted = order_statistics::sorted(&values);
        let of_ranks = sorted[219] - sorted[180];
        assert!(high - low > 1.5 * of_ranks, "{low} to {high}: {of_ranks}");
        assert!(QUANTILE_INTERVAL.contains("Woodruff's method"));
        for documented in [
            include_str!("../../../docs/instruments/connect.md"),
            include_str!("../../../docs/instruments/http.md"),
            include_str!("../../../docs/instruments/messages.md"),
            include_str!("../../../docs/instruments/ping.md"),
            include_str!("../../../docs/instruments/probe.md"),
            include_str!("../../../docs/instruments/tls.md"),
        ] {
            assert!(documented.contains("Woodruff's"));
            assert!(!documented.contains("order statistics"));
        }
    }
}
