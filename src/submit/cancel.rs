//! Cancels a submit: ends its tasks and the process that waits for them.

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

/// The time that a cancelled submit may take to end.
const END_TIMEOUT: Duration = Duration::from_secs(30);

/// Cancels the tasks of the submit in `path`, and the submit itself. Returns the number of
/// cancelled tasks.
///
/// # Errors
/// Fails if the directory does not belong to a submit or if Slurm is not available.
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
    // The submit itself cancels an array that it has just handed in, unless it was killed.
    ended.extend(end_all(path, &slurm)?);
    Ok(ended.len())
}

/// Cancels the tasks of all passes and returns them as job and shard numbers.
fn end_all(path: &Path, slurm: &Slurm) -> Result<BTreeSet<(u32, u32)>> {
    let state = SubmissionState::read(path)?;
    let mut ended = BTreeSet::new();
    for pass in &state.passes {
        ended.extend(slurm.cancel(&state.job_name(pass))?);
    }
    Ok(ended)
}

/// Waits until no submit holds the directory, so that the same command can follow immediately.
fn wait_for_submit(path: &Path) {
    let lock = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path.join(LOCK));
    // There is nothing to wait for without a lock file.
    let Ok(lock) = lock else { return };
    let begun = Instant::now();
    while let Err(TryLockError::WouldBlock) = lock.try_lock() {
        if begun.elapsed() > END_TIMEOUT {
            note("the submit that waits for these tasks has not ended yet");
            return;
        }
        thread::sleep(STOP_INTERVAL);
    }
}
