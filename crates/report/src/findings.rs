//! Sentences that all reports share, and the tables of cases that several of them have.

use super::{case_conditions, reliability};
use crate::analysis::{
    Analysis, CaseFigures, ChainBottleneck, ExpectationCheck, ExpectationCounts, Verdict, baselines,
};
use crate::case_labels::CaseLabels;
use record::expectation::ExpectationKind;
use record::lateness::LateBudget;
use record::plan::Plan;
use record::quantity::counted;
use record::table::{Cell, Column, Mark, Table};
use record::{Baseline, LateBudgetChange, Record};
use stats::repeats;

/// Explanation of the numbers.
pub(super) const LEGEND: &str = "values: means over the runs with their 95 % intervals, written with ± if they are symmetric, else as \
                                 [low, high]; over N runs: the interval comes from the variation between the runs (Student's t, or Stein's \
                                 for the figure that decides the number of runs), and none is stated if all runs are equal; in the run: \
                                 the interval of what the network did in the only run, as the instrument states it; Δ: change of the mean from the reference: in percent, in percentage \
                                 points for percentages, as a factor (×) if it exceeds two, as a difference for values near 0; \
                                 goodput: payload that arrived (L7); sent rate: payload that the sender handed to its socket";

/// Returns the text after the title of an experiment whose counts and sizes were reduced.
pub(super) fn quick(quick: bool) -> &'static str {
    if quick { ", shortened by --quick" } else { "" }
}

/// Formats the machine's limits without emulated conditions; `None` without a baseline.
pub(super) fn machine(baselines: &[Baseline]) -> Option<String> {
    let words = baselines::in_words(baselines);
    (!words.is_empty()).then(|| format!("the machine without emulation: {words}"))
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
    let labels = CaseLabels::of_all(analysis.record.plan());
    let mut columns = labels.columns();
    columns.extend(["conditions", "verdict"].map(Column::words));
    let row = |figures: &CaseFigures<'_>| {
        let case = figures.case;
        let mut cells = labels.cells(case);
        cells.extend([case_conditions::path(case).into(), case_verdict(figures)]);
        cells
    };
    Table::new("", columns).with(analysis.cases.iter().map(row))
}

/// Returns the verdict on a case in its colour. A case of which a third of the attempts or more failed is not shown as
/// good.
pub(super) fn case_verdict(figures: &CaseFigures<'_>) -> Cell {
    let is_judged = !figures.checks.is_empty() || !figures.faults.is_empty();
    match (is_judged, figures.verdict, figures.attempts.in_words()) {
        (false, ..) => Cell::from("–"),
        (true, Verdict::Met, Some(words)) if figures.attempts.are_poor() => {
            Cell::from(format!("{}, but {words}", Verdict::Met))
        }
        (true, reached, _) => verdict(reached),
    }
}

/// Returns the verdict on an expectation in its colour. A met one that is not reliable is not shown as good.
fn check_verdict(check: &ExpectationCheck) -> Cell {
    match (check.verdict, check.is_reliable) {
        (Verdict::Met, false) => Cell::from(check.verdict_in_words()),
        (reached, _) => verdict(reached),
    }
}

/// Returns a verdict in its colour.
fn verdict(verdict: Verdict) -> Cell {
    let mark = match verdict {
        Verdict::Met => Mark::Good,
        Verdict::Incomplete => Mark::Plain,
        Verdict::NotMet | Verdict::Invalid | Verdict::Failed => Mark::Bad,
    };
    Cell::marked(verdict.to_string(), mark)
}

/// Returns a table with the conditions of each case.
pub(super) fn conditions(plan: &Plan) -> Table {
    let labels = CaseLabels::of_all(plan);
    let mut columns = labels.columns();
    columns.extend(["link", "bed", "TCP", "repeats"].map(Column::words));
    let mut table = Table::new("", columns);
    for case in &plan.cases {
        let conditions = [
            case_conditions::path(case),
            case_conditions::bed(case),
            case.congestion.clone(),
            case_conditions::repeats(&case.repeats),
        ];
        let cells = labels.cells(case).into_iter();
        table.push(cells.chain(conditions.map(Cell::from)));
    }
    table
}

