//! The grid of a calibration: a scenario whose cases run once for each instrument, so that the
//! link's counters count only that instrument's packets.

use anyhow::{Result, ensure};

use super::scenario;
use crate::experiment::{Case, Plan, PlannedInstrument};
use crate::toml_file::SourceFile;
use record::bed::Bed;
use record::plan::RequestedComparisons;

/// The name of the built-in grid in a record.
pub(crate) const BUILT_IN: &str = "farwire's built-in grid";
/// The text of the built-in grid.
pub(crate) const TEXT: &str = include_str!("grid.toml");

/// Reads the plan of the grid in `source`; `quick` shortens it.
///
/// # Errors
/// Fails as any scenario does, or if a test bed has no emulator that knows the true values.
pub(crate) fn parse(source: SourceFile<'_>, quick: bool) -> Result<Plan> {
    let plan = scenario::parse(source, quick)?;
    for case in &plan.cases {
        ensure!(
            matches!(case.bed, Bed::Netns(_)),
            "{}: case `{}`: bed: kind: a calibration needs the bed `netns`, where the emulator logs every packet",
            source.file,
            case.name
        );
        ensure!(
            case.bed.clients() == 1,
            "{}: case `{}`: bed: clients: a calibration has one client",
            source.file,
            case.name
        );
    }
    Ok(plan)
}

/// Returns the plan with one case for each instrument, or group of instruments, of every case, and
/// with links that count packets by flow. Expectations and comparisons of cases are left out, because
/// a calibration compares figures with the true values.
pub(crate) fn one_by_one(plan: Plan) -> Plan {
    let mut cases: Vec<Case> = Vec::new();
    for case in &plan.cases {
        for group in case.groups() {
            let alone = alone(case, group);
            // If a sweep changed only other instruments, its cases are the same for these.
            if cases.iter().all(|other| other.name != alone.name) {
                cases.push(alone);
            }
        }
    }
    Plan {
        cases,
        reference: None,
        trends: Vec::new(),
        compare: RequestedComparisons::default(),
        by_flow: true,
        ..plan
    }
}

fn alone(case: &Case, group: &[PlannedInstrument]) -> Case {
    let concerns = |path: &str| match path.strip_prefix("parameters.") {
        Some(path) => group
            .iter()
            .any(|i| path.starts_with(&format!("{}.", i.name))),
        None => true,
    };
    let axes: Vec<(String, String)> = case
        .axes
        .iter()
        .filter(|(path, _)| concerns(path))
        .cloned()
        .collect();
    let base = case.name.split('[').next().unwrap_or_default();
    let names: Vec<&str> = group.iter().map(|i| i.name.as_str()).collect();
    Case {
        name: format!("{}: {}", scenario::case_name(base, &axes), names.join("+")),
        axes,
        instruments: group.to_vec(),
        expect: Vec::new(),
        published: [].into(),
        ..case.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::named_files::NamedFiles;
    use std::time::Duration;

    fn plan(text: &str, quick: bool) -> Plan {
        let source = SourceFile {
            file: BUILT_IN,
            text,
            also: NamedFiles::OWN,
        };
        one_by_one(parse(source, quick).unwrap())
    }

    fn built_in(quick: bool) -> Plan {
        plan(TEXT, quick)
    }

    #[test]
    fn every_case_of_the_grid_has_one_instrument() {
        let plan = built_in(false);
        assert!(plan.cases.iter().all(|case| case.groups().len() == 1));
        let mut names: Vec<&str> = plan.cases.iter().map(|case| case.name.as_str()).collect();
        assert!(names.contains(&"line: ping"), "{names:?}");
        // The case has no part of the sweep that concerns other instruments.
        assert!(names.contains(&"rate[rate=1mbit]: ping"), "{names:?}");
        assert!(
            names.contains(&"rate[rate=1mbit, bitrate=500k]: udp"),
            "{names:?}"
        );
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn the_quick_grid_has_every_condition_and_takes_five_minutes() {
        let [quick, full] = [true, false].map(built_in);
        assert_eq!(quick.cases.len(), full.cases.len());
        let time: Duration = quick
            .cases
            .iter()
            .map(crate::experiment::run_times::estimate)
            .sum();
        assert!(time < Duration::from_secs(300), "{time:?}");
    }

    #[test]
    fn the_grid_of_make_truth_is_a_plan_of_half_an_hour() {
        let plan = plan(include_str!("../../benches/truth/grid.toml"), false);
        let runs = |case: &Case| case.repeats.most;
        let time: Duration = plan
            .cases
            .iter()
            .map(|case| {
                let time = crate::experiment::run_times::estimate(case);
                time * runs(case)
            })
            .sum();
        assert!(time < Duration::from_secs(31 * 60), "{time:?}");
        let bursts = plan
            .cases
            .iter()
            .filter(|case| case.name.starts_with("bursts-of-"));
        assert_eq!(bursts.map(runs).collect::<Vec<_>>(), [20; 9]);
    }

    #[test]
    fn a_grid_expects_nothing() {
        let given = TEXT.replace(
            "name = \"line\"",
            "name = \"line\"\nexpect = [{ of = 'ping.rtt_ms.median', most = '1s' }]",
        );
        let plan = plan(&given, true);
        assert!(plan.cases.iter().all(|case| case.expect.is_empty()));
    }
}
