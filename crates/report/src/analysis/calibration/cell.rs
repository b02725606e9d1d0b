//! Computes the cells of a calibration from the runs of a record.

use std::collections::BTreeSet;

use super::cause::{self, ObservedRun};
use super::standing::{CalibrationCell, CellStatus};
use super::truth::{Crossing, Truth};
use record::figure_name::FigureName;
use record::plan::{Case, PlannedInstrument};
use record::{Direction, Figure, Metric};
use record::{Record, Run, RunOutcome};
use stats::proportion::least_by_chance;
use stats::t_interval;

/// Error probability with which a cell misses although each of its intervals contains the truth with 95 % probability.
const BY_CHANCE: f64 = 0.05;
/// Weight of a miss in the interval score of a 95 % interval, which is 2 over 5 %.
const MISSED: f64 = 40.0;

/// The result of one run for one figure.
struct RunObservation {
    truth: Truth,
    value: f64,
    interval: Option<[f64; 2]>,
}

/// Returns all cells of a record, each with the kind of its instrument, in the order of the plan.
pub(super) fn cells(record: &Record) -> Vec<(&str, CalibrationCell)> {
    let latest = record.latest();
    let mut cells = Vec::new();
    for case in &record.plan().cases {
        // The link counts the traffic of all instruments of a run together, so there is no truth for several.
        let [instrument] = case.instruments.as_slice() else {
            continue;
        };
        let runs: Vec<&Run> = latest.runs(case).collect();
        let found = of_case(record, case, instrument, &runs);
        cells.extend(
            found
                .into_iter()
                .map(|cell| (instrument.args.kind.as_str(), cell)),
        );
    }
    cells
}

fn of_case(
    record: &Record,
    case: &Case,
    instrument: &PlannedInstrument,
    runs: &[&Run],
) -> Vec<CalibrationCell> {
    let sound = sound(case, instrument, runs);
    let names: BTreeSet<FigureName> = sound
        .iter()
        .flat_map(|crossing| {
            let figures = crossing.measurement.figures.iter();
            let known = figures.filter(|figure| crossing.truth(figure).is_some());
            known.map(|figure| FigureName::of(&instrument.name, figure))
        })
        .collect();
    if names.is_empty() {
        return spoilt(case, instrument, runs).into_iter().collect();
    }
    let cell = |name| CalibrationCell::of(record, &sound, runs, name);
    names.into_iter().map(cell).collect()
}

/// Returns the crossings of the runs that count, in each of which the instrument had the link to itself.
pub(super) fn sound<'a>(
    case: &'a Case,
    instrument: &'a PlannedInstrument,
    runs: &[&'a Run],
) -> Vec<Crossing<'a>> {
    let counts = |run: &&&Run| {
        let used = run.measured(&instrument.name);
        let sound = used.is_some_and(|one| one.invalid.is_none());
        sound && run.spoilt_as_a_whole().is_none() && !run.has_failed()
    };
    let crossing = |run: &&'a Run| {
        Some(Crossing {
            case,
            instrument,
            link: &run.links.first()?.summary,
            measurement: &run.measured(&instrument.name)?.measurement,
        })
    };
    runs.iter().filter(counts).filter_map(crossing).collect()
}

/// Returns the cases without a run in an unfinished record, in the order of the plan.
pub(super) fn not_run(record: &Record) -> Vec<String> {
    let latest = record.latest();
    let cases = record.plan().cases.iter();
    cases
        .filter(|case| record.finished_at.is_none() && latest.runs(case).next().is_none())
        .map(|case| case.name.clone())
        .collect()
}

/// Returns the cell of a case in which every run is spoilt; `None` if there would be no truth anyway, or no run.
fn spoilt(case: &Case, instrument: &PlannedInstrument, runs: &[&Run]) -> Option<CalibrationCell> {
    let cause = runs.iter().find_map(|run| match &run.outcome {
        RunOutcome::Ok => None,
        RunOutcome::Failed { cause } => Some(format!("failed: {cause}")),
        RunOutcome::Invalid { cause } => Some(format!("INVALID: {cause}")),
    })?;
    let first = instrument.profile.calibration.figure;
    let figure = FigureName {
        instrument: instrument.name.clone(),
        metric: first.metric,
        statistic: first.statistic,
        direction: first.direction,
        phase: None,
        size: None,
    };
    Some(CalibrationCell {
        cause: Some(cause),
        ..CalibrationCell::empty(case, figure, CellStatus::NoTruth)
    })
}

