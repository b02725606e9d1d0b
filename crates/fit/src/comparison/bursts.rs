//! The comparison of bursts: how short trains of packets arrive over the idle path, and through the link.

use conditions::Direction;
use record::{Measurement, Phase};
use serde::Serialize;
use stats::order_statistics::{quantile, sorted};

use super::{Compared, HOST_MS, error_percent};
use crate::DIRECTIONS;
use crate::distance::{Distance, between_halves, distances};
use crate::light_load::FEWEST_TRAINS;
use crate::trains::TrainSession;

/// Trains of packets in a direction of the idle path, which are sent back to back. Their spread is the time from the
/// first arrival of a train to the last one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BurstComparison {
    /// The direction.
    pub direction: Direction,
    /// The numbers of trains of the path and of the link that arrived complete.
    pub trains: [usize; 2],
    /// The median spreads of the path and of the link, in milliseconds.
    pub p50_ms: [f64; 2],
    /// The 95th percentiles of the spreads of the path and of the link, in milliseconds.
    pub p95_ms: [f64; 2],
    /// The distances between both distributions; that of Wasserstein is in milliseconds.
    pub distance: Distance,
    /// The same two distances between the first and the second half of the path's spreads, as a reference.
    pub path_halves: [f64; 2],
}

impl BurstComparison {
    /// Compares the trains of each direction of which enough arrived complete.
    pub(super) fn all(measured: [&Measurement; 2]) -> Vec<Self> {
        let of_way = |way| Self::of(burst_spreads(measured, way), way);
        DIRECTIONS.into_iter().filter_map(of_way).collect()
    }

    fn of([path, link]: [Vec<f64>; 2], direction: Direction) -> Option<Self> {
        if path.len().min(link.len()) < FEWEST_TRAINS {
            return None;
        }
        let [at, beside] = [sorted(&path), sorted(&link)];
        let of = |share| Some([quantile(&at, share)?, quantile(&beside, share)?]);
        Some(Self {
            direction,
            trains: [path.len(), link.len()],
            p50_ms: of(0.5)?,
            p95_ms: of(0.95)?,
            distance: distances(&path, &link)?,
            path_halves: between_halves(&path),
        })
    }

    /// Returns the errors of the median and of the 95th percentile in percent of the path's spread; `None` for a
    /// difference below [`HOST_MS`], which the hosts explain.
    pub fn errors_percent(&self) -> [Option<f64>; 2] {
        // Packets that arrive at one time have no spread.
        let error = |[path, link]: [f64; 2]| error_percent(link - path, path.max(HOST_MS));
        [error(self.p50_ms), error(self.p95_ms)]
    }

    /// Returns its name and its errors for people.
    pub(super) fn compared(&self) -> Compared {
        let name = format!("bursts on the idle path {}", self.direction.name());
        Compared::delay(&name, self.errors_percent())
    }
}

/// Returns the time from the first arrival to the last one of each train on the idle path that arrived complete in a
/// direction, in milliseconds and in the order of sending, for each measurement. A train is complete if it has as many
/// packets as the longest one of both measurements.
pub fn burst_spreads(measured: [&Measurement; 2], way: Direction) -> [Vec<f64>; 2] {
    let sessions = measured.map(|one| TrainSession::of(one, Some(Phase::Idle), 0, 0));
    let longest = sessions.iter().map(TrainSession::longest).max();
    sessions.map(|session| {
        let of_one_length = TrainSession {
            length: longest.unwrap_or_default(),
            ..session
        };
        of_one_length.spreads(way)
    })
}

#[cfg(test)]
mod tests {
    use record::{Metric, Sample};

    use super::*;
    use crate::Comparison;

    /// Returns a measurement of trains of three packets down, whose last packet arrives after `spread_ms` and a part of
    /// a millisecond. Every tenth train lost a packet, and each has all of its packets up, where they arrive within
    /// half a millisecond.
    fn measured(trains: u32, spread_ms: f64) -> Measurement {
        let samples = (0..trains).flat_map(|at| {
            let sample = move |way, place: u32, ms| {
                let at_s = 0.1 * f64::from(at) + 1e-5 * f64::from(place);
                let sample = Sample::new(at_s, Metric::InTrainMs, u64::from(at) + 1, ms);
                Sample {
                    phase: Some(Phase::Idle),
                    ..sample.toward(way)
                }
            };
            let last_ms = spread_ms + f64::from(at * 7 % 10) / 10.0;
            let down = [0.0, last_ms / 2.0, last_ms];
            let arrived = if at % 10 == 9 { 2 } else { 3 };
            let down = (0_u32..).zip(down).take(arrived);
            let down = down.map(move |(place, ms)| sample(Direction::Down, place, ms));
            let up = (0_u32..).zip([0.0, 0.25, 0.5]);
            let up = up.map(move |(place, ms)| sample(Direction::Up, place, ms));
            down.chain(up)
        });
        Measurement {
            samples: samples.collect(),
            ..Measurement::default()
        }
    }

