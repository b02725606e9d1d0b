//! Files and requests from strangers, each kind as one function that fuzzers call: whatever they say, they are refused or taken without a panic.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::str;

use conditions::{LinkSpec, warnings};
use instruments::measure::{read_plan, record_plan};
use model::{Bytes, Link, LinkConfig, Nanos, Outcome, Packet, PacketId, Side};
use netio::FiveTuple;
use record::Record;
use tempfile::TempDir;

use crate::cli::args::experiment_run::RestOfRecord;
use crate::cli::args::links_file;
use crate::cli::merge;
use crate::experiment::{Plan, runner, scenario};
use crate::forward::capture::Filter;
use crate::toml_file::SourceFile;
use crate::{notes, web};

/// Packets that pass a link.
const PACKETS: u64 = 20;

/// Records that are merged.
const MOST_RECORDS: usize = 3;

/// A scenario, as a whole and shortened: its plan can be kept, and its links carry packets.
pub fn scenarios(bytes: &[u8]) {
    let Some(source) = source(bytes) else {
        return;
    };
    for quick in [false, true] {
        let Ok(plan) = scenario::parse(source, quick) else {
            continue;
        };
        let recorded = record_plan(&plan);
        let kept = serde_json::to_string(&recorded).expect("a plan is JSON");
        let read: record::plan::Plan =
            serde_json::from_str(&kept).expect("what was kept is a plan");
        assert_eq!(read.cases.len(), plan.cases.len());
        assert!(read_plan(&read).is_ok());
        for case in &plan.cases {
            let _ = runner::estimate(case);
            for (_, link) in case.links(plan.seed).expect("a case was checked") {
                let _ = warnings::of_link(&link.config);
                pass(&link.config);
            }
        }
    }
}

/// A link file, and a file of several links: its conditions can be said in words, and their links carry packets.
pub fn links(bytes: &[u8]) {
    let Some(source) = source(bytes) else {
        return;
    };
    if let Ok(spec) = source.read_checked(LinkSpec::check) {
        carry(&spec);
    }
    for between in links_file::read_source(source).into_iter().flatten() {
        carry(&between.link);
    }
}

/// Says conditions in words and has their link carry packets.
fn carry(spec: &LinkSpec) {
    let _ = report::link(spec);
    let _ = spec.as_netem();
    let link = spec.to_link("link").expect("conditions were checked");
    let _ = warnings::of_link(&link.config);
    pass(&link.config);
}

/// The filter of a capture in the first line, and behind it a frame: the filter keeps the frame if each of its conditions alone does.
pub fn filters(bytes: &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    let (text, frame) = bytes.split_at(end.unwrap_or(bytes.len()));
    let Ok(text) = str::from_utf8(text) else {
        return;
    };
    let Ok(filter) = text.parse::<Filter>().map_err(|error| error.to_string()) else {
        return;
    };
    let again = filter.to_string().parse::<Filter>();
    assert_eq!(
        again.as_ref(),
        Ok(&filter),
        "a filter is what it is shown as"
    );
    let flow = frame.get(1..).and_then(FiveTuple::of);
    let words: Vec<&str> = text.split_whitespace().collect();
    let conditions = words.split(|word| ["and", "&&"].contains(word));
    let keeps = |words: &[&str]| {
        let condition: Filter = words.join(" ").parse().expect("it is part of a filter");
        condition.matches(flow.as_ref())
    };
    assert_eq!(
        filter.matches(flow.as_ref()),
        conditions.map(keeps).all(|keeps| keeps)
    );
}

/// A request to the API of a link that runs, as text: its first line is the method and the path, a header a line follows, and behind an
/// empty line the body. It is answered, and not with an error of the server.
pub fn bodies(bytes: &[u8]) {
    web::fuzzing::request(bytes);
}

/// Keeps notes and the log away from standard error.
pub fn keep_quiet() {
    notes::keep_quiet();
}

/// Records, as files have them, with a byte of 0 between two. Each is read and reported, and looked at as `run --resume DIR --check` does.
/// Then all are merged, the only one with a copy of itself; the result does not depend on their order.
pub fn records(bytes: &[u8]) {
    let folder = folder();
    let mut directories = Vec::new();
    for record in bytes.split(|byte| *byte == 0).take(MOST_RECORDS) {
        report::fuzzing::records(record);
        let directory = keep(&folder, directories.len(), record);
        let no_tools = |_: &Plan| Ok(BTreeMap::new());
        let rest = RestOfRecord::in_directory(&directory, &[], true, no_tools);
        assert!(rest.is_err() || Record::read(&directory).is_ok());
        directories.push(directory);
    }
    if let [_] = directories[..] {
        directories.push(keep(&folder, 1, bytes));
    }
    let joined = folder.path().join("joined");
    let merged = merged(&directories, &joined);
    directories.reverse();
    assert!(
        merged == self::merged(&directories, &joined),
        "the order matters"
    );
    if merged.is_some() {
        assert!(Record::read(&joined).is_ok(), "a merged record is one");
    }
}

