//! Every instrument through links that the emulator keeps a log of, 20 seeds a cell: do the stated 95 % intervals hold what the log
//! says, and would the cells tell if they did not?
//!
//! A cell is red when so few of its intervals hold that the whole suite would be red by chance in fewer than 1 of 1,000 goes. Then
//! the recorded runs are falsified in five ways, each of which must turn its cells red. A directory as an argument is a record to
//! judge again; `departures` is only the check of the packet log's departures, which comes first; other arguments name cases to
//! run, as `--only` does.
#![allow(
    clippy::disallowed_macros,
    reason = "it prints its results, and nobody else uses it"
)]

mod departures;
mod mutation;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use record::Record;
use report::analysis::calibration::Suite;

use crate::mutation::Mutation;

const GRID: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/truth/grid.toml");
/// The argument that asks for [`departures`] alone.
const DEPARTURES: &str = "departures";
const OUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/truth");

fn main() -> Result<ExitCode> {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    // Asked for by `cargo test --benches`: there is nothing to test here.
    if asked.iter().any(|a| a == "--test") {
        return Ok(ExitCode::SUCCESS);
    }
    if let Some((file, rate)) = departures::asked_to_capture(&asked) {
        departures::capture(&file, rate)?;
        return Ok(ExitCode::SUCCESS);
    }
    let named: Vec<&String> = asked.iter().filter(|a| !a.starts_with('-')).collect();
    let is_sound = match named.as_slice() {
        [only] if *only == DEPARTURES => departures::check()?,
        [] => departures::check()? & holds(&named)?,
        cases => holds(cases)?,
    };
    Ok(match is_sound {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Whether the intervals of a record, or of the grid or these of its cases, hold, and whether each falsification is seen.
fn holds(named: &[&String]) -> Result<bool> {
    let directory = match named {
        [only] if Path::new(only).exists() => PathBuf::from(only),
        cases => calibrated(cases)?,
    };
    let record = Record::read(&directory)?;
    let suite = Suite::of(&record);
    println!("{suite}");
    let mut is_sound = !suite.is_red();
    for mutation in Mutation::ALL {
        let unseen = mutation.unseen(&record);
        is_sound &= unseen.is_empty();
        let said = match unseen.as_slice() {
            [] => "each of its cells turns red".to_owned(),
            cells => format!("NOT SEEN in {}", cells.join("; ")),
        };
        println!("{mutation}: {said}");
    }
    Ok(is_sound)
}

/// Runs the grid, or these of its cases; where the record is.
fn calibrated(cases: &[&String]) -> Result<PathBuf> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farwire"));
    command.args(["calibrate", GRID, "--quiet", "--overwrite", "--out", OUT]);
    for case in cases {
        command.args(["--only", case]);
    }
    // Its own verdict is advice, and 1 where that is not good.
    let ended = command.status().context("farwire calibrate")?;
    let has_run = ended.code().is_some_and(|code| code < 2);
    ensure!(has_run, "farwire calibrate ended with {ended}");
    Ok(PathBuf::from(OUT))
}
