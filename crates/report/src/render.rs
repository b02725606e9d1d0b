//! A table in Markdown and on a page.

use askama::Template;
use record::table::{Column, Mark, Table};

/// A table of GitHub's Markdown below its heading.
pub(crate) fn table_markdown(table: &Table) -> String {
    let row = |cells: &mut dyn Iterator<Item = String>| {
        format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
    };
    let mut text = match table.title.as_str() {
        "" => String::new(),
        title => format!("## {}\n\n", escaped(title)),
    };
    text += &row(&mut table.columns.iter().map(heading));
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

/// A column's title in one line; its first part leads to where it is explained.
fn heading(column: &Column) -> String {
    let title = escaped(&column.title.replace('\n', ", "));
    let Some(place) = &column.explained_at else {
        return title;
    };
    match title.split_once(", ") {
        Some((first, rest)) => format!("[{first}](#{place}), {rest}"),
        None => format!("[{title}](#{place})"),
    }
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
