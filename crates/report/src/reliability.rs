//! The line that says how far the figures of a record can be trusted, and the notes about the machine behind it.

use crate::analysis::{Analysis, Attempts, CaseFigures, Verdict, baselines, ceiling};
use crate::hosts;
use record::lateness::LateBudget;
use record::quantity::counted;
use serde::Serialize;

/// Largest number of reasons in the line; the notes have all.
const MOST_REASONS: usize = 3;

/// The degree to which the figures of a record can be trusted.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Reliability {
    pub(crate) grade: Grade,
    pub(crate) attempts: Attempts,
    /// Which figures are invalid and why, and what disturbed the others.
    pub(crate) reasons: Vec<String>,
    /// The greatest late budget by which runs were judged, if it is not the default one. The plan has it too.
    #[serde(skip)]
    late_budget: Option<LateBudget>,
}

/// The answer to the question whether the figures describe the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Grade {
    /// All figures do: the machine kept up in all runs.
    Good,
    /// They do, but some attempts do not count, or the machine changed during the experiment.
    Disturbed,
    /// Some do not, or were not measured.
    Invalid,
}

impl Reliability {
    pub(crate) fn of(analysis: &Analysis<'_>) -> Self {
        let attempts = Attempts::sum(analysis.cases.iter().map(|case| case.attempts));
        let invalid = invalid(analysis);
        let disturbances: Vec<String> = attempts
            .in_words()
            .into_iter()
            .chain(analysis.cases.iter().flat_map(left_out))
            .chain(changes(analysis))
            .collect();
        let grade = match (invalid.is_empty(), disturbances.is_empty()) {
            (false, _) => Grade::Invalid,
            (true, false) => Grade::Disturbed,
            (true, true) => Grade::Good,
        };
        let budget = analysis.record.greatest_late_budget();
        Self {
            grade,
            attempts,
            reasons: [invalid, disturbances].concat(),
            late_budget: Some(budget).filter(|budget| *budget != LateBudget::DEFAULT),
        }
    }

    /// Formats the grade and its reasons in one line.
    pub(crate) fn in_words(&self) -> String {
        let mut reasons = match (self.grade, self.attempts.all) {
            (Grade::Good, 0) => "no run has taken place yet".to_owned(),
            (Grade::Good, 1) => "the machine kept up in the only run".to_owned(),
            (Grade::Good, all) => format!("the machine kept up in all {}", counted(all, "run")),
            (Grade::Disturbed | Grade::Invalid, _) => {
                let shown = self.reasons.iter().take(MOST_REASONS);
                shown.cloned().collect::<Vec<_>>().join("; ")
            }
        };
        let more = self.reasons.len().saturating_sub(MOST_REASONS);
        if more > 0 {
            reasons += &format!("; and {}", counted(more, "further note"));
        }
        reasons += &self.budget_in_words();
        format!("How far to trust it: {}; {reasons}.", self.grade.name())
    }

    /// Formats a late budget that is not the default one as the end of the line. It is empty without runs.
    fn budget_in_words(&self) -> String {
        let Some(budget) = self.late_budget.filter(|_| self.attempts.all > 0) else {
            return String::new();
        };
        let words = format!(
            "a late budget of {budget} instead of {}",
            LateBudget::DEFAULT
        );
        match self.grade {
            Grade::Good => format!(" within {words}"),
            Grade::Disturbed | Grade::Invalid => format!("; judged by {words}"),
        }
    }
}

impl Grade {
    /// Returns the word for it, which is also a class of the page.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Disturbed => "disturbed",
            Self::Invalid => "invalid",
        }
    }
}

/// Returns every note about the runs and the machine, one line each.
pub(crate) fn notes(analysis: &Analysis<'_>) -> Vec<String> {
    let of_case = |figures: &CaseFigures<'_>| {
        let faults = figures.faults.iter();
        let grave = faults.filter(|fault| fault.verdict != Verdict::Incomplete);
        let mut lines: Vec<String> = grave
            .map(|fault| format!("{}: {}", figures.words(), fault.text))
            .collect();
        lines.extend(left_out(figures));
        let attempts = figures.attempts;
        let repeated = attempts.in_words().filter(|_| attempts.repeated > 0);
        lines.extend(repeated.map(|words| format!("{}: {words}", figures.words())));
        lines
    };
    let cases = analysis.cases.iter().flat_map(of_case);
    cases
        .chain(ceiling::lines(analysis))
        .chain(changes(analysis))
        .collect()
}

/// Returns which figures are invalid or missing, and why: a line for each case whose runs do not count, and one for each
/// figure with an expectation in other cases.
fn invalid(analysis: &Analysis<'_>) -> Vec<String> {
    let is_invalid = |verdict: Verdict| matches!(verdict, Verdict::Invalid | Verdict::Failed);
    let of_case = |figures: &CaseFigures<'_>| {
        let name = figures.words();
        let faults = figures.faults.iter();
        let grave: Vec<&str> = faults
            .filter(|fault| is_invalid(fault.verdict))
            .map(|fault| fault.text.as_str())
            .collect();
        match grave[..] {
            [] => {
                let rules = figures.case.expect.iter().zip(&figures.checks);
                // If the runs of the reference do not count, that is the reason.
                let own = rules.filter(|(_, check)| is_invalid(check.verdict) && check.is_reliable);
                own.map(|(rule, check)| format!("{name}: {}: {}", rule.of, check.measured))
                    .collect()
            }
            [only] => vec![format!("{name}: {only}")],
            [first, ref more @ ..] => vec![format!("{name}: {first}, and {} more", more.len())],
        }
    };
    let cases = analysis.cases.iter().flat_map(of_case);
    let rules = analysis.record.plan().trends.iter();
    let trends = rules.zip(&analysis.trends);
    let own = trends.filter(|(_, check)| is_invalid(check.verdict) && check.is_reliable);
    let trends = own.map(|(rule, check)| format!("{}: {}", rule.of, check.measured));
    cases.chain(trends).collect()
}

