//! The output of `ping -D`.

use std::collections::BTreeMap;

use super::FileError;
use crate::observations::{Probe, ProbeSession};

/// The L2 bytes of a ping of the usual size over IPv4.
const USUAL_PING: u32 = 14 + 84;
/// Sequence numbers of ICMP have 16 bits.
const WRAPS: i64 = 1 << 16;
/// The most packets that the sequence numbers of a file may cover.
const MOST: i64 = 1_000_000;

/// Reads the output of `ping -D` (iputils). A number that is missing between others is a lost packet.
pub(super) fn read(text: &str) -> Result<ProbeSession, FileError> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_wrap() {
        assert_eq!(unwrapped(1, 65_535), 65_537);
        assert_eq!(unwrapped(65_535, 65_536), 65_535);
        assert_eq!(unwrapped(5, 3), 5);
    }
}
