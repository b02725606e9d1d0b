//! The delays of LeoReplayer's pair of files (LeoReplayer, SIGCOMM 2025, its example of Cubic).
//!
//! Its file of the bottleneck is a trace of Mahimahi. The other one has a whole number of milliseconds on each line, the
//! one-way delay for 10 ms. Both begin again after their own length.

use std::io::BufRead;

use model::Nanos;

use super::{Lines, whole};
use crate::trace::{Builder, Columns, Line, Trace, TraceError};

/// The time for which a line holds.
const EVERY: Nanos = Nanos::from_millis(10);

/// Reads delays.
pub(super) fn read(lines: &mut Lines<impl BufRead>) -> Result<Trace, TraceError> {
    let mut builder = Builder::new(Columns {
        delay: true,
        ..Columns::default()
    });
    let (mut at, mut before) = (Nanos::ZERO, None);
    while let Some((number, text)) = lines.next()? {
        if text.is_empty() {
            return Err(TraceError::at(
                number,
                "the line is empty: write a whole number of milliseconds in each line",
            ));
        }
        let delay = Nanos::from_millis(whole(number, "delay", text)?);
        if before != Some(delay) {
            let line = Line {
                at,
                delay,
                ..Line::default()
            };
            builder.step(number, line)?;
        }
        before = Some(delay);
        at += EVERY;
    }
    builder.finish(lines.number(), Some(at))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{trace, written};
    use super::super::{TraceFormat, read_delays};
    use super::*;

    #[test]
    fn a_line_is_the_delay_for_ten_milliseconds() {
        let delays = read_delays(&b"20\n20\n25\n"[..]).unwrap();
        assert_eq!(
            written(&delays, TraceFormat::Csv),
            "t,delay\n0ms,20ms\n20ms,25ms\n30ms,\n"
        );
        let both = trace("0\n7\n").with_steps_of(delays.clone()).unwrap();
        assert!(both.has_opportunities() && both.columns.delay);
        assert_eq!(both.length(), Nanos::from_millis(7));
        assert_eq!(both.length_of_steps(), Some(Nanos::from_millis(30)));
        assert_eq!(both.opportunities_alone(), Some(trace("0\n7\n")));
        let only_delay = Columns {
            delay: true,
            ..Columns::default()
        };
        let alone = both.only(only_delay).unwrap();
        assert_eq!(
            written(&alone, TraceFormat::Csv),
            written(&delays, TraceFormat::Csv)
        );
        let described = both.describe().unwrap();
        assert_eq!(described.delay_ms.unwrap().greatest, 25.0);
        assert!(described.rate_bit_per_s.is_some());
        assert_eq!(both.steps_alone(), Some(delays));
    }

    #[test]
    fn invalid_delays_are_refused_with_their_line() {
        let refused = |text: &str| read_delays(text.as_bytes()).unwrap_err().to_string();
        assert!(refused("").starts_with("the trace is empty"));
        assert!(refused("5\n\n6\n").starts_with("line 2: the line is empty"));
        assert!(refused("5\n-1\n").starts_with("line 2: delay: `-1` is not a whole number"));
        assert!(refused("4000000\n").starts_with("line 1: delay: 4000s is out of range"));
        let table = trace("t,delay\n0s,1ms\n1s,\n");
        let error = table.clone().with_steps_of(table).unwrap_err().to_string();
        assert!(error.starts_with("only a trace of times"), "{error}");
    }
}
