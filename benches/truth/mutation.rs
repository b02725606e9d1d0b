//! Faults of an instrument, applied to recorded results: each must turn its cells red.

use std::fmt;

use conditions::route::{PathStages, Route};
use model::Nanos;
use record::plan::Case;
use record::{Direction, Figure, Measurement, Metric, Record, Statistic};
use report::analysis::calibration::{Suite, SuiteCell};

/// A fault of an instrument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// A clock that runs 5 % fast.
    Clock,
    /// Counts 1 % more bytes than arrived.
    Bytes,
    /// Round trips are 0.2 ms too long.
    RoundTrip,
    /// Adds 0.1 points of loss.
    Loss,
    /// Swaps up and down.
    Direction,
}

impl Mutation {
    pub(crate) const ALL: [Self; 5] = [
        Self::Clock,
        Self::Bytes,
        Self::RoundTrip,
        Self::Loss,
        Self::Direction,
    ];

    /// Returns the names of its cells that do not turn red, or a note that it has no cells.
    pub(crate) fn unseen(self, record: &Record) -> Vec<String> {
        let name = |cell: &SuiteCell<'_>| format!("{}: {}", cell.case(), cell.figure());
        let mut falsified = record.clone();
        for run in &mut falsified.runs {
            for measured in &mut run.measurements {
                self.falsify(&mut measured.measurement);
            }
        }
        let [sound, falsified] = [record, &falsified].map(Suite::of);
        let own: Vec<String> = sound
            .cells()
            .filter(|cell| self.concerns(record, cell))
            .map(|cell| name(&cell))
            .collect();
        if own.is_empty() {
            return vec!["no cell at all".to_owned()];
        }
        // A missing cell has not turned red.
        let red = falsified.cells().filter(SuiteCell::is_red);
        let red: Vec<String> = red.map(|cell| name(&cell)).collect();
        own.into_iter().filter(|cell| !red.contains(cell)).collect()
    }

    /// Returns whether a cell should detect the fault.
    fn concerns(self, record: &Record, cell: &SuiteCell<'_>) -> bool {
        let figure = cell.figure();
        let is_rate = figure.metric.unit() == "bit/s";
        let case = record.plan().case(cell.case());
        match self {
            Self::Clock => is_rate,
            // In a TCP test that ends by the clock, more than a percent is on its way at the ends.
            Self::Bytes => is_rate && !case.is_some_and(is_timed_tcp),
            // The hosts' part of a long round trip is bounded less tightly, because a thread that sleeps longer wakes up later. `probe`
            // in user space allows 0.3 ms.
            Self::RoundTrip => {
                figure.metric == Metric::RttMs
                    && case.is_some_and(|case| {
                        is_short(case) && case.instruments[0].args.kind != "probe"
                    })
            }
            Self::Loss => is_count(figure.metric),
            // Figures of one direction only would be missing, not wrong; streams are asked for the same rate in both directions, and
            // a link that differs in its losses alone has equal delays.
            Self::Direction => {
                let is_delay = figure.metric == Metric::OneWayDelayMs;
                figure.direction.is_some()
                    && !is_rate
                    && case.is_some_and(|one| {
                        is_asymmetric(one)
                            && goes_both_ways(one)
                            && (!is_delay || has_different_delays(one))
                    })
            }
        }
    }

    fn falsify(self, measurement: &mut Measurement) {
        let sent = measurement.figure(Metric::SentPackets, Statistic::Total);
        let sent_by_way: Vec<(Option<Direction>, f64)> = measurement
            .figures
            .iter()
            .filter(|f| f.metric == Metric::SentPackets && f.stream.is_none())
            .map(|f| (f.direction, f.value))
            .collect();
        for figure in &mut measurement.figures {
            let of_way = sent_by_way.iter().find(|(way, _)| *way == figure.direction);
            let sent = of_way.map(|(_, sent)| *sent).or(sent).unwrap_or_default();
            self.falsify_figure(figure, sent);
        }
    }

    fn falsify_figure(self, figure: &mut Figure, sent: f64) {
        let is_rate = figure.metric.unit() == "bit/s";
        match self {
            Self::Clock if is_rate => shift(figure, |value| value / 1.05),
            Self::Bytes if is_rate => shift(figure, |value| value * 1.01),
            Self::RoundTrip if figure.metric == Metric::RttMs => shift(figure, |value| value + 0.2),
            Self::Loss if figure.metric == Metric::LostPercent => {
                shift(figure, |value| value + 0.1);
            }
            // Add at least a whole packet.
            Self::Loss if figure.metric == Metric::LostPackets => {
                shift(figure, |value| value + (0.001 * sent).ceil().max(1.0));
            }
            Self::Loss if figure.metric == Metric::ReceivedPackets => {
                shift(figure, |value| value - (0.001 * sent).ceil().max(1.0));
            }
            Self::Direction => {
                figure.direction = figure.direction.map(|way| match way {
                    Direction::Up => Direction::Down,
                    Direction::Down => Direction::Up,
                });
            }
            _ => {}
        }
    }
}

fn shift(figure: &mut Figure, by: impl Fn(f64) -> f64) {
    figure.value = by(figure.value);
    figure.interval = figure.interval.map(|ends| ends.map(by));
}

fn is_count(metric: Metric) -> bool {
    matches!(metric, Metric::LostPackets | Metric::ReceivedPackets)
}

fn is_timed_tcp(case: &Case) -> bool {
    let mut used = case.instruments.iter();
    used.any(|one| one.args.kind == "tcp" && one.profile.calibration.timed)
}

/// Returns whether the round trip takes less than a millisecond.
fn is_short(case: &Case) -> bool {
    let both = |route: Route| route.up.propagation() + route.down.propagation();
    case.path()
        .is_ok_and(|route| both(route) < Nanos::from_millis(1))
}

/// Returns whether its instrument states figures for each direction.
fn goes_both_ways(case: &Case) -> bool {
    case.instruments
        .iter()
        .any(|used| match used.args.kind.as_str() {
            "probe" => true,
            _ => used
                .args
                .arguments
                .get("bidir")
                .is_some_and(|asked| asked == true),
        })
}

/// Returns whether the two directions of a case's link differ.
fn is_asymmetric(case: &Case) -> bool {
    case.path().is_ok_and(|route| {
        let effects = |stages: &PathStages| -> Vec<_> {
            stages.0.iter().map(|stage| stage.effect.clone()).collect()
        };
        effects(&route.up) != effects(&route.down)
    })
}

/// Returns whether the two directions have different propagation delays.
fn has_different_delays(case: &Case) -> bool {
    case.path()
        .is_ok_and(|route| route.up.propagation() != route.down.propagation())
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clock => "elapsed x 1.05",
            Self::Bytes => "bytes x 1.01",
            Self::RoundTrip => "RTT + 0.2 ms",
            Self::Loss => "loss + 0.1 point",
            Self::Direction => "direction swapped",
        })
    }
}
