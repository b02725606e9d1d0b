//! The far end's log: one line a test for people, and one JSON object a line for programs.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use record::{Figure, Measurement, now};

use crate::output::is_stdout;

/// Where tests are logged; nowhere by default.
#[derive(Debug, Default)]
pub struct Log {
    people: Option<Mutex<Box<dyn Sink>>>,
    programs: Option<Mutex<Box<dyn Sink>>>,
}

trait Sink: Write + Send + Debug {}
impl<W: Write + Send + Debug> Sink for W {}

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
    /// The file cannot be opened for appending.
    pub fn open(json: Option<&Path>) -> Result<Self> {
        let (people, programs): (Box<dyn Sink>, Option<Box<dyn Sink>>) = match json {
            None => (Box::new(io::stdout()), None),
            Some(file) if is_stdout(file) => (Box::new(io::stderr()), Some(Box::new(io::stdout()))),
            Some(file) => {
                let opened = File::options().append(true).create(true).open(file);
                let opened = opened.with_context(|| format!("{}: cannot write", file.display()))?;
                (Box::new(io::stdout()), Some(Box::new(opened)))
            }
        };
        Ok(Self {
            people: Some(Mutex::new(people)),
            programs: programs.map(Mutex::new),
        })
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
            say(people, &line(&entry));
        }
        if let Some(programs) = &self.programs
            && let Ok(json) = serde_json::to_string(&entry)
        {
            say(programs, &json);
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
    words.join(", ")
}

/// A log that cannot be written must not stop the tests.
fn say(sink: &Mutex<Box<dyn Sink>>, line: &str) {
    let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = sink.write_all(format!("{line}\n").as_bytes());
}
