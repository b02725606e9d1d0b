//! A page of several experiments, with the verdict, a drawing for each question, and a link to the report of each.

use askama::Template;

use crate::analysis::Analysis;
use crate::analysis::sweep_comparison::SweepComparisons;
use crate::answer::Answer;
use crate::answers;
use crate::charts::{self, Drawing};
use crate::error::Result;
use crate::findings;
use record::Record;

/// An experiment on the page.
pub struct Listed {
    title: String,
    /// The path of its report, relative to the page.
    report: String,
    headline: String,
    is_good: bool,
    sentences: Vec<String>,
    /// The line that says how far to trust it.
    trust: String,
    /// The size: "5 cases, 30 runs, begun 2026-01-02T03:04:05Z, shortened by --quick".
    size: String,
    /// The results that no table of the report shows.
    results: Vec<String>,
    drawings: Vec<Drawing>,
}

impl Listed {
    /// Summarises `record`, whose report is at `report`, a path relative to the page.
    pub fn of(record: &Record, report: String) -> Self {
        let analysis = Analysis::of(record);
        let answer = Answer::of(&analysis);
        let plan = record.plan();
        let picture = answer.picture(&analysis).into_iter();
        let comparisons = SweepComparisons::of(&analysis).all;
        let answers = answers::answers(&comparisons);
        let compared = answers.iter().map(charts::intervals::drawings);
        let questions = charts::questions(&analysis).into_iter();
        let drawings = compared.chain(questions.map(|question| question.drawings));
        Self {
            title: plan.title.clone(),
            report,
            is_good: answer.is_good(),
            trust: answer.reliability.in_words(),
            headline: answer.headline,
            sentences: answer.sentences,
            size: format!(
                "{}, {}, begun {}{}",
                record::quantity::counted(plan.cases.len(), "case"),
                record::quantity::counted(record.runs.len(), "run"),
                record.head.started_at,
                findings::quick(plan.quick)
            ),
            results: findings::results(&analysis),
            drawings: picture
                .chain(drawings.filter_map(|drawings| drawings.into_iter().next()))
                .collect(),
        }
    }
}

#[derive(Template)]
#[template(path = "index.html")]
struct Page<'a> {
    listed: Vec<&'a Listed>,
    unread: &'a [String],
}

/// Formats the page, which is one file that loads nothing else. `unread` has a message for each record that could not
/// be read.
///
/// # Errors
/// Those of the template.
pub fn index<'a>(
    listed: impl IntoIterator<Item = &'a Listed>,
    unread: &[String],
) -> Result<String> {
    let listed = listed.into_iter().collect();
    Ok(Page { listed, unread }.render()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::record;

    #[test]
    fn every_experiment_has_a_verdict_drawings_and_a_link_to_its_report() {
        let met = record();
        let mut unmet = record();
        unmet.runs.pop();
        let listed = [(met, "small/report.html"), (unmet, "small-2/report.html")]
            .map(|(record, report)| Listed::of(&record, report.to_owned()));
        let page = index(&listed, &[]).unwrap();
        for wanted in [
            "href=\"small/report.html\"",
            "href=\"small-2/report.html\"",
            "Met: 3 of 3 tested expectations met, 1 of 1 loose.",
            "Compared with base (Nothing added), ",
            "How far to trust it: good; ",
            "1 of 2 runs took place",
            "<svg",
            "2 cases, 3 runs",
        ] {
            assert!(page.contains(wanted), "{wanted}: {page}");
        }
    }
}
