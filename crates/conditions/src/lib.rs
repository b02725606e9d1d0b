//! The conditions of a link as users write them in a file, on the command line or in the API, and figures derived from
//! them.
#![forbid(unsafe_code)]

mod as_netem;
mod condition;
mod direction;
pub mod dist;
mod error;
pub mod filter;
mod from_tc;
pub mod in_effect;
mod layer;
pub mod link;
pub mod misplaced;
pub mod nearest;
pub mod outline;
pub mod plain;
mod ramp;
pub mod reach;
pub mod read;
mod repeat;
pub mod route;
mod rules;
mod stalled;
mod tc_number;
mod tc_words;
mod timeline;
mod toffee;
pub mod trace;
pub mod warnings;

pub use as_netem::AsNetem;
pub use condition::*;
pub use direction::Direction;
pub use error::{At, Error, PathStep, Problem};
pub use from_tc::{FromTc, Lack};
pub use layer::{ConditionName, ConditionSet, Layer, ScheduleStep};
pub use link::hop::{Hop, Stages, emulated_link, route};
pub use link::hops::HopSpec;
pub use link::is_name;
pub use link::profiles::{LinkProfile, PROFILES, Unfounded, unfounded};
pub use link::rule::{ResolvedHost, RuleSpec};
pub use link::stage::{ExtraStage, Place, StageKind, StageStep};
pub use link::{LinkSpec, LinkStart};
pub use rules::{EmulatedLink, HiddenRule, Protocol, Rule, Rules};
pub use timeline::over_time;
pub use toffee::ToffeeSpec;

#[cfg(test)]
mod tests;
