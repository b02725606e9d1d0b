//! Files beside a record that are part of it.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Run;

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

/// Has `run`, which stood in a record in the folder `from`, refer to its files from `to`: both are whole paths.
pub(crate) fn refer_from(run: &mut Run, from: &Path, to: &Path) {
    let captures = run.links.iter_mut().filter_map(|link| {
        let capture = link.summary.capture.as_mut()?;
        capture.file.as_mut()
    });
    let artifacts = run.artifacts.iter_mut().map(|artifact| &mut artifact.file);
    for file in captures.chain(artifacts) {
        let whole = from.join(&*file);
        // Of a merged record it goes up and down again.
        let whole = fs::canonicalize(&whole).unwrap_or(whole);
        *file = pathdiff::diff_paths(&whole, to).unwrap_or(whole);
    }
}
