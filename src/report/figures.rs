//! Figures as text: a line each, or all of a measurement as a table.

use comfy_table::{CellAlignment, Table};

use super::text::STYLE;
use crate::instrument::{Figure, Measurement, Metric, Statistic};

/// One figure in words: "up goodput mean 943.512 Mbit/s".
pub(crate) fn figure_in_words(figure: &Figure) -> String {
    let statistic = match figure.statistic {
        Statistic::Total => String::new(),
        other => format!(" {}", other.name()),
    };
    let mut words = scope(figure);
    words.push(format!(
        "{}{statistic} {}",
        figure.metric.title(),
        quantity(figure.metric, figure.value)
    ));
    words.join(" ")
}

/// Every figure of a measurement as a table: one row for each.
pub(crate) fn figures(measurement: &Measurement) -> String {
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

/// A value with its unit, in the prefix that suits it.
pub(crate) fn quantity(metric: Metric, value: f64) -> String {
    let unit = metric.unit();
    match unit {
        "bit/s" => match value.abs() {
            v if v >= 1e9 => format!("{:.3} Gbit/s", value / 1e9),
            v if v >= 1e6 => format!("{:.3} Mbit/s", value / 1e6),
            v if v >= 1e3 => format!("{:.3} kbit/s", value / 1e3),
            _ => format!("{value:.0} bit/s"),
        },
        "bytes" | "packets" => format!("{value:.0} {unit}"),
        "" => format!("{value}"),
        _ => format!("{value:.3} {unit}"),
    }
}

fn scope(figure: &Figure) -> Vec<String> {
    let stream = figure.stream.map(|stream| format!("stream {stream}"));
    let size = figure.size.map(|size| format!("{size} bytes"));
    let direction = figure.direction.map(|way| way.name().to_owned());
    let phase = figure.phase.map(|phase| phase.name().to_owned());
    [phase, direction, stream, size]
        .into_iter()
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instrument::Direction;

    #[test]
    fn a_figure_names_what_it_is_of_and_its_unit() {
        let figure = Figure::new(Metric::GoodputBitPerS, Statistic::Mean, 9.435e8)
            .toward(Direction::Up)
            .stream(2);
        assert_eq!(
            figure_in_words(&figure),
            "up stream 2 goodput mean 943.500 Mbit/s"
        );
        let lost = Figure::new(Metric::SentPackets, Statistic::Total, 7.0);
        assert_eq!(figure_in_words(&lost), "sent 7 packets");
    }

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
