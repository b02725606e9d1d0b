//! The comparison of a path with the fitted link: the same measurement through both, side by side.

use conditions::Direction;
use record::{Measurement, Metric, Phase, Statistic};
use serde::Serialize;
use stats::order_statistics::{quantile, sorted};

use crate::DIRECTIONS;
use crate::distance::{Distance, distances};

/// The error up to which a link may represent a path.
const CLOSE_PERCENT: f64 = 10.0;
/// The difference of two delays in milliseconds that the hosts explain.
const HOST_MS: f64 = 0.3;
/// The phases with their names for people.
const PHASES: [(Phase, &str); 4] = [
    (Phase::Idle, "idle delay"),
    (Phase::LoadedDown, "delay under load down"),
    (Phase::LoadedUp, "delay under load up"),
    (Phase::LoadedBoth, "delay under load in both directions"),
];

/// How far a link differs from the path to which it was fitted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The round trips of each phase.
    pub delays: Vec<DelayComparison>,
    /// The throughput of each load.
    pub throughput: Vec<ThroughputComparison>,
    /// What the link may be used for, and what not.
    pub statement: String,
}

/// The round trips of a phase.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DelayComparison {
    /// The phase.
    pub phase: Phase,
    /// The number of round trips of the path and of the link.
    pub probes: [usize; 2],
    /// The medians of the path and of the link, in milliseconds.
    pub p50_ms: [f64; 2],
    /// The 95th percentiles of the path and of the link, in milliseconds.
    pub p95_ms: [f64; 2],
    /// The distances between both distributions; that of Wasserstein is in milliseconds.
    pub distance: Distance,
}

/// The throughput of a load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ThroughputComparison {
    /// The phase.
    pub phase: Phase,
    /// The direction.
    pub direction: Direction,
    /// The goodput of the path and of the link, in bit/s.
    pub bit_per_s: [f64; 2],
}

impl Comparison {
    /// Compares two measurements of `farwire measure quality`, that of the path and that of the link.
    pub fn of(path: &Measurement, link: &Measurement) -> Self {
        let delays: Vec<DelayComparison> = PHASES
            .into_iter()
            .filter_map(|(phase, _)| DelayComparison::of(path, link, phase))
            .collect();
        let throughput: Vec<ThroughputComparison> = PHASES
            .into_iter()
            .flat_map(|(phase, _)| DIRECTIONS.map(|way| (phase, way)))
            .filter_map(|(phase, way)| ThroughputComparison::of(path, link, phase, way))
            .collect();
        let statement = statement(&delays, &throughput);
        Self {
            delays,
            throughput,
            statement,
        }
    }
}

impl DelayComparison {
    fn of(path: &Measurement, link: &Measurement, phase: Phase) -> Option<Self> {
        let [one, other] = [path, link].map(|measurement| round_trips(measurement, phase));
        let [at, beside] = [sorted(&one), sorted(&other)];
        let of = |share| Some([quantile(&at, share)?, quantile(&beside, share)?]);
        Some(Self {
            phase,
            probes: [one.len(), other.len()],
            p50_ms: of(0.5)?,
            p95_ms: of(0.95)?,
            distance: distances(&one, &other)?,
        })
    }

    /// Returns the larger error of both percentiles in percent; differences that hosts explain are none.
    pub fn error_percent(&self) -> f64 {
        let error = |[path, link]: [f64; 2]| match (link - path).abs() {
            difference if difference < HOST_MS => 0.0,
            difference => 100.0 * difference / path,
        };
        error(self.p50_ms).max(error(self.p95_ms))
    }
}

impl ThroughputComparison {
    fn of(
        path: &Measurement,
        link: &Measurement,
        phase: Phase,
        direction: Direction,
    ) -> Option<Self> {
        let of = |measurement: &Measurement| {
            let wanted = (Metric::GoodputBitPerS, Statistic::Mean, Some(phase), Some(direction));
            let mut figures = measurement.figures.iter();
            let found = figures.find(|one| {
                (one.metric, one.statistic, one.phase, one.direction) == wanted
                    && one.stream.is_none()
            });
            found.map(|figure| figure.value)
        };
        Some(Self {
            phase,
            direction,
            bit_per_s: [of(path)?, of(link)?],
        })
    }

