//! The time of a bed around a command that does nothing, and of an experiment's run beside its instruments, each beside the earlier commit
//! of `make bench BASE=COMMIT`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Result, ensure};
use record::Record;

use crate::path::rivals::base_path;
use crate::processes::FARWIRE;
use crate::report::rows::{Found, Quantity, Sample};
use crate::results::{Outcome, scratch};
use crate::rounds::{rounds, shuffled};

const ROUNDS: usize = 21;

pub(crate) fn run() -> Result<Outcome> {
    let count = rounds(ROUNDS)?;
    let mut outcome = Outcome::new(
        count,
        "`farwire exec -- true`, from its start to its end: a bed, a link and a far end around a command that does nothing; and the runs of an experiment, from the start of the bed until \
         it is removed, whose only instrument sends one echo",
    );
    let mut programs = vec![("farwire".to_owned(), PathBuf::from(FARWIRE))];
    programs.extend(base_path().map(|base| ("the base commit".to_owned(), base)));
    let once = shuffled(count, &programs, |(_, program)| once(program))?;
    let each_run = programs.iter().map(|(_, program)| runs(program, count));
    let each_run = each_run.collect::<Result<Vec<_>>>()?;
    // A run that the machine spoilt was attempted again, so one program may have more runs than the other.
    let least = each_run.iter().map(Vec::len).min().unwrap_or(0);
    let each_run = (0..least).map(|run| each_run.iter().map(|of| of[run]).collect());
    for (what, rounds) in [
        ("exec -- true", once),
        ("a run of one echo", each_run.collect()),
    ] {
        let found = Found {
            names: programs.iter().map(|(name, _)| name.clone()).collect(),
            rounds,
        };
        let quantity = Quantity::less(what, "ms");
        if programs.len() > 1 {
            outcome.rows(found.rows(&quantity));
        } else {
            outcome.rows(found.alone(&quantity, 0));
        }
    }
    Ok(outcome)
}

/// Returns the wall time of one command in milliseconds.
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

/// Returns the wall times of the runs of an experiment, in milliseconds.
fn runs(program: &Path, repeats: usize) -> Result<Vec<Sample>> {
    let (file, out) = (scratch("start.toml")?, scratch("start")?);
    let experiment = format!(
        "name = 'start'\ntitle = 'Runs of one echo'\nlate_budget = '1s'\nbed = {{ kind = 'netns' }}\n\
         [[instruments]]\nname = 'echo'\nkind = 'ping'\nparameters = {{ count = 1 }}\n\
         [[cases]]\nname = 'echo'\nrepeats = {repeats}\n"
    );
    fs::write(&file, experiment)?;
    let ended = Command::new(program)
        .args(["--quiet", "run"])
        .arg(&file)
        .arg("--out")
        .arg(&out)
        .stdout(Stdio::null())
        .status()?;
    ensure!(ended.success(), "{}: {ended}", program.display());
    let record = Record::read(&out)?;
    fs::remove_dir_all(&out)?;
    let elapsed = record.runs.iter().filter_map(|run| run.elapsed_s);
    Ok(elapsed.map(|seconds| (1e3 * seconds).into()).collect())
}
