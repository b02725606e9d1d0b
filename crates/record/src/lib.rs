//! Pure values: quantities with their units, the plan of an experiment, what instruments measured, and the record of it all.
#![forbid(unsafe_code)]

mod artifact;
mod baseline;
pub mod bed;
pub mod clients;
pub mod crossing;
pub mod dist;
pub mod expectation;
pub mod figure_name;
mod host;
pub mod in_effect;
mod key_values;
pub mod lateness;
pub mod link_spec;
mod measurement;
mod merge;
mod metric;
pub mod nearest;
pub mod pace;
pub mod plan;
pub mod printable;
pub mod profile;
pub mod quantity;
mod record;
mod shard;
pub mod stated;
pub mod summary;
pub mod table;
mod upgrade;
pub mod way;
mod writer;

pub use artifact::Artifact;
pub use baseline::Baseline;
pub use host::HostFacts;
pub use measurement::{Figure, Measurement, Sample};
pub use merge::Merge;
pub use metric::{Direction, Metric, Phase, Statistic};
pub use quantity::{figure_in_words, quantity};
pub use record::{
    GivenScenario, Head, Latest, LinkCounts, MOST_ATTEMPTS, Measured, Outcome, Record, Run, now,
};
pub use shard::{Shard, ShardBy, ShardNumber};
pub use writer::{RecordWriter, is_full};
