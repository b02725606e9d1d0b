//! The far end's log: a line for each test and refusal for people, which has its time and fits a terminal, and a JSON object a line for
//! programs, which has everything.

use std::collections::BTreeMap;
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
use serde::Serialize;

use record::printable::{log_line, printable, printable_json};
use record::{Figure, Measurement, now};

use crate::lock;
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
    /// Until it has a thread.
    work: Mutex<Option<Work>>,
    /// Ends without a word when the last line is written.
    done: Mutex<Receiver<()>>,
}

/// What a writer's thread does.
struct Work {
    lines: Receiver<String>,
    sink: Box<dyn Write + Send>,
    /// The sink's, as users know it.
    name: String,
    lost: Arc<AtomicU64>,
    say_lost: fn(u64) -> String,
    _finished: SyncSender<()>,
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

/// Somebody who was refused.
#[derive(Debug)]
pub(super) struct Refused<'a> {
    pub(super) protocol: &'static str,
    /// The last of them.
    pub(super) peer: SocketAddr,
    /// The cause in one word.
    pub(super) cause: &'static str,
    /// The reason of the last refusal, in words.
    pub(super) why: &'a str,
    /// The number of refusals for this cause since the last entry.
    pub(super) count: u64,
}

/// The same as a line of JSON.
#[derive(Serialize)]
struct RefusalEntry<'a> {
    refused_at: String,
    protocol: &'static str,
    peer: SocketAddr,
    cause: &'static str,
    why: &'a str,
    count: u64,
}

impl Log {
    /// Lines to standard output, and JSON to `json` if there is one; lines go to standard error when that is `-`. Nothing is
    /// written before the far end serves.
    ///
    /// # Errors
    /// The file cannot be opened for appending.
    pub fn open(json: Option<&Path>) -> Result<Self> {
        let stdout = |lost| Writer::new("standard output", io::stdout(), lost);
        let stderr = || Writer::new("standard error", io::stderr(), lost_lines);
        let (people, programs) = match json {
            None => (stdout(lost_lines), None),
            Some(file) if is_stdout(file) => (stderr(), Some(stdout(lost_entries))),
            Some(file) => {
                let name = file.display().to_string();
                let opened = File::options().append(true).create(true).open(file);
                let opened = opened.with_context(|| format!("{name}: cannot write"))?;
                let programs = Writer::new(&name, opened, lost_entries);
                (stdout(lost_lines), Some(programs))
            }
        };
        Ok(Self {
            people: Some(people),
            programs,
            notes: Some(stderr()),
        })
    }

    /// Writes from now on, from threads of its own.
    ///
    /// # Errors
    /// There are no threads to be had.
    pub(crate) fn start(&self) -> io::Result<()> {
        let mut writers = [&self.people, &self.programs, &self.notes]
            .into_iter()
            .flatten();
        writers.try_for_each(Writer::start)
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

    /// Logs one refusal, or several of one cause.
    pub(super) fn refusal(&self, refused: &Refused<'_>) {
        let Refused {
            protocol,
            peer,
            cause,
            why,
            count,
        } = *refused;
        let refused_at = now();
        if let Some(people) = &self.people {
            let times = match count {
                1 => String::new(),
                count => format!(" ({count} refusals, the last of {peer})"),
            };
            let words = format!("{refused_at}, {peer}, {protocol}, REFUSED: {why}{times}");
            people.say(log_line(&words));
        }
        let entry = RefusalEntry {
            refused_at,
            protocol,
            peer,
            cause,
            why,
            count,
        };
        if let Some(programs) = &self.programs
            && let Ok(json) = serde_json::to_string(&entry)
        {
            programs.say(printable_json(&json).into_owned());
        }
    }

    /// Says to the operator what no test is to be blamed for.
    pub(crate) fn note(&self, text: &str) {
        if let Some(notes) = &self.notes {
            notes.say(log_line(&format!("{} farwire: {text}", now())));
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
    words.extend(entry.failure.iter().map(|cause| format!("FAILED: {cause}")));
    words.extend(
        figures
            .filter(|figure| figure.stream.is_none())
            .map(record::figure_in_words),
    );
    log_line(&words.join(", "))
}

impl Writer {
    /// To `sink`, which users know as `name`; lines wait until it is started.
    fn new(name: &str, sink: impl Write + Send + 'static, say_lost: fn(u64) -> String) -> Self {
        let (lines, incoming) = sync_channel(MOST_LINES);
        let (finished, done) = sync_channel(0);
        let lost = Arc::new(AtomicU64::new(0));
        Self {
            lines: Some(lines),
            lost: Arc::clone(&lost),
            work: Mutex::new(Some(Work {
                lines: incoming,
                sink: Box::new(sink),
                name: name.to_owned(),
                lost,
                say_lost,
                _finished: finished,
            })),
            done: Mutex::new(done),
        }
    }

    /// Writes from a thread of its own.
    ///
    /// # Errors
    /// There is no thread to be had.
    fn start(&self) -> io::Result<()> {
        if let Some(work) = lock(&self.work).take() {
            let thread = thread::Builder::new().name("log".to_owned());
            thread.spawn(move || work.run())?;
        }
        Ok(())
    }

    /// Has `line` written soon, or counts it as lost.
    fn say(&self, line: String) {
        let Some(lines) = &self.lines else { return };
        if let Err(TrySendError::Full(_)) = lines.try_send(line) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Work {
    /// Writes lines until there will be no more, and between them how many were lost. A log that cannot be written must not stop
    /// the tests: that it cannot is said once.
    fn run(mut self) {
        let mut failed = false;
        let lines = self.lines.iter().map(Some).chain([None]);
        for line in lines
            .flat_map(|line| [lost(&self.lost, self.say_lost), line])
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
        "{now} farwire: {lost} lines of this log are missing here, because they were not read in time"
    )
}

fn lost_entries(lost: u64) -> String {
    format!("{{\"lost_lines\":{lost}}}")
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop((self.lines.take(), lock(&self.work).take()));
        let done = lock(&self.done);
        // The writer is done, or does not get done: nobody's end waits for who does not read.
        let _ = done.recv_timeout(LAST_LINES);
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
