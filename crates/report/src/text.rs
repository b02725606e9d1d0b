//! The tables on the terminal: measured, beside the published and the reference.

use std::fmt::Write;

use comfy_table::{
    Attribute, Cell, CellAlignment, Color, ContentArrangement, LineStyle, Table, TableStyle,
};

use super::tables::{self, InstrumentTable, number, scale};
use super::{spread, steady};
use crate::analysis::{Analysis, Bottleneck, CaseFigures, Verdict, ceiling};
use record::Baseline;
use record::Record;

/// Lines above, below and under the header only.
pub(super) const STYLE: TableStyle = TableStyle::new()
    .top_border(LineStyle::none().fill('─').junction('─'))
    .header_separator(LineStyle::none().fill('─').junction('─'))
    .bottom_border(LineStyle::none().fill('─').junction('─'));

/// The record as text for a terminal; colours only where `coloured`.
pub fn text(record: &Record, coloured: bool) -> String {
    let analysis = Analysis::of(record);
    let plan = record.plan();
    let quick = if plan.quick {
        ", shortened by --quick"
    } else {
        ""
    };
    let mut text = format!("{}{quick}\n", plan.title);
    let tables = tables::tables(&analysis);
    for table in &tables {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\n{}\n{}", table.instrument, drawn(table, coloured));
    }
    let _ = writeln!(text, "\n{}", verdicts(&analysis, coloured));
    let _ = writeln!(text, "{}", LEGEND);
    if let Some(reference) = &plan.reference {
        let _ = writeln!(text, "reference: {reference}");
    }
    let ramps = steady::grids(&analysis);
    for grid in &ramps {
        let _ = writeln!(text, "\n{}", grid.text());
    }
    if !ramps.is_empty() {
        let _ = writeln!(text, "{}", steady::NOTE);
    }
    if let Some(spread) = spread::text(&tables) {
        let _ = write!(text, "\n{spread}");
    }
    text.push('\n');
    if let Some(baseline) = &record.baseline {
        let _ = writeln!(text, "{}", machine(baseline));
    }
    for line in findings(&analysis) {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// What the machine does with nothing in the way.
pub(super) fn machine(baseline: &Baseline) -> String {
    let words = ceiling::in_words(baseline);
    format!("this machine with nothing in the way: {words}")
}

/// What the numbers are.
pub(super) const LEGEND: &str = "values: means over the runs ± half the 95 % interval (Student's t; of a single run, what the \
                                 instrument states); Δ: Hodges–Lehmann shift against the reference; goodput: payload (L7)";

fn drawn(table: &InstrumentTable<'_>, coloured: bool) -> String {
    let mut drawn = blank(coloured);
    let mut header = vec!["case".to_owned()];
    let shown: Vec<[bool; 2]> = (0..table.columns.len())
        .map(|at| shown(table, at))
        .collect();
    for (column, [published, change]) in table.columns.iter().zip(&shown) {
        let unit = scale(column.metric).1;
        header.push(format!("{}\n{unit}", column.title()));
        header.extend(published.then(|| format!("publ.\n{unit}")));
        header.extend(change.then(|| "Δ\n%".to_owned()));
    }
    let width = header.len();
    drawn.set_header(header);
    for row in &table.rows {
        let mut cells = vec![row.title()];
        for (cell, [published, change]) in row.cells.iter().zip(&shown) {
            let value = cell.value.map_or("–".to_owned(), number);
            cells.push(match cell.half {
                Some(half) => format!("{value} ± {}", number(half)),
                None => value,
            });
            let or_dash = |value: Option<f64>| value.map_or("–".to_owned(), number);
            cells.extend(published.then(|| or_dash(cell.published)));
            cells.extend(change.then(|| {
                cell.shift
                    .map_or("–".to_owned(), |shift| format!("{shift:+.1}"))
            }));
        }
        drawn.add_row(cells);
    }
    for column in 1..width {
        align_right(&mut drawn, column);
    }
    drawn.to_string()
}

/// Numbers stand below each other.
pub(super) fn align_right(table: &mut Table, column: usize) {
    if let Some(column) = table.column_mut(column) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

/// Whether any row has a published value, and a shift, in this column.
pub(super) fn shown(table: &InstrumentTable<'_>, at: usize) -> [bool; 2] {
    let any = |has: fn(&tables::Cell) -> bool| table.rows.iter().any(|row| has(&row.cells[at]));
    [
        any(|cell| cell.published.is_some()),
        any(|cell| cell.shift.is_some()),
    ]
}

fn verdicts(analysis: &Analysis<'_>, coloured: bool) -> String {
    let mut table = blank(coloured);
    table.set_header(["case", "", "verdict"]);
    for figures in &analysis.cases {
        table.add_row([
            Cell::new(&figures.case.name),
            Cell::new(&figures.case.title),
            verdict(figures),
        ]);
    }
    table.to_string()
}

/// Without rows yet.
pub(super) fn blank(coloured: bool) -> Table {
    let mut table = Table::new();
    table
        .load_style(STYLE)
        .set_content_arrangement(ContentArrangement::Disabled);
    if coloured {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    table
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

/// A line for each bottleneck, for each run that went wrong, each result that is the machine's own and each expectation
/// that is not met, or one that says there is none.
pub(super) fn findings(analysis: &Analysis<'_>) -> Vec<String> {
    let bottlenecks = analysis.bottlenecks.iter();
    let mut lines: Vec<String> = bottlenecks.map(Bottleneck::words).collect();
    for figures in &analysis.cases {
        let name = &figures.case.name;
        let faults = figures.faults.iter();
        lines.extend(faults.map(|fault| format!("{name}: {}", fault.text)));
        let unmet = figures.checks.iter().filter(|check| match check.verdict {
            Verdict::Met => false,
            // A run that failed says why nothing was measured.
            Verdict::Failed => figures.faults.is_empty(),
            Verdict::NotMet | Verdict::Invalid => true,
        });
        lines.extend(
            unmet.map(|c| format!("{name}: {}: {}: {}", c.expected, c.verdict, c.measured)),
        );
        if figures.repeated > 0 {
            lines.push(format!(
                "{name}: {} attempts were spoilt by the machine and repeated",
                figures.repeated
            ));
        }
    }
    lines.extend(ceiling::lines(analysis));
    let trends = analysis.trends.iter();
    let unmet = trends.filter(|check| check.verdict != Verdict::Met);
    lines.extend(unmet.map(|c| format!("{}: {}: {}", c.expected, c.verdict, c.measured)));
    if analysis.verdict == Verdict::Met {
        lines.push(match analysis.checks().count() {
            0 => "nothing was expected".to_owned(),
            count => format!("all {count} expectations met"),
        });
    }
    if analysis.record.finished_at.is_none() {
        lines.push("the experiment has not finished; `farwire run --resume` does the runs that are missing".to_owned());
    }
    lines
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
