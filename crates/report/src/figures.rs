//! The table of the figures of one measurement.

use crate::interval::in_words;
use record::quantity::{NOT_AVAILABLE, scope, value_in_words};
use record::table::{Column, Table};
use record::{Figure, Measurement, Metric, quantity};

/// The reason for which RFC 3550's jitter has no interval.
const NO_JITTER_INTERVAL: &str = "none: a running average over about 16 packets";

/// Returns a table with a row for each figure.
pub fn figures(measurement: &Measurement) -> Table {
    let columns = [
        Column::words("figure"),
        Column::words("statistic"),
        Column::numbers("value"),
        Column::words("95 % in the run"),
    ];
    let row = |figure: &Figure| {
        let shown = |value| quantity(figure.metric, value);
        let mut title = scope(figure);
        title.push(figure.metric.title());
        let value = value_in_words(figure);
        let (value, interval) = match figure.interval {
            None if figure.is_of_too_few() => (value, NOT_AVAILABLE.to_owned()),
            None if figure.metric == Metric::JitterMs => (value, NO_JITTER_INTERVAL.to_owned()),
            None => (value, String::new()),
            Some([low, _]) if figure.is_open_above() => {
                (format!("at least {value}"), format!("from {}", shown(low)))
            }
            Some(ends) => in_words(figure.metric, figure.value, ends).into(),
        };
        [
            title.join(" "),
            figure.statistic.name().to_owned(),
            value,
            interval,
        ]
    };
    Table::new("", columns).with(measurement.figures.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Terminal, table_text};
    use record::Statistic;

    #[test]
    fn a_figure_without_an_upper_bound_is_at_least_its_value() {
        let figure = Figure::new(Metric::IpCapacityBitPerS, Statistic::Max, 940e6);
        let measurement = Measurement {
            figures: vec![figure.at_least(939e6)],
            ..Measurement::default()
        };
        let table = table_text(&figures(&measurement), Terminal::NONE);
        assert!(table.contains("at least 940.0 Mbit/s"), "{table}");
        assert!(table.contains("from 939.0 Mbit/s"), "{table}");
    }

    #[test]
    fn the_table_has_value_and_interval() {
        let figure = Figure::new(Metric::LostPercent, Statistic::Mean, 1.0).within(0.5, 2.0);
        let measurement = Measurement {
            figures: vec![figure],
            ..Measurement::default()
        };
        let table = table_text(&figures(&measurement), Terminal::NONE);
        assert!(table.contains("1.00 %  [0.50, 2.00] %"), "{table}");
    }

    #[test]
    fn rfc_3550_jitter_has_a_reason_instead_of_an_interval() {
        let measurement = Measurement {
            figures: vec![Figure::new(Metric::JitterMs, Statistic::Mean, 0.0123)],
            ..Measurement::default()
        };
        let table = table_text(&figures(&measurement), Terminal::NONE);
        assert!(table.contains("0.012 ms"), "{table}");
        assert!(
            table.contains("running average over about 16 packets"),
            "{table}"
        );
    }
}
