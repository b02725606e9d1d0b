//! The cells of a calibration, from the runs of a record.

use std::collections::BTreeSet;

use super::cause::{self, Seen};
use super::standing::{Cell, Standing};
use super::truth::{Crossing, Truth};
use record::figure_name::FigureName;
use record::plan::{Case, Instrument};
use record::{Direction, Metric};
use record::{Outcome, Record, Run};
use stats::t_interval;

/// What one run says of one figure.
struct Observed {
    truth: Truth,
    value: f64,
    interval: Option<[f64; 2]>,
}

/// Every cell of a record, with the kind of its instrument, in the order of the plan.
pub(super) fn cells(record: &Record) -> Vec<(&str, Cell)> {
    let latest = record.latest();
    let mut cells = Vec::new();
    for case in &record.plan().cases {
        // The link counts all instruments of a run together: of several none has a truth.
        let [instrument] = case.instruments.as_slice() else {
            continue;
        };
        let runs: Vec<&Run> = latest.runs(case).collect();
        let found = of_case(record, case, instrument, &runs);
        cells.extend(
            found
                .into_iter()
                .map(|cell| (instrument.kind.as_str(), cell)),
        );
    }
    cells
}

fn of_case(record: &Record, case: &Case, instrument: &Instrument, runs: &[&Run]) -> Vec<Cell> {
    let sound: Vec<Crossing<'_>> = runs
        .iter()
        .filter(|run| {
            let mut all = run.measurements.iter();
            let used = all.find(|one| one.instrument == instrument.name);
            let sound = used.is_some_and(|one| one.invalid.is_none());
            sound && run.spoilt_as_a_whole().is_none() && !run.has_failed()
        })
        .filter_map(|run| {
            Some(Crossing {
                case,
                instrument,
                link: &run.links.first()?.summary,
                measurement: run.measured(&instrument.name)?,
            })
        })
        .collect();
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
    let cell = |name| Cell::of(record, &sound, runs, name);
    names.into_iter().map(cell).collect()
}

/// The cases of which a record that is cut short has no run, in the order of the plan.
pub(super) fn not_run(record: &Record) -> Vec<String> {
    let latest = record.latest();
    let cases = record.plan().cases.iter();
    cases
        .filter(|case| record.finished_at.is_none() && latest.runs(case).next().is_none())
        .map(|case| case.name.clone())
        .collect()
}

/// The cell of a case of which no run was sound; none where there is no truth to be had, or no run.
fn spoilt(case: &Case, instrument: &Instrument, runs: &[&Run]) -> Option<Cell> {
    let cause = runs.iter().find_map(|run| match &run.outcome {
        Outcome::Ok => None,
        Outcome::Failed { cause } => Some(format!("failed: {cause}")),
        Outcome::Invalid { cause } => Some(format!("INVALID: {cause}")),
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
    Some(Cell {
        cause: Some(cause),
        ..Cell::empty(case, figure, Standing::NoTruth)
    })
}

impl Cell {
    fn of(record: &Record, sound: &[Crossing<'_>], runs: &[&Run], name: FigureName) -> Self {
        let case = sound[0].case;
        let observe = |crossing: &Crossing<'_>| {
            let figure = name.find(crossing.measurement)?;
            Some(Observed {
                truth: crossing.truth(figure)?,
                value: figure.value,
                interval: figure.interval,
            })
        };
        let seen: Vec<(&Crossing<'_>, Observed)> = sound
            .iter()
            .filter_map(|crossing| Some((crossing, observe(crossing)?)))
            .collect();
        let stated = || {
            let all = seen.iter();
            all.filter_map(|(crossing, o)| Some((*crossing, o.truth, o.interval?)))
        };
        let judged = stated().count();
        let covered = stated()
            .filter(|(_, t, interval)| t.is_in(*interval))
            .count();
        let mean = |of: &dyn Fn(&Observed) -> f64| {
            t_interval::mean(&seen.iter().map(|(_, o)| of(o)).collect::<Vec<_>>())
        };
        let deviations: Vec<f64> = seen.iter().map(|(_, o)| o.value - o.truth.value).collect();
        let mean_end = |end: usize| {
            let ends = stated().map(|(_, _, ends)| ends);
            let bounded = ends.filter(|ends| ends[1].is_finite());
            t_interval::mean(&bounded.map(|ends| ends[end]).collect::<Vec<_>>())
        };
        let mut cell = Self {
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
                    0 => Standing::NoInterval,
                    _ if covered >= enough(judged) => Standing::Holds,
                    _ => Standing::Misses,
                },
            )
        };
        let missed = stated().find(|(_, truth, interval)| !truth.is_in(*interval));
        let (crossing, truth, interval) = match missed.filter(|_| cell.standing == Standing::Misses)
        {
            Some((crossing, truth, interval)) => (crossing, truth, Some(interval)),
            None => (seen[0].0, seen[0].1.truth, seen[0].1.interval),
        };
        cell.cause = cause::of(
            &cell,
            &Seen {
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

/// How many of `runs` 95 % intervals must hold the truth: fewer happen in less than one case of twenty.
fn enough(runs: usize) -> usize {
    let mut chance = 0.05_f64.powi(i32::try_from(runs).unwrap_or(i32::MAX));
    let mut below = chance;
    let mut least = 0;
    while below <= 0.05 + 1e-12 && least < runs {
        least += 1;
        chance *= (runs - least + 1) as f64 / least as f64 * 0.95 / 0.05;
        below += chance;
    }
    least
}

/// A rate at L2 in percent of the line's, of an instrument that fills the line if it can.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_intervals_must_hold_as_those_of_95_percent_do_in_nineteen_cases_of_twenty() {
        // By the binomial distribution: of 5, P(3 or fewer hold) is 2.3 %, P(4 or fewer) 22.6 %.
        for (runs, least) in [(1, 1), (2, 1), (3, 2), (5, 4), (20, 17)] {
            assert_eq!(enough(runs), least, "{runs}");
        }
    }
}
