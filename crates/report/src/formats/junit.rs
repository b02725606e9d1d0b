//! The verdicts as JUnit XML, which continuous integration systems show: a test for each case, and one for each trend.

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use crate::analysis::{Analysis, CaseFigures, ExpectationCheck, Verdict};
use crate::error::Result;
use record::Record;

/// Formats the record's verdicts.
///
/// # Errors
/// Never for any record, because characters that XML does not allow are left out.
pub(crate) fn junit(record: &Record) -> Result<String> {
    let analysis = Analysis::of(record);
    let name = record.plan().name.as_str();
    let mut suite = TestSuite::new(name);
    for figures in &analysis.cases {
        suite.add_test_case(of_case(figures));
    }
    for check in &analysis.trends {
        let unmet = std::slice::from_ref(check);
        let status = match check.verdict {
            Verdict::Incomplete => skipped("some of its cases are incomplete"),
            _ => status(unmet, &[]),
        };
        let mut test = TestCase::new(check.expected.clone(), status);
        test.set_classname("trend");
        suite.add_test_case(test);
    }
    let mut report = Report::new(name);
    report.add_test_suite(suite);
    Ok(report.to_string()?)
}

fn of_case(figures: &CaseFigures<'_>) -> TestCase {
    let faults: Vec<&str> = figures
        .faults
        .iter()
        .map(|fault| fault.text.as_str())
        .collect();
    let status = match figures.verdict {
        Verdict::Incomplete => skipped(faults.first().unwrap_or(&"the reference is incomplete")),
        _ => status(&figures.checks, &faults),
    };
    let mut test = TestCase::new(figures.case.name.clone(), status);
    test.set_classname("case");
    let lines: Vec<String> = figures
        .checks
        .iter()
        .map(|check| format!("{}: {}", check.verdict, words(check)))
        .chain(figures.left_out.iter().cloned())
        .collect();
    if !lines.is_empty() {
        test.set_system_out(lines.join("\n"));
    }
    test
}

/// Creates the status of a case without a verdict because runs are still to come.
fn skipped(cause: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::skipped();
    status.set_message(format!(
        "{cause}; --resume with the record's directory continues the experiment"
    ));
    status
}

/// Returns an error if a run went wrong, because no number can be judged then, or a failure if an expectation is not
/// met.
fn status(checks: &[ExpectationCheck], faults: &[&str]) -> TestCaseStatus {
    let decided =
        |check: &&ExpectationCheck| !matches!(check.verdict, Verdict::Met | Verdict::Incomplete);
    let unmet: Vec<String> = checks.iter().filter(decided).map(words).collect();
    let (kind, what, message) = match (faults, unmet.as_slice()) {
        ([], []) => return TestCaseStatus::success(),
        ([], [first, ..]) => (NonSuccessKind::Failure, "expectation", first.clone()),
        ([first, ..], _) => (NonSuccessKind::Error, "run", (*first).to_owned()),
    };
    let mut status = TestCaseStatus::non_success(kind);
    status.set_type(what);
    status.set_message(message);
    let all = faults.iter().map(|fault| (*fault).to_owned()).chain(unmet);
    status.set_description(all.collect::<Vec<_>>().join("\n"));
    status
}

fn words(check: &ExpectationCheck) -> String {
    format!("expected {}; measured {}", check.expected, check.measured)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::record;
    use record::RunOutcome;

    #[test]
    fn every_case_and_trend_is_a_test() {
        let xml = junit(&record()).unwrap();
        assert!(
            xml.contains("tests=\"3\" skipped=\"0\" failures=\"0\" errors=\"0\""),
            "{xml}"
        );
        assert!(xml.contains("classname=\"trend\""));
    }

    #[test]
    fn a_case_that_has_not_run_is_skipped_with_the_cause() {
        let mut record = record();
        record.finished_at = None;
        record.runs.retain(|run| run.case == "base");
        let xml = junit(&record).unwrap();
        assert!(
            xml.contains("tests=\"3\" skipped=\"2\" failures=\"0\" errors=\"0\""),
            "{xml}"
        );
        assert!(xml.contains("0 of 2 runs took place; --resume"), "{xml}");
    }

    #[test]
    fn an_unmet_expectation_is_a_failure_and_a_failed_run_an_error() {
        let mut record = record();
        record.head.plan.cases[1].expect[0].of = "ping.lost_percent.mean".parse().unwrap();
        record.runs[0].outcome = RunOutcome::Failed {
            cause: "]]><evil>\u{0} & \"more\"".to_owned(),
        };
        let xml = junit(&record).unwrap();
        assert!(xml.contains("failures=\"1\" errors=\"1\""), "{xml}");
        assert!(xml.contains("measured 50.00 %"), "{xml}");
        assert!(!xml.contains("<evil>") && !xml.contains('\u{0}'), "{xml}");
    }
}
