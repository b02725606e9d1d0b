//! The queue and the drops of an emulated link over a run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Direction;

/// Readings of a link at regular times over a run, as columns of equal length.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkHistory {
    /// The time from which the readings count (RFC 3339, UTC).
    pub started_at: String,
    /// Seconds from then until each reading.
    pub at_s: Vec<f64>,
    /// The direction from client to server, and in a chain from the first node to the last.
    pub up: DirectionHistory,
    /// The other direction.
    pub down: DirectionHistory,
}

/// Readings of one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectionHistory {
    /// Packets that waited for the bottleneck at each reading; empty for a direction without a rate, as are the next two.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queue_packets: Vec<u64>,
    /// The L2 bytes of these packets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queue_bytes: Vec<u64>,
    /// The time in milliseconds that a packet would have waited that arrived at the reading.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queue_ms: Vec<f64>,
    /// Packets that the emulated network dropped since the reading before, by [`model::DropCause::name`]; without causes
    /// that did not occur.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub dropped: BTreeMap<String, Vec<u64>>,
}

/// The state of one direction of a link at a reading.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DirectionReading {
    /// The queue of the bottleneck; `None` without a rate.
    pub queue: Option<QueueReading>,
    /// All packets dropped since the link's start, by cause.
    pub dropped: BTreeMap<&'static str, u64>,
}

/// The packets that wait at a reading.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueReading {
    /// Their number.
    pub packets: u64,
    /// Their L2 bytes.
    pub bytes: u64,
    /// The time in milliseconds that a packet would wait that arrives now.
    pub ms: f64,
}

/// A history that grows with each reading, to a limited length.
#[derive(Clone, Debug)]
pub struct HistoryWriter {
    history: LinkHistory,
    before: [BTreeMap<&'static str, u64>; 2],
    /// The number of readings that are joined in one.
    joined: usize,
    /// The number of readings in the last one up to now.
    filled: usize,
}

/// Greatest number of readings in a history. A longer run has fewer in each second.
const MOST_READINGS: usize = 3_000;

impl LinkHistory {
    /// Returns the readings of one direction.
    pub fn direction(&self, direction: Direction) -> &DirectionHistory {
        direction.choose(&self.up, &self.down)
    }
}

impl DirectionHistory {
    /// Returns whether nothing ever waited and nothing was dropped.
    fn is_quiet(&self) -> bool {
        let waited = self.queue_packets.iter().any(|packets| *packets > 0);
        !waited && self.dropped.values().flatten().all(|count| *count == 0)
    }

    /// Fills columns that have no new reading, so that all have this length.
    fn fill(&mut self, length: usize) {
        if !self.queue_packets.is_empty() {
            self.queue_packets.resize(length, 0);
            self.queue_bytes.resize(length, 0);
            self.queue_ms.resize(length, 0.0);
        }
        for column in self.dropped.values_mut() {
            column.resize(length, 0);
        }
    }
}

impl HistoryWriter {
    /// Creates an empty history that begins at this time (RFC 3339, UTC).
    pub fn begin(started_at: String) -> Self {
        Self {
            history: LinkHistory {
                started_at,
                ..LinkHistory::default()
            },
            before: Default::default(),
            joined: 1,
            filled: 0,
        }
    }

    /// Adds a reading, `at_s` seconds after the beginning, of both directions: up and down.
    pub fn add(&mut self, at_s: f64, readings: [DirectionReading; 2]) {
        if self.filled == 0 || self.filled == self.joined {
            if self.history.at_s.len() == MOST_READINGS {
                self.halve();
            }
            self.push(at_s, readings);
            self.filled = 1;
        } else {
            self.join(at_s, readings);
            self.filled += 1;
        }
    }

    /// Returns the history; `None` if nothing ever waited in the link and nothing was dropped.
    pub fn finish(self) -> Option<LinkHistory> {
        let history = self.history;
        let is_quiet = history.up.is_quiet() && history.down.is_quiet();
        (!is_quiet).then_some(history)
    }

    fn push(&mut self, at_s: f64, readings: [DirectionReading; 2]) {
        let readings_before = self.history.at_s.len();
        self.history.at_s.push(at_s);
        let own = [&mut self.history.up, &mut self.history.down];
        for ((own, reading), before) in own.into_iter().zip(readings).zip(&mut self.before) {
            if let Some(QueueReading { packets, bytes, ms }) = reading.queue {
                own.queue_packets.resize(readings_before, 0);
                own.queue_bytes.resize(readings_before, 0);
                own.queue_ms.resize(readings_before, 0.0);
                own.queue_packets.push(packets);
                own.queue_bytes.push(bytes);
                own.queue_ms.push(ms);
            }
            for (cause, count) in dropped_since(before, reading.dropped) {
                let column = own.dropped.entry(cause.to_owned()).or_default();
                column.resize(readings_before, 0);
                column.push(count);
            }
            own.fill(readings_before + 1);
        }
    }

