//! Compares the intervals that every instrument reports with the emulator's counts. The result is a pure function of a
//! record whose cases have one instrument each.

mod cause;
mod cell;
mod pooled;
mod standing;
mod suite;
mod truth;

use serde::Serialize;

pub use self::pooled::PooledLosses;
pub use self::suite::{Suite, SuiteCell};

pub(crate) use self::standing::{CalibrationCell, CellConditions, CellStatus};
use record::Baseline;
use record::Record;
use record::{Direction, Metric, Statistic};

/// Smallest share of cells with correct intervals for an instrument to be trusted.
const ENOUGH: f64 = 0.9;

/// The verdict on each instrument's figures and the conditions under which they can be trusted.
#[derive(Clone, Debug, Serialize)]
pub struct CalibrationReport {
    pub(crate) title: String,
    /// Whether counts and sizes were reduced.
    pub(crate) quick: bool,
    /// Whether all runs took place.
    pub(crate) finished: bool,
    /// Number of planned cases.
    pub(crate) planned: usize,
    /// The cases that did not run because the calibration was interrupted. They are counted nowhere else.
    pub(crate) not_run: Vec<String>,
    /// All measurements of the machine's limits without emulated conditions.
    pub(crate) baselines: Vec<Baseline>,
    /// The instruments in the order of the plan.
    pub(crate) instruments: Vec<InstrumentCalibration>,
}

/// The calibration of all instruments of one kind.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct InstrumentCalibration {
    /// The kind as in `farwire measure KIND`.
    pub(crate) instrument: String,
    /// Number of cells whose intervals contain the truth.
    pub(crate) held: usize,
    /// Number of cells that have a truth and an interval.
    pub(crate) judged: usize,
    /// The figures in the order of the first cell.
    pub(crate) figures: Vec<FigureCalibration>,
}

/// The calibration of one figure over the whole grid.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FigureCalibration {
    pub(crate) metric: Metric,
    pub(crate) statistic: Statistic,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) direction: Option<Direction>,
    pub(crate) held: usize,
    pub(crate) judged: usize,
    /// The greatest absolute deviation from the truth among the trusted cells, in percent of the truth.
    pub(crate) worst_percent: Option<f64>,
    /// The same in the metric's unit.
    pub(crate) worst: Option<f64>,
    /// Number of cells that hold and deviate little.
    pub(crate) trusted: usize,
    /// The range of the trusted cells' conditions.
    pub(crate) range: Option<Range>,
    pub(crate) cells: Vec<CalibrationCell>,
}

/// The least and the greatest value of each condition.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Range {
    /// Absent without any rate; the upper end is absent if a cell had no rate.
    pub(crate) rate_bit_per_s: Option<[f64; 2]>,
    /// Whether a cell without any rate is among them.
    pub(crate) unlimited: bool,
    pub(crate) rtt_ms: [f64; 2],
    pub(crate) loss_percent: [f64; 2],
}

impl CalibrationReport {
    /// Computes the calibration from `record`.
    pub fn of(record: &Record) -> Self {
        let mut instruments: Vec<(&str, Vec<CalibrationCell>)> = Vec::new();
        for (kind, cell) in cell::cells(record) {
            match instruments.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, cells)) => cells.push(cell),
                None => instruments.push((kind, vec![cell])),
            }
        }
        let reports = instruments.into_iter();
        Self {
            title: record.plan().title.clone(),
            quick: record.plan().quick,
            finished: record.finished_at.is_some(),
            planned: record.plan().cases.len(),
            not_run: cell::not_run(record),
            baselines: record.baselines.clone(),
            instruments: reports
                .map(|(kind, cells)| InstrumentCalibration::of(kind, cells))
                .collect(),
        }
    }

    /// Returns whether the intervals of every instrument are correct in enough of its cells.
    pub fn is_met(&self) -> bool {
        !self.instruments.is_empty() && self.instruments.iter().all(InstrumentCalibration::is_met)
    }
}

impl InstrumentCalibration {
    fn of(instrument: &str, cells: Vec<CalibrationCell>) -> Self {
        let mut figures: Vec<(Subject, Vec<CalibrationCell>)> = Vec::new();
        for cell in cells {
            let subject = Subject::of(&cell);
            match figures.iter_mut().find(|(known, _)| *known == subject) {
                Some((_, cells)) => cells.push(cell),
                None => figures.push((subject, vec![cell])),
            }
        }
        let figures: Vec<FigureCalibration> = figures
            .into_iter()
            .map(|(subject, cells)| FigureCalibration::of(subject, cells))
            .collect();
        Self {
            instrument: instrument.to_owned(),
            held: figures.iter().map(|figure| figure.held).sum(),
            judged: figures.iter().map(|figure| figure.judged).sum(),
            figures,
        }
    }

    /// Returns whether its intervals are correct in enough of its cells.
    pub(crate) fn is_met(&self) -> bool {
        self.judged > 0 && self.held as f64 >= ENOUGH * self.judged as f64
    }
}

/// The metric, statistic and direction of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Subject(Metric, Statistic, Option<Direction>);

impl Subject {
    fn of(cell: &CalibrationCell) -> Self {
        let name = &cell.figure;
        Self(name.metric, name.statistic, name.direction)
    }
}

impl FigureCalibration {
    fn of(Subject(metric, statistic, direction): Subject, cells: Vec<CalibrationCell>) -> Self {
        let count = |standing| cells.iter().filter(|c| c.standing == standing).count();
        let held = count(CellStatus::Holds);
        let trusted: Vec<&CalibrationCell> =
            cells.iter().filter(|cell| cell.is_trusted()).collect();
        let deviations = trusted.iter().filter_map(|cell| cell.deviation());
        let percents = trusted.iter().filter_map(|cell| {
            let truth = cell.truth.filter(|truth| *truth > 0.0)?;
            Some(100.0 * cell.deviation()? / truth)
        });
        Self {
            metric,
            statistic,
            direction,
            held,
            judged: held + count(CellStatus::Misses),
            worst_percent: percents.reduce(f64::max),
            worst: deviations.reduce(f64::max),
            trusted: trusted.len(),
            range: Range::of(trusted.iter().map(|cell| &cell.conditions)),
            cells,
        }
    }
}

impl Range {
    fn of<'a>(conditions: impl Iterator<Item = &'a CellConditions> + Clone) -> Option<Self> {
        let ends = |values: &mut dyn Iterator<Item = f64>| {
            values.fold(None, |ends: Option<[f64; 2]>, value| {
                let [low, high] = ends.unwrap_or([value, value]);
                Some([low.min(value), high.max(value)])
            })
        };
        Some(Self {
            rate_bit_per_s: ends(&mut conditions.clone().filter_map(|c| c.rate_bit_per_s)),
            unlimited: conditions.clone().any(|c| c.rate_bit_per_s.is_none()),
            rtt_ms: ends(&mut conditions.clone().map(|c| c.rtt_ms))?,
            loss_percent: ends(&mut conditions.map(|c| c.loss_percent))?,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
