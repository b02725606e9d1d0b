//! The readers of files and requests from untrusted sources, each kind as one function that fuzzers call. A reader
//! must accept or refuse any content without a panic.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str;
use std::sync::Arc;

use conditions::filter::Filter;
use conditions::read::toml_text;
use conditions::trace::{self, SampleUnit, Samples, Trace, TraceFormat};
use conditions::{LinkSpec, TraceSpec, warnings};
use fit::{LinkFit, Origin};
use instruments::measure::{read_plan, record_plan};
use model::{Bytes, Link, LinkConfig, Nanos, Outcome, Packet, PacketId, Side};
use netio::{FrameRef, Headers, Offload};
use record::Record;
use tempfile::TempDir;

use crate::cli::args::experiment_run::RestOfRecord;
use crate::cli::args::links_file;
use crate::cli::merge;
use crate::experiment::{Plan, run_times, scenario};
use crate::forward::packet_fields;
use crate::named_files::NamedFiles;
use crate::toml_file::SourceFile;
use crate::{notes, web};

/// The number of packets that cross a link.
const PACKETS: u64 = 20;

/// The most lines of a trace that is also written, described and followed: a small model of netem-trace can have a million.
const MOST_FOLLOWED: u64 = 50_000;

/// The most lines that are interpolated for a sample.
const MOST_PARTS: u32 = 20;

/// The largest number of records that are merged.
const MOST_RECORDS: usize = 3;

/// Reads a scenario, both whole and shortened by `--quick`: its plan survives being saved and read,
/// and its links carry packets.
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
            let _ = run_times::estimate(case);
            for (_, link) in case.links(plan.seed).expect("a case was checked") {
                let _ = warnings::of_link(&link.config);
                pass(&link.config);
            }
        }
    }
}

/// Reads a link file, and the same bytes as a file of several links: the reports describe the conditions, and the links carry packets.
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

/// Describes conditions and sends packets through their link.
fn carry(spec: &LinkSpec) {
    let _ = report::link(spec);
    let _ = spec.as_netem();
    let mut spec = spec.clone();
    let resolved = spec.resolve(|_| Ok(vec![IpAddr::from([10, 77, 0, 2])]));
    resolved.expect("every name has an address");
    let link = spec.to_link("link").expect("conditions were checked");
    let _ = warnings::of_link(&link.config);
    let _ = warnings::of_rules(&link.rules);
    pass(&link.config);
}

/// Reads the filter of a capture in the first line, and applies it to the frame in the other bytes: the filter keeps the frame if each of
/// its conditions alone keeps it.
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
        "a filter differs from its text"
    );
    let frame = FrameRef {
        arrival: Nanos::ZERO,
        offload: Offload::default(),
        vlan: None,
        bytes: frame.get(1..).unwrap_or_default(),
    };
    let fields = packet_fields(frame, &Headers::of(frame));
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut conditions = words.split(|word| ["and", "&&"].contains(word));
    let keeps = |words: &[&str]| {
        let condition: Filter = words
            .join(" ")
            .parse()
            .expect("a part of a filter is a filter");
        condition.matches(&fields)
    };
    assert_eq!(filter.matches(&fields), conditions.all(keeps));
}

/// Sends a request to the API of a running link. The bytes are text: the method and the path in the first line, one header in each further
/// line, an empty line and the body. The status of the answer is below 500.
pub fn bodies(bytes: &[u8]) {
    web::fuzzing::request(bytes);
}

/// Reads a file of measurements or a capture, fits a link to it, and reads the text of that link.
pub fn fit_files(bytes: &[u8]) {
    let observed = match fit::is_capture(bytes) {
        true => fit::read_capture(bytes).ok(),
        false => str::from_utf8(bytes)
            .ok()
            .and_then(|text| fit::read(text).ok()),
    };
    let Some(observed) = observed else {
        return;
    };
    let origin = Origin::of_path("a file", "2026-11-27");
    let text = LinkFit::of(&observed).to_toml(&origin);
    // The command refuses a fit whose link is none, such as one with a delay of hours.
    let _ = toml_text::<LinkSpec>(&text);
}

