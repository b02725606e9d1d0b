//! Mahimahi's traces (Netravali et al.: "Mahimahi: accurate record-and-replay for HTTP", USENIX ATC 2015).
//!
//! Each line is a whole number of milliseconds at which the link serves 1,504 bytes. A number may repeat, and 0 is one.
//! The last number is the length of the trace.

use std::io::{self, BufRead, Write};

use model::Nanos;

use super::{Lines, inexpressible, whole};
use crate::trace::{Builder, Columns, Trace, TraceError};

const MILLISECOND: u64 = 1_000_000;

/// Reads opportunities.
pub(super) fn read(lines: &mut Lines<impl BufRead>) -> Result<Trace, TraceError> {
    let mut builder = Builder::new(Columns::default());
    read_into(&mut builder, lines)?;
    builder.finish(lines.number(), None)
}

/// Reads opportunities into a trace that may have other parts.
pub(super) fn read_into(
    builder: &mut Builder,
    lines: &mut Lines<impl BufRead>,
) -> Result<(), TraceError> {
    while let Some((number, text)) = lines.next()? {
        if text.is_empty() {
            return Err(TraceError::at(
                number,
                "the line is empty: write a whole number of milliseconds in each line",
            ));
        }
        let ms = whole(number, "time", text)?;
        let at = ms.checked_mul(MILLISECOND).map(Nanos).ok_or_else(|| {
            TraceError::at(
                number,
                format_args!("{ms} milliseconds are more than 584 years"),
            )
        })?;
        builder.opportunity(number, at)?;
    }
    Ok(())
}

/// Writes opportunities.
pub(super) fn write(trace: &Trace, target: &mut impl Write) -> io::Result<()> {
    if !trace.has_opportunities() {
        return Err(inexpressible(
            "the trace has no times at which packets are served: convert its rate to such times first (mahimahi has no delay and no \
             loss)",
        ));
    }
    for at in trace.opportunities() {
        if !at.0.is_multiple_of(MILLISECOND) {
            return Err(inexpressible("mahimahi has whole milliseconds only"));
        }
        writeln!(target, "{}", at.0 / MILLISECOND)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::TraceFormat;
    use super::super::tests::{refusal, trace, written};
    use super::*;

    #[test]
    fn each_line_is_an_opportunity_and_the_last_one_the_length() {
        let read = trace("0\n0\n7\n7\r\n12");
        let times: Vec<u64> = read.opportunities().map(|at| at.0 / MILLISECOND).collect();
        assert_eq!(times, [0, 0, 7, 7, 12]);
        assert_eq!(read.length(), Nanos::from_millis(12));
        assert_eq!((read.lines(), read.steps().count()), (5, 0));
        let again = written(&read, TraceFormat::Mahimahi);
        assert_eq!(again, "0\n0\n7\n7\n12\n");
        assert_eq!(trace(&again), read);
    }

    #[test]
    fn invalid_traces_are_refused_with_their_line() {
        let refused = |text: &str| refusal(text, Some(TraceFormat::Mahimahi));
        for (text, words) in [
            ("", "the trace is empty"),
            (
                "0\n0\n",
                "line 2: all times are 0: the last time is the length",
            ),
            (
                "3\n2\n",
                "line 2: 2ms comes after 3ms: put the times in ascending order",
            ),
            ("3\n\n4\n", "line 2: the line is empty"),
            (
                "3\n-4\n",
                "line 2: time: `-4` is not a whole number from 0 to ",
            ),
            ("3\n+4\n", "line 2: time: `+4` is not a whole number"),
            ("3\n4.5\n", "line 2: time: `4.5` is not a whole number"),
            ("18446744073709551616\n", "line 1: time: "),
            (
                "18446744073709551615\n",
                "line 1: 18446744073709551615 milliseconds are more than",
            ),
        ] {
            assert!(
                refused(text).starts_with(words),
                "{text}: {}",
                refused(text)
            );
        }
    }
}
