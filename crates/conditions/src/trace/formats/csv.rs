//! farwire's own format: a table whose header names its columns, in the units of all conditions.
//!
//! ```text
//! t,rate,delay,jitter,loss
//! 0s,20mbit,30ms,2ms,0.1%
//! 15s,18mbit,34ms,,
//! 30s,,,,
//! ```
//!
//! The conditions of a line hold until the time of the next one. An empty cell is the value of the line before. A last
//! line with a time only is the end of the trace; without it, the last line holds as long as the one before.

use std::io::{self, BufRead, Write};
use std::str::FromStr;

use model::{BitsPerSec, Nanos, Probability, QueueLimit};

use super::{Lines, inexpressible};
use crate::trace::{Builder, Columns, Line, Trace, TraceError};

/// An example of a header.
pub(super) const HEADER: &str = "t,rate,delay,jitter,loss";

/// The names of all columns, in the order in which they are written.
const NAMES: [&str; 8] = [
    "t",
    "rate",
    "delay",
    "jitter",
    "loss",
    "queue",
    "duplicate",
    "duplicate_delay",
];

/// The word for a line without a rate.
const NO_RATE: &str = "none";

/// Returns whether a line is a header: its first column is the time, or all its columns are known.
pub(super) fn is_header(line: &str) -> bool {
    let mut names = line.split(',').map(str::trim);
    let begins_with_time = names.clone().next() == Some("t");
    begins_with_time || names.all(|name| NAMES.contains(&name))
}

/// Reads a table.
pub(super) fn read(lines: &mut Lines<impl BufRead>) -> Result<Trace, TraceError> {
    let names = loop {
        match lines.next()? {
            None => {
                return Err(TraceError::whole(
                    "the trace is empty: it needs a header and lines",
                ));
            }
            Some((_, text)) if text.is_empty() || text.starts_with('#') => {}
            Some((number, text)) => break header(number, text)?,
        }
    };
    let mut table = Table {
        builder: Builder::new(columns(&names)),
        names,
        line: Line::default(),
        interval: None,
        end: None,
    };
    while let Some((number, text)) = lines.next()? {
        if !text.is_empty() && !text.starts_with('#') {
            table.add(number, text)?;
        }
    }
    let Table {
        builder,
        interval,
        end,
        ..
    } = table;
    if builder.lines() == 0 {
        return Err(TraceError::whole("the trace has no lines below its header"));
    }
    let end = end.or(interval.map(|interval| builder.last() + interval));
    let one_line =
        "a trace of one line has no length: add a last line with only the time at which it ends";
    let end = end.ok_or_else(|| TraceError::at(lines.number(), one_line))?;
    builder.finish(lines.number(), Some(end))
}

/// Returns the columns that a header names.
fn header(number: u64, text: &str) -> Result<Vec<&'static str>, TraceError> {
    let refused = |what: String| Err(TraceError::at(number, what));
    let mut names: Vec<&'static str> = Vec::new();
    for name in text.split(',').map(str::trim) {
        let Some(known) = NAMES.iter().find(|known| **known == name) else {
            let begin: String = name.chars().take(40).collect();
            return refused(format!(
                "unknown column `{begin}`: the columns are {}",
                NAMES.join(", ")
            ));
        };
        if names.contains(known) {
            return refused(format!("the column {known} is there twice"));
        }
        names.push(known);
    }
    let has = |name: &str| names.contains(&name);
    if !has("t") {
        return refused(format!("the column t is missing, as in {HEADER}"));
    }
    if names.len() == 1 {
        return refused(format!(
            "t is the only column: add conditions, as in {HEADER}"
        ));
    }
    for (name, other) in [("queue", "rate"), ("duplicate_delay", "duplicate")] {
        if has(name) && !has(other) {
            return refused(format!("the column {name} needs the column {other}"));
        }
    }
    Ok(names)
}

fn columns(names: &[&str]) -> Columns {
    let has = |name: &str| names.contains(&name);
    Columns {
        rate: has("rate"),
        delay: has("delay"),
        jitter: has("jitter"),
        loss: has("loss"),
        queue: has("queue"),
        duplicate: has("duplicate"),
    }
}

/// A table that is being read.
struct Table {
    names: Vec<&'static str>,
    builder: Builder,
    line: Line,
    /// The time between the last two lines.
    interval: Option<Nanos>,
    /// The end that a line stated.
    end: Option<Nanos>,
}

