//! The steady rate of an instrument, and the time until it was reached.

use model::Nanos;

use super::CaseFigures;
use super::intervals::{DIRECTIONS, RateQuantity, RateSeries, ThroughputInterval};
use crate::interval::{ConfidenceInterval, IntervalScope};
use record::{Direction, Metric, Statistic};
use stats::autocorrelation::SeriesMean;
use stats::{order_statistics, steady, t_interval};

/// The rate of one instrument in one direction, over the runs of a case.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Throughput {
    /// The quantity that the rate counts, received or sent.
    pub(crate) quantity: RateQuantity,
    /// The direction; absent for samples without one.
    pub(crate) direction: Option<Direction>,
    /// Mean over the runs of the rate after the warm-up, in bit/s.
    pub(crate) steady: f64,
    /// The requested rate in bit/s; only for a sent rate, and if it is known.
    pub(crate) requested: Option<f64>,
    /// The 95 % confidence interval of the steady rate: Student's t over the runs, or, for a single run, batch means
    /// with its autocorrelation.
    pub(crate) interval: Option<ConfidenceInterval>,
    /// Whether the interval can be trusted. That of a single run cannot if its values are too few or too strongly
    /// correlated.
    pub(crate) trusted: bool,
    /// The time that each run leaves out at its start.
    pub(crate) warm_ups: Vec<LeftOutStart>,
    /// Seconds after which each run first reached its steady rate, in ascending order. Runs that never did are left
    /// out.
    pub(crate) ramps_s: Vec<f64>,
}

/// The time left out at the start of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum LeftOutStart {
    /// Seconds that the scenario sets.
    Fixed(f64),
    /// Seconds that [`steady::warm_up`] found.
    Found(f64),
    /// Nothing, because the rate did not settle in the first half, or at all.
    Unsettled,
    /// Nothing, because there are too few intervals.
    TooShort,
}

/// The steady rate of one run.
struct Steady {
    mean: f64,
    series: Option<SeriesMean>,
    warm_up: LeftOutStart,
    ramp_s: Option<f64>,
}

impl Throughput {
    /// Returns the throughput of an instrument for each direction in which the runs of a case have intervals.
    pub(crate) fn of(case: &CaseFigures<'_>, instrument: &str) -> Vec<Self> {
        let fixed = case.case.instrument(instrument).and_then(|i| i.warm_up);
        let ways = DIRECTIONS.into_iter().flat_map(|direction| {
            let measured = case.measured(instrument);
            let runs = measured.filter(|(_, measurement)| measurement.failure.is_none());
            let series: Vec<RateSeries> = runs
                .filter_map(|(_, m)| RateSeries::shown(m, direction))
                .collect();
            RateQuantity::ALL.into_iter().filter_map(move |quantity| {
                let own = series.iter().filter(|one| one.quantity() == quantity);
                let runs = own.filter_map(|one| Steady::of(one.intervals(), fixed));
                let over = Self::over(quantity, direction, &runs.collect::<Vec<_>>())?;
                let is_sent = quantity == RateQuantity::Sent;
                let asked = is_sent.then(|| requested(case, instrument, direction));
                Some(Self {
                    requested: asked.flatten(),
                    ..over
                })
            })
        });
        ways.collect()
    }

    fn over(quantity: RateQuantity, direction: Option<Direction>, runs: &[Steady]) -> Option<Self> {
        let means: Vec<f64> = runs.iter().map(|run| run.mean).collect();
        let over_runs = t_interval::mean_interval(&means);
        let over = over_runs.map(|ends| (ends, IntervalScope::Runs(means.len())));
        let only = runs.first().and_then(|run| run.series);
        let interval = over.or(only.map(|series| (series.interval, IntervalScope::Intervals)));
        let ramps: Vec<f64> = runs.iter().filter_map(|run| run.ramp_s).collect();
        Some(Self {
            quantity,
            direction,
            requested: None,
            steady: t_interval::mean(&means)?,
            interval: interval.map(|(ends, of)| ConfidenceInterval { ends, of }),
            trusted: over_runs.is_some() || only.is_some_and(|series| series.enough),
            warm_ups: runs.iter().map(|run| run.warm_up).collect(),
            ramps_s: order_statistics::sorted(&ramps),
        })
    }
}

/// Returns the rate in bit/s at which an instrument was to send in one direction, as its runs report it.
pub(crate) fn requested(
    case: &CaseFigures<'_>,
    instrument: &str,
    direction: Option<Direction>,
) -> Option<f64> {
    let mut figures = case.figures.iter();
    let (_, figure) = figures.find(|(name, _)| {
        name.instrument == instrument
            && (name.metric, name.statistic) == (Metric::RequestedRateBitPerS, Statistic::Mean)
            && name.direction == direction
    })?;
    Some(figure.value())
}

