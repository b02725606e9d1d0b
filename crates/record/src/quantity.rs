//! Values and figures in words, with their units.

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

/// A value with its unit, in the prefix that suits it.
pub fn quantity(metric: Metric, value: f64) -> String {
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

/// What a figure is of: phase, direction, stream and size, as far as it has them.
pub fn scope(figure: &Figure) -> Vec<String> {
    let stream = figure.stream.map(|stream| format!("stream {stream}"));
    let size = figure.size.map(|size| format!("{size} bytes"));
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
}
