//! Analysis of records, and reports, which are pure functions of a record.
#![forbid(unsafe_code)]

pub mod analysis;
mod brief;
mod calibration_report;
mod case_conditions;
mod changes;
mod charts;
mod comparison;
mod error;
mod false_alarms;
mod figure_tables;
mod figures;
mod findings;
mod formats;
pub mod fuzzing;
mod hosts;
mod index;
mod interval;
mod meaning;
mod render;
mod server_report;
mod so_far;
mod spread;
mod terminal;
#[cfg(test)]
mod tests;
mod trust;
mod warm_up;

use std::collections::BTreeSet;

pub use self::charts::{Axis, Curve, Plot, Point, Shape, stack};
pub use calibration_report::{calibration_markdown, calibration_text};
pub use case_conditions::link;
pub use comparison::comparison;
pub use error::Error;
pub use figure_tables::is_headline;
pub use figures::figures;
pub use formats::csv::write_csv;
pub use formats::html::html;
pub use formats::text::text;
pub use formats::{FORMATS, Make, NamedFiles, ReportFormat};
pub use index::{Listed, index};
pub use server_report::{
    FigureAverage, RefusalCount, ServerReport, Spread, TestGroup, server_csv, server_markdown,
    server_text,
};
pub use so_far::{InterimFigure, so_far};
pub use terminal::{Terminal, hanging, prose, table_text};

use crate::analysis::Analysis;
use record::Record;

/// Returns each value once, in the order in which they first appear.
fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    all.fold(Vec::new(), |mut known, value| {
        if !known.contains(&value) {
            known.push(value);
        }
        known
    })
}

/// Returns every drawing as self-contained SVG with the name of its file; the names are unique.
pub fn drawings(record: &Record) -> NamedFiles {
    let analysis = Analysis::of(record);
    let drawings = charts::questions(&analysis)
        .into_iter()
        .flat_map(|question| question.drawings);
    let mut names = BTreeSet::new();
    let file = |drawing: charts::Drawing| {
        let again = (2..).map(|n| format!("{}-{n}", drawing.file));
        let mut all = std::iter::once(drawing.file.clone()).chain(again);
        let name = all
            .find(|name| names.insert(name.clone()))
            .unwrap_or_default();
        (format!("{name}.svg"), on_paper(&drawing.svg))
    };
    drawings.map(file).collect()
}

/// Gives a drawing a white background, independent of the viewer.
pub fn on_paper(svg: &str) -> String {
    svg.replacen("<svg", "<svg color=\"#000\" style=\"background:#fff\"", 1)
}
