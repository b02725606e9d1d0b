//! The common form of all measurements: samples, and the figures that summarise them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use conditions::Direction;
use stats::losses::Losses;
use stats::order_statistics;

use crate::metric::{Metric, Phase, Statistic};
use crate::schedule::Pace;

/// The result of one run of an instrument.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Every single observation, in order of time.
    pub samples: Vec<Sample>,
    /// Summaries of the samples. A quantity that was not measured has no figure.
    pub figures: Vec<Figure>,
    /// Facts about the numbers and the method, such as "rtt", "timestamps" or "tool".
    pub facts: BTreeMap<String, String>,
    /// The reason why the measurement failed; observations before the failure are kept.
    pub failure: Option<String>,
    /// Seconds at the start that were left out of samples and figures on request. The first interval starts after them.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub omitted_s: f64,
    /// The requested and the actual pace of each sender. Empty for an instrument without pacing, and for a tool that
    /// does not report it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paces: Vec<Pace>,
}

/// One observation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since the instrument started: when a probe was sent, or when an interval ended.
    pub at_s: f64,
    /// The metric, whose name includes the unit.
    pub metric: Metric,
    /// The probe's sequence number, or the interval's number, from 1.
    pub index: u64,
    /// The observed value in the metric's unit.
    pub value: f64,
    /// The direction; absent for a round trip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// The number of the stream among several parallel ones, from 1; absent if there is only one, or for all of them
    /// together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<u32>,
    /// Size of the messages, blocks or files in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Whether a load ran simultaneously; absent for an instrument without phases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
}

/// One number that summarises a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The metric, whose name includes the unit.
    pub metric: Metric,
    /// The statistic over the metric's values.
    pub statistic: Statistic,
    /// The direction; absent for a round trip, or for both directions together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// The number of the stream among several parallel ones, from 1; absent for all of them together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<u32>,
    /// Size of the messages, blocks or files in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Whether a load ran simultaneously; absent for an instrument without phases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// The value, in the metric's unit.
    pub value: f64,
    /// The 95 % confidence interval of the network's own value; the facts say how it was computed. If only a lower
    /// bound is known, the upper end is infinite, which JSON stores as null.
    #[serde(
        default,
        deserialize_with = "open_above",
        skip_serializing_if = "Option::is_none"
    )]
    pub interval: Option<[f64; 2]>,
    /// The effective number of independent samples, which takes into account that neighbouring samples may be
    /// correlated. Absent for a value that is not a statistic of samples, and if it was not computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_samples: Option<f64>,
    /// The number of packets and of lost packets behind a share of losses, from which repeated runs are pooled. Absent
    /// for other figures, and for an instrument that reports only a percentage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub losses: Option<Losses>,
    /// The step to which the source rounds the value, if it is coarse; the value may be off by half a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<f64>,
}

/// Deserialises an interval whose upper end is null if it is open.
fn open_above<'de, D: Deserializer<'de>>(from: D) -> Result<Option<[f64; 2]>, D::Error> {
    let ends = <Option<(f64, Option<f64>)>>::deserialize(from)?;
    Ok(ends.map(|(low, high)| [low, high.unwrap_or(f64::INFINITY)]))
}

impl Measurement {
    /// Creates a measurement that failed before it had a result.
    pub fn failed(cause: impl ToString) -> Self {
        Self {
            failure: Some(cause.to_string()),
            ..Self::default()
        }
    }

    /// Returns the reason why a sender fell behind its schedule by more than `allowed`, if one did. The measurement
    /// then does not describe the requested traffic.
    pub fn shortfall(&self, allowed: Duration) -> Option<String> {
        let mut paces = self.paces.iter();
        paces.find_map(|pace| pace.shortfall(allowed))
    }

    /// Adds a fact about the numbers.
    pub fn with_fact(mut self, name: &str, value: impl ToString) -> Self {
        self.facts.insert(name.to_owned(), value.to_string());
        self
    }

    /// Returns the value of the figure over all directions, streams and sizes, if there is one.
    pub fn figure(&self, metric: Metric, statistic: Statistic) -> Option<f64> {
        let whole = Figure::new(metric, statistic, 0.0);
        let mut figures = self.figures.iter();
        figures
            .find(|figure| figure.scope() == whole.scope())
            .map(|figure| figure.value)
    }
}

