//! Pure values: quantities with their units, the plan of an experiment, what instruments measured, and the record of it all.
#![forbid(unsafe_code)]

mod artifact;
mod baseline;
pub mod bed;
pub mod clients;
pub mod crossing;
pub mod expectation;
pub mod figure_name;
mod host;
pub mod lateness;
mod measurement;
mod merge;
mod metric;
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
mod writer;

pub use artifact::Artifact;
pub use baseline::Baseline;
pub use conditions::Direction;
pub use host::HostFacts;
pub use measurement::{Figure, Measurement, Sample};
pub use merge::Merge;
pub use metric::{Metric, Phase, Statistic};
pub use quantity::{figure_in_words, quantity};
pub use record::{
    GivenScenario, Head, Latest, LinkCounts, MOST_ATTEMPTS, Measured, Outcome, Record, Run, now,
};
pub use shard::{Shard, ShardBy, ShardNumber};
pub use writer::{RecordWriter, is_full};
