//! Figures as text: a line each, or all of a measurement as a table.

use comfy_table::{CellAlignment, ContentArrangement, Table};
use record::quantity::scope;

use super::text::STYLE;
use record::{Measurement, quantity};

/// Every figure of a measurement as a table: one row for each.
pub fn figures(measurement: &Measurement) -> String {
    if measurement.figures.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    table.load_style(STYLE).force_no_tty();
    table.set_header(["", "", "", "95 % interval"]);
    for figure in &measurement.figures {
        let mut title = scope(figure);
        title.push(figure.metric.title());
        let interval = figure.interval.map(|[low, high]| {
            format!(
                "{} to {}",
                quantity(figure.metric, low),
                quantity(figure.metric, high)
            )
        });
        table.add_row([
            title.join(" "),
            figure.statistic.name().to_owned(),
            quantity(figure.metric, figure.value),
            interval.unwrap_or_default(),
        ]);
    }
    if let Some(column) = table.column_mut(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{table}\n")
}

/// A table of an instrument's own as text; nothing of one without rows.
pub fn table_text(table: &record::table::Table) -> String {
    if table.rows.is_empty() {
        return String::new();
    }
    let mut text = Table::new();
    text.load_style(STYLE)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(&table.header)
        .force_no_tty();
    text.add_rows(&table.rows);
    for column in text.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{text}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::{Figure, Metric, Statistic};

    #[test]
    fn the_table_has_the_interval_beside_the_value() {
        let figure = Figure::new(Metric::LostPercent, Statistic::Mean, 1.0).within(0.5, 2.0);
        let measurement = Measurement {
            figures: vec![figure],
            ..Measurement::default()
        };
        let table = figures(&measurement);
        assert!(table.contains("0.500 % to 2.000 %"), "{table}");
    }
}
