//! Values and figures in words, with their units.

use std::fmt::Display;

use crate::{Figure, Metric, Statistic};

/// One figure in words: "up goodput mean 943.512 Mbit/s".
pub fn figure_in_words(figure: &Figure) -> String {
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

/// A value with its unit, to three places behind the point.
pub fn quantity(metric: Metric, value: f64) -> String {
    let (by, unit) = scale(metric);
    match unit {
        "bytes" | "packets" => format!("{value:.0} {unit}"),
        "" => format!("{value}"),
        _ => format!("{:.3} {unit}", value / by),
    }
}

/// By what a metric's values are divided for people, and what they then are: one unit a metric, wherever it is shown.
pub fn scale(metric: Metric) -> (f64, &'static str) {
    match metric.unit() {
        "bit/s" => (1e6, "Mbit/s"),
        unit => (1.0, unit),
    }
}

/// Significant digits by the size of what is shown: three behind the point below 10, then fewer.
pub fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 10_000.0 => format!("{value:.0}"),
        v if v >= 100.0 => format!("{value:.1}"),
        v if v >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// So many of what `one` names: "1 run", "2 runs".
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, one: &str) -> String {
    let plural = if count == N::from(1) { "" } else { "s" };
    format!("{count} {one}{plural}")
}

/// What a figure is of: phase, direction, stream and size, as far as it has them.
pub fn scope(figure: &Figure) -> Vec<String> {
    let stream = figure.stream.map(|stream| format!("stream {stream}"));
    let size = figure.size.map(|size| counted(size, "byte"));
    let direction = figure.direction.map(|way| way.name().to_owned());
    let phase = figure.phase.map(|phase| phase.name().to_owned());
    [phase, direction, stream, size]
        .into_iter()
        .flatten()
        .collect()
}

/// A number with so many digits behind the point, or a dash.
pub fn optional(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Direction;

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
    fn a_metric_has_one_unit_at_every_value() {
        for (value, shown) in [
            (18_848_000.0, "18.848 Mbit/s"),
            (2.5e10, "25000.000 Mbit/s"),
        ] {
            assert_eq!(quantity(Metric::GoodputBitPerS, value), shown);
        }
    }

    #[test]
    fn one_is_no_plural() {
        let counts = [0_u32, 1, 2].map(|count| counted(count, "run"));
        assert_eq!(counts, ["0 runs", "1 run", "2 runs"]);
    }
}
