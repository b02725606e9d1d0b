//! The comparison of a path with the fitted link: the same measurement through both, side by side.

mod bursts;

use conditions::Direction;
use record::{Measurement, Metric, Phase, Statistic};
use serde::Serialize;
use stats::losses::Losses;
use stats::order_statistics::{quantile, sorted};

use crate::DIRECTIONS;
use crate::distance::{Distance, between_halves, distances};
use crate::index;
use crate::observations::ProbeSession;

pub use bursts::{BurstComparison, burst_spreads};

/// The error up to which a link may represent a path.
const CLOSE_PERCENT: f64 = 10.0;
/// The difference of two delays, in milliseconds, below which the hosts explain it.
pub const HOST_MS: f64 = 0.3;
/// The least wait beside a load to which an error is related: this share of the idle delay, and this number of
/// milliseconds.
const LEAST_WAIT: (f64, f64) = (0.1, 3.0);
/// The share of lost packets in percent below which two directions count as equal if both are certainly below it.
const RARE_LOSS_PERCENT: f64 = 0.1;
/// The fewest delays of a direction that are compared. A capture may have few packets in one direction.
const FEWEST_ONE_WAY: usize = 20;
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
    /// The round trips of each phase; the delays of each direction of the idle path, if the path has no round trips.
    pub delays: Vec<DelayComparison>,
    /// The throughput of each load.
    pub throughput: Vec<ThroughputComparison>,
    /// Short trains of packets on the idle path in each direction; empty unless enough arrived complete.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bursts: Vec<BurstComparison>,
    /// The losses of the idle path in each direction, or of round trips where no direction is known.
    pub losses: Vec<LossComparison>,
    /// The seconds for which both were measured without a load.
    pub idle_s: f64,
    /// The seconds for which both were measured beside the shortest load; 0 without a load.
    pub loaded_s: f64,
    /// The names of what differs, with their errors.
    pub different: Vec<String>,
    /// The uses for which the link is close enough, and those for which it is not.
    pub statement: String,
}

/// The round trips of a phase, or the delays of a direction of the idle path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DelayComparison {
    /// The phase.
    pub phase: Phase,
    /// The direction; absent for round trips.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// The number of delays of the path and of the link.
    pub probes: [usize; 2],
    /// The medians of the path and of the link, in milliseconds.
    pub p50_ms: [f64; 2],
    /// The 95th percentiles of the path and of the link, in milliseconds.
    pub p95_ms: [f64; 2],
    /// The medians of the idle path and of the idle link, in milliseconds; 0 for the idle phase itself.
    pub idle_ms: [f64; 2],
    /// The distances between both distributions; that of Wasserstein is in milliseconds.
    pub distance: Distance,
    /// The same two distances between the first and the second half of the path's delays, as a reference.
    pub path_halves: [f64; 2],
}

/// The losses on the idle path in a direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LossComparison {
    /// The direction; `None` for round trips.
    pub direction: Option<Direction>,
    /// The packets and losses of the path and of the link.
    pub counts: [Losses; 2],
    /// The shares of lost packets of the path and of the link, in percent.
    pub percent: [f64; 2],
    /// The least difference of both shares that is no chance (95 %), in percentage points.
    pub least_difference: f64,
    /// The runs of lost packets; `None` if either side lost none.
    pub runs: Option<LossRunComparison>,
}

