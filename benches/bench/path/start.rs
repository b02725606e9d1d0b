//! The time of a bed around a command that does nothing, beside the earlier commit of `make bench BASE=COMMIT`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::path::rivals::base_path;
use crate::processes::FARWIRE;
use crate::report::rows::{Found, Quantity, Sample};
use crate::results::Outcome;
use crate::rounds::{rounds, shuffled};

const ROUNDS: usize = 21;

pub(crate) fn run() -> Result<Outcome> {
    let count = rounds(ROUNDS)?;
    let mut outcome = Outcome::new(
        count,
        "`farwire exec -- true`, from its start to its end: a bed, a link and a far end around a command that does nothing",
    );
    let mut programs = vec![("farwire".to_owned(), PathBuf::from(FARWIRE))];
    programs.extend(base_path().map(|base| ("the base commit".to_owned(), base)));
    let found = Found {
        names: programs.iter().map(|(name, _)| name.clone()).collect(),
        rounds: shuffled(count, &programs, |(_, program)| once(program))?,
    };
    let quantity = Quantity::less("exec -- true", "ms");
    if programs.len() > 1 {
        outcome.rows(found.rows(&quantity));
    } else {
        outcome.rows(found.alone(&quantity, 0));
    }
    Ok(outcome)
}

/// Returns the wall time of one run in milliseconds.
fn once(program: &Path) -> Result<Sample> {
    let began = Instant::now();
    let ended = Command::new(program)
        .args(["--quiet", "exec", "--", "true"])
        .stdout(Stdio::null())
        .status()?;
    let took = began.elapsed();
    ensure!(ended.success(), "{}: {ended}", program.display());
    Ok((took.as_secs_f64() * 1e3).into())
}
