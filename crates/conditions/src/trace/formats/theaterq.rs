//! Trace files of the TheaterQ qdisc (cs7org, "TheaterQ: Kernel Module for Dynamic Link Emulation", README, 2025).
//!
//! A line is KEEP,LATENCY,RATE,LOSS,LIMIT, or KEEP,LATENCY,JITTER,RATE,LOSS,LIMIT,DUP_PROB,DUP_DELAY,ROUTE_ID,QUEUE_ID.
//! KEEP is the time for which it holds in microseconds, the other times are nanoseconds, RATE is in bit/s with -1 for
//! none, and the probabilities are parts of 2^32 - 1. Lines that do not begin with a digit are passed over.

use std::io::{self, BufRead, Write};

use model::{Nanos, Probability};

use super::{Lines, inexpressible, whole};
use crate::trace::{Builder, Columns, Line, Trace, TraceError, share_of};

/// The number of cells of a simple line, and of an extended one.
pub(super) const CELLS: [usize; 2] = [5, 10];

/// 100 % as a scaled probability.
const WHOLE: u64 = u32::MAX as u64;

/// The longest time for which a line holds, in microseconds.
const LONGEST_KEEP: u64 = u64::MAX / 1_000;

/// Reads a trace file.
pub(super) fn read(lines: &mut Lines<impl BufRead>) -> Result<Trace, TraceError> {
    let mut trace: Option<Reading> = None;
    while let Some((number, text)) = lines.next()? {
        if !text.starts_with(|letter: char| letter.is_ascii_digit()) {
            continue;
        }
        let cells = text.split(',').count();
        let reading = trace.get_or_insert_with(|| Reading::new(cells));
        reading.add(number, text, cells)?;
    }
    let Some(Reading { builder, at, .. }) = trace else {
        return Err(TraceError::whole(
            "the trace is empty: it needs at least one line that begins with a digit",
        ));
    };
    builder.finish(lines.number(), Some(at))
}

/// A trace file that is being read.
struct Reading {
    cells: usize,
    builder: Builder,
    at: Nanos,
    /// The route and the queue of all lines.
    ids: Option<[u64; 2]>,
}

impl Reading {
    fn new(cells: usize) -> Self {
        let is_extended = cells == CELLS[1];
        Self {
            cells,
            builder: Builder::new(Columns {
                rate: true,
                delay: true,
                jitter: is_extended,
                loss: true,
                queue: true,
                duplicate: is_extended,
            }),
            at: Nanos::ZERO,
            ids: None,
        }
    }

    fn add(&mut self, number: u64, text: &str, cells: usize) -> Result<(), TraceError> {
        let refused = |what: String| Err(TraceError::at(number, what));
        if !CELLS.contains(&cells) || cells != self.cells {
            return refused(format!(
                "it has {cells} cells: TheaterQ's lines all have 5 (KEEP,LATENCY,RATE,LOSS,LIMIT), or all 10 \
                 (KEEP,LATENCY,JITTER,RATE,LOSS,LIMIT,DUP_PROB,DUP_DELAY,ROUTE_ID,QUEUE_ID)"
            ));
        }
        let mut cells = text.split(',').map(str::trim);
        let mut next = |name: &str| whole(number, name, cells.next().unwrap_or_default());
        let keep = next("KEEP")?;
        if keep == 0 || keep >= LONGEST_KEEP {
            return refused(format!(
                "KEEP: {keep} is out of range: a line holds for 1 to {} microseconds",
                LONGEST_KEEP - 1
            ));
        }
        let delay = Nanos(next("LATENCY")?);
        let is_extended = self.cells == CELLS[1];
        let jitter = if is_extended {
            Nanos(next("JITTER")?)
        } else {
            Nanos::ZERO
        };
        let (rate, is_stalled) = match cells.next().unwrap_or_default() {
            "-1" => (Line::UNLIMITED, false),
            text => {
                let rate = whole(number, "RATE", text)?;
                (rate, rate == 0)
            }
        };
        let mut next = |name: &str| whole(number, name, cells.next().unwrap_or_default());
        let loss = scaled(number, "LOSS", next("LOSS")?)?;
        let limit = next("LIMIT")?;
        let queue = u32::try_from(limit).ok().filter(|limit| *limit > 0);
        let Some(queue) = queue else {
            return refused(format!(
                "LIMIT: {limit} is out of range: a queue holds 1 to {} packets",
                u32::MAX
            ));
        };
        let mut line = Line {
            at: self.at,
            rate,
            is_stalled,
            delay,
            jitter,
            loss,
            queue,
            ..Line::default()
        };
        if is_extended {
            line.copies = scaled(number, "DUP_PROB", next("DUP_PROB")?)?;
            line.copies_after = Nanos(next("DUP_DELAY")?);
            let ids = [next("ROUTE_ID")?, next("QUEUE_ID")?];
            if *self.ids.get_or_insert(ids) != ids {
                return refused(
                    "ROUTE_ID and QUEUE_ID: a change of the route or the queue has no equivalent: a trace has one of each".to_owned(),
                );
            }
        }
        self.builder.step(number, line)?;
        self.at += Nanos::from_micros(keep);
        Ok(())
    }
}

/// Returns a probability that is scaled to 32 bits.
fn scaled(number: u64, name: &str, value: u64) -> Result<Probability, TraceError> {
    if value <= WHOLE {
        return Ok(share_of(value, WHOLE));
    }
    let what = format_args!("{name}: {value} is out of range: 100 % are {WHOLE}");
    Err(TraceError::at(number, what))
}

