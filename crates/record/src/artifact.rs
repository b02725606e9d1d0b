//! Files beside a record that are part of it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A file that a run left: what an instrument wrote, what was captured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// Where it is, from the folder of the record.
    pub file: PathBuf,
    /// How long it is.
    pub bytes: u64,
    /// What it holds: SHA-256 (FIPS 180-4) in 64 hexadecimal digits.
    pub sha256: String,
}
