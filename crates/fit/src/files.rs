//! Observations from files: measurements of farwire, and the output of other programs.

use std::collections::BTreeMap;

use conditions::Direction;
use jiff::Timestamp;
use record::{Measurement, Phase, Record};
use serde::Deserialize;
use serde_json::Value;
use stats::losses::Losses;
use stats::order_statistics::{quantile, sorted};

use crate::DIRECTIONS;
use crate::index;
use crate::observations::{
    LoadTraffic, LoadedSession, PathObservations, Probe, ProbeSession, UDP_HEADERS,
};
use crate::over_time::OverTime;
use crate::trains::{Train, TrainSession};

/// The L2 bytes of a ping of the usual size over IPv4.
const USUAL_PING: u32 = 14 + 84;
/// Sequence numbers of ICMP have 16 bits.
const WRAPS: i64 = 1 << 16;
/// The least number of delays, or of rows of throughput, that describe a path.
const FEWEST: usize = 10;
/// The share of the usual time between two rows by which a distance of rows may differ from it.
const UNEVEN: f64 = 0.1;
/// The most packets that the sequence numbers of a file may cover.
const MOST: i64 = 1_000_000;
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
            ..of_probes(ping(text)?)
        }
    } else if first.starts_with("number,direction,") {
        of_probes(packet_log(text)?)
    } else if first
        .split([',', ' ', '\t'])
        .filter(|cell| !cell.is_empty())
        .count()
        == 2
    {
        throughput(text)?
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
        let parsed: Irtt = serde_json::from_value(value).map_err(wrong)?;
        let mut stamps = parsed.round_trips.iter();
        let began_ns = stamps.find_map(|one| one.timestamps.client.send.wall);
        PathObservations {
            measured_on: began_ns.and_then(|ns| day_of(ns / 1_000_000_000)),
            ..of_probes(irtt(parsed)?)
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

/// Reads a packet log of farwire in CSV. Losses are those that the link drew; packets that it dropped for other reasons do
/// not count. The time by which packets left after they were due is no property of the link.
fn packet_log(text: &str) -> Result<ProbeSession, FileError> {
    let mut lines = (1..).zip(text.lines());
    let header: Vec<&str> = lines
        .next()
        .map_or(Vec::new(), |(_, line)| line.split(',').collect());
    let place = |name: &str| header.iter().position(|column| *column == name);
    let columns = [
        "direction",
        "arrival_ns",
        "verdict",
        "due_ns",
        "departure_ns",
    ]
    .map(place);
    let [
        Some(way),
        Some(arrival),
        Some(verdict),
        Some(due),
        Some(departure),
    ] = columns
    else {
        return Err(FileError::UnknownForm);
    };
    let mut packets: Vec<(u64, Direction, Option<u64>)> = Vec::new();
    for (line, text) in lines {
        let cells: Vec<&str> = text.split(',').collect();
        let cell = |place: usize| cells.get(place).copied().unwrap_or_default();
        let way = match cell(way) {
            "up" => Direction::Up,
            "down" => Direction::Down,
            other => {
                let cause = format!("direction: `{other}` is neither up nor down");
                return Err(FileError::Line { line, cause });
            }
        };
        let time = |place| cell(place).parse::<u64>().ok();
        let Some(arrival) = time(arrival) else {
            let cause = format!("arrival_ns: `{}` is no whole number", cell(arrival));
            return Err(FileError::Line { line, cause });
        };
        match cell(verdict) {
            "delivered" => packets.push((arrival, way, time(due).or(time(departure)))),
            "loss" => packets.push((arrival, way, None)),
            _ => {}
        }
    }
    packets.sort_by_key(|(arrival, ..)| *arrival);
    let start = packets.first().map_or(0, |(arrival, ..)| *arrival);
    let lost_of = |of: Direction| {
        let mine = packets.iter().filter(|(_, way, _)| *way == of);
        Some(Losses::in_order(mine.map(|(_, _, left)| left.is_none())))
    };
    let losses = DIRECTIONS.map(lost_of);
    let probes = packets.iter().map(|(arrival, way, left)| {
        let mut probe = Probe {
            at_s: (arrival - start) as f64 / 1e9,
            lost: left.is_none().then_some(*way),
            ..Probe::default()
        };
        let delay_ms = left.map(|left| left.saturating_sub(*arrival) as f64 / 1e6);
        probe.one_way_ms[index(*way)] = delay_ms;
        probe
    });
    Ok(ProbeSession {
        probes: probes.collect(),
        losses,
        ..ProbeSession::default()
    })
}

/// Reads the throughput in the direction down: lines of seconds and Mbit/s at equal distances, with or without a header.
fn throughput(text: &str) -> Result<PathObservations, FileError> {
    let mut rates = Vec::new();
    let mut times = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let cells = text.split([',', ' ', '\t']).filter(|cell| !cell.is_empty());
        let cells: Vec<&str> = cells.collect();
        let numbers: Vec<f64> = cells.iter().filter_map(|cell| cell.parse().ok()).collect();
        match numbers.as_slice() {
            [at_s, mbit] if at_s.is_finite() && mbit.is_finite() && *mbit >= 0.0 => {
                rates.push(mbit * 1e6);
                times.push((line, *at_s));
            }
            // The header names the columns.
            [] if line == 1 || cells.is_empty() => {
                if let Some(unit) = cells.get(1).filter(|unit| !is_mbit(unit)) {
                    let cause = format!("`{unit}` does not say Mbit/s or Mbps");
                    return Err(FileError::Line { line, cause });
                }
            }
            _ => {
                let cause = format!("`{text}` is not a time in seconds and a rate in Mbit/s");
                return Err(FileError::Line { line, cause });
            }
        }
    }
    let over_time = OverTime {
        every_s: between_rows_s(&times)?,
        values: rates,
    };
    Ok(PathObservations {
        throughput: vec![(Direction::Down, over_time)],
        ..PathObservations::default()
    })
}

/// Returns the time in seconds between two rows, each with its line and its time, which must be at equal distances. A single
/// row counts as a second.
fn between_rows_s(times: &[(usize, f64)]) -> Result<f64, FileError> {
    let [(_, first_s), .., (_, last_s)] = times else {
        return Ok(1.0);
    };
    let distances = times.windows(2).map(|pair| pair[1].1 - pair[0].1);
    let distances: Vec<f64> = distances.collect();
    let usual_s = quantile(&sorted(&distances), 0.5).unwrap_or_default();
    let later = times.iter().skip(1).zip(&distances);
    for ((line, at_s), distance_s) in later {
        let is_equal = (distance_s - usual_s).abs() <= UNEVEN * usual_s;
        if !(usual_s > 0.0 && is_equal) {
            let cause = format!(
                "the time {at_s} s is {distance_s} s after that of the row before, and the usual distance is {usual_s} s: the rows need \
                 rising times at equal distances, one row for each interval"
            );
            return Err(FileError::Line { line: *line, cause });
        }
    }
    Ok((last_s - first_s) / distances.len() as f64)
}

/// Returns whether the name of a column has the unit Mbit/s.
fn is_mbit(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("mbit") || name.contains("mbps")
}

/// Reads the output of `ping -D` (iputils). A number that is missing between others is a lost packet.
fn ping(text: &str) -> Result<ProbeSession, FileError> {
    let mut answers: BTreeMap<i64, Probe> = BTreeMap::new();
    let (mut latest, mut highest) = (0, None);
    let (mut duplicates, mut reordered) = (0, false);
    let mut wire_bytes = USUAL_PING;
    for (number, line) in (1..).zip(text.lines()) {
        if line.starts_with("PING ") {
            wire_bytes = of_head(line).unwrap_or(USUAL_PING);
        }
        let value = |key: &str| {
            let (_, rest) = line.split_once(key)?;
            rest.split_whitespace().next()
        };
        let (Some(sequence), Some(rtt)) = (value("icmp_seq="), value("time=")) else {
            continue;
        };
        let (Ok(sequence), Ok(rtt)) = (sequence.parse::<u16>(), rtt.parse::<f64>()) else {
            continue;
        };
        let stamp = line.strip_prefix('[').and_then(|line| line.split_once(']'));
        let stamp = stamp.and_then(|(stamp, _)| stamp.parse::<f64>().ok());
        let received_s = stamp.ok_or(FileError::NoTime(number))?;
        latest = unwrapped(i64::from(sequence), latest);
        if line.contains("DUP!") {
            duplicates += 1;
            continue;
        }
        reordered |= highest > Some(latest);
        highest = highest.max(Some(latest));
        let probe = Probe {
            at_s: received_s - rtt / 1e3,
            rtt_ms: Some(rtt),
            ..Probe::default()
        };
        answers.entry(latest).or_insert(probe);
    }
    Ok(ProbeSession {
        wire_bytes,
        probes: with_lost(&answers)?,
        reordered: [false, reordered],
        duplicates,
        ..ProbeSession::default()
    })
}

/// Returns the L2 bytes of the packets that the first line of ping announces: `56(84) bytes of data`.
fn of_head(line: &str) -> Option<u32> {
    let (before, _) = line.split_once(") bytes of data")?;
    let (_, bytes) = before.rsplit_once('(')?;
    bytes.parse::<u32>().ok().map(|l3| l3.saturating_add(14))
}

/// Returns the sequence number beyond 16 bits that is nearest to the latest one.
fn unwrapped(sequence: i64, latest: i64) -> i64 {
    let ahead = (sequence - latest).rem_euclid(WRAPS);
    latest
        + if ahead > WRAPS / 2 {
            ahead - WRAPS
        } else {
            ahead
        }
}

/// Returns all probes between the first and the last answered one. A lost probe was sent between its neighbours.
fn with_lost(answers: &BTreeMap<i64, Probe>) -> Result<Vec<Probe>, FileError> {
    let (Some((first, start)), Some((last, _))) =
        (answers.first_key_value(), answers.last_key_value())
    else {
        return Ok(Vec::new());
    };
    if last - first > MOST {
        return Err(FileError::TooMany);
    }
    let mut probes: Vec<Probe> = Vec::new();
    let mut before = (*first - 1, *start);
    for (sequence, probe) in answers {
        let gap = sequence - before.0;
        let step_s = (probe.at_s - before.1.at_s) / gap as f64;
        probes.extend((1..gap).map(|lost| Probe {
            at_s: before.1.at_s + lost as f64 * step_s - start.at_s,
            ..Probe::default()
        }));
        probes.push(Probe {
            at_s: probe.at_s - start.at_s,
            ..*probe
        });
        before = (*sequence, *probe);
    }
    Ok(probes)
}

/// The JSON of irtt, as far as it is needed. Times are in nanoseconds.
#[derive(Deserialize)]
struct Irtt {
    round_trips: Vec<IrttRoundTrip>,
    #[serde(default)]
    config: IrttConfig,
    #[serde(default)]
    stats: IrttStats,
}

#[derive(Default, Deserialize)]
struct IrttConfig {
    /// The payload in bytes.
    length: Option<u32>,
}

#[derive(Default, Deserialize)]
struct IrttStats {
    #[serde(default)]
    duplicates: u64,
    #[serde(default)]
    late_packets: u64,
}

#[derive(Deserialize)]
struct IrttRoundTrip {
    /// A text or a truth value: `false`, `true`, `true_up` or `true_down`.
    lost: Value,
    timestamps: IrttTimestamps,
    #[serde(default)]
    delay: IrttDelay,
}

#[derive(Deserialize)]
struct IrttTimestamps {
    client: IrttClient,
}

#[derive(Deserialize)]
struct IrttClient {
    send: IrttStamp,
}

#[derive(Default, Deserialize)]
struct IrttStamp {
    wall: Option<i64>,
    monotonic: Option<i64>,
}

#[derive(Default, Deserialize)]
struct IrttDelay {
    rtt: Option<f64>,
}

/// Reads irtt's JSON. Its one-way delays are differences of two clocks whose relation it does not state, so that only
/// its round trips are used.
fn irtt(parsed: Irtt) -> Result<ProbeSession, FileError> {
    let time = |one: &IrttRoundTrip| {
        let send = &one.timestamps.client.send;
        send.monotonic.or(send.wall)
    };
    let start = parsed
        .round_trips
        .first()
        .and_then(time)
        .unwrap_or_default();
    let mut knows_direction = false;
    let mut probes = Vec::new();
    for one in &parsed.round_trips {
        let sent =
            time(one).ok_or_else(|| FileError::Json("a probe has no send time".to_owned()))?;
        let (is_lost, lost) = match &one.lost {
            Value::Bool(is_lost) => (*is_lost, None),
            Value::String(text) => match text.as_str() {
                "false" => (false, None),
                "true" => (true, None),
                "true_up" => (true, Some(Direction::Up)),
                "true_down" => (true, Some(Direction::Down)),
                other => return Err(FileError::Json(format!("`{other}` is no value of lost"))),
            },
            other => return Err(FileError::Json(format!("`{other}` is no value of lost"))),
        };
        knows_direction |= lost.is_some();
        probes.push(Probe {
            at_s: sent.saturating_sub(start) as f64 / 1e9,
            rtt_ms: one.delay.rtt.filter(|_| !is_lost).map(|ns| ns / 1e6),
            lost,
            ..Probe::default()
        });
    }
    let all_known = probes
        .iter()
        .all(|probe| probe.rtt_ms.is_some() || probe.lost.is_some());
    let losses = DIRECTIONS.map(|way| {
        let entered = probes.iter().filter(|probe| probe.entered(way));
        (knows_direction && all_known)
            .then(|| Losses::in_order(entered.map(|probe| !probe.passed(way))))
    });
    Ok(ProbeSession {
        wire_bytes: parsed
            .config
            .length
            .unwrap_or_default()
            .saturating_add(UDP_HEADERS),
        losses,
        reordered: [false, parsed.stats.late_packets > 0],
        duplicates: parsed.stats.duplicates,
        probes,
        ..ProbeSession::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probes(text: &str) -> ProbeSession {
        read(text).unwrap().idle
    }

    fn pings(count: u32, lost: impl Fn(u32) -> bool) -> String {
        let mut text = "PING 192.0.2.1 (192.0.2.1) 100(128) bytes of data.\n".to_owned();
        for sequence in (1..=count).filter(|sequence| !lost(*sequence)) {
            let at = 1_700_000_000.0 + 0.1 * f64::from(sequence) + 0.02;
            text += &format!(
                "[{at:.6}] 108 bytes from 192.0.2.1: icmp_seq={sequence} ttl=57 time=20.0 ms\n"
            );
        }
        text
    }

    #[test]
    fn missing_numbers_of_ping_are_losses() {
        let found = probes(&pings(100, |sequence| sequence % 10 == 0));
        assert_eq!((found.wire_bytes, found.probes.len()), (142, 99));
        assert_eq!(found.answered().count(), 90);
        let [lost, next] = [found.probes[9], found.probes[10]];
        assert_eq!(lost.rtt_ms, None);
        assert!(
            (lost.at_s - 0.9).abs() < 0.001 && (next.at_s - 1.0).abs() < 0.001,
            "{lost:?}"
        );
        assert!(!found.reordered[1]);
        let day = read(&pings(100, |_| false)).unwrap().measured_on;
        assert_eq!(day.as_deref(), Some("2023-11-14"));
    }

    #[test]
    fn copies_and_order_of_ping_are_seen() {
        let mut text = pings(30, |_| false);
        text += "[1700000005.0] 108 bytes from 192.0.2.1: icmp_seq=30 ttl=57 time=21 ms (DUP!)\n";
        text += "[1700000005.0] 108 bytes from 192.0.2.1: icmp_seq=32 ttl=57 time=21 ms\n";
        text += "[1700000005.0] 108 bytes from 192.0.2.1: icmp_seq=31 ttl=57 time=21 ms\n";
        let found = probes(&text);
        assert_eq!((found.duplicates, found.probes.len()), (1, 32));
        assert!(found.reordered[1]);
    }

    #[test]
    fn sequence_numbers_wrap() {
        assert_eq!(unwrapped(1, 65_535), 65_537);
        assert_eq!(unwrapped(65_535, 65_536), 65_535);
        assert_eq!(unwrapped(5, 3), 5);
    }

    #[test]
    fn losses_of_irtt_have_their_direction() {
        let trip = |number: u32| {
            let lost = match number {
                3 => "true_up",
                7 => "true_down",
                _ => "false",
            };
            let delay = if lost == "false" {
                r#"{"rtt":20000000,"send":1,"receive":2}"#
            } else {
                "{}"
            };
            format!(
                r#"{{"seqno":{number},"lost":"{lost}","timestamps":{{"client":{{"send":{{"monotonic":{}}}}}}},"delay":{delay}}}"#,
                u64::from(number) * 10_000_000
            )
        };
        let trips: Vec<String> = (0..20).map(trip).collect();
        let text = format!(
            r#"{{"config":{{"length":60}},"stats":{{"duplicates":2}},"round_trips":[{}]}}"#,
            trips.join(",")
        );
        let found = probes(&text);
        let [up, down] = found.losses.map(Option::unwrap);
        assert_eq!((up.lost, up.of, down.lost, down.of), (1, 20, 1, 19));
        assert_eq!((found.wire_bytes, found.duplicates), (102, 2));
        assert!((found.probes[5].at_s - 0.05).abs() < 1e-9);
        assert_eq!(found.probes[5].rtt_ms, Some(20.0));
    }

    #[test]
    fn packets_of_a_log_have_the_delays_and_the_random_losses_of_their_direction() {
        let mut text =
            "number,direction,bytes,arrival_ns,verdict,changes,due_ns,departure_ns\n".to_owned();
        for packet in 0..40_u32 {
            let arrival = 1_000_000_000 + u64::from(packet) * 1_000_000;
            let (way, delay) = if packet % 2 == 0 {
                ("up", 5_000_000)
            } else {
                ("down", 9_000_000)
            };
            // The machine was busy.
            let (due, left) = (arrival + delay, arrival + delay + 13_000_000);
            let (verdict, times) = match packet {
                4 => ("loss", ",".to_owned()),
                5 => ("queue_full", ",".to_owned()),
                _ => ("delivered", format!("{due},{left}")),
            };
            text += &format!("{packet},{way},100,{arrival},{verdict},,{times}\n");
        }
        let observed = read(&text).unwrap();
        let [up, down] = observed.idle.losses.map(Option::unwrap);
        assert_eq!((up.lost, up.of, down.lost, down.of), (1, 20, 0, 19));
        let found = crate::LinkFit::of(&observed);
        assert!(found.one_way);
        let delays = [&found.up, &found.down].map(|one| one.delay.as_ref().unwrap().ms.value);
        assert!(
            (delays[0] - 5.0).abs() < 1e-6 && (delays[1] - 9.0).abs() < 1e-6,
            "{delays:?}"
        );
        assert_eq!(found.up.bottleneck, None);
    }

    #[test]
    fn a_table_of_throughput_gives_a_rate_and_nothing_else() {
        let rows = (0..30).map(|second| format!("{second},{}\n", 8 + second % 3));
        let text = "seconds,Mbit/s\n".to_owned() + &rows.collect::<String>();
        let found = crate::LinkFit::of(&read(&text).unwrap());
        let bottleneck = found.down.bottleneck.unwrap();
        assert_eq!((bottleneck.rate.value, bottleneck.queue), (9e6, None));
        assert_eq!((found.down.delay, found.down.loss), (None, None));
        assert_eq!(found.up.bottleneck, None);
        let error = read("seconds,kbit/s\n1,2\n").unwrap_err().to_string();
        assert_eq!(error, "line 1: `kbit/s` does not say Mbit/s or Mbps");
        let error = read("1 2\n2 fast\n").unwrap_err().to_string();
        assert!(error.starts_with("line 2: `2 fast` is not"), "{error}");
    }

    #[test]
    fn enough_marks_beside_a_throughput_show_that_the_queue_is_managed() {
        let fitted = |count, tenths| {
            let rows = (0..30).map(|second| format!("{second},8\n"));
            crate::LinkFit::of(&PathObservations {
                marked: [crate::Marks::default(), crate::Marks { count, tenths }],
                ..read(&rows.collect::<String>()).unwrap()
            })
        };
        for (count, tenths) in [(4, 4), (40, 2)] {
            let bottleneck = fitted(count, tenths).down.bottleneck.unwrap();
            assert_eq!(bottleneck.queue, None);
            let few = format!("{count} packets were marked (ECN) on the path, too few");
            assert!(bottleneck.evidence.starts_with(&few), "{bottleneck:?}");
        }
        let found = fitted(7, 3);
        let bottleneck = found.down.bottleneck.as_ref().unwrap();
        let managed = crate::QueueKind::Managed { most_ms: None };
        assert_eq!(bottleneck.queue, Some(managed));
        assert!(bottleneck.evidence.starts_with("7 packets were marked"));
        let text = found.to_toml(&crate::Origin::of_path("a file", "2026-11-27"));
        assert!(text.contains("aqm = \"codel,ecn\""), "{text}");
        let spec: conditions::LinkSpec = conditions::read::toml_text(&text).unwrap();
        spec.check().unwrap();
    }

    #[test]
    fn a_throughput_that_varies_is_followed_over_time() {
        let link = |mbit: fn(u32) -> u32| {
            let rows = (0..40).map(|second| format!("{second},{}\n", mbit(second)));
            let found = crate::LinkFit::of(&read(&rows.collect::<String>()).unwrap());
            let text = found.to_toml(&crate::Origin::of_path("a file", "2026-11-27"));
            let spec: conditions::LinkSpec = conditions::read::toml_text(&text).unwrap();
            spec.check().unwrap();
            text
        };
        assert!(!link(|_| 8).contains("trace"));
        let varying = link(|second| if second == 0 { 0 } else { 8 + second % 5 });
        assert!(
            varying.contains("trace = { file = \"fitted\", content = \"t,rate\\n0s,0bit\\n1s,")
        );
        assert!(varying.contains("\\n40s,\\n\" }"), "{varying}");
        assert!(!varying.contains("\nrate = "), "{varying}");
    }

    #[test]
    fn a_constant_throughput_has_the_interval_of_its_median_and_a_varying_one_a_range() {
        let rate = |rows: Vec<String>| {
            let rows = crate::LinkFit::of(&read(&rows.concat()).unwrap()).parameters();
            rows.into_iter().find(|row| row.unit == "Mbit/s").unwrap()
        };
        // From 9.0 to 9.9 Mbit/s, in another order in each ten rows.
        let constant = |at: u32| format!("{at},9.{}\n", (7 * at + at / 10) % 10);
        let constant = rate((0..200).map(constant).collect());
        assert_eq!(constant.interval_kind, crate::IntervalKind::OfValue);
        let [low, high] = constant.estimate.unwrap().known_interval().unwrap();
        assert!(high - low < 0.5, "{constant:?}");
        let varying = rate(
            (0..200)
                .map(|at| format!("{at},{}\n", 8 + at % 5))
                .collect(),
        );
        assert_eq!(varying.interval_kind, crate::IntervalKind::NineOfTen);
        assert_eq!(varying.estimate.unwrap().interval, [8.0, 12.0]);
        let few = rate((0..10).map(|at| format!("{at},9.{}\n", at / 2)).collect());
        assert_eq!(few.estimate.unwrap().known_interval(), None);
    }

    #[test]
    fn the_times_of_a_table_are_those_of_its_trace() {
        let table = |every_s: u32| -> String {
            let rows = (0..40).map(|row| format!("{},{}\n", every_s * row, 8 + row % 5));
            rows.collect()
        };
        let found = crate::LinkFit::of(&read(&table(10)).unwrap());
        let over_time = found.down.bottleneck.unwrap().over_time.unwrap();
        assert_eq!((over_time.every_s, over_time.values.len()), (10.0, 40));
        // Times of a logger are not exact.
        let late = table(10).replace("\n50,", "\n50.4,");
        assert_eq!(read(&late).unwrap().throughput[0].1.every_s, 10.0);
        let lacking = table(10).replace("\n50,8\n", "\n");
        let error = read(&lacking).unwrap_err().to_string();
        assert!(
            error.starts_with("line 6: the time 60 s is 20 s after that of the row before"),
            "{error}"
        );
        let error = read(&table(0)).unwrap_err().to_string();
        assert!(error.contains("rising times at equal distances"), "{error}");
    }

    #[test]
    fn a_measurement_of_farwire_and_observations_are_read_from_json() {
        let samples = (1..=20_u32).map(|index| {
            let at_s = 0.01 * f64::from(index);
            record::Sample::new(at_s, record::Metric::RttMs, index.into(), 20.0)
        });
        let measurement = Measurement {
            samples: samples.collect(),
            ..Measurement::default()
        };
        let text = serde_json::to_string(&measurement).unwrap();
        let observed = read(&text).unwrap();
        assert_eq!(observed.idle.probes.len(), 20);
        let text = serde_json::to_string(&observed).unwrap();
        assert_eq!(read(&text).unwrap(), observed);
    }

    #[test]
    fn trains_that_no_network_delivers_are_refused() {
        let observed = |arrivals_ms: &[f64]| {
            let train = |at_s| Train {
                at_s,
                arrivals_ms: [vec![0.0], arrivals_ms.to_vec()],
            };
            let observed = PathObservations {
                trains: TrainSession {
                    wire_bytes: 1400,
                    length: 3,
                    trains: vec![train(0.0), train(0.1)],
                },
                ..read(&pings(20, |_| false)).unwrap()
            };
            read(&serde_json::to_string(&observed).unwrap())
        };
        let right = observed(&[0.0, 1.0, 2.0]).unwrap();
        assert_eq!(right.trains.spreads(Direction::Down), [2.0; 2]);
        for wrong in [
            &[0.0, 2.0, 1.0][..],
            &[0.0, 1.0, 2.0, 3.0],
            &[-1.0, 0.0],
            &[0.0, 1e9],
        ] {
            let refused = observed(wrong).unwrap_err();
            assert_eq!(refused, FileError::Implausible, "{wrong:?}");
        }
    }

    #[test]
    fn a_file_that_is_none_of_them_is_refused_with_what_is_right() {
        assert_eq!(read("time;rtt\n1;2\n").unwrap_err(), FileError::UnknownForm);
        assert_eq!(read("{}").unwrap_err(), FileError::UnknownForm);
        let untimed = "64 bytes from 192.0.2.1: icmp_seq=1 ttl=57 time=20 ms\n";
        assert_eq!(read(untimed).unwrap_err(), FileError::NoTime(1));
        let few = read(&pings(5, |_| false)).unwrap_err();
        assert_eq!(few, FileError::TooFew(5, "delays"));
        let slow = pings(20, |_| false).replace("time=20.0", "time=1e9");
        assert_eq!(read(&slow).unwrap_err(), FileError::Implausible);
        assert!(matches!(
            read(r#"{"round_trips":1}"#).unwrap_err(),
            FileError::Json(_)
        ));
    }
}
