//! The comparison of a path with the fitted link: the same measurement through both, side by side.

use conditions::Direction;
use record::{Measurement, Metric, Phase, Statistic};
use serde::Serialize;
use stats::losses::Losses;
use stats::order_statistics::{quantile, sorted};

use crate::DIRECTIONS;
use crate::distance::{Distance, distances};
use crate::observations::{ProbeSession, index};

/// The error up to which a link may represent a path.
const CLOSE_PERCENT: f64 = 10.0;
/// The difference of two delays in milliseconds that the hosts explain.
const HOST_MS: f64 = 0.3;
/// The least wait beside a load to which an error is related: this share of the idle delay, and this number of
/// milliseconds.
const LEAST_WAIT: (f64, f64) = (0.1, 3.0);
/// The normal quantile of 95 % intervals.
const Z: f64 = 1.96;
/// The phases with their names for people.
const PHASES: [(Phase, &str); 4] = [
    (Phase::Idle, "idle delay"),
    (Phase::LoadedDown, "delay under load down"),
    (Phase::LoadedUp, "delay under load up"),
    (Phase::LoadedBoth, "delay under load in both directions"),
];

/// The difference between a link and the path to which it was fitted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The round trips of each phase.
    pub delays: Vec<DelayComparison>,
    /// The throughput of each load.
    pub throughput: Vec<ThroughputComparison>,
    /// The losses of the idle path in each direction.
    pub losses: Vec<LossComparison>,
    /// The names of what differs, with their errors.
    pub different: Vec<String>,
    /// The uses for which the link is close enough, and those for which it is not.
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
    /// The medians of the idle path and of the idle link, in milliseconds; 0 for the idle phase itself.
    pub idle_ms: [f64; 2],
    /// The distances between both distributions; that of Wasserstein is in milliseconds.
    pub distance: Distance,
}

/// The losses of a direction on the idle path.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LossComparison {
    /// The direction.
    pub direction: Direction,
    /// The packets and losses of the path and of the link.
    pub counts: [Losses; 2],
    /// The shares of lost packets of the path and of the link, in percent.
    pub percent: [f64; 2],
    /// The least difference of both shares that is no chance (95 %), in percentage points.
    pub least_difference: f64,
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
        let idle = DelayComparison::of(path, link, Phase::Idle, [0.0; 2]);
        let idle_ms = idle.as_ref().map_or([0.0; 2], |idle| idle.p50_ms);
        let loaded = PHASES.into_iter().skip(1);
        let loaded =
            loaded.filter_map(|(phase, _)| DelayComparison::of(path, link, phase, idle_ms));
        let delays: Vec<DelayComparison> = idle.into_iter().chain(loaded).collect();
        let throughput: Vec<ThroughputComparison> = PHASES
            .into_iter()
            .flat_map(|(phase, _)| DIRECTIONS.map(|way| (phase, way)))
            .filter_map(|(phase, way)| ThroughputComparison::of(path, link, phase, way))
            .collect();
        let losses = DIRECTIONS.map(|way| LossComparison::of(path, link, way));
        let losses: Vec<LossComparison> = losses.into_iter().flatten().collect();
        let (different, statement) = statement(&delays, &throughput, &losses);
        Self {
            delays,
            throughput,
            losses,
            different,
            statement,
        }
    }
}

impl LossComparison {
    fn of(path: &Measurement, link: &Measurement, direction: Direction) -> Option<Self> {
        let idle = Some(Phase::Idle);
        let of = |measurement: &Measurement| {
            ProbeSession::of(measurement, idle, 0).losses[index(direction)]
        };
        let counts = [of(path)?, of(link)?];
        let variance = |one: Losses| {
            let share = one.lost as f64 / one.of as f64;
            share * (1.0 - share) * one.inflation() / one.of as f64
        };
        let error = counts.map(variance).iter().sum::<f64>().sqrt();
        // Without any loss, the shares of rare losses have no variance. One packet is the least difference.
        let packet = 1.0 / counts[0].of.min(counts[1].of).max(1) as f64;
        Some(Self {
            direction,
            counts,
            percent: [counts[0].percent()?, counts[1].percent()?],
            least_difference: 100.0 * (Z * error).max(packet),
        })
    }

    /// Returns the error in percent of the larger share, if the difference is no chance.
    pub fn error_percent(&self) -> Option<f64> {
        let [path, link] = self.percent;
        let difference = (link - path).abs();
        (difference > self.least_difference).then(|| 100.0 * difference / path.max(link))
    }

