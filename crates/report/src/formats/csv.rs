//! All samples of a record as CSV in the long form, one per line.

use std::borrow::Cow;
use std::io::{self, Write};

use record::Direction;
use record::Record;

const HEADER: [&str; 11] = [
    "case",
    "repeat",
    "seed",
    "instrument",
    "at_s",
    "metric",
    "index",
    "direction",
    "stream",
    "size",
    "value",
];

/// Writes the samples of `record` in the format of RFC 4180.
///
/// # Errors
/// Those of writing to `target`.
pub fn write_csv(record: &Record, target: &mut dyn Write) -> io::Result<()> {
    write_lines(record, target).map_err(|error| match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    })
}

fn write_lines(record: &Record, target: &mut dyn Write) -> csv::Result<()> {
    let mut writer = csv::Writer::from_writer(target);
    writer.write_record(HEADER)?;
    for run in &record.runs {
        let (repeat, seed) = (run.repeat.to_string(), run.seed.to_string());
        for measured in &run.measurements {
            for sample in &measured.measurement.samples {
                writer.write_record([
                    no_formula(&run.case).as_ref(),
                    &repeat,
                    &seed,
                    &no_formula(&measured.instrument),
                    &format!("{:.6}", sample.at_s),
                    sample.metric.name(),
                    &sample.index.to_string(),
                    sample.direction.map_or("", Direction::name),
                    &blank_or(sample.stream),
                    &blank_or(sample.size),
                    &sample.value.to_string(),
                ])?;
            }
        }
    }
    writer.flush()?;
    Ok(())
}

/// Returns a name that no spreadsheet interprets as a formula: one that starts like a formula gets an apostrophe in
/// front.
pub(crate) fn no_formula(name: &str) -> Cow<'_, str> {
    if name.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']) {
        Cow::Owned(format!("'{name}"))
    } else {
        Cow::Borrowed(name)
    }
}

fn blank_or(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::record;

    #[test]
    fn a_name_that_starts_like_a_formula_is_quoted() {
        let mut record = record();
        record.runs.truncate(1);
        record.runs[0].case = "=cmd|' /C calc'!A0".to_owned();
        let mut text = Vec::new();
        write_csv(&record, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let mut cells = text.lines().skip(1);
        assert!(cells.all(|line| line.starts_with("'=cmd|")), "{text}");
    }

    #[test]
    fn every_sample_is_a_line() {
        let record = record();
        let mut text = Vec::new();
        write_csv(&record, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let samples: usize = record
            .runs
            .iter()
            .flat_map(|run| &run.measurements)
            .map(|m| m.measurement.samples.len())
            .sum();
        assert_eq!(text.lines().count(), 1 + samples);
        assert!(
            text.contains("\nslow,2,2,ping,0.100000,rtt_ms,1,,,,3.2\n"),
            "{text}"
        );
    }
}
