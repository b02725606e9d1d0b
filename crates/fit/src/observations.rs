//! What was observed on a path: sessions of probes, and loads beside them.

use std::collections::BTreeMap;

use conditions::Direction;
use record::{Measurement, Metric, Phase, Statistic};
use stats::losses::Losses;

use crate::DIRECTIONS;
use crate::estimate::Estimate;

/// All observations of a path.
#[derive(Clone, Debug, Default)]
pub struct PathObservations {
    /// Probes on the idle path.
    pub idle: ProbeSession,
    /// Probes beside loads that exceed the rate of a direction.
    pub loaded: Vec<LoadedSession>,
    /// A short burst of datagrams in each direction where the path was idle before.
    pub bursts: Vec<Burst>,
}

/// A session of probes of equal size at a regular interval.
#[derive(Clone, Debug, Default)]
pub struct ProbeSession {
    /// The L2 bytes of a probe, and of its answer, without FCS.
    pub wire_bytes: u32,
    /// The probes in the order of sending.
    pub probes: Vec<Probe>,
    /// The losses in each direction, up first, if the far end counts.
    pub losses: [Option<Losses>; 2],
    /// Whether packets arrived out of order in each direction, up first, as far as the far end counts.
    pub reordered: [bool; 2],
    /// The answers that arrived in addition to the first one.
    pub duplicates: u64,
    /// The error of the offset between the clocks of both ends in milliseconds; 0 for one clock.
    pub clock_error_ms: f64,
}

/// A probe and its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Probe {
    /// When it was sent, in seconds since the first probe of its session.
    pub at_s: f64,
    /// The round trip; `None` if no answer arrived in time.
    pub rtt_ms: Option<f64>,
    /// The delay in each direction, up first, where clocks allow.
    pub one_way_ms: [Option<f64>; 2],
    /// The direction in which it was lost, if it was lost and that is known.
    pub lost: Option<Direction>,
}

/// How much a load exceeds the rate of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intensity {
    /// Far above the rate: the queue becomes full, whatever manages it.
    Strong,
    /// A few per cent above the rate: active queue management keeps the queue short, and without it the queue grows.
    Gentle,
}

/// Probes beside a load.
#[derive(Clone, Debug)]
pub struct LoadedSession {
    /// The direction of the load.
    pub direction: Direction,
    /// How much it exceeds the rate.
    pub intensity: Intensity,
    /// The probes.
    pub probes: ProbeSession,
    /// The start of the load, in seconds since the first probe.
    pub from_s: f64,
    /// The end of the load, in seconds since the first probe.
    pub until_s: f64,
    /// Seconds at the start of the load that are left out of its received rate.
    pub omitted_s: f64,
    /// The load.
    pub load: TrafficRate,
}

/// The traffic of a load, at L2 without FCS.
#[derive(Clone, Copy, Debug)]
pub struct TrafficRate {
    /// The L2 bytes of a datagram, without FCS.
    pub wire_bytes: u32,
    /// What was sent, in bit/s.
    pub sent: f64,
    /// What arrived, in bit/s.
    pub received: Estimate,
}

/// A burst of datagrams at a rate that exceeds the path's, after silence.
#[derive(Clone, Copy, Debug)]
pub struct Burst {
    /// The direction.
    pub direction: Direction,
    /// The bytes that arrived, at L2 without FCS.
    pub bytes: f64,
    /// The time from the first arrival to the last one.
    pub seconds: f64,
}

impl PathObservations {
    /// Returns whether all sessions have delays in each direction.
    pub fn has_one_way(&self) -> bool {
        let loaded = self.loaded.iter().map(|one| &one.probes);
        let mut all = loaded.chain([&self.idle]);
        all.all(ProbeSession::has_one_way)
    }
}

