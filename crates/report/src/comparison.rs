//! Two records side by side, for the terminal.

use comfy_table::{Cell, CellAlignment, Table};

use super::text::STYLE;
use crate::analysis::compare::Comparison;
use record::quantity;

/// A row a figure, and what one record lacks; regressions beyond `threshold` percent are named last.
pub fn comparison(comparison: &Comparison, threshold: f64) -> String {
    let mut table = Table::new();
    table.load_style(STYLE).force_no_tty();
    table.set_header(["case", "figure", "reference", "record", "change"]);
    for one in &comparison.compared {
        let [before, after] = one.means.map(|mean| quantity(one.figure.metric, mean));
        table.add_row([
            Cell::new(&one.case),
            Cell::new(one.figure.to_string()),
            Cell::new(before).set_alignment(CellAlignment::Right),
            Cell::new(after).set_alignment(CellAlignment::Right),
            Cell::new(one.words()),
        ]);
    }
    let mut text = format!("{table}\n");
    for missing in &comparison.missing {
        text += &format!("{missing}\n");
    }
    let worse: Vec<String> = comparison
        .regressions(threshold)
        .map(|one| {
            format!(
                "REGRESSION: {}: {}: {}\n",
                one.case,
                one.figure,
                one.words()
            )
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
        let text = comparison(&same, 5.0);
        assert!(text.contains("ping.rtt_ms.median"), "{text}");
        assert!(
            text.contains("too few runs for an interval (1 and 1)"),
            "{text}"
        );
        assert!(
            text.ends_with("nothing got worse by more than 5 % beyond chance\n"),
            "{text}"
        );
    }
}
