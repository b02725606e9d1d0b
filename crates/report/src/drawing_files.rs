//! The drawings of a report as files: SVG for documents, which have their own captions, and PNG for slides.

use std::collections::BTreeSet;

use record::Record;

use crate::analysis::Analysis;
use crate::analysis::comparison_by::ComparisonBy;
use crate::analysis::field_comparison::FieldComparison;
use crate::analysis::sweep_comparison::SweepComparisons;
use crate::answer::Answer;
use crate::charts::{self, Drawing};
use crate::error::Error;
use crate::png::PngWriter;
use crate::server_report::{self, ServerReport};
use crate::{NamedFiles, answers, on_paper};

/// The drawings of a report.
pub struct Drawings(Vec<Drawing>);

impl Drawings {
    /// Draws all figures of the report of a record.
    pub fn of(record: &Record) -> Self {
        let analysis = Analysis::of(record);
        let picture = Answer::of(&analysis).picture(&analysis).into_iter();
        let comparisons = SweepComparisons::of(&analysis).all;
        let questions = charts::questions(&analysis).into_iter();
        let drawings = picture
            .chain(of_comparisons(&comparisons))
            .chain(questions.flat_map(|question| question.drawings));
        Self(drawings.collect())
    }

    /// Draws all figures of the report of a far end's log.
    pub fn of_log(report: &ServerReport) -> Self {
        Self(server_report::drawings(report))
    }

    /// Draws the comparisons of records that differ on purpose in one field.
    pub fn of_comparison(comparison: &ComparisonBy) -> Self {
        Self(of_comparisons(&comparison.all))
    }

    /// Returns every drawing as self-contained SVG with the name of its file; the names are unique.
    pub fn svg(&self) -> NamedFiles {
        let files = self.named();
        files
            .map(|(name, drawing)| (format!("{name}.svg"), on_paper(&drawing.svg)))
            .collect()
    }

    /// Returns every drawing as PNG on a white background, with its caption above it, in the fonts of this machine.
    ///
    /// # Errors
    /// No font is installed.
    pub fn png(&self) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let writer = PngWriter::with_fonts_of_machine()?;
        let files = self.named().map(|(name, drawing)| {
            let file = format!("{name}.png");
            let png = writer.png(&file, &on_paper(&drawing.with_caption()))?;
            Ok((file, png))
        });
        files.collect()
    }

    /// Gives each drawing a unique name.
    fn named(&self) -> impl Iterator<Item = (String, &Drawing)> {
        let mut names = BTreeSet::new();
        self.0.iter().map(move |drawing| {
            let again = (2..).map(|n| format!("{}-{n}", drawing.file));
            let mut all = std::iter::once(drawing.file.clone()).chain(again);
            let name = all.find(|name| names.insert(name.clone()));
            (name.unwrap_or_default(), drawing)
        })
    }
}

/// Draws every comparison.
fn of_comparisons(all: &[FieldComparison]) -> Vec<Drawing> {
    let answers = answers::answers(all);
    answers
        .iter()
        .flat_map(charts::intervals::drawings)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::record;

    #[test]
    fn drawings_of_the_same_name_have_files_of_different_names() {
        let mut drawings = Drawings::of(&record());
        let first = drawings.0.remove(0);
        let name = first.file.clone();
        drawings.0 = vec![first];
        drawings.0.extend(Drawings::of(&record()).0);
        let names: Vec<String> = drawings.svg().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names[0], format!("{name}.svg"));
        assert_eq!(names[1], format!("{name}-2.svg"));
    }

    #[test]
    fn the_caption_is_above_the_png_and_not_in_the_svg() {
        let drawings = Drawings::of(&record());
        for (drawing, (name, svg)) in drawings.0.iter().zip(drawings.svg()) {
            assert!(svg.contains("viewBox=\"0 0 "), "{name}");
            let captioned = drawing.with_caption();
            assert!(captioned.contains("viewBox=\"0 -"), "{name}");
        }
    }
}
