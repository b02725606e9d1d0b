//! Traces made from samples, such as the throughput that a data set has for each second.

use std::io::{BufReader, Read};

use model::Nanos;
use strum::{EnumString, VariantNames};

use super::formats::Lines;
use super::{Builder, Columns, Line, Trace, TraceError};

/// The samples of a file, and how they become a trace.
#[derive(Clone, Debug)]
pub struct Samples {
    /// The column: a name of the header, or a number from 1.
    pub column: String,
    /// The unit of a sample.
    pub unit: SampleUnit,
    /// The time between two samples.
    pub every: Nanos,
    /// The number of lines into which a sample is divided, at least 1. With 1 a sample holds until the next one; else
    /// the lines between two samples lie on the straight line between them.
    pub parts: u32,
}

/// A unit of samples: a rate, or a delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum SampleUnit {
    /// bit/s.
    Bit,
    /// kbit/s.
    Kbit,
    /// Mbit/s.
    Mbit,
    /// Gbit/s.
    Gbit,
    /// Milliseconds of a round trip, of which half is the delay of each direction.
    RttMs,
    /// Milliseconds of a delay.
    Ms,
}

impl SampleUnit {
    /// Returns whether it is a unit of rates.
    pub fn is_rate(self) -> bool {
        !matches!(self, Self::RttMs | Self::Ms)
    }

    /// Returns the base units, bit/s or nanoseconds, of one.
    fn multiple(self) -> f64 {
        match self {
            Self::Bit => 1.0,
            Self::Kbit => 1e3,
            Self::Mbit => 1e6,
            Self::Gbit => 1e9,
            Self::RttMs => 5e5,
            Self::Ms => 1e6,
        }
    }
}

impl Samples {
    /// Reads a trace. Cells are separated by commas, semicolons, tabs or blanks; the first line may be a header. Lines
    /// that begin with `#` and empty ones are passed over.
    ///
    /// # Errors
    /// Returns an error with the line for a cell that is no number, and for fewer than two samples.
    pub fn read(&self, source: impl Read) -> Result<Trace, TraceError> {
        let mut lines = Lines::new(BufReader::new(source));
        let columns = Columns {
            rate: self.unit.is_rate(),
            delay: !self.unit.is_rate(),
            ..Columns::default()
        };
        let mut made = Made {
            builder: Builder::new(columns),
            at: Nanos::ZERO,
            samples: self,
        };
        let mut place = None;
        let mut before = None;
        while let Some((number, text)) = lines.next()? {
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let place = match place {
                Some(place) => place,
                None => {
                    let (found, is_header) = self.place(number, text)?;
                    place = Some(found);
                    if is_header {
                        continue;
                    }
                    found
                }
            };
            let value = self.value(number, cells(text).nth(place))?;
            if let Some(before) = before {
                made.add(number, before, value)?;
            }
            before = Some(value);
        }
        let number = lines.number();
        let last = before.ok_or_else(|| TraceError::whole("the file has no samples"))?;
        made.add(number, last, last)?;
        let end = made.at;
        made.builder.finish(number, Some(end))
    }

    /// Returns the place of the column, and whether the line is a header.
    fn place(&self, number: u64, text: &str) -> Result<(usize, bool), TraceError> {
        let column = &self.column;
        let Some(place) = column.parse::<usize>().ok().and_then(|n| n.checked_sub(1)) else {
            let named = cells(text).position(|cell| cell.trim_matches('"') == column);
            if let Some(named) = named {
                return Ok((named, true));
            }
            let known: Vec<&str> = cells(text).take(40).collect();
            return Err(TraceError::at(
                number,
                format_args!(
                    "there is no column `{column}`: write the number of a column, or a name of the header ({})",
                    known.join(", ").chars().take(200).collect::<String>()
                ),
            ));
        };
        let cell = cells(text).nth(place);
        Ok((place, cell.is_some_and(|cell| cell.parse::<f64>().is_err())))
    }

    /// Returns a sample in base units.
    fn value(&self, number: u64, cell: Option<&str>) -> Result<f64, TraceError> {
        let column = &self.column;
        let cell = cell
            .ok_or_else(|| TraceError::at(number, format_args!("there is no column {column}")))?;
        let value = cell.trim_matches('"').parse::<f64>().ok();
        let value = value.filter(|value| (0.0..1e15).contains(value));
        let value = value.ok_or_else(|| {
            let begin: String = cell.chars().take(40).collect();
            TraceError::at(
                number,
                format_args!(
                    "{column}: `{begin}` is not a number of at least 0: leave a missing sample out, or write the one before; 0 is a stall"
                ),
            )
        })?;
        Ok(value * self.unit.multiple())
    }
}

