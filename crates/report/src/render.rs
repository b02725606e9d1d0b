//! A table on a terminal, in Markdown and on a page.

use askama::Template;
use comfy_table::{Attribute, CellAlignment, Color, LineStyle, TableStyle};

use record::table::{Cell, Mark, Table};

/// Lines above, below and under the header only.
const STYLE: TableStyle = TableStyle::new()
    .top_border(LineStyle::none().fill('─').junction('─'))
    .header_separator(LineStyle::none().fill('─').junction('─'))
    .bottom_border(LineStyle::none().fill('─').junction('─'));

/// A table for a terminal; nothing of one without rows.
pub fn table_text(table: &Table, coloured: bool) -> String {
    if table.rows.is_empty() {
        return String::new();
    }
    let mut drawn = comfy_table::Table::new();
    drawn.load_style(STYLE);
    if coloured {
        drawn.enforce_styling();
    } else {
        drawn.force_no_tty();
    }
    drawn.set_header(table.columns.iter().map(|column| &column.title));
    drawn.add_rows(table.rows.iter().map(|row| row.iter().map(terminal_cell)));
    for (column, drawn) in table.columns.iter().zip(drawn.column_iter_mut()) {
        if column.numeric {
            drawn.set_cell_alignment(CellAlignment::Right);
        }
    }
    let title = line(&table.title);
    format!("{title}{drawn}\n{}", line(&table.note))
}

/// With an end, if there is something in it.
fn line(text: &str) -> String {
    match text {
        "" => String::new(),
        text => format!("{text}\n"),
    }
}

fn terminal_cell(cell: &Cell) -> comfy_table::Cell {
    let drawn = comfy_table::Cell::new(&cell.text);
    match cell.mark {
        Mark::Good => drawn.add_attribute(Attribute::Bold).fg(Color::Green),
        Mark::Bad => drawn.add_attribute(Attribute::Bold).fg(Color::Red),
        _ => drawn,
    }
}

/// A table of GitHub's Markdown below its heading.
pub(crate) fn table_markdown(table: &Table) -> String {
    let row = |cells: &mut dyn Iterator<Item = String>| {
        format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
    };
    let titles = table.columns.iter().map(|column| &column.title);
    let mut text = match table.title.as_str() {
        "" => String::new(),
        title => format!("## {}\n\n", escaped(title)),
    };
    text += &row(&mut titles.map(|title| escaped(&title.replace('\n', ", "))));
    text.push('|');
    text.extend(
        table
            .columns
            .iter()
            .map(|column| if column.numeric { "---:|" } else { "---|" }),
    );
    text.push('\n');
    for cells in &table.rows {
        text += &row(&mut cells.iter().map(|cell| escaped(&cell.text)));
    }
    if !table.note.is_empty() {
        text += &format!("\n{}.\n", escaped(&table.note));
    }
    text
}

/// Text that is neither Markdown nor HTML.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '\n' | '\r' => safe.push(' '),
            '<' => safe.push_str("&lt;"),
            '&' => safe.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' => safe.extend(['\\', char]),
            other => safe.push(other),
        }
    }
    safe
}

/// A table of a page below its heading, as its `Display`.
#[derive(Template)]
#[template(path = "table.html")]
pub(crate) struct Html<'a>(pub(crate) &'a Table);
