//! The expected time of each run, which is learned from the runs that have ended.

use std::collections::HashMap;
use std::time::Duration;

use crate::experiment::{Case, Plan};
use record::Record;
use record::pace::PathPace;

/// The time for setting up a test bed and taking it down.
const TESTBED_TIME: Duration = Duration::from_millis(500);

/// The weight, in seconds, of the assumption that estimates are right. Runs that have ended change the estimates of other cases
/// as much as they are longer than this.
const TRUST_S: f64 = 10.0;
/// The longest time of a run, ten years. A longer one is taken for this long, so that sums do not overflow.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 86_400);

/// The times of runs that have ended, and what they mean for the others.
///
/// A case that has run is expected to take the mean time of its runs. Every other case is expected to take the time that its
/// conditions and instruments suggest, multiplied by the factor by which all runs so far took longer than that.
#[derive(Debug, Default)]
pub(crate) struct RunTimes {
    /// The number and the total seconds of the runs of each case.
    cases: HashMap<String, (u32, f64)>,
    /// The total seconds of all runs, and of their estimates.
    measured_s: f64,
    estimated_s: f64,
}

impl RunTimes {
    /// Returns what the runs of `record`, an experiment with this plan, teach.
    pub(crate) fn of(plan: &Plan, record: &Record) -> Self {
        let mut times = Self::default();
        for run in &record.runs {
            let elapsed = run.elapsed_s.map(Duration::try_from_secs_f64);
            if let (Some(Ok(elapsed)), Some(case)) = (elapsed, plan.case(&run.case)) {
                times.add(case, elapsed);
            }
        }
        times
    }

    /// Adds a run of `case` that took this long.
    pub(crate) fn add(&mut self, case: &Case, elapsed: Duration) {
        let elapsed = elapsed.min(LONGEST);
        let (runs, total_s) = self.cases.entry(case.name.clone()).or_default();
        *runs = runs.saturating_add(1);
        *total_s += elapsed.as_secs_f64();
        self.measured_s += elapsed.as_secs_f64();
        self.estimated_s += estimate(case).as_secs_f64();
    }

    /// Returns the expected time of a run of `case`.
    pub(crate) fn expected(&self, case: &Case) -> Duration {
        let seconds = match self.cases.get(&case.name) {
            Some((runs, total_s)) => total_s / f64::from(*runs),
            None => {
                let factor = (TRUST_S + self.measured_s) / (TRUST_S + self.estimated_s);
                estimate(case).as_secs_f64() * factor
            }
        };
        let time = Duration::try_from_secs_f64(seconds);
        time.map_or(LONGEST, |time| time.min(LONGEST))
    }
}

/// Estimates the time of one run of `case` from the arguments of its instruments and the pace of
/// its path. Instruments without an expected time, such as those that end together with another,
/// are left out.
pub(crate) fn estimate(case: &Case) -> Duration {
    let pace = PathPace::of(case);
    let groups = case.groups();
    let times = groups.iter().map(|group| {
        let each = group
            .iter()
            .filter_map(|planned| planned.args.instrument().estimate(pace.as_ref()));
        each.max().unwrap_or_default()
    });
    times.sum::<Duration>() + TESTBED_TIME
}

/// Returns the estimate, if some instrument of every group has an expected time.
pub(crate) fn known(case: &Case) -> Option<Duration> {
    let pace = PathPace::of(case);
    let groups = case.groups();
    let is_known = groups.iter().all(|group| {
        let mut times = group
            .iter()
            .map(|planned| planned.args.instrument().estimate(pace.as_ref()));
        times.any(|time| time.is_some())
    });
    is_known.then(|| estimate(case))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::plan_of;

    /// Returns a plan whose cases `a`, `b` and `c` measure for 1 s, 1 s and 100 s.
    fn plan() -> Plan {
        let cases = [("a", 1), ("b", 1), ("c", 100)].map(|(name, time)| {
            format!("[[cases]]\nname = '{name}'\nparameters.load = {{ time = '{time}s' }}\n")
        });
        let head = "name = 'x'\ntitle = 'X'\nbed = { kind = 'netns' }\ntcp = { congestion = 'reno' }\n\
                    [[instruments]]\nname = 'load'\nkind = 'tcp'\n";
        plan_of(&(head.to_owned() + &cases.concat()))
    }

    fn expected_s(times: &RunTimes, plan: &Plan, case: &str) -> f64 {
        times.expected(plan.case(case).unwrap()).as_secs_f64()
    }

    #[test]
    fn a_case_that_has_run_takes_the_mean_of_its_runs() {
        let (plan, mut times) = (plan(), RunTimes::default());
        let case = plan.case("a").unwrap();
        let estimate = estimate(case);
        assert_eq!(times.expected(case), estimate);
        for seconds in [3, 5] {
            times.add(case, Duration::from_secs(seconds));
        }
        assert!((expected_s(&times, &plan, "a") - 4.0).abs() < 1e-9);
    }

    #[test]
    fn other_cases_are_corrected_by_the_runs_so_far_but_hardly_by_a_short_one() {
        let (plan, mut times) = (plan(), RunTimes::default());
        let [short, long] = ["b", "c"].map(|name| estimate(plan.case(name).unwrap()).as_secs_f64());
        let case = plan.case("a").unwrap();
        times.add(case, 3 * estimate(case));
        let factor = expected_s(&times, &plan, "c") / long;
        assert!((1.1..1.5).contains(&factor), "{factor}");
        for _ in 0..100 {
            times.add(case, 3 * estimate(case));
        }
        let factor = expected_s(&times, &plan, "b") / short;
        assert!((2.7..3.0).contains(&factor), "{factor}");
    }

    #[test]
    fn the_runs_of_a_record_teach_as_those_of_this_process_do() {
        let record = crate::experiment::small_record();
        let plan = instruments::measure::read_plan(record.plan()).unwrap();
        let mut timed = record.clone();
        for run in &mut timed.runs {
            run.elapsed_s = Some(7.0);
        }
        let times = RunTimes::of(&plan, &timed);
        let case = &plan.cases[1];
        assert_eq!(times.expected(case), Duration::from_secs(7));
        // Earlier records do not state the times, and a hostile one may state any.
        timed.runs[0].elapsed_s = Some(f64::NAN);
        timed.runs[1].elapsed_s = Some(-1.0);
        timed.runs[2].elapsed_s = Some(f64::INFINITY);
        for record in [&record, &timed] {
            let times = RunTimes::of(&plan, record);
            assert_eq!(times.expected(case), estimate(case));
        }
    }
}
