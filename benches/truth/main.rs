//! Measures with every instrument through links for which the emulator keeps a packet log, with several seeds for each cell. It checks
//! whether the stated 95 % intervals contain the values of the log, and whether the cells would show it if they did not.
//!
//! A cell is red when so few of its intervals contain the true value that chance would make any cell of the suite red in fewer than 1 of
//! 1,000 suites. Losses in bursts, and rare losses, are also judged together. Then the recorded runs are falsified in five ways, each of
//! which must turn its cells red. The check of the packet log's departures comes first, the tests of hosts come last.
//!
//! A directory as an argument is a record to judge again. `departures` and `hosts` run only that part; other arguments name cases to run,
//! like `--only`. `--repeats=N` runs each cell at most N times; with fewer than 10 every cell is red, because they decide nothing.
#![allow(
    clippy::disallowed_macros,
    reason = "it prints its results, and nobody else uses it"
)]

mod departures;
mod hosts;
mod losses;
mod mutation;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use record::Record;
use report::analysis::calibration::{PooledLosses, Suite};

use crate::losses::Coverage;
use crate::mutation::Mutation;

const GRID: &str = include_str!("grid.toml");
/// The argument that runs only [`departures`].
const DEPARTURES: &str = "departures";
/// The argument that runs only [`hosts`].
const HOSTS: &str = "hosts";
/// The argument that limits the number of runs of each cell.
const REPEATS: &str = "--repeats=";
const OUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/truth");

fn main() -> Result<ExitCode> {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --benches` passes this; there is nothing to test here.
    if asked.iter().any(|a| a == "--test") {
        return Ok(ExitCode::SUCCESS);
    }
    if let Some((file, rate)) = departures::asked_to_capture(&asked) {
        departures::capture(&file, rate)?;
        return Ok(ExitCode::SUCCESS);
    }
    let named: Vec<&String> = asked.iter().filter(|a| !a.starts_with('-')).collect();
    let most = asked.iter().find_map(|a| a.strip_prefix(REPEATS));
    let most: Option<i64> = most.map(str::parse).transpose().context(REPEATS)?;
    let is_sound = match named.as_slice() {
        [only] if *only == DEPARTURES => departures::check()?,
        [only] if *only == HOSTS => are_hosts_told_apart()?,
        [] => departures::check()? & holds(&named, most)? & are_hosts_told_apart()?,
        cases => holds(cases, most)?,
    };
    Ok(match is_sound {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Returns whether effects of hosts never count as the network's.
fn are_hosts_told_apart() -> Result<bool> {
    println!();
    Ok(hosts::starved_senders_are_marked()? & hosts::full_sockets_are_no_loss_of_the_link()?)
}

/// Returns whether the intervals of a record, or of the grid or these of its cases, contain the true values, and whether each
/// falsification is detected.
fn holds(named: &[&String], most: Option<i64>) -> Result<bool> {
    let directory = match named {
        [only] if Path::new(only).exists() => PathBuf::from(only),
        cases => calibrated(cases, most)?,
    };
    let record = Record::read(&directory)?;
    let suite = Suite::of(&record);
    println!("{suite}");
    let mut is_sound = !suite.is_red();
    let together = [
        Coverage::of_bursts(&suite),
        Coverage::of_rare(&PooledLosses::of(&record)),
    ];
    for coverage in together
        .iter()
        .filter(|one| one.is_there() || named.is_empty())
    {
        println!("{coverage}");
        is_sound &= coverage.is_enough();
    }
    println!();
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

/// Runs the grid, or these of its cases, each at most `most` times; returns the directory of the record.
fn calibrated(cases: &[&String], most: Option<i64>) -> Result<PathBuf> {
    let directory = tempfile::tempdir()?;
    let grid = directory.path().join("grid.toml");
    fs::write(&grid, grid_text(most)?)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_farwire"));
    command.arg("calibrate").arg(&grid);
    command.args(["--quiet", "--overwrite", "--out", OUT]);
    for case in cases {
        command.args(["--only", case]);
    }
    // The verdict of calibrate is advice; its exit code 1 means that some cells are not good.
    let ended = command.status().context("farwire calibrate")?;
    let has_run = ended.code().is_some_and(|code| code < 2);
    ensure!(has_run, "farwire calibrate ended with {ended}");
    Ok(PathBuf::from(OUT))
}

/// Returns the grid with at most `most` repeats of each case.
fn grid_text(most: Option<i64>) -> Result<String> {
    let Some(most) = most else {
        return Ok(GRID.to_owned());
    };
    let mut grid: toml::Table = toml::from_str(GRID)?;
    let bound = |table: &mut toml::Table| {
        if let Some(toml::Value::Integer(repeats)) = table.get_mut("repeats") {
            *repeats = most.min(*repeats);
        }
    };
    bound(&mut grid);
    let cases = grid.get_mut("cases").and_then(toml::Value::as_array_mut);
    for case in cases.into_iter().flatten() {
        case.as_table_mut().map(bound);
    }
    Ok(toml::to_string(&grid)?)
}
