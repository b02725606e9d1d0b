//! The comparison of two records for the terminal.

use super::terminal::{Terminal, prose, table_text};
use crate::analysis::comparison_by::{ComparisonBy, NamedRecord, heading};
use crate::analysis::record_comparison::{Compared, Comparison};
use crate::answers;
use record::quantity;
use record::quantity::counted;
use record::table::{Column, Table};

/// Formats a comparison with a row for each figure, and what one record lacks. Figures that got worse by more than
/// `threshold` percent are listed last.
pub fn comparison(comparison: &Comparison, threshold: f64, terminal: Terminal) -> String {
    let (words, numbers) = (Column::words, Column::numbers);
    let columns = [
        words("figure"),
        numbers("reference"),
        numbers("record"),
        words("change"),
    ];
    let row = |one: &Compared| {
        let [before, after] = one.means.map(|mean| quantity(one.figure.metric, mean));
        [
            format!("{}:\n{}", one.case_in_words, one.figure),
            before,
            after,
            one.words(),
        ]
    };
    let table = Table::new("", columns).with(comparison.compared.iter().map(row));
    let across = comparison.across.iter();
    let across = across.map(|links| format!("across links: {links}")).chain(
        comparison
            .hosts
            .iter()
            .map(|what| format!("the machines differ: {what}")),
    );
    let unfinished = comparison.unfinished.iter();
    let across = across
        .chain(unfinished.map(|which| format!("the {which} is unfinished: --resume continues it")));
    let missing = comparison
        .missing
        .iter()
        .map(|missing| format!("not compared: {missing}"));
    let worse = comparison.regressions(threshold).map(|one| {
        let (case, figure, words) = (&one.case_in_words, &one.figure, one.words());
        format!("REGRESSION: {case}: {figure}: {words}")
    });
    let untold = comparison.untold();
    let sum = (untold > 0).then(|| format!("not compared: {}", counted(untold, "figure")));
    let told = comparison.compared.iter().any(|one| !one.is_too_few());
    let nothing = (told && comparison.regressions(threshold).next().is_none()).then(|| {
        let rest = if untold > 0 { " of the rest" } else { "" };
        format!("no figure{rest} got worse by more than {threshold} % beyond chance")
    });
    let limits = (comparison.family() > 0).then(|| {
        format!(
            "beyond chance: Welch's t test for {}, with Holm's procedure at 5 %; the test cannot see what differs between two sessions as a whole",
            counted(comparison.family(), "figure")
        )
    });
    let lines = |lines: &mut dyn Iterator<Item = String>| -> String {
        lines.map(|line| prose(&line, terminal)).collect()
    };
    lines(&mut { across })
        + &table_text(&table, terminal)
        + &lines(&mut missing.chain(worse).chain(sum).chain(limits).chain(nothing))
}

/// Formats the comparison of `records` that differ on purpose in one field: for each figure the question, the answer
/// and a table.
pub fn comparison_by(
    records: &[NamedRecord],
    comparison: &ComparisonBy,
    terminal: Terminal,
) -> String {
    let ComparisonBy {
        field,
        all,
        remarks,
        missing,
    } = comparison;
    let first = [vec![heading(records, *field)], remarks.clone()].concat();
    let mut text = prose(&first.join("\n"), terminal);
    for answer in answers::answers(all) {
        let lines = [vec![answer.question()], answer.sentences()].concat();
        text += &format!("\n{}", prose(&lines.join("\n"), terminal));
        text += &answer.table_text(terminal);
    }
    let missing = missing.iter().map(|case| format!("not compared: {case}"));
    let method = answers::method(all).map(|method| {
        format!("{method}; the test cannot see what else differs between two sessions as a whole")
    });
    let last: Vec<String> = missing.chain(method).collect();
    text + &prose(&last.join("\n"), terminal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::record;

    #[test]
    fn every_figure_has_a_row_and_undecided_ones_are_reported() {
        let record = record();
        let same = Comparison::of(&record, &record, false, |_, _| true).unwrap();
        let wide = Terminal {
            width: 200,
            ..Terminal::NONE
        };
        let text = comparison(&same, 5.0, wide).replace('\n', " ");
        assert!(text.contains("ping.rtt_ms.median"), "{text}");
        assert!(text.contains("too few runs: 4 per record needed"), "{text}");
        let last = format!("not compared: {} figures ", same.compared.len());
        assert!(text.ends_with(&last), "{text}");
        assert!(!text.contains("got worse"), "{text}");
    }

    #[test]
    fn nothing_got_worse_is_printed_only_if_it_is_decided() {
        let mut four = record();
        four.head.plan.cases.truncate(1);
        four.head.plan.cases[0].repeats = record::plan::Repeats::fixed(4);
        let run = four.runs[0].clone();
        four.runs = (1..=4)
            .map(|repeat| record::Run {
                repeat,
                ..run.clone()
            })
            .collect();
        let whole = Comparison::of(&four, &four, false, |_, _| true).unwrap();
        let text = comparison(&whole, 5.0, Terminal::NONE);
        assert!(
            text.ends_with("\nno figure got worse by more than 5 % beyond chance\n"),
            "{text}"
        );
        assert!(!text.contains("not compared"), "{text}");
        let mut less = four.clone();
        for run in &mut less.runs {
            run.measurements.remove(0);
        }
        let part = Comparison::of(&four, &less, false, |_, _| true).unwrap();
        let text = comparison(&part, 5.0, Terminal::NONE);
        assert!(text.contains("not compared: base: ping."), "{text}");
        assert!(
            text.ends_with("\nno figure of the rest got worse by more than 5 % beyond chance\n"),
            "{text}"
        );
    }
}
