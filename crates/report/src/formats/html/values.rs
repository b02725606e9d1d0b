//! The table of an instrument's figures on a page. The change and the published value are below each value, so that a
//! table is no wider than its figures.

use askama::Template;

use crate::figure_tables::{CaseRow, FigureTable, FigureValue, ValueColumn};
use crate::interval::Label;
use crate::meaning;
use crate::trust::TrustRow;
use record::Statistic;
use record::quantity::counted;

/// A table of figures under its instrument's name.
#[derive(Template)]
#[template(path = "values.html")]
pub(super) struct Values<'a> {
    instrument: &'a str,
    /// The titles of the columns that identify a row.
    labels: Vec<&'a str>,
    headings: Vec<Heading>,
    rows: Vec<Row>,
}

/// The heading of a column.
struct Heading {
    title: String,
    unit: &'static str,
    /// The scope of the intervals.
    intervals: Option<String>,
    /// The meaning of the figure and of the interval.
    about: String,
    /// The anchor on the page at which the trust in the figure is explained.
    trust: String,
}

struct Row {
    /// The texts that identify the row, one for each label.
    labels: Vec<String>,
    values: Vec<ValueCell>,
}

/// A value, and the lines below it.
struct ValueCell {
    value: String,
    /// The interval, with its scope if that is not the heading's: "± 0.106", "[10.00, 10.80]".
    interval: Option<String>,
    change: Option<String>,
    published: Option<String>,
}

/// A table with more rows is folded.
const MOST_ROWS_OPEN: usize = 12;

impl<'a> Values<'a> {
    fn is_long(&self) -> bool {
        self.rows.len() > MOST_ROWS_OPEN
    }

    fn size(&self) -> String {
        counted(self.rows.len(), "row")
    }

    pub(super) fn of(table: &FigureTable<'a>) -> Self {
        let labels: Vec<Label> = (0..table.columns.len()).map(|at| table.label(at)).collect();
        let has_sizes = table.has_sizes();
        let row = |row: &CaseRow<'a>| {
            let mut texts = table.labels.texts(row.figures.case);
            texts.extend(has_sizes.then(|| row.size_text()));
            let columns = table.columns.iter().zip(&labels);
            let values = row.values.iter().zip(columns);
            Row {
                labels: texts,
                values: values
                    .map(|(value, (column, label))| ValueCell::of(value, column.statistic, *label))
                    .collect(),
            }
        };
        let mut titles = table.labels.titles();
        titles.extend(has_sizes.then_some("size, bytes"));
        Self {
            instrument: table.instrument,
            labels: titles,
            headings: table
                .columns
                .iter()
                .zip(&labels)
                .zip(&table.units)
                .map(|((column, label), (_, unit))| {
                    let trust = TrustRow::of(table.profile, column.metric, column.statistic);
                    Heading::of(*column, unit, *label, trust)
                })
                .collect(),
            rows: table.rows.iter().map(row).collect(),
        }
    }
}

impl Heading {
    fn of(column: ValueColumn, unit: &'static str, label: Label, trust: &TrustRow) -> Self {
        let ValueColumn {
            metric,
            statistic,
            direction,
            phase,
        } = column;
        let about = meaning::of(metric, statistic, direction, phase);
        Self {
            title: column.title(),
            unit,
            intervals: label.heading(),
            about: about + &label.meaning(),
            trust: trust.place(),
        }
    }

    /// Returns the heading in one line.
    fn label(&self) -> String {
        let unit = Some(self.unit).filter(|unit| !unit.is_empty());
        let parts = [Some(self.title.as_str()), unit, self.intervals.as_deref()];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

impl ValueCell {
    fn of(value: &FigureValue, statistic: Statistic, label: Label) -> Self {
        Self {
            value: value.number(statistic),
            interval: value.interval(statistic, label),
            change: value.change.clone(),
            published: value.published.clone(),
        }
    }
}
