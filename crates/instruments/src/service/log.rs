//! The far end's log of tests and refusals. People get a line with the time for each, which fits a terminal. Programs
//! get a JSON object per line with all details.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::error::{Context, Result};
use jiff::Timestamp;

use record::printable::{log_line, printable, printable_json};
use record::server_log::{RefusalEntry, TestEntry};
use record::{Measurement, now};

use super::TestTime;
use crate::lock;
use crate::output::is_stdout;

/// The number of lines that may wait to be written. Further lines are lost.
const MOST_LINES: usize = 1024;
/// The longest wait for the last lines to be written when the far end stops.
const LAST_LINES: Duration = Duration::from_secs(1);

/// The destinations of the log, which are none by default.
///
/// Logging never blocks: each destination has its own writer thread, and lines that it cannot take in time are lost and
/// counted.
#[derive(Debug, Default)]
pub struct Log {
    text_log: Option<Writer>,
    json_log: Option<Writer>,
    /// Notes to the operator that concern no single test.
    notes: Option<Writer>,
}

/// The queue of lines to one destination.
#[derive(Debug)]
struct Writer {
    lines: Option<SyncSender<String>>,
    lost: Arc<AtomicU64>,
    /// The thread's work, until the thread starts.
    work: Mutex<Option<WriterTask>>,
    /// Disconnects when the last line is written.
    done: Mutex<Receiver<()>>,
}

/// The work of a writer's thread.
struct WriterTask {
    lines: Receiver<String>,
    sink: Box<dyn Write + Send>,
    /// The name under which users know the destination.
    name: String,
    lost: Arc<AtomicU64>,
    lost_message: fn(u64) -> String,
    _finished: SyncSender<()>,
}

/// A test that is over, without its measurement.
#[derive(Debug)]
pub(super) struct EndedTest {
    pub(super) test: &'static str,
    pub(super) peer: SocketAddr,
    pub(super) peer_name: Option<String>,
    pub(super) time: TestTime,
}

/// A refusal, or several refusals for the same cause.
#[derive(Debug)]
pub(super) struct Refusal<'a> {
    pub(super) protocol: &'static str,
    /// The client of the last refusal.
    pub(super) peer: SocketAddr,
    /// The cause in one word.
    pub(super) cause: &'static str,
    /// The reason of the last refusal, as a sentence.
    pub(super) why: &'a str,
    /// The number of refusals for this cause since the last entry.
    pub(super) count: u64,
}

impl Log {
    /// Opens a log with lines on standard output, and JSON in `json` if there is one. If `json` is `-`, JSON goes to
    /// standard output and lines go to standard error. Nothing is written before the far end serves.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened for appending.
    pub fn open(json: Option<&Path>) -> Result<Self> {
        let stdout = |lost| Writer::new("standard output", io::stdout(), lost);
        let stderr = || Writer::new("standard error", io::stderr(), lost_lines);
        let (text_log, json_log) = match json {
            None => (stdout(lost_lines), None),
            Some(file) if is_stdout(file) => (stderr(), Some(stdout(lost_entries))),
            Some(file) => (stdout(lost_lines), Some(appended(file)?)),
        };
        Ok(Self {
            text_log: Some(text_log),
            json_log,
            notes: Some(stderr()),
        })
    }

    /// Opens a log whose lines and notes go to `lines`, beside a screen that has the terminal, and whose JSON goes to the
    /// file `json`, if there is one.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened for appending.
    pub fn beside_screen(
        json: Option<&Path>,
        lines: impl Write + Clone + Send + 'static,
    ) -> Result<Self> {
        let on_screen = |lines| Writer::new("the screen", lines, lost_lines);
        Ok(Self {
            text_log: Some(on_screen(lines.clone())),
            json_log: json.map(appended).transpose()?,
            notes: Some(on_screen(lines)),
        })
    }

    /// Starts the writer threads.
    ///
    /// # Errors
    /// Returns an error if a thread cannot be started.
    pub(crate) fn start(&self) -> io::Result<()> {
        let mut writers = [&self.text_log, &self.json_log, &self.notes]
            .into_iter()
            .flatten();
        writers.try_for_each(Writer::start)
    }