/// The trace of samples so far.
struct Made<'s> {
    builder: Builder,
    at: Nanos,
    samples: &'s Samples,
}

impl Made<'_> {
    /// Adds the lines from a sample to the next one.
    fn add(&mut self, number: u64, from: f64, to: f64) -> Result<(), TraceError> {
        let parts = self.samples.parts.max(1);
        let every = self.samples.every;
        let begin = self.at;
        for part in 0..parts {
            let share = f64::from(part) / f64::from(parts);
            let value = (from + (to - from) * share).round();
            #[expect(
                clippy::cast_possible_truncation,
                reason = "a sample is at most 10^15 times a unit, and what is cut off is refused"
            )]
            let value = value.min(1e18) as u64;
            let at = begin + Nanos(every.0 / u64::from(parts) * u64::from(part));
            let line = match self.samples.unit.is_rate() {
                true => Line {
                    at,
                    rate: value,
                    is_stalled: value == 0,
                    ..Line::default()
                },
                false => Line {
                    at,
                    delay: Nanos(value),
                    ..Line::default()
                },
            };
            self.builder.step(number, line)?;
        }
        self.at = begin + every;
        Ok(())
    }
}

/// Returns the cells of a line.
fn cells(text: &str) -> impl Iterator<Item = &str> {
    let separator = [',', ';', '\t'].into_iter().find(|c| text.contains(*c));
    let is_separator = move |c: char| match separator {
        Some(separator) => c == separator,
        None => c == ' ',
    };
    let cells = text.split(is_separator).map(str::trim);
    cells.filter(move |cell| separator.is_some() || !cell.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::TraceFormat;
    use super::super::formats::tests::written;
    use super::*;

    fn samples(column: &str, unit: SampleUnit, parts: u32) -> Samples {
        Samples {
            column: column.to_owned(),
            unit,
            every: Nanos::from_secs(1),
            parts,
        }
    }

    #[test]
    fn a_sample_holds_for_its_interval() {
        let text = "when,\"down\",up\n# morning\n10:00,12.5,3\n10:01,0,3\n\n10:02,7,4\n";
        let made = |column: &str| {
            let samples = samples(column, SampleUnit::Mbit, 1);
            written(&samples.read(text.as_bytes()).unwrap(), TraceFormat::Csv)
        };
        assert_eq!(
            made("down"),
            "t,rate\n0ms,12.5mbit\n1s,0bit\n2s,7mbit\n3s,\n"
        );
        assert_eq!(made("2"), made("down"));
    }

    #[test]
    fn samples_are_joined_by_straight_lines() {
        let joined = samples("1", SampleUnit::RttMs, 4);
        let trace = joined.read(&b"40\n80\n"[..]).unwrap();
        let delays: Vec<u64> = trace.steps().map(|line| line.delay.0 / 1_000_000).collect();
        assert_eq!(delays, [20, 25, 30, 35, 40, 40, 40, 40]);
        assert_eq!(trace.length(), Nanos::from_secs(2));
    }

    #[test]
    fn invalid_samples_are_refused_with_line_and_column() {
        let refused = |column: &str, text: &str| {
            let samples = samples(column, SampleUnit::Mbit, 1);
            samples.read(text.as_bytes()).unwrap_err().to_string()
        };
        for (column, text, words) in [
            (
                "down",
                "a b\n1 2\n",
                "line 1: there is no column `down`: write the number of a column, or a name of the header (a, b)",
            ),
            ("2", "1,2\n3\n", "line 2: there is no column 2"),
            (
                "1",
                "1\n-\n",
                "line 2: 1: `-` is not a number of at least 0: leave a missing sample out",
            ),
            ("1", "1\n-2\n", "line 2: 1: `-2` is not a number"),
            ("1", "\n", "the file has no samples"),
            ("1", "0\n0\n", "the rate is always 0"),
        ] {
            assert!(
                refused(column, text).starts_with(words),
                "{}",
                refused(column, text)
            );
        }
    }
}
