//! The files of CellReplay beside the times of its full load (Sentosa et al.: "CellReplay: towards accurate
//! record-and-replay for cellular networks", NSDI 2025, and its program).
//!
//! A line of a light load is a train of packets: the time at which it began, the one-way delay of its first packet, and
//! the times at which its packets were delivered after that one, in milliseconds with blanks between them. CellReplay
//! writes whole ones; farwire also reads and writes fractions. A line of offsets is a size, 100 bytes more than the one
//! before, and the milliseconds that packets of it take longer.

use std::io::{self, BufRead, Write};

use model::{LightLoad, LightTrain, Nanos};

use super::{Lines, whole};
use crate::trace::{LONGEST, TraceError};

/// The most trains and deliveries of a light load. They are kept in memory.
const MOST_TRAINS: usize = 1 << 18;
const MOST_DELIVERIES: usize = 1 << 21;

/// The step of the sizes that have an offset, in bytes.
const SIZE_STEP: u64 = 100;

const MILLISECOND: u64 = 1_000_000;

/// The decimals of a number of milliseconds, so that it is one of nanoseconds.
const DECIMALS: usize = 6;

/// Reads a light load without offsets.
pub(super) fn read_light(lines: &mut Lines<impl BufRead>) -> Result<LightLoad, TraceError> {
    let mut trains: Vec<LightTrain> = Vec::new();
    let mut deliveries = 0;
    while let Some((number, text)) = lines.next()? {
        let train = train(number, text)?;
        check_order(number, trains.last(), &train)?;
        deliveries += train.deliveries.len();
        if trains.len() == MOST_TRAINS || deliveries > MOST_DELIVERIES {
            return Err(TraceError::at(
                number,
                format_args!(
                    "a light load has at most {MOST_TRAINS} lines and {MOST_DELIVERIES} deliveries: cut it into several files"
                ),
            ));
        }
        trains.push(train);
    }
    if trains.len() < 3 {
        return Err(TraceError::whole(
            "a light load has at least three lines, the last of which is its end",
        ));
    }
    LightLoad::new(trains, Vec::new()).map_err(|error| TraceError::at(lines.number(), error))
}

/// Reads a line of a light load.
fn train(number: u64, text: &str) -> Result<LightTrain, TraceError> {
    let mut words = text.split_ascii_whitespace();
    let mut next = |what: &str| {
        let word = words.next()?;
        Some(milliseconds(number, what, word))
    };
    let (Some(at), Some(delay)) = (next("time"), next("delay")) else {
        return Err(TraceError::at(
            number,
            "write a time, a delay and the times of deliveries in each line, as in 500 21 0 1 1 3",
        ));
    };
    let deliveries: Result<Vec<Nanos>, TraceError> =
        std::iter::from_fn(|| next("delivery")).collect();
    let train = LightTrain {
        at: at?,
        delay: delay?,
        deliveries: deliveries?,
    };
    let refused = |what: String| Err(TraceError::at(number, what));
    let last = train.deliveries.iter().copied().max();
    let Some(last) = last else {
        return refused(
            "a train has at least one delivery, that of its first packet: 0".to_owned(),
        );
    };
    for (what, time) in [("delay", train.delay), ("delivery", last)] {
        if time > LONGEST {
            return refused(format!("{what}: {time} is out of range: at most 3600s"));
        }
    }
    if let Some(pair) = train.deliveries.windows(2).find(|pair| pair[1] < pair[0]) {
        let (first, second) = (pair[0], pair[1]);
        return refused(format!(
            "{second} comes after {first}: put the deliveries in ascending order"
        ));
    }
    Ok(train)
}

fn check_order(
    number: u64,
    before: Option<&LightTrain>,
    train: &LightTrain,
) -> Result<(), TraceError> {
    let at = train.at;
    let what = match before {
        None if at > Nanos::ZERO => format!(
            "the first time is {at}: a light load begins at 0, so subtract that from all times"
        ),
        Some(before) if at < before.at => {
            format!(
                "{at} comes after {}: put the lines in order of time",
                before.at
            )
        }
        _ => return Ok(()),
    };
    Err(TraceError::at(number, what))
}

