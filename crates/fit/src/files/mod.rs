//! Observations from files: measurements of farwire, and the output of other programs.

mod irtt;
mod packet_log;
mod ping;
mod throughput;

use jiff::Timestamp;
use record::{Measurement, Phase, Record};
use serde_json::Value;
use stats::losses::Losses;

use crate::observations::{
    LoadTraffic, LoadedSession, PathObservations, Probe, ProbeSession, UDP_HEADERS,
};
use crate::over_time::OverTime;
use crate::trains::{Train, TrainSession};

/// The least number of delays, or of rows of throughput, that describe a path.
const FEWEST: usize = 10;
/// The least MTU of IPv4 in bytes (RFC 791, section 3.2).
const LEAST_MTU: u32 = 68;
/// The longest delay in milliseconds, an hour.
const LONGEST_MS: f64 = 3.6e6;
/// The longest time in seconds, about thirty years.
const LONGEST_S: f64 = 1e9;
/// The most bytes, and the highest rate in bit/s.
const MOST_BITS: f64 = 1e15;

/// The characters of a day, as 2026-11-27.
const DAY: usize = 10;
/// The begin of the year 2000 in seconds since 1970.
const YEAR_2000_S: i64 = 946_684_800;

/// The reason why a file cannot be fitted.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FileError {
    /// The file has another form.
    #[error(
        "it is none of these: a record or a JSON measurement of farwire, observations.json of `farwire fit`, the output of \
         `ping -D`, the JSON of `irtt client -o`, a packet log in CSV, a capture (pcap, pcapng), a table of seconds and Mbit/s"
    )]
    UnknownForm,
    /// A line of ping has no time.
    #[error("line {0}: it has no time in brackets: run ping with -D")]
    NoTime(usize),
    /// The JSON is not of the form that its keys promise.
    #[error("{0}")]
    Json(String),
    /// A line of a table is wrong.
    #[error("line {line}: {cause}")]
    Line {
        /// The line, from 1.
        line: usize,
        /// The cause, with advice.
        cause: String,
    },
    /// The record has several cases.
    #[error(
        "it has several cases, which are different paths: run one of them, with `farwire run --only CASE`"
    )]
    SeveralCases,
    /// There are too few observations.
    #[error("it has {0} {1}, but at least 10 are needed")]
    TooFew(usize, &'static str),
    /// A capture is damaged, or does not show the path.
    #[error("{0}")]
    Capture(String),
    /// The sequence numbers are too far apart.
    #[error("its sequence numbers cover more than 1,000,000 packets")]
    TooMany,
    /// A number is out of range.
    #[error("it has delays above an hour, or other numbers that no network has")]
    Implausible,
}

/// Reads observations from the text of a file.
///
/// # Errors
/// The text has none of the known forms, or too few observations.
pub fn read(text: &str) -> Result<PathObservations, FileError> {
    let first = text.lines().next().unwrap_or_default();
    if text.trim_start().starts_with('{') {
        return json(text);
    }
    let observed = if text.contains("icmp_seq=") {
        PathObservations {
            measured_on: first_stamp(text).and_then(day_of),
            ..of_probes(ping::read(text)?)
        }
    } else if first.starts_with("number,direction,") {
        of_probes(packet_log::read(text)?)
    } else if first
        .split([',', ' ', '\t'])
        .filter(|cell| !cell.is_empty())
        .count()
        == 2
    {
        throughput::read(text)?
    } else {
        return Err(FileError::UnknownForm);
    };
    enough(observed)
}

/// Reads the probes of a record, and the loads beside them; the pings if it has no probes. Instruments that ran beside others
/// do not count.
///
/// # Errors
/// The record has several cases, which are different paths, or too few observations.
pub fn read_record(record: &Record) -> Result<PathObservations, FileError> {
    let [case] = record.plan().cases.as_slice() else {
        return Err(FileError::SeveralCases);
    };
    let alone = case.instruments.iter().filter(|one| one.group.is_none());
    let of_kind = |kind: &str| {
        let wanted = alone.clone().filter(|one| one.args.kind == kind);
        let names: Vec<&str> = wanted.map(|one| one.name.as_str()).collect();
        let mut observed = PathObservations {
            measured_on: measured_on(record),
            ..PathObservations::default()
        };
        for measured in record.runs.iter().flat_map(|run| &run.measurements) {
            if measured.invalid.is_none() && names.contains(&measured.instrument.as_str()) {
                add(&mut observed, &measured.measurement);
            }
        }
        enough(observed)
    };
    of_kind("probe").or_else(|_| of_kind("ping"))
}

/// Reads a JSON file, whose keys say which form it has.
fn json(text: &str) -> Result<PathObservations, FileError> {
    let wrong = |error: serde_json::Error| FileError::Json(error.to_string());
    let value: Value = serde_json::from_str(text).map_err(wrong)?;
    let has = |key| value.get(key).is_some();
    let observed = if has("round_trips") {
        let parsed: irtt::Irtt = serde_json::from_value(value).map_err(wrong)?;
        let began_ns = parsed.began_ns();
        PathObservations {
            measured_on: began_ns.and_then(|ns| day_of(ns / 1_000_000_000)),
            ..of_probes(irtt::read(parsed)?)
        }
    } else if has("samples") {
        let mut observed = PathObservations::default();
        add(
            &mut observed,
            &serde_json::from_value(value).map_err(wrong)?,
        );
        observed
    } else if has("idle") {
        serde_json::from_value(value).map_err(wrong)?
    } else {
        return Err(FileError::UnknownForm);
    };
    enough(observed)
}

