//! Formats a table in Markdown and in HTML.

use askama::Template;
use record::table::{Column, Mark, Table};

/// Formats a table in GitHub's Markdown below its heading.
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

/// Formats a column's title in one line. Its first part links to the explanation.
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

/// Escapes text that must not be interpreted as Markdown or HTML.
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

/// A table below its heading, which `Display` formats in HTML.
#[derive(Template)]
#[template(path = "table.html")]
pub(crate) struct Html<'a>(pub(crate) &'a Table);
