//! The table on the terminal: measured beside published.

use std::fmt::Write;

use comfy_table::{
    Attribute, Cell, CellAlignment, Color, ContentArrangement, LineStyle, Table, TableStyle,
};

use super::{optional, signed};
use crate::analysis::{Analysis, CaseFigures, Verdict};
use crate::experiment::record::Record;

const HEADER: [&str; 10] = [
    "case",
    "ping\nms",
    "publ.\nms",
    "gain\nms",
    "publ.\nms",
    "loss\n%",
    "publ.\n%",
    "MB/s",
    "publ.\nMB/s",
    "verdict",
];

/// Lines above, below and under the header only.
pub(super) const STYLE: TableStyle = TableStyle::new()
    .top_border(LineStyle::none().fill('─').junction('─'))
    .header_separator(LineStyle::none().fill('─').junction('─'))
    .bottom_border(LineStyle::none().fill('─').junction('─'));

/// The record as text for a terminal; colours only where `coloured`.
pub(crate) fn text(record: &Record, coloured: bool) -> String {
    let analysis = Analysis::of(record);
    let mut table = Table::new();
    table
        .load_style(STYLE)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(HEADER);
    for figures in &analysis.cases {
        table.add_row(row(figures));
    }
    for column in 1..HEADER.len() - 1 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    if coloured {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    let quick = if record.plan.quick {
        ", shortened by --quick"
    } else {
        ""
    };
    let mut text = format!("{}{quick}\n{table}\n", record.plan.title);
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "ping: median round-trip time (published: mean); gain: over {}; MB/s: download, HTTP body bytes (L7), 10^6 bytes a second",
        record.plan.reference.as_deref().unwrap_or("no reference"),
    );
    for line in shortcomings(&analysis) {
        let _ = writeln!(text, "{line}");
    }
    text
}

fn row(figures: &CaseFigures<'_>) -> Vec<Cell> {
    let published = &figures.case.published;
    let (ping, download) = (figures.ping.as_ref(), figures.download.as_ref());
    let numbers = [
        optional(ping.map(|p| p.rtt_ms.median), 3),
        optional(published.rtt_mean_ms, 3),
        signed(ping.and_then(|p| p.gain_ms), 2),
        signed(ping.and_then(|p| p.published_gain_ms), 2),
        optional(ping.map(|p| p.lost_percent), 1),
        optional(published.lost_percent, 1),
        optional(download.map(|d| d.goodput / 1e6), 3),
        optional(published.goodput_bytes_per_s.map(|rate| rate / 1e6), 3),
    ];
    let name = Cell::new(format!("{} {}", figures.case.name, figures.case.title));
    let cells = numbers.into_iter().map(Cell::new);
    [name]
        .into_iter()
        .chain(cells)
        .chain([verdict(figures)])
        .collect()
}

fn verdict(figures: &CaseFigures<'_>) -> Cell {
    if figures.checks.is_empty() && figures.faults.is_empty() {
        return Cell::new("–");
    }
    let cell = Cell::new(figures.verdict).add_attribute(Attribute::Bold);
    match figures.verdict {
        Verdict::Met => cell.fg(Color::Green),
        Verdict::NotMet | Verdict::Invalid | Verdict::Failed => cell.fg(Color::Red),
    }
}

/// A line for each run that went wrong and each expectation that is not met, or one that says there is none.
fn shortcomings(analysis: &Analysis<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    for CaseFigures {
        case,
        checks,
        faults,
        ..
    } in &analysis.cases
    {
        lines.extend(
            faults
                .iter()
                .map(|fault| format!("{}: {}", case.name, fault.text)),
        );
        let unmet = checks.iter().filter(|check| match check.verdict {
            Verdict::Met => false,
            // A run that failed says why nothing was measured.
            Verdict::Failed => faults.is_empty(),
            Verdict::NotMet | Verdict::Invalid => true,
        });
        lines.extend(unmet.map(|c| {
            format!(
                "{}: {}: {}: {}",
                case.name, c.expected, c.verdict, c.measured
            )
        }));
    }
    if lines.is_empty() {
        lines.push(match analysis.checks().count() {
            0 => "nothing was expected".to_owned(),
            count => format!("all {count} expectations met"),
        });
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::record;
    use crate::experiment::plan::Expectations;

    #[test]
    fn every_case_has_a_row_of_measured_beside_published() {
        let text = text(&record(), false);
        let row = text.lines().find(|line| line.contains("slow")).unwrap();
        for cell in ["3.100", "+2.00", "+2.10", "50.0", "15.0", "1.000", "met"] {
            assert!(row.contains(cell), "{cell} in {row}");
        }
        assert!(text.contains("all 3 expectations met"), "{text}");
        assert!(!text.contains('\u{1b}'));
    }

    #[test]
    fn an_experiment_that_expects_nothing_says_so() {
        let mut record = record();
        for case in &mut record.plan.cases {
            case.expect = Expectations::default();
        }
        let text = text(&record, false);
        assert!(text.contains("nothing was expected"), "{text}");
    }

    #[test]
    fn what_is_not_met_is_named_below_the_table() {
        let mut record = record();
        record.plan.cases[1]
            .expect
            .rtt_gain
            .as_mut()
            .unwrap()
            .gain_ms = 5.0;
        let text = text(&record, true);
        assert!(
            text.contains("slow: gain of the median ping 5.00 ± 0.15 ms: NOT MET: +2.000 ms"),
            "{text}"
        );
        assert!(text.contains('\u{1b}'));
    }
}
