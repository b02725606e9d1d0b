//! Fits the conditions of a link to measurements of a path, and compares two measurements by the distance of their
//! distributions. All functions are pure: observations in, parameters with intervals and evidence out.
//!
//! docs/fit.md has the method, its formulas and its limits.
#![forbid(unsafe_code)]

mod bottleneck;
mod comparison;
mod delay;
mod distance;
mod estimate;
mod loss;
mod observations;
mod parameters;
pub mod plan;
mod profile;
#[cfg(test)]
mod simulated;

pub use bottleneck::{Bottleneck, QueueKind};
pub use comparison::{Comparison, DelayComparison, ThroughputComparison};
pub use delay::{DelayFit, JitterFit, JitterLaw};
pub use distance::{Distance, distances};
pub use estimate::Estimate;
pub use loss::LossFit;
pub use observations::{
    Burst, Intensity, LoadedSession, PathObservations, Probe, ProbeSession, TrafficRate,
};
pub use parameters::Parameter;
pub use profile::Origin;

use conditions::Direction;

/// The directions, up first.
const DIRECTIONS: [Direction; 2] = [Direction::Up, Direction::Down];

/// The fitted conditions of both directions.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkFit {
    /// From this end to the far end.
    pub up: DirectionFit,
    /// From the far end to this one.
    pub down: DirectionFit,
    /// Whether delays were measured in each direction. If not, each direction has half of the round trip.
    pub one_way: bool,
    /// The share of packets that are duplicated in each direction, in percent; half of what a round trip shows.
    pub duplicated_percent: Option<Estimate>,
}

/// The fitted conditions of one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct DirectionFit {
    /// The delay and its variation on the idle path.
    pub delay: DelayFit,
    /// The random loss, which occurs on the idle path too.
    pub loss: LossFit,
    /// The rate and its queue. `None` if no load filled the path.
    pub bottleneck: Option<Bottleneck>,
}

impl LinkFit {
    /// Fits a link to observations; `None` if no probe was answered on the idle path.
    pub fn of(observed: &PathObservations) -> Option<Self> {
        let one_way = observed.has_one_way();
        let losses = DIRECTIONS.map(|way| LossFit::of(&observed.idle, way));
        let bottlenecks = [0, 1].map(|at| {
            Bottleneck::of(observed, DIRECTIONS[at], &losses[at])
        });
        let served_ms = [0, 1].map(|at| {
            let rate = bottlenecks[at].as_ref().map(|one| one.rate.value);
            rate.map_or(0.0, |rate| f64::from(observed.idle.wire_bytes) * 8e3 / rate)
        });
        let delays = [0, 1].map(|at| match one_way {
            true => DelayFit::of_one_way(&observed.idle, DIRECTIONS[at], served_ms[at]),
            false => DelayFit::of_half(&observed.idle, served_ms[0] + served_ms[1]),
        });
        let [up_delay, down_delay] = delays;
        let [up_loss, down_loss] = losses;
        let [up_bottleneck, down_bottleneck] = bottlenecks;
        Some(Self {
            up: DirectionFit {
                delay: up_delay?,
                loss: up_loss,
                bottleneck: up_bottleneck,
            },
            down: DirectionFit {
                delay: down_delay?,
                loss: down_loss,
                bottleneck: down_bottleneck,
            },
            one_way,
            duplicated_percent: loss::duplicated(&observed.idle),
        })
    }

    /// Returns the conditions of a direction.
    pub fn toward(&self, direction: Direction) -> &DirectionFit {
        direction.choose(&self.up, &self.down)
    }
}
