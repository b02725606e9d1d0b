//! Figures in the words of a sentence: "median round-trip time of ping".

use record::figure_name::FigureName;
use record::quantity::counted;
use record::{Direction, Metric, Phase, Statistic};
use stats::hodges_lehmann::Sense;

/// The parts of a figure's name that are mentioned beside its statistic and its metric.
#[derive(Clone, Copy, Debug)]
struct Mentioned {
    instrument: bool,
    direction: bool,
    phase: bool,
    size: bool,
}

/// Formats a figure without "the" and without its size: "goodput of load (up)".
pub(crate) fn of_any_size(name: &FigureName) -> String {
    let all = Mentioned {
        instrument: true,
        direction: true,
        phase: true,
        size: false,
    };
    words(name, all)
}

/// Formats a figure without "the". Its instrument, direction, phase and size are mentioned if another one of these figures
/// differs in them.
pub(crate) fn among(name: &FigureName, all: &[&FigureName]) -> String {
    let differs =
        |of: fn(&FigureName, &FigureName) -> bool| all.iter().any(|other| of(name, other));
    let mentioned = Mentioned {
        instrument: differs(|own, other| own.instrument != other.instrument),
        direction: differs(|own, other| own.direction != other.direction),
        phase: differs(|own, other| own.phase != other.phase),
        size: differs(|own, other| own.size != other.size),
    };
    words(name, mentioned)
}

fn words(name: &FigureName, mentioned: Mentioned) -> String {
    let mut words = format!("{}{}", statistic(name), metric(name.metric));
    if mentioned.instrument {
        words += &format!(" of {}", name.instrument);
    }
    if let Some(direction) = name.direction.map(Direction::name)
        && mentioned.direction
    {
        words += &format!(" ({direction})");
    }
    if let Some(phase) = name.phase.map(Phase::name)
        && mentioned.phase
    {
        words += &format!(" while {phase}");
    }
    if let Some(size) = name.size
        && mentioned.size
    {
        words += &format!(" for {}", counted(size, "byte"));
    }
    words
}

/// Returns the words before the metric. A rate and a percentage are means unless another statistic is mentioned.
fn statistic(name: &FigureName) -> &'static str {
    match name.statistic {
        Statistic::Total => "",
        Statistic::Mean if name.metric.sense() == Sense::Rate || name.metric.unit() == "%" => "",
        Statistic::Mean => "mean ",
        Statistic::Median => "median ",
        Statistic::Min => "least ",
        Statistic::Max => "greatest ",
        Statistic::Sd => "standard deviation of the ",
        Statistic::MeanDeviation => "mean deviation of the ",
        Statistic::Mdev => "standard deviation (mdev) of the ",
        Statistic::P10 => "10th percentile of the ",
        Statistic::P90 => "90th percentile of the ",
        Statistic::P95 => "95th percentile of the ",
        Statistic::P99 => "99th percentile of the ",
    }
}

fn metric(metric: Metric) -> String {
    let title = metric.title();
    match (metric, metric.unit()) {
        (Metric::LostPercent, _) => "loss".to_owned(),
        (Metric::RttMs, _) => "round-trip time".to_owned(),
        (Metric::NetworkRttMs, _) => "network's round-trip time".to_owned(),
        (Metric::ElapsedS, _) => "elapsed time".to_owned(),
        (_, unit @ ("packets" | "bytes")) => format!("number of {title} {unit}"),
        _ => title,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_described_by_what_distinguishes_it() {
        let names = [
            "ping.rtt_ms.median",
            "load.goodput_bit_per_s.mean.up",
            "load.goodput_bit_per_s.mean.down",
            "load.retransmitted_packets.total.up",
        ]
        .map(|name| name.parse::<FigureName>().unwrap());
        let all: Vec<&FigureName> = names.iter().collect();
        assert_eq!(
            names.each_ref().map(of_any_size),
            [
                "median round-trip time of ping",
                "goodput of load (up)",
                "goodput of load (down)",
                "number of retransmitted packets of load (up)",
            ]
        );
        assert_eq!(among(&names[0], &all), "median round-trip time of ping");
        assert_eq!(among(&names[1], &all[1..3]), "goodput (up)");
        assert_eq!(among(&names[1], &all[1..2]), "goodput");
    }
}
