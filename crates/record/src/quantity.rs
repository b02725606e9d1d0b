//! Formats values and figures with their units.

use std::fmt::{self, Display};

use crate::{Figure, Metric, Statistic};
use stats::digits;

/// The text in place of a value for which there are too few samples.
pub const NOT_AVAILABLE: &str = "n/a";

/// Formats the value of a figure with its unit, or returns [`NOT_AVAILABLE`] if it is the tail of a distribution of
/// which there are too few samples.
pub fn value_in_words(figure: &Figure) -> String {
    if figure.statistic.is_tail() && figure.is_of_too_few() {
        return NOT_AVAILABLE.to_owned();
    }
    quantity(figure.metric, figure.value)
}

/// Formats one figure: "up goodput mean 943.5 Mbit/s".
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

/// Formats a value with its unit. The number of digits is that of [`number`].
pub fn quantity(metric: Metric, value: f64) -> String {
    let (by, unit) = scale_for(metric, value);
    match unit {
        "bytes" | "packets" => format!("{value:.0} {unit}"),
        "" if value.fract() == 0.0 => format!("{value}"),
        "" => number(value),
        _ => format!("{} {unit}", number(value / by)),
    }
}

/// Returns the divisor and the unit for a value, or for several values of which this is the greatest. Rates below 1
/// Mbit/s are in kbit/s.
pub fn scale_for(metric: Metric, greatest: f64) -> (f64, &'static str) {
    match scale(metric) {
        (by, "Mbit/s") if greatest != 0.0 && greatest.abs() < by => (1e3, "kbit/s"),
        usual => usual,
    }
}

/// Returns the usual divisor of a metric's values, and the unit of the quotient.
pub fn scale(metric: Metric) -> (f64, &'static str) {
    match metric.unit() {
        "bit/s" => (1e6, "Mbit/s"),
        unit => (1.0, unit),
    }
}

/// Formats a number without an uncertainty, to four significant digits and at most three decimal places. A whole number
/// keeps all its digits, because it may be a count.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if size >= 1_000.0 && value.fract() == 0.0 {
        return format!("{value:.0}");
    }
    let places = digits::significant(value, 4).unwrap_or(3);
    digits::fixed(value, places.min(3))
}

/// Formats a number of bytes in a unit that suits it, with three significant digits: "812 bytes", "1.18 MiB".
pub fn size(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let suits = units.into_iter().find(|(unit, _)| bytes >= *unit);
    let Some((unit, name)) = suits else {
        return counted(bytes, "byte");
    };
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let value = bytes as f64 / unit as f64;
    format!("{} {name}", ThreeDigits(value))
}

/// A number that is printed with three digits, or with all digits before the point if there are more.
pub(crate) struct ThreeDigits(pub(crate) f64);

impl Display for ThreeDigits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = match self.0 {
            0.0 => 0,
            value if value < 0.01 => 4,
            value if value < 1.0 => 3,
            value if value < 10.0 => 2,
            value if value < 100.0 => 1,
            _ => 0,
        };
        let text = format!("{:.digits$}", self.0);
        if text.contains('.') {
            f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
        } else {
            f.write_str(&text)
        }
    }
}

/// Formats a count with its noun, whose singular is `one`: "1 run", "2 runs".
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, one: &str) -> String {
    let plural = if count == N::from(1) { "" } else { "s" };
    format!("{count} {one}{plural}")
}

/// Returns the phase, direction, stream and size of a figure, as far as it has them.
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

/// Formats a number to this many decimal places, or an en dash if it is absent.
pub fn optional(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Direction;

    #[test]
    fn a_figure_is_formatted_with_scope_and_unit() {
        let figure = Figure::new(Metric::GoodputBitPerS, Statistic::Mean, 9.435e8)
            .toward(Direction::Up)
            .stream(2);
        assert_eq!(
            figure_in_words(&figure),
            "up stream 2 goodput mean 943.5 Mbit/s"
        );
        let lost = Figure::new(Metric::SentPackets, Statistic::Total, 7.0);
        assert_eq!(figure_in_words(&lost), "sent 7 packets");
    }

    #[test]
    fn a_percentile_of_too_few_samples_has_no_value() {
        let p99 = |effective_samples| {
            Figure::new(Metric::RttMs, Statistic::P99, 71.983).effective_samples(effective_samples)
        };
        assert_eq!(value_in_words(&p99(499.0)), NOT_AVAILABLE);
        assert_eq!(value_in_words(&p99(500.0)), "71.98 ms");
        let median = Figure::new(Metric::RttMs, Statistic::Median, 1.0).effective_samples(1.0);
        assert_eq!(value_in_words(&median), "1.000 ms");
    }

    #[test]
    fn a_value_has_four_digits_and_small_rates_are_in_kbit() {
        for (value, shown) in [
            (18_848_000.0, "18.85 Mbit/s"),
            (13_575_131_000.0, "13580 Mbit/s"),
            (943_512_000.0, "943.5 Mbit/s"),
            (64_000.0, "64.00 kbit/s"),
            (56_789.0, "56.79 kbit/s"),
            (0.0, "0.000 Mbit/s"),
        ] {
            assert_eq!(quantity(Metric::GoodputBitPerS, value), shown);
        }
        assert_eq!(quantity(Metric::RttMs, 0.0451), "0.045 ms");
        assert_eq!(
            quantity(Metric::ReceivedBytes, 101_056_512.0),
            "101056512 bytes"
        );
        assert_eq!(number(101_056_512.0), "101056512");
    }

    #[test]
    fn one_has_no_plural() {
        let counts = [0_u32, 1, 2].map(|count| counted(count, "run"));
        assert_eq!(counts, ["0 runs", "1 run", "2 runs"]);
    }
}
