//! The line of an interval, for a terminal.

use std::time::Instant;

use super::stream::{Ending, Reading, StreamReading};

/// What happened in the interval that ended last; `started` is when the first one began.
pub(super) fn interval(readings: &[Reading], started: Instant) -> String {
    let Some(end) = readings.iter().rposition(is_end) else {
        return String::new();
    };
    let (before, last) = (&readings[..end], &readings[end]);
    let since = before.last().map_or(started, |reading| reading.at);
    let lasted = seconds(since, last.at);
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
    let rate = |bytes: i64| bytes as f64 * 8e-6 / lasted.max(1e-9);
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
    if last.ending == Ending::Omitted {
        parts.push("omitted".to_owned());
    }
    parts.join("; ")
}

fn difference(now: u64, before: u64) -> i64 {
    now.cast_signed().wrapping_sub(before.cast_signed())
}

fn is_end(reading: &Reading) -> bool {
    reading.ending != Ending::Nothing
}

fn seconds(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::account::Tally;
    use super::super::stream::SentReading;
    use super::*;

    /// A stream each way: so many bytes in datagrams of 125, of which one in ten was lost on the way here.
    fn reading(started: Instant, after_s: u64, ending: Ending, bytes: u64) -> Reading {
        let datagrams = bytes / 125;
        let came = Tally {
            received: datagrams,
            highest: datagrams + datagrams / 9,
            bytes,
            ..Tally::default()
        };
        Reading {
            at: started + Duration::from_secs(after_s),
            ending,
            streams: vec![
                StreamReading::Sent(SentReading { datagrams, bytes }),
                StreamReading::Came(came),
            ],
        }
    }

    #[test]
    fn counting_anew_after_the_omitted_start_is_no_interval() {
        let started = Instant::now();
        let readings = [
            (1, Ending::Omitted, 1_125_000),
            (1, Ending::Nothing, 0),
            (2, Ending::Counted, 1_125_000),
        ]
        .map(|(after_s, ending, bytes)| reading(started, after_s, ending, bytes));
        let seen = "9.00 Mbit/s sent; 9.00 Mbit/s received, 1000 of 10000 missing (10.000 %), jitter 0.000 ms";
        assert_eq!(interval(&readings, started), seen);
        let omitted = format!("{seen}; omitted");
        assert_eq!(interval(&readings[..2], started), omitted);
        assert_eq!(interval(&[], started), "");
    }
}