/// Setters for the scope of a sample or figure.
macro_rules! scoped {
    ($scoped:ty) => {
        impl $scoped {
            /// Sets the direction.
            pub fn toward(mut self, direction: Direction) -> Self {
                self.direction = Some(direction);
                self
            }

            /// Sets the number of the stream among several parallel ones, from 1.
            pub fn stream(mut self, stream: u32) -> Self {
                self.stream = Some(stream);
                self
            }

            /// Sets the size of the messages, blocks or files in bytes.
            pub fn size(mut self, bytes: u64) -> Self {
                self.size = Some(bytes);
                self
            }
        }
    };
}

scoped!(Sample);
scoped!(Figure);

impl Sample {
    /// Creates an observation without direction, stream or size.
    pub fn new(at_s: f64, metric: Metric, index: u64, value: f64) -> Self {
        Self {
            at_s,
            metric,
            index,
            value,
            direction: None,
            stream: None,
            size: None,
            phase: None,
        }
    }
}

impl Figure {
    /// Creates a figure over all directions, streams and sizes, without an interval.
    pub fn new(metric: Metric, statistic: Statistic, value: f64) -> Self {
        Self {
            metric,
            statistic,
            direction: None,
            stream: None,
            size: None,
            phase: None,
            value,
            interval: None,
            effective_samples: None,
            losses: None,
            resolution: None,
        }
    }

    /// Sets the phase.
    pub fn during(mut self, phase: Phase) -> Self {
        self.phase = Some(phase);
        self
    }

    /// Sets the 95 % confidence interval of the network's own value.
    pub fn within(mut self, low: f64, high: f64) -> Self {
        self.interval = Some([low, high]);
        self
    }

    /// Sets the step to which the source rounds the value.
    pub fn in_steps_of(mut self, resolution: f64) -> Self {
        self.resolution = Some(resolution);
        self
    }

    /// Sets the effective number of independent samples.
    pub fn effective_samples(mut self, samples: f64) -> Self {
        self.effective_samples = Some(samples);
        self
    }

    /// Returns whether the samples are too few for the figure: fewer than ten effective samples or, for a percentile,
    /// fewer than five beyond it. Reports then print "n/a" in place of the interval, or of the percentile.
    pub fn is_of_too_few(&self) -> bool {
        let fewest = match self.statistic {
            Statistic::P90 => order_statistics::fewest(0.9),
            Statistic::P95 => order_statistics::fewest(0.95),
            Statistic::P99 => order_statistics::fewest(0.99),
            _ => order_statistics::fewest(0.5),
        };
        self.effective_samples
            .is_some_and(|effective_samples| effective_samples < fewest)
    }

    /// Sets a lower bound for the network's own value; there is no upper one.
    pub fn at_least(self, low: f64) -> Self {
        self.within(low, f64::INFINITY)
    }

    /// Returns whether the network's own value has no known upper bound.
    pub fn is_open_above(&self) -> bool {
        self.interval.is_some_and(|[_, high]| high == f64::INFINITY)
    }

    /// Returns the properties that distinguish the figure from the measurement's other figures.
    fn scope(&self) -> impl PartialEq + use<> {
        (
            self.metric,
            self.statistic,
            self.direction,
            self.stream,
            self.size,
            self.phase,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_found_by_metric_and_statistic() {
        let figures = vec![
            Figure::new(Metric::RttMs, Statistic::Mean, 1.0).stream(1),
            Figure::new(Metric::RttMs, Statistic::Mean, 2.0),
        ];
        let measurement = Measurement {
            figures,
            ..Measurement::default()
        };
        assert_eq!(
            measurement.figure(Metric::RttMs, Statistic::Mean),
            Some(2.0)
        );
        assert_eq!(measurement.figure(Metric::RttMs, Statistic::Max), None);
    }

    #[test]
    fn a_lower_bound_survives_json() {
        let figure = Figure::new(Metric::IpCapacityBitPerS, Statistic::Max, 9e8).at_least(8e8);
        let text = serde_json::to_string(&figure).unwrap();
        assert!(text.contains(r#""interval":[800000000.0,null]"#), "{text}");
        let back: Figure = serde_json::from_str(&text).unwrap();
        assert_eq!(back, figure);
        assert!(back.is_open_above());
        let both = figure.within(1.0, 2.0);
        let text = serde_json::to_string(&both).unwrap();
        assert_eq!(serde_json::from_str::<Figure>(&text).unwrap(), both);
    }
}
