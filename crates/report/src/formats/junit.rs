//! The verdicts as JUnit XML, which continuous integration systems show: a test for each case, and one for each trend.
//! Properties of the suite have the numbers of expectations of each kind, and how far to trust the record.
//!
//! Elements and attributes are those of the schema of Jenkins' xunit plugin, junit-10.xsd.

use std::collections::BTreeMap;

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use crate::analysis::{Analysis, CaseFigures, ExpectationCheck, ExpectationCounts, Verdict};
use crate::error::Result;
use crate::findings;
use crate::reliability::Reliability;
use record::Record;
use record::expectation::ExpectationKind;
use record::plan::Case;

/// Formats the record's verdicts.
///
/// # Errors
/// Never for any record, because characters that XML does not allow are left out.
pub(crate) fn junit(record: &Record) -> Result<String> {
    let analysis = Analysis::of(record);
    let name = record.plan().name.as_str();
    let mut suite = TestSuite::new(name);
    for (kind, count) in ExpectationCounts::of(analysis.checks()).by_kind() {
        let property = format!("{} expectations met", kind.name());
        let caveat = findings::caveat(&analysis);
        suite.add_property((property, format!("{} of {}{caveat}", count.met, count.all)));
    }
    let trust = Reliability::of(&analysis).in_words();
    suite.add_property(("trust".to_owned(), trust));
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
        if check.kind != ExpectationKind::Tested {
            test.set_system_out(line(check));
        }
        suite.add_test_case(test);
    }
    let mut report = Report::new(name);
    report.add_test_suite(suite);
    let xml = report.to_string()?;
    // The schema of Jenkins allows this count only for a single suite. Quotes in the name before it are escaped.
    Ok(xml.replacen(&format!(" skipped=\"{}\"", report.skipped), "", 1))
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
    let lines: Vec<String> = swept(figures.case)
        .into_iter()
        .chain(figures.checks.iter().map(line))
        .chain(figures.left_out.iter().cloned())
        .chain(figures.attempts.in_words())
        .collect();
    if !lines.is_empty() {
        test.set_system_out(lines.join("\n"));
    }
    test
}

