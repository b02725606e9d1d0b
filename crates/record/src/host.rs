//! Facts about the machine, so that a record can be judged elsewhere.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The machine on which an experiment ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostFacts {
    /// Name, release and architecture.
    pub kernel: String,
    pub cpu: String,
    pub cpus: usize,
    pub memory: String,
    pub clocksource: String,
    /// External tools that the experiment uses, with their versions.
    pub tools: BTreeMap<String, String>,
}