/// Reads a number of milliseconds with at most six decimals.
fn milliseconds(number: u64, what: &str, text: &str) -> Result<Nanos, TraceError> {
    if !is_milliseconds(text) {
        let begin: String = text.chars().take(40).collect();
        return Err(TraceError::at(
            number,
            format_args!(
                "{what}: `{begin}` is not a number of milliseconds from 0 on, with at most {DECIMALS} decimals"
            ),
        ));
    }
    let (before, after) = text.split_once('.').unwrap_or((text, ""));
    let ms = whole(number, what, before)?;
    let nanos = format!("{after:0<DECIMALS$}").parse().unwrap_or(0);
    let time = ms.checked_mul(MILLISECOND);
    let time = time.and_then(|time| time.checked_add(nanos)).map(Nanos);
    time.ok_or_else(|| {
        TraceError::at(
            number,
            format_args!("{what}: {ms} milliseconds are more than 584 years"),
        )
    })
}

/// Returns whether a word is a number of milliseconds.
fn is_milliseconds(word: &str) -> bool {
    match word.split_once('.') {
        None => super::is_whole(word),
        Some((before, after)) => {
            super::is_whole(before) && super::is_whole(after) && after.len() <= DECIMALS
        }
    }
}

/// Returns a time in milliseconds, with the decimals that it needs.
fn in_milliseconds(time: Nanos) -> String {
    let (ms, nanos) = (time.0 / MILLISECOND, time.0 % MILLISECOND);
    match nanos {
        0 => ms.to_string(),
        _ => format!("{ms}.{nanos:0>DECIMALS$}")
            .trim_end_matches('0')
            .to_owned(),
    }
}

/// Reads the offsets of the delay by size, in nanoseconds, for 100 bytes, 200 bytes, and so on.
pub(super) fn read_offsets(lines: &mut Lines<impl BufRead>) -> Result<Vec<i64>, TraceError> {
    let mut offsets = Vec::new();
    while let Some((number, text)) = lines.next()? {
        let mut words = text.split_ascii_whitespace();
        let (Some(size), Some(offset), None) = (words.next(), words.next(), words.next()) else {
            return Err(TraceError::at(
                number,
                "write a size in bytes and an offset in milliseconds in each line, as in 100 0.5",
            ));
        };
        let right = SIZE_STEP * (offsets.len() as u64 + 1);
        let size = whole(number, "size", size)?;
        if size != right {
            return Err(TraceError::at(
                number,
                format_args!(
                    "the size is {size}: the sizes are 100, 200, and so on, so write {right}"
                ),
            ));
        }
        offsets.push(offset_of(number, offset)?);
    }
    if offsets.is_empty() {
        return Err(TraceError::whole(
            "the file is empty: write a size and an offset in each line, as in 100 0.5",
        ));
    }
    Ok(offsets)
}

/// Reads a number of milliseconds, which may be below 0, and returns it in nanoseconds.
fn offset_of(number: u64, text: &str) -> Result<i64, TraceError> {
    let ms = text.parse::<f64>().ok().filter(|ms| ms.is_finite());
    let within = ms.map(|ms| ms * MILLISECOND as f64);
    match within.filter(|nanos| nanos.abs() <= LONGEST.0 as f64) {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "it is within an hour, which fits"
        )]
        Some(nanos) => Ok(nanos.round() as i64),
        None => {
            let begin: String = text.chars().take(40).collect();
            Err(TraceError::at(
                number,
                format_args!("offset: `{begin}` is not a number of milliseconds within an hour"),
            ))
        }
    }
}

/// Writes a light load as it is read.
pub(super) fn write_light(load: &LightLoad, target: &mut impl Write) -> io::Result<()> {
    for train in load.trains() {
        let [at, delay] = [train.at, train.delay].map(in_milliseconds);
        write!(target, "{at} {delay}")?;
        for after in &train.deliveries {
            write!(target, " {}", in_milliseconds(*after))?;
        }
        writeln!(target)?;
    }
    Ok(())
}

/// Writes offsets as they are read.
pub(super) fn write_offsets(offsets: &[i64], target: &mut impl Write) -> io::Result<()> {
    for (size, offset) in (1_u64..).zip(offsets) {
        let ms = *offset as f64 / MILLISECOND as f64;
        writeln!(target, "{} {ms}", size * SIZE_STEP)?;
    }
    Ok(())
}

