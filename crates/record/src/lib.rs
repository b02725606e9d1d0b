//! Values without I/O on the network: quantities with their units, the plan of an experiment, the measurements of its
//! instruments, and the record that holds all of them.
#![forbid(unsafe_code)]

mod artifact;
mod baseline;
pub mod bed;
pub mod case_pairs;
pub mod clients;
pub mod crossing;
pub mod declared_figures;
mod error;
pub mod expectation;
pub mod figure_name;
mod host;
pub mod lateness;
pub mod link_history;
mod measurement;
mod metric;
pub mod metric_table;
pub mod output_directory;
pub mod pace;
pub mod plan;
pub mod printable;
pub mod profile;
pub mod quantity;
mod record;
mod record_merge;
mod record_writer;
pub mod regular_file;
pub mod schedule;
pub mod server_log;
mod shard;
pub mod summary;
pub mod swept;
pub mod table;

pub use artifact::Artifact;
pub use baseline::Baseline;
pub use conditions::Direction;
pub use error::Error;
pub use host::HostFacts;
pub use measurement::{Figure, Measurement, Sample};
pub use metric::{Metric, Phase, Statistic};
pub use quantity::{figure_in_words, quantity};
pub use record::{
    FileState, GivenScenario, LateBudgetChange, Latest, LinkCounts, MOST_ATTEMPTS, Measured,
    Record, RecordHead, Run, RunOutcome, ago, now,
};
pub use record_merge::Merge;
pub use record_writer::RecordWriter;
pub use shard::{Shard, ShardBy, ShardNumber};

/// Returns whether a value equals its default and is therefore not written.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
