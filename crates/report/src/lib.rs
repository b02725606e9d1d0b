//! Analysis of records, and reports, which are pure functions of a record.
#![forbid(unsafe_code)]

pub mod analysis;
mod answer;
mod answers;
mod brief;
mod calibration_report;
mod case_conditions;
mod case_labels;
mod changes;
mod charts;
mod comparison;
mod data;
mod drawing_files;
mod error;
mod false_alarms;
mod field_words;
mod figure_tables;
mod figure_words;
mod figures;
mod findings;
mod formats;
pub mod fuzzing;
mod hosts;
mod index;
mod interval;
mod meaning;
mod plain_page;
mod png;
mod reliability;
mod render;
mod server_report;
mod so_far;
mod spread;
mod terminal;
#[cfg(test)]
mod tests;
mod trust;
mod warm_up;

pub use self::charts::{Axis, Curve, Plot, Point, Shape, stack};
pub use calibration_report::{calibration_markdown, calibration_text};
pub use case_conditions::link;
pub use comparison::{comparison, comparison_by};
pub use data::{DataColumn, DataKind, DataRows, DataSelection, DataTable, DataValue};
pub use drawing_files::Drawings;
pub use error::Error;
pub use figure_tables::is_headline;
pub use figures::figures;
pub use formats::csv::write_csv;
pub use formats::html::html;
pub use formats::parquet::ParquetFile;
pub use formats::text::text;
pub use formats::{FORMATS, Make, NamedFiles, ReportFormat};
pub use index::{Listed, index};
pub use plain_page::{PageDrawing, PlainPage};
pub use png::PngError;
pub use server_report::{
    FigureAverage, RefusalCount, ServerReport, Spread, TestGroup, server_csv, server_html,
    server_markdown, server_text,
};
pub use so_far::{InterimFigure, so_far};
pub use terminal::{Terminal, hanging, prose, table_text};

/// Returns each value once, in the order in which they first appear.
fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    all.fold(Vec::new(), |mut known, value| {
        if !known.contains(&value) {
            known.push(value);
        }
        known
    })
}

/// Gives a drawing a white background, independent of the viewer.
pub fn on_paper(svg: &str) -> String {
    svg.replacen("<svg", "<svg color=\"#000\" style=\"background:#fff\"", 1)
}
