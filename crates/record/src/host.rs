//! Facts about the machine, so that a record can be judged elsewhere.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The machine on which an experiment ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostFacts {
    /// What it calls itself.
    pub name: String,
    /// Name, release and architecture.
    pub kernel: String,
    /// Its model.
    pub cpu: String,
    /// How many CPUs the kernel runs on.
    pub cpus: usize,
    /// How much there is, with its unit.
    pub memory: String,
    /// The kernel's current one.
    pub clocksource: String,
    /// External tools that the experiment uses, with their versions.
    pub tools: BTreeMap<String, String>,
}
