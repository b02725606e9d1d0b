//! Messages on standard error: notes unless `--quiet`, warnings and errors, each a line of text or of JSON. That nobody reads
//! them stops nothing.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use clap::ValueEnum;
use netio::console;
use record::now;
use record::printable::{log_line, printable_lines};
use serde::Serialize;

/// Set once, before anything is said.
static QUIET: AtomicBool = AtomicBool::new(false);
/// Set once, before anything is said.
static AS_JSON: AtomicBool = AtomicBool::new(false);
/// What is kept for later, while anything is.
static HELD: Mutex<Option<Vec<String>>> = Mutex::new(None);
/// Lines that are kept; what comes after them is lost.
const MOST_HELD: usize = 1_000;

/// How it is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Words for people
    Text,
    /// A JSON object a line: time (RFC 3339, UTC), level (info, warning, error), msg
    Json,
}

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Info,
    Warning,
    Error,
}

/// A line of the log as JSON, with the keys of Go's log/slog.
#[derive(Serialize)]
struct Entry<'a> {
    time: String,
    level: Level,
    msg: &'a str,
}

/// Says all that follows in this format.
pub(crate) fn say_as(format: LogFormat) {
    AS_JSON.store(format == LogFormat::Json, Ordering::Relaxed);
}

/// How everything is said.
pub(crate) fn format() -> LogFormat {
    match AS_JSON.load(Ordering::Relaxed) {
        true => LogFormat::Json,
        false => LogFormat::Text,
    }
}

/// Says nothing but warnings and errors from now on.
pub(crate) fn keep_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

/// Whether notes are not to be said.
pub(crate) fn are_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Whether somebody watches at a terminal that shows nothing else.
pub(crate) fn are_watched() -> bool {
    let is_text = format() == LogFormat::Text;
    !are_quiet() && is_text && lock().is_none() && io::stderr().is_terminal()
}

/// Keeps what is noted until [`release`]: the terminal shows something else.
pub(crate) fn hold() {
    lock().get_or_insert_default();
}

/// Says what was kept, and keeps nothing any more.
pub(crate) fn release() {
    let held = lock().take();
    held.into_iter()
        .flatten()
        .for_each(|line| console::say(&line));
}

/// Says what goes on.
pub(crate) fn note(line: impl Display) {
    if !are_quiet() {
        say(Level::Info, &line.to_string());
    }
}

/// Says what happened, for who reads it later: with its time, and in text as one [`log_line`]. JSON has all of it.
pub(crate) fn log(event: impl Display) {
    let words = event.to_string();
    match format() {
        LogFormat::Text => note(dated(&words)),
        LogFormat::Json => note(words),
    }
}

/// A line of a log for people: when, and what.
fn dated(words: &str) -> String {
    log_line(&format!("{} {words}", now()))
}

/// Says what is not as it should be, though all goes on.
pub(crate) fn warn(cause: impl Display) {
    say(Level::Warning, &format!("{NAME}{cause}"));
}

/// Says why something ended, which may have words of strangers in it.
pub(crate) fn error(cause: impl Display) {
    say(Level::Error, &format!("{NAME}{cause}"));
}

/// In front of what does not speak of the progress of a command.
const NAME: &str = "farwire: ";

fn say(level: Level, words: &str) {
    let line = match format() {
        LogFormat::Text => printable_lines(words).into_owned(),
        LogFormat::Json => as_json(level, words),
    };
    match &mut *lock() {
        Some(held) if held.len() < MOST_HELD => held.push(line),
        Some(_) => {}
        None => console::say(&line),
    }
}

/// Whose words they are is known where JSON is read.
fn as_json(level: Level, words: &str) -> String {
    let entry = Entry {
        time: now(),
        level,
        msg: words.strip_prefix(NAME).unwrap_or(words),
    };
    // Three strings are always JSON.
    serde_json::to_string(&entry).unwrap_or_default()
}

/// A panic elsewhere leaves no half line here.
fn lock() -> MutexGuard<'static, Option<Vec<String>>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where results go as text when their JSON takes standard output.
pub(crate) fn beside() -> Box<dyn Write> {
    match are_quiet() || format() == LogFormat::Json {
        true => Box::new(io::sink()),
        false => Box::new(Text),
    }
}

/// Writes text for people as messages are written, so that it waits for no reader either.
struct Text;

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        console::say(text.strip_suffix('\n').unwrap_or(&text));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dated_line_begins_with_its_time_and_fits() {
        let line = dated(&format!("farwire: {}", "x".repeat(400)));
        assert_eq!(line.chars().count(), 160);
        let (time, rest) = line.split_once(' ').unwrap();
        assert!(time.parse::<jiff::Timestamp>().is_ok(), "{time}");
        assert!(
            rest.starts_with("farwire: xxx") && rest.ends_with("..."),
            "{rest}"
        );
    }

    #[test]
    fn as_json_a_line_has_when_how_much_it_matters_and_what() {
        let line = as_json(Level::Warning, "farwire: a \"b\"\n\u{1b}[2Jc");
        assert!(!line.contains(['\n', '\u{1b}']), "{line}");
        let entry: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(entry["level"], "warning");
        assert_eq!(entry["msg"], "a \"b\"\n\u{1b}[2Jc");
        let time = entry["time"].as_str().unwrap();
        assert!(time.parse::<jiff::Timestamp>().is_ok(), "{time}");
    }
}
