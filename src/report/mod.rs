//! Views of a record: each is a pure function of it.

mod card;
mod charts;
mod comparison;
mod conditions;
mod csv;
mod figures;
mod flent;
mod grid;
mod html;
mod junit;
#[cfg(test)]
mod large;
mod markdown;
mod messages;
mod spread;
mod steady;
mod tables;
mod text;

use std::collections::BTreeSet;
use std::io::Write;

use anyhow::Result;

pub(crate) use self::card::{card_markdown, card_text};
pub(crate) use self::csv::write_csv;
pub(crate) use self::flent::flent;
pub(crate) use comparison::comparison;
pub(crate) use figures::{figure_in_words, figures, quantity};
pub(crate) use html::html;
pub(crate) use junit::junit;
pub(crate) use markdown::markdown;
pub(crate) use messages::{blast_table, pingpong_table, transfer_table};
pub(crate) use tables::is_headline;
pub(crate) use text::text;

use crate::analysis::Analysis;
use crate::experiment::record::Record;

/// Writes the record itself as one document, indented for people.
///
/// # Errors
/// `target` cannot be written.
pub(crate) fn write_json(record: &Record, mut target: impl Write) -> Result<()> {
    serde_json::to_writer_pretty(&mut target, record)?;
    writeln!(target)?;
    Ok(())
}

/// Every figure as an SVG that stands alone, with the name of its file; no two have the same.
pub(crate) fn drawings(record: &Record) -> Vec<(String, String)> {
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
        // On paper of its own, whatever a viewer has behind it.
        let paper = "<svg color=\"#000\" style=\"background:#fff\"";
        (
            format!("{name}.svg"),
            drawing.svg.replacen("<svg", paper, 1),
        )
    };
    drawings.map(file).collect()
}

/// A number with so many digits behind the point, or a dash.
fn optional(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::record;

    #[test]
    fn the_json_view_is_the_record() {
        let mut text = Vec::new();
        write_json(&record(), &mut text).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(value["plan"]["name"], "small");
        assert_eq!(value["runs"].as_array().unwrap().len(), 3);
    }
}