/// Reads a trace of Mahimahi, as [`trace_csv`] does.
pub fn trace_mahimahi(bytes: &[u8]) {
    follow(bytes, TraceFormat::Mahimahi);
}

/// Reads a table of conditions by time: it has the same content after it was written and read again, it is described and cut, and a link
/// that follows it carries packets.
pub fn trace_csv(bytes: &[u8]) {
    follow(bytes, TraceFormat::Csv);
}

/// Reads a trace file of TheaterQ, as [`trace_csv`] does.
pub fn trace_theaterq(bytes: &[u8]) {
    follow(bytes, TraceFormat::TheaterQ);
}

/// Reads a model of netem-trace, as [`trace_csv`] does.
pub fn trace_netem(bytes: &[u8]) {
    follow(bytes, TraceFormat::NetemTrace);
}

fn follow(bytes: &[u8], format: TraceFormat) {
    // A format may be detected, too, which must not fail in another way.
    let _ = trace::read(bytes, None);
    if let Ok((read, _)) = trace::read(bytes, Some(format)) {
        follow_trace(read);
    }
}

/// Reads LeoReplayer's pair of files, with a byte of 0 between the times at which packets are served and the delays: a link that follows
/// both carries packets.
pub fn trace_pair(bytes: &[u8]) {
    let mut files = bytes.splitn(2, |byte| *byte == 0);
    let [times, delays] = [files.next(), files.next()].map(Option::unwrap_or_default);
    if let Ok(read) = trace::read_delays(delays) {
        follow_trace(read);
    }
    let mut spec = TraceSpec::named("x");
    spec.format = Some(TraceFormat::Mahimahi);
    let read = spec.read(times).and_then(|()| spec.read_delays(delays));
    if read.is_ok() {
        carry_by(spec);
    }
}

/// Reads the three files of CellReplay, with bytes of 0 between the times of the full load, the light load, and its offsets by size: a
/// link that follows them carries packets.
pub fn trace_cellreplay(bytes: &[u8]) {
    let mut files = bytes.splitn(3, |byte| *byte == 0);
    let [full, light, offsets] =
        [files.next(), files.next(), files.next()].map(Option::unwrap_or_default);
    let offsets = trace::read_offsets(offsets).unwrap_or_default();
    let mut spec = TraceSpec::named("x");
    spec.format = Some(TraceFormat::Mahimahi);
    spec.light = Some("y".to_owned());
    let read = spec.read(full);
    let read = read.and_then(|()| spec.read_light(light, offsets));
    if read.is_ok() {
        carry_by(spec);
    }
}

/// Reads samples as a trace. The first line has the column, the unit, the time between two samples, and the number of lines for each.
pub fn trace_samples(bytes: &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    let (head, table) = bytes.split_at(end.unwrap_or(bytes.len()));
    let words: Vec<&str> = str::from_utf8(head)
        .unwrap_or_default()
        .split(' ')
        .collect();
    let [column, unit, every, parts] = words[..] else {
        return;
    };
    let (unit, every) = (unit.parse::<SampleUnit>(), every.parse::<Nanos>());
    let (Ok(unit), Ok(every), Ok(parts)) = (unit, every, parts.parse::<u32>()) else {
        return;
    };
    let samples = Samples {
        column: column.to_owned(),
        unit,
        every,
        parts: parts.clamp(1, MOST_PARTS),
    };
    if let Ok(read) = samples.read(table) {
        follow_trace(read);
    }
}

