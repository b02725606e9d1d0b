//! Facts about the machine that help to judge a record elsewhere.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The machine on which an experiment ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostFacts {
    /// Host name.
    pub name: String,
    /// Name, release and architecture of the kernel.
    pub kernel: String,
    /// Model of the CPU.
    pub cpu: String,
    /// Number of CPUs that are online.
    pub cpus: usize,
    /// Amount of memory, with its unit.
    pub memory: String,
    /// The kernel's current clock source.
    pub clocksource: String,
    /// External tools that the experiment uses, with their versions.
    pub tools: BTreeMap<String, String>,
}
