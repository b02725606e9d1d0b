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

use std::collections::BTreeSet;

pub use self::charts::{Axis, Curve, Plot, Point, Shape, stack};
pub use calibration_report::{calibration_markdown, calibration_text};
pub use case_conditions::link;
pub use comparison::{comparison, comparison_by};
pub use data::{DataColumn, DataKind, DataRows, DataSelection, DataTable, DataValue};
pub use error::Error;
pub use figure_tables::is_headline;
pub use figures::figures;
pub use formats::csv::write_csv;
pub use formats::html::html;
pub use formats::parquet::ParquetFile;
pub use formats::text::text;
pub use formats::{FORMATS, Make, NamedFiles, ReportFormat};
pub use index::{Listed, index};
pub use png::PngError;
pub use server_report::{
    FigureAverage, RefusalCount, ServerReport, Spread, TestGroup, server_csv, server_html,
    server_markdown, server_text,
};
pub use so_far::{InterimFigure, so_far};
pub use terminal::{Terminal, hanging, prose, table_text};

use crate::analysis::Analysis;
use crate::analysis::sweep_comparison::SweepComparisons;
use crate::answer::Answer;
use crate::charts::Drawing;
use crate::png::PngWriter;
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
    let picture = Answer::of(&analysis).picture(&analysis).into_iter();
    let comparisons = SweepComparisons::of(&analysis).all;
    let answers = answers::answers(&comparisons);
    let compared = answers.iter().flat_map(charts::intervals::drawings);
    let questions = charts::questions(&analysis).into_iter();
    let drawings = picture
        .chain(compared)
        .chain(questions.flat_map(|question| question.drawings));
    files(drawings)
}

/// Returns every drawing of the report of a far end's log in the same way.
pub fn server_drawings(report: &ServerReport) -> NamedFiles {
    files(server_report::drawings(report).into_iter())
}

/// Gives each drawing a file with a unique name.
fn files(drawings: impl Iterator<Item = Drawing>) -> NamedFiles {
    let mut names = BTreeSet::new();
    let file = |drawing: Drawing| {
        let again = (2..).map(|n| format!("{}-{n}", drawing.file));
        let mut all = std::iter::once(drawing.file.clone()).chain(again);
        let name = all
            .find(|name| names.insert(name.clone()))
            .unwrap_or_default();
        (format!("{name}.svg"), on_paper(&drawing.svg))
    };
    drawings.map(file).collect()
}

/// Returns drawings as PNG on a white background with the names of their files, in the fonts of this machine.
///
/// # Errors
/// No font is installed.
pub fn as_png(drawings: NamedFiles) -> Result<Vec<(String, Vec<u8>)>, Error> {
    let writer = PngWriter::with_fonts_of_machine()?;
    let png = drawings.into_iter().map(|(name, svg)| {
        let png = writer.png(&name, &svg)?;
        let name = name.trim_end_matches(".svg");
        Ok((format!("{name}.png"), png))
    });
    png.collect()
}

/// Gives a drawing a white background, independent of the viewer.
pub fn on_paper(svg: &str) -> String {
    svg.replacen("<svg", "<svg color=\"#000\" style=\"background:#fff\"", 1)
}