/// The runs of consecutive lost packets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LossRunComparison {
    /// The mean numbers of lost packets in a run of the path and of the link.
    pub packets: [f64; 2],
    /// The least difference of both that is no chance (95 %), in percent of the smaller one.
    pub least_percent: f64,
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
        let one_way = DIRECTIONS.map(|way| match idle {
            Some(_) => None,
            None => DelayComparison::one_way(path, link, way),
        });
        let loaded = PHASES.into_iter().skip(1);
        let loaded =
            loaded.filter_map(|(phase, _)| DelayComparison::of(path, link, phase, idle_ms));
        let idle = idle.into_iter().chain(one_way.into_iter().flatten());
        let delays: Vec<DelayComparison> = idle.chain(loaded).collect();
        let throughput: Vec<ThroughputComparison> = PHASES
            .into_iter()
            .flat_map(|(phase, _)| DIRECTIONS.map(|way| (phase, way)))
            .filter_map(|(phase, way)| ThroughputComparison::of(path, link, phase, way))
            .collect();
        let bursts = BurstComparison::all([path, link]);
        let losses = LossComparison::all(path, link);
        let both_s = |phase| span_s(path, phase).min(span_s(link, phase));
        let idle_s = both_s(Phase::Idle);
        let loaded = delays.iter().filter(|one| one.phase != Phase::Idle);
        let loaded_s = loaded.map(|one| both_s(one.phase)).reduce(f64::min);
        let loaded_s = loaded_s.unwrap_or_default();
        let (different, mut statement) = statement(&delays, &throughput, &bursts, &losses);
        statement += &horizon(idle_s, loaded_s);
        Self {
            delays,
            throughput,
            bursts,
            losses,
            idle_s,
            loaded_s,
            different,
            statement,
        }
    }
}

impl LossComparison {
    /// Compares the losses of each direction that both measurements know. If neither knows any, the lost round trips are
    /// compared, unless one of them has packets of single directions.
    fn all(path: &Measurement, link: &Measurement) -> Vec<Self> {
        let sessions =
            [path, link].map(|measurement| ProbeSession::of(measurement, Some(Phase::Idle), 0));
        let of_way = |way: Direction| {
            let [path, link] = sessions.each_ref().map(|one| one.losses[index(way)]);
            Self::of(Some(way), [path?, link?])
        };
        let of_ways: Vec<Self> = DIRECTIONS.into_iter().filter_map(of_way).collect();
        let knows_a_way = |one: &ProbeSession| one.losses.iter().any(Option::is_some);
        let is_one_way = |one: &ProbeSession| one.arrivals() > 0 && !one.has_round_trips();
        if sessions
            .iter()
            .any(|one| knows_a_way(one) || is_one_way(one))
        {
            return of_ways;
        }
        let of_round_trips = sessions.map(|one| {
            let lost = one.probes.iter().map(|probe| probe.rtt_ms.is_none());
            Losses::in_order(lost)
        });
        Self::of(None, of_round_trips).into_iter().collect()
    }

    fn of(direction: Option<Direction>, counts: [Losses; 2]) -> Option<Self> {
        let [path, link] = counts;
        let percent = [path.percent()?, link.percent()?];
        let variance = |one: Losses| {
            let share = one.lost as f64 / one.of as f64;
            share * (1.0 - share) * one.inflation() / one.of as f64
        };
        let error = counts.map(variance).iter().sum::<f64>().sqrt();
        // Without any loss, the shares of rare losses have no variance. One packet is the least difference.
        let packet = 1.0 / path.of.min(link.of) as f64;
        Some(Self {
            direction,
            counts,
            percent,
            least_difference: 100.0 * (Z * error).max(packet),
            runs: LossRunComparison::of(counts),
        })
    }

    /// Returns the error in percent of the larger share; 0 if nothing was lost.
    pub fn error_percent(&self) -> f64 {
        let [path, link] = self.percent;
        let larger = path.max(link);
        if larger > 0.0 {
            100.0 * (link - path).abs() / larger
        } else {
            0.0
        }
    }

    /// Returns whether the difference is no chance.
    fn is_different(&self) -> bool {
        let [path, link] = self.percent;
        (link - path).abs() > self.least_difference
    }

    /// Returns whether a difference of [`CLOSE_PERCENT`] would be no chance.
    fn is_decided(&self) -> bool {
        self.percent[0] > 0.0 && self.least_difference <= CLOSE_PERCENT / 100.0 * self.percent[0]
    }

    /// Returns whether both shares are certainly below [`RARE_LOSS_PERCENT`].
    fn is_rare(&self) -> bool {
        let most = |one: Losses| one.interval().map_or(100.0, |[_, high]| 100.0 * high);
        self.counts
            .into_iter()
            .all(|one| most(one) < RARE_LOSS_PERCENT)
    }

