//! Analysis of records, and reports: each is a pure function of a record.
#![forbid(unsafe_code)]

pub mod analysis;
mod brief;
mod calibration;
mod case_conditions;
mod chance;
mod charts;
mod comparison;
mod csv;
mod figures;
mod findings;
mod flent;
pub mod fuzzing;
mod hosts;
mod html;
mod index;
mod interval;
mod junit;
mod markdown;
mod meaning;
mod openmetrics;
mod render;
mod so_far;
mod spread;
mod steady;
mod tables;
mod terminal;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeSet;
use std::io::Write;

use anyhow::Result;

pub use self::calibration::{calibration_markdown, calibration_text};
pub use self::charts::{Axis, Curve, Plot, Point, Shape, stack};
pub use self::csv::write_csv;
pub use self::flent::flent;
pub use case_conditions::link;
pub use comparison::comparison;
pub use figures::figures;
pub use html::html;
pub use index::{Listed, index};
pub use junit::junit;
pub use markdown::markdown;
pub use openmetrics::openmetrics;
pub use so_far::{SoFar, so_far};
pub use tables::is_headline;
pub use terminal::{Terminal, hanging, prose, table_text};
pub use text::{details, text};

use crate::analysis::Analysis;
use record::Record;

/// Writes the record itself as one document, indented for people.
///
/// # Errors
/// `target` cannot be written.
pub fn write_json(record: &Record, mut target: impl Write) -> Result<()> {
    serde_json::to_writer_pretty(&mut target, record)?;
    writeln!(target)?;
    Ok(())
}

/// Every figure as an SVG that stands alone, with the name of its file; no two have the same.
pub fn drawings(record: &Record) -> Vec<(String, String)> {
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

/// A drawing on paper of its own, whatever a viewer has behind it.
pub fn on_paper(svg: &str) -> String {
    svg.replacen("<svg", "<svg color=\"#000\" style=\"background:#fff\"", 1)
}
