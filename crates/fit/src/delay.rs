//! The delay of the idle path, and its variation.

use conditions::Direction;
use statrs::distribution::{ContinuousCDF as _, Normal};
use stats::autocorrelation::SeriesMean;
use stats::order_statistics::{quantile, sorted};
use stats::quantile::Quantile;
use stats::t_interval;

use crate::estimate::Estimate;
use crate::index;
use crate::observations::ProbeSession;
use crate::over_time::OverTime;
use crate::varying_delay::VaryingDelay;

/// The error of software timestamps of both ends in milliseconds.
const STAMP_ERROR_MS: f64 = 0.1;
/// The range from the 10th to the 90th percentile, in milliseconds, below which no jitter is fitted: hosts alone vary
/// by that much.
const LEAST_RANGE_MS: f64 = 0.3;
/// The share of the width of a uniform law between its 10th and its 90th percentile.
const UNIFORM_RANGE: f64 = 0.8;
/// The standard deviations of a normal law between its 10th and its 90th percentile.
const NORMAL_RANGE: f64 = 2.563_103;
/// By how much the distance to one law must exceed that to the other, so that the choice is clear.
const CLEAR: f64 = 1.5;
/// The distance of Kolmogorov and Smirnov that values of a law exceed with a probability of 1 %, multiplied by the square root of
/// the number of independent values (N. Smirnov, "Table for estimating the goodness of fit of empirical distributions", 1948).
const BY_CHANCE: f64 = 1.628;
/// The correlation of neighbours, in standard errors of independent values, from which on it is fitted.
const CORRELATED: f64 = 3.0;
/// The most values from which the interval of a mean is computed.
const MOST_VALUES: usize = 10_000;
/// The fewest probes that show the correlation of neighbours.
const FEWEST: usize = 50;

/// The delay of a direction.
#[derive(Clone, Debug, PartialEq)]
pub struct DelayFit {
    /// The mean delay in milliseconds, without the time that the bottleneck needs for the probe itself, if that is known.
    pub ms: Estimate,
    /// Whether that time is known.
    pub without_transmission: bool,
    /// The delay over time in milliseconds, if it varies so much that one delay does not describe it.
    pub over_time: Option<OverTime>,
    /// The variation, if it exceeds that of the hosts. That of a delay over time is not a part of it.
    pub jitter: Option<JitterFit>,
    /// The share of packets that skip the delay, in percent, if some do.
    pub skipped_percent: Option<Estimate>,
    /// Whether packets overtake each other.
    pub reorders: bool,
    /// The number of probes behind it.
    pub probes: usize,
    /// The number of packets that could not be paired, so that they do not count.
    pub unclear: u64,
    /// The number of sessions that do not count, because they have only round trips, and others have delays in each direction.
    pub round_trips_only: usize,
}

/// The random part of a delay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JitterFit {
    /// Half the width of a uniform law, or the standard deviation of a normal one, in milliseconds.
    pub spread_ms: Estimate,
    /// The law.
    pub law: JitterLaw,
    /// The largest difference between the share of delays below a value and the law's, from 0 to 1.
    pub misfit: f64,
    /// Whether the other law fits clearly worse.
    pub is_clear: bool,
    /// Whether the delays differ from the law by more than chance explains, so that no law fits. It is the nearest one then.
    pub is_rejected: bool,
    /// The time after which the delays of two packets are half as similar, in milliseconds; `None` if neighbouring
    /// probes are independent.
    pub half_life_ms: Option<Estimate>,
}

/// A distribution of the random part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JitterLaw {
    /// Each value within the spread is equally likely.
    Uniform,
    /// Normal.
    Normal,
}

/// The time that a bottleneck needs for a probe, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Served {
    /// The time at the rate; 0 if that is not known.
    pub(crate) ms: f64,
    /// The range of that time over nine of ten windows of a rate that varies; 0 for a constant rate.
    pub(crate) range_ms: f64,
}

