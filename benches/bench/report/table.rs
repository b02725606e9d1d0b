//! The columns of the table, and its text.

use ::report::{Terminal, prose, table_text};
use record::table::{Column, Table};

use crate::report::rows::{Beside, Row};
use crate::report::spread::{Spread, short};
use crate::results::Kept;

/// The headings of the columns. Values are medians, with the minimum and the maximum in brackets.
pub(crate) const COLUMNS: [&str; 7] = [
    "part",
    "what",
    "farwire",
    "peer",
    "figure of the peer",
    "farwire / peer",
    "CPU s/GB, farwire : peer",
];

/// The width of the text, in characters.
const WIDE: usize = 160;

/// Returns one cell for each column.
pub(crate) fn cells(part: &str, row: &Row) -> [String; 7] {
    let own = match row.name.as_str() {
        "farwire" => row.value.to_string(),
        other => format!("{} ({other})", row.value),
    };
    let beside = |cell: fn(&Beside) -> String| row.peer.as_ref().map_or_else(String::new, cell);
    [
        part.to_owned(),
        format!("{}, {}", row.quantity.what, row.quantity.unit),
        own,
        beside(|peer| peer.name.clone()),
        beside(|peer| peer.value.to_string()),
        beside(|peer| peer.ratio.map_or_else(String::new, ratio)),
        processors(row),
    ]
}

/// Formats a ratio, with the interval of its median if there are enough pairs.
fn ratio(ratio: Spread) -> String {
    match ratio.interval {
        Some(_) => format!(
            "{ratio}, 95 %; lower quartile {}",
            short(ratio.lower_quartile)
        ),
        None => ratio.to_string(),
    }
}

fn processors(row: &Row) -> String {
    let median = |spread: &Option<Spread>| spread.map(|spread| short(spread.median));
    let own = median(&row.cpu);
    let peer = row.peer.as_ref().and_then(|peer| median(&peer.cpu));
    match (own, peer) {
        (Some(own), Some(peer)) => format!("{own} : {peer}"),
        (Some(own), None) => own,
        (None, Some(peer)) => format!("- : {peer}"),
        (None, None) => String::new(),
    }
}

/// Formats one part as text, with its notes.
pub(crate) fn text(kept: &Kept) -> String {
    let outcome = &kept.outcome;
    let title = format!("{}: {}; rounds: {}", kept.part, outcome.how, outcome.rounds);
    let rows = outcome.rows.iter().map(|row| cells(&kept.part, row));
    let mut table = Table::new(title, COLUMNS.map(Column::words)).with(rows);
    table.note = outcome.notes.join("\n");
    let terminal = Terminal {
        width: WIDE,
        coloured: false,
    };
    match table.rows.is_empty() {
        true => prose(&format!("{}\n{}", table.title, table.note), terminal),
        false => table_text(&table, terminal),
    }
}
