//! The list of `farwire view`: after its start, and again when no record has changed.

use std::fs;
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use netio::netns::NetNs;

use crate::path::page::get;
use crate::processes::{FARWIRE, Running};
use crate::report::rows::{Found, Quantity};
use crate::results::Outcome;
use crate::rounds::rounds;

const ROUNDS: usize = 5;
const RECORDS: usize = 1_000;
/// The content of each record.
const RECORD: &str = include_str!("../../../tests/fixtures/records/small.jsonl");

pub(crate) fn run() -> Result<Outcome> {
    let count = rounds(ROUNDS)?;
    let mut outcome = Outcome::new(
        count,
        &format!(
            "the list of `farwire view` for a folder of {RECORDS} records of {} bytes, from the request until the whole answer has been read: the first one and the second one",
            RECORD.len()
        ),
    );
    let folder = tempfile::tempdir()?;
    for number in 0..RECORDS {
        let directory = folder.path().join(number.to_string());
        fs::create_dir(&directory)?;
        fs::write(directory.join("record.jsonl"), RECORD)?;
    }
    let all = (0..count).map(|_| lists(folder.path()));
    let all = all.collect::<Result<Vec<_>>>()?;
    for (at, which) in ["first", "second"].into_iter().enumerate() {
        let found = Found {
            names: vec!["farwire".to_owned()],
            rounds: all.iter().map(|ms| vec![ms[at].into()]).collect(),
        };
        let what = format!("a list of {RECORDS} records, the {which} time");
        outcome.rows(found.alone(&Quantity::less(&what, "ms"), 0));
    }
    Ok(outcome)
}

/// Returns the times of the first and of the second list, in milliseconds.
fn lists(folder: &Path) -> Result<[f64; 2]> {
    let place = tempfile::tempdir()?;
    let socket = place.path().join("socket");
    let mut command = Command::new(FARWIRE);
    command.arg("view").arg(folder);
    command
        .arg("--listen")
        .arg(format!("unix:{}", socket.display()));
    let _view = Running::start(&NetNs::current()?, &mut command)?;
    for _ in 0..500 {
        if UnixStream::connect(&socket).is_ok() {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    let list = || -> Result<f64> {
        let begun = Instant::now();
        let mut text = String::new();
        get(&socket, "/")?.read_to_string(&mut text)?;
        let took = begun.elapsed();
        let begin: String = text.chars().take(200).collect();
        ensure!(
            text.starts_with("HTTP/1.1 200 ") && text.len() > 20 * RECORDS,
            "{begin}"
        );
        Ok(1e3 * took.as_secs_f64())
    };
    Ok([list()?, list()?])
}
