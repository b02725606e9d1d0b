//! Observations of short trains of packets on the otherwise idle path.

use std::collections::BTreeMap;

use conditions::Direction;
use record::{Measurement, Metric, Phase};
use serde::{Deserialize, Serialize};
use stats::order_statistics::{quantile, sorted};

use crate::index;

/// Trains of packets of equal size on the otherwise idle path: a light load.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TrainSession {
    /// The L2 bytes of a packet without FCS.
    pub wire_bytes: u32,
    /// The number of packets of a train.
    pub length: usize,
    /// The trains in the order of sending.
    pub trains: Vec<Train>,
}

/// A train of packets that were sent back to back.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Train {
    /// When it was sent, in seconds since the first train of its session.
    pub at_s: f64,
    /// The arrivals of its packets in each direction, up first, in milliseconds since the first one arrived there. They
    /// are ascending, and fewer than were sent if packets were lost.
    pub arrivals_ms: [Vec<f64>; 2],
}

impl TrainSession {
    /// Reads the trains of a phase from a measurement of `farwire measure probe --train LENGTH`; without a phase, those
    /// of a measurement without phases. A packet has `wire_bytes` L2 bytes without FCS. A train of which no packet arrived
    /// is absent.
    pub fn of(
        measurement: &Measurement,
        phase: Option<Phase>,
        length: usize,
        wire_bytes: u32,
    ) -> Self {
        let mut trains: BTreeMap<u64, Train> = BTreeMap::new();
        let samples = measurement.samples.iter();
        for sample in samples.filter(|one| (one.metric, one.phase) == (Metric::InTrainMs, phase)) {
            let Some(way) = sample.direction else {
                continue;
            };
            let train = trains.entry(sample.index).or_insert_with(|| Train {
                at_s: sample.at_s,
                ..Train::default()
            });
            train.at_s = train.at_s.min(sample.at_s);
            train.arrivals_ms[index(way)].push(sample.value);
        }
        let Some(start_s) = trains.values().next().map(|first| first.at_s) else {
            return Self::default();
        };
        let trains = trains.into_values().map(|train| Train {
            at_s: train.at_s - start_s,
            arrivals_ms: train.arrivals_ms.map(|arrivals| sorted(&arrivals)),
        });
        Self {
            wire_bytes,
            length,
            trains: trains.collect(),
        }
    }

    /// Returns whether there is no train.
    pub fn is_empty(&self) -> bool {
        self.trains.is_empty()
    }

    /// Returns the most packets of a train that arrived in a direction.
    pub(crate) fn longest(&self) -> usize {
        let arrivals = self.trains.iter().flat_map(|train| &train.arrivals_ms);
        arrivals.map(Vec::len).max().unwrap_or_default()
    }

    /// Returns the trains that arrived complete in a direction, each with its time in seconds and the arrivals of its
    /// packets in milliseconds.
    pub(crate) fn complete(&self, way: Direction) -> Vec<(f64, &[f64])> {
        let trains = self.trains.iter();
        let arrivals = trains.map(|train| (train.at_s, train.arrivals_ms[index(way)].as_slice()));
        let complete =
            arrivals.filter(|(_, arrivals)| self.length > 1 && arrivals.len() == self.length);
        complete.collect()
    }

    /// Returns the time from the first arrival to the last one of each train that arrived complete in a direction, in
    /// milliseconds and in the order of sending.
    pub(crate) fn spreads(&self, way: Direction) -> Vec<f64> {
        let complete = self.complete(way).into_iter();
        complete
            .filter_map(|(_, arrivals)| arrivals.last().copied())
            .collect()
    }

    /// Returns the usual time between two trains in seconds.
    pub(crate) fn interval_s(&self) -> Option<f64> {
        let pairs = self.trains.windows(2);
        let gaps = pairs.map(|pair| pair[1].at_s - pair[0].at_s);
        quantile(&sorted(&gaps.collect::<Vec<f64>>()), 0.5).filter(|gap| *gap > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use record::Sample;

    use super::*;
    use crate::observations::PathObservations;

    /// Returns the samples of a train in a direction, whose packets arrived at these times.
    fn samples(number: u64, at_s: f64, way: Direction, arrivals_ms: &[f64]) -> Vec<Sample> {
        let places = (0_u32..).zip(arrivals_ms);
        let sample = |(place, ms): (u32, &f64)| Sample {
            phase: Some(Phase::Idle),
            ..Sample::new(
                at_s + 1e-5 * f64::from(place),
                Metric::InTrainMs,
                number,
                *ms,
            )
            .toward(way)
        };
        places.map(sample).collect()
    }

    /// Returns a measurement of three trains of three packets: a complete one, one that lost a packet down, and one of
    /// which a single packet arrived up.
    fn measured() -> Measurement {
        Measurement {
            samples: [
                samples(1, 2.0, Direction::Up, &[0.0, 0.5, 1.0]),
                // Packets may overtake each other.
                samples(1, 2.0, Direction::Down, &[0.0, 3.0, 1.5]),
                samples(2, 2.1, Direction::Up, &[0.0, 0.5, 1.25]),
                samples(2, 2.1, Direction::Down, &[0.0, 4.0]),
                samples(3, 2.2, Direction::Up, &[0.0]),
            ]
            .concat(),
            ..Measurement::default()
        }
    }

    fn session() -> TrainSession {
        TrainSession::of(&measured(), Some(Phase::Idle), 3, 1400)
    }

    #[test]
    fn an_incomplete_train_has_the_packets_that_arrived() {
        let found = session();
        assert_eq!((found.wire_bytes, found.length), (1400, 3));
        let arrivals: Vec<_> = found.trains.iter().map(|one| &one.arrivals_ms).collect();
        assert_eq!(
            arrivals,
            [
                &[vec![0.0, 0.5, 1.0], vec![0.0, 1.5, 3.0]],
                &[vec![0.0, 0.5, 1.25], vec![0.0, 4.0]],
                &[vec![0.0], vec![]],
            ]
        );
        let times: Vec<f64> = found.trains.iter().map(|one| one.at_s).collect();
        let is_near = |(found, expected): (&f64, f64)| (found - expected).abs() < 1e-9;
        assert!(
            times.iter().zip([0.0, 0.1, 0.2]).all(is_near),
            "the times since the first train: {times:?}"
        );
    }

    #[test]
    fn only_complete_trains_have_a_spread() {
        let found = session();
        assert_eq!(found.longest(), 3);
        assert_eq!(found.spreads(Direction::Up), [1.0, 1.25]);
        assert_eq!(found.spreads(Direction::Down), [3.0]);
        assert!((found.interval_s().unwrap() - 0.1).abs() < 1e-9);
        let single = TrainSession { length: 1, ..found };
        assert!(single.spreads(Direction::Up).is_empty());
    }

    #[test]
    fn samples_of_another_phase_are_no_trains_of_this_one() {
        let found = TrainSession::of(&measured(), None, 3, 1400);
        assert!(found.is_empty());
        assert_eq!(found, TrainSession::default());
    }

    #[test]
    fn observations_with_and_without_trains_are_read_as_they_were_written() {
        let without = PathObservations::default();
        let with = PathObservations {
            trains: session(),
            ..PathObservations::default()
        };
        for (observed, is_written) in [(without, false), (with, true)] {
            let text = serde_json::to_string(&observed).unwrap();
            assert_eq!(text.contains("\"trains\""), is_written, "{text}");
            let read: PathObservations = serde_json::from_str(&text).unwrap();
            assert_eq!(read, observed);
        }
    }
}
