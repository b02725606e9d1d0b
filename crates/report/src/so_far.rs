//! The figures of a case so far, for observers of a running experiment.

use crate::analysis::headlines;
use record::figure_name::FigureName;
use record::plan::Case;
use record::{Record, RunOutcome};

/// A figure over the runs of a case so far.
#[derive(Clone, Debug, PartialEq)]
pub struct InterimFigure {
    /// Name of the figure.
    pub name: FigureName,
    /// Its mean over the runs that count, in the metric's unit.
    pub value: f64,
    /// The 95 % confidence interval, if there is one.
    pub interval: Option<[f64; 2]>,
    /// Number of runs that count.
    pub runs: usize,
    /// Whether all runs of the case so far were measured and none is invalid.
    pub valid: bool,
}

/// Returns the main figures of `case`, as the report of these runs has them.
pub fn so_far(record: &Record, case: &Case) -> Vec<InterimFigure> {
    let latest = record.latest();
    let valid = latest.runs(case).all(|run| run.outcome == RunOutcome::Ok);
    let figures = headlines(&latest, case).into_iter();
    figures
        .map(|(name, figure)| InterimFigure {
            name,
            value: figure.value(),
            interval: figure.interval.map(|own| own.ends),
            runs: figure.values.len(),
            valid,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Analysis;
    use crate::analysis::tests::record;

    #[test]
    fn interim_figures_equal_those_of_the_report() {
        let mut record = record();
        let whole = record.clone();
        let analysis = Analysis::of(&whole);
        let case = &whole.plan().cases[1];
        let found = so_far(&record, case);
        assert!(!found.is_empty());
        for InterimFigure {
            name,
            value,
            interval,
            runs,
            valid,
        } in &found
        {
            let figure = &analysis.case("slow").unwrap().figures[name];
            assert_eq!(*value, figure.value());
            assert_eq!(*runs, figure.values.len());
            assert!(*valid);
            assert_eq!(*interval, figure.interval.map(|own| own.ends));
        }
        record.runs.last_mut().unwrap().outcome = RunOutcome::Failed {
            cause: "of a test".to_owned(),
        };
        let last = record.runs.last().unwrap().case.clone();
        let case = whole.plan().case(&last).unwrap();
        assert!(so_far(&record, case).iter().all(|one| !one.valid));
    }
}