    /// Returns whether a difference of [`CLOSE_PERCENT`] would be no chance.
    fn is_decided(&self) -> bool {
        self.least_difference <= CLOSE_PERCENT / 100.0 * self.percent[0] || self.percent == [0.0; 2]
    }
}

impl DelayComparison {
    fn of(path: &Measurement, link: &Measurement, phase: Phase, idle_ms: [f64; 2]) -> Option<Self> {
        let [one, other] = [path, link].map(|measurement| round_trips(measurement, phase));
        let [at, beside] = [sorted(&one), sorted(&other)];
        let of = |share| Some([quantile(&at, share)?, quantile(&beside, share)?]);
        Some(Self {
            phase,
            probes: [one.len(), other.len()],
            p50_ms: of(0.5)?,
            p95_ms: of(0.95)?,
            idle_ms,
            distance: distances(&one, &other)?,
        })
    }

    /// Returns the larger error of both percentiles in percent; differences that hosts explain are none. On the idle path,
    /// it is the error of the delay; beside a load, that of the wait, which is the delay less the idle one.
    pub fn error_percent(&self) -> f64 {
        let (least_share, least_ms) = LEAST_WAIT;
        let [idle_path, idle_link] = self.idle_ms;
        let error = |[path, link]: [f64; 2]| {
            let [path, link] = [path - idle_path, link - idle_link];
            match (link - path).abs() {
                difference if difference < HOST_MS => 0.0,
                difference if idle_path > 0.0 => {
                    100.0 * difference / path.max(least_share * idle_path).max(least_ms)
                }
                difference => 100.0 * difference / path,
            }
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
            let wanted = (
                Metric::GoodputBitPerS,
                Statistic::Mean,
                Some(phase),
                Some(direction),
            );
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

/// Returns the goodput of a load in bit/s over time, which is in seconds since its first interval.
pub fn goodput(measurement: &Measurement, phase: Phase, direction: Direction) -> Vec<(f64, f64)> {
    let wanted = (Metric::GoodputBitPerS, Some(phase), Some(direction), None);
    let intervals = measurement
        .samples
        .iter()
        .filter(|sample| (sample.metric, sample.phase, sample.direction, sample.stream) == wanted);
    let intervals: Vec<(f64, f64)> = intervals.map(|one| (one.at_s, one.value)).collect();
    let first_s = intervals.first().map_or(0.0, |(at_s, _)| *at_s);
    let since_first = intervals
        .into_iter()
        .map(|(at_s, rate)| (at_s - first_s, rate));
    since_first.collect()
}

/// Returns the round trips of a phase in milliseconds, in the order of sending: between the kernels where both ends know
/// them.
pub fn round_trips(measurement: &Measurement, phase: Phase) -> Vec<f64> {
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

/// Returns the names of what differs, and a text that says what the link may be used for.
fn statement(
    delays: &[DelayComparison],
    throughput: &[ThroughputComparison],
    losses: &[LossComparison],
) -> (Vec<String>, String) {
    let name = |phase| {
        PHASES
            .iter()
            .find(|(one, _)| *one == phase)
            .map(|(_, name)| *name)
    };
    let mut all: Vec<(String, f64)> = delays
        .iter()
        .filter_map(|one| Some((name(one.phase)?.to_owned(), one.error_percent())))
        .collect();
    for way in DIRECTIONS {
        let of_way = throughput.iter().filter(|one| one.direction == way);
        let worst = of_way
            .map(ThroughputComparison::error_percent)
            .reduce(f64::max);
        all.extend(worst.map(|worst| (format!("throughput {}", way.name()), worst)));
    }
    let mut undecided = Vec::new();
    for one in losses {
        let name = format!("loss {}", one.direction.name());
        match one.error_percent() {
            Some(error) => all.push((name, error)),
            None if one.is_decided() => all.push((name, 0.0)),
            None => undecided.push(name),
        }
    }
    if all.is_empty() {
        let nothing = "Nothing was compared, so that nothing is known about how well the link represents the path.";
        return (Vec::new(), nothing.to_owned());
    }
    let texts = |all: Vec<(String, f64)>| -> Vec<String> {
        let words = all
            .into_iter()
            .map(|(what, error)| format!("{what} ({error:.0} %)"));
        words.collect()
    };
    let (close, far) = all
        .into_iter()
        .partition(|(_, error)| *error <= CLOSE_PERCENT);
    let (close, far): (Vec<String>, Vec<String>) = (texts(close), texts(far));
    let mut text = match (close.is_empty(), far.is_empty()) {
        (false, true) => format!(
            "The link represents the path within {CLOSE_PERCENT} % in all that was compared: {}.",
            close.join(", ")
        ),
        (true, _) => format!(
            "Do not use the link in place of the path: it differs in {}.",
            far.join(", ")
        ),
        (false, false) => format!(
            "The link represents the path in {}; do not use it for {}.",
            close.join(", "),
            far.join(", ")
        ),
    };
    if !undecided.is_empty() {
        let names = undecided.join(", ");
        text += &format!(" Too few packets were lost to compare {names}.");
    }
    (far, text)
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
    fn the_goodput_of_a_load_has_the_times_since_its_first_interval() {
        let sample = |at_s, phase| Sample {
            direction: Some(Direction::Down),
            phase: Some(phase),
            ..Sample::new(at_s, Metric::GoodputBitPerS, 1, 8e6)
        };
        let measurement = Measurement {
            samples: vec![
                sample(5.0, Phase::LoadedDown),
                sample(6.0, Phase::LoadedDown),
                sample(6.0, Phase::LoadedUp),
            ],
            ..Measurement::default()
        };
        let found = goodput(&measurement, Phase::LoadedDown, Direction::Down);
        assert_eq!(found, [(0.0, 8e6), (1.0, 8e6)]);
        assert_eq!(goodput(&measurement, Phase::LoadedDown, Direction::Up), []);
    }

    #[test]
    fn a_link_like_the_path_represents_it() {
        let found = Comparison::of(&measured(0.0, 1e7), &measured(0.0, 1.02e7));
        assert_eq!(found.delays.len(), 1);
        let expected = "The link represents the path within 10 % in all that was compared: idle delay (0 %), \
                        throughput down (2 %).";
        assert_eq!(found.statement, expected);
    }

    #[test]
    fn what_differs_is_named() {
        let found = Comparison::of(&measured(0.0, 1e7), &measured(20.0, 1e7));
        assert_eq!(found.delays[0].distance.kolmogorov_smirnov.value, 1.0);
        assert!((found.delays[0].distance.wasserstein.value - 20.0).abs() < 1e-6);
        let expected = "The link represents the path in throughput down (0 %); do not use it for idle delay (37 %).";
        assert_eq!(found.statement, expected);
        let nothing = Comparison::of(&Measurement::default(), &Measurement::default());
        assert!(nothing.statement.starts_with("Nothing was compared"));
    }

    /// Returns a measurement of the idle path that lost `lost` of `of` packets up.
    fn losing(lost: u64, of: u64) -> Measurement {
        let figure = Figure::new(Metric::LostPercent, Statistic::Mean, 0.0);
        let figure = Figure {
            losses: Some(Losses::independent(lost, of)),
            ..figure.toward(Direction::Up).during(Phase::Idle)
        };
        let samples = (1..=of).map(|index| Sample {
            phase: Some(Phase::Idle),
            ..Sample::new(0.01 * index as f64, Metric::RttMs, index, 20.0)
        });
        Measurement {
            samples: samples.collect(),
            figures: vec![figure],
            ..Measurement::default()
        }
    }

    #[test]
    fn losses_differ_only_beyond_chance_and_few_of_them_decide_nothing() {
        let statement = |path, link| Comparison::of(&path, &link).statement;
        let text = statement(losing(1_000, 2_000), losing(1_200, 2_000));
        assert!(text.contains("do not use it for loss up (17 %)"), "{text}");
        let text = statement(losing(4, 300), losing(7, 300));
        assert!(
            text.ends_with("Too few packets were lost to compare loss up."),
            "{text}"
        );
        let text = statement(losing(0, 300), losing(0, 300));
        assert!(text.contains("loss up (0 %)"), "{text}");
    }

    #[test]
    fn the_wait_in_a_queue_is_compared_apart_from_the_delay() {
        let measured = |queue_ms: f64| {
            let sample = |phase, index: u32, value| Sample {
                phase: Some(phase),
                ..Sample::new(f64::from(index), Metric::RttMs, index.into(), value)
            };
            let idle = (1..=50).map(|index| sample(Phase::Idle, index, 300.0));
            let loaded = (51..=100).map(|index| sample(Phase::LoadedUp, index, 300.0 + queue_ms));
            Measurement {
                samples: idle.chain(loaded).collect(),
                ..Measurement::default()
            }
        };
        let found = Comparison::of(&measured(100.0), &measured(120.0));
        assert_eq!(found.different, ["delay under load up (20 %)"]);
    }
}
