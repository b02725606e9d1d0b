//! The conditions of a link as users write them, in a file, on the command line or by the API, and what follows from them.
#![forbid(unsafe_code)]

mod as_netem;
mod class;
mod condition;
mod direction;
pub mod dist;
mod error;
mod hop;
pub mod in_effect;
mod layer;
mod link;
pub mod nearest;
mod netem;
mod profiles;
pub mod reach;
pub mod read;
pub mod route;
mod rules;
pub mod stage;
mod timeline;
mod toffee;
pub mod warnings;

pub use as_netem::AsNetem;
pub use class::ClassSpec;
pub use condition::{
    AqmSpec, BerSpec, CONDITIONS, Condition, ConditionKind, ConditionType, CorruptSpec, DelaySpec,
    DuplicateSpec, FluctuationSpec, InCondition, JitterSpec, LawName, LossSpec, Needs, NetemSpec,
    PoliceSpec, QueueSpec, RateAtSpec, RateSpec, ReorderSpec, Shapes, SizeDelaySpec,
};
pub use direction::Direction;
pub use error::{At, Error, PathStep, Problem};
pub use hop::{Hop, Stages, emulated_link, route};
pub use layer::{ConditionName, ConditionSet, Layer, ScheduleStep};
pub use link::LinkSpec;
pub use profiles::{LinkProfile, PROFILES};
pub use rules::{EmulatedLink, Protocol, Rule, Rules};
pub use stage::{ExtraStage, Place, StageKind, StageStep};
pub use timeline::over_time;
pub use toffee::ToffeeSpec;

#[cfg(test)]
mod tests;