    /// Adds a reading to the last one: the greater queue, and the sum of the drops.
    fn join(&mut self, at_s: f64, readings: [DirectionReading; 2]) {
        let Some(last) = self.history.at_s.len().checked_sub(1) else {
            return;
        };
        self.history.at_s[last] = at_s;
        let own = [&mut self.history.up, &mut self.history.down];
        for ((own, reading), before) in own.into_iter().zip(readings).zip(&mut self.before) {
            let known = own.queue_packets.get(last).copied();
            let queue = reading.queue.zip(known);
            let greater = queue.filter(|(queue, known)| queue.packets > *known);
            if let Some((QueueReading { packets, bytes, ms }, _)) = greater {
                own.queue_packets[last] = packets;
                own.queue_bytes[last] = bytes;
                own.queue_ms[last] = ms;
            }
            for (cause, count) in dropped_since(before, reading.dropped) {
                let column = own.dropped.entry(cause.to_owned()).or_default();
                column.resize(last + 1, 0);
                column[last] += count;
            }
        }
    }

    /// Joins each two neighbouring readings.
    fn halve(&mut self) {
        let history = &mut self.history;
        history.at_s = history
            .at_s
            .chunks(2)
            .map(|pair| pair[pair.len() - 1])
            .collect();
        for own in [&mut history.up, &mut history.down] {
            let greater = |pair: &[u64]| usize::from(pair.len() > 1 && pair[1] > pair[0]);
            let kept: Vec<usize> = own.queue_packets.chunks(2).map(greater).collect();
            let place = |at: usize| 2 * at + kept[at];
            for column in [&mut own.queue_packets, &mut own.queue_bytes] {
                *column = (0..kept.len()).map(|at| column[place(at)]).collect();
            }
            own.queue_ms = (0..kept.len()).map(|at| own.queue_ms[place(at)]).collect();
            for column in own.dropped.values_mut() {
                *column = column.chunks(2).map(|pair| pair.iter().sum()).collect();
            }
        }
        self.joined *= 2;
    }
}

/// Returns the drops since the reading before, without causes that did not occur, and keeps the new counts.
fn dropped_since(
    before: &mut BTreeMap<&'static str, u64>,
    now: BTreeMap<&'static str, u64>,
) -> Vec<(&'static str, u64)> {
    let since = now.iter().map(|(cause, count)| {
        let earlier = before.get(cause).copied().unwrap_or(0);
        (*cause, count.saturating_sub(earlier))
    });
    let dropped = since.filter(|(_, count)| *count > 0).collect();
    *before = now;
    dropped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(packets: u64, lost: u64) -> DirectionReading {
        DirectionReading {
            queue: Some(QueueReading {
                packets,
                bytes: packets * 1_500,
                ms: packets as f64,
            }),
            dropped: BTreeMap::from([("queue_full", lost)]),
        }
    }

    #[test]
    fn drops_are_those_since_the_reading_before() {
        let mut writer = HistoryWriter::begin("2026-01-01T00:00:00Z".to_owned());
        for (at, packets, lost) in [(0.1, 3, 0), (0.2, 9, 4), (0.3, 0, 5)] {
            writer.add(at, [reading(packets, lost), DirectionReading::default()]);
        }
        let history = writer.finish().unwrap();
        assert_eq!(history.at_s, [0.1, 0.2, 0.3]);
        assert_eq!(history.up.queue_packets, [3, 9, 0]);
        assert_eq!(history.up.dropped["queue_full"], [0, 4, 1]);
        assert!(history.down.queue_packets.is_empty() && history.down.dropped.is_empty());
        let text = serde_json::to_string(&history).unwrap();
        assert_eq!(serde_json::from_str::<LinkHistory>(&text).unwrap(), history);
    }

    #[test]
    fn a_long_history_keeps_every_drop_and_the_greatest_queue() {
        let mut writer = HistoryWriter::begin(String::new());
        let readings = 5 * MOST_READINGS as u64 + 1;
        for at in 0..readings {
            let packets = if at == 7_777 { 99 } else { 1 };
            writer.add(at as f64 * 0.1, [reading(packets, at), reading(0, 0)]);
        }
        let history = writer.finish().unwrap();
        let length = history.at_s.len();
        assert!(
            (MOST_READINGS / 2..=MOST_READINGS).contains(&length),
            "{length}"
        );
        for column in [
            &history.up.queue_packets,
            &history.up.queue_bytes,
            &history.up.dropped["queue_full"],
        ] {
            assert_eq!(column.len(), length);
        }
        assert_eq!(history.up.queue_ms.len(), length);
        assert_eq!(
            history.up.dropped["queue_full"].iter().sum::<u64>(),
            readings - 1
        );
        assert_eq!(history.up.queue_packets.iter().max(), Some(&99));
        assert!(history.at_s.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn a_quiet_link_has_no_history() {
        let mut writer = HistoryWriter::begin(String::new());
        writer.add(0.1, [reading(0, 0), reading(0, 0)]);
        assert_eq!(writer.finish(), None);
    }
}