/// Returns the day of a time in seconds since 1970 in UTC, as 2026-11-27; `None` before the year 2000, which has the times of
/// clocks that begin at 0, and beyond the year 9999.
pub fn day_of(seconds: i64) -> Option<String> {
    let time = Timestamp::from_second(seconds).ok()?;
    if seconds < YEAR_2000_S {
        return None;
    }
    Some(time.to_string().chars().take(DAY).collect())
}

/// Returns the day on which a record began.
fn measured_on(record: &Record) -> Option<String> {
    let began: Timestamp = record.head.started_at.parse().ok()?;
    day_of(began.as_second())
}

/// Returns the first time of the output of `ping -D`, in whole seconds since 1970.
fn first_stamp(text: &str) -> Option<i64> {
    let mut stamps = text.lines().filter_map(|line| line.strip_prefix('['));
    stamps.find_map(|line| line.split_once(['.', ']'])?.0.parse().ok())
}

pub(crate) fn of_probes(idle: ProbeSession) -> PathObservations {
    PathObservations {
        idle,
        ..PathObservations::default()
    }
}

/// Returns whether a network may have all numbers.
fn is_plausible(observed: &PathObservations) -> bool {
    let is_time = |s: f64| s.abs() <= LONGEST_S;
    let is_delay = |ms: &f64| ms.abs() <= LONGEST_MS;
    let is_amount = |bits: f64| (0.0..=MOST_BITS).contains(&bits);
    let is_probe = |probe: &Probe| {
        let mut delays = probe.rtt_ms.iter().chain(probe.one_way_ms.iter().flatten());
        is_time(probe.at_s) && delays.all(is_delay)
    };
    let are_losses = |one: &Losses| {
        one.bursts <= one.lost && one.lost <= one.of && (one.lost == 0) == (one.bursts == 0)
    };
    let is_session = |session: &ProbeSession| {
        let mut losses = session.losses.iter().flatten();
        session.probes.iter().all(is_probe)
            && losses.all(are_losses)
            && is_delay(&session.clock_error_ms)
    };
    let is_load = |load: &LoadTraffic| {
        let amounts = [load.sent, load.bytes, load.error];
        load.wire_bytes > 0
            && load.seconds > 0.0
            && is_time(load.seconds)
            && is_time(load.sending_s)
            && amounts.into_iter().all(is_amount)
    };
    let are_arrivals = |one: &OverTime| {
        let mut rates = one.values.iter();
        one.is_empty() || (one.every_s > 0.0 && rates.all(|rate| is_amount(*rate)))
    };
    let mut loaded = observed.loaded.iter();
    let mut throughput = observed.throughput.iter();
    is_session(&observed.idle)
        && are_trains(&observed.trains)
        && loaded.all(|one| {
            is_session(&one.probes)
                && is_load(&one.load)
                && are_arrivals(&one.arrivals)
                && is_time(one.from_s)
                && is_time(one.until_s)
        })
        && observed.searches.iter().all(|(_, load)| is_load(load))
        && throughput.all(|(_, one)| are_arrivals(one) && is_time(one.every_s))
        && [observed.mtu, observed.longest_down]
            .into_iter()
            .flatten()
            .all(|mtu| mtu >= LEAST_MTU)
}

/// Returns whether a network may have delivered these trains.
fn are_trains(session: &TrainSession) -> bool {
    let are_arrivals = |arrivals: &Vec<f64>| {
        let mut times = arrivals.iter();
        arrivals.len() <= session.length
            && arrivals.is_sorted()
            && times.all(|ms| (0.0..=LONGEST_MS).contains(ms))
    };
    let is_train =
        |train: &Train| train.at_s.abs() <= LONGEST_S && train.arrivals_ms.iter().all(are_arrivals);
    let in_order = |pair: &[Train]| pair[0].at_s <= pair[1].at_s;
    session.is_empty()
        || (session.wire_bytes > 0
            && session.trains.windows(2).all(in_order)
            && session.trains.iter().all(is_train))
}

/// Refuses observations that are too few to describe a path, or that no network has.
pub(crate) fn enough(observed: PathObservations) -> Result<PathObservations, FileError> {
    if !is_plausible(&observed) {
        return Err(FileError::Implausible);
    }
    let idle = &observed.idle.probes;
    let delays = idle
        .iter()
        .filter(|probe| probe.rtt_ms.is_some() || probe.one_way_ms.iter().any(Option::is_some));
    let (delays, rows) = (
        delays.count(),
        observed.throughput.iter().map(|(_, all)| all.values.len()),
    );
    match (delays, rows.max()) {
        _ if !observed.loaded.is_empty() => Ok(observed),
        (FEWEST.., _) | (_, Some(FEWEST..)) => Ok(observed),
        (_, Some(rows)) => Err(FileError::TooFew(rows, "rows of throughput")),
        (delays, None) => Err(FileError::TooFew(delays, "delays")),
    }
}

/// Adds a measurement of farwire: probes without a load, probes beside a load of UDP in one direction, or such a load.
fn add(observed: &mut PathObservations, measurement: &Measurement) {
    for phase in [None, Some(Phase::Idle)] {
        let idle = ProbeSession::of(measurement, phase, UDP_HEADERS);
        // A load without probes has samples of losses, too.
        if idle.answered().next().is_some() {
            observed.idle.join(idle);
        }
    }
    observed
        .loaded
        .extend(LoadedSession::of(measurement, UDP_HEADERS));
}

#[cfg(test)]
mod tests;