impl CalibrationCell {
    fn of(record: &Record, sound: &[Crossing<'_>], runs: &[&Run], name: FigureName) -> Self {
        let case = sound[0].case;
        let observe = |crossing: &Crossing<'_>| {
            let figure = name.find(crossing.measurement)?;
            Some(RunObservation {
                truth: crossing.truth(figure)?,
                value: figure.value,
                interval: stated(figure),
            })
        };
        let seen: Vec<(&Crossing<'_>, RunObservation)> = sound
            .iter()
            .filter_map(|crossing| Some((crossing, observe(crossing)?)))
            .collect();
        let intervals = || {
            let all = seen.iter();
            all.filter_map(|(crossing, o)| Some((*crossing, o.truth, o.interval?)))
        };
        let judged = intervals().count();
        let covered = intervals()
            .filter(|(_, t, interval)| t.is_in(*interval))
            .count();
        let mean = |of: &dyn Fn(&RunObservation) -> f64| {
            t_interval::mean(&seen.iter().map(|(_, o)| of(o)).collect::<Vec<_>>())
        };
        let deviations: Vec<f64> = seen.iter().map(|(_, o)| o.value - o.truth.value).collect();
        let mean_end = |end: usize| {
            let ends = intervals().map(|(_, _, ends)| ends);
            let bounded = ends.filter(|ends| ends[1].is_finite());
            t_interval::mean(&bounded.map(|ends| ends[end]).collect::<Vec<_>>())
        };
        // The score of an interval without an upper end is infinite.
        let scores: Vec<f64> = intervals()
            .map(|(_, truth, ends)| ends[1] - ends[0] + MISSED * truth.beyond(ends))
            .collect();
        let mut cell = Self {
            score: t_interval::mean(&scores),
            runs: judged,
            covered,
            truth: mean(&|o| o.truth.value),
            truth_within: mean(&|o| o.truth.within),
            value: mean(&|o| o.value),
            bias: t_interval::mean(&deviations),
            spread: t_interval::sample_sd(&deviations),
            interval: mean_end(0).zip(mean_end(1)).map(|(low, high)| [low, high]),
            line_percent: sound.first().and_then(|first| line_percent(first, &name)),
            ..Self::empty(
                case,
                name.clone(),
                match judged {
                    0 => CellStatus::NoInterval,
                    _ if covered as u64 >= least_by_chance(judged as u64, 0.95, BY_CHANCE) => {
                        CellStatus::Holds
                    }
                    _ => CellStatus::Misses,
                },
            )
        };
        let missed = intervals().find(|(_, truth, interval)| !truth.is_in(*interval));
        let (crossing, truth, interval) =
            match missed.filter(|_| cell.standing == CellStatus::Misses) {
                Some((crossing, truth, interval)) => (crossing, truth, Some(interval)),
                None => (seen[0].0, seen[0].1.truth, seen[0].1.interval),
            };
        cell.cause = cause::of(
            &cell,
            &ObservedRun {
                record,
                runs,
                crossing,
                truth,
                interval,
            },
        );
        cell
    }
}

/// Returns the interval that a figure claims for the truth. A count of packets is exact unless it has an interval.
fn stated(figure: &Figure) -> Option<[f64; 2]> {
    let is_count = matches!(figure.metric, Metric::LostPackets | Metric::ReceivedPackets);
    let exact = is_count.then_some([figure.value, figure.value]);
    figure.interval.or(exact)
}

/// Returns a rate at L2 in percent of the line's, for an instrument that fills the line.
fn line_percent(crossing: &Crossing<'_>, name: &FigureName) -> Option<f64> {
    let at_l2 = FigureName {
        metric: Metric::L2RateBitPerS,
        ..name.clone()
    };
    let rate = at_l2.find(crossing.measurement)?.value;
    let way = name.direction.unwrap_or(Direction::Down);
    let line = crossing.line(way)?;
    let is_wanted = name.metric == Metric::GoodputBitPerS && crossing.fills(way, rate);
    is_wanted.then(|| 100.0 * rate / line)
}
