//! Fits the conditions of a link to measurements of a path, and compares two measurements by the distance of their
//! distributions. All functions are pure: observations in, parameters with intervals and evidence out.
//!
//! docs/fit.md has the method, its formulas and its limits.
#![forbid(unsafe_code)]

mod bottleneck;
mod capture;
mod combined;
mod comparison;
mod delay;
mod distance;
mod estimate;
mod files;
mod full;
mod growth;
mod held_out;
mod light_load;
mod loss;
mod mtu;
mod observations;
mod over_time;
mod parameters;
pub mod plan;
mod profile;
mod queue;
#[cfg(test)]
mod simulated;
mod trains;
mod varying_delay;
mod varying_rate;

pub use bottleneck::Bottleneck;
pub use capture::{is_capture, read_capture};
pub use comparison::{
    BurstComparison, Comparison, DelayComparison, HOST_MS, LossComparison, LossRunComparison,
    ThroughputComparison, burst_spreads, goodput, one_way_delays, round_trips,
};
pub use delay::{DelayFit, JitterFit, JitterLaw};
pub use distance::{Distance, distances};
pub use estimate::Estimate;
pub use files::{FileError, day_of, read, read_record};
pub use light_load::LightLoadFit;
pub use loss::LossFit;
pub use observations::{
    Intensity, LoadTraffic, LoadedSession, Marks, PathObservations, Probe, ProbeSession,
};
pub use over_time::OverTime;
pub use parameters::{IntervalKind, Parameter};
pub use profile::Origin;
pub use queue::QueueKind;
pub use trains::{Train, TrainSession};

use conditions::Direction;

/// The directions, up first.
const DIRECTIONS: [Direction; 2] = [Direction::Up, Direction::Down];

/// Returns the place of a direction in a pair.
fn index(way: Direction) -> usize {
    way.choose(0, 1)
}

/// The fitted conditions of both directions.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkFit {
    /// The direction from this end to the far end.
    pub up: DirectionFit,
    /// The direction from the far end to this one.
    pub down: DirectionFit,
    /// Whether delays were measured in each direction. If not, each direction has half of the round trip.
    pub one_way: bool,
    /// The share of packets that are duplicated in each direction, in percent; half of what a round trip shows.
    pub duplicated_percent: Option<Estimate>,
    /// The number of sessions behind it. The intervals of several sessions have the range of the intervals of each.
    pub sessions: usize,
}

/// The fitted conditions of one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct DirectionFit {
    /// The delay and its variation on the idle path; `None` if no probe was answered.
    pub delay: Option<DelayFit>,
    /// The random loss, which occurs on the idle path too; `None` without probes.
    pub loss: Option<LossFit>,
    /// The rate and its queue. `None` if no load filled the path.
    pub bottleneck: Option<Bottleneck>,
    /// The light load beside a rate that varies; `None` without trains of packets on the idle path.
    pub light: Option<LightLoadFit>,
    /// The longest packet that passes, in L3 bytes; `None` if it was not measured.
    pub mtu: Option<Estimate>,
}

impl LinkFit {
    /// Fits a link to observations. Parameters that they do not show are absent.
    pub fn of(observed: &PathObservations) -> Self {
        let one_way = observed.has_one_way();
        let losses = DIRECTIONS.map(|way| LossFit::of(&observed.idle, way));
        let [up, down] = [0, 1].map(|at| {
            let loss = losses[at];
            let bottleneck = Bottleneck::of(observed, DIRECTIONS[at], loss.as_ref());
            (loss, bottleneck)
        });
        let [served_up, served_down] = [&up.1, &down.1].map(|bottleneck| {
            let served = |one: &Bottleneck| one.served(observed.idle.wire_bytes);
            bottleneck.as_ref().map(served).unwrap_or_default()
        });
        let delay = |way: Direction| match one_way {
            true => DelayFit::of_one_way(&observed.idle, way, way.choose(served_up, served_down)),
            false => DelayFit::of_half(&observed.idle, served_up.and(served_down)),
        };
        let light = |way: Direction, bottleneck: &Option<Bottleneck>| {
            LightLoadFit::of(observed, way, bottleneck.as_ref()?)
        };
        let direction = |way, (loss, bottleneck)| DirectionFit {
            delay: delay(way),
            loss,
            light: light(way, &bottleneck),
            bottleneck,
            mtu: way.choose(mtu::up(observed), mtu::down(observed)),
        };
        Self {
            up: direction(Direction::Up, up),
            down: direction(Direction::Down, down),
            one_way,
            duplicated_percent: loss::duplicated(&observed.idle),
            sessions: 1,
        }
    }

    /// Returns the conditions of a direction.
    pub fn toward(&self, direction: Direction) -> &DirectionFit {
        direction.choose(&self.up, &self.down)
    }

    /// Returns whether anything was learnt about the path.
    pub fn is_empty(&self) -> bool {
        let knows = |one: &DirectionFit| one.delay.is_some() || one.bottleneck.is_some();
        !knows(&self.up) && !knows(&self.down)
    }
}
