//! What is said beside results and errors, on standard error; nothing under `--quiet`.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use record::printable::printable_lines;

/// Set once, before anything is said.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Says nothing from now on.
pub(crate) fn keep_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

/// Whether nothing is to be said.
pub(crate) fn are_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Whether somebody watches at a terminal.
pub(crate) fn are_watched() -> bool {
    !are_quiet() && io::stderr().is_terminal()
}

/// Says a line.
pub(crate) fn note(line: impl Display) {
    if !are_quiet() {
        eprintln!("{}", printable_lines(&line.to_string()));
    }
}

/// Where results go as text when their JSON takes standard output.
pub(crate) fn beside() -> Box<dyn Write> {
    match are_quiet() {
        true => Box::new(io::sink()),
        false => Box::new(io::stderr()),
    }
}
