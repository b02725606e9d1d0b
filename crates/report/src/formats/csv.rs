//! A table as CSV (RFC 4180).

use std::borrow::Cow;
use std::io::{self, Write};

use crate::data::{DataTable, DataValue};

/// Writes a table with a header.
///
/// # Errors
/// Those of writing to `target`.
pub fn write_csv(table: DataTable<'_>, target: &mut (dyn Write + Send)) -> io::Result<()> {
    write_lines(table, target).map_err(|error| match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    })
}

fn write_lines(table: DataTable<'_>, target: &mut (dyn Write + Send)) -> csv::Result<()> {
    let mut writer = csv::Writer::from_writer(target);
    let names = table.columns.iter().map(|column| no_formula(&column.name));
    writer.write_record(names.map(Cow::into_owned))?;
    for row in table.rows {
        for value in &row {
            writer.write_field(field(value).as_bytes())?;
        }
        writer.write_record(None::<&[u8]>)?;
    }
    writer.flush()?;
    Ok(())
}

fn field<'a>(value: &'a DataValue<'_>) -> Cow<'a, str> {
    match value {
        DataValue::Missing => Cow::Borrowed(""),
        DataValue::Text(text) => no_formula(text),
        DataValue::Integer(number) => Cow::Owned(number.to_string()),
        DataValue::Number(number) => Cow::Owned(number.to_string()),
    }
}

/// Returns a text that no spreadsheet interprets as a formula: one that starts like a formula gets an apostrophe in
/// front.
pub(crate) fn no_formula(text: &str) -> Cow<'_, str> {
    if text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']) {
        Cow::Owned(format!("'{text}"))
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::record;
    use crate::data::tests::swept;
    use crate::data::{DataRows, DataSelection};
    use record::Record;

    fn csv(record: &Record, rows: DataRows) -> String {
        let selection = DataSelection {
            rows,
            with_invalid: false,
        };
        let mut text = Vec::new();
        write_csv(DataTable::of(record, selection).unwrap(), &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_name_that_starts_like_a_formula_is_quoted() {
        let mut record = record();
        record.runs.truncate(1);
        let formula = "=cmd|' /C calc'!A0";
        record.head.plan.cases[0].name = formula.to_owned();
        record.runs[0].case = formula.to_owned();
        record.runs[0].measurements[0].instrument = "-1".to_owned();
        for rows in [DataRows::Runs, DataRows::Samples] {
            let text = csv(&record, rows);
            let mut cells = text.lines().skip(1);
            assert!(cells.all(|line| line.starts_with("'=cmd|")), "{text}");
            assert!(!text.contains(",-1"), "{text}");
        }
    }

    #[test]
    fn every_sample_is_a_line() {
        let record = record();
        let text = csv(&record, DataRows::Samples);
        let samples: usize = record
            .runs
            .iter()
            .flat_map(|run| &run.measurements)
            .map(|m| m.measurement.samples.len())
            .sum();
        assert_eq!(text.lines().count(), 1 + samples);
        assert!(
            text.contains("\nslow,2,1,ok,2,ping,0.1,rtt_ms,1,,,,,3.2\n"),
            "{text}"
        );
    }

    #[test]
    fn every_run_is_a_line_with_the_values_of_its_sweep() {
        let text = csv(&swept(), DataRows::Runs);
        assert!(
            text.starts_with("case,link.delay_ms,congestion,repeat,"),
            "{text}"
        );
        assert!(text.contains("\nbase,1,cubic,1,2,ok,,1,bench,"), "{text}");
        assert_eq!(text.lines().count(), 1 + 3, "{text}");
    }
}
