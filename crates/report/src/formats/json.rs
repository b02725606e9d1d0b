//! The record itself as one JSON document, with the answer that follows from it.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;

use crate::analysis::{Analysis, CaseFigures, ExpectationCheck, ExpectationCounts, Verdict};
use crate::answer::Answer;
use crate::reliability::Reliability;
use record::Record;
use record::expectation::ExpectationKind;

/// The keys of the record, and the answer.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    record: &'a Record,
    answer: AnswerObject<'a>,
}

/// The opening of the other reports, every case and every expectation.
#[derive(Serialize)]
struct AnswerObject<'a> {
    verdict: Verdict,
    headline: &'a str,
    sentences: &'a [String],
    trust: &'a Reliability,
    counts: ExpectationCounts,
    cases: Vec<JudgedCase<'a>>,
    expectations: Vec<Judged<'a>>,
}

/// A case and its verdict.
#[derive(Serialize)]
struct JudgedCase<'a> {
    case: &'a str,
    /// The values that a sweep set, by the path of the field; absent for a case that no sweep made.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    swept: BTreeMap<&'a str, &'a str>,
    verdict: Verdict,
}

/// An expectation and its verdict.
#[derive(Serialize)]
struct Judged<'a> {
    /// The case; absent for a trend.
    #[serde(skip_serializing_if = "Option::is_none")]
    case: Option<&'a str>,
    kind: ExpectationKind,
    expected: &'a str,
    measured: &'a str,
    verdict: Verdict,
    reliable: bool,
}

/// Writes the record as one document, indented for people.
///
/// # Errors
/// Those of writing to `target`.
pub(crate) fn write_json(record: &Record, target: &mut dyn Write) -> io::Result<()> {
    let analysis = Analysis::of(record);
    let answer = Answer::of(&analysis);
    let cases = analysis.cases.iter().flat_map(|figures| {
        let checks = figures.checks.iter();
        checks.map(|check| Judged::of(Some(figures.name()), check))
    });
    let trends = analysis.trends.iter().map(|check| Judged::of(None, check));
    let document = Document {
        record,
        answer: AnswerObject {
            verdict: analysis.verdict,
            headline: &answer.headline,
            sentences: &answer.sentences,
            trust: &answer.reliability,
            counts: ExpectationCounts::of(analysis.checks()),
            cases: analysis.cases.iter().map(JudgedCase::of).collect(),
            expectations: cases.chain(trends).collect(),
        },
    };
    serde_json::to_writer_pretty(&mut *target, &document)?;
    writeln!(target)
}

impl<'a> JudgedCase<'a> {
    fn of(figures: &CaseFigures<'a>) -> Self {
        Self {
            case: &figures.case.name,
            swept: figures.case.swept_values().collect(),
            verdict: figures.verdict,
        }
    }
}

impl<'a> Judged<'a> {
    fn of(case: Option<&'a str>, check: &'a ExpectationCheck) -> Self {
        Self {
            case,
            kind: check.kind,
            expected: &check.expected,
            measured: &check.measured,
            verdict: check.verdict,
            reliable: check.is_reliable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::{late_pings, record};
    use crate::case_labels::tests::swept;
    use serde_json::{Value, json};

    fn document(record: &Record) -> Value {
        let mut text = Vec::new();
        write_json(record, &mut text).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    #[test]
    fn the_json_view_is_the_record() {
        let value = document(&record());
        assert_eq!(value["plan"]["name"], "small");
        assert_eq!(value["runs"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn the_answer_has_the_kinds_of_the_expectations_and_how_far_to_trust_the_record() {
        let mut record = record();
        record.head.plan.cases[0].expect[0].fitted = true;
        let answer = &document(&record)["answer"];
        assert_eq!(answer["verdict"], "met");
        assert_eq!(
            answer["counts"],
            json!({
                "tested": { "met": 2, "all": 2 },
                "loose": { "met": 1, "all": 1 },
                "fitted": { "met": 1, "all": 1 },
            })
        );
        assert_eq!(answer["trust"]["grade"], "good");
        assert_eq!(answer["trust"]["attempts"]["all"], 3);
        assert_eq!(answer["sentences"].as_array().unwrap().len(), 3);
        let expectations = answer["expectations"].as_array().unwrap();
        assert_eq!(expectations[0]["case"], "base");
        assert_eq!(expectations[0]["kind"], "fitted");
        assert_eq!(expectations[3].get("case"), None);
        let base = json!({ "case": "base", "verdict": "met" });
        assert_eq!(answer["cases"][0], base);
        let late = &document(&late_pings(10))["answer"];
        assert_eq!(late["trust"]["grade"], "invalid");
        assert_eq!(late["expectations"][0]["verdict"], "met");
        assert_eq!(late["expectations"][0]["reliable"], false);
    }

    #[test]
    fn a_case_of_a_sweep_has_the_values_of_its_fields() {
        let record = swept(&[
            &[("link.up.loss", "1%"), ("link.down.loss", "2%")],
            &[("link.up.loss", "3%"), ("link.down.loss", "2%")],
        ]);
        let cases = &document(&record)["answer"]["cases"];
        for (case, up) in cases.as_array().unwrap().iter().zip(["1%", "3%"]) {
            let values = json!({ "link.down.loss": "2%", "link.up.loss": up });
            assert_eq!(case["swept"], values, "{case}");
        }
        assert_eq!(cases[1]["case"], "line[loss=3%, loss=2%]");
    }
}