    /// Logs a test that is over. Its samples are left out, which bounds the length of an entry.
    pub(super) fn test(&self, ended: EndedTest, measurement: &Measurement) {
        let EndedTest {
            test,
            peer,
            peer_name,
            time,
        } = ended;
        let ended_at = before(Timestamp::now(), time.ended_ago);
        let entry = TestEntry {
            started_at: Some(text_of(before(ended_at, time.lasted))),
            ended_at: text_of(ended_at),
            test: test.to_owned(),
            peer,
            peer_name,
            duration_s: time.lasted.as_secs_f64(),
            figures: measurement.figures.clone(),
            facts: measurement.facts.clone(),
            failure: measurement.failure.clone(),
        };
        if let Some(text_log) = &self.text_log {
            text_log.queue(line(&entry));
        }
        if let Some(json_log) = &self.json_log
            && let Ok(json) = serde_json::to_string(&entry)
        {
            json_log.queue(printable_json(&json).into_owned());
        }
    }

    /// Logs one refusal, or several with the same cause.
    pub(super) fn refusal(&self, refused: &Refusal<'_>) {
        let Refusal {
            protocol,
            peer,
            cause,
            why,
            count,
        } = *refused;
        let refused_at = now();
        if let Some(text_log) = &self.text_log {
            let times = match count {
                1 => String::new(),
                count => format!(" ({count} refusals, the last of {peer})"),
            };
            let words = format!("{refused_at}, {peer}, {protocol}, REFUSED: {why}{times}");
            text_log.queue(log_line(&words));
        }
        let entry = RefusalEntry {
            refused_at,
            protocol: protocol.to_owned(),
            peer,
            cause: cause.to_owned(),
            why: why.to_owned(),
            count,
        };
        if let Some(json_log) = &self.json_log
            && let Ok(json) = serde_json::to_string(&entry)
        {
            json_log.queue(printable_json(&json).into_owned());
        }
    }

    /// Writes a line about a running test beside those of the tests that have ended. Only people get it.
    pub(crate) fn progress(&self, text: &str) {
        if let Some(text_log) = &self.text_log {
            text_log.queue(log_line(&format!("{}, {text}", now())));
        }
    }

    /// Writes a note to the operator that concerns no single test.
    pub(crate) fn note(&self, text: &str) {
        if let Some(notes) = &self.notes {
            notes.queue(log_line(&format!("{} farwire: {text}", now())));
        }
    }
}

/// Returns a writer that appends JSON to a file.
fn appended(file: &Path) -> Result<Writer> {
    let name = file.display().to_string();
    let opened = File::options()
        .append(true)
        .create(true)
        .open(file)
        .with_context(|| format!("{name}: cannot write"))?;
    Ok(Writer::new(&name, opened, lost_entries))
}

/// Returns the moment that was this long before another one.
fn before(moment: Timestamp, time: Duration) -> Timestamp {
    moment.checked_sub(time).unwrap_or(moment)
}

/// Returns a moment as the log states it.
fn text_of(moment: Timestamp) -> String {
    format!("{moment:.3}")
}

/// Returns the line for people about a test: when it ended, the client, the test, its duration and the time of day at
/// which it began, and its figures.
fn line(entry: &TestEntry) -> String {
    let figures = entry.figures.iter();
    let peer = match &entry.peer_name {
        Some(name) => format!("{} ({name})", entry.peer),
        None => entry.peer.to_string(),
    };
    let started_at = entry.started_at.as_deref().unwrap_or_default();
    let time_of_day = started_at.split_once('T').map_or("", |(_, time)| time);
    let mut words = vec![
        entry.ended_at.clone(),
        peer,
        entry.test.clone(),
        format!(
            "{:.3} s from {}",
            entry.duration_s,
            time_of_day.trim_end_matches('Z')
        ),
    ];
    words.extend(entry.failure.iter().map(|cause| format!("FAILED: {cause}")));
    words.extend(
        figures
            .filter(|figure| figure.stream.is_none())
            .map(record::figure_in_words),
    );
    log_line(&words.join(", "))
}