impl Table {
    /// Adds a line.
    fn add(&mut self, number: u64, text: &str) -> Result<(), TraceError> {
        let refused = |what: String| Err(TraceError::at(number, what));
        if let Some(end) = self.end {
            return refused(format!(
                "it comes behind a line with the time {end} only, which ends the trace: give that one a value, or leave it out"
            ));
        }
        let is_first = self.builder.lines() == 0;
        let (mut cells, mut time, mut is_empty) = (0, None, true);
        for (place, cell) in text.split(',').map(str::trim).enumerate() {
            cells += 1;
            let Some(name) = self.names.get(place).copied() else {
                continue;
            };
            if name == "t" {
                time = Some(value::<Nanos>(number, name, cell)?);
            } else if !cell.is_empty() {
                is_empty = false;
                set(&mut self.line, number, name, cell)?;
            } else if is_first {
                return refused(format!(
                    "{name} is missing in the first line: write a value; a rate of 0bit would be a deliberate stall"
                ));
            }
        }
        let columns = self.names.len();
        if cells != columns {
            return refused(format!("it has {cells} cells, and the header {columns}"));
        }
        let Some(at) = time else {
            return refused(format!("t is missing, as in {HEADER}"));
        };
        if is_empty {
            self.end = Some(at);
            return Ok(());
        }
        self.interval = (!is_first).then(|| at - self.builder.last());
        self.line.at = at;
        self.builder.step(number, self.line)
    }
}

/// Sets a value of a line.
fn set(line: &mut Line, number: u64, name: &str, cell: &str) -> Result<(), TraceError> {
    match name {
        "rate" => {
            line.is_stalled = is_zero(cell);
            if cell == NO_RATE {
                line.rate = Line::UNLIMITED;
            } else if !line.is_stalled {
                line.rate = value::<BitsPerSec>(number, name, cell)?.get();
            }
        }
        "delay" => line.delay = value(number, name, cell)?,
        "jitter" => line.jitter = value(number, name, cell)?,
        "loss" => line.loss = value::<Probability>(number, name, cell)?,
        "queue" => match value(number, name, cell)? {
            QueueLimit::Packets(packets) => line.queue = packets,
            other => {
                let what = format_args!("queue: {other}: write packets, as in 100pkt");
                return Err(TraceError::at(number, what));
            }
        },
        "duplicate" => line.copies = value::<Probability>(number, name, cell)?,
        _ => line.copies_after = value(number, name, cell)?,
    }
    Ok(())
}

/// Returns whether a rate is 0, in any unit.
fn is_zero(cell: &str) -> bool {
    let digits = cell.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let has_unit = digits.len() < cell.len();
    has_unit && digits.parse::<f64>().is_ok_and(|number| number == 0.0) && {
        let unit = &cell[digits.len()..];
        format!("1{unit}").parse::<BitsPerSec>().is_ok()
    }
}

fn value<T: FromStr<Err: std::fmt::Display>>(
    number: u64,
    name: &str,
    cell: &str,
) -> Result<T, TraceError> {
    let read = cell.parse::<T>();
    read.map_err(|error| TraceError::at(number, format_args!("{name}: {error}")))
}

/// Writes a table.
pub(super) fn write(trace: &Trace, target: &mut impl Write) -> io::Result<()> {
    let Some(length) = trace.length_of_steps() else {
        return Err(inexpressible(
            "the trace has times at which packets are served, and a table has a rate: convert these times to a rate first",
        ));
    };
    if trace.has_opportunities() {
        return Err(inexpressible(
            "the trace has times at which packets are served beside its delays, which a table cannot have",
        ));
    }
    let Columns {
        rate,
        delay,
        jitter,
        loss,
        queue,
        duplicate,
    } = trace.columns;
    let is_there = [true, rate, delay, jitter, loss, queue, duplicate, duplicate];
    let names = NAMES.iter().zip(is_there);
    let names = names
        .filter(|(_, is_there)| *is_there)
        .map(|(name, _)| *name);
    let names: Vec<&str> = names.collect();
    writeln!(target, "{}", names.join(","))?;
    for line in trace.steps() {
        write!(target, "{}", line.at)?;
        for name in &names[1..] {
            match *name {
                "rate" if line.is_stalled => write!(target, ",0bit")?,
                "rate" => match line.served() {
                    Some(rate) => write!(target, ",{rate}")?,
                    None => write!(target, ",{NO_RATE}")?,
                },
                "delay" => write!(target, ",{}", line.delay)?,
                "jitter" => write!(target, ",{}", line.jitter)?,
                "loss" => write!(target, ",{}", line.loss)?,
                "queue" => write!(target, ",{}", QueueLimit::Packets(line.queue))?,
                "duplicate" => write!(target, ",{}", line.copies)?,
                _ => write!(target, ",{}", line.copies_after)?,
            }
        }
        writeln!(target)?;
    }
    writeln!(target, "{length}{}", ",".repeat(names.len() - 1))
}

