//! The report for a terminal: measured, beside the published and the reference.

use super::findings::{LEGEND, findings, machine, quick, verdicts};
use super::render::table_text;
use super::{spread, steady, tables};
use crate::analysis::Analysis;
use record::Record;

/// The record as text for a terminal; colours only where `coloured`.
pub fn text(record: &Record, coloured: bool) -> String {
    let analysis = Analysis::of(record);
    let plan = record.plan();
    let values = tables::tables(&analysis);
    let mut text = format!("{}{}\n", plan.title, quick(plan.quick));
    for values in &values {
        text += &format!("\n{}", table_text(&values.table(true), coloured));
    }
    text += &format!("\n{}{LEGEND}\n", table_text(&verdicts(&analysis), coloured));
    if let Some(reference) = &plan.reference {
        text += &format!("reference: {reference}\n");
    }
    for table in steady::tables(&analysis) {
        text += &format!("\n{}", table_text(&table, false));
    }
    text += &spread::text(&values);
    text.push('\n');
    let machine = record.baseline.as_ref().map(machine);
    for line in machine.into_iter().chain(findings(&analysis)) {
        text += &line;
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::record;
    use record::expectation::Rule;

    #[test]
    fn every_case_has_a_row_of_measured_beside_published() {
        let text = text(&record(), false);
        let row = text.lines().find(|line| line.contains("slow")).unwrap();
        for cell in ["3.125 ± ", "3.100", "+184.", "15.00"] {
            assert!(row.contains(cell), "{cell} in {row}");
        }
        assert!(text.contains("all 4 expectations met"), "{text}");
        assert!(!text.contains('\u{1b}'));
    }

    #[test]
    fn an_experiment_that_expects_nothing_says_so() {
        let mut record = record();
        for case in &mut record.head.plan.cases {
            case.expect.clear();
        }
        record.head.plan.trends.clear();
        let text = text(&record, false);
        assert!(text.contains("nothing was expected"), "{text}");
    }

    #[test]
    fn what_is_not_met_is_named_below_the_table() {
        let mut record = record();
        record.head.plan.cases[1].expect[0].rule = Rule::Gain {
            gain: 5.0,
            within: 0.15,
        };
        let text = text(&record, true);
        let expected =
            "slow: ping.rtt_ms.median: the reference's +5 ± 0.15 ms: NOT MET: 3.125 ms (+2.025)";
        assert!(text.contains(expected), "{text}");
        assert!(text.contains('\u{1b}'));
    }
}
