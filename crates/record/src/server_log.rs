//! The log that a far end writes as JSON: a line for each test, for refusals, and for lines that were lost.
//!
//! A log may be long and may have been cut anywhere, so that it is read line by line, and a line that cannot be read is
//! counted instead of refused.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{Figure, regular_file};

/// Greatest length of a line in bytes. A test of 128 streams takes about 300 KB.
const LONGEST_ENTRY: u64 = 4 << 20;

/// An entry of the log, which is a line of its file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum LogEntry {
    /// A test that ended.
    Test(TestEntry),
    /// Refusals.
    Refusal(RefusalEntry),
    /// Lines that are missing at this place.
    Lost(LostEntry),
}

/// A test that ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TestEntry {
    /// The start of the test (RFC 3339, UTC); absent in logs of earlier versions of farwire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// The end of the test (RFC 3339, UTC).
    pub ended_at: String,
    /// The name of the test, such as `transfer`.
    pub test: String,
    /// The address of the client.
    pub peer: SocketAddr,
    /// The name of the client, if it was asked for and was known when the test ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_name: Option<String>,
    /// The duration in seconds.
    pub duration_s: f64,
    /// The figures of the far end.
    pub figures: Vec<Figure>,
    /// Facts about the figures.
    pub facts: BTreeMap<String, String>,
    /// The reason why the test failed.
    pub failure: Option<String>,
}

/// A refusal, or several refusals of one protocol for the same cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusalEntry {
    /// The time of the entry (RFC 3339, UTC).
    pub refused_at: String,
    /// The protocol.
    pub protocol: String,
    /// The client of the last refusal.
    pub peer: SocketAddr,
    /// The cause in one word.
    pub cause: String,
    /// The reason of the last refusal, as a sentence.
    pub why: String,
    /// The number of refusals for this cause since the last entry.
    pub count: u64,
}

/// Lines of the log that nobody read in time, and that are therefore missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostEntry {
    /// The number of lines.
    pub lost_lines: u64,
}

/// A reader of a log.
#[derive(Debug)]
pub struct ServerLog<R> {
    file: BufReader<R>,
    line: Vec<u8>,
}

/// A line of a log.
#[derive(Clone, Debug, PartialEq)]
pub enum LogLine {
    /// An entry.
    Entry(Box<LogEntry>),
    /// A line that is not an entry, or was cut off.
    Unreadable,
}

/// Returns whether the file at `path` is a regular one that begins with an entry of a far end's log.
pub fn is_server_log(path: &Path) -> bool {
    let first =
        || -> io::Result<Option<LogLine>> { ServerLog::of(regular_file::open(path)?).next_line() };
    matches!(first(), Ok(Some(LogLine::Entry(_))))
}

impl<R: Read> ServerLog<R> {
    /// Reads the log in `file` from its start.
    pub fn of(file: R) -> Self {
        Self {
            file: BufReader::new(file),
            line: Vec::new(),
        }
    }

