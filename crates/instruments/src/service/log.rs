//! The far end's log: one line a test for people, and one JSON object a line for programs.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use record::printable::{printable, printable_json};
use record::{Figure, Measurement, now};

use crate::output::is_stdout;

/// Lines that wait to be written; more are lost.
const MOST_LINES: usize = 1024;
/// How long the last lines may take to be written when the far end stops.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Where tests are logged; nowhere by default.
///
/// Who logs never waits: each place has a writer of its own, and what it cannot take in time is lost and counted.
#[derive(Debug, Default)]
pub struct Log {
    people: Option<Writer>,
    programs: Option<Writer>,
    /// What no test is to be blamed for.
    notes: Option<Writer>,
}

/// Lines on their way to one place.
#[derive(Debug)]
struct Writer {
    lines: Option<SyncSender<String>>,
    lost: Arc<AtomicU64>,
    /// Ends without a word when the last line is written.
    done: Mutex<Receiver<()>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    ended_at: String,
    test: &'a str,
    peer: SocketAddr,
    duration_s: f64,
    figures: &'a [Figure],
    facts: &'a BTreeMap<String, String>,
    failure: Option<&'a str>,
}

impl Log {
    /// Lines to standard output, and JSON to `json` if there is one; lines go to standard error when that is `-`.
    ///
    /// # Errors
    /// The file cannot be opened for appending, or there is no thread to be had.
    pub fn open(json: Option<&Path>) -> Result<Self> {
        let notes = Writer::start("standard error", io::stderr(), lost_lines)?;
        let log = match json {
            None => Self {
                people: Some(Writer::start("standard output", io::stdout(), lost_lines)?),
                programs: None,
                notes: Some(notes),
            },
            Some(file) if is_stdout(file) => Self {
                people: Some(Writer::start("standard error", io::stderr(), lost_lines)?),
                programs: Some(Writer::start(
                    "standard output",
                    io::stdout(),
                    lost_entries,
                )?),
                notes: Some(notes),
            },
            Some(file) => {
                let opened = File::options().append(true).create(true).open(file);
                let opened = opened.with_context(|| format!("{}: cannot write", file.display()))?;
                Self {
                    people: Some(Writer::start("standard output", io::stdout(), lost_lines)?),
                    programs: Some(Writer::start(
                        &file.display().to_string(),
                        opened,
                        lost_entries,
                    )?),
                    notes: Some(notes),
                }
            }
        };
        Ok(log)
    }

    /// Logs one test that ended now, without its samples: a line has a bound.
    pub(crate) fn test(
        &self,
        test: &str,
        peer: SocketAddr,
        lasted: Duration,
        measurement: &Measurement,
    ) {
        let entry = Entry {
            ended_at: now(),
            test,
            peer,
            duration_s: lasted.as_secs_f64(),
            figures: &measurement.figures,
            facts: &measurement.facts,
            failure: measurement.failure.as_deref(),
        };
        if let Some(people) = &self.people {
            people.say(line(&entry));
        }
        if let Some(programs) = &self.programs
            && let Ok(json) = serde_json::to_string(&entry)
        {
            programs.say(printable_json(&json).into_owned());
        }
    }

    /// Says to the operator what no test is to be blamed for.
    pub(crate) fn note(&self, text: &str) {
        if let Some(notes) = &self.notes {
            notes.say(format!("farwire: {}", printable(text)));
        }
    }
}

fn line(entry: &Entry<'_>) -> String {
    let figures = entry.figures.iter();
    let mut words = vec![
        entry.ended_at.clone(),
        entry.peer.to_string(),
        entry.test.to_owned(),
        format!("{:.3} s", entry.duration_s),
    ];
    words.extend(
        figures
            .filter(|figure| figure.stream.is_none())
            .map(record::figure_in_words),
    );
    words.extend(entry.failure.iter().map(|cause| format!("FAILED: {cause}")));
    printable(&words.join(", ")).into_owned()
}

impl Writer {
    /// Writes to `sink`, which users know as `name`, from a thread of its own.
    ///
    /// # Errors
    /// There is no thread to be had.
    fn start(
        name: &str,
        sink: impl Write + Send + 'static,
        say_lost: fn(u64) -> String,
    ) -> io::Result<Self> {
        let (lines, incoming) = sync_channel(MOST_LINES);
        let (finished, done) = sync_channel(0);
        let lost = Arc::new(AtomicU64::new(0));
        let (name, unwritten) = (name.to_owned(), Arc::clone(&lost));
        thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || {
                write_all(&incoming, sink, &name, || {
                    match unwritten.swap(0, Ordering::Relaxed) {
                        0 => None,
                        lost => Some(say_lost(lost)),
                    }
                });
                drop(finished);
            })?;
        Ok(Self {
            lines: Some(lines),
            lost,
            done: Mutex::new(done),
        })
    }

    /// Has `line` written soon, or counts it as lost.
    fn say(&self, line: String) {
        let Some(lines) = &self.lines else { return };
        if let Err(TrySendError::Full(_)) = lines.try_send(line) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Writes lines until there will be no more, and between them what `lost` has to say. A log that cannot be written must not stop
/// the tests: that it cannot is said once.
fn write_all(
    lines: &Receiver<String>,
    mut sink: impl Write,
    name: &str,
    lost: impl Fn() -> Option<String>,
) {
    let mut failed = false;
    let lines = lines.iter().map(Some).chain([None]);
    for line in lines.flat_map(|line| [lost(), line]).flatten() {
        let written = sink.write_all(format!("{line}\n").as_bytes());
        if let Err(error) = written.and_then(|()| sink.flush())
            && !failed
        {
            failed = true;
            let name = printable(name);
            let _ = writeln!(
                io::stderr(),
                "farwire: the log on {name} cannot be written: {error}"
            );
        }
    }
}

fn lost_lines(lost: u64) -> String {
    format!("farwire: {lost} lines of this log were lost here: they were not read in time")
}

fn lost_entries(lost: u64) -> String {
    format!("{{\"lost_lines\":{lost}}}")
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.lines.take());
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        // The writer is done, or does not get done: nobody's end waits for who does not read.
        let _ = done.recv_timeout(LAST_LINES);
    }
}
