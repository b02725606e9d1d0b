//! The one form of what every instrument finds: samples, and the figures that they add up to.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use conditions::Direction;
use stats::losses::Losses;
use stats::order_statistics;

use crate::metric::{Metric, Phase, Statistic};
use crate::schedule::Pace;

/// What one instrument found in one go.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Every single observation, in the order of time.
    pub samples: Vec<Sample>,
    /// What the samples add up to; what was not measured is not among them.
    pub figures: Vec<Figure>,
    /// What the numbers are and how they were taken: "rtt", "timestamps", "tool".
    pub facts: BTreeMap<String, String>,
    /// Why the measurement is not what was asked for; what was seen until then is kept.
    pub failure: Option<String>,
    /// Seconds at the start that were asked to be left out of samples and figures: the first interval begins there.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub omitted_s: f64,
    /// How far its senders kept the paces that they were asked for; empty of an instrument that paces nothing, or of a tool that does
    /// not tell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paces: Vec<Pace>,
}

/// One observation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since the instrument started: when a probe was sent, when an interval ended.
    pub at_s: f64,
    /// What was observed, with its unit.
    pub metric: Metric,
    /// The probe's sequence number, or the interval's number, from 1.
    pub index: u64,
    /// The observed value in the metric's unit.
    pub value: f64,
    /// Which way it went; absent for a round trip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// Of which of several parallel streams, from 1; absent when there is one, or for all together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<u32>,
    /// Of which message, block or file size, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// With or without a load beside it; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
}

/// One number that sums a measurement up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// What it is of, with its unit.
    pub metric: Metric,
    /// What it says of the metric's values.
    pub statistic: Statistic,
    /// Which way it went; absent for a round trip, or for both ways together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// Of which of several parallel streams, from 1; absent for all together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<u32>,
    /// Of which message, block or file size, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// With or without a load beside it; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// In the metric's unit.
    pub value: f64,
    /// Between which values the network's own lies, at 95 %; how it was found is among the facts. Where only a lower bound
    /// is known the upper one is infinite, which JSON writes as null.
    #[serde(
        default,
        deserialize_with = "open_above",
        skip_serializing_if = "Option::is_none"
    )]
    pub interval: Option<[f64; 2]>,
    /// How many independent samples those that it sums up are worth, where neighbours may be alike; absent of what is no
    /// statistic of samples, and where nobody asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worth: Option<f64>,
    /// The packets that a share of losses is of, from which repeated runs are pooled; absent of other figures, and where the
    /// instrument tells a percentage alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub losses: Option<Losses>,
    /// The step in which its source states it, where that is coarse: the value may be half of it greater or less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<f64>,
}

/// An interval whose upper end is null where there is none.
fn open_above<'de, D: Deserializer<'de>>(from: D) -> Result<Option<[f64; 2]>, D::Error> {
    let ends = <Option<(f64, Option<f64>)>>::deserialize(from)?;
    Ok(ends.map(|(low, high)| [low, high.unwrap_or(f64::INFINITY)]))
}

impl Measurement {
    /// A measurement that never came about.
    pub fn failed(cause: impl ToString) -> Self {
        Self {
            failure: Some(cause.to_string()),
            ..Self::default()
        }
    }

    /// That a sender fell short of its schedule, by more than what it is `allowed` to be behind, so that nothing that was measured is of
    /// what was asked for, if so.
    pub fn shortfall(&self, allowed: Duration) -> Option<String> {
        let mut paces = self.paces.iter();
        paces.find_map(|pace| pace.shortfall(allowed))
    }

    /// With one more thing to know about the numbers.
    pub fn with_fact(mut self, name: &str, value: impl ToString) -> Self {
        self.facts.insert(name.to_owned(), value.to_string());
        self
    }

    /// The value of the figure over all directions, streams and sizes, if there is one.
    pub fn figure(&self, metric: Metric, statistic: Statistic) -> Option<f64> {
        let whole = Figure::new(metric, statistic, 0.0);
        let mut figures = self.figures.iter();
        figures
            .find(|figure| figure.scope() == whole.scope())
            .map(|figure| figure.value)
    }
}

/// How samples and figures say what they are of.
macro_rules! scoped {
    ($scoped:ty) => {
        impl $scoped {
            /// Of what went this way.
            pub fn toward(mut self, direction: Direction) -> Self {
                self.direction = Some(direction);
                self
            }

            /// Of one of several parallel streams, from 1.
            pub fn stream(mut self, stream: u32) -> Self {
                self.stream = Some(stream);
                self
            }

            /// Of messages, blocks or files of so many bytes.
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
    /// An observation of no direction, stream or size.
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
    /// A figure over all directions, streams and sizes, without an interval.
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
            worth: None,
            losses: None,
            resolution: None,
        }
    }

    /// Of this phase.
    pub fn during(mut self, phase: Phase) -> Self {
        self.phase = Some(phase);
        self
    }

    /// With the 95 % interval of what the network did.
    pub fn within(mut self, low: f64, high: f64) -> Self {
        self.interval = Some([low, high]);
        self
    }

    /// Read from a source that states it in steps of this size.
    pub fn in_steps_of(mut self, resolution: f64) -> Self {
        self.resolution = Some(resolution);
        self
    }

    /// Of samples that are worth so many independent ones.
    pub fn worth(mut self, samples: f64) -> Self {
        self.worth = Some(samples);
        self
    }

    /// Whether its samples are too few for what it says: worth fewer than ten or, of a percentile, so few that fewer than five lie
    /// beyond it. Reports then say "n/a" in place of the interval, or of the percentile.
    pub fn is_of_too_few(&self) -> bool {
        let fewest = match self.statistic {
            Statistic::P90 => order_statistics::fewest(0.9),
            Statistic::P99 => order_statistics::fewest(0.99),
            _ => order_statistics::fewest(0.5),
        };
        self.worth.is_some_and(|worth| worth < fewest)
    }

    /// With a lower bound alone of what the network would have done.
    pub fn at_least(self, low: f64) -> Self {
        self.within(low, f64::INFINITY)
    }

    /// Whether the network's own value may be any greater one.
    pub fn is_open_above(&self) -> bool {
        self.interval.is_some_and(|[_, high]| high == f64::INFINITY)
    }

    /// What tells it from the measurement's other figures.
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
    fn a_figure_is_found_by_what_it_is_of() {
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
    fn a_lower_bound_alone_survives_json() {
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
