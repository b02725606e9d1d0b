//! Sentences that all reports share, and the tables of cases that several of them have.

use super::{case_conditions, hosts};
use crate::analysis::{Analysis, CaseFigures, ChainBottleneck, Verdict, baselines, ceiling};
use record::lateness::LateBudget;
use record::plan::Plan;
use record::quantity::counted;
use record::table::{Cell, Column, Mark, Table};
use record::{Baseline, LateBudgetChange, Record};
use stats::repeats;

/// Explanation of the numbers.
pub(super) const LEGEND: &str = "values: means over the runs with their 95 % intervals, as ± or, if the ends are not equally far from the \
                                 value, as [low, high]; over N runs: the scatter of the runs (Student's t, or Stein's for the figure that \
                                 decides their number); in the run: what the network did in the only run, as the instrument states \
                                 it; Δ: change of the mean compared with the reference, in percent, for percentages in percentage \
                                 points, beyond a factor of two as a factor (×), for values near 0 as a difference; \
                                 goodput: payload that arrived (L7); sent rate: payload that the sender handed to its socket";

/// Returns the text after the title of an experiment whose counts and sizes were reduced.
pub(super) fn quick(quick: bool) -> &'static str {
    if quick { ", shortened by --quick" } else { "" }
}

/// Formats the machine's limits without emulated conditions; `None` without a baseline.
pub(super) fn machine(baselines: &[Baseline]) -> Option<String> {
    let words = baselines::in_words(baselines);
    (!words.is_empty()).then(|| format!("this machine without emulation: {words}"))
}

/// Formats the machine's limits of a record; `None` if it has several hosts, whose table shows them.
pub(super) fn own_machine(record: &Record) -> Option<String> {
    match record.head.hosts.len() {
        0 | 1 => machine(&record.baselines),
        _ => None,
    }
}

/// Returns a table with the verdict of each case.
pub(super) fn verdicts(analysis: &Analysis<'_>) -> Table {
    let columns = ["case", "conditions", "verdict"].map(Column::words);
    let row = |figures: &CaseFigures<'_>| {
        let case = figures.case;
        let verdict = if figures.checks.is_empty() && figures.faults.is_empty() {
            Cell::from("–")
        } else {
            verdict(figures.verdict)
        };
        [
            case.name.as_str().into(),
            case_conditions::path(case).into(),
            verdict,
        ]
    };
    Table::new("", columns).with(analysis.cases.iter().map(row))
}

/// Returns a verdict in its colour.
pub(super) fn verdict(verdict: Verdict) -> Cell {
    let mark = match verdict {
        Verdict::Met => Mark::Good,
        Verdict::Incomplete => Mark::Plain,
        Verdict::NotMet | Verdict::Invalid | Verdict::Failed => Mark::Bad,
    };
    Cell::marked(verdict.to_string(), mark)
}

/// Returns a table with the conditions of each case.
pub(super) fn conditions(plan: &Plan) -> Table {
    let columns = ["case", "link", "bed", "TCP", "repeats"].map(Column::words);
    let mut table = Table::new("", columns);
    for case in &plan.cases {
        table.push([
            case.name.clone(),
            case_conditions::path(case),
            case_conditions::bed(case),
            case.congestion.clone(),
            case_conditions::repeats(&case.repeats),
        ]);
    }
    table
}

/// Returns a table with a row for each expectation: the measured value and the verdict.
pub(super) fn expectations(analysis: &Analysis<'_>) -> Table {
    let columns = ["case", "expected", "measured", "verdict"].map(Column::words);
    let cases = analysis.cases.iter();
    let own = cases.flat_map(|figures| figures.checks.iter().map(|check| (figures.name(), check)));
    let all = own.chain(analysis.trends.iter().map(|check| ("all", check)));
    let rows = all.map(|(case, check)| {
        let (expected, measured) = (check.expected.as_str(), check.measured.as_str());
        [
            case.into(),
            expected.into(),
            measured.into(),
            verdict(check.verdict),
        ]
    });
    Table::new("", columns).with(rows)
}

/// Returns the verdict on the whole experiment in one sentence.
pub(super) fn headline(analysis: &Analysis<'_>) -> String {
    let checks = analysis.checks().count();
    let met = analysis
        .checks()
        .filter(|check| check.verdict == Verdict::Met)
        .count();
    let verdict = match analysis.verdict {
        Verdict::Met if checks == 0 => return "Measured; no expectations defined.".to_owned(),
        Verdict::Met => "Met",
        Verdict::Incomplete => "Incomplete",
        Verdict::NotMet => "Not met",
        Verdict::Invalid => "Invalid: this machine did not keep up",
        Verdict::Failed => "Failed",
    };
    match checks {
        0 => format!("{verdict}."),
        _ => format!(
            "{verdict}: {met} of {} met.",
            counted(checks, "expectation")
        ),
    }
}

