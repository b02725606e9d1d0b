//! Losses in bursts, and losses too rare for one run: counts the intervals that contain the configured probability.

use std::fmt;

use record::{Direction, Metric};
use report::analysis::calibration::{PooledLosses, Suite, SuiteCell};

/// The beginning of the names of the cases with bursts.
const BURSTS: &str = "bursts-of-";
/// The beginning of the name of the case with rare losses.
const RARE: &str = "rare: ";
/// The share of intervals that must contain the true value for losses in bursts: 165 of 180.
pub(crate) const LEAST_OF_BURSTS: f64 = 165.0 / 180.0;
/// The same for rare losses, five runs together: 9 of 12. 95 % intervals contain it less often once in 450 suites.
pub(crate) const LEAST_OF_RARE: f64 = 0.75;

/// The number of intervals that contain the true value, over several cells.
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
            // `probe` states both directions; use up.
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

    /// Adds up cells, each given as the number of intervals that contain the true value and the number of all its intervals.
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

    /// Returns whether there is anything to judge; there may be nothing if only some cases were run.
    pub(crate) fn is_there(&self) -> bool {
        self.cells > 0
    }

    /// Returns whether enough intervals contain the true value.
    pub(crate) fn is_enough(&self) -> bool {
        self.intervals > 0 && self.covered >= self.needed()
    }

    /// Returns the number of intervals that must contain the true value.
    #[expect(clippy::cast_possible_truncation, reason = "a number of intervals")]
    fn needed(&self) -> usize {
        // 165 / 180 times 180 must give exactly 165, despite rounding.
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