    /// Returns the next line, or `None` at the end.
    ///
    /// # Errors
    /// Those of the system.
    pub fn next_line(&mut self) -> io::Result<Option<LogLine>> {
        self.line.clear();
        let mut line = (&mut self.file).take(LONGEST_ENTRY);
        if line.read_until(b'\n', &mut self.line)? == 0 {
            return Ok(None);
        }
        if !self.line.ends_with(b"\n") {
            // The line is too long, or the last one of the file.
            self.file.skip_until(b'\n')?;
        }
        // serde also accepts a list for a structure, but no entry is a list.
        let is_object = self.line.trim_ascii_start().starts_with(b"{");
        let entry = is_object.then(|| serde_json::from_slice(&self.line).ok());
        Ok(Some(entry.flatten().map_or(LogLine::Unreadable, |entry| {
            LogLine::Entry(Box::new(entry))
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Direction, Metric, Statistic};

    fn test_entry() -> TestEntry {
        let bytes = Figure::new(Metric::ReceivedBytes, Statistic::Total, 1e6);
        TestEntry {
            started_at: Some("2026-11-26T10:00:00.000Z".to_owned()),
            ended_at: "2026-11-26T10:00:01.500Z".to_owned(),
            test: "transfer".to_owned(),
            peer: "[2001:db8::1]:40000".parse().unwrap(),
            peer_name: Some("lestrade3.example".to_owned()),
            duration_s: 1.5,
            figures: vec![bytes.toward(Direction::Up).size(8192)],
            facts: [].into(),
            failure: None,
        }
    }

    fn lines(text: &[u8]) -> Vec<LogLine> {
        let mut log = ServerLog::of(text);
        std::iter::from_fn(|| log.next_line().unwrap()).collect()
    }

    fn line(entry: LogEntry) -> Vec<u8> {
        let mut line = serde_json::to_vec(&entry).unwrap();
        line.push(b'\n');
        line
    }

    #[test]
    fn every_entry_reads_back() {
        let refusal = RefusalEntry {
            refused_at: "2026-11-26T10:00:02.000Z".to_owned(),
            protocol: "http".to_owned(),
            peer: "192.0.2.1:9".parse().unwrap(),
            cause: "busy".to_owned(),
            why: "busy: 1 tests are already running".to_owned(),
            count: 3,
        };
        let entries = [
            LogEntry::Test(test_entry()),
            LogEntry::Refusal(refusal),
            LogEntry::Lost(LostEntry { lost_lines: 5 }),
        ];
        let text: Vec<u8> = entries.iter().cloned().flat_map(line).collect();
        let found = lines(&text);
        let expected = entries.map(|entry| LogLine::Entry(Box::new(entry)));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_line_that_cannot_be_read_hides_no_other() {
        let whole = line(LogEntry::Test(test_entry()));
        let cut = &whole[..whole.len() / 2];
        let parts: [&[u8]; 6] = [cut, b"\n", &whole, b"[1]\n\n", &whole, cut];
        let found = lines(&parts.concat());
        let is_entry = |line: &LogLine| matches!(line, LogLine::Entry(_));
        let entries: Vec<bool> = found.iter().map(is_entry).collect();
        assert_eq!(entries, [false, true, false, false, true, false]);
    }

    #[test]
    fn an_endless_line_takes_no_memory_and_ends() {
        let whole = line(LogEntry::Test(test_entry()));
        let long = io::repeat(b' ').take(3 * LONGEST_ENTRY);
        let mut log = ServerLog::of(long.chain(&b"\n"[..]).chain(&whole[..]));
        assert_eq!(log.next_line().unwrap(), Some(LogLine::Unreadable));
        assert!(matches!(log.next_line().unwrap(), Some(LogLine::Entry(_))));
        assert_eq!(log.next_line().unwrap(), None);
        assert!(log.line.capacity() < 3 * usize::try_from(LONGEST_ENTRY).unwrap());
    }

    #[test]
    fn a_log_of_an_earlier_version_has_no_start_and_no_name() {
        let old = r#"{"ended_at":"2026-11-22T10:00:00.000Z","test":"http","peer":"192.0.2.1:9","duration_s":0.5,"figures":[],"facts":{},"failure":null}"#;
        let [LogLine::Entry(entry)] = &lines(old.as_bytes())[..] else {
            panic!("it cannot be read");
        };
        let LogEntry::Test(entry) = &**entry else {
            panic!("{entry:?}");
        };
        assert_eq!((&entry.started_at, &entry.peer_name), (&None, &None));
    }

    #[test]
    fn a_log_is_recognised_by_its_first_line() {
        let directory = tempfile::tempdir().unwrap();
        let small = include_str!("../../../tests/fixtures/records/small.jsonl");
        let entry = line(LogEntry::Lost(LostEntry { lost_lines: 1 }));
        for (text, expected) in [(&entry[..], true), (small.as_bytes(), false), (b"", false)] {
            let path = directory.path().join("file");
            std::fs::write(&path, text).unwrap();
            assert_eq!(is_server_log(&path), expected);
        }
        assert!(!is_server_log(directory.path()));
    }
}