impl ProbeSession {
    /// Reads the probes of one phase from a measurement of `farwire measure probe`; of all phases without one.
    pub fn of(measurement: &Measurement, phase: Option<Phase>, wire_bytes: u32) -> Self {
        let mut probes: BTreeMap<u64, Probe> = BTreeMap::new();
        let samples = measurement.samples.iter();
        let of_phase = samples.filter(|sample| phase.is_none() || sample.phase == phase);
        let mut network: BTreeMap<u64, f64> = BTreeMap::new();
        let mut duplicates = 0;
        for sample in of_phase {
            let probe = || Probe {
                at_s: sample.at_s,
                ..Probe::default()
            };
            match (sample.metric, sample.direction) {
                (Metric::RttMs, _) => {
                    let probe = probes.entry(sample.index).or_insert_with(probe);
                    probe.rtt_ms = Some(sample.value);
                }
                (Metric::NetworkRttMs, _) => {
                    network.insert(sample.index, sample.value);
                }
                (Metric::OneWayDelayMs, Some(way)) => {
                    let probe = probes.entry(sample.index).or_insert_with(probe);
                    probe.one_way_ms[index(way)] = Some(sample.value);
                }
                (Metric::LostPackets, way) => {
                    let probe = probes.entry(sample.index).or_insert_with(probe);
                    probe.lost = way;
                }
                (Metric::DuplicateRttMs, _) => duplicates += 1,
                _ => {}
            }
        }
        let answered = probes.values().filter(|probe| probe.rtt_ms.is_some()).count();
        if network.len() == answered {
            for (index, rtt) in network {
                if let Some(probe) = probes.get_mut(&index) {
                    probe.rtt_ms = Some(rtt);
                }
            }
        }
        let start = probes.values().next().map_or(0.0, |first| first.at_s);
        let probes = probes.into_values().map(|probe| Probe {
            at_s: probe.at_s - start,
            ..probe
        });
        let figure = |metric, statistic, way| {
            let mut figures = measurement.figures.iter();
            figures.find(|one| {
                (one.metric, one.statistic, one.direction, one.phase)
                    == (metric, statistic, Some(way), phase)
            })
        };
        let losses = DIRECTIONS
            .map(|way| figure(Metric::LostPercent, Statistic::Mean, way).and_then(|one| one.losses));
        let reordered = DIRECTIONS.map(|way| {
            figure(Metric::ReorderedPackets, Statistic::Total, way)
                .is_some_and(|figure| figure.value > 0.0)
        });
        let offset = measurement.figures.iter().find(|one| one.metric == Metric::ClockOffsetMs);
        let clock_error_ms = offset
            .and_then(|offset| offset.interval)
            .map_or(0.0, |[low, high]| (high - low) / 2.0);
        Self {
            clock_error_ms,
            wire_bytes,
            probes: probes.collect(),
            losses,
            reordered,
            duplicates,
        }
    }

    /// Returns whether every answered probe has its delay in each direction, and there is one.
    fn has_one_way(&self) -> bool {
        let mut answered = self.answered().peekable();
        answered.peek().is_some()
            && answered.all(|probe| probe.one_way_ms.iter().all(Option::is_some))
    }

    /// Returns the probes that were answered.
    pub(crate) fn answered(&self) -> impl Iterator<Item = &Probe> {
        self.probes.iter().filter(|probe| probe.rtt_ms.is_some())
    }

    /// Returns time and delay of the answered probes sent from `from_s` until `until_s`: in this direction, or else
    /// of the round trip.
    pub(crate) fn delays(
        &self,
        way: Option<Direction>,
        [from_s, until_s]: [f64; 2],
    ) -> Vec<f64> {
        let probes = self.answered();
        let during = probes.filter(|probe| probe.at_s >= from_s && probe.at_s < until_s);
        during.filter_map(|probe| probe.delay(way)).collect()
    }

    /// Returns the time between two probes in seconds.
    pub(crate) fn interval_s(&self) -> Option<f64> {
        let gaps = self.probes.len().checked_sub(1).filter(|gaps| *gaps > 0)?;
        let [first, last] = [self.probes.first()?, self.probes.last()?];
        Some((last.at_s - first.at_s) / gaps as f64)
    }
}

impl Probe {
    /// Returns the delay in this direction, or else the round trip.
    pub(crate) fn delay(&self, way: Option<Direction>) -> Option<f64> {
        match way {
            Some(way) => self.one_way_ms[index(way)],
            None => self.rtt_ms,
        }
    }

    /// Returns whether it certainly passed this direction.
    pub(crate) fn passed(&self, way: Direction) -> bool {
        match (self.rtt_ms, way, self.lost) {
            (Some(_), _, _) => true,
            (None, Direction::Up, Some(Direction::Down)) => true,
            (None, Direction::Up, Some(Direction::Up) | None) => false,
            (None, Direction::Down, _) => false,
        }
    }

    /// Returns whether it entered this direction.
    pub(crate) fn entered(&self, way: Direction) -> bool {
        match way {
            Direction::Up => true,
            Direction::Down => self.passed(Direction::Up),
        }
    }
}

/// Returns the place of a direction in a pair.
pub(crate) fn index(way: Direction) -> usize {
    way.choose(0, 1)
}
