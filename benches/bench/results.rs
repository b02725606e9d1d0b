//! The results of parts, kept in target/bench until a page can be made from them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use record::HostFacts;
use serde::{Deserialize, Serialize};

use crate::report::rows::Row;

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/bench");
/// The parts of the repository on which figures depend; a change of the documentation does not count.
const MEASURED: [&str; 5] = ["src", "crates", "benches", "Cargo.toml", "Cargo.lock"];

/// The result of a part.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// A description of the measurement.
    pub(crate) how: String,
    /// The number of rounds.
    pub(crate) rounds: usize,
    pub(crate) rows: Vec<Row>,
    /// Additional notes.
    pub(crate) notes: Vec<String>,
}

/// An outcome with its commit, date and machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) part: String,
    /// The last commit that changed the measured code, with a plus sign if it has uncommitted changes.
    pub(crate) commit: String,
    /// The base commit beside which it was measured, if there was one.
    pub(crate) base: Option<String>,
    /// The date, in UTC.
    pub(crate) date: String,
    /// The duration of the measurement, in seconds.
    pub(crate) took_s: f64,
    pub(crate) host: HostFacts,
    pub(crate) outcome: Outcome,
}

impl Outcome {
    pub(crate) fn new(rounds: usize, how: &str) -> Self {
        Self {
            how: how.to_owned(),
            rounds,
            rows: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub(crate) fn rows(&mut self, rows: impl IntoIterator<Item = Row>) {
        self.rows.extend(rows);
    }

    pub(crate) fn note(&mut self, note: &str) {
        self.notes.push(note.to_owned());
    }
}

impl Kept {
    /// Keeps the outcome, in place of an earlier one of the part.
    pub(crate) fn write(&self) -> Result<()> {
        fs::create_dir_all(DIRECTORY)?;
        let text = serde_json::to_string_pretty(self)?;
        Ok(fs::write(file(&self.part), text + "\n")?)
    }

    /// Reads the outcome of that part; nothing if it has not run, or if another version wrote another format.
    pub(crate) fn read(part: &str) -> Option<Self> {
        serde_json::from_str(&fs::read_to_string(file(part)).ok()?).ok()
    }
}

/// Returns the measured commit in the form of [`Kept`]; "unknown" without git.
pub(crate) fn commit() -> String {
    let found = || {
        let last = git(&["log", "-1", "--format=%h", "--"])?;
        let changed = git(&["status", "--porcelain", "--"])?;
        let more = if changed.is_empty() { "" } else { "+" };
        Some(format!("{last}{more}"))
    };
    found().unwrap_or_else(|| "unknown".to_owned())
}

/// Returns the output of git for [`MEASURED`].
fn git(arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    command.args(["-C", env!("CARGO_MANIFEST_DIR")]);
    let output = command.args(arguments).args(MEASURED).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// Returns the path of a temporary file, which the next start removes.
pub(crate) fn scratch(name: &str) -> Result<PathBuf> {
    let directory = Path::new(DIRECTORY).join("scratch");
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    Ok(directory.join(name))
}

/// Removes the temporary files of an earlier run.
pub(crate) fn clear_scratch() {
    // The directory may be missing.
    let _ = fs::remove_dir_all(Path::new(DIRECTORY).join("scratch"));
}

fn file(part: &str) -> PathBuf {
    Path::new(DIRECTORY).join(format!("{part}.json"))
}
