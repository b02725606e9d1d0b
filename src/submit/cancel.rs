//! Ending a submit: its tasks, and the process that waits for them.

use std::collections::BTreeSet;
use std::fs::{OpenOptions, TryLockError};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::paths::write_whole;
use super::shared_directory::{CANCELLED, LOCK, SubmissionState};
use super::slurm::Slurm;
use crate::notes::note;
use instruments::failure::{Blame, Failure};
use netio::stop::{STOP_INTERVAL, Stop};

/// How long a submit that was cancelled may take to end.
const TO_END: Duration = Duration::from_secs(30);

/// Ends the tasks of the submit of `path`, and the submit itself; how many tasks that were.
///
/// # Errors
/// It is no submit's; Slurm is not there.
pub(crate) fn cancel(path: &Path) -> Result<usize, Failure> {
    let state = SubmissionState::read(path).or_bad_input()?;
    let slurm = Slurm::find(&Stop::default())?;
    let mut ended = BTreeSet::new();
    for pass in &state.passes {
        ended.extend(slurm.alive(&state.job_name(pass))?);
    }
    let mark = path.join(CANCELLED);
    write_whole(&mark, b"")?;
    ended.extend(end_all(path, &slurm)?);
    wait_for_submit(path);
    // It ends itself what it hands in meanwhile, but where it was killed.
    ended.extend(end_all(path, &slurm)?);
    Ok(ended.len())
}

/// Ends the tasks of all passes so far; which those are.
fn end_all(path: &Path, slurm: &Slurm) -> Result<BTreeSet<(u32, u32)>> {
    let state = SubmissionState::read(path)?;
    let mut ended = BTreeSet::new();
    for pass in &state.passes {
        ended.extend(slurm.cancel(&state.job_name(pass))?);
    }
    Ok(ended)
}

/// Waits until no submit has the directory, so that the same command may follow at once.
fn wait_for_submit(path: &Path) {
    let lock = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path.join(LOCK));
    // Where there are no locks, nobody knows.
    let Ok(lock) = lock else { return };
    let begun = Instant::now();
    while let Err(TryLockError::WouldBlock) = lock.try_lock() {
        if begun.elapsed() > TO_END {
            note("the submit that waits for these tasks has not ended yet");
            return;
        }
        thread::sleep(STOP_INTERVAL);
    }
}