    /// Returns the name for people.
    fn name(&self) -> String {
        match self.direction {
            Some(way) => format!("loss {}", way.name()),
            None => "loss of round trips".to_owned(),
        }
    }
}

impl LossRunComparison {
    fn of(counts: [Losses; 2]) -> Option<Self> {
        if counts.iter().any(|one| one.bursts == 0 || one.lost == 0) {
            return None;
        }
        // Runs of a geometric length B have the variance B² (1 - 1/B). One more loss in a run is always possible, so that
        // runs of single packets have a variance, too.
        let variance = |one: Losses| {
            let runs = one.bursts as f64;
            (1.0 - runs / (one.lost as f64 + 1.0)) / runs
        };
        let error = counts.map(variance).iter().sum::<f64>().sqrt();
        Some(Self {
            packets: counts.map(|one| one.lost as f64 / one.bursts as f64),
            least_percent: 100.0 * (Z * error).exp_m1(),
        })
    }

    /// Returns the error in percent of the smaller mean.
    pub fn error_percent(&self) -> f64 {
        let [path, link] = self.packets;
        100.0 * (link - path).abs() / path.min(link)
    }

    /// Returns whether the difference is no chance.
    fn is_different(&self) -> bool {
        self.error_percent() > self.least_percent
    }

    /// Returns whether a difference of [`CLOSE_PERCENT`] would be no chance.
    fn is_decided(&self) -> bool {
        self.least_percent <= CLOSE_PERCENT
    }
}

impl DelayComparison {
    /// Compares the round trips of a phase.
    fn of(path: &Measurement, link: &Measurement, phase: Phase, idle_ms: [f64; 2]) -> Option<Self> {
        Self::between(round_trips([path, link], phase), phase, None, idle_ms)
    }

    /// Compares the delays of a direction of the idle path; `None` if the path or the link has too few.
    fn one_way(path: &Measurement, link: &Measurement, way: Direction) -> Option<Self> {
        let delays = one_way_delays([path, link], way);
        let are_enough = delays.iter().all(|one| one.len() >= FEWEST_ONE_WAY);
        let found = are_enough.then(|| Self::between(delays, Phase::Idle, Some(way), [0.0; 2]));
        found.flatten()
    }

    fn between(
        [one, other]: [Vec<f64>; 2],
        phase: Phase,
        direction: Option<Direction>,
        idle_ms: [f64; 2],
    ) -> Option<Self> {
        let [at, beside] = [sorted(&one), sorted(&other)];
        let of = |share| Some([quantile(&at, share)?, quantile(&beside, share)?]);
        Some(Self {
            phase,
            direction,
            probes: [one.len(), other.len()],
            p50_ms: of(0.5)?,
            p95_ms: of(0.95)?,
            idle_ms,
            distance: distances(&one, &other)?,
            path_halves: between_halves(&one),
        })
    }

    /// Returns the errors of the median and of the 95th percentile in percent; `None` for a difference below [`HOST_MS`],
    /// which the hosts explain. On the idle path, they are errors of the delay; beside a load, those of the wait, which is
    /// the delay less the idle one.
    pub fn errors_percent(&self) -> [Option<f64>; 2] {
        let (least_share, least_ms) = LEAST_WAIT;
        let [idle_path, idle_link] = self.idle_ms;
        let error = |[path, link]: [f64; 2]| {
            let [path, link] = [path - idle_path, link - idle_link];
            let reference = if idle_path > 0.0 {
                path.max(least_share * idle_path).max(least_ms)
            } else {
                path
            };
            error_percent(link - path, reference)
        };
        [error(self.p50_ms), error(self.p95_ms)]
    }
}

