//! What is found of one figure under one set of conditions, over all repeats.

use serde::Serialize;

use record::figure_name::FigureName;
use record::plan::Case;

/// What a trusted cell's mean deviation does not exceed: this share of a rate or a delay.
const NEAR: f64 = 0.01;
/// But this much of a delay, in milliseconds, and of a loss, in points, whatever it is.
const LEAST: f64 = 0.1;

/// One figure under one set of conditions.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cell {
    pub(crate) case: String,
    pub(crate) figure: FigureName,
    pub(crate) conditions: Conditions,
    pub(crate) standing: Standing,
    /// Runs with a truth and an interval, and those of them whose interval held the truth.
    pub(crate) runs: usize,
    pub(crate) covered: usize,
    /// Mean over the runs, in the metric's unit.
    pub(crate) truth: Option<f64>,
    /// By how much the truth may be off: the emulator counts a link, not a flow.
    pub(crate) truth_within: Option<f64>,
    /// Mean over the runs.
    pub(crate) value: Option<f64>,
    /// Mean of value less truth.
    pub(crate) bias: Option<f64>,
    /// Sample standard deviation of value less truth; of two runs at least.
    pub(crate) spread: Option<f64>,
    /// Where the ends of the runs' own intervals are, mean over the runs; unbounded ones left out.
    pub(crate) interval: Option<[f64; 2]>,
    /// Of an instrument that fills the line if it can: its rate at L2 in percent of the line's.
    pub(crate) line_percent: Option<f64>,
    /// Why it does not hold, or deviates more than the bound, as far as the record tells.
    pub(crate) cause: Option<String>,
}

/// What a cell's link was like, from client to server.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Conditions {
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

impl Cell {
    /// Of which nothing is known yet.
    pub(super) fn empty(case: &Case, figure: FigureName, standing: Standing) -> Self {
        Self {
            case: case.name.clone(),
            conditions: Conditions::of(case),
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
            line_percent: None,
            cause: None,
        }
    }

    /// How far the value lies from the truth, without sign and beyond what the truth itself may be off, in the metric's unit.
    pub(crate) fn deviation(&self) -> Option<f64> {
        let bias = self.bias?.abs();
        Some((bias - self.truth_within.unwrap_or(0.0)).max(0.0))
    }

    /// Whether it holds, and deviates from the truth by no more than 1 % of a rate, 1 % or 0.1 ms of a delay, 0.1 points of
    /// loss.
    pub(crate) fn is_trusted(&self) -> bool {
        let Some((deviation, truth)) = self.deviation().zip(self.truth) else {
            return false;
        };
        let most = match self.figure.metric.unit() {
            "bit/s" => NEAR * truth,
            "%" => LEAST,
            _ => (NEAR * truth).max(LEAST),
        };
        self.standing == Standing::Holds && deviation <= most
    }
}

impl Conditions {
    fn of(case: &Case) -> Self {
        let path = case.path().unwrap_or_default();
        let rate = path.up.slowest().map(|(rate, _)| rate);
        let propagation = path.up.propagation() + path.down.propagation();
        Self {
            rate_bit_per_s: rate
                .into_iter()
                .chain(case.bed.tbf())
                .min()
                .map(|rate| rate.get() as f64),
            rtt_ms: propagation.0 as f64 / 1e6,
            loss_percent: path.up.loss_percent(),
            tbf: case.bed.tbf().is_some(),
        }
    }
}
