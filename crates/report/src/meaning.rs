//! Explains figures in sentences, for headings. The text comes from the documentation of their metrics.

use record::{Direction, Metric, Phase, Statistic};

/// Explains a metric and its unit.
pub(super) fn of_metric(metric: Metric) -> String {
    match metric.unit() {
        "" => metric.meaning().to_owned(),
        "bit/s" => format!("{} In Mbit/s.", metric.meaning()),
        unit => format!("{} In {unit}.", metric.meaning()),
    }
}

/// Explains a figure of a metric with its scope.
pub(super) fn of(
    metric: Metric,
    statistic: Statistic,
    direction: Option<Direction>,
    phase: Option<Phase>,
) -> String {
    let mut text = of_metric(metric);
    let mut add = |name: &str, meaning: &str| {
        let mut letters = meaning.chars();
        let first = letters.next().map(|first| first.to_lowercase().to_string());
        let rest = letters.as_str();
        text.push_str(&format!(
            " {}: {}{rest}",
            capital(name),
            first.unwrap_or_default()
        ));
    };
    if statistic != Statistic::Total {
        add(statistic.name(), statistic.meaning());
    }
    if let Some(direction) = direction {
        add(direction.name(), direction.meaning());
    }
    if let Some(phase) = phase {
        add(phase.name(), phase.meaning());
    }
    text
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_explained_with_metric_unit_statistic_and_direction() {
        let text = of(
            Metric::GoodputBitPerS,
            Statistic::Mean,
            Some(Direction::Down),
            None,
        );
        for part in [
            "(L7)",
            "In Mbit/s.",
            "Mean: the sum",
            "Down: from server to client.",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
