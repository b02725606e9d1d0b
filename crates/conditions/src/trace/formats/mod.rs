//! The formats of traces, a file for each.

mod cellreplay;
mod csv;
mod leoreplayer;
mod mahimahi;
mod netem_trace;
mod theaterq;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::str;

use model::LightLoad;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantNames};

use super::{Trace, TraceError};

/// The bytes from the beginning of a file by which its format is detected.
const HEAD: u64 = 64 << 10;

/// The longest line of a trace, in bytes.
const LONGEST_LINE: u64 = 1 << 20;

/// A format of traces.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    Display,
    EnumString,
    IntoStaticStr,
    VariantNames,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum TraceFormat {
    /// Mahimahi: a line for each time at which a full packet can be served, in whole milliseconds.
    Mahimahi,
    /// A table with a header of columns such as t,rate,delay,jitter,loss.
    Csv,
    /// TheaterQ: lines of whole numbers, which begin with the time for which each holds.
    #[serde(rename = "theaterq")]
    #[strum(serialize = "theaterq")]
    TheaterQ,
    /// JSON of the library netem-trace, which rattan reads.
    NetemTrace,
}

/// Reads a trace. Without a format, its content decides. Returns the format, too.
///
/// # Errors
/// Returns an error with the number of the line for content that is not in the format, and an error for content whose
/// format is unknown or that could have several.
pub fn read(
    mut source: impl Read,
    format: Option<TraceFormat>,
) -> Result<(Trace, TraceFormat), TraceError> {
    let mut head = Vec::new();
    source.by_ref().take(HEAD).read_to_end(&mut head)?;
    let format = match format {
        Some(format) => format,
        None => detect(&head)?,
    };
    let source = io::Cursor::new(head).chain(source);
    let trace = match format {
        TraceFormat::Mahimahi => mahimahi::read(&mut Lines::new(BufReader::new(source))),
        TraceFormat::Csv => csv::read(&mut Lines::new(BufReader::new(source))),
        TraceFormat::TheaterQ => theaterq::read(&mut Lines::new(BufReader::new(source))),
        TraceFormat::NetemTrace => netem_trace::read(source),
    };
    Ok((trace?, format))
}

/// Reads the delays of LeoReplayer's pair: a whole number of milliseconds on each line, for 10 ms each.
///
/// # Errors
/// Returns an error with the number of the line for content that is not of this form.
pub fn read_delays(source: impl Read) -> Result<Trace, TraceError> {
    leoreplayer::read(&mut Lines::new(BufReader::new(source)))
}

/// Reads the light load of CellReplay, a train of packets on each line.
///
/// # Errors
/// Returns an error with the number of the line for content that is not of this form.
pub fn read_light(source: impl Read) -> Result<LightLoad, TraceError> {
    cellreplay::read_light(&mut Lines::new(BufReader::new(source)))
}

/// Reads CellReplay's offsets of the delay by size, and returns them in nanoseconds for 100 bytes, 200 bytes, and so on.
///
/// # Errors
/// Returns an error with the number of the line for content that is not of this form.
pub fn read_offsets(source: impl Read) -> Result<Vec<i64>, TraceError> {
    cellreplay::read_offsets(&mut Lines::new(BufReader::new(source)))
}

/// Writes a light load as [`read_light`] reads it.
///
/// # Errors
/// Returns the errors of `target`.
pub(crate) fn write_light(load: &LightLoad, target: &mut impl Write) -> io::Result<()> {
    cellreplay::write_light(load, target)
}

/// Writes offsets as [`read_offsets`] reads them.
///
/// # Errors
/// Returns the errors of `target`.
pub(crate) fn write_offsets(offsets: &[i64], target: &mut impl Write) -> io::Result<()> {
    cellreplay::write_offsets(offsets, target)
}

/// Writes a trace in a format.
///
/// # Errors
/// Returns an error with the reason if the format cannot express the trace, and the errors of `target`.
pub fn write(trace: &Trace, format: TraceFormat, target: &mut impl Write) -> io::Result<()> {
    match format {
        TraceFormat::Mahimahi => mahimahi::write(trace, target),
        TraceFormat::Csv => csv::write(trace, target),
        TraceFormat::TheaterQ => theaterq::write(trace, target),
        TraceFormat::NetemTrace => Err(inexpressible(
            "netem-trace has a file for each quantity, so farwire reads its JSON and does not write it: write csv",
        )),
    }
}

/// The reason for which a trace has no form in a format.
fn inexpressible(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, why)
}

