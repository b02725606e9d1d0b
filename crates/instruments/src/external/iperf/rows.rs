//! A line of iperf's enhanced reports.

use super::super::streams::amount;

/// A line that reports on one stream, or on their sum.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// As iperf numbers it; absent for the sum.
    pub(super) id: Option<u32>,
    pub(super) start_s: f64,
    pub(super) end_s: f64,
    pub(super) bytes: f64,
    pub(super) bit_per_s: f64,
    pub(super) details: Details,
}

/// What else a row says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Details {
    pub(super) retransmits: Option<f64>,
    pub(super) cwnd_bytes: Option<f64>,
    pub(super) rtt_ms: Option<f64>,
    pub(super) jitter_ms: Option<f64>,
    /// Lost and sent datagrams.
    pub(super) lost: Option<(f64, f64)>,
}

/// `[  1] 0.0000-1.0000 sec  626984 Bytes  5015872 bits/sec ...` and what its columns say.
pub(super) fn row(line: &str) -> Option<Row> {
    let (id, rest) = line.strip_prefix('[')?.split_once(']')?;
    let id = match id.trim().trim_start_matches('*') {
        "SUM" => None,
        number => Some(number.parse().ok()?),
    };
    let mut words = rest.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let mut expect = |unit| words.next().filter(|word| *word == unit);
    expect("sec")?;
    let bytes = amount(words.next()?)?;
    let mut expect = |unit| words.next().filter(|word| *word == unit);
    expect("Bytes")?;
    let bit_per_s = amount(words.next()?)?;
    let mut expect = |unit| words.next().filter(|word| *word == unit);
    expect("bits/sec")?;
    let rest: Vec<&str> = words.collect();
    Some(Row {
        id,
        start_s: amount(start)?,
        end_s: amount(end)?,
        bytes,
        bit_per_s,
        details: Details::of(&rest),
    })
}

impl Details {
    fn of(words: &[&str]) -> Self {
        match words {
            // 6435/0 0 1023K/81(19) us 20825886
            [_writes, retransmits, window, "us", ..] => {
                let (cwnd, rtt) = window.split_once('/').unwrap_or_default();
                let rtt_us = rtt.split('(').next().and_then(amount);
                Self {
                    retransmits: amount(retransmits),
                    cwnd_bytes: kibibytes(cwnd),
                    rtt_ms: rtt_us.map(|us| us / 1e3),
                    ..Self::default()
                }
            }
            // 0.000 ms 0/867 (0%)
            [jitter, "ms", counts, ..] => {
                let counts = counts.split_once('/');
                Self {
                    jitter_ms: amount(jitter),
                    lost: counts.and_then(|(lost, sent)| Some((amount(lost)?, amount(sent)?))),
                    ..Self::default()
                }
            }
            _ => Self::default(),
        }
    }
}

/// `1023K`.
fn kibibytes(text: &str) -> Option<f64> {
    amount(text.strip_suffix('K')?).map(|kib| kib * 1024.0)
}