/// Returns the values that a sweep set in a case, by the whole paths of the fields. The name of the case has only the ends
/// of the paths.
fn swept(case: &Case) -> Option<String> {
    let values: BTreeMap<&str, &str> = case.swept_values().collect();
    let fields = values.iter().map(|(path, value)| format!("{path} {value}"));
    let fields = fields.collect::<Vec<_>>().join(", ");
    (!fields.is_empty()).then(|| format!("swept: {fields}"))
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

/// Formats an expectation with its verdict, and its kind unless it is tested.
fn line(check: &ExpectationCheck) -> String {
    let kind = match check.kind {
        ExpectationKind::Tested => String::new(),
        kind => format!("; {}", kind.name()),
    };
    format!("{}: {}{kind}", check.verdict_in_words(), words(check))
}

fn words(check: &ExpectationCheck) -> String {
    format!("expected {}; measured {}", check.expected, check.measured)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::{late_pings, record};
    use crate::case_labels::tests::swept as swept_record;
    use quick_xml::events::Event;
    use quick_xml::reader::Reader;
    use record::RunOutcome;

    /// An element of junit-10.xsd, as far as this format has it.
    struct ElementRule {
        name: &'static str,
        /// The elements that may contain it; none for the outermost one.
        parents: &'static [&'static str],
        required: &'static [&'static str],
        optional: &'static [&'static str],
    }

    /// The rules of junit-10.xsd of Jenkins' xunit plugin. A report with every status was valid by the schema itself on
    /// 2026-11-26.
    const RULES: [ElementRule; 9] = [
        ElementRule {
            name: "testsuites",
            parents: &[],
            required: &[],
            optional: &["name", "time", "tests", "failures", "errors"],
        },
        ElementRule {
            name: "testsuite",
            parents: &["testsuites", "testsuite"],
            required: &["name", "tests", "failures", "errors"],
            optional: &["group", "time", "skipped", "timestamp", "hostname", "id"],
        },
        ElementRule {
            name: "testcase",
            parents: &["testsuite"],
            required: &["name"],
            optional: &["time", "classname", "group"],
        },
        ElementRule {
            name: "skipped",
            parents: &["testcase"],
            required: &[],
            optional: &["type", "message"],
        },
        ElementRule {
            name: "error",
            parents: &["testcase"],
            required: &[],
            optional: &["type", "message"],
        },
        ElementRule {
            name: "failure",
            parents: &["testcase"],
            required: &[],
            optional: &["type", "message"],
        },
        ElementRule {
            name: "properties",
            parents: &["testsuite"],
            required: &[],
            optional: &[],
        },
        ElementRule {
            name: "property",
            parents: &["properties"],
            required: &["name", "value"],
            optional: &[],
        },
        ElementRule {
            name: "system-out",
            parents: &["testsuite", "testcase"],
            required: &[],
            optional: &[],
        },
    ];

    /// Returns the first element that the rules do not allow.
    fn not_allowed(xml: &str) -> Option<String> {
        let mut reader = Reader::from_str(xml);
        let mut open: Vec<String> = Vec::new();
        loop {
            let event = reader.read_event().unwrap();
            match &event {
                Event::Start(tag) | Event::Empty(tag) => {
                    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                    let name = text(tag.name().as_ref());
                    let attributes = tag.attributes().map(|one| text(one.unwrap().key.as_ref()));
                    let attributes: Vec<String> = attributes.collect();
                    if !is_allowed(&name, open.last(), &attributes) {
                        return Some(format!("{name} in {:?} with {attributes:?}", open.last()));
                    }
                    if matches!(event, Event::Start(_)) {
                        open.push(name);
                    }
                }
                Event::End(_) => drop(open.pop()),
                Event::Eof => return None,
                _ => {}
            }
        }
    }

    fn is_allowed(name: &str, parent: Option<&String>, attributes: &[String]) -> bool {
        let Some(rule) = RULES.iter().find(|rule| rule.name == name) else {
            return false;
        };
        let is_placed = match parent {
            None => rule.parents.is_empty(),
            Some(parent) => rule.parents.contains(&parent.as_str()),
        };
        let has = |required: &&str| attributes.iter().any(|own| own == required);
        let mut known = attributes.iter().map(String::as_str);
        is_placed
            && rule.required.iter().all(has)
            && known.all(|own| rule.required.contains(&own) || rule.optional.contains(&own))
    }

    #[test]
    fn a_report_with_every_status_keeps_to_the_schema_of_jenkins() {
        let mut record = record();
        record.head.plan.name = "a \"small\" skipped=\"0\" <one>".to_owned();
        record.head.plan.cases[1].expect[0].of = "ping.lost_percent.mean".parse().unwrap();
        record.runs[0].outcome = RunOutcome::Failed {
            cause: "no route".to_owned(),
        };
        let all = junit(&record).unwrap();
        record.finished_at = None;
        record.runs.clear();
        let none = junit(&record).unwrap();
        for (xml, statuses) in [(&all, ["<error", "<failure"]), (&none, ["<skipped"; 2])] {
            assert!(statuses.iter().all(|one| xml.contains(one)), "{xml}");
            assert_eq!(not_allowed(xml), None, "{xml}");
        }
        // The rules find the attribute that the schema does not know.
        let wrong = all.replacen("<testsuites", "<testsuites skipped=\"0\"", 1);
        assert!(not_allowed(&wrong).unwrap().starts_with("testsuites in"));
    }

    #[test]
    fn every_case_and_trend_is_a_test() {
        let xml = junit(&record()).unwrap();
        assert!(
            xml.contains("tests=\"3\" skipped=\"0\" errors=\"0\" failures=\"0\""),
            "{xml}"
        );
        assert!(xml.contains("classname=\"trend\""));
    }

    #[test]
    fn a_case_of_a_sweep_is_shown_by_the_values_of_its_fields() {
        let record = swept_record(&[
            &[("link.up.loss", "1%"), ("link.down.loss", "2%")],
            &[("link.up.loss", "3%"), ("link.down.loss", "2%")],
        ]);
        let xml = junit(&record).unwrap();
        for part in [
            "<testcase name=\"line[loss=1%, loss=2%]\" classname=\"case\">",
            "<system-out>swept: link.down.loss 2%, link.up.loss 1%</system-out>",
            "<system-out>swept: link.down.loss 2%, link.up.loss 3%</system-out>",
        ] {
            assert!(xml.contains(part), "{part} in {xml}");
        }
        assert_eq!(not_allowed(&xml), None, "{xml}");
    }

    #[test]
    fn kinds_of_expectations_are_counted_separately() {
        let mut record = record();
        record.head.plan.trends[0].fitted = true;
        let xml = junit(&record).unwrap();
        for part in [
            "<property name=\"tested expectations met\" value=\"2 of 2\"/>",
            "<property name=\"loose expectations met\" value=\"1 of 1\"/>",
            "<property name=\"fitted expectations met\" value=\"1 of 1\"/>",
            "<property name=\"trust\" value=\"How far to trust it: good; the machine kept up in all 3 runs.\"/>",
            "measured 8.200 Mbit/s (+2.5 %); loose",
            "; fitted</system-out>",
        ] {
            assert!(xml.contains(part), "{part} in {xml}");
        }
    }

    #[test]
    fn a_met_expectation_of_an_invalid_case_is_not_reliable() {
        let xml = junit(&late_pings(10)).unwrap();
        for part in [
            "met, but not reliable: expected download.goodput",
            "name=\"loose expectations met\" value=\"1 of 1, but not reliable\"",
        ] {
            assert!(xml.contains(part), "{part} in {xml}");
        }
        assert!(
            xml.contains("1 of 1 attempt failed or was invalid, and none was repeated"),
            "{xml}"
        );
    }

    #[test]
    fn a_case_that_has_not_run_is_skipped_with_the_cause() {
        let mut record = record();
        record.finished_at = None;
        record.runs.retain(|run| run.case == "base");
        let xml = junit(&record).unwrap();
        assert!(
            xml.contains("tests=\"3\" skipped=\"2\" errors=\"0\" failures=\"0\""),
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
        assert!(xml.contains("errors=\"1\" failures=\"1\""), "{xml}");
        assert!(xml.contains("measured 50.00 %"), "{xml}");
        assert!(!xml.contains("<evil>") && !xml.contains('\u{0}'), "{xml}");
    }
}
