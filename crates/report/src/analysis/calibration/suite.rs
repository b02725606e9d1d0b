//! A calibration of many seeds as a test suite: which cells can no longer be put down to chance.

use std::fmt;

use record::figure_name::FigureName;
use record::plan::Case;
use record::{Record, quantity};
use stats::proportion::{fewer_than, least_by_chance};

use super::cell;
use super::standing::{CalibrationCell, Standing};

/// What 95 % intervals do.
const COVERAGE: f64 = 0.95;
/// How often a suite of instruments without fault may be red.
const ALARM: f64 = 1e-3;
/// Fewer runs decide nothing.
const FEWEST: usize = 10;

/// All cells of a calibration, decided together.
#[derive(Clone, Debug)]
pub struct Suite {
    cells: Vec<CalibrationCell>,
    /// Cases of which no figure has a truth.
    without: Vec<String>,
    /// What each may contribute to the suite's false alarms.
    share: f64,
}

/// A cell of a suite.
#[derive(Clone, Copy, Debug)]
pub struct SuiteCell<'a> {
    cell: &'a CalibrationCell,
    /// The fewest runs that must hold the truth.
    least: u64,
}

impl Suite {
    /// Of `record`, whose cases have one instrument each.
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

    /// Its cells, in the order of the plan.
    pub fn cells(&self) -> impl Iterator<Item = SuiteCell<'_>> {
        self.cells.iter().map(|cell| {
            let runs = cell.runs as u64;
            let least = match cell.is_count() {
                true => runs,
                false => least_by_chance(runs, COVERAGE, self.share),
            };
            SuiteCell { cell, least }
        })
    }

    /// How often instruments whose intervals hold the truth in 95 % of runs make some cell red.
    pub fn false_alarms(&self) -> f64 {
        let random = self.cells().filter(|one| !one.cell.is_count());
        random
            .map(|one| fewer_than(one.least, one.cell.runs as u64, COVERAGE))
            .sum()
    }

    /// Whether any cell is red, or a case has none.
    pub fn is_red(&self) -> bool {
        self.cells.is_empty() || !self.without.is_empty() || self.cells().any(|one| one.is_red())
    }
}

impl SuiteCell<'_> {
    /// The case that it is of.
    pub fn case(&self) -> &str {
        &self.cell.case
    }

    /// The figure that it is of.
    pub fn figure(&self) -> &FigureName {
        &self.cell.figure
    }

    /// How many of its runs have an interval that contains the truth, and how many have a truth and an interval.
    pub fn coverage(&self) -> [usize; 2] {
        [self.cell.covered, self.cell.runs]
    }

    /// Whether so few intervals hold the truth that chance is no excuse, or too few runs have a truth at all.
    pub fn is_red(&self) -> bool {
        self.cell.runs < FEWEST || (self.cell.covered as u64) < self.least
    }
}

impl CalibrationCell {
    /// Whether it is a count of packets, which holds or does not.
    fn is_count(&self) -> bool {
        self.figure.metric.unit() == "packets"
    }
}

impl fmt::Display for Suite {
    /// A line a cell, then what the suite's verdict is worth.
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
                Standing::NoTruth => self.cell.cause.as_deref().unwrap_or_default(),
                _ => "",
            };
            write!(f, "  RED {cause}")?;
        }
        Ok(())
    }
}
