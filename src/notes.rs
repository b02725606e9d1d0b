//! What is said beside results and errors, on standard error; nothing under `--quiet`.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use record::printable::printable_lines;

/// Set once, before anything is said.
static QUIET: AtomicBool = AtomicBool::new(false);
/// What is kept for later, while anything is.
static HELD: Mutex<Option<Vec<String>>> = Mutex::new(None);
/// Lines that are kept; what comes after them is lost.
const MOST_HELD: usize = 1_000;

/// Says nothing from now on.
pub(crate) fn keep_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

/// Whether nothing is to be said.
pub(crate) fn are_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Whether somebody watches at a terminal that shows nothing else.
pub(crate) fn are_watched() -> bool {
    !are_quiet() && lock().is_none() && io::stderr().is_terminal()
}

/// Keeps what is noted until [`release`]: the terminal shows something else.
pub(crate) fn hold() {
    lock().get_or_insert_default();
}

/// Says what was kept, and keeps nothing any more.
pub(crate) fn release() {
    let held = lock().take();
    for line in held.into_iter().flatten() {
        eprintln!("{line}");
    }
}

/// Says a line.
pub(crate) fn note(line: impl Display) {
    if are_quiet() {
        return;
    }
    let line = printable_lines(&line.to_string()).into_owned();
    match &mut *lock() {
        Some(held) if held.len() < MOST_HELD => held.push(line),
        Some(_) => {}
        None => eprintln!("{line}"),
    }
}

/// A panic elsewhere leaves no half line here.
fn lock() -> MutexGuard<'static, Option<Vec<String>>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where results go as text when their JSON takes standard output.
pub(crate) fn beside() -> Box<dyn Write> {
    match are_quiet() {
        true => Box::new(io::sink()),
        false => Box::new(io::stderr()),
    }
}