/// Writes a trace file, with simple lines where these express all.
pub(super) fn write(trace: &Trace, target: &mut impl Write) -> io::Result<()> {
    let Some(length) = trace
        .length_of_steps()
        .filter(|_| !trace.has_opportunities())
    else {
        return Err(inexpressible(
            "the trace has times at which packets are served, and TheaterQ has a rate: convert it to csv first",
        ));
    };
    let Columns {
        rate,
        jitter,
        queue,
        duplicate,
        ..
    } = trace.columns;
    let is_extended = jitter || duplicate;
    let mut lines = trace.steps().peekable();
    while let Some(line) = lines.next() {
        let end = lines.peek().map_or(length, |next| next.at);
        let keep = end - line.at;
        if !keep.0.is_multiple_of(1_000) {
            return Err(inexpressible(
                "TheaterQ has whole microseconds only for the time of a line",
            ));
        }
        write!(target, "{},{}", keep.0 / 1_000, line.delay.0)?;
        if is_extended {
            write!(target, ",{}", line.jitter.0)?;
        }
        match line.served() {
            Some(served) if rate => write!(target, ",{served}", served = served.get())?,
            None if line.is_stalled => write!(target, ",0")?,
            _ => write!(target, ",-1")?,
        }
        // A queue that the trace does not state has room for all packets.
        let limit = if queue { line.queue } else { u32::MAX };
        write!(target, ",{},{limit}", to_scaled(line.loss))?;
        if is_extended {
            write!(
                target,
                ",{},{},1,1",
                to_scaled(line.copies),
                line.copies_after.0
            )?;
        }
        writeln!(target)?;
    }
    Ok(())
}

fn to_scaled(share: Probability) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a probability times the largest number of 32 bits is at most that"
    )]
    let scaled = (share.fraction() * WHOLE as f64).round() as u32;
    scaled
}

#[cfg(test)]
mod tests {
    use super::super::TraceFormat;
    use super::super::tests::{refusal, trace, written};
    use super::*;

    #[test]
    fn simple_lines_are_read_to_the_nanosecond() {
        let text = "# KEEP,LATENCY,RATE,LOSS,LIMIT\n100000,20000001,5000000,42949673,100\nKEEP\n50000,30000000,-1,0,7\n";
        let read = trace(text);
        let lines: Vec<Line> = read.steps().collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].delay, Nanos(20_000_001));
        assert_eq!(lines[0].served().unwrap().get(), 5_000_000);
        assert!((lines[0].loss.percent() - 1.0).abs() < 1e-8);
        assert_eq!((lines[0].queue, lines[1].queue), (100, 7));
        assert_eq!(lines[1].at, Nanos::from_millis(100));
        assert_eq!(lines[1].rate, Line::UNLIMITED);
        assert_eq!(read.length(), Nanos::from_millis(150));
        let again = written(&read, TraceFormat::TheaterQ);
        assert_eq!(
            again,
            "100000,20000001,5000000,42949673,100\n50000,30000000,-1,0,7\n"
        );
        assert_eq!(trace(&again), read);
        // A table has all of it, too.
        assert_eq!(trace(&written(&read, TraceFormat::Csv)), read);
    }

    #[test]
    fn extended_lines_have_jitter_and_copies() {
        let text = "1000,5,6,0,7,8,4294967295,9,1,1\n2000,50,60,70,80,90,0,0,1,1\n";
        let read = trace(text);
        let lines: Vec<Line> = read.steps().collect();
        assert!(lines[0].is_stalled && !lines[1].is_stalled);
        assert_eq!((lines[0].jitter, lines[1].jitter), (Nanos(6), Nanos(60)));
        assert_eq!(lines[0].copies.percent(), 100.0);
        assert_eq!(lines[0].copies_after, Nanos(9));
        assert_eq!(written(&read, TraceFormat::TheaterQ), text);
    }

    #[test]
    fn invalid_lines_are_refused_with_line_and_field() {
        let refused = |text: &str| refusal(text, Some(TraceFormat::TheaterQ));
        for (text, words) in [
            ("KEEP\n", "the trace is empty: it needs"),
            ("0,1,2,3,4\n", "line 1: KEEP: 0 is out of range"),
            (
                "18446744073709551,1,2,3,4\n",
                "line 1: KEEP: 18446744073709551 is out of range",
            ),
            (
                "1,1,2,3,4\n1,1,2,3,4\n",
                "line 2: 1us comes after 0ms: a line must last at least 10us",
            ),
            (
                "10,1,2,3\n",
                "line 1: it has 4 cells: TheaterQ's lines all have 5",
            ),
            (
                "10,1,2,3,4\n10,1,2,3,4,5,6,7,8,9\n",
                "line 2: it has 10 cells",
            ),
            ("10,1,-2,3,4\n", "line 1: RATE: `-2` is not a whole number"),
            (
                "10,1,2,4294967296,4\n",
                "line 1: LOSS: 4294967296 is out of range: 100 % are 4294967295",
            ),
            ("10,1,2,3,0\n", "line 1: LIMIT: 0 is out of range"),
            (
                "10,1,2,3,4,5,6,7,1,1\n10,1,2,3,4,5,6,7,2,1\n",
                "line 2: ROUTE_ID and QUEUE_ID: a change",
            ),
            ("10,,2,3,4\n", "line 1: LATENCY: `` is not a whole number"),
            (
                "10,4000000000000,2,3,4\n",
                "line 1: delay: 4000s is out of range",
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
