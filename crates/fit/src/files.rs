//! Probes from the output of other programs: `ping -D`, and the JSON of irtt.

use std::collections::BTreeMap;

use conditions::Direction;
use serde::Deserialize;
use serde_json::Value;
use stats::losses::Losses;

use crate::observations::{Probe, ProbeSession};
use crate::DIRECTIONS;

/// The headers of Ethernet, IPv4 and UDP in bytes.
const UDP_HEADERS: u32 = 14 + 20 + 8;
/// The L2 bytes of a ping of the usual size over IPv4.
const USUAL_PING: u32 = 14 + 84;
/// Sequence numbers of ICMP have 16 bits.
const WRAPS: i64 = 1 << 16;
/// The least number of round trips that describe a path.
const FEWEST: usize = 10;
/// The most round trips of a file.
const MOST: i64 = 10_000_000;

/// Why a file has no probes.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FileError {
    /// The file has another form.
    #[error(
        "it is neither the output of `ping -D`, nor the JSON of `irtt client -o`, nor a record of farwire"
    )]
    UnknownForm,
    /// A line of ping has no time.
    #[error("line {0}: it has no time in brackets: run ping with -D")]
    NoTime(usize),
    /// The JSON is not what irtt writes.
    #[error("round_trips: {0}")]
    Irtt(String),
    /// There are too few round trips.
    #[error("it has {0} round trips, but at least 10 are needed")]
    TooFew(usize),
    /// The sequence numbers are too far apart.
    #[error("its sequence numbers cover more than 10,000,000 packets")]
    TooMany,
}

/// Reads probes from the text of a file.
///
/// # Errors
/// The text has none of the known forms, or has too few round trips.
pub fn read_probes(text: &str) -> Result<ProbeSession, FileError> {
    let session = if text.trim_start().starts_with('{') {
        irtt(text)?
    } else if text.contains("icmp_seq=") {
        ping(text)?
    } else {
        return Err(FileError::UnknownForm);
    };
    match session.answered().count() {
        few if few < FEWEST => Err(FileError::TooFew(few)),
        _ => Ok(session),
    }
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
    latest + if ahead > WRAPS / 2 { ahead - WRAPS } else { ahead }
}

/// Returns all probes between the first and the last answered one. A lost probe was sent between its neighbours.
fn with_lost(answers: &BTreeMap<i64, Probe>) -> Result<Vec<Probe>, FileError> {
    let (Some((first, start)), Some((last, _))) = (answers.first_key_value(), answers.last_key_value())
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
fn irtt(text: &str) -> Result<ProbeSession, FileError> {
    let parsed: Irtt =
        serde_json::from_str(text).map_err(|error| FileError::Irtt(error.to_string()))?;
    let time = |one: &IrttRoundTrip| {
        let send = &one.timestamps.client.send;
        send.monotonic.or(send.wall)
    };
    let start = parsed.round_trips.first().and_then(time).unwrap_or_default();
    let mut knows_direction = false;
    let mut probes = Vec::new();
    for one in &parsed.round_trips {
        let sent = time(one).ok_or_else(|| FileError::Irtt("a probe has no send time".to_owned()))?;
        let (is_lost, lost) = match &one.lost {
            Value::Bool(is_lost) => (*is_lost, None),
            Value::String(text) => match text.as_str() {
                "false" => (false, None),
                "true" => (true, None),
                "true_up" => (true, Some(Direction::Up)),
                "true_down" => (true, Some(Direction::Down)),
                other => return Err(FileError::Irtt(format!("`{other}` is no value of lost"))),
            },
            other => return Err(FileError::Irtt(format!("`{other}` is no value of lost"))),
        };
        knows_direction |= lost.is_some();
        probes.push(Probe {
            at_s: (sent - start) as f64 / 1e9,
            rtt_ms: one.delay.rtt.filter(|_| !is_lost).map(|ns| ns / 1e6),
            lost,
            ..Probe::default()
        });
    }
    let all_known = probes.iter().all(|probe| probe.rtt_ms.is_some() || probe.lost.is_some());
    let losses = DIRECTIONS.map(|way| {
        let entered = probes.iter().filter(|probe| probe.entered(way));
        (knows_direction && all_known).then(|| Losses::in_order(entered.map(|probe| !probe.passed(way))))
    });
    Ok(ProbeSession {
        wire_bytes: parsed.config.length.unwrap_or_default().saturating_add(UDP_HEADERS),
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
        let found = read_probes(&pings(100, |sequence| sequence % 10 == 0)).unwrap();
        assert_eq!((found.wire_bytes, found.probes.len()), (142, 99));
        assert_eq!(found.answered().count(), 90);
        let [lost, next] = [found.probes[9], found.probes[10]];
        assert_eq!(lost.rtt_ms, None);
        assert!((lost.at_s - 0.9).abs() < 0.001 && (next.at_s - 1.0).abs() < 0.001, "{lost:?}");
        assert!(!found.reordered[1]);
    }

    #[test]
    fn copies_and_order_of_ping_are_seen() {
        let mut text = pings(30, |_| false);
        text += "[1700000005.0] 108 bytes from 192.0.2.1: icmp_seq=30 ttl=57 time=21 ms (DUP!)\n";
        text += "[1700000005.0] 108 bytes from 192.0.2.1: icmp_seq=32 ttl=57 time=21 ms\n";
        text += "[1700000005.0] 108 bytes from 192.0.2.1: icmp_seq=31 ttl=57 time=21 ms\n";
        let found = read_probes(&text).unwrap();
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
            let delay = if lost == "false" { r#"{"rtt":20000000,"send":1,"receive":2}"# } else { "{}" };
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
        let found = read_probes(&text).unwrap();
        let [up, down] = found.losses.map(Option::unwrap);
        assert_eq!((up.lost, up.of, down.lost, down.of), (1, 20, 1, 19));
        assert_eq!((found.wire_bytes, found.duplicates), (102, 2));
        assert!((found.probes[5].at_s - 0.05).abs() < 1e-9);
        assert_eq!(found.probes[5].rtt_ms, Some(20.0));
    }

    #[test]
    fn a_file_that_is_none_of_them_is_refused_with_what_is_right() {
        assert_eq!(read_probes("time,rtt\n1,2\n").unwrap_err(), FileError::UnknownForm);
        let untimed = "64 bytes from 192.0.2.1: icmp_seq=1 ttl=57 time=20 ms\n";
        assert_eq!(read_probes(untimed).unwrap_err(), FileError::NoTime(1));
        assert_eq!(read_probes(&pings(5, |_| false)).unwrap_err(), FileError::TooFew(5));
        assert!(matches!(read_probes("{}").unwrap_err(), FileError::Irtt(_)));
    }
}
