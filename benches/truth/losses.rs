//! Losses in bursts, and losses too rare for one run: how many intervals contain the probability that the link was told.

use std::fmt;

use record::{Direction, Metric};
use report::analysis::calibration::{PooledLosses, Suite, SuiteCell};

/// The names of the cases with bursts begin with this.
const BURSTS: &str = "bursts-of-";
/// The name of the case with rare losses begins with this.
const RARE: &str = "rare: ";
/// The share of intervals that must contain the truth where losses come in bursts: 165 of 180.
pub(crate) const LEAST_OF_BURSTS: f64 = 165.0 / 180.0;
/// The same of rare losses, five runs together: 9 of 12, of which intervals of 95 % contain it in fewer once in 450 suites.
pub(crate) const LEAST_OF_RARE: f64 = 0.75;

/// How many intervals contain the truth, of several cells together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Coverage {
    what: &'static str,
    cells: usize,
    covered: usize,
    intervals: usize,
    least: f64,
}

impl Coverage {
    /// Adds up the cells of losses in bursts. A cell is the loss in the lossy direction that one instrument states in one case.
    pub(crate) fn of_bursts(suite: &Suite) -> Self {
        let is_own = |cell: &SuiteCell<'_>| {
            let figure = cell.figure();
            // Of what `probe` says of both directions together, up is a part.
            let way = (!cell.case().ends_with(": ping")).then_some(Direction::Up);
            cell.case().starts_with(BURSTS)
                && (figure.metric, figure.direction) == (Metric::LostPercent, way)
        };
        let cells = suite.cells().filter(is_own);
        let coverage = cells.map(|cell| cell.coverage());
        Self::sum("losses in bursts", LEAST_OF_BURSTS, coverage)
    }

    /// Adds up the pooled losses of the rare case, five runs together.
    pub(crate) fn of_rare(pooled: &[PooledLosses]) -> Self {
        let way = |one: &PooledLosses| (!one.case.ends_with(": ping")).then_some(Direction::Up);
        let own = pooled.iter().filter(|one| one.case.starts_with(RARE));
        let own = own.filter(|one| one.figure.direction == way(one));
        let coverage = own.map(|one| [one.covered, one.groups]);
        Self::sum("rare losses, five runs together", LEAST_OF_RARE, coverage)
    }

    /// Adds up cells, each given as the intervals that contain the truth and all its intervals.
    pub(crate) fn sum(
        what: &'static str,
        least: f64,
        coverage: impl Iterator<Item = [usize; 2]>,
    ) -> Self {
        let none = Self {
            what,
            cells: 0,
            covered: 0,
            intervals: 0,
            least,
        };
        coverage.fold(none, |sum, [covered, intervals]| Self {
            cells: sum.cells + 1,
            covered: sum.covered + covered,
            intervals: sum.intervals + intervals,
            ..sum
        })
    }

    /// Whether there is something to judge at all, as where only some cases were run.
    pub(crate) fn is_there(&self) -> bool {
        self.cells > 0
    }

    /// Whether enough intervals contain the truth.
    pub(crate) fn is_enough(&self) -> bool {
        self.intervals > 0 && self.covered >= self.needed()
    }

    /// The number of intervals that must contain the truth.
    #[expect(clippy::cast_possible_truncation, reason = "a number of intervals")]
    fn needed(&self) -> usize {
        // 165 / 180 of 180 are 165, and not a hair more.
        (self.least * self.intervals as f64 - 1e-9).ceil() as usize
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what,
            cells,
            covered,
            intervals,
            ..
        } = self;
        let verdict = if self.is_enough() { "" } else { "  RED" };
        write!(
            f,
            "{what}, {cells} cells: {covered} of {intervals} intervals contain the truth, at least {} must{verdict}",
            self.needed()
        )
    }
}
