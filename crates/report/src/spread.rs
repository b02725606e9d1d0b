//! The spread of figures over the runs of a case, which a mean and its interval do not show.

use super::terminal::{Terminal, prose, table_text};
use crate::figure_tables::{CaseRow, FigureTable, ValueColumn, or_dash};
use record::Metric;
use record::quantity::{number, scale_for};
use record::table::{Cell, Column, Table};
use stats::sample_summary::SampleSummary;

/// Note on how to read the table.
const NOTE: &str = "SD: sample standard deviation. 10 % and 90 %: quantiles, for ten runs or more. Outliers: runs outside Tukey's fences, 1.5 \
                               interquartile ranges beyond the quartiles; they count like any other run";

/// Fewest values for which the 10 % and 90 % quantiles are shown.
const FEWEST_FOR_TENTHS: usize = 10;
/// Largest number of outliers that are listed.
const MOST_LISTED: usize = 3;
/// Largest number of rows on a terminal.
const MOST_ON_TERMINAL: usize = 60;

/// Returns a table for each instrument, with a row for each main figure of a case that was measured or published in
/// several runs.
pub(super) fn tables(tables: &[FigureTable<'_>]) -> Vec<Table> {
    let mut tables: Vec<Table> = tables
        .iter()
        .map(spread)
        .filter(|table| !table.rows.is_empty())
        .collect();
    if let Some(last) = tables.last_mut() {
        last.note = NOTE.to_owned();
    }
    tables
}

/// Formats the tables for a terminal; empty if no case has several runs.
pub(super) fn text(tables: &[FigureTable<'_>], terminal: Terminal) -> String {
    let tables = self::tables(tables);
    let rows: usize = tables.iter().map(|table| table.rows.len()).sum();
    if rows > MOST_ON_TERMINAL {
        let elsewhere =
            format!("{rows} figures of several runs: --format md and html show the spread of each");
        return format!("\n{}", prose(&elsewhere, terminal));
    }
    let texts = tables.iter().map(|table| table_text(table, terminal));
    texts.map(|text| format!("\n{text}")).collect()
}

/// One row: a figure of a case with several measured or published runs.
struct Spread {
    /// The cells that identify the case and, if there are several, the size.
    labels: Vec<Cell>,
    title: String,
    metric: Metric,
    summary: SampleSummary,
}

fn spread(table: &FigureTable<'_>) -> Table {
    let has_sizes = table.has_sizes();
    let found = table.rows.iter().flat_map(|row| {
        let mut labels = table.labels.cells(row.figures.case);
        labels.extend(has_sizes.then(|| Cell::from(row.size_text())));
        let columns = table.columns.iter();
        let found = columns.flat_map(|column| Spread::of(table.instrument, row, column, &labels));
        found.collect::<Vec<_>>()
    });
    let found: Vec<Spread> = found.collect();
    let counts = found.iter().map(|figure| figure.summary.count());
    let tenths = counts.max().unwrap_or_default() >= FEWEST_FOR_TENTHS;
    let mut columns = table.labels.columns();
    columns.extend(has_sizes.then(|| Column::numbers("size\nbytes").label()));
    columns.push(Column::words("figure"));
    let numbers = ["n", "mean", "SD", "median", "least", "greatest"]
        .into_iter()
        .chain(tenths.then_some(["10 %", "90 %"]).into_iter().flatten());
    columns.extend(numbers.chain(["outliers"]).map(Column::numbers));
    let rows = found.iter().map(|figure| {
        let cells = figure.cells(tenths).into_iter().map(Cell::from);
        let labels = figure.labels.iter().cloned();
        labels.chain(cells).collect::<Vec<_>>()
    });
    Table::new(format!("{}: over the runs", table.instrument), columns).with(rows)
}

impl Spread {
    /// Returns the row of the measured runs, and below it that of the published ones, if there are several of each.
    fn of(
        instrument: &str,
        row: &CaseRow<'_>,
        column: &ValueColumn,
        labels: &[Cell],
    ) -> impl Iterator<Item = Self> + use<> {
        let name = column.name(instrument, row.size);
        let (title, metric) = (column.title(), column.metric);
        let labels = labels.to_vec();
        let figure = row.figures.figures.get(&name);
        let ours = figure.map(|figure| (title.clone(), figure.summary.clone()));
        let mut all = row.figures.case.published.iter();
        let published = all.find(|(published, _)| name.is_of(published));
        let theirs = published.and_then(|(_, published)| {
            let (_, summary) = published.runs()?;
            Some((format!("{title}, published"), summary))
        });
        let both = [ours, theirs].into_iter().flatten();
        let several = both.filter(|(_, summary)| summary.count() > 1);
        several.map(move |(title, summary)| Self {
            labels: labels.clone(),
            title,
            metric,
            summary,
        })
    }

    fn cells(&self, tenths: bool) -> Vec<String> {
        let summary = &self.summary;
        let (by, unit) = scale_for(self.metric, summary.max());
        let shown = |value: f64| number(value / by);
        let tenth = |share: f64| {
            let enough = summary.count() >= FEWEST_FOR_TENTHS;
            or_dash(enough.then(|| shown(summary.quantile(share))))
        };
        let mut cells = vec![
            match unit {
                "" => self.title.clone(),
                unit => format!("{}, {unit}", self.title),
            },
            summary.count().to_string(),
            shown(summary.mean),
            or_dash(summary.sd.map(shown)),
            shown(summary.median()),
            shown(summary.min()),
            shown(summary.max()),
        ];
        cells.extend(tenths.then(|| [0.1, 0.9].map(tenth)).into_iter().flatten());
        cells.push(far_out(self.metric, summary));
        cells
    }
}

fn far_out(metric: Metric, summary: &SampleSummary) -> String {
    let by = scale_for(metric, summary.max()).0;
    let all: Vec<String> = summary.outliers().map(|value| number(value / by)).collect();
    let more = all.len().saturating_sub(MOST_LISTED);
    match (all.len(), more) {
        (0, _) => "–".to_owned(),
        (_, 0) => all.join(", "),
        _ => format!("{}, {more} more", all[..MOST_LISTED].join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Analysis;
    use crate::analysis::tests::record;
    use crate::figure_tables::tables;
    use record::plan::Published;

    #[test]
    fn only_figures_of_several_runs_have_a_row() {
        let record = record();
        let analysis = Analysis::of(&record);
        let text = text(&tables(&analysis), Terminal::NONE);
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
    fn the_spread_of_published_runs_is_below_that_of_measured_ones() {
        let mut record = record();
        let of_slow = &mut record.head.plan.cases[1].published;
        let name = "ping.rtt_ms.median".parse().unwrap();
        of_slow.insert(name, Published::Runs(vec![3.0, 3.1, 3.8]));
        let analysis = Analysis::of(&record);
        let text = crate::formats::markdown::markdown(&record).unwrap();
        let at = |text: &str, words: &str| text.find(words).unwrap();
        let theirs =
            "| slow | rtt median, published, ms | 3 | 3.300 | 0.436 | 3.100 | 3.000 | 3.800 |";
        assert!(
            at(&text, "| slow | rtt median, ms | 2 |") < at(&text, theirs),
            "{text}"
        );
        let ours = &tables(&analysis)[0].rows[1].values[0];
        assert_eq!(ours.published.as_deref().unwrap(), "3.300, mean of 3");
    }

    #[test]
    fn outliers_are_listed() {
        let values = [10.0, 11.0, 12.0, 11.0, 10.0, 30.0];
        let summary = SampleSummary::of(&values).unwrap();
        assert_eq!(far_out(Metric::RttMs, &summary), "30.00");
        let many: Vec<f64> = (0..40)
            .map(f64::from)
            .map(|n| if n < 36.0 { 5.0 } else { n })
            .collect();
        let summary = SampleSummary::of(&many).unwrap();
        assert_eq!(
            far_out(Metric::RttMs, &summary),
            "36.00, 37.00, 38.00, 1 more"
        );
    }
}
