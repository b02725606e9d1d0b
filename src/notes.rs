//! Messages on standard error: notes (unless `--quiet`), warnings and errors, each as a line of text or of JSON. A reader that does
//! not read them stops nothing.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use clap::ValueEnum;
use netio::console;
use record::now;
use record::printable::{log_line, printable_lines};
use serde::Serialize;

/// True if notes are suppressed. It is set once, before the first message.
static QUIET: AtomicBool = AtomicBool::new(false);
/// True if messages are JSON. It is set once, before the first message.
static AS_JSON: AtomicBool = AtomicBool::new(false);
/// The lines that are kept for later; `None` while lines are printed immediately.
static HELD: Mutex<Option<Vec<String>>> = Mutex::new(None);
/// The most lines that are kept. Later ones are lost.
const MOST_HELD: usize = 1_000;

/// The format of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Text for people
    Text,
    /// One JSON object per line: time, level, msg
    Json,
}

/// The importance of a message.
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

/// Sets the format of all later messages.
pub(crate) fn say_as(format: LogFormat) {
    AS_JSON.store(format == LogFormat::Json, Ordering::Relaxed);
}

/// The format of messages.
pub(crate) fn format() -> LogFormat {
    match AS_JSON.load(Ordering::Relaxed) {
        true => LogFormat::Json,
        false => LogFormat::Text,
    }
}

/// Suppresses notes from now on.
pub(crate) fn keep_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

/// True if notes are suppressed.
pub(crate) fn are_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// True if standard error is a terminal that shows messages as text, and nothing else.
pub(crate) fn are_watched() -> bool {
    let is_text = format() == LogFormat::Text;
    !are_quiet() && is_text && lock().is_none() && io::stderr().is_terminal()
}

/// Keeps messages until [`release`], because the terminal shows something else.
pub(crate) fn hold() {
    lock().get_or_insert_default();
}

/// Prints the kept messages, and keeps no more.
pub(crate) fn release() {
    let held = lock().take();
    held.into_iter()
        .flatten()
        .for_each(|line| console::say(&line));
}

/// Prints a note, unless notes are suppressed.
pub(crate) fn note(line: impl Display) {
    if !are_quiet() {
        say(Level::Info, &line.to_string());
    }
}

/// Prints an event with its time for a log. As text it is one [`log_line`], which may be cut; JSON contains all of it.
pub(crate) fn log(event: impl Display) {
    let words = event.to_string();
    match format() {
        LogFormat::Text => note(dated(&words)),
        LogFormat::Json => note(words),
    }
}

/// Returns a line of a log: the time and the event.
fn dated(words: &str) -> String {
    log_line(&format!("{} {words}", now()))
}

/// Prints a warning.
pub(crate) fn warn(cause: impl Display) {
    say(Level::Warning, &format!("{NAME}{cause}"));
}

/// Prints the cause of a failure, which may contain text from a remote host.
pub(crate) fn error(cause: impl Display) {
    say(Level::Error, &format!("{NAME}{cause}"));
}

/// The beginning of messages that do not report the progress of a command.
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

/// Returns the message as JSON, without the program's name.
fn as_json(level: Level, words: &str) -> String {
    let entry = Entry {
        time: now(),
        level,
        msg: words.strip_prefix(NAME).unwrap_or(words),
    };
    // Three strings can always be written as JSON.
    serde_json::to_string(&entry).unwrap_or_default()
}

/// Locks the kept lines. A panic elsewhere leaves no partial line.
fn lock() -> MutexGuard<'static, Option<Vec<String>>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the destination of the text of results whose JSON goes to standard output: standard error, or nothing.
pub(crate) fn beside() -> Box<dyn Write> {
    match are_quiet() || format() == LogFormat::Json {
        true => Box::new(io::sink()),
        false => Box::new(Text),
    }
}

/// A writer that prints text like messages, so that it never waits for a reader.
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
    fn a_json_line_has_time_level_and_message() {
        let line = as_json(Level::Warning, "farwire: a \"b\"\n\u{1b}[2Jc");
        assert!(!line.contains(['\n', '\u{1b}']), "{line}");
        let entry: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(entry["level"], "warning");
        assert_eq!(entry["msg"], "a \"b\"\n\u{1b}[2Jc");
        let time = entry["time"].as_str().unwrap();
        assert!(time.parse::<jiff::Timestamp>().is_ok(), "{time}");
    }
}
