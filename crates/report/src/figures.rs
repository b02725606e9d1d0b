//! The figures of one measurement.

use record::quantity::scope;
use record::table::{Column, Table};
use record::{Figure, Measurement, quantity};

/// A row a figure.
pub fn figures(measurement: &Measurement) -> Table {
    let columns = [
        Column::words("figure"),
        Column::words("statistic"),
        Column::numbers("value"),
        Column::words("95 % interval"),
    ];
    let row = |figure: &Figure| {
        let shown = |value| quantity(figure.metric, value);
        let mut title = scope(figure);
        title.push(figure.metric.title());
        let interval = figure.interval.map(|ends| ends.map(shown).join(" to "));
        [
            title.join(" "),
            figure.statistic.name().to_owned(),
            shown(figure.value),
            interval.unwrap_or_default(),
        ]
    };
    Table::new("", columns).with(measurement.figures.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Terminal, table_text};
    use record::{Metric, Statistic};

    #[test]
    fn the_table_has_the_interval_beside_the_value() {
        let figure = Figure::new(Metric::LostPercent, Statistic::Mean, 1.0).within(0.5, 2.0);
        let measurement = Measurement {
            figures: vec![figure],
            ..Measurement::default()
        };
        let table = table_text(&figures(&measurement), Terminal::NONE);
        assert!(table.contains("0.500 % to 2.000 %"), "{table}");
    }
}
