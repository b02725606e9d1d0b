//! The tables of the short report: the main figures of all instruments side by side.

use crate::analysis::{Analysis, CaseFigures, Verdict};
use crate::figure_tables::{self, CaseRow, FigureTable, ValueColumn};
use record::Metric;
use record::figure_name::FigureName;
use record::printable::printable;
use record::table::{Mark, Table};

/// Number of an instrument's main figures that are shown, besides those with expectations.
const HEADLINES: usize = 2;
/// With more instruments than this, or with one row per size, only the first main figure is shown.
const MOST_INSTRUMENTS: usize = 2;
/// Says where the full report is.
pub(super) const MORE: &str = "for more, use --details or open the report";

/// Returns one table for all instruments that measured the same cases and sizes, with a row for each.
pub(super) fn tables(analysis: &Analysis<'_>) -> Vec<Table> {
    let expected = figure_tables::expected(analysis);
    let mut groups: Vec<Vec<FigureTable<'_>>> = Vec::new();
    let tables = figure_tables::tables(analysis);
    let few = tables.len() <= MOST_INSTRUMENTS;
    for table in tables {
        let sized = table.rows.iter().any(|row| row.size.is_some());
        let headlines = if few && !sized { HEADLINES } else { 1 };
        let table = shortened(table, headlines, &expected);
        let alike = |group: &&mut Vec<FigureTable<'_>>| {
            let (known, new) = (&group[0].rows, &table.rows);
            let mut both = known.iter().zip(new);
            let same = |(a, b): (&CaseRow<'_>, &CaseRow<'_>)| {
                a.figures.name() == b.figures.name() && a.size == b.size
            };
            known.len() == new.len() && both.all(same)
        };
        match groups.iter_mut().find(alike) {
            Some(group) => group.push(table),
            None => groups.push(vec![table]),
        }
    }
    groups.iter().map(|group| joined(group)).collect()
}

/// Returns the note on how to read the tables and where the full report is.
pub(super) fn note(analysis: &Analysis<'_>) -> String {
    let reference = analysis.reference();
    let change = reference.map(|case| format!("Δ: compared with {}; ", case.words()));
    format!(
        "±, [low, high]: 95 % interval; {}{MORE}",
        change.unwrap_or_default()
    )
}

/// Keeps this many of the main figures, in their order, those with expectations, and losses if there were any.
fn shortened<'a>(
    mut table: FigureTable<'a>,
    most: usize,
    expected: &[&FigureName],
) -> FigureTable<'a> {
    let headlines = &table.profile.headlines;
    let rank = |column: &ValueColumn| {
        let mut all = headlines.iter();
        let own = all.position(|h| (h.metric, h.statistic) == (column.metric, column.statistic));
        own.unwrap_or(headlines.len())
    };
    let wanted = |column: &ValueColumn| {
        let sizes = table.rows.iter().map(|row| row.size);
        let mut names = sizes.map(|size| column.name(table.instrument, size));
        rank(column) < most
            || names.any(|name| expected.iter().any(|expected| name.is_of(expected)))
    };
    let lossy = lossy(&table);
    let columns = 0..table.columns.len();
    let is_kept = |at: &usize| wanted(&table.columns[*at]) || lossy.contains(at);
    let mut kept: Vec<usize> = columns.filter(is_kept).collect();
    kept.sort_by_key(|at| rank(&table.columns[*at]));
    table.columns = kept.iter().map(|at| table.columns[*at]).collect();
    table.units = kept.iter().map(|at| table.units[*at]).collect();
    for row in &mut table.rows {
        row.values = kept.iter().map(|at| row.values[*at].clone()).collect();
    }
    table
}

/// Returns the columns of losses with a value above 0. If there is one for both directions together, those of one direction
/// are left out.
fn lossy(table: &FigureTable<'_>) -> Vec<usize> {
    let has_loss = |at: &usize| {
        let mut values = table.rows.iter().filter_map(|row| row.values[*at].value);
        values.any(|value| value > 0.0)
    };
    let columns = table.columns.iter().enumerate();
    let losses = columns.filter(|(_, column)| column.metric == Metric::LostPercent);
    let all: Vec<usize> = losses.map(|(at, _)| at).filter(has_loss).collect();
    let is_total = |at: &usize| table.columns[*at].direction.is_none();
    let has_total = all.iter().any(is_total);
    all.into_iter()
        .filter(|at| !has_total || is_total(at))
        .collect()
}

/// Joins tables with the same rows, side by side.
fn joined(group: &[FigureTable<'_>]) -> Table {
    let mut all = group[0].table(true);
    if let [_, more @ ..] = group
        && !more.is_empty()
    {
        all.title.clear();
        named(&mut all, group[0].instrument);
        for instrument in more {
            let mut table = instrument.table(true);
            named(&mut table, instrument.instrument);
            let labels = table.labels();
            all.columns.extend(table.columns.into_iter().skip(labels));
            for (row, cells) in all.rows.iter_mut().zip(table.rows) {
                row.extend(cells.into_iter().skip(labels));
            }
        }
    }
    let labels = all.labels();
    for (cells, row) in all.rows.iter_mut().zip(&group[0].rows) {
        if is_bad(row.figures) {
            let names = cells.iter_mut().take(labels);
            names.for_each(|cell| cell.mark = Mark::Bad);
        }
    }
    all
}

/// Adds the instrument's name above each of its figures.
fn named(table: &mut Table, instrument: &str) {
    let labels = table.labels();
    let figures = table.columns.iter_mut().skip(labels);
    for column in figures.filter(|column| !column.beside) {
        column.title = format!("{}\n{}", printable(instrument), column.title);
    }
}

fn is_bad(figures: &CaseFigures<'_>) -> bool {
    figures.verdict != Verdict::Met
}
