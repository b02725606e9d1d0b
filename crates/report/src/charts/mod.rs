//! The charts of a report: one for each question, with drawings that are self-contained SVG.

mod axis;
mod bounds;
mod delays;
#[cfg(test)]
pub(crate) mod geometry;
mod heat_map;
pub(super) mod intervals;
pub(super) mod key_figure;
mod load;
mod losses;
mod message_sizes;
mod over_time;
mod plot;
mod runs;
mod same_time;
mod svg;
mod sweeps;
mod swept_axes;
mod topology;

pub use self::axis::Axis;
pub use self::plot::{Curve, Plot, Point, Shape, stack};
use crate::analysis::{Analysis, CaseFigures};
use crate::distinct;
use record::profile::SampleKind;

/// The drawings that answer one question.
pub(super) struct ChartQuestion {
    pub(super) heading: &'static str,
    /// Notes on how to read them and on what was left out.
    pub(super) note: String,
    pub(super) drawings: Vec<Drawing>,
}

/// One drawing.
pub(super) struct Drawing {
    /// Name of the file without the extension.
    pub(super) file: String,
    pub(super) caption: String,
    /// A second line below the caption; empty if none is needed.
    pub(super) below: String,
    /// A description of the contents, in sentences.
    pub(super) about: String,
    pub(super) svg: String,
}

impl Drawing {
    /// Returns the drawing below its caption, for a picture without a document around it.
    pub(super) fn with_caption(&self) -> String {
        plot::captioned(&self.svg, &self.caption, &self.below)
    }
}

/// Returns all charts for which the record has data.
pub(super) fn questions(analysis: &Analysis<'_>) -> Vec<ChartQuestion> {
    let all = [
        topology::question(analysis),
        sweeps::question(analysis),
        heat_map::question(analysis),
        runs::question(analysis),
        over_time::question(analysis),
        load::question(analysis),
        message_sizes::question(analysis),
        delays::question(analysis),
        losses::question(analysis),
        bounds::question(analysis),
    ];
    all.into_iter()
        .filter(|question| !question.drawings.is_empty())
        .collect()
}

/// Returns every instrument with samples of these kinds that a case uses, once, in the order of the plan.
pub(super) fn instruments<'a>(cases: &'a [CaseFigures<'a>], kinds: &[SampleKind]) -> Vec<&'a str> {
    let all = cases.iter().flat_map(|figures| &figures.case.instruments);
    let own = all.filter(|one| {
        one.profile
            .samples
            .is_some_and(|kind| kinds.contains(&kind))
    });
    distinct(own.map(|instrument| instrument.name.as_str()))
}

/// Builds the name of a file, in which every character other than letters and digits becomes a hyphen.
pub(super) fn file_name(parts: &[&str]) -> String {
    let safe = |char: char| {
        if char.is_ascii_alphanumeric() || char == '_' {
            char
        } else {
            '-'
        }
    };
    let text: String = parts.join("-").chars().map(safe).collect();
    text.chars().take(120).collect()
}

/// Returns the suffixes of the file name and of the caption that number several drawings of the same kind.
fn part(number: usize) -> [String; 2] {
    match number {
        0 => [String::new(), String::new()],
        _ => [format!("-{}", number + 1), format!(" ({})", number + 1)],
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::analysis::tests::record;

    #[test]
    fn drawings_are_svg_with_unique_names() {
        let record = record();
        let analysis = Analysis::of(&record);
        let questions = questions(&analysis);
        let drawings: Vec<&Drawing> = questions
            .iter()
            .flat_map(|question| &question.drawings)
            .collect();
        assert_eq!(drawings.len(), 7);
        let mut names: Vec<&str> = drawings
            .iter()
            .map(|drawing| drawing.file.as_str())
            .collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), drawings.len());
        for drawing in drawings {
            assert!(drawing.svg.starts_with("<svg xmlns="), "{}", drawing.svg);
            assert!(drawing.svg.ends_with("</svg>") && drawing.svg.contains("aria-label="));
        }
    }

    #[test]
    fn a_file_name_contains_no_path() {
        assert_eq!(file_name(&["delay", "../../etc"]), "delay-------etc");
    }
}
