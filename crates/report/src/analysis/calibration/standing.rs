//! The result for one figure under one set of conditions, over all repeats.

use serde::Serialize;

use conditions::route::FULL_FRAME;
use record::figure_name::FigureName;
use record::plan::Case;

/// Largest mean deviation of a trusted cell as a share of the truth.
const NEAR: f64 = 0.01;
/// A deviation of a delay in milliseconds, or of a loss in percentage points, that is accepted even if it is above [`NEAR`].
const LEAST: f64 = 0.1;
/// Share of the truth that [`LEAST`] must not exceed: a round trip of 0.1 ms may not deviate by 0.1 ms.
const MOST: f64 = 0.1;

/// One figure under one set of conditions.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CalibrationCell {
    pub(crate) case: String,
    pub(crate) figure: FigureName,
    pub(crate) conditions: CellConditions,
    pub(crate) standing: CellStatus,
    /// Runs with a truth and an interval, and those of them whose interval held the truth.
    pub(crate) runs: usize,
    pub(crate) covered: usize,
    /// Mean over the runs, in the metric's unit.
    pub(crate) truth: Option<f64>,
    /// Uncertainty of the truth.
    pub(crate) truth_within: Option<f64>,
    /// Mean over the runs.
    pub(crate) value: Option<f64>,
    /// Mean of value minus truth.
    pub(crate) bias: Option<f64>,
    /// Sample standard deviation of value minus truth, for at least two runs.
    pub(crate) spread: Option<f64>,
    /// Mean ends of the runs' intervals, without unbounded ones.
    pub(crate) interval: Option<[f64; 2]>,
    /// Mean interval score over the runs, in the metric's unit: the width of the interval plus forty times the distance
    /// by which it misses the truth. Less is better, and a wide interval does not improve it (Gneiting and Raftery,
    /// "Strictly proper scoring rules, prediction, and estimation", 2007).
    pub(crate) score: Option<f64>,
    /// Rate at L2 in percent of the line's, for an instrument that fills the line.
    pub(crate) line_percent: Option<f64>,
    /// The reason why the cell misses, or deviates by more than the bound, as far as the record shows it.
    pub(crate) cause: Option<String>,
}

/// The conditions of a cell's link from client to server.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct CellConditions {
    /// The slowest rate at L2; absent without any.
    pub(crate) rate_bit_per_s: Option<f64>,
    /// Sum of the propagation delays in both directions.
    pub(crate) rtt_ms: f64,
    /// Random loss.
    pub(crate) loss_percent: f64,
    /// Whether the rate is that of the kernel's token bucket.
    pub(crate) tbf: bool,
}

/// The verdict on a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CellStatus {
    /// The intervals contain the truth no more rarely than 95 % intervals do.
    Holds,
    /// The intervals contain the truth too rarely.
    Misses,
    /// The instrument reports no interval.
    NoInterval,
    /// The emulator was disturbed, or the run failed, so that there is nothing to compare with.
    NoTruth,
}

impl CalibrationCell {
    /// Creates a cell without results.
    pub(super) fn empty(case: &Case, figure: FigureName, standing: CellStatus) -> Self {
        Self {
            case: case.name.clone(),
            conditions: CellConditions::of(case),
            figure,
            standing,
            runs: 0,
            covered: 0,
            truth: None,
            truth_within: None,
            value: None,
            bias: None,
            spread: None,
            interval: None,
            score: None,
            line_percent: None,
            cause: None,
        }
    }

    /// Returns the absolute deviation of the value from the truth, reduced by the truth's own uncertainty, in the
    /// metric's unit.
    pub(crate) fn deviation(&self) -> Option<f64> {
        let bias = self.bias?.abs();
        Some((bias - self.truth_within.unwrap_or(0.0)).max(0.0))
    }

    /// Returns whether the cell holds and deviates from the truth by at most 1 %. For a delay or a loss, 0.1 ms or 0.1
    /// percentage points are accepted, too, unless that is more than a tenth of the truth.
    pub(crate) fn is_trusted(&self) -> bool {
        let Some((deviation, truth)) = self.deviation().zip(self.truth) else {
            return false;
        };
        let least = match self.figure.metric.unit() {
            "ms" | "%" => LEAST.min(MOST * truth),
            _ => 0.0,
        };
        self.standing == CellStatus::Holds && deviation <= least.max(NEAR * truth)
    }
}

impl CellConditions {
    pub(super) fn of(case: &Case) -> Self {
        let path = case.path().unwrap_or_default();
        let propagation = path.up.propagation() + path.down.propagation();
        let rate = path.up.slowest(FULL_FRAME).map(|(rate, _)| rate);
        let rates = [rate, path.up.slowest_policer(), case.bed.tbf()]
            .into_iter()
            .flatten()
            .map(|rate| rate.get() as f64);
        // TOFFEE's server and a trace have no rate but a time per frame.
        let others = path
            .up
            .bottlenecks()
            .filter(|of| of.rate(FULL_FRAME).is_none());
        let times = others.map(|of| of.time_for(FULL_FRAME).0 as f64);
        let of_times = times
            .filter(|time| *time > 0.0)
            .map(|time| FULL_FRAME.0 as f64 * 8e9 / time);
        Self {
            rate_bit_per_s: rates.chain(of_times).reduce(f64::min),
            rtt_ms: propagation.0 as f64 / 1e6,
            loss_percent: path.up.loss_percent(),
            tbf: case.bed.tbf().is_some(),
        }
    }
}
