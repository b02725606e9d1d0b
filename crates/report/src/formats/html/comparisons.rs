//! The comparisons that a scenario asks for on a page: for each the question, the answer, a drawing and the table.

use askama::Template;

use crate::analysis::Analysis;
use crate::analysis::sweep_comparison::SweepComparisons;
use crate::answers;
use crate::charts::{self, Drawing};
use crate::render::Html;
use record::quantity::counted;
use record::table::Table;

/// The section of the comparisons.
#[derive(Template)]
#[template(path = "comparisons.html")]
pub(super) struct Comparisons {
    all: Vec<Shown>,
    notes: Vec<String>,
}

/// A comparison.
struct Shown {
    question: String,
    sentences: Vec<String>,
    drawings: Vec<Drawing>,
    /// The number of comparisons in the table: "18 comparisons".
    size: String,
    table: Table,
}

impl Comparisons {
    /// Makes the section; `None` if the scenario asks for no comparison.
    pub(super) fn of(analysis: &Analysis<'_>) -> Option<Self> {
        let SweepComparisons { all, remarks } = SweepComparisons::of(analysis);
        let notes: Vec<String> = answers::method(&all).into_iter().chain(remarks).collect();
        let shown = answers::answers(&all).into_iter().map(|answer| Shown {
            question: answer.question(),
            sentences: answer.sentences(),
            drawings: charts::intervals::drawings(&answer),
            size: counted(answer.comparison.pairs.len(), "comparison"),
            table: answer.table(),
        });
        let all: Vec<Shown> = shown.collect();
        (!all.is_empty() || !notes.is_empty()).then_some(Self { all, notes })
    }
}

#[cfg(test)]
mod tests {
    use crate::analysis::sweep_comparison::tests::sweep;
    use crate::analysis::tests::record;
    use crate::html;

    #[test]
    fn a_page_has_the_question_the_answer_the_drawings_and_the_folded_table() {
        let page = html(&sweep(5, 0.01, 1, |[_, _, congestion]| match congestion {
            "bbr" => 2.0,
            _ => 1.0,
        }))
        .unwrap();
        let section = page.split("id=\"comparisons\"").nth(1).unwrap();
        let section = section.split("<h2").next().unwrap();
        for part in [
            "<h3>Does the goodput depend on the congestion control?</h3>",
            "<li>bbr carries ",
            "<summary>18 comparisons</summary>",
            "data-label=\"congestion control\" class=\"left\">bbr / cubic",
            "Welch&#39;s t test of the logarithms for 18 comparisons",
        ] {
            assert!(section.contains(part), "{part} in {section}");
        }
        assert_eq!(section.matches("<figure>").count(), 3);
        assert!(!html(&record()).unwrap().contains("id=\"comparisons\""));
    }
}
