//! Two records side by side, for the terminal.

use super::terminal::{Terminal, prose, table_text};
use crate::analysis::compare::{Compared, Comparison};
use record::quantity;
use record::table::{Column, Table};

/// A row a figure, and what one record lacks; regressions beyond `threshold` percent are named last.
pub fn comparison(comparison: &Comparison, threshold: f64, terminal: Terminal) -> String {
    let (words, numbers) = (Column::words, Column::numbers);
    let columns = [
        words("case"),
        words("figure"),
        numbers("reference"),
        numbers("record"),
        words("change"),
    ];
    let row = |one: &Compared| {
        let [before, after] = one.means.map(|mean| quantity(one.figure.metric, mean));
        [
            one.case.clone(),
            one.figure.to_string(),
            before,
            after,
            one.words(),
        ]
    };
    let table = Table::new("", columns).with(comparison.compared.iter().map(row));
    let mut text = table_text(&table, terminal);
    for missing in &comparison.missing {
        text += &prose(missing, terminal);
    }
    let worse: Vec<String> = comparison
        .regressions(threshold)
        .map(|one| {
            let (case, figure, words) = (&one.case, &one.figure, one.words());
            prose(&format!("REGRESSION: {case}: {figure}: {words}"), terminal)
        })
        .collect();
    if worse.is_empty() {
        text += &format!("nothing got worse by more than {threshold} % beyond chance\n");
    }
    text + &worse.concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::record;

    #[test]
    fn every_figure_has_a_row_and_what_is_no_worse_is_said() {
        let record = record();
        let same = Comparison::of(&record, &record, |_, _| true).unwrap();
        let text = comparison(&same, 5.0, Terminal::NONE);
        assert!(text.contains("ping.rtt_ms.median"), "{text}");
        assert!(text.contains("too few runs"), "{text}");
        assert!(
            text.ends_with("nothing got worse by more than 5 % beyond chance\n"),
            "{text}"
        );
    }
}