impl Steady {
    /// Computes the steady rate from a run's intervals; `None` if there are fewer than two.
    fn of(intervals: &[ThroughputInterval], fixed: Option<Nanos>) -> Option<Self> {
        let whole = whole(intervals);
        let (first, last) = (whole.first()?, whole.last()?);
        let length_s = (last.1 - first.0) / whole.len() as f64;
        let rates: Vec<f64> = whole
            .iter()
            .map(|(start, end, bits)| bits / (end - start))
            .collect();
        let warm_up = match (fixed, steady::warm_up(&rates)) {
            (Some(time), _) => LeftOutStart::Fixed(std::time::Duration::from(time).as_secs_f64()),
            (None, None) => LeftOutStart::TooShort,
            (None, Some(found)) if !found.settles => LeftOutStart::Unsettled,
            (None, Some(found)) => LeftOutStart::Found(found.values as f64 * length_s),
        };
        // An interval counts from its middle on, so that rounding has no influence.
        let from = first.0 + warm_up.seconds() - length_s / 2.0;
        let left = whole.iter().position(|(start, ..)| *start >= from)?;
        let mean = t_interval::mean(&rates[left..])?;
        let ramp = match warm_up {
            LeftOutStart::Fixed(_) | LeftOutStart::Found(_) => steady::ramp(&rates, mean),
            LeftOutStart::Unsettled | LeftOutStart::TooShort => None,
        };
        Some(Self {
            mean,
            series: SeriesMean::of(&rates[left..]),
            warm_up,
            ramp_s: ramp.map(|reached| reached as f64 * length_s),
        })
    }
}

impl LeftOutStart {
    /// Returns the seconds that were left out.
    pub(crate) fn seconds(self) -> f64 {
        match self {
            Self::Fixed(seconds) | Self::Found(seconds) => seconds,
            Self::Unsettled | Self::TooShort => 0.0,
        }
    }
}

/// Returns the intervals without a truncated last one, which has too few packets for a rate; empty if there are fewer
/// than two.
fn whole(intervals: &[ThroughputInterval]) -> &[ThroughputInterval] {
    let length = |(start, end, _): &ThroughputInterval| end - start;
    match intervals {
        [first, .., last] if length(last) <= length(first) / 2.0 => {
            whole(&intervals[..intervals.len() - 1])
        }
        [_, _, ..] => intervals,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::draws;

    /// 100 intervals of 0.1 s at 1,000 bit/s, of which the first `slow` rise from 0, and then a truncated one.
    fn rising(slow: usize) -> Vec<ThroughputInterval> {
        let noise = draws(1, 100);
        let whole = noise.iter().enumerate().map(|(at, noise)| {
            let start = at as f64 * 0.1;
            let level = (at as f64 / slow.max(1) as f64).min(1.0);
            (start, start + 0.1, (1_000.0 * level + noise) * 0.1)
        });
        whole.chain([(10.0, 10.01, 0.0)]).collect()
    }

    #[test]
    fn a_slow_start_is_left_out_and_its_length_is_reported() {
        let run = Steady::of(&rising(12), None).unwrap();
        assert!(matches!(run.warm_up, LeftOutStart::Found(s) if (s - 1.5).abs() < 1e-9));
        assert!((run.mean - 1_000.0).abs() < 1.0, "{}", run.mean);
        let ramp = run.ramp_s.unwrap();
        assert!((1.2..=1.6).contains(&ramp), "{ramp}");
    }

    #[test]
    fn a_fixed_warm_up_is_left_out() {
        let run = Steady::of(&rising(12), Some(Nanos(5_000_000_000))).unwrap();
        assert_eq!(run.warm_up, LeftOutStart::Fixed(5.0));
        let ramp = run.ramp_s.unwrap();
        assert!((1.2..=1.6).contains(&ramp), "{ramp}");
        assert!(run.series.unwrap().enough);
        // The warm-up is as long as the measurement, so nothing is left.
        assert!(Steady::of(&rising(12), Some(Nanos(20_000_000_000))).is_none());
    }

    #[test]
    fn unsettled_and_short_series_are_kept_whole_and_marked() {
        let unsettled = Steady::of(&rising(100), None).unwrap();
        assert_eq!(unsettled.warm_up, LeftOutStart::Unsettled);
        assert_eq!(unsettled.ramp_s, None);
        let short = Steady::of(&rising(0)[..10], None).unwrap();
        assert_eq!(short.warm_up, LeftOutStart::TooShort);
        assert!(Steady::of(&rising(0)[..1], None).is_none());
    }

    #[test]
    fn one_run_has_an_interval_from_its_series_and_several_from_their_spread() {
        let run = || Steady::of(&rising(0), None).unwrap();
        let one = Throughput::over(RateQuantity::Goodput, None, &[run()]).unwrap();
        assert!(one.trusted && one.interval.is_some());
        let short = Steady::of(&rising(0)[..10], None).unwrap();
        assert!(
            !Throughput::over(RateQuantity::Goodput, None, &[short])
                .unwrap()
                .trusted
        );
        let two = Throughput::over(RateQuantity::Goodput, None, &[run(), run()]).unwrap();
        assert_eq!((two.warm_ups.len(), two.ramps_s.len()), (2, 2));
        assert_eq!(Throughput::over(RateQuantity::Goodput, None, &[]), None);
    }
}
