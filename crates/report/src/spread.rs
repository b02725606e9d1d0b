//! How a figure spread over the runs of a case: what a mean and its interval do not show.

use std::fmt::Write;

use super::grid::{Grid, Row};
use super::tables::{Column, InstrumentTable, number, scale};
use record::Metric;
use stats::summary::Summary;

/// How to read it.
pub(super) const NOTE: &str = "SD: sample standard deviation. 10 % and 90 %: quantiles, of ten runs or more. Far out: outside Tukey's fences, 1.5 \
                               interquartile ranges beyond the quartiles; what lies there is shown and counts like any other run";

/// Fewer values have no tenth.
const FEWEST_FOR_TENTHS: usize = 10;
/// Far-out values that are listed.
const MOST_LISTED: usize = 3;
/// More rows than this are not read on a terminal.
const MOST_ON_TERMINAL: usize = 60;

/// A table an instrument: a row for each headline figure of a case that several runs have.
pub(super) fn grids(tables: &[InstrumentTable<'_>]) -> Vec<Grid> {
    let grids = tables.iter().map(grid);
    grids.filter(|grid| !grid.rows.is_empty()).collect()
}

/// For a terminal; nothing where no case has several runs.
pub(super) fn text(tables: &[InstrumentTable<'_>]) -> Option<String> {
    let grids = grids(tables);
    let rows: usize = grids.iter().map(|grid| grid.rows.len()).sum();
    match rows {
        0 => None,
        1..=MOST_ON_TERMINAL => {
            let texts = grids.iter().map(Grid::text).collect::<Vec<_>>();
            Some(format!("{}\n{NOTE}\n", texts.join("\n\n")))
        }
        _ => Some(format!(
            "{rows} figures of several runs: --format md and html show how each spread\n"
        )),
    }
}

fn grid(table: &InstrumentTable<'_>) -> Grid {
    let mut found = Vec::new();
    for row in &table.rows {
        for column in &table.columns {
            let name = column.name(table.instrument, row.size);
            let figure = row.figures.figures.get(&name);
            let several = figure.filter(|figure| figure.summary.count() > 1);
            found.extend(several.map(|figure| (row, column, figure)));
        }
    }
    let counts = found.iter().map(|(.., figure)| figure.summary.count());
    let tenths = counts.max().unwrap_or_default() >= FEWEST_FOR_TENTHS;
    let mut header = vec![
        "case", "figure", "n", "mean", "SD", "median", "least", "greatest",
    ];
    header.extend(tenths.then_some(["10 %", "90 %"]).into_iter().flatten());
    header.push("far out");
    let rows = found.into_iter().map(|(row, column, figure)| Row {
        cells: cells(row.title(), column, &figure.summary, tenths),
        drawing: Some(strip(&figure.values, &figure.summary)),
    });
    Grid {
        instrument: table.instrument.to_owned(),
        of: "over the runs",
        header: header.into_iter().map(|name| (name, "")).collect(),
        names: 2,
        rows: rows.collect(),
    }
}

fn cells(case: String, column: &Column, summary: &Summary, tenths: bool) -> Vec<String> {
    let (by, unit) = scale(column.metric);
    let shown = |value: f64| number(value / by);
    let or_dash = |value: Option<f64>| value.map_or("–".to_owned(), shown);
    let tenth = |share: f64| {
        let enough = summary.count() >= FEWEST_FOR_TENTHS;
        or_dash(enough.then(|| summary.quantile(share)))
    };
    let mut cells = vec![
        case,
        match unit {
            "" => column.title(),
            unit => format!("{}, {unit}", column.title()),
        },
        summary.count().to_string(),
        shown(summary.mean),
        or_dash(summary.sd),
        shown(summary.median()),
        shown(summary.min()),
        shown(summary.max()),
    ];
    cells.extend(tenths.then(|| [0.1, 0.9].map(tenth)).into_iter().flatten());
    cells.push(far_out(column.metric, summary));
    cells
}

fn far_out(metric: Metric, summary: &Summary) -> String {
    let by = scale(metric).0;
    let all: Vec<String> = summary.outliers().map(|value| number(value / by)).collect();
    let more = all.len().saturating_sub(MOST_LISTED);
    match (all.len(), more) {
        (0, _) => "–".to_owned(),
        (_, 0) => all.join(", "),
        _ => format!("{}, {more} more", all[..MOST_LISTED].join(", ")),
    }
}

/// A dot a run between the least and the greatest, rings far out, a stroke at the mean.
fn strip(values: &[f64], summary: &Summary) -> String {
    const WIDTH: f64 = 150.0;
    const EDGE: f64 = 6.0;
    let (least, span) = (summary.min(), summary.max() - summary.min());
    let share = |value: f64| {
        if span > 0.0 {
            (value - least) / span
        } else {
            0.5
        }
    };
    let left = |value: f64| EDGE + share(value) * (WIDTH - 2.0 * EDGE);
    let [low, high] = summary.fences();
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} 16\" role=\"img\" aria-label=\"every run\"><path d=\"M{EDGE} 8H{}\" stroke=\"currentColor\" stroke-opacity=\".25\"/>",
        WIDTH - EDGE
    );
    for value in values {
        let ring = *value < low || *value > high;
        let (class, radius) = if ring { ("ring", 4.0) } else { ("dot", 3.0) };
        // Writing to a String cannot fail.
        let _ = write!(
            svg,
            "<circle class=\"{class}\" cx=\"{:.1}\" cy=\"8\" r=\"{radius}\"/>",
            left(*value)
        );
    }
    let _ = write!(
        svg,
        "<path d=\"M{:.1} 1V15\" stroke=\"currentColor\" stroke-width=\"1.5\"/></svg>",
        left(summary.mean)
    );
    svg
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Analysis;
    use crate::analysis::tests::record;
    use crate::tables::tables;

    #[test]
    fn a_figure_of_several_runs_has_a_row_and_one_of_a_single_run_none() {
        let record = record();
        let analysis = Analysis::of(&record);
        let text = text(&tables(&analysis)).unwrap();
        let row = text
            .lines()
            .find(|line| line.contains("rtt median"))
            .unwrap();
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(cells[0], "slow");
        for cell in ["2", "3.125", "0.106", "3.050", "3.200"] {
            assert!(cells.contains(&cell), "{cell} in {row}");
        }
        assert!(!text.lines().any(|line| line.starts_with(" base")));
    }

    #[test]
    fn what_lies_far_out_is_listed_and_ringed() {
        let values = [10.0, 11.0, 12.0, 11.0, 10.0, 30.0];
        let summary = Summary::of(&values).unwrap();
        assert_eq!(far_out(Metric::RttMs, &summary), "30.00");
        let svg = strip(&values, &summary);
        assert_eq!(svg.matches("class=\"dot\"").count(), 5);
        assert_eq!(svg.matches("class=\"ring\"").count(), 1);
        let many: Vec<f64> = (0..40)
            .map(f64::from)
            .map(|n| if n < 36.0 { 5.0 } else { n })
            .collect();
        let summary = Summary::of(&many).unwrap();
        assert_eq!(
            far_out(Metric::RttMs, &summary),
            "36.00, 37.00, 38.00, 1 more"
        );
    }
}
