//! The report in Markdown, for wikis and code reviews: the answer, the tables of the terminal, verdicts, findings and
//! conditions.

use crate::analysis::Analysis;
use crate::answer::Answer;
use crate::error::Result;
use crate::figure_tables::FEW_RUNS;
use crate::findings::{LEGEND, conditions, expectations, findings, own_machine, quick, verdicts};
use crate::render::{escaped, table_markdown};
use crate::trust::{EVERY_FIGURE, OccurringRow};
use crate::{answers, false_alarms, figure_tables, hosts, spread, warm_up};
use record::Record;

/// Formats the record as Markdown with GitHub's tables.
///
/// # Errors
/// Never for any record.
pub(crate) fn markdown(record: &Record) -> Result<String> {
    let analysis = Analysis::of(record);
    let plan = record.plan();
    let values = figure_tables::tables(&analysis);
    let ramps = warm_up::tables(&analysis);
    let trust = figure_tables::trust(&values, !ramps.is_empty());
    let answer = Answer::of(&analysis);
    let mut text = format!(
        "# {}\n\n**{}**\n\n{}\n\n{}\n\nMeasured by farwire {}, {}{}.\n",
        escaped(&plan.title),
        answer.headline,
        escaped(&answer.sentences.join(" ")),
        escaped(&answer.reliability.in_words()),
        escaped(&record.head.farwire),
        escaped(&record.head.started_at),
        quick(plan.quick)
    );
    for values in &values {
        text += &format!("\n{}", table_markdown(&values.table(false)));
    }
    if !values.is_empty() {
        text += &format!("\n{LEGEND}.\n");
        if figure_tables::has_few_runs(&values) {
            text += &format!("{FEW_RUNS}.\n");
        }
        if let Some(reference) = analysis.reference() {
            text += &format!("Reference: {}.\n", escaped(reference.words()));
        }
    }
    text += &answers::markdown(&analysis);
    let cases = table_markdown(&verdicts(&analysis));
    text += &format!("\n## Verdicts\n\n{cases}\n");
    let judged = expectations(&analysis);
    if !judged.rows.is_empty() {
        text += &format!("{}\n", table_markdown(&judged));
    }
    let machine = own_machine(record);
    for line in findings(&analysis).into_iter().chain(machine) {
        text += &format!("- {}\n", escaped(&line));
    }
    let chance = false_alarms::table(&analysis).into_iter();
    let others = chance.chain(hosts::table(&analysis)).collect();
    for table in [ramps, spread::tables(&values), others].concat() {
        text += &format!("\n{}", table_markdown(&table));
    }
    let cases = table_markdown(&conditions(plan));
    text += &format!("\n## Conditions\n\n{cases}");
    text += &how_far_to_trust(&trust);
    Ok(text)
}

/// Explains the intervals of the report's figures, with the anchors to which their headings link.
fn how_far_to_trust(rows: &[OccurringRow]) -> String {
    let mut text = format!(
        "\n## How far to trust it\n\n{EVERY_FIGURE}\n\n| figure | what its 95 % interval contains | method | fewest samples | invalid when \
         |\n|---|---|---|---|---|\n"
    );
    for one in rows {
        let (place, title) = (one.row.place(), escaped(&one.title()));
        let cells = [
            one.row.contains,
            one.row.method,
            one.row.least,
            one.row.invalid,
        ]
        .join(" | ");
        text += &format!("| <a id=\"{place}\"></a>{title} | {cells} |\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::record;

    #[test]
    fn markdown_has_the_tables_of_the_terminal_and_the_conditions() {
        let text = markdown(&record()).unwrap();
        for part in [
            "# A small experiment\n\n**Met: 3 of 3 tested expectations met, 1 of 1 loose.**\n\nCompared with base (Nothing added), ",
            "\n\nHow far to trust it: good; the machine kept up in all 3 runs.\n\nMeasured by",
            "## ping\n\n| case | [rtt median](#trust-rtt), over 2 runs, ms |",
            "| <a id=\"trust-rtt\"></a>rtt median of ping | the median; for `ping`",
            "| slow | 3.12 ± 0.95 | ",
            "| base | none | kind netns, mtu 1500",
            "| slow | ping.rtt\\_ms.median: the reference's value +2 ± 0.15 ms | tested | 3.125 ms (+2.025) | met |",
            "| slow | download.goodput\\_bit\\_per\\_s.mean: the published value within a factor of 1.5 | loose | ",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn every_row_of_a_table_has_as_many_cells_as_its_header() {
        let mut record = record();
        record.head.plan.cases[1].title = "a | b\n| c <i>".to_owned();
        let text = markdown(&record).unwrap();
        let mut width = 0;
        for line in text.lines() {
            let cells = line.replace("\\|", "").matches('|').count();
            if line.starts_with('|') && width > 0 {
                assert_eq!(cells, width, "{line}");
            }
            width = if line.starts_with('|') { cells } else { 0 };
        }
        assert!(!text.contains("<i>"));
    }
}
