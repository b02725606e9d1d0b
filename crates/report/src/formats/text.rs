//! The report for a terminal: figures, verdicts and causes of invalid figures; with details, everything in the record.

use crate::analysis::Analysis;
use crate::findings::{LEGEND, findings, own_machine, quick, verdicts};
use crate::terminal::{Terminal, prose, table_text};
use crate::{answers, brief, false_alarms, figure_tables, hosts, spread, warm_up};
use record::Record;
use record::table::Table;

/// Formats the report of a record within the width of the terminal.
///
/// The short form has the main figures and those with expectations, the expectations that are not met, and the causes
/// of invalid figures. With `details` it has every main figure, the spread and the warm-up of each, the machine, and a
/// legend.
pub fn text(record: &Record, details: bool, terminal: Terminal) -> String {
    if details {
        whole(record, terminal)
    } else {
        brief(record, terminal)
    }
}

fn brief(record: &Record, terminal: Terminal) -> String {
    let analysis = Analysis::of(record);
    let mut text = title(record, terminal);
    text += &blocks(brief::tables(&analysis), terminal);
    text += &prose(&brief::note(&analysis), terminal);
    text += &answers::text(&analysis, false, terminal);
    text += &blocks(hosts::table(&analysis), terminal);
    text.push('\n');
    text + &prose(&findings(&analysis).join("\n"), terminal)
}

fn whole(record: &Record, terminal: Terminal) -> String {
    let analysis = Analysis::of(record);
    let values = figure_tables::tables(&analysis);
    let mut text = title(record, terminal);
    let tables = values.iter().map(|values| values.table(true));
    text += &blocks(tables.chain([verdicts(&analysis)]), terminal);
    text += &prose(LEGEND, terminal);
    if let Some(reference) = &record.plan().reference {
        text += &prose(&format!("reference: {reference}"), terminal);
    }
    text += &answers::text(&analysis, true, terminal);
    text += &blocks(warm_up::tables(&analysis), terminal);
    text += &spread::text(&values, terminal);
    let chance = false_alarms::table(&analysis).into_iter();
    text += &blocks(chance.chain(hosts::table(&analysis)), terminal);
    text.push('\n');
    let machine = own_machine(record);
    let lines: Vec<String> = machine.into_iter().chain(findings(&analysis)).collect();
    text + &prose(&lines.join("\n"), terminal)
}

/// Formats tables, each below an empty line.
fn blocks(tables: impl IntoIterator<Item = Table>, terminal: Terminal) -> String {
    let tables = tables.into_iter();
    let texts = tables.map(|table| format!("\n{}", table_text(&table, terminal)));
    texts.collect()
}

fn title(record: &Record, terminal: Terminal) -> String {
    let plan = record.plan();
    prose(&format!("{}{}", plan.title, quick(plan.quick)), terminal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::record;
    use record::expectation::ExpectationRule;

    const COLOURED: Terminal = Terminal {
        coloured: true,
        ..Terminal::NONE
    };

    /// Returns wrapped text in one line again.
    fn unwrapped(text: &str) -> String {
        text.replace("\n  ", " ")
    }

    #[test]
    fn every_case_has_a_row_with_measured_and_published_values() {
        for text in [
            text(&record(), false, Terminal::NONE),
            text(&record(), true, Terminal::NONE),
        ] {
            let row = text.lines().find(|line| line.contains("slow")).unwrap();
            for cell in ["3.12 ± 0.95", "3.100", "×2.8"] {
                assert!(row.contains(cell), "{cell} in {row}");
            }
            assert!(text.contains("15.00"), "{text}");
            assert!(text.contains("all 4 expectations met"), "{text}");
            assert!(!text.contains('\u{1b}'));
        }
    }

    #[test]
    fn the_short_report_has_figures_verdicts_and_faults_and_names_the_full_one() {
        let text = brief(&record(), Terminal::NONE);
        assert!(text.lines().count() <= 30, "{text}");
        for elsewhere in ["warm-up", "over the runs", "Student"] {
            assert!(!text.contains(elsewhere), "{elsewhere} in {text}");
            assert!(
                whole(&record(), Terminal::NONE).contains(elsewhere),
                "{elsewhere}"
            );
        }
        assert!(
            unwrapped(&text).contains("for more, use --details or open the report"),
            "{text}"
        );
    }

    #[test]
    fn an_experiment_without_expectations_is_reported_as_such() {
        let mut record = record();
        for case in &mut record.head.plan.cases {
            case.expect.clear();
        }
        record.head.plan.trends.clear();
        let text = text(&record, false, Terminal::NONE);
        assert!(text.contains("no expectations defined"), "{text}");
    }

    #[test]
    fn unmet_expectations_are_listed_below_the_table() {
        let mut record = record();
        record.head.plan.cases[1].expect[0].rule = ExpectationRule::Gain {
            gain: 5.0,
            within: 0.15,
        };
        let text = text(&record, false, COLOURED);
        let expected =
            "slow: ping.rtt_ms.median: the reference's +5 ± 0.15 ms: NOT MET: 3.125 ms (+2.025)";
        assert!(unwrapped(&text).contains(expected), "{text}");
        assert!(text.contains('\u{1b}'));
    }
}
