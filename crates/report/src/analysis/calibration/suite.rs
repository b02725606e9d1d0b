//! Judges a calibration with many seeds as a test suite: it names the cells that cannot be explained by chance.

use std::fmt;

use record::figure_name::FigureName;
use record::plan::Case;
use record::{Record, quantity};
use stats::proportion::{fewer_than, least_by_chance};

use super::cell;
use super::standing::{CalibrationCell, CellStatus};

/// Probability with which a 95 % interval contains the truth.
const COVERAGE: f64 = 0.95;
/// Accepted probability that a suite of correct instruments has a red cell.
const ALARM: f64 = 1e-3;
/// Fewest runs of a cell that can be judged.
const FEWEST: usize = 10;

/// All cells of a calibration, judged together.
#[derive(Clone, Debug)]
pub struct Suite {
    cells: Vec<CalibrationCell>,
    /// Cases without a figure that has a truth.
    without: Vec<String>,
    /// Contribution of each cell to the probability of a false alarm.
    share: f64,
}

/// A cell of a suite.
#[derive(Clone, Copy, Debug)]
pub struct SuiteCell<'a> {
    cell: &'a CalibrationCell,
    /// The fewest runs whose intervals must contain the truth.
    least: u64,
}

impl Suite {
    /// Creates the suite of `record`, whose cases have one instrument each.
    pub fn of(record: &Record) -> Self {
        let cells: Vec<CalibrationCell> = cell::cells(record)
            .into_iter()
            .map(|(_, cell)| cell)
            .collect();
        let by_chance = cells.iter().filter(|cell| !cell.is_count()).count();
        let has_none = |case: &&Case| cells.iter().all(|cell| cell.case != case.name);
        let without = record.plan().cases.iter().filter(has_none);
        Self {
            share: ALARM / by_chance.max(1) as f64,
            without: without.map(|case| case.name.clone()).collect(),
            cells,
        }
    }

    /// Returns the cells in the order of the plan.
    pub fn cells(&self) -> impl Iterator<Item = SuiteCell<'_>> {
        self.cells.iter().map(|cell| {
            let runs = cell.runs as u64;
            let least = if cell.is_count() {
                runs
            } else {
                least_by_chance(runs, COVERAGE, self.share)
            };
            SuiteCell { cell, least }
        })
    }

    /// Returns the probability that some cell is red although every instrument's intervals contain the truth in 95 % of
    /// runs.
    pub fn false_alarms(&self) -> f64 {
        let random = self.cells().filter(|one| !one.cell.is_count());
        random
            .map(|one| fewer_than(one.least, one.cell.runs as u64, COVERAGE))
            .sum()
    }

    /// Returns whether any cell is red, or a case has no cell.
    pub fn is_red(&self) -> bool {
        self.cells.is_empty() || !self.without.is_empty() || self.cells().any(|one| one.is_red())
    }
}

impl SuiteCell<'_> {
    /// Returns the name of the case.
    pub fn case(&self) -> &str {
        &self.cell.case
    }

    /// Returns the name of the figure.
    pub fn figure(&self) -> &FigureName {
        &self.cell.figure
    }

    /// Returns the number of its runs whose interval contains the truth, and of those that have a truth and an
    /// interval.
    pub fn coverage(&self) -> [usize; 2] {
        [self.cell.covered, self.cell.runs]
    }

    /// Returns whether too few intervals contain the truth for chance to explain it, or too few runs have a truth.
    pub fn is_red(&self) -> bool {
        self.cell.runs < FEWEST || (self.cell.covered as u64) < self.least
    }
}

impl CalibrationCell {
    /// Returns whether the figure is a count of packets, which must always be exact.
    fn is_count(&self) -> bool {
        self.figure.metric.unit() == "packets"
    }
}

impl fmt::Display for Suite {
    /// Formats a line per cell, and then the error probability of the suite's verdict.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<52} {:>8} {:>6} {:>16} {:>16} {:>16} {:>16}",
            "", "holds", "least", "truth", "deviation", "interval", "score"
        )?;
        for cell in self.cells() {
            writeln!(f, "{cell}")?;
        }
        for case in &self.without {
            writeln!(f, "{case}: RED no figure has a truth")?;
        }
        let random = self.cells.iter().filter(|cell| !cell.is_count()).count();
        writeln!(
            f,
            "\n{random} cells of intervals, {} of counts, which must be exact in every run; if intervals contain the truth in 95 % of \
             runs, one of the {random} is red in {:.2} of 1,000 suites",
            self.cells.len() - random,
            1e3 * self.false_alarms()
        )
    }
}

impl fmt::Display for SuiteCell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CalibrationCell {
            figure,
            covered,
            runs,
            truth,
            bias,
            interval,
            score,
            ..
        } = self.cell;
        let shown = |value: Option<f64>| {
            value.map_or_else(|| "-".to_owned(), |value| quantity(figure.metric, value))
        };
        let width = interval.map(|[low, high]| high - low);
        write!(
            f,
            "{:<52} {:>8} {:>6} {:>16} {:>16} {:>16} {:>16}",
            format!("{}: {figure}", self.case()),
            format!("{covered}/{runs}"),
            self.least,
            shown(*truth),
            shown(*bias),
            shown(width),
            shown(*score)
        )?;
        if self.is_red() {
            let cause = match self.cell.standing {
                CellStatus::NoTruth => self.cell.cause.as_deref().unwrap_or_default(),
                _ => "",
            };
            write!(f, "  RED {cause}")?;
        }
        Ok(())
    }
}
