//! A record as tables for programs that analyse data: a row for each run, or for each sample.

mod runs;
mod samples;
mod swept;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ptr;

use conditions::require;

use crate::error::Result;
use record::plan::Case;
use record::{Figure, Latest, Measured, Record, Run};

/// Greatest number of cells of a table. No experiment has as many, but a record of few bytes could ask for them.
const MOST_CELLS: usize = 1_000_000_000;

/// The rows of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataRows {
    /// A row for each run, with its figures over all streams.
    Runs,
    /// A row for each sample.
    Samples,
}

/// The part of a record that a table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataSelection {
    /// The kind of its rows.
    pub rows: DataRows,
    /// Whether it also has the attempts, figures and samples that reports do not count.
    pub with_invalid: bool,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataColumn {
    /// The name, which is unique in its table and ends in the unit if there is one.
    pub name: String,
    /// The type of its values.
    pub kind: DataKind,
}

/// The type of a column's values, any of which may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataKind {
    /// Text.
    Text,
    /// Integers from 0.
    Integer,
    /// Numbers of double precision.
    Number,
}

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum DataValue<'a> {
    /// Nothing.
    Missing,
    /// A text.
    Text(Cow<'a, str>),
    /// An integer.
    Integer(u64),
    /// A finite number.
    Number(f64),
}

/// A table. Its rows are made when they are read, so that it is never in memory as a whole.
pub struct DataTable<'a> {
    /// The columns.
    pub columns: Vec<DataColumn>,
    /// The rows, each with a value for every column.
    pub rows: Box<dyn Iterator<Item = Vec<DataValue<'a>>> + 'a>,
}

impl<'a> DataTable<'a> {
    /// Creates a table of a record.
    ///
    /// # Errors
    /// A table with more than 1,000,000,000 cells.
    pub fn of(record: &'a Record, selection: DataSelection) -> Result<Self> {
        let runs = selected(record, selection.with_invalid);
        match selection.rows {
            DataRows::Runs => runs::table(record, runs, selection.with_invalid),
            DataRows::Samples => samples::table(record, runs, selection.with_invalid),
        }
    }

    /// Creates a table with this number of rows.
    fn new(
        columns: Vec<DataColumn>,
        count: usize,
        rows: impl Iterator<Item = Vec<DataValue<'a>>> + 'a,
    ) -> Result<Self> {
        let cells = columns.len().saturating_mul(count);
        require!(
            cells <= MOST_CELLS,
            "a table of {count} rows and {} columns has more than {MOST_CELLS} cells",
            columns.len()
        );
        Ok(Self {
            columns: with_unique_names(columns),
            rows: Box::new(rows),
        })
    }
}

impl fmt::Debug for DataTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = f.debug_struct("DataTable");
        table
            .field("columns", &self.columns)
            .finish_non_exhaustive()
    }
}

impl DataColumn {
    fn new(name: impl Into<String>, kind: DataKind) -> Self {
        Self {
            name: name.into(),
            kind,
        }
    }
}

impl<'a> DataValue<'a> {
    fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Text(text.into())
    }

    /// Creates a number. One that is not finite, such as the end of an interval without an end, is missing.
    fn number(number: f64) -> Self {
        if number.is_finite() {
            Self::Number(number)
        } else {
            Self::Missing
        }
    }
}

/// Adds a number to the name of each column whose name an earlier one has.
fn with_unique_names(mut columns: Vec<DataColumn>) -> Vec<DataColumn> {
    let mut names = HashSet::new();
    for column in &mut columns {
        let name = column.name.clone();
        let again = (2..).map(|n: u64| format!("{name}_{n}"));
        let mut all = std::iter::once(name.clone()).chain(again);
        let free = all.find(|name| names.insert(name.clone()));
        column.name = free.unwrap_or_default();
    }
    columns
}

/// A run, and its case if the plan has it.
#[derive(Clone, Copy)]
struct RunOfCase<'a> {
    run: &'a Run,
    case: Option<&'a Case>,
}