impl Writer {
    /// Returns a writer to `sink`, which users know as `name`. Lines wait until it is started.
    fn new(name: &str, sink: impl Write + Send + 'static, lost_message: fn(u64) -> String) -> Self {
        let (lines, incoming) = sync_channel(MOST_LINES);
        let (finished, done) = sync_channel(0);
        let lost = Arc::new(AtomicU64::new(0));
        Self {
            lines: Some(lines),
            lost: Arc::clone(&lost),
            work: Mutex::new(Some(WriterTask {
                lines: incoming,
                sink: Box::new(sink),
                name: name.to_owned(),
                lost,
                lost_message,
                _finished: finished,
            })),
            done: Mutex::new(done),
        }
    }

    /// Starts the thread that writes.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    fn start(&self) -> io::Result<()> {
        if let Some(work) = lock(&self.work).take() {
            let thread = thread::Builder::new().name("log".to_owned());
            thread.spawn(move || work.run())?;
        }
        Ok(())
    }

    /// Queues `line`, or counts it as lost if the queue is full.
    fn queue(&self, line: String) {
        let Some(lines) = &self.lines else { return };
        if let Err(TrySendError::Full(_)) = lines.try_send(line) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl WriterTask {
    /// Writes lines until the queue closes, and before each the number of lines lost since the last one. Tests must not
    /// fail because of the log: an error of the sink is reported once on standard error.
    fn run(mut self) {
        let mut failed = false;
        let lines = self.lines.iter().map(Some).chain([None]);
        for line in lines
            .flat_map(|line| [lost(&self.lost, self.lost_message), line])
            .flatten()
        {
            let written = self.sink.write_all(format!("{line}\n").as_bytes());
            if let Err(error) = written.and_then(|()| self.sink.flush())
                && !failed
            {
                failed = true;
                let name = printable(&self.name);
                let _ = writeln!(
                    io::stderr(),
                    "{} farwire: the log on {name} cannot be written: {error}",
                    now()
                );
            }
        }
    }
}

fn lost(count: &AtomicU64, say: fn(u64) -> String) -> Option<String> {
    match count.swap(0, Ordering::Relaxed) {
        0 => None,
        lost => Some(say(lost)),
    }
}

fn lost_lines(lost: u64) -> String {
    let now = now();
    format!(
        "{now} farwire: {lost} lines of this log are missing here, because nobody read the log in time"
    )
}

fn lost_entries(lost: u64) -> String {
    format!("{{\"lost_lines\":{lost}}}")
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop((self.lines.take(), lock(&self.work).take()));
        let done = lock(&self.done);
        // The wait is bounded, because a reader that has stopped reading must not keep the program from ending.
        let _ = done.recv_timeout(LAST_LINES);
    }
}

impl fmt::Debug for WriterTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriterTask")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_start_and_end_and_the_name_of_the_client_without_control_characters() {
        let entry = TestEntry {
            started_at: Some("2026-11-26T10:00:00.000Z".to_owned()),
            ended_at: "2026-11-26T10:00:12.084Z".to_owned(),
            test: "transfer".to_owned(),
            peer: "192.0.2.1:40000".parse().unwrap(),
            peer_name: Some("lestrade3.example".to_owned()),
            duration_s: 12.083_674,
            figures: Vec::new(),
            facts: [].into(),
            failure: None,
        };
        assert_eq!(
            line(&entry),
            "2026-11-26T10:00:12.084Z, 192.0.2.1:40000 (lestrade3.example), transfer, 12.084 s from 10:00:00.000"
        );
        let hostile = TestEntry {
            peer_name: Some("a\u{1b}[2J\n".repeat(40)),
            ..entry
        };
        let line = line(&hostile);
        assert!(!line.contains(char::is_control), "{line}");
        assert_eq!(line.chars().count(), 160);
    }

    #[test]
    fn a_test_that_ended_some_time_ago_began_before_that() {
        let now = Timestamp::now();
        let ended = before(now, Duration::from_secs(30));
        let began = before(ended, Duration::from_millis(1500));
        assert_eq!(now.duration_since(began).as_millis(), 31_500);
    }
}
