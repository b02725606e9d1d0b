//! The report for a terminal: the answer, figures and expectations that are not met; with details, everything in the
//! record.

use crate::analysis::Analysis;
use crate::answer::Answer;
use crate::findings::{LEGEND, expectations, findings, own_machine, quick, results, verdicts};
use crate::terminal::{Terminal, prose, table_text};
use crate::{answers, brief, false_alarms, figure_tables, hosts, spread, warm_up};
use record::Record;
use record::table::Table;

/// Formats the report of a record within the width of the terminal.
///
/// Both forms open with the answer and with how far to trust it. The short form then has the main figures, those with
/// expectations, and the expectations that are not met. With `details` it has every main figure, the spread and the
/// warm-up of each, every expectation, the machine with every note about it, and a legend.
pub fn text(record: &Record, details: bool, terminal: Terminal) -> String {
    if details {
        whole(record, terminal)
    } else {
        brief(record, terminal)
    }
}

fn brief(record: &Record, terminal: Terminal) -> String {
    let analysis = Analysis::of(record);
    let mut text = opening(&analysis, terminal);
    let tables = brief::tables(&analysis);
    text += &if tables.is_empty() {
        format!("\n{}", prose(brief::MORE, terminal))
    } else {
        blocks(tables, terminal) + &prose(&brief::note(&analysis), terminal)
    };
    text += &answers::text(&analysis, false, terminal);
    text += &blocks(hosts::table(&analysis), terminal);
    match results(&analysis) {
        none if none.is_empty() => text,
        results => format!("{text}\n{}", prose(&results.join("\n"), terminal)),
    }
}

fn whole(record: &Record, terminal: Terminal) -> String {
    let analysis = Analysis::of(record);
    let values = figure_tables::tables(&analysis);
    let mut text = opening(&analysis, terminal);
    let tables = values.iter().map(|values| values.table(true));
    let judged = [verdicts(&analysis), expectations(&analysis)];
    text += &blocks(tables.chain(judged), terminal);
    if !values.is_empty() {
        text += &prose(LEGEND, terminal);
        if let Some(reference) = analysis.reference() {
            text += &prose(&format!("reference: {}", reference.words()), terminal);
        }
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

/// Formats the title, the answer and how far to trust it.
fn opening(analysis: &Analysis<'_>, terminal: Terminal) -> String {
    let plan = analysis.record.plan();
    let title = format!("{}{}\n", plan.title, quick(plan.quick));
    let answer = Answer::of(analysis);
    let mut lines = vec![title, answer.headline];
    lines.extend(answer.sentences);
    lines.push(answer.reliability.in_words());
    prose(&lines.join("\n"), terminal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::{late_pings, record, spoil};
    use record::expectation::Criterion;
    use record::profile::Headline;
    use record::{Metric, Statistic};

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
            let row = text.lines().find(|line| line.starts_with(" slow")).unwrap();
            for cell in ["3.12 ± 0.95", "3.100", "×2.8"] {
                assert!(row.contains(cell), "{cell} in {row}");
            }
            assert!(text.contains("15.00"), "{text}");
            assert!(
                text.contains("Met: 3 of 3 tested expectations met, 1 of 1 loose."),
                "{text}"
            );
            assert!(!text.contains('\u{1b}'));
        }
    }

    #[test]
    fn the_short_report_has_figures_verdicts_and_faults_and_names_the_full_one() {
        let text = brief(&record(), Terminal::NONE);
        assert!(text.lines().count() <= 36, "{text}");
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
    fn the_short_report_has_losses_if_there_are_any() {
        let mut record = record();
        let instruments = record.head.plan.cases.iter_mut();
        let instruments = instruments.flat_map(|case| &mut case.instruments);
        for ping in instruments.filter(|instrument| instrument.name == "ping") {
            // Other figures come first.
            let others = [Statistic::Min, Statistic::Max];
            let others = others.map(|statistic| Headline::new(Metric::RttMs, statistic));
            let own = std::mem::take(&mut ping.profile.headlines);
            ping.profile.headlines = others.into_iter().chain(own).collect();
        }
        let text = brief(&record, Terminal::NONE);
        assert!(text.contains("lost mean"), "{text}");
        let measured = record.runs.iter_mut().flat_map(|run| &mut run.measurements);
        for figure in measured.flat_map(|one| &mut one.measurement.figures) {
            if figure.metric == Metric::LostPercent {
                (figure.value, figure.losses) = (0.0, None);
            }
        }
        let text = brief(&record, Terminal::NONE);
        assert!(!text.contains("lost mean"), "{text}");
    }

    #[test]
    fn both_forms_open_with_the_answer_and_how_far_to_trust_it() {
        for details in [false, true] {
            let text = text(&record(), details, Terminal::NONE);
            let opening = unwrapped(text.split('─').next().unwrap());
            for part in [
                "A small experiment\n\nMet: 3 of 3 tested",
                "\nCompared with base (Nothing added), the goodput of download is 48.8 % lower in slow",
                "\nLimits: 1 loose expectation accepts",
                "\nHow far to trust it: good; the machine kept up in all 3 runs.\n",
            ] {
                assert!(opening.contains(part), "{part} in {opening}");
            }
        }
    }

    #[test]
    fn the_short_form_has_one_line_about_the_machine_and_details_have_all() {
        let mut record = late_pings(10);
        record.runs[1].attempt = 3;
        let short = unwrapped(&brief(&record, Terminal::NONE));
        let line = "How far to trust it: invalid; base: run 1 is invalid: ping: 10 of 100 packets up left more than 1 ms late; \
                    3 of 5 attempts failed or were invalid, and 2 were repeated.";
        assert!(short.contains(line), "{short}");
        assert!(short.contains(", but not reliable."), "{short}");
        assert_eq!(short.matches("ping: 10 of 100").count(), 1, "{short}");
        let long = unwrapped(&whole(&record, Terminal::NONE));
        assert!(
            long.contains("\nslow: 2 of 4 attempts failed or were invalid, and 2 were repeated"),
            "{long}"
        );
    }

    #[test]
    fn an_experiment_without_figures_has_no_tables_of_them() {
        let mut record = record();
        record.runs.clear();
        let short = brief(&record, Terminal::NONE);
        assert!(!short.contains('─'), "{short}");
        assert!(
            short.contains("\n\nfor more, use --details or open the report\n"),
            "{short}"
        );
        let long = whole(&record, Terminal::NONE);
        assert!(!long.contains("Student"), "{long}");
    }

    #[test]
    fn a_record_without_a_valid_run_has_no_table_of_figures_and_no_legend() {
        let mut record = record();
        for run in &mut record.runs {
            spoil(run, "the ring dropped 3");
        }
        for details in [false, true] {
            let text = unwrapped(&text(&record, details, Terminal::NONE));
            assert!(!text.contains("[low, high]"), "{text}");
            let again = "farwire run --resume out/small --redo-invalid";
            assert!(text.contains(again), "{text}");
        }
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
        record.head.plan.cases[1].expect[0].rule = Criterion::Gain {
            gain: 5.0,
            within: 0.15,
        };
        let text = text(&record, false, COLOURED);
        let expected = "slow: ping.rtt_ms.median: the reference's value +5 ± 0.15 ms: NOT MET: 3.125 ms (+2.025)";
        assert!(unwrapped(&text).contains(expected), "{text}");
        assert!(text.contains('\u{1b}'));
    }
}