/// Returns a line for each bottleneck, run that went wrong, result near the machine's limits, change of the machine,
/// and expectation that is not met, or a line that says that there is none.
pub(super) fn findings(analysis: &Analysis<'_>) -> Vec<String> {
    let bottlenecks = analysis.bottlenecks.iter();
    let mut lines: Vec<String> = bottlenecks.map(ChainBottleneck::words).collect();
    for figures in &analysis.cases {
        let name = &figures.case.name;
        let faults = figures
            .faults
            .iter()
            .filter(|fault| fault.verdict != Verdict::Incomplete);
        lines.extend(faults.map(|fault| format!("{name}: {}", fault.text)));
        let unmet = figures.checks.iter().filter(|check| match check.verdict {
            Verdict::Met | Verdict::Incomplete => false,
            // If a run failed, its failure explains why nothing was measured.
            Verdict::Failed => figures.faults.is_empty(),
            Verdict::NotMet | Verdict::Invalid => true,
        });
        lines.extend(
            unmet.map(|c| format!("{name}: {}: {}: {}", c.expected, c.verdict, c.measured)),
        );
        let left_out = figures.left_out.iter();
        lines.extend(left_out.map(|text| format!("{name}: {text}")));
        lines.extend(too_few(analysis, figures));
        if figures.repeated > 0 {
            lines.push(format!(
                "{name}: {}",
                match figures.repeated {
                    1 => "one attempt was invalid because of this machine, and was repeated"
                        .to_owned(),
                    several => format!(
                        "{several} attempts were invalid because of this machine, and were repeated"
                    ),
                }
            ));
        }
    }
    lines.extend(ceiling::lines(analysis));
    let hosts = hosts::of(analysis.record);
    for host in &hosts {
        let changes = baselines::changes(&host.baselines).into_iter();
        lines.extend(changes.map(|change| match hosts.len() {
            1 => change,
            _ => format!("{}: {change}", host.name),
        }));
    }
    lines.extend(late_budgets(analysis.record));
    let trends = analysis.trends.iter();
    let unmet = trends.filter(|c| !matches!(c.verdict, Verdict::Met | Verdict::Incomplete));
    lines.extend(unmet.map(|c| format!("{}: {}: {}", c.expected, c.verdict, c.measured)));
    if analysis.verdict == Verdict::Met {
        lines.push(match analysis.checks().count() {
            0 => "no expectations defined".to_owned(),
            1 => "the expectation is met".to_owned(),
            count => format!("all {count} expectations met"),
        });
    }
    let mut faults = analysis.cases.iter().flat_map(|figures| &figures.faults);
    if faults.any(|fault| fault.verdict == Verdict::Invalid) {
        lines.push(
            "to repeat invalid runs, use --resume with the record's directory and --redo-invalid"
                .to_owned(),
        );
    }
    if !matches!(analysis.verdict, Verdict::Met | Verdict::Incomplete)
        && analysis.checks().next().is_some()
    {
        lines.push(headline(analysis));
    }
    if analysis.record.finished_at.is_none() {
        lines.push(unfinished(analysis));
    } else if let Some(shard) = &analysis.record.plan().shard {
        lines.push(format!(
            "these are the runs of shard {}; `farwire merge` joins them with those of the other shards",
            shard.number
        ));
    }
    lines
}

/// Describes the late budgets with which the experiment was continued.
fn late_budgets(record: &Record) -> Vec<String> {
    let changes = &record.late_budgets;
    let former = changes.iter().map(|change| change.late_budget);
    let former = std::iter::once(record.plan().late_budget).chain(former);
    let line = |(change, former): (&LateBudgetChange, LateBudget)| {
        let budget = change.late_budget;
        match change.after_runs {
            Some(runs) => format!(
                "after {}, the late budget is {budget} instead of {former}",
                counted(runs, "run")
            ),
            None => format!(
                "the late budget of runs on one of the hosts is {budget} since {}",
                change.changed_at
            ),
        }
    };
    changes.iter().zip(former).map(line).collect()
}

/// Returns a message if the runs of a case are too few for the interval that its plan requires, with the number that is
/// needed.
fn too_few(analysis: &Analysis<'_>, figures: &CaseFigures<'_>) -> Option<String> {
    let case = figures.case;
    let narrow = case.repeats.until.as_ref()?;
    let values = analysis.record.latest().deciding(case);
    let needed = repeats::needed(&values, narrow.percent / 100.0);
    let beyond = needed.is_none_or(|needed| needed > values.len() as u64);
    (beyond && !figures.has_pending_runs).then(|| {
        let takes = needed.map_or("more".to_owned(), |needed| needed.to_string());
        format!(
            "{}: {} within ± {} % needs {takes} runs; there are {} valid runs",
            case.name,
            narrow.of,
            narrow.percent,
            values.len()
        )
    })
}

/// Describes the runs that are still to come.
fn unfinished(analysis: &Analysis<'_>) -> String {
    let unfinished = analysis
        .cases
        .iter()
        .filter(|figures| figures.has_pending_runs);
    format!(
        "the experiment is unfinished: {} of {} cases are incomplete; --resume with the record's directory continues it",
        unfinished.count(),
        analysis.cases.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::record;

    #[test]
    fn a_machine_that_changed_during_the_experiment_is_a_finding() {
        let mut record = record();
        record.baselines = [1e10, 6e9]
            .map(|rate| Baseline {
                tcp_bit_per_s: Some(rate),
                ..Baseline::default()
            })
            .into();
        let found = findings(&Analysis::of(&record))
            .into_iter()
            .filter(|line| line.starts_with("this machine changed"));
        assert_eq!(found.count(), 1);
        let shown = machine(&record.baselines).unwrap();
        assert!(shown.ends_with("TCP 10000 Mbit/s (later -40 %)"), "{shown}");
    }

    #[test]
    fn a_late_budget_that_was_changed_is_a_finding() {
        let mut record = record();
        assert!(late_budgets(&record).is_empty());
        let change = |time: &str, after_runs| LateBudgetChange {
            late_budget: time.parse().unwrap(),
            changed_at: "2026-11-24T10:00:00.000Z".to_owned(),
            after_runs,
        };
        record.late_budgets = vec![change("5ms", Some(1)), change("1s", None)];
        let found = findings(&Analysis::of(&record));
        for line in [
            "after 1 run, the late budget is 5ms instead of 1ms",
            "the late budget of runs on one of the hosts is 1s since 2026-11-24T10:00:00.000Z",
        ] {
            assert!(found.iter().any(|one| one == line), "{line} in {found:?}");
        }
    }
}
