//! The line of an interval, for a terminal.

use std::time::Instant;

use super::stream::{Reading, StreamReading};

/// A line for each interval, as it was shown when it ended.
pub(super) fn all(readings: &[Reading], started: Instant) -> String {
    let line = |count| {
        let readings = &readings[..count];
        let end = readings.last().map_or(started, |reading| reading.at);
        let at = end.saturating_duration_since(started).as_secs_f64();
        format!("{at:.2} s: {}\n", interval(readings, started))
    };
    (1..=readings.len()).map(line).collect()
}

/// What happened between the last two readings; `began` is when the first interval began.
pub(super) fn interval(readings: &[Reading], began: Instant) -> String {
    let Some((last, before)) = readings.split_last() else {
        return String::new();
    };
    let since = before.last().map_or(began, |reading| reading.at);
    let seconds = last.at.saturating_duration_since(since).as_secs_f64();
    let [mut sent, mut came, mut missing, mut expected] = [0_i64; 4];
    let (mut sends, mut receives, mut jitter_ns) = (false, false, 0.0_f64);
    for (index, stream) in last.streams.iter().enumerate() {
        let before = before.last().and_then(|before| before.streams.get(index));
        match (stream, before) {
            (StreamReading::Sent(now), before) => {
                sends = true;
                let earlier = match before {
                    Some(StreamReading::Sent(then)) => then.bytes,
                    _ => 0,
                };
                sent += difference(now.bytes, earlier);
            }
            (StreamReading::Came(tally), before) => {
                receives = true;
                let earlier = match before {
                    Some(StreamReading::Came(tally)) => *tally,
                    _ => Default::default(),
                };
                came += difference(tally.bytes, earlier.bytes);
                missing += difference(tally.missing(), earlier.missing());
                expected += difference(tally.expected(), earlier.expected());
                jitter_ns = jitter_ns.max(tally.jitter_ns);
            }
        }
    }
    let mut parts = Vec::new();
    let rate = |bytes: i64| bytes as f64 * 8e-6 / seconds.max(1e-9);
    if sends {
        parts.push(format!("{:.2} Mbit/s sent", rate(sent)));
    }
    if receives {
        let percent = 100.0 * missing as f64 / expected.max(1) as f64;
        parts.push(format!(
            "{:.2} Mbit/s received, {missing} of {expected} missing ({percent:.3} %), jitter {:.3} ms",
            rate(came),
            jitter_ns / 1e6
        ));
    }
    if last.omitted {
        parts.push("omitted".to_owned());
    }
    parts.join("; ")
}

fn difference(now: u64, before: u64) -> i64 {
    now.cast_signed().wrapping_sub(before.cast_signed())
}