    fn compared(path: &Measurement, link: &Measurement) -> Vec<BurstComparison> {
        Comparison::of(path, link).bursts
    }

    #[test]
    fn complete_trains_of_each_direction_are_compared() {
        let found = compared(&measured(100, 20.0), &measured(50, 30.0));
        let [up, down] = found.as_slice() else {
            panic!("{found:?}");
        };
        assert_eq!((up.direction, up.trains), (Direction::Up, [100, 50]));
        assert_eq!(up.errors_percent(), [None; 2]);
        assert_eq!((down.direction, down.trains), (Direction::Down, [90, 45]));
        // The trains that lost a packet are those of 0.3 ms, so that the median of the others is 0.5 ms.
        assert!((down.p50_ms[0] - 20.5).abs() < 1e-9, "{down:?}");
        assert!((down.p50_ms[1] - 30.5).abs() < 1e-9, "{down:?}");
        assert!((down.distance.wasserstein.value - 10.0).abs() < 1e-9);
        let [p50, p95] = down.errors_percent().map(Option::unwrap);
        assert!((p50 - 1000.0 / 20.5).abs() < 1e-6, "{p50}");
        assert!((p95 - 1000.0 / 20.9).abs() < 1e-6, "{p95}");
    }

    #[test]
    fn bursts_are_a_part_of_the_statement() {
        let found = Comparison::of(&measured(100, 20.0), &measured(100, 30.0));
        let expected = "The link represents the path in bursts on the idle path up (within 0.3 ms); \
                        do not use it for bursts on the idle path down (p50 49 %, p95 48 %).";
        assert_eq!(found.statement, expected);
        assert_eq!(
            found.different,
            ["bursts on the idle path down (p50 49 %, p95 48 %)"]
        );
        let written = serde_json::to_value(&found).unwrap();
        assert_eq!(written["bursts"][1]["direction"], "down");
        assert_eq!(written["bursts"][1]["trains"][0], 90);
    }

    #[test]
    fn fewer_than_twenty_complete_trains_are_not_compared() {
        // Two of 22 trains lost a packet.
        let enough = compared(&measured(22, 20.0), &measured(100, 20.0));
        assert_eq!(enough.len(), 2);
        let few = compared(&measured(21, 20.0), &measured(100, 20.0));
        let ways: Vec<Direction> = few.iter().map(|one| one.direction).collect();
        assert_eq!(ways, [Direction::Up]);
        assert!(compared(&measured(19, 20.0), &measured(100, 20.0)).is_empty());
        let none = Comparison::of(&measured(100, 20.0), &Measurement::default());
        assert!(none.bursts.is_empty());
        let written = serde_json::to_value(&none).unwrap();
        assert_eq!(written.get("bursts"), None);
    }

    #[test]
    fn a_difference_that_hosts_explain_is_none() {
        let errors = |spread_ms| {
            let found = compared(&measured(100, 2.0), &measured(100, spread_ms));
            found[1].errors_percent()
        };
        assert_eq!(errors(2.2), [None; 2]);
        let [p50, p95] = errors(2.4).map(Option::unwrap);
        assert!((p50 - 16.0).abs() < 1e-6, "{p50}");
        assert!((p95 - 40.0 / 2.9).abs() < 1e-6, "{p95}");
    }

    #[test]
    fn the_times_of_trains_are_no_time_of_probes() {
        let mut path = measured(100, 20.0);
        let probes = (0..30_u32).map(|at| Sample {
            phase: Some(Phase::Idle),
            ..Sample::new(f64::from(at) / 10.0, Metric::RttMs, u64::from(at) + 1, 20.0)
        });
        path.samples.extend(probes);
        let found = Comparison::of(&path, &path);
        assert_eq!((found.delays[0].probes, found.bursts.len()), ([30; 2], 2));
        assert!((found.idle_s - 2.9).abs() < 1e-9, "{}", found.idle_s);
    }
}
