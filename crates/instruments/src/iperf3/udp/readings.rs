//! How far the streams were at the end of each interval, and a line about it for a terminal.

use std::time::Instant;

use super::receiver_stats::ReceiverCounts;

/// How far all streams were at the end of an interval.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    /// When that was.
    pub(crate) at: Instant,
    /// What ends here.
    pub(crate) ending: Ending,
    /// One a stream.
    pub(crate) streams: Vec<StreamReading>,
}

/// What ends at a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// An interval that counts.
    Counted,
    /// An interval of the omitted start.
    Omitted,
    /// No interval: what follows is counted anew from here.
    Nothing,
}

/// How far one stream was.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StreamReading {
    /// What this end sent.
    Sent(SentReading),
    /// What came to this end.
    Came(ReceiverCounts),
}

/// How much was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SentReading {
    /// Datagrams.
    pub(crate) datagrams: u64,
    /// Payload bytes.
    pub(crate) bytes: u64,
}

impl Reading {
    fn is_end(&self) -> bool {
        self.ending != Ending::Nothing
    }

    /// What stream `index` sent, if this end sends it.
    fn sent(&self, index: usize) -> Option<SentReading> {
        match self.streams.get(index)? {
            StreamReading::Sent(sent) => Some(*sent),
            StreamReading::Came(_) => None,
        }
    }

    /// What came on stream `index`, if this end receives it.
    fn came(&self, index: usize) -> Option<ReceiverCounts> {
        match self.streams.get(index)? {
            StreamReading::Sent(_) => None,
            StreamReading::Came(came) => Some(*came),
        }
    }
}

/// A line for each interval, as it was shown when it ended.
pub(super) fn lines(readings: &[Reading], started: Instant) -> String {
    let line = |(reading, count): (&Reading, usize)| {
        let at = seconds(started, reading.at);
        let interval = last_interval(&readings[..count], started);
        format!("{at:.2} s: {interval}\n")
    };
    let ends = readings.iter().zip(1..).filter(|(end, _)| end.is_end());
    ends.map(line).collect()
}

/// What happened in the interval that ended last; `started` is when the first one began.
pub(super) fn last_interval(readings: &[Reading], started: Instant) -> String {
    let Some(end) = readings.iter().rposition(Reading::is_end) else {
        return String::new();
    };
    let (before, last) = (readings[..end].last(), &readings[end]);
    let since = before.map_or(started, |reading| reading.at);
    let lasted = seconds(since, last.at);
    let [mut sent, mut came, mut missing, mut expected] = [0_i64; 4];
    let (mut sends, mut receives, mut jitter_ns) = (false, false, 0.0_f64);
    for index in 0..last.streams.len() {
        if let Some(now) = last.sent(index) {
            sends = true;
            let then = before.and_then(|before| before.sent(index));
            sent += difference(now.bytes, then.unwrap_or_default().bytes);
        }
        if let Some(now) = last.came(index) {
            receives = true;
            let then = before.and_then(|before| before.came(index));
            let then = then.unwrap_or_default();
            came += difference(now.bytes, then.bytes);
            missing += difference(now.missing(), then.missing());
            expected += difference(now.expected(), then.expected());
            jitter_ns = jitter_ns.max(now.jitter_ns);
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

fn seconds(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A stream each way: so many bytes in datagrams of 125, of which one in ten was lost on the way here.
    fn reading(started: Instant, after_s: u64, ending: Ending, bytes: u64) -> Reading {
        let datagrams = bytes / 125;
        let came = ReceiverCounts {
            received: datagrams,
            highest: datagrams + datagrams / 9,
            bytes,
            ..ReceiverCounts::default()
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
        assert_eq!(
            lines(&readings, started),
            format!("1.00 s: {seen}; omitted\n2.00 s: {seen}\n")
        );
        let omitted = format!("{seen}; omitted");
        assert_eq!(last_interval(&readings[..2], started), omitted);
        assert_eq!(last_interval(&[], started), "");
    }
}
