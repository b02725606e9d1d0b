//! Tables that look alike on a terminal, in Markdown and in HTML.

use std::fmt::Write;

use super::charts::escaped;
use super::markdown;
use super::text;

/// A table: cells are text, the first columns are names and the rest numbers.
pub(super) struct Grid {
    pub(super) instrument: String,
    /// What it says of that.
    pub(super) of: &'static str,
    /// Each column's name, and the unit of its numbers or nothing.
    pub(super) header: Vec<(&'static str, &'static str)>,
    /// How many of the columns are names.
    pub(super) names: usize,
    pub(super) rows: Vec<Row>,
}

/// A row of it.
pub(super) struct Row {
    pub(super) cells: Vec<String>,
    /// The last cell of an HTML table, as SVG.
    pub(super) drawing: Option<String>,
}

impl Grid {
    /// What it is of: "ping: over the runs".
    pub(super) fn title(&self) -> String {
        format!("{}: {}", self.instrument, self.of)
    }

    /// For a terminal.
    pub(super) fn text(&self) -> String {
        let mut table = text::blank(false);
        let united = self.header.iter().any(|(_, unit)| !unit.is_empty());
        table.set_header(self.header.iter().map(|(name, unit)| match united {
            true => format!("{name}\n{unit}"),
            false => (*name).to_owned(),
        }));
        for row in &self.rows {
            table.add_row(&row.cells);
        }
        for column in self.names..self.header.len() {
            text::align_right(&mut table, column);
        }
        format!("{}\n{table}", self.title())
    }

    /// With GitHub's tables.
    pub(super) fn markdown(&self) -> String {
        let name = |(name, unit): &(&str, &str)| match *unit {
            "" => (*name).to_owned(),
            unit => format!("{name}, {unit}"),
        };
        let header: Vec<String> = self.header.iter().map(name).collect();
        let mut text = format!("| {} |\n|", header.join(" | "));
        for column in 0..header.len() {
            text.push_str(if column < self.names { "---|" } else { "---:|" });
        }
        for row in &self.rows {
            let cells = row.cells.iter().map(|cell| markdown::escaped(cell));
            // Writing to a String cannot fail.
            let _ = write!(text, "\n| {} |", cells.collect::<Vec<_>>().join(" | "));
        }
        text
    }

    /// As a table of a page.
    pub(super) fn html(&self) -> String {
        let class = |column: usize| {
            if (1..self.names).contains(&column) {
                " class=\"left\""
            } else {
                ""
            }
        };
        let mut html = String::from("<table><thead><tr>");
        for (column, (name, unit)) in self.header.iter().enumerate() {
            let class = class(column);
            let name = escaped(name);
            let _ = write!(
                html,
                "<th scope=\"col\"{class}>{name}<small>{unit}</small></th>"
            );
        }
        let drawn = self.rows.iter().any(|row| row.drawing.is_some());
        if drawn {
            html.push_str("<th scope=\"col\" class=\"left\">every run</th>");
        }
        html.push_str("</tr></thead><tbody>");
        for row in &self.rows {
            html.push_str("<tr>");
            for (column, cell) in row.cells.iter().enumerate() {
                let (class, cell) = (class(column), escaped(cell));
                let _ = match column {
                    0 => write!(html, "<th scope=\"row\">{cell}</th>"),
                    _ => write!(html, "<td{class}>{cell}</td>"),
                };
            }
            if drawn {
                let drawing = row.drawing.as_deref().unwrap_or_default();
                let _ = write!(html, "<td class=\"strip\">{drawing}</td>");
            }
            html.push_str("</tr>");
        }
        html + "</tbody></table>"
    }
}
