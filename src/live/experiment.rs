//! The state of a running experiment: its progress and its figures up to now.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::Serialize;
use utoipa::ToSchema;

use super::lock;

/// The experiment of this process, if it runs one.
#[derive(Clone, Default)]
pub(crate) struct Experiment(Arc<Mutex<Option<ExperimentState>>>);

struct ExperimentState {
    scenario: String,
    title: String,
    done: usize,
    planned: usize,
    /// The time at which the experiment is expected to end.
    end: Option<Instant>,
    /// The current run, or the next one while no run is set up.
    this: Option<NumberedRun>,
    /// True while the links of the current run exist.
    is_up: bool,
    /// The run after `this`.
    following: Option<NumberedRun>,
    phase: String,
    rows: Vec<FigureRow>,
}

/// A run of an experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = NumberedRun)]
pub(crate) struct NumberedRun {
    /// The case of the run.
    pub(crate) case: String,
    /// The number of the run within its case, from 1.
    pub(crate) repeat: u32,
    /// The number of the attempt, from 1. A run that the machine spoilt is attempted again.
    pub(crate) attempt: u32,
}

/// A headline figure of a case over its runs up to now.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct FigureRow {
    /// The case of the figure.
    pub(crate) case: String,
    /// The instrument of the figure.
    pub(crate) instrument: String,
    /// The metric, the statistic and the scope as scenarios write them: `rtt_ms.median`.
    pub(crate) figure: String,
    /// The mean over the valid runs in the metric's unit.
    pub(crate) value: f64,
    /// The lower end of the mean's 95 % interval; null if there is no interval.
    pub(crate) low: Option<f64>,
    /// The upper end of the interval.
    pub(crate) high: Option<f64>,
    /// The number of runs that the mean covers.
    pub(crate) runs: usize,
    /// True if all of the case's runs up to now were measured and are valid.
    pub(crate) valid: bool,
}

/// A running experiment as clients see it.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Run)]
pub(crate) struct ExperimentView {
    /// The name of the scenario.
    pub(crate) scenario: String,
    /// The title of the scenario.
    pub(crate) title: String,
    /// The number of runs that have ended.
    pub(crate) done: usize,
    /// The number of runs that have ended or are still to come, as far as it is known.
    pub(crate) planned: usize,
    /// The expected seconds until the end; null before the first run.
    pub(crate) eta_s: Option<f64>,
    /// The case of the current run; null between two runs.
    pub(crate) case: Option<String>,
    /// The number of the current run within its case.
    pub(crate) repeat: Option<u32>,
    /// The attempt of the current run.
    pub(crate) attempt: Option<u32>,
    /// The current phase: `baseline`, `set-up`, the names of the running instruments, `tear-down` or `reports`.
    pub(crate) phase: String,
    /// The next run; null if there is none.
    pub(crate) next: Option<NumberedRun>,
    /// The headline figures of every case up to now, in the order of the plan.
    pub(crate) rows: Vec<FigureRow>,
}

impl Experiment {
    /// Starts a new experiment without any completed run.
    pub(crate) fn begin(&self, scenario: &str, title: &str) {
        *lock(&self.0) = Some(ExperimentState {
            scenario: scenario.to_owned(),
            title: title.to_owned(),
            done: 0,
            planned: 0,
            end: None,
            this: None,
            is_up: false,
            following: None,
            phase: String::new(),
            rows: Vec::new(),
        });
    }

    /// Sets the number of remaining runs and their expected total time.
    pub(crate) fn expect(&self, runs: usize, left: Duration) {
        self.with(|state| {
            state.planned = state.done + runs;
            state.end = Instant::now().checked_add(left);
        });
    }

    /// Sets the current run and the one after it, as far as it is known.
    pub(crate) fn set_current(&self, this: NumberedRun, following: Option<NumberedRun>) {
        self.with(|state| (state.this, state.following) = (Some(this), following));
    }

    /// Says whether the links of the current run exist.
    pub(crate) fn set_up(&self, is_up: bool) {
        self.with(|state| state.is_up = is_up);
    }

