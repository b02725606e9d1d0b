//! Shards handed to Slurm together.

use serde::{Deserialize, Serialize};

/// An array of tasks, one a shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pass {
    /// From 1.
    pub(super) number: u32,
    /// Which shards, ascending.
    pub(super) shards: Vec<u32>,
    /// The partition whose nodes it was handed in for; nothing where Slurm alone knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) partition: Option<String>,
    /// Whether `--cancel` ended it: nothing of it is waited for.
    #[serde(default)]
    pub(super) cancelled: bool,
}