impl Served {
    /// Returns the time of this bottleneck and another one together.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            ms: self.ms + other.ms,
            range_ms: self.range_ms + other.range_ms,
        }
    }
}

impl DelayFit {
    /// Fits the delay of a direction to one-way delays, whose probes the bottleneck served in this time.
    pub(crate) fn of_one_way(idle: &ProbeSession, way: Direction, served: Served) -> Option<Self> {
        let all: Vec<(f64, f64)> = idle
            .probes
            .iter()
            .filter_map(|probe| Some((probe.at_s, probe.one_way_ms[index(way)]? - served.ms)))
            .collect();
        let skipped = Skipped::find(&all);
        let kept: Vec<(f64, f64)> = all
            .into_iter()
            .filter(|(_, delay)| *delay > skipped.below_ms)
            .collect();
        let reorders = idle.reordered[index(way)];
        let error_ms = STAMP_ERROR_MS + idle.clock_error_ms;
        let fit = Self::of(&kept, error_ms, served.range_ms)?;
        Some(Self {
            without_transmission: served.ms > 0.0,
            skipped_percent: skipped.percent,
            reorders: reorders && skipped.percent.is_none(),
            unclear: idle.unclear[index(way)],
            ..fit
        })
    }

    /// Returns whether its value is the mean; otherwise it is the median.
    pub(crate) fn is_mean(&self) -> bool {
        self.jitter.is_some() || self.over_time.is_some()
    }

    /// Fits the delay of each direction as half of the round trip, whose probes both bottlenecks together served in this
    /// time.
    pub(crate) fn of_half(idle: &ProbeSession, served: Served) -> Option<Self> {
        let answered = idle.answered();
        let all: Vec<(f64, f64)> = answered
            .filter_map(|probe| Some((probe.at_s, probe.rtt_ms? - served.ms)))
            .collect();
        let whole = Self::of(&all, 2.0 * STAMP_ERROR_MS, served.range_ms)?;
        let half = |estimate: Estimate| estimate.map(|ms| ms / 2.0);
        Some(Self {
            ms: half(whole.ms),
            over_time: whole.over_time.map(|all| all.map(|ms| ms / 2.0)),
            without_transmission: served.ms > 0.0,
            // The sum of two independent variations has the variances of both together.
            jitter: whole.jitter.map(|jitter| JitterFit {
                spread_ms: jitter.spread_ms.map(|ms| ms / 2.0_f64.sqrt()),
                is_clear: false,
                ..jitter
            }),
            ..whole
        })
    }

    fn of(probes: &[(f64, f64)], error_ms: f64, served_range_ms: f64) -> Option<Self> {
        let values: Vec<f64> = probes.iter().map(|(_, delay)| *delay).collect();
        let (over_time, rest) = VaryingDelay::of(probes, served_range_ms)
            .map(|found| (found.over_time, found.rest))
            .unzip();
        let jitter = JitterFit::of(rest.as_deref().unwrap_or(probes));
        let found = match jitter.is_some() || over_time.is_some() {
            true => mean(&values)?,
            false => {
                let median = Quantile::of(&values, 0.5)?;
                Estimate::with_known(median.value, median.interval)
            }
        };
        Some(Self {
            ms: found.widened(error_ms).map(|ms| ms.max(0.0)),
            without_transmission: false,
            over_time,
            jitter,
            skipped_percent: None,
            reorders: false,
            probes: values.len(),
            unclear: 0,
            round_trips_only: 0,
        })
    }
}

/// Returns the mean of the values without the outermost hundredth at either end, where the hosts' stalls are.
fn mean(values: &[f64]) -> Option<Estimate> {
    let ordered = sorted(values);
    let [low, high] = [quantile(&ordered, 0.01)?, quantile(&ordered, 0.99)?];
    let kept: Vec<f64> = values
        .iter()
        .copied()
        .filter(|value| (low..=high).contains(value))
        .collect();
    // The cost of the interval grows with the square of the length, and means of neighbours give the same one.
    let together = kept.len().div_ceil(MOST_VALUES).max(1);
    let means: Vec<f64> = kept.chunks(together).filter_map(t_interval::mean).collect();
    let mean = t_interval::mean(&kept)?;
    let series = SeriesMean::of(&means).filter(|series| series.enough);
    Some(Estimate::with_known(
        mean,
        series.map(|series| series.interval),
    ))
}