/// Returns the format of a file that begins with `head`.
fn detect(head: &[u8]) -> Result<TraceFormat, TraceError> {
    let whole = match str::from_utf8(head) {
        Ok(text) => text,
        // The end of the head may be in the middle of a letter.
        Err(error) if error.error_len().is_none() => {
            str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return Err(TraceError::whole("the file is not text")),
    };
    if whole.trim_start().starts_with('{') {
        return Ok(TraceFormat::NetemTrace);
    }
    let content = |(_, line): &(u64, &str)| !line.is_empty() && !line.starts_with('#');
    let mut lines = (1..).zip(whole.lines().map(str::trim)).filter(content);
    let Some((number, first)) = lines.next() else {
        return Err(TraceError::whole(
            "the file is empty: a trace needs at least one line",
        ));
    };
    if csv::is_header(first) {
        let is_ambiguous = |(_, line): &(u64, &str)| is_theaterq(line);
        if let Some((number, _)) = lines.next().filter(is_ambiguous) {
            return Err(TraceError::at(
                number,
                "numbers without units may be farwire's columns or TheaterQ's: write units, as in 0s,20mbit,30ms,2ms,0.1%, or name the \
                 format, as in FILE,theaterq",
            ));
        }
        return Ok(TraceFormat::Csv);
    }
    if is_whole(first) {
        return Ok(TraceFormat::Mahimahi);
    }
    if cellreplay::is_light(first) {
        return Err(TraceError::at(
            number,
            "this may be a light load of CellReplay, which belongs beside a full load: name that first, as in FULL,light=FILE",
        ));
    }
    let begins_with_digit = |line: &str| line.starts_with(|letter: char| letter.is_ascii_digit());
    let mut numbers = [(number, first)].into_iter().chain(lines);
    let first_numbers = numbers.find(|(_, line)| begins_with_digit(line));
    if first_numbers.is_some_and(|(_, line)| is_theaterq(line)) {
        return Ok(TraceFormat::TheaterQ);
    }
    Err(TraceError::at(
        number,
        format_args!(
            "`{}` begins no format that farwire knows: a table has a header such as {}, a Mahimahi trace a whole number in each line, TheaterQ \
             5 or 10 of them, and netem-trace's JSON an object",
            first.chars().take(40).collect::<String>(),
            csv::HEADER
        ),
    ))
}

/// Returns whether a line has the numbers of TheaterQ.
fn is_theaterq(line: &str) -> bool {
    let is_number = |cell: &str| is_whole(cell) || cell == "-1";
    theaterq::CELLS.contains(&line.split(',').count())
        && line.split(',').map(str::trim).all(is_number)
}

fn is_whole(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Reads a whole number.
fn whole(number: u64, what: &str, text: &str) -> Result<u64, TraceError> {
    let read = text.parse().ok().filter(|_| is_whole(text));
    read.ok_or_else(|| {
        let begin: String = text.chars().take(40).collect();
        TraceError::at(
            number,
            format_args!(
                "{what}: `{begin}` is not a whole number from 0 to {}",
                u64::MAX
            ),
        )
    })
}

/// The lines of a file, one after the other in the same memory.
pub(super) struct Lines<R> {
    source: R,
    line: Vec<u8>,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(source: R) -> Self {
        Self {
            source,
            line: Vec::new(),
            number: 0,
        }
    }

    /// Returns the number of the line that was read last, from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the number and the text of the next line, without white space at its ends.
    pub(super) fn next(&mut self) -> Result<Option<(u64, &str)>, TraceError> {
        self.line.clear();
        let mut limited = self.source.by_ref().take(LONGEST_LINE + 1);
        limited.read_until(b'\n', &mut self.line)?;
        if self.line.is_empty() {
            return Ok(None);
        }
        self.number += 1;
        if self.line.len() as u64 > LONGEST_LINE {
            return Err(TraceError::at(self.number, "the line is longer than 1 MiB"));
        }
        let text = str::from_utf8(&self.line);
        let text = text.map_err(|_| TraceError::at(self.number, "the line is not text"))?;
        Ok(Some((self.number, text.trim())))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Reads a text whose format is detected.
    pub(crate) fn trace(text: &str) -> Trace {
        read(text.as_bytes(), None).unwrap().0
    }

    /// Returns the message of a refusal.
    pub(crate) fn refusal(text: &str, format: Option<TraceFormat>) -> String {
        read(text.as_bytes(), format).unwrap_err().to_string()
    }

    /// Returns a trace in a format.
    pub(crate) fn written(trace: &Trace, format: TraceFormat) -> String {
        let mut text = Vec::new();
        write(trace, format, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn the_content_decides_the_format() {
        let format = |text: &str| read(text.as_bytes(), None).unwrap().1;
        assert_eq!(format("0\n0\n5\n"), TraceFormat::Mahimahi);
        assert_eq!(
            format("# a drive\nt,rate\n0s,1mbit\n1s,\n"),
            TraceFormat::Csv
        );
        assert_eq!(format("100,5,-1,0,10\n"), TraceFormat::TheaterQ);
        assert_eq!(
            format("keep,latency\n100,5,-1,0,10\n"),
            TraceFormat::TheaterQ
        );
        for (text, words) in [
            ("", "the file is empty: "),
            ("\n\n", "the file is empty: "),
            (
                "seconds,speed\n1,2\n",
                "line 1: `seconds,speed` begins no format",
            ),
            (
                "0 21 0 1\n",
                "line 1: this may be a light load of CellReplay",
            ),
            (
                "t,rate,delay,jitter,loss\n100,5,6,7,8\n",
                "line 2: numbers without units may be farwire's columns or TheaterQ's",
            ),
        ] {
            assert!(refusal(text, None).starts_with(words), "{text}");
        }
        let no_text = read(&b"\xff\xfe1\n"[..], None).unwrap_err().to_string();
        assert_eq!(no_text, "the file is not text");
    }
}
