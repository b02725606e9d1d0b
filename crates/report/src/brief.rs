//! The tables of one screen: what people look for first, of all instruments side by side.

use crate::analysis::{Analysis, CaseFigures, Verdict};
use crate::figure_tables::{self, FigureTable, ValueColumn};
use record::figure_name::FigureName;
use record::printable::printable;
use record::table::{Mark, Table};

/// So many of an instrument's headlines are shown, besides what something is expected of.
const HEADLINES: usize = 2;
/// With more instruments, or a row a size, the first alone.
const MOST_INSTRUMENTS: usize = 2;

/// A table of all instruments that measured the same cases and sizes, a row each.
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
            known.len() == new.len() && both.all(|(a, b)| a.title() == b.title())
        };
        match groups.iter_mut().find(alike) {
            Some(group) => group.push(table),
            None => groups.push(vec![table]),
        }
    }
    groups.iter().map(|group| joined(group)).collect()
}

/// How to read them, and where the rest is.
pub(super) fn note(analysis: &Analysis<'_>) -> String {
    let reference = analysis.record.plan().reference.as_ref();
    let change = reference.map(|case| format!("Δ: compared with {case}; "));
    format!(
        "±, [low, high]: 95 % interval; {}for more, use --details or open the report",
        change.unwrap_or_default()
    )
}

/// With so many of its first headlines, in their order, and what something is expected of.
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
    let columns = 0..table.columns.len();
    let mut kept: Vec<usize> = columns.filter(|at| wanted(&table.columns[*at])).collect();
    kept.sort_by_key(|at| rank(&table.columns[*at]));
    table.columns = kept.iter().map(|at| table.columns[*at]).collect();
    table.units = kept.iter().map(|at| table.units[*at]).collect();
    for row in &mut table.rows {
        row.values = kept.iter().map(|at| row.values[*at].clone()).collect();
    }
    table
}

/// Instruments with the same rows, side by side.
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
            all.columns.extend(table.columns.into_iter().skip(1));
            for (row, cells) in all.rows.iter_mut().zip(table.rows) {
                row.extend(cells.into_iter().skip(1));
            }
        }
    }
    for (cells, row) in all.rows.iter_mut().zip(&group[0].rows) {
        if is_bad(row.figures) {
            cells[0].mark = Mark::Bad;
        }
    }
    all
}

/// With the instrument above each of its figures.
fn named(table: &mut Table, instrument: &str) {
    let figures = table.columns.iter_mut().skip(1);
    for column in figures.filter(|column| !column.beside) {
        column.title = format!("{}\n{}", printable(instrument), column.title);
    }
}

fn is_bad(figures: &CaseFigures<'_>) -> bool {
    figures.verdict != Verdict::Met
}