/// Returns a table with a row for each expectation: its kind, the measured value and the verdict.
pub(super) fn expectations(analysis: &Analysis<'_>) -> Table {
    let labels = CaseLabels::of_all(analysis.record.plan());
    let mut columns = labels.columns();
    columns.extend(["expected", "kind", "measured", "verdict"].map(Column::words));
    let cases = analysis.cases.iter();
    let own = cases.flat_map(|figures| {
        let cells = labels.cells(figures.case);
        let checks = figures.checks.iter();
        checks.map(move |check| (cells.clone(), check))
    });
    let trends = analysis.trends.iter();
    let all = own.chain(trends.map(|check| (labels.cells_of_several("all"), check)));
    let rows = all.map(|(mut cells, check)| {
        let (expected, measured) = (check.expected.as_str(), check.measured.as_str());
        cells.extend([
            expected.into(),
            check.kind.name().into(),
            measured.into(),
            check_verdict(check),
        ]);
        cells
    });
    Table::new("", columns).with(rows)
}

/// Returns the verdict on the whole experiment in one sentence, with the numbers of expectations of each kind. If runs
/// are invalid or failed, it says that the met ones are not reliable.
pub(super) fn headline(analysis: &Analysis<'_>) -> String {
    let counts = ExpectationCounts::of(analysis.checks()).in_words();
    let verdict = match analysis.verdict {
        Verdict::Met if counts.is_none() => return "Measured; no expectations defined.".to_owned(),
        Verdict::Met => "Met",
        Verdict::Incomplete => "Incomplete",
        Verdict::NotMet => "Not met",
        Verdict::Invalid => "Invalid: the machine did not keep up",
        Verdict::Failed => "Failed",
    };
    match counts {
        None => format!("{verdict}."),
        Some(counts) => format!("{verdict}: {counts}{}.", caveat(analysis)),
    }
}