    /// Sets the current phase.
    pub(crate) fn enter(&self, phase: &str) {
        self.with(|state| phase.clone_into(&mut state.phase));
    }

    /// Counts a completed run of `case` and replaces the figures of that case.
    pub(crate) fn ended(&self, case: &str, rows: Vec<FigureRow>) {
        self.with(|state| {
            state.done += 1;
            state.this = state.following.take();
            let at = state.rows.iter().position(|row| row.case == case);
            state.rows.retain(|row| row.case != case);
            let at = at.unwrap_or(state.rows.len());
            state.rows.splice(at..at, rows);
        });
    }

    /// Returns the run that follows next.
    pub(crate) fn next(&self) -> Option<NumberedRun> {
        lock(&self.0).as_ref()?.next().cloned()
    }

    /// Returns the current state, or `None` without an experiment.
    pub(crate) fn view(&self) -> Option<ExperimentView> {
        let state = lock(&self.0);
        let state = state.as_ref()?;
        let left = |end: Instant| end.saturating_duration_since(Instant::now());
        let now = state.this.clone().filter(|_| state.is_up);
        Some(ExperimentView {
            scenario: state.scenario.clone(),
            title: state.title.clone(),
            done: state.done,
            planned: state.planned,
            eta_s: state.end.map(|end| left(end).as_secs_f64()),
            repeat: now.as_ref().map(|run| run.repeat),
            attempt: now.as_ref().map(|run| run.attempt),
            case: now.map(|run| run.case),
            phase: state.phase.clone(),
            next: state.next().cloned(),
            rows: state.rows.clone(),
        })
    }

    fn with(&self, change: impl FnOnce(&mut ExperimentState)) {
        if let Some(state) = lock(&self.0).as_mut() {
            change(state);
        }
    }
}

impl ExperimentState {
    /// Returns the first run that has not begun.
    fn next(&self) -> Option<&NumberedRun> {
        if self.is_up {
            self.following.as_ref()
        } else {
            self.this.as_ref()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(case: &str, repeat: u32) -> NumberedRun {
        NumberedRun {
            case: case.to_owned(),
            repeat,
            attempt: 1,
        }
    }

    fn row(case: &str, value: f64) -> FigureRow {
        FigureRow {
            case: case.to_owned(),
            instrument: "ping".to_owned(),
            figure: "rtt_ms.median".to_owned(),
            value,
            low: None,
            high: None,
            runs: 1,
            valid: true,
        }
    }

    #[test]
    fn an_experiment_counts_its_runs_and_a_case_keeps_its_place_in_the_table() {
        let experiment = Experiment::default();
        experiment.enter("baseline");
        assert!(experiment.view().is_none() && experiment.next().is_none());
        experiment.begin("x", "X");
        experiment.expect(3, Duration::from_secs(60));
        experiment.set_current(run("a", 1), Some(run("b", 1)));
        assert_eq!(experiment.next(), Some(run("a", 1)));
        experiment.set_up(true);
        assert_eq!(experiment.next(), Some(run("b", 1)));
        let view = experiment.view().unwrap();
        assert_eq!((view.done, view.planned, view.repeat), (0, 3, Some(1)));
        assert!(view.eta_s.is_some_and(|left| left <= 60.0));
        experiment.set_up(false);
        experiment.ended("a", vec![row("a", 1.0)]);
        assert_eq!(experiment.next(), Some(run("b", 1)));
        experiment.ended("b", vec![row("b", 2.0)]);
        experiment.expect(1, Duration::ZERO);
        experiment.ended("a", vec![row("a", 3.0)]);
        let view = experiment.view().unwrap();
        assert_eq!((view.done, view.planned, view.case), (3, 3, None));
        let rows: Vec<_> = view
            .rows
            .iter()
            .map(|r| (r.case.as_str(), r.value))
            .collect();
        assert_eq!(rows, [("a", 3.0), ("b", 2.0)]);
    }
}
