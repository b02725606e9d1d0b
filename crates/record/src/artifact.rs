//! Files beside a record that are part of it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A file that a run left, such as an instrument's output or a capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// Path relative to the directory of the record.
    pub file: PathBuf,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 of the content (FIPS 180-4), as 64 hexadecimal digits.
    pub sha256: String,
}
