//! The counts of the streams at the end of each interval, and a line about the interval for a terminal.

use std::time::Instant;

use super::receiver_stats::ReceiverCounts;
use crate::iperf3::run::seconds;

/// The counts of all streams at the end of an interval.
#[derive(Clone, Debug)]
pub(crate) struct IntervalReading {
    /// The time of the reading.
    pub(crate) at: Instant,
    /// The interval that ends with this reading.
    pub(crate) ending: ReadingKind,
    /// The counts of each stream.
    pub(crate) streams: Vec<StreamReading>,
}

/// The kind of interval that ends with a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadingKind {
    /// An interval that counts.
    Counted,
    /// An interval of the omitted start.
    Omitted,
    /// No interval: counting restarts here.
    Nothing,
}

/// The counts of one stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamReading {
    /// Whether this end sends the stream.
    pub(crate) sends: bool,
    /// The received counts, or for a stream that this end sends, the datagrams and bytes sent.
    pub(crate) counts: ReceiverCounts,
}

/// The counts that one interval added to the streams of one direction. A count can be negative, because late datagrams
/// correct the earlier loss in the interval in which they arrive.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IntervalDelta {
    pub(super) bytes: i64,
    pub(super) packets: i64,
    pub(super) missing: i64,
    pub(super) expected: i64,
    pub(super) host_dropped: i64,
    pub(super) duplicates: i64,
    pub(super) reordered: i64,
    /// The largest jitter of the streams at the end of the interval.
    pub(super) jitter_ns: f64,
}

impl IntervalDelta {
    /// Returns the counts added to the streams that this end sends or receives and whose position is `wanted`. `None`
    /// means that there is no such stream.
    pub(super) fn between(
        before: Option<&IntervalReading>,
        now: &IntervalReading,
        sends: bool,
        wanted: impl Fn(usize) -> bool,
    ) -> Option<Self> {
        let mut sum = None;
        for (place, stream) in now.streams.iter().enumerate() {
            if stream.sends != sends || !wanted(place) {
                continue;
            }
            let then = before
                .and_then(|before| before.streams.get(place))
                .map(|then| then.counts)
                .unwrap_or_default();
            let since = |count: fn(&ReceiverCounts) -> u64| {
                let now = count(&stream.counts).cast_signed();
                now.wrapping_sub(count(&then).cast_signed())
            };
            let added: &mut Self = sum.get_or_insert_default();
            added.bytes += since(|counts| counts.bytes);
            added.packets += since(|counts| counts.received);
            added.missing += since(ReceiverCounts::missing);
            added.expected += since(ReceiverCounts::expected);
            added.host_dropped += since(|counts| counts.host_dropped);
            added.duplicates += since(|counts| counts.duplicates);
            added.reordered += since(|counts| counts.reordered);
            added.jitter_ns = added.jitter_ns.max(stream.counts.jitter_ns);
        }
        sum
    }
}

/// Returns the length in microseconds of each interval that counts, and the payload bytes of the received stream at `place`
/// that arrived in it. The first interval began at `started`.
pub(super) fn arrivals(
    readings: &[IntervalReading],
    started: Instant,
    place: usize,
) -> Vec<[u64; 2]> {
    let mut before: Option<&IntervalReading> = None;
    let mut arrivals = Vec::new();
    for reading in readings {
        let began = before.map_or(started, |before| before.at);
        let added = IntervalDelta::between(before, reading, false, |at| at == place);
        if let Some(added) = added.filter(|_| reading.ending == ReadingKind::Counted) {
            let lasted = reading.at.saturating_duration_since(began).as_micros();
            let lasted = u64::try_from(lasted).unwrap_or(u64::MAX);
            arrivals.push([lasted, u64::try_from(added.bytes).unwrap_or(0)]);
        }
        before = Some(reading);
    }
    arrivals
}

/// Returns a line about the last complete interval. The first interval began at `started`.
pub(super) fn last_interval(readings: &[IntervalReading], started: Instant) -> String {
    let Some(end) = readings
        .iter()
        .rposition(|r| r.ending != ReadingKind::Nothing)
    else {
        return String::new();
    };
    let (before, last) = (readings[..end].last(), &readings[end]);
    let since = before.map_or(started, |reading| reading.at);
    let lasted = seconds(since, last.at).max(1e-9);
    let added = |sends| IntervalDelta::between(before, last, sends, |_| true);
    let mut parts = Vec::new();
    if let Some(sent) = added(true) {
        parts.push(format!(
            "{:.2} Mbit/s sent",
            sent.bytes as f64 * 8e-6 / lasted
        ));
    }
    if let Some(received) = added(false) {
        let (missing, expected) = (received.missing, received.expected);
        parts.push(format!(
            "{:.2} Mbit/s received, {missing} of {expected} missing ({:.3} %), jitter {:.3} ms",
            received.bytes as f64 * 8e-6 / lasted,
            100.0 * missing as f64 / expected.max(1) as f64,
            received.jitter_ns / 1e6
        ));
    }
    if last.ending == ReadingKind::Omitted {
        parts.push("omitted".to_owned());
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Returns a reading of a stream in each direction with this number of bytes in datagrams of 125 bytes. One in ten
    /// was lost on the way here.
    fn reading(started: Instant, after_s: u64, ending: ReadingKind, bytes: u64) -> IntervalReading {
        let datagrams = bytes / 125;
        let received = ReceiverCounts {
            received: datagrams,
            highest: datagrams + datagrams / 9,
            bytes,
            ..ReceiverCounts::default()
        };
        IntervalReading {
            at: started + Duration::from_secs(after_s),
            ending,
            streams: vec![
                StreamReading {
                    sends: true,
                    counts: ReceiverCounts {
                        received: datagrams,
                        bytes,
                        ..ReceiverCounts::default()
                    },
                },
                StreamReading {
                    sends: false,
                    counts: received,
                },
            ],
        }
    }

    #[test]
    fn the_end_of_the_omitted_start_is_no_interval() {
        let started = Instant::now();
        let readings = [
            (1, ReadingKind::Omitted, 1_125_000),
            (1, ReadingKind::Nothing, 0),
            (2, ReadingKind::Counted, 1_125_000),
        ]
        .map(|(after_s, ending, bytes)| reading(started, after_s, ending, bytes));
        let seen = "9.00 Mbit/s sent; 9.00 Mbit/s received, 1000 of 10000 missing (10.000 %), jitter 0.000 ms";
        assert_eq!(last_interval(&readings, started), seen);
        let omitted = format!("{seen}; omitted");
        assert_eq!(last_interval(&readings[..2], started), omitted);
        assert_eq!(last_interval(&[], started), "");
    }

    #[test]
    fn arrivals_are_those_of_each_interval_that_counts() {
        let started = Instant::now();
        let readings = [
            (1, ReadingKind::Omitted, 125_000),
            (1, ReadingKind::Nothing, 0),
            (2, ReadingKind::Counted, 1_125_000),
            (4, ReadingKind::Counted, 1_375_000),
        ]
        .map(|(after_s, ending, bytes)| reading(started, after_s, ending, bytes));
        let found = arrivals(&readings, started, 1);
        assert_eq!(found, [[1_000_000, 1_125_000], [2_000_000, 250_000]]);
        // The other stream is sent.
        assert!(arrivals(&readings, started, 0).is_empty());
    }
}