/// Returns the runs that reports count, or all attempts, in the order in which they took place.
fn selected(record: &Record, with_invalid: bool) -> Vec<RunOfCase<'_>> {
    let cases = record.plan().cases.iter();
    let cases: HashMap<&str, &Case> = cases.map(|case| (case.name.as_str(), case)).collect();
    let latest = record.latest();
    let runs = record.runs.iter().map(|run| RunOfCase {
        run,
        case: cases.get(run.case.as_str()).copied(),
    });
    runs.filter(|one| with_invalid || one.counts(&latest))
        .collect()
}

impl RunOfCase<'_> {
    /// Returns whether reports count the run: it is the last attempt of a planned repeat, and the machine did not spoil
    /// all of it.
    fn counts(&self, latest: &Latest<'_>) -> bool {
        let run = self.run;
        let last = latest.run(&run.case, run.repeat);
        let is_planned = |case: &Case| (1..=case.repeats.most).contains(&run.repeat);
        last.is_some_and(|last| ptr::eq(last, run))
            && self.case.is_some_and(is_planned)
            && run.spoilt_as_a_whole().is_none()
    }
}

/// Returns whether reports count this figure of a run that counts.
fn figure_counts(run: &Run, measured: &Measured, figure: &Figure) -> bool {
    measured.measurement.failure.is_none() && run.spoilt(measured, figure).is_none()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::analysis::Analysis;
    use crate::analysis::tests::{late_pings, record, spoil};
    use record::figure_name::FigureName;

    /// Returns the names of the columns, and the rows.
    pub(crate) fn table(
        record: &Record,
        rows: DataRows,
        with_invalid: bool,
    ) -> (Vec<String>, Vec<Vec<DataValue<'_>>>) {
        let selection = DataSelection { rows, with_invalid };
        let table = DataTable::of(record, selection).unwrap();
        let names = table.columns.into_iter().map(|column| column.name);
        (names.collect(), table.rows.collect())
    }

    /// Returns the values of one column.
    fn column<'a>(
        (names, rows): &(Vec<String>, Vec<Vec<DataValue<'a>>>),
        name: &str,
    ) -> Vec<DataValue<'a>> {
        let place = names.iter().position(|known| known == name).unwrap();
        rows.iter().map(|row| row[place].clone()).collect()
    }

    /// A record of a sweep whose first run was spoilt once.
    pub(crate) fn swept() -> Record {
        let mut record = record();
        let axes = [
            ("link.delay", ["1ms", "20ms"]),
            ("congestion", ["cubic", "bbr"]),
        ];
        for (at, case) in record.head.plan.cases.iter_mut().enumerate() {
            let own = axes.map(|(path, values)| (path.to_owned(), values[at].to_owned()));
            case.axes = own.to_vec();
        }
        let again = Run {
            attempt: 2,
            ..record.runs[0].clone()
        };
        spoil(&mut record.runs[0], "late");
        record.runs.push(again);
        record
    }

    #[test]
    fn the_mean_of_a_figure_over_the_rows_of_a_case_is_that_of_the_report() {
        let name: FigureName = "ping.rtt_ms.median".parse().unwrap();
        for record in [record(), swept(), late_pings(10)] {
            let runs = table(&record, DataRows::Runs, false);
            let cases = column(&runs, "case");
            let values = if runs.0.contains(&name.to_string()) {
                column(&runs, &name.to_string())
            } else {
                vec![DataValue::Missing; cases.len()]
            };
            for case in &Analysis::of(&record).cases {
                let own = cases
                    .iter()
                    .zip(&values)
                    .filter_map(|(of, value)| match value {
                        DataValue::Number(value) => {
                            (*of == DataValue::text(case.name())).then_some(*value)
                        }
                        _ => None,
                    });
                let own: Vec<f64> = own.collect();
                let figure = case.figures.get(&name);
                assert_eq!(
                    own,
                    figure.map_or(Vec::new(), |figure| figure.values.clone())
                );
            }
        }
    }

    #[test]
    fn a_run_is_a_row_with_its_swept_fields_and_its_attempt() {
        let record = swept();
        let counted = table(&record, DataRows::Runs, false);
        assert_eq!(
            counted.0[..10],
            [
                "case",
                "link.delay_ms",
                "congestion",
                "repeat",
                "attempt",
                "outcome",
                "reason",
                "seed",
                "host",
                "started_at"
            ]
        );
        let number = DataValue::Number;
        assert_eq!(
            column(&counted, "link.delay_ms"),
            [20.0, 20.0, 1.0].map(number)
        );
        assert_eq!(
            column(&counted, "congestion"),
            ["bbr", "bbr", "cubic"].map(DataValue::text)
        );
        assert_eq!(
            column(&counted, "attempt"),
            [1, 1, 2].map(DataValue::Integer)
        );
        let all = table(&record, DataRows::Runs, true);
        let words = |words: [&'static str; 4]| words.map(DataValue::text);
        assert_eq!(
            column(&all, "outcome"),
            words(["invalid", "ok", "ok", "ok"])
        );
        assert_eq!(column(&all, "reason")[0], DataValue::text("late"));
        assert_eq!(column(&all, "reason")[1], DataValue::Missing);
        assert_eq!(column(&all, "ping.rtt_ms.median")[0], number(1.1));
        assert_eq!(column(&all, "host"), words(["bench"; 4]));
    }

    #[test]
    fn an_interval_has_two_columns_and_an_open_end_no_value() {
        let mut record = record();
        let goodput = &mut record.runs[0].measurements[1].measurement.figures[0];
        *goodput = goodput.clone().at_least(15e6);
        let runs = table(&record, DataRows::Runs, false);
        let name = "download.goodput_bit_per_s.mean";
        let place = runs.0.iter().position(|known| known == name).unwrap();
        assert_eq!(runs.0[place + 1], format!("{name}.low"));
        assert_eq!(runs.0[place + 2], format!("{name}.high"));
        let number = DataValue::Number;
        assert_eq!(
            runs.1[0][place..place + 3],
            [number(16e6), number(15e6), DataValue::Missing]
        );
        // No run states an interval of the round-trip time.
        assert!(!runs.0.contains(&"ping.rtt_ms.median.low".to_owned()));
    }

    #[test]
    fn samples_of_measurements_that_do_not_count_are_left_out_unless_they_are_requested() {
        let record = late_pings(10);
        let counted = table(&record, DataRows::Samples, false);
        let all = table(&record, DataRows::Samples, true);
        let pings_of_base = |samples: &(Vec<String>, Vec<Vec<DataValue<'_>>>)| {
            let (cases, instruments) = (column(samples, "case"), column(samples, "instrument"));
            let pairs = cases.iter().zip(&instruments);
            let wanted = [DataValue::text("base"), DataValue::text("ping")];
            pairs
                .filter(|(case, instrument)| [(*case).clone(), (*instrument).clone()] == wanted)
                .count()
        };
        assert_eq!((pings_of_base(&counted), pings_of_base(&all)), (0, 3));
        assert_eq!(column(&all, "outcome")[0], DataValue::text("invalid"));
        assert!(
            column(&counted, "outcome")
                .iter()
                .all(|one| *one == DataValue::text("ok"))
        );
        // The download of the same run counts.
        let instruments = column(&counted, "instrument");
        assert_eq!(instruments[0], DataValue::text("download"));
    }

    #[test]
    fn every_column_has_its_own_name_and_every_row_a_value_for_each() {
        let mut record = swept();
        record.head.plan.cases[0]
            .axes
            .push(("seed".to_owned(), "a".to_owned()));
        for rows in [DataRows::Runs, DataRows::Samples] {
            let (names, rows) = table(&record, rows, true);
            let unique: HashSet<&String> = names.iter().collect();
            assert_eq!(unique.len(), names.len(), "{names:?}");
            assert!(names.contains(&"seed_2".to_owned()), "{names:?}");
            assert!(rows.iter().all(|row| row.len() == names.len()));
        }
    }

    #[test]
    fn a_table_with_too_many_cells_is_refused() {
        let columns = vec![DataColumn::new("a", DataKind::Text); 1000];
        let refused = DataTable::new(columns, 2_000_000, std::iter::empty()).unwrap_err();
        assert!(
            refused.to_string().contains("more than 1000000000 cells"),
            "{refused}"
        );
    }
}