/// Returns the text after a number of met expectations, which says that they are not reliable if runs are invalid or
/// failed.
pub(super) fn caveat(analysis: &Analysis<'_>) -> &'static str {
    match analysis.verdict {
        Verdict::Invalid | Verdict::Failed => ", but not reliable",
        Verdict::Met | Verdict::Incomplete | Verdict::NotMet => "",
    }
}

/// Returns the results that no table shows, and the notes about the machine.
pub(super) fn findings(analysis: &Analysis<'_>) -> Vec<String> {
    [results(analysis), reliability::notes(analysis)].concat()
}

/// Returns a line for each bottleneck and each expectation that is not met, for each case that needs more runs, and for
/// runs that are still to come.
pub(super) fn results(analysis: &Analysis<'_>) -> Vec<String> {
    let bottlenecks = analysis.bottlenecks.iter();
    let mut lines: Vec<String> = bottlenecks.map(ChainBottleneck::words).collect();
    for figures in &analysis.cases {
        let unmet = figures.checks.iter().filter(|check| match check.verdict {
            Verdict::Met | Verdict::Incomplete => false,
            // If a run failed, its failure explains why nothing was measured.
            Verdict::Failed => figures.faults.is_empty(),
            Verdict::NotMet | Verdict::Invalid => true,
        });
        lines.extend(unmet.map(|check| format!("{}: {}", figures.words(), unmet_words(check))));
        lines.extend(too_few(analysis, figures));
    }
    lines.extend(late_budgets(analysis.record));
    let trends = analysis.trends.iter();
    let unmet = trends.filter(|c| !matches!(c.verdict, Verdict::Met | Verdict::Incomplete));
    lines.extend(unmet.map(unmet_words));
    let mut faults = analysis.cases.iter().flat_map(|figures| &figures.faults);
    if faults.any(|fault| fault.verdict == Verdict::Invalid) {
        lines.push(format!(
            "to repeat the invalid runs: farwire run --resume out/{} --redo-invalid, or with the directory of --out in place of out/{0}",
            analysis.record.plan().name
        ));
    }
    if analysis.record.finished_at.is_none() {
        lines.push(unfinished(analysis));
    } else if let Some(shard) = &analysis.record.plan().shard {
        lines.push(format!(
            "this record has only the runs of shard {}; `farwire merge` joins it with the records of the other shards",
            shard.number
        ));
    }
    lines
}

/// Describes an expectation that is not met, with its kind unless it is tested.
pub(super) fn unmet_words(check: &ExpectationCheck) -> String {
    let kind = match check.kind {
        ExpectationKind::Tested => String::new(),
        kind => format!(" ({})", kind.name()),
    };
    format!(
        "{}{kind}: {}: {}",
        check.expected, check.verdict, check.measured
    )
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
            "{}: for {} to be known within ± {} %, {takes} runs are needed; {} are valid",
            figures.words(),
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
        "the experiment is unfinished: {} of {} cases are incomplete; `farwire run --resume DIR` continues it",
        unfinished.count(),
        analysis.cases.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::{record, spoil};
    use crate::answer::Answer;
    use crate::case_labels::tests::swept;

    #[test]
    fn expectations_are_counted_by_kind_and_unmet_ones_name_theirs() {
        let mut record = record();
        record.head.plan.cases[0].expect[0].fitted = true;
        assert_eq!(
            headline(&Analysis::of(&record)),
            "Met: 2 of 2 tested expectations met, 1 of 1 loose, 1 of 1 fitted."
        );
        // It is half of the published value, and the rule accepts 10 % to either side.
        record.runs[0].measurements[1].measurement.figures[0].value = 8e6;
        let analysis = Analysis::of(&record);
        let words =
            "base: download.goodput_bit_per_s.mean: the published value ± 10 % (fitted): NOT MET";
        let found = results(&analysis);
        assert!(
            found.iter().any(|line| line.starts_with(words)),
            "{found:?}"
        );
        let table = expectations(&analysis);
        let kinds: Vec<&str> = table.rows.iter().map(|row| row[2].text.as_str()).collect();
        assert_eq!(kinds, ["fitted", "tested", "loose", "tested"]);
    }

    #[test]
    fn met_expectations_of_an_invalid_record_are_not_reliable() {
        let mut record = record();
        // All values are there, but the second run of two does not count.
        spoil(&mut record.runs[2], "the ring dropped 3");
        let analysis = Analysis::of(&record);
        assert_eq!(analysis.verdict, Verdict::Invalid);
        let words = headline(&analysis);
        assert!(
            words.starts_with("Invalid: the machine did not keep up: "),
            "{words}"
        );
        assert!(words.ends_with(", but not reliable."), "{words}");
        let table = expectations(&analysis);
        let verdicts: Vec<&Cell> = table.rows.iter().map(|row| &row[4]).collect();
        assert_eq!(verdicts[0], &Cell::marked("met", Mark::Good));
        let unreliable = Cell::from("met, but not reliable");
        assert!(verdicts[1..].contains(&&unreliable), "{verdicts:?}");
        assert!(!verdicts[1..].iter().any(|cell| cell.mark == Mark::Good));
    }

    #[test]
    fn a_case_of_which_a_third_of_the_attempts_failed_is_not_shown_as_good() {
        let mut record = record();
        record.runs[0].attempt = 2;
        let table = verdicts(&Analysis::of(&record));
        let of = |row: usize| &table.rows[row][2];
        assert_eq!(
            *of(0),
            Cell::from("met, but 1 of 2 attempts failed or was invalid, and 1 was repeated")
        );
        assert_eq!(*of(1), Cell::marked("met", Mark::Good));
    }

    #[test]
    fn sentences_name_a_swept_case_by_the_values_of_its_fields() {
        let mut record = swept(&[&[("link.delay", "0ms")], &[("link.delay", "9ms")]]);
        record.head.plan.reference = Some(record.head.plan.cases[0].name.clone());
        spoil(&mut record.runs[1], "the ring dropped 3");
        let analysis = Analysis::of(&record);
        let reference = analysis.reference().map(CaseFigures::words);
        assert_eq!(reference, Some("delay 0ms"));
        let sentences = [
            findings(&analysis),
            Answer::of(&analysis).sentences,
            vec![reliability::Reliability::of(&analysis).in_words()],
        ]
        .concat();
        let all = sentences.join("\n");
        assert!(
            all.contains("nothing can be concluded about delay 9ms,"),
            "{all}"
        );
        assert!(all.contains("delay 9ms: run 1 is invalid"), "{all}");
        assert!(!all.contains("delay="), "{all}");
    }

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