/// Writes a trace and reads it again, describes it, cuts it, and follows it.
fn follow_trace(read: Trace) {
    if read.lines() > MOST_FOLLOWED {
        return;
    }
    let mut text = Vec::new();
    trace::write(&read, read.native_format(), &mut text).expect("every trace has a native form");
    let (again, _) = trace::read(&text[..], Some(read.native_format())).expect("it was written");
    assert!(again.lines() == read.lines() && again.length() == read.length());
    assert!(
        again == read,
        "a trace differs after it was written and read"
    );
    let _ = read.describe();
    let _ = read.part(Nanos::ZERO, Nanos(read.length().0 / 2));
    let mut spec = TraceSpec::named("x");
    spec.set_trace(Arc::new(read));
    carry_by(spec);
}

/// Sends packets through a link that follows a trace, if it may.
fn carry_by(spec: TraceSpec) {
    let mut link = LinkSpec::default();
    link.both.at_first.set(spec);
    if link.check().is_ok() {
        carry(&link);
    }
}

/// Turns off notes and the log on standard error.
pub fn keep_quiet() {
    notes::keep_quiet();
}

/// Reads the contents of record files, separated by a byte of 0. Each record is reported, and checked as by `run --resume DIR --check`.
/// Then all are merged, and a single one is merged with a copy of itself. The result does not depend on the order.
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
        assert!(Record::read(&joined).is_ok(), "a merged record can be read");
    }
}

/// Writes a record to a new directory that is named by `number`.
fn keep(folder: &TempDir, number: usize, record: &[u8]) -> PathBuf {
    let directory = folder.path().join(number.to_string());
    let made = fs::create_dir(&directory);
    let kept = made.and_then(|()| fs::write(directory.join("record.jsonl"), record));
    kept.expect("there is room for a small file");
    directory
}

/// Returns the bytes of the merged record and its description; `None` if the records cannot be merged.
fn merged(directories: &[PathBuf], joined: &Path) -> Option<(Vec<u8>, String)> {
    let (described, _) = merge::join(directories, joined, true).ok()?;
    let bytes = fs::read(joined.join("record.jsonl"));
    Some((bytes.expect("it was written"), described.to_string()))
}

/// Creates a folder in memory, so that writing does not wait for a disk.
fn folder() -> TempDir {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    folder.expect("a folder can be made")
}

fn source(bytes: &[u8]) -> Option<SourceFile<'_>> {
    Some(SourceFile {
        // This folder does not exist, so a path in the file leads to no file.
        file: "/nowhere/x.toml",
        text: str::from_utf8(bytes).ok()?,
        also: NamedFiles::OWN,
    })
}

/// Sends packets through a link, some simultaneously and some later, and checks that none leaves
/// before it arrived.
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

/// Returns the time at which a packet arrives.
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
    const PINGS: &str = include_str!("../fuzz/corpus/fit_files/ping");
    const TRACES: [&str; 4] = [
        include_str!("../fuzz/corpus/trace_mahimahi/driving"),
        include_str!("../fuzz/corpus/trace_csv/drive"),
        include_str!("../fuzz/corpus/trace_theaterq/extended"),
        include_str!("../fuzz/corpus/trace_netem/pattern"),
    ];
    const PAIR: &str = include_str!("../fuzz/corpus/trace_pair/leo");
    const LOADS: &str = include_str!("../fuzz/corpus/trace_cellreplay/driving");
    const SAMPLES: &str = include_str!("../fuzz/corpus/trace_samples/throughput");
    const BYTES: &[u8] = b"0159-e.'\"}],:n %=[\n";

    /// A correct text, the number of its changed copies, and the function that reads them.
    type Case = (&'static str, usize, fn(&[u8]));

    const CASES: [Case; 14] = [
        (SCENARIO, 100, scenarios),
        (LINK, 100, links),
        (LINKS, 100, links),
        (FILTER, 300, filters),
        (BODY, 60, bodies),
        (RECORD, 20, records),
        (PINGS, 100, fit_files),
        (TRACES[0], 100, trace_mahimahi),
        (TRACES[1], 100, trace_csv),
        (TRACES[2], 100, trace_theaterq),
        (TRACES[3], 100, trace_netem),
        (PAIR, 100, trace_pair),
        (LOADS, 100, trace_cellreplay),
        (SAMPLES, 100, trace_samples),
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
