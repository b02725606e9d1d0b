//! What is found of one figure under one set of conditions, over all repeats.

use serde::Serialize;

use conditions::route::FULL_FRAME;
use record::figure_name::FigureName;
use record::plan::Case;

/// What a trusted cell's mean deviation does not exceed: this share of the truth.
const NEAR: f64 = 0.01;
/// But of a delay, in milliseconds, and of a loss, in points, this much,
const LEAST: f64 = 0.1;
/// or this share of the truth, if that is less: 0.1 ms is all of a round trip of 0.1 ms.
const MOST: f64 = 0.1;

/// One figure under one set of conditions.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CalibrationCell {
    pub(crate) case: String,
    pub(crate) figure: FigureName,
    pub(crate) conditions: CellConditions,
    pub(crate) standing: Standing,
    /// Runs with a truth and an interval, and those of them whose interval held the truth.
    pub(crate) runs: usize,
    pub(crate) covered: usize,
    /// Mean over the runs, in the metric's unit.
    pub(crate) truth: Option<f64>,
    /// By how much the truth may be off.
    pub(crate) truth_within: Option<f64>,
    /// Mean over the runs.
    pub(crate) value: Option<f64>,
    /// Mean of value less truth.
    pub(crate) bias: Option<f64>,
    /// Sample standard deviation of value less truth; of two runs at least.
    pub(crate) spread: Option<f64>,
    /// Where the ends of the runs' own intervals are, mean over the runs; unbounded ones left out.
    pub(crate) interval: Option<[f64; 2]>,
    /// Of the intervals, in the metric's unit: how wide they are, with forty times what they miss the truth by. Less is better, and
    /// a wide interval is no way out (Gneiting and Raftery, "Strictly proper scoring rules, prediction, and estimation", 2007).
    /// Mean over the runs.
    pub(crate) score: Option<f64>,
    /// Of an instrument that fills the line if it can: its rate at L2 in percent of the line's.
    pub(crate) line_percent: Option<f64>,
    /// Why it does not hold, or deviates more than the bound, as far as the record tells.
    pub(crate) cause: Option<String>,
}

/// What a cell's link was like, from client to server.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct CellConditions {
    /// Of the slowest rate at L2; absent without any.
    pub(crate) rate_bit_per_s: Option<f64>,
    /// Propagation there and back.
    pub(crate) rtt_ms: f64,
    /// Of random loss.
    pub(crate) loss_percent: f64,
    /// Whether the rate is the kernel's token bucket's.
    pub(crate) tbf: bool,
}

/// How a cell stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Standing {
    /// The intervals hold the truth no more rarely than 95 % intervals do.
    Holds,
    /// They do not.
    Misses,
    /// The instrument states none.
    NoInterval,
    /// The emulator was disturbed, or the run failed: nothing to hold against.
    NoTruth,
}

impl CalibrationCell {
    /// Of which nothing is known yet.
    pub(super) fn empty(case: &Case, figure: FigureName, standing: Standing) -> Self {
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

    /// How far the value lies from the truth, without sign and beyond what the truth itself may be off, in the metric's unit.
    pub(crate) fn deviation(&self) -> Option<f64> {
        let bias = self.bias?.abs();
        Some((bias - self.truth_within.unwrap_or(0.0)).max(0.0))
    }

    /// Whether it holds, and deviates from the truth by no more than 1 %; of a delay or a loss also by no more than 0.1 ms or 0.1
    /// points, as far as that is at most a tenth of the truth.
    pub(crate) fn is_trusted(&self) -> bool {
        let Some((deviation, truth)) = self.deviation().zip(self.truth) else {
            return false;
        };
        let least = match self.figure.metric.unit() {
            "ms" | "%" => LEAST.min(MOST * truth),
            _ => 0.0,
        };
        self.standing == Standing::Holds && deviation <= least.max(NEAR * truth)
    }
}

impl CellConditions {
    pub(super) fn of(case: &Case) -> Self {
        let path = case.path().unwrap_or_default();
        let propagation = path.up.propagation() + path.down.propagation();
        let rate = path.up.slowest(FULL_FRAME).map(|(rate, _)| rate);
        let rates = [rate, path.up.slowest_policer(), case.bed.tbf()];
        let rates = rates.into_iter().flatten().map(|rate| rate.get() as f64);
        // TOFFEE's server and a trace have no rate but a time for a frame.
        let others = path.up.bottlenecks();
        let others = others.filter(|of| of.rate(FULL_FRAME).is_none());
        let times = others.map(|of| of.time_for(FULL_FRAME).0 as f64);
        let of_times = times.filter(|time| *time > 0.0);
        let of_times = of_times.map(|time| FULL_FRAME.0 as f64 * 8e9 / time);
        Self {
            rate_bit_per_s: rates.chain(of_times).reduce(f64::min),
            rtt_ms: propagation.0 as f64 / 1e6,
            loss_percent: path.up.loss_percent(),
            tbf: case.bed.tbf().is_some(),
        }
    }
}
