//! What an instrument measured in every case, for a page: the change and the published value stand below each value, so that a
//! table is no wider than its figures.

use askama::Template;

use crate::meaning;
use crate::tables::{InstrumentTable, Value, ValueColumn, or_dash};
use record::quantity::{number, scale};

/// A table of values under its instrument's name.
#[derive(Template)]
#[template(path = "values.html")]
pub(super) struct Values<'a> {
    instrument: &'a str,
    headings: Vec<Heading>,
    rows: Vec<Row<'a>>,
}

/// Of a column.
struct Heading {
    title: String,
    unit: &'static str,
    /// What its figure is and what the interval says.
    about: String,
}

struct Row<'a> {
    case: &'a str,
    size: Option<u64>,
    values: Vec<Shown>,
}

/// A value and what stands below it.
struct Shown {
    value: String,
    half: Option<String>,
    change: Option<String>,
    published: Option<String>,
}

impl<'a> Values<'a> {
    pub(super) fn of(table: &InstrumentTable<'a>) -> Self {
        let row = |row: &crate::tables::CaseRow<'a>| Row {
            case: &row.figures.case.name,
            size: row.size,
            values: row.values.iter().map(Shown::of).collect(),
        };
        Self {
            instrument: table.instrument,
            headings: table
                .columns
                .iter()
                .map(|column| Heading::of(*column))
                .collect(),
            rows: table.rows.iter().map(row).collect(),
        }
    }
}

impl Heading {
    fn of(column: ValueColumn) -> Self {
        let ValueColumn {
            metric,
            statistic,
            direction,
            phase,
        } = column;
        let about = meaning::of(metric, statistic, direction, phase);
        Self {
            title: column.title(),
            unit: scale(metric).1,
            about: format!("{about} {}", meaning::INTERVAL),
        }
    }

    /// In one line.
    fn label(&self) -> String {
        match self.unit {
            "" => self.title.clone(),
            unit => format!("{}, {unit}", self.title),
        }
    }
}

impl Shown {
    fn of(value: &Value) -> Self {
        Self {
            value: or_dash(value.value.map(number)),
            half: value.half.map(number),
            change: value.change.as_deref().map(short),
            published: value.published.map(number),
        }
    }
}

/// A change as it fits below a value: how many runs were too few is said once, above the tables.
fn short(change: &str) -> String {
    match change.split_once("; too few runs") {
        Some((value, _)) => format!("{value}, too few runs"),
        None => change.to_owned(),
    }
}