    /// Returns the error in percent of the path's throughput.
    pub fn error_percent(&self) -> f64 {
        let [path, link] = self.bit_per_s;
        100.0 * (link - path).abs() / path.max(1.0)
    }
}

/// Returns the round trips of a phase in the order of sending, between the kernels where both ends know them.
fn round_trips(measurement: &Measurement, phase: Phase) -> Vec<f64> {
    let of = |metric| {
        let samples = measurement.samples.iter();
        let of_phase = samples.filter(move |sample| sample.phase == Some(phase));
        let found = of_phase.filter(move |sample| sample.metric == metric);
        found.map(|sample| sample.value).collect::<Vec<f64>>()
    };
    let (network, program) = (of(Metric::NetworkRttMs), of(Metric::RttMs));
    match network.len() == program.len() {
        true => network,
        false => program,
    }
}

/// Returns a sentence that says what the link may be used for.
fn statement(delays: &[DelayComparison], throughput: &[ThroughputComparison]) -> String {
    let name = |phase| PHASES.iter().find(|(one, _)| *one == phase).map(|(_, name)| *name);
    let mut all: Vec<(String, f64)> = delays
        .iter()
        .filter_map(|one| Some((name(one.phase)?.to_owned(), one.error_percent())))
        .collect();
    for way in DIRECTIONS {
        let of_way = throughput.iter().filter(|one| one.direction == way);
        let worst = of_way.map(ThroughputComparison::error_percent).reduce(f64::max);
        all.extend(worst.map(|worst| (format!("TCP throughput {}", way.name()), worst)));
    }
    if all.is_empty() {
        return "Nothing was compared, so that nothing is known about how well the link represents the path.".to_owned();
    }
    let (close, far): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, error)| *error <= CLOSE_PERCENT);
    let listed = |all: &[(String, f64)]| {
        let words = all.iter().map(|(what, error)| format!("{what} ({error:.0} %)"));
        words.collect::<Vec<_>>().join(", ")
    };
    match (close.is_empty(), far.is_empty()) {
        (false, true) => format!(
            "The link represents the path within {CLOSE_PERCENT} % in all that was compared: {}.",
            listed(&close)
        ),
        (true, _) => format!("Do not use the link in place of the path: it differs in {}.", listed(&far)),
        (false, false) => format!(
            "The link represents the path in {}; do not use it for {}.",
            listed(&close),
            listed(&far)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::{Figure, Sample};

    fn measured(shift_ms: f64, rate: f64) -> Measurement {
        let samples = (0..200_u32).map(|index| Sample {
            phase: Some(Phase::Idle),
            ..Sample::new(
                f64::from(index),
                Metric::RttMs,
                index.into(),
                50.0 + shift_ms + f64::from(index * 7 % 10),
            )
        });
        let goodput = Figure::new(Metric::GoodputBitPerS, Statistic::Mean, rate);
        Measurement {
            samples: samples.collect(),
            figures: vec![goodput.toward(Direction::Down).during(Phase::LoadedDown)],
            ..Measurement::default()
        }
    }

    #[test]
    fn a_link_like_the_path_represents_it() {
        let found = Comparison::of(&measured(0.0, 1e7), &measured(0.0, 1.02e7));
        assert_eq!(found.delays.len(), 1);
        let expected = "The link represents the path within 10 % in all that was compared: idle delay (0 %), \
                        TCP throughput down (2 %).";
        assert_eq!(found.statement, expected);
    }

    #[test]
    fn what_differs_is_named() {
        let found = Comparison::of(&measured(0.0, 1e7), &measured(20.0, 1e7));
        assert_eq!(found.delays[0].distance.kolmogorov_smirnov.value, 1.0);
        assert!((found.delays[0].distance.wasserstein.value - 20.0).abs() < 1e-6);
        let expected = "The link represents the path in TCP throughput down (0 %); do not use it for idle delay (37 %).";
        assert_eq!(found.statement, expected);
        let nothing = Comparison::of(&Measurement::default(), &Measurement::default());
        assert!(nothing.statement.starts_with("Nothing was compared"));
    }
}
