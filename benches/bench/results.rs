//! What parts found, kept in target/bench until a page can be made of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use record::HostFacts;
use serde::{Deserialize, Serialize};

use crate::report::rows::Row;

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/bench");
/// Of the repository, what figures depend on: a change of the documentation is none.
const MEASURED: [&str; 5] = ["src", "crates", "benches", "Cargo.toml", "Cargo.lock"];

/// What a part found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// How it was measured.
    pub(crate) how: String,
    /// In how many rounds.
    pub(crate) rounds: usize,
    pub(crate) rows: Vec<Row>,
    /// What else there is to know.
    pub(crate) notes: Vec<String>,
}

/// An outcome, and what it belongs to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) part: String,
    /// The last commit that changed what is measured; with a plus sign if more was changed since.
    pub(crate) commit: String,
    /// The base beside which it was measured, if there was one.
    pub(crate) base: Option<String>,
    /// The day, in UTC.
    pub(crate) date: String,
    /// How long it took, in seconds.
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
    /// Keeps it, in place of what the part found before.
    pub(crate) fn write(&self) -> Result<()> {
        fs::create_dir_all(DIRECTORY)?;
        let text = serde_json::to_string_pretty(self)?;
        Ok(fs::write(file(&self.part), text + "\n")?)
    }

    /// What that part found; nothing if it has not run, or a farwire that wrote something else ran it.
    pub(crate) fn read(part: &str) -> Option<Self> {
        serde_json::from_str(&fs::read_to_string(file(part)).ok()?).ok()
    }
}

/// The commit that is measured, as [`Kept`] has it; "unknown" without git.
pub(crate) fn commit() -> String {
    let found = || {
        let last = git(&["log", "-1", "--format=%h", "--"])?;
        let changed = git(&["status", "--porcelain", "--"])?;
        let more = if changed.is_empty() { "" } else { "+" };
        Some(format!("{last}{more}"))
    };
    found().unwrap_or_else(|| "unknown".to_owned())
}

/// What git says of [`MEASURED`].
fn git(arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    command.args(["-C", env!("CARGO_MANIFEST_DIR")]);
    let output = command.args(arguments).args(MEASURED).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// A file for what is in between, which the next start removes.
pub(crate) fn scratch(name: &str) -> Result<PathBuf> {
    let directory = Path::new(DIRECTORY).join("scratch");
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    Ok(directory.join(name))
}

/// Removes what an earlier run left in between.
pub(crate) fn clear_scratch() {
    // There may be none.
    let _ = fs::remove_dir_all(Path::new(DIRECTORY).join("scratch"));
}

fn file(part: &str) -> PathBuf {
    Path::new(DIRECTORY).join(format!("{part}.json"))
}