/// The packets that skip the delay.
struct Skipped {
    /// Delays up to this one are of packets that skipped it, in milliseconds; negative if none did.
    below_ms: f64,
    percent: Option<Estimate>,
}

impl Skipped {
    /// Finds packets with almost no delay on a path with a delay. They are a group of their own if hardly any delays
    /// lie between them and the others.
    fn find(probes: &[(f64, f64)]) -> Self {
        let none = Self {
            below_ms: f64::NEG_INFINITY,
            percent: None,
        };
        let values: Vec<f64> = probes.iter().map(|(_, delay)| *delay).collect();
        let Some(median) = quantile(&sorted(&values), 0.5).filter(|median| *median > 1.0) else {
            return none;
        };
        let below_ms = 0.1 * median + 0.1;
        let up_to = |most: f64| values.iter().filter(|value| **value <= most).count() as u64;
        let (count, near) = (up_to(below_ms), up_to(0.3 * median + 0.1));
        let share = count as f64 / values.len() as f64;
        let interval = stats::proportion::wilson(count, values.len() as u64);
        match interval {
            Some(interval) if count > 0 && near - count <= count / 5 => Self {
                below_ms,
                percent: Some(Estimate::new(share, interval).map(|share| 100.0 * share)),
            },
            _ => none,
        }
    }
}

impl JitterFit {
    /// Fits the variation of delays, each with its time in seconds; `None` if it does not exceed that of hosts.
    fn of(probes: &[(f64, f64)]) -> Option<Self> {
        let values: Vec<f64> = probes.iter().map(|(_, delay)| *delay).collect();
        let ordered = sorted(&values);
        let of = |share| Quantile::of_sorted(&values, &ordered, share);
        let (low, high) = (of(0.1)?, of(0.9)?);
        let range = high.value - low.value;
        if range < LEAST_RANGE_MS {
            return None;
        }
        // The errors of both percentiles add up as those of independent values.
        let error = |one: Quantile| {
            one.interval
                .map_or(f64::INFINITY, |[low, high]| (high - low) / 2.0)
        };
        let range = Estimate::within(range, error(low).hypot(error(high)));
        let [half_width, deviation] =
            [2.0 * UNIFORM_RANGE, NORMAL_RANGE].map(|part| range.map(|range| range / part));
        let middle = f64::midpoint(low.value, high.value);
        let normal = Normal::new(middle, deviation.value).ok()?;
        let of_normal = misfit(&ordered, |value| normal.cdf(value));
        let of_uniform = misfit(&ordered, |value| {
            ((value - middle) / half_width.value / 2.0 + 0.5).clamp(0.0, 1.0)
        });
        let (law, misfit, other, spread_ms) = if of_uniform <= of_normal {
            (JitterLaw::Uniform, of_uniform, of_normal, half_width)
        } else {
            (JitterLaw::Normal, of_normal, of_uniform, deviation)
        };
        // Neighbours that are similar show as much as fewer independent values.
        let independent = of(0.5)?.effective_samples;
        Some(Self {
            spread_ms,
            law,
            misfit,
            is_clear: other > CLEAR * misfit,
            is_rejected: misfit * independent.sqrt() > BY_CHANCE,
            half_life_ms: half_life(probes),
        })
    }
}