/// Returns whether a line may be one of a light load.
pub(super) fn is_light(line: &str) -> bool {
    let mut words = line.split_ascii_whitespace();
    words.all(is_milliseconds) && line.split_ascii_whitespace().count() > 2
}

#[cfg(test)]
mod tests {
    use super::super::{read_light, read_offsets};
    use super::*;

    fn written(load: &LightLoad) -> String {
        let mut text = Vec::new();
        write_light(load, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_line_is_a_train_and_a_size_has_an_offset() {
        let text = "0 20 0 0 3\n500 31 0\n500 30 0 2\n900 25 0\n";
        let load = read_light(text.as_bytes()).unwrap();
        let first = &load.trains()[0];
        assert_eq!(
            (first.at, first.delay),
            (Nanos::ZERO, Nanos::from_millis(20))
        );
        assert_eq!(first.deliveries, [0, 0, 3].map(Nanos::from_millis));
        assert_eq!(load.length(), Nanos::from_millis(900));
        assert_eq!(written(&load), text);
        let text = "0 20.125 0 0.56 1.12\n500.5 31 0\n900 25.000001 0\n";
        let load = read_light(text.as_bytes()).unwrap();
        let first = &load.trains()[0];
        assert_eq!(first.delay, Nanos::from_micros(20_125));
        assert_eq!(first.deliveries, [0, 560, 1_120].map(Nanos::from_micros));
        assert_eq!(load.trains()[2].delay, Nanos(25_000_001));
        assert_eq!(written(&load), text);
        let offsets = read_offsets(&b"100 0.125\n200 -1.5\n300 2\n"[..]).unwrap();
        assert_eq!(offsets, [125_000, -1_500_000, 2_000_000]);
        let mut text = Vec::new();
        write_offsets(&offsets, &mut text).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "100 0.125\n200 -1.5\n300 2\n"
        );
    }

    #[test]
    fn invalid_light_loads_are_refused_with_their_line() {
        for (text, words) in [
            ("", "a light load has at least three lines"),
            ("0 5 0\n9 5 0\n", "a light load has at least three lines"),
            ("0 5 0\n\n9 5 0\n", "line 2: write a time, a delay and"),
            ("0 5 0\n9 5\n", "line 2: a train has at least one delivery"),
            (
                "3 5 0\n",
                "line 1: the first time is 3ms: a light load begins",
            ),
            (
                "0 5 0\n9 5 0\n8 5 0\n",
                "line 3: 8ms comes after 9ms: put the lines",
            ),
            (
                "0 5 0 3 2\n",
                "line 1: 2ms comes after 3ms: put the deliveries",
            ),
            ("0 4000000 0\n", "line 1: delay: 4000s is out of range"),
            ("0 5 4000000\n", "line 1: delivery: 4000s is out of range"),
            (
                "0 5 -1\n",
                "line 1: delivery: `-1` is not a number of milliseconds",
            ),
            (
                "0 5 1.\n",
                "line 1: delivery: `1.` is not a number of milliseconds",
            ),
            (
                "0 5.1234567 0\n",
                "line 1: delay: `5.1234567` is not a number of milliseconds",
            ),
            (
                "0 5 0\n0 5 0\n0 5 0\n",
                "line 3: a trace is out of range: the last train",
            ),
        ] {
            let refused = read_light(text.as_bytes()).unwrap_err().to_string();
            assert!(refused.starts_with(words), "{text}: {refused}");
        }
    }

    #[test]
    fn invalid_offsets_are_refused_with_their_line() {
        for (text, words) in [
            ("", "the file is empty"),
            ("200 1\n", "line 1: the size is 200: the sizes are 100, 200"),
            ("100 1\n300 1\n", "line 2: the size is 300: "),
            ("100\n", "line 1: write a size in bytes and an offset"),
            ("100 x\n", "line 1: offset: `x` is not a number"),
            (
                "100 1e9\n",
                "line 1: offset: `1e9` is not a number of milliseconds within",
            ),
        ] {
            let refused = read_offsets(text.as_bytes()).unwrap_err().to_string();
            assert!(refused.starts_with(words), "{text}: {refused}");
        }
    }
}