/// Puts a record into a directory of this number.
fn keep(folder: &TempDir, number: usize, record: &[u8]) -> PathBuf {
    let directory = folder.path().join(number.to_string());
    let made = fs::create_dir(&directory);
    let kept = made.and_then(|()| fs::write(directory.join("record.jsonl"), record));
    kept.expect("there is room for a small file");
    directory
}

/// The bytes of the merged record, where the records can be merged, with what is said of it.
fn merged(directories: &[PathBuf], joined: &Path) -> Option<(Vec<u8>, String)> {
    let (said, _) = merge::join(directories, joined, true).ok()?;
    let bytes = fs::read(joined.join("record.jsonl"));
    Some((bytes.expect("it was written"), said.to_string()))
}

/// A folder in memory, where writing waits for no disk.
fn folder() -> TempDir {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    folder.expect("a folder can be made")
}

fn source(bytes: &[u8]) -> Option<SourceFile<'_>> {
    Some(SourceFile {
        // Of no folder, so that it names no file.
        file: "/nowhere/x.toml",
        text: str::from_utf8(bytes).ok()?,
        also: &[],
    })
}

/// Has packets cross a link, some of them at the same time: none leaves before it came.
fn pass(config: &LinkConfig) {
    let mut link = Link::new(config).expect("conditions were checked");
    let due = |outcome: Outcome| match outcome {
        Outcome::Deliver { id, due, .. } => assert!(due >= at(id.0), "it left before it came"),
        Outcome::Copied { .. } | Outcome::Drop { .. } => {}
    };
    for id in 0..PACKETS {
        let side = [Side::A, Side::B][usize::from(id % 3 == 0)];
        link.offer(
            at(id),
            side,
            Packet::new(PacketId(id), Bytes(60 + 100 * id)),
        );
        while let Some(outcome) = link.poll(at(id)) {
            due(outcome);
        }
    }
    // A schedule may hold packets forever, so this does not wait for all of them.
    while let Some(outcome) = link.poll(at(PACKETS)) {
        due(outcome);
    }
}

/// The arrival of a packet.
fn at(id: u64) -> Nanos {
    Nanos::from_millis(id / 4 * 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCENARIO: &str = include_str!("../scenarios/burst-loss.toml");
    const LINK: &str = "delay = '20ms'\njitter = '2ms'\nloss = '1%,burst=3'\n[up]\nrate = '10mbit'\nqueue = '50ms'\naqm = 'codel'\n";
    const LINKS: &str = "[[links]]\na = 'x0'\nb = 'y0'\nlink = { delay = '20ms', loss = '1%' }\n";
    const FILTER: &str = "tcp port 443 and src net 10.77.0.0/16 && host fd77::2\n";
    const BODY: &str = "PATCH /v1/links/link?for=60s\nContent-Type: application/json\n\n{\"delay\": \"5ms\", \"up\": {\"loss\": \"1%\"}}";
    const RECORD: &str = include_str!("../tests/fixtures/records/small.jsonl");
    const BYTES: &[u8] = b"0159-e.'\"}],:n %=[\n";

    /// A text that is right, how many times it is changed, and what reads it.
    type Case = (&'static str, usize, fn(&[u8]));

    const CASES: [Case; 6] = [
        (SCENARIO, 100, scenarios),
        (LINK, 100, links),
        (LINKS, 100, links),
        (FILTER, 300, filters),
        (BODY, 60, bodies),
        (RECORD, 20, records),
    ];

    #[test]
    fn nothing_nearly_right_makes_a_reader_panic() {
        let mut random = fastrand::Rng::with_seed(1);
        for (text, changes, read) in CASES {
            read(text.as_bytes());
            for _ in 0..changes {
                let mut bytes = text.as_bytes().to_vec();
                for _ in 0..random.usize(1..4) {
                    let at = random.usize(..bytes.len());
                    bytes[at] = BYTES[random.usize(..BYTES.len())];
                }
                read(&bytes);
            }
        }
    }
}