/// Returns the largest difference between the share of `ordered` values below a value and the share of a law: the
/// statistic of Kolmogorov and Smirnov.
fn misfit(ordered: &[f64], law: impl Fn(f64) -> f64) -> f64 {
    let count = ordered.len() as f64;
    let differences = ordered.iter().enumerate().map(|(place, value)| {
        let share = law(*value);
        let (below, with) = (place as f64 / count, (place + 1) as f64 / count);
        (share - below).abs().max((with - share).abs())
    });
    differences.fold(0.0, f64::max)
}

/// Returns the half-life in milliseconds, if delays of neighbouring probes are correlated.
///
/// The emulator's score wanders so that two scores at a distance dt have the correlation 2^(-dt / half-life). Ranks
/// give each delay its score, whatever the law.
pub(crate) fn half_life(probes: &[(f64, f64)]) -> Option<Estimate> {
    if probes.len() < FEWEST {
        return None;
    }
    let gaps = probes.windows(2).map(|pair| pair[1].0 - pair[0].0);
    let gaps = sorted(&gaps.collect::<Vec<f64>>());
    let interval_s = quantile(&gaps, 0.5).filter(|gap| *gap > 0.0)?;
    let mut order: Vec<usize> = (0..probes.len()).collect();
    order.sort_by(|one, other| probes[*one].1.total_cmp(&probes[*other].1));
    let mut scores = vec![0.0; probes.len()];
    let normal = Normal::standard();
    for (rank, place) in order.into_iter().enumerate() {
        scores[place] = normal.inverse_cdf((rank as f64 + 0.5) / probes.len() as f64);
    }
    let neighbours: Vec<(f64, f64)> = probes
        .windows(2)
        .zip(scores.windows(2))
        .filter(|(probes, _)| probes[1].0 - probes[0].0 < 1.5 * interval_s)
        .map(|(_, scores)| (scores[0], scores[1]))
        .collect();
    let count = neighbours.len() as f64;
    if neighbours.len() < FEWEST {
        return None;
    }
    let products: f64 = neighbours.iter().map(|(one, other)| one * other).sum();
    let squares: f64 = neighbours
        .iter()
        .map(|(one, other)| (one * one + other * other) / 2.0)
        .sum();
    let correlation = products / squares;
    if correlation < CORRELATED / count.sqrt() {
        return None;
    }
    let error = 1.96 * ((1.0 - correlation * correlation) / count).sqrt();
    let [low, high] =
        [correlation - error, correlation + error].map(|one| one.clamp(0.001, 0.9999));
    let half_life = |correlation: f64| -1e3 * interval_s / correlation.clamp(0.001, 0.9999).log2();
    Some(Estimate::new(
        half_life(correlation),
        [half_life(low), half_life(high)],
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_that_no_law_describes_are_not_said_to_follow_one() {
        let mut random = fastrand::Rng::with_seed(5);
        let mut jitter = |delay: fn(f64) -> f64| {
            let probes = (0..1000).map(|at| (f64::from(at) / 100.0, delay(random.f64())));
            JitterFit::of(&probes.collect::<Vec<_>>()).unwrap()
        };
        let uniform = jitter(|share| 20.0 + 10.0 * share);
        assert_eq!(
            (uniform.law, uniform.is_rejected),
            (JitterLaw::Uniform, false)
        );
        let two_paths = jitter(|share| 20.0 + 10.0 * share.round() + share);
        assert!(two_paths.is_rejected, "{two_paths:?}");
        // Ten values do not show it.
        let few = (0..10).map(|at| (f64::from(at), if at % 3 == 0 { 20.0 } else { 30.0 }));
        let few = JitterFit::of(&few.collect::<Vec<_>>()).unwrap();
        assert!(few.misfit > 0.2 && !few.is_rejected, "{few:?}");
    }

    #[test]
    fn similar_delays_have_no_interval() {
        let delays = (0..40).map(|at| (f64::from(at) / 100.0, 20.0 + f64::from(at) / 1e3));
        let found = DelayFit::of(&delays.collect::<Vec<_>>(), 0.1, 0.0).unwrap();
        assert_eq!((found.jitter, found.ms.known_interval()), (None, None));
    }
}