#[cfg(test)]
mod tests {
    use super::super::TraceFormat;
    use super::super::tests::{refusal, trace, written};
    use super::*;

    const TABLE: &str = "# a drive\nt,rate,delay,jitter,loss\n0s,20mbit,30ms,2ms,0.1%\n1.5s,0bit,,,\n\n2s,18mbit,34.000001ms,0ms,\n";

    #[test]
    fn a_line_holds_until_the_next_one_and_empty_cells_are_those_before() {
        let read = trace(TABLE);
        let lines: Vec<Line> = read.steps().collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[1].at, Nanos::from_millis(1_500));
        assert!(lines[1].is_stalled && lines[1].rate == 20_000_000);
        assert_eq!(lines[1].delay, lines[0].delay);
        assert_eq!(lines[2].served().unwrap().get(), 18_000_000);
        assert_eq!(lines[2].delay, Nanos(34_000_001));
        assert_eq!(lines[2].loss.percent(), 0.1);
        assert_eq!(read.length(), Nanos::from_millis(2_500));
        let again = written(&read, TraceFormat::Csv);
        assert_eq!(
            again,
            "t,rate,delay,jitter,loss\n0ms,20mbit,30ms,2ms,0.1%\n1.5s,0bit,30ms,2ms,0.1%\n2s,18mbit,34.000001ms,0ms,0.1%\n2.5s,,,,\n"
        );
        assert_eq!(trace(&again), read);
    }

    #[test]
    fn all_columns_survive_being_written() {
        let text = "t,rate,delay,jitter,loss,queue,duplicate,duplicate_delay\n\
                    0ms,none,1ns,2ns,100%,7pkt,50%,3ms\n1s,1bit,1h,0ms,0.012345678901234567%,1pkt,0%,0ms\n4s,,,,,,,\n";
        let read = trace(text);
        assert!(read.extremes.is_unlimited);
        let again = trace(&written(&read, TraceFormat::Csv));
        assert_eq!(again, read);
        assert!(again.steps().eq(read.steps()));
        assert_eq!(again.length(), Nanos::from_secs(4));
    }

    #[test]
    fn invalid_tables_are_refused_with_line_and_column() {
        for (text, words) in [
            ("t,rate\n", "the trace has no lines below its header"),
            (
                "t,rate\n0s,1mbit\n",
                "line 2: a trace of one line has no length: add",
            ),
            (
                "t,rate\n0s,\n",
                "line 2: rate is missing in the first line: write a value; a rate of 0bit would be",
            ),
            (
                "t,rate\n0s,1mbit\n1s,20\n",
                "line 3: rate: `20` has no unit: write a rate",
            ),
            (
                "t,rate\n0s,1mbit\n1s,-\n",
                "line 3: rate: `-` is not a rate",
            ),
            (
                "t,rate\n0s,1mbit\n2s,2mbit\n1s,1mbit\n",
                "line 4: 1s comes after 2s: put the lines in order",
            ),
            (
                "t,rate\n0s,1mbit\n0s,2mbit\n",
                "line 3: 0ms comes after 0ms: a line must last at least 10us",
            ),
            (
                "t,rate\n1s,1mbit\n2s,2mbit\n",
                "line 2: the first time is 1s: a trace begins at 0s",
            ),
            (
                "t,rate\n0s,1mbit\n1s,\n2s,1mbit\n",
                "line 4: it comes behind a line with the time 1s only",
            ),
            (
                "t,rate\n0s,1mbit,\n",
                "line 2: it has 3 cells, and the header 2",
            ),
            (
                "t,speed\n",
                "line 1: unknown column `speed`: the columns are t, rate, delay",
            ),
            ("t,rate,rate\n", "line 1: the column rate is there twice"),
            ("t\n0s\n", "line 1: t is the only column: add conditions"),
            ("rate,delay\n", "line 1: the column t is missing"),
            (
                "t,queue\n",
                "line 1: the column queue needs the column rate",
            ),
            (
                "t,delay\n0s,2h\n1s,\n",
                "line 2: delay: 7200s is out of range: at most 3600s",
            ),
            ("t,loss\n0s,101%\n", "line 2: loss: `101%` is out of range"),
            ("t,rate\n0s,0bit\n1s,\n", "the rate is always 0"),
            (
                "t,rate,queue\n0s,1mbit,10ms\n",
                "line 2: queue: 10ms: write packets",
            ),
        ] {
            let refused = refusal(text, Some(TraceFormat::Csv));
            assert!(refused.starts_with(words), "{text}: {refused}");
        }
    }
}