/// Returns a difference of delays in percent of `reference_ms`; `None` if it is below [`HOST_MS`].
fn error_percent(difference_ms: f64, reference_ms: f64) -> Option<f64> {
    let difference = difference_ms.abs();
    (difference >= HOST_MS).then(|| 100.0 * difference / reference_ms)
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

/// Returns the round trips of a phase in milliseconds for each measurement, in the order of sending: between the kernels if
/// both measurements know all of them, and between the programs otherwise.
pub fn round_trips(measured: [&Measurement; 2], phase: Phase) -> [Vec<f64>; 2] {
    let of = |metric| {
        measured.map(|measurement| {
            let samples = measurement.samples.iter();
            let of_phase = samples.filter(|sample| sample.phase == Some(phase));
            let found = of_phase.filter(|sample| sample.metric == metric);
            found.map(|sample| sample.value).collect::<Vec<f64>>()
        })
    };
    let (network, program) = (of(Metric::NetworkRttMs), of(Metric::RttMs));
    let mut pairs = network.iter().zip(&program);
    match pairs.all(|(network, program)| network.len() == program.len()) {
        true => network,
        false => program,
    }
}

/// Returns the delays of a direction of the idle path in milliseconds for each measurement, in the order of sending.
pub fn one_way_delays(measured: [&Measurement; 2], way: Direction) -> [Vec<f64>; 2] {
    let wanted = (Metric::OneWayDelayMs, Some(Phase::Idle), Some(way));
    measured.map(|measurement| {
        let samples = measurement.samples.iter();
        let found = samples.filter(|one| (one.metric, one.phase, one.direction) == wanted);
        found.map(|one| one.value).collect()
    })
}

/// Returns the seconds between the first and the last sample of a phase; 0 without a sample. Trains of packets do not
/// count, because their times are those of another measurement.
fn span_s(measurement: &Measurement, phase: Phase) -> f64 {
    let samples = measurement.samples.iter();
    let times = samples
        .filter(|sample| sample.phase == Some(phase) && sample.metric != Metric::InTrainMs)
        .map(|sample| sample.at_s);
    let [first, last] = times.fold([f64::INFINITY, f64::NEG_INFINITY], |[first, last], at_s| {
        [first.min(at_s), last.max(at_s)]
    });
    (last - first).max(0.0)
}

/// Returns the sentence on the time for which the comparison holds; empty if nothing was compared.
fn horizon(idle_s: f64, loaded_s: f64) -> String {
    let times = [(idle_s, "without a load"), (loaded_s, "of each load")];
    let times = times.into_iter().filter(|(seconds, _)| *seconds > 0.0);
    let times: Vec<String> = times
        .map(|(seconds, what)| format!("{seconds:.0} s {what}"))
        .collect();
    match times.is_empty() {
        true => String::new(),
        false => format!(
            " This holds for at most {}, for which both were measured.",
            times.join(" and ")
        ),
    }
}

/// A part of the path that was compared.
struct Compared {
    /// Its name and its errors for people.
    text: String,
    /// The largest error in percent.
    error: f64,
}

impl Compared {
    fn new(name: &str, error: f64) -> Self {
        Self {
            text: format!("{name} ({error:.0} %)"),
            error,
        }
    }

    /// Compares two percentiles of a delay. `None` is a difference below [`HOST_MS`].
    fn delay(name: &str, errors: [Option<f64>; 2]) -> Self {
        let text = |error: Option<f64>| match error {
            Some(error) => format!("{error:.0} %"),
            None => format!("within {HOST_MS} ms"),
        };
        let [p50, p95] = errors.map(text);
        let both = match errors {
            [None, None] => p50,
            _ => format!("p50 {p50}, p95 {p95}"),
        };
        Self {
            text: format!("{name} ({both})"),
            error: errors.into_iter().flatten().fold(0.0, f64::max),
        }
    }
}

/// Returns the names of what differs, and a text that says what the link may be used for.
fn statement(
    delays: &[DelayComparison],
    throughput: &[ThroughputComparison],
    bursts: &[BurstComparison],
    losses: &[LossComparison],
) -> (Vec<String>, String) {
    let name = |phase| {
        PHASES
            .iter()
            .find(|(one, _)| *one == phase)
            .map(|(_, name)| *name)
    };
    let mut all: Vec<Compared> = delays
        .iter()
        .filter_map(|one| {
            let name = match one.direction {
                Some(way) => format!("{} {}", name(one.phase)?, way.name()),
                None => name(one.phase)?.to_owned(),
            };
            Some(Compared::delay(&name, one.errors_percent()))
        })
        .collect();
    for way in DIRECTIONS {
        let of_way = throughput.iter().filter(|one| one.direction == way);
        let worst = of_way
            .map(ThroughputComparison::error_percent)
            .reduce(f64::max);
        all.extend(worst.map(|worst| Compared::new(&format!("throughput {}", way.name()), worst)));
    }
    all.extend(bursts.iter().map(BurstComparison::compared));
    let mut undecided = Vec::new();
    for one in losses {
        let name = one.name();
        if one.is_rare() {
            all.push(Compared {
                text: format!("{name} (below {RARE_LOSS_PERCENT} % on both)"),
                error: 0.0,
            });
            continue;
        }
        match one.is_different() || one.is_decided() {
            true => all.push(Compared::new(&name, one.error_percent())),
            false => undecided.push(name.clone()),
        }
        let Some(runs) = one.runs else {
            continue;
        };
        let name = format!("length of runs of {name}");
        match runs.is_different() || runs.is_decided() {
            true => all.push(Compared::new(&name, runs.error_percent())),
            false => undecided.push(name),
        }
    }
    if all.is_empty() && undecided.is_empty() {
        let nothing = "Nothing was compared, so that nothing is known about how well the link represents the path.";
        return (Vec::new(), nothing.to_owned());
    }
    let texts =
        |all: Vec<Compared>| -> Vec<String> { all.into_iter().map(|one| one.text).collect() };
    let (close, far): (Vec<Compared>, Vec<Compared>) =
        all.into_iter().partition(|one| one.error <= CLOSE_PERCENT);
    let (close, far) = (texts(close), texts(far));
    let mut text = match (close.is_empty(), far.is_empty()) {
        (false, true) => format!(
            "The link represents the path within {CLOSE_PERCENT} % in all that was compared: {}.",
            close.join(", ")
        ),
        (true, false) => format!(
            "Do not use the link in place of the path: it differs in {}.",
            far.join(", ")
        ),
        (false, false) => format!(
            "The link represents the path in {}; do not use it for {}.",
            close.join(", "),
            far.join(", ")
        ),
        (true, true) => "Nothing shows how well the link represents the path.".to_owned(),
    };
    if !undecided.is_empty() {
        let names = undecided.join(", ");
        text += &format!(" Too few packets were sent or lost to compare: {names}.");
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
        let expected = "The link represents the path within 10 % in all that was compared: idle delay (within 0.3 ms), \
                        throughput down (2 %). Too few packets were sent or lost to compare: loss of round trips. \
                        This holds for at most 199 s without a load, for which both were measured.";
        assert_eq!(found.statement, expected);
    }

    #[test]
    fn what_differs_is_named() {
        let found = Comparison::of(&measured(0.0, 1e7), &measured(20.0, 1e7));
        assert_eq!(found.delays[0].distance.kolmogorov_smirnov.value, 1.0);
        assert!((found.delays[0].distance.wasserstein.value - 20.0).abs() < 1e-6);
        assert_eq!(found.delays[0].path_halves, [0.0; 2]);
        let expected = "The link represents the path in throughput down (0 %); \
                        do not use it for idle delay (p50 37 %, p95 34 %).";
        assert!(found.statement.starts_with(expected), "{}", found.statement);
        let nothing = Comparison::of(&Measurement::default(), &Measurement::default());
        assert!(nothing.statement.starts_with("Nothing was compared"));
    }

    #[test]
    fn round_trips_of_path_and_link_are_of_one_kind() {
        let program = measured(0.0, 1e7);
        let mut kernels = measured(0.0, 1e7);
        let of_network = kernels.samples.iter().map(|sample| Sample {
            metric: Metric::NetworkRttMs,
            value: sample.value - 1.0,
            ..sample.clone()
        });
        let of_network: Vec<Sample> = of_network.collect();
        kernels.samples.extend(of_network);
        let first = |measured: [&Measurement; 2]| {
            round_trips(measured, Phase::Idle).map(|values| values[0])
        };
        assert_eq!(first([&kernels, &kernels]), [49.0; 2]);
        assert_eq!(first([&kernels, &program]), [50.0; 2]);
        assert_eq!(first([&program, &kernels]), [50.0; 2]);
    }

    /// Returns a measurement of the idle path that lost `lost` of `of` packets up, each of them alone.
    fn losing(lost: u64, of: u64) -> Measurement {
        losing_runs(Losses::independent(lost, of))
    }

    /// Returns a measurement of the idle path with these losses up.
    fn losing_runs(losses: Losses) -> Measurement {
        let figure = Figure::new(Metric::LostPercent, Statistic::Mean, 0.0);
        let figure = Figure {
            losses: Some(losses),
            ..figure.toward(Direction::Up).during(Phase::Idle)
        };
        let samples = (1..=losses.of).map(|index| Sample {
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
        let few =
            "Too few packets were sent or lost to compare: loss up, length of runs of loss up.";
        assert!(text.contains(few), "{text}");
        // A difference that may be chance is stated as it was observed.
        let text = statement(losing(1_000, 2_000), losing(1_040, 2_000));
        assert!(text.contains("loss up (4 %)"), "{text}");
    }

    #[test]
    fn without_a_loss_the_most_that_may_have_been_lost_decides() {
        let statement = |path, link| Comparison::of(&path, &link).statement;
        let text = statement(losing(0, 87), losing(0, 87));
        let few = "Too few packets were sent or lost to compare: loss up.";
        assert!(text.contains(few), "{text}");
        let text = statement(losing(0, 5_000), losing(0, 5_000));
        assert!(text.contains("loss up (below 0.1 % on both)"), "{text}");
    }

    #[test]
    fn equal_losses_in_longer_runs_are_a_difference() {
        let in_runs = Losses {
            of: 2_000,
            lost: 1_000,
            bursts: 250,
        };
        let text = Comparison::of(&losing(1_000, 2_000), &losing_runs(in_runs)).statement;
        let expected = "loss up (0 %); do not use it for length of runs of loss up (300 %).";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn delays_of_each_direction_are_compared_if_the_path_has_no_round_trips() {
        let measured = |shift_ms: f64, with_round_trips: bool| {
            let samples = (0..100_u32).flat_map(|number| {
                let sample = move |metric, value| Sample {
                    phase: Some(Phase::Idle),
                    ..Sample::new(f64::from(number), metric, number.into(), value)
                };
                let varied_ms = f64::from(number % 10);
                let up = sample(Metric::OneWayDelayMs, 20.0 + varied_ms).toward(Direction::Up);
                let down = sample(Metric::OneWayDelayMs, 40.0 + shift_ms + varied_ms);
                // Few packets went down.
                let down = (number < 30).then(|| down.toward(Direction::Down));
                let round_trip = with_round_trips.then(|| sample(Metric::RttMs, 60.0));
                [Some(up), down, round_trip].into_iter().flatten()
            });
            Measurement {
                samples: samples.collect(),
                ..Measurement::default()
            }
        };
        let found = Comparison::of(&measured(0.0, false), &measured(20.0, true));
        let ways: Vec<_> = found
            .delays
            .iter()
            .map(|one| (one.direction, one.probes))
            .collect();
        let expected = [
            (Some(Direction::Up), [100; 2]),
            (Some(Direction::Down), [30; 2]),
        ];
        assert_eq!(ways, expected);
        let text = "The link represents the path in idle delay up (within 0.3 ms); do not use it for idle delay down (p50 45 %, p95 41 %).";
        assert!(found.statement.starts_with(text), "{}", found.statement);
        let round_trips = Comparison::of(&measured(0.0, true), &measured(20.0, true));
        assert_eq!(round_trips.delays.len(), 1);
        assert_eq!(round_trips.delays[0].direction, None);
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
        assert_eq!(
            found.different,
            ["delay under load up (p50 20 %, p95 20 %)"]
        );
        let horizon = "This holds for at most 49 s without a load and 49 s of each load";
        assert!(found.statement.contains(horizon), "{}", found.statement);
    }
}