/// Returns the data of a case that is ignored while the case as a whole counts.
fn left_out(figures: &CaseFigures<'_>) -> Vec<String> {
    let all = figures.left_out.iter();
    all.map(|text| format!("{}: {text}", figures.words()))
        .collect()
}

/// Returns a line for each quantity of a machine that changed during the experiment.
fn changes(analysis: &Analysis<'_>) -> Vec<String> {
    let hosts = hosts::of(analysis.record);
    let of_host = |host: &hosts::RecordHost<'_>| {
        let changes = baselines::changes(&host.baselines).into_iter();
        let line = |change| match hosts.len() {
            1 => change,
            _ => format!("{}: {change}", host.name),
        };
        changes.map(line).collect::<Vec<_>>()
    };
    hosts.iter().flat_map(of_host).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::{late_pings, record, spoil};
    use record::Record;
    use record::plan::Repeats;

    fn reliability(record: &Record) -> Reliability {
        Reliability::of(&Analysis::of(record))
    }

    #[test]
    fn a_record_whose_runs_all_count_is_good() {
        let found = reliability(&record());
        assert_eq!((found.grade, found.attempts.all), (Grade::Good, 3));
        assert_eq!(
            found.in_words(),
            "How far to trust it: good; the machine kept up in all 3 runs."
        );
        let mut record = record();
        record.runs.clear();
        record.finished_at = None;
        assert!(reliability(&record).in_words().ends_with("yet."));
    }

    #[test]
    fn the_line_names_a_late_budget_that_is_not_the_default_one() {
        let mut record = record();
        record.head.plan.late_budget = "1s".parse().unwrap();
        assert_eq!(
            reliability(&record).in_words(),
            "How far to trust it: good; the machine kept up in all 3 runs within a late budget of 1s instead of 1ms."
        );
        record.runs[0].attempt = 2;
        let words = reliability(&record).in_words();
        let end = "; judged by a late budget of 1s instead of 1ms.";
        assert!(words.ends_with(end), "{words}");
        // A record that was continued with a greater budget.
        let change = record::LateBudgetChange {
            late_budget: "5ms".parse().unwrap(),
            changed_at: "2026-11-24T10:00:00.000Z".to_owned(),
            after_runs: Some(1),
        };
        record.head.plan.late_budget = LateBudget::DEFAULT;
        record.late_budgets = vec![change];
        let words = reliability(&record).in_words();
        assert!(
            words.ends_with("a late budget of 5ms instead of 1ms."),
            "{words}"
        );
    }

    #[test]
    fn repeated_attempts_and_a_changed_machine_disturb_a_record() {
        let mut record = record();
        record.runs[0].attempt = 2;
        record.baselines = [1e10, 6e9]
            .map(|rate| record::Baseline {
                tcp_bit_per_s: Some(rate),
                ..record::Baseline::default()
            })
            .into();
        let found = reliability(&record);
        assert_eq!(found.grade, Grade::Disturbed);
        let words = found.in_words();
        assert!(
            words.starts_with(
                "How far to trust it: disturbed; 1 of 4 attempts failed or was invalid, and 1 was repeated; this machine changed"
            ),
            "{words}"
        );
        assert!(!found.attempts.are_poor());
        record.runs[1].attempt = 2;
        assert!(reliability(&record).attempts.are_poor());
    }

    #[test]
    fn an_invalid_record_names_the_figures_and_the_reason() {
        let found = reliability(&late_pings(10));
        assert_eq!(found.grade, Grade::Invalid);
        let words = found.in_words();
        assert!(
            words.starts_with(
                "How far to trust it: invalid; base: run 1 is invalid: ping: 10 of 100 packets up left more than 1 ms late;"
            ),
            "{words}"
        );
        let mut record = record();
        record.head.plan.cases[1].repeats = Repeats::fixed(5);
        let words = reliability(&record).in_words();
        assert!(
            words.contains("invalid; slow: 2 of 5 runs took place"),
            "{words}"
        );
    }

    #[test]
    fn many_faults_of_a_case_are_one_reason_and_each_is_a_note() {
        let mut record = record();
        for run in &mut record.runs {
            spoil(run, "the ring dropped 3");
        }
        let found = reliability(&record);
        assert!(
            found
                .in_words()
                .contains("slow: run 1 is invalid: the ring dropped 3, and 1 more"),
            "{}",
            found.in_words()
        );
        let notes = notes(&Analysis::of(&record));
        assert_eq!(notes.len(), 3, "{notes:?}");
    }
}
