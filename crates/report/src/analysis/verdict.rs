//! Compares measured figures with expectations.

use std::fmt;

use super::decided::{Decision, RuleTest};
use super::{CaseFigures, CountedFigures};
use record::expectation::{Criterion, Expectation, ExpectationKind, Trend};
use record::plan::{Case, Published};
use record::quantity;
use serde::Serialize;
use stats::deciding::BEYOND;
use stats::digits;
use stats::sample_summary::SampleSummary;

/// The verdict on an expectation, a case or a whole experiment, in order of gravity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The expectation is met, or there is none.
    Met,
    /// Runs are still to come, because the experiment was interrupted or is still running.
    Incomplete,
    /// The expectation is not met.
    NotMet,
    /// The machine did not keep up while it was measured, so the expectation is neither met nor not met.
    Invalid,
    /// A run failed, or did not measure the expected figure.
    Failed,
}

/// One expectation and the measured value, in words.
#[derive(Clone, Debug)]
pub struct ExpectationCheck {
    /// The expectation: "median ping gain 2.00 ms +- 0.15".
    pub(crate) expected: String,
    /// The measured value: "2.03 ms".
    pub(crate) measured: String,
    pub(crate) verdict: Verdict,
    pub(crate) kind: ExpectationKind,
    /// Whether the runs of all cases that it concerns count, so that a met expectation can be relied on.
    pub(crate) is_reliable: bool,
}

/// The state of the runs of a case and of the reference.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunsToJudge {
    pub(super) of_case: CaseRuns,
    /// Those of the reference; the case's own if there is none.
    pub(super) of_reference: CaseRuns,
}

/// The state of the runs of a case.
#[derive(Clone, Copy, Debug)]
pub(super) struct CaseRuns {
    /// Whether some are still to come.
    pub(super) are_pending: bool,
    /// Whether none failed, is missing, or is invalid and cannot be ignored.
    pub(super) are_reliable: bool,
}

impl RunsToJudge {
    /// Returns whether runs that `rule` needs are still to come.
    fn are_pending_for(self, rule: Criterion) -> bool {
        self.of_case.are_pending || (rule.is_relative() && self.of_reference.are_pending)
    }

    /// Returns whether the runs that `rule` needs are reliable.
    fn are_reliable_for(self, rule: Criterion) -> bool {
        self.of_case.are_reliable && (!rule.is_relative() || self.of_reference.are_reliable)
    }
}

/// Compares the figures of `case` with its expectations. If the machine spoilt its figure or
/// that of the reference, an expectation is neither met nor not met. A figure that was not measured has failed. If runs of
/// the case, or of the reference that a rule needs, are still to come, nothing is decided.
pub(super) fn checks(
    case: &Case,
    figures: CountedFigures<'_, '_>,
    reference: Option<CountedFigures<'_, '_>>,
    runs: RunsToJudge,
) -> Vec<ExpectationCheck> {
    let check = |expectation: &Expectation| {
        let (of, rule) = (&expectation.of, expectation.rule);
        let values = figures.values(of);
        let base = reference.and_then(|reference| reference.values(of));
        let over = expectation.judgement.over;
        let published = case.published.get(of);
        let centre = published.and_then(|published| published.over(over));
        let why_not = match values {
            None => figures.spoilt(of),
            Some(_) => {
                let needed = reference.filter(|_| rule.is_relative());
                let cause = needed.and_then(|reference| reference.spoilt(of));
                cause.map(|cause| format!("the reference is invalid: {cause}"))
            }
        };
        let question = values.and_then(|values| RuleTest::of_rule(rule, values, base, centre));
        let decision = question.map(|question| question.decide(expectation.judgement, BEYOND));
        ExpectationCheck {
            expected: expectation.to_string(),
            measured: match values {
                None => why_not.clone().unwrap_or("not measured".to_owned()),
                Some(values) => {
                    let own = measured(expectation, values, base, published, decision);
                    let beside = why_not.as_ref().map(|why_not| format!("{own} ({why_not})"));
                    beside.unwrap_or(own)
                }
            },
            verdict: match why_not {
                _ if runs.are_pending_for(rule) => Verdict::Incomplete,
                Some(_) => Verdict::Invalid,
                None => decision.map_or(Verdict::Failed, Verdict::of),
            },
            kind: expectation.kind(base.and_then(|base| over.of(base))),
            is_reliable: runs.are_reliable_for(rule),
        }
    };
    case.expect.iter().map(check).collect()
}

/// Compares the figures of several cases with the trends.
pub(super) fn trends(trends: &[Trend], cases: &[CaseFigures<'_>]) -> Vec<ExpectationCheck> {
    let check = |trend: &Trend| {
        let own = || cases.iter().filter(|c| trend.cases.contains(&c.case.name));
        let has_pending_runs = own().any(|figures| figures.has_pending_runs);
        let values = values_of(trend, cases);
        let without = own().filter(|case| case.counted().values(&trend.of).is_none());
        let causes: Option<Vec<String>> = without
            .map(|figures| {
                let cause = figures.counted().spoilt(&trend.of)?;
                Some(format!("{}: {cause}", figures.words()))
            })
            .collect();
        let why_not = causes.and_then(|causes| causes.into_iter().next());
        let decisions = values.as_ref().map(|values| steps(trend, values));
        let words = |(values, decisions): (&Vec<&[f64]>, &Vec<Decision>)| {
            let centres = values
                .iter()
                .filter_map(|values| trend.judgement.over.of(values));
            let own: Vec<_> = centres
                .map(|value| quantity(trend.of.metric, value))
                .collect();
            let beside: Vec<_> = decisions.iter().filter_map(interval_words).collect();
            match beside[..] {
                [] => own.join(", "),
                _ => format!(
                    "{} (each compared with the one before, {}: {})",
                    own.join(", "),
                    percent(trend.beyond()),
                    beside.join(", ")
                ),
            }
        };
        ExpectationCheck {
            expected: trend.to_string(),
            measured: values
                .as_ref()
                .zip(decisions.as_ref())
                .map(words)
                .or(why_not.clone())
                .unwrap_or("not measured".to_owned()),
            verdict: match decisions {
                _ if has_pending_runs => Verdict::Incomplete,
                None if why_not.is_some() => Verdict::Invalid,
                None => Verdict::Failed,
                Some(decisions) => Verdict::of_all(decisions.into_iter().map(Verdict::of)),
            },
            kind: trend.kind(),
            is_reliable: own().all(CaseFigures::is_reliable),
        }
    };
    trends.iter().map(check).collect()
}

/// Returns the values of each of the trend's cases; `None` if one of them has none.
pub(super) fn values_of<'c>(trend: &Trend, cases: &'c [CaseFigures<'_>]) -> Option<Vec<&'c [f64]>> {
    let of = |name: &String| {
        let case = cases.iter().find(|figures| figures.case.name == *name)?;
        case.counted().values(&trend.of)
    };
    trend.cases.iter().map(of).collect()
}

/// Compares each case of a trend with the one before.
pub(super) fn steps<V: AsRef<[f64]>>(trend: &Trend, values: &[V]) -> Vec<Decision> {
    let step = |pair: &[V]| {
        let question = RuleTest::of_step(trend.way, pair[0].as_ref(), pair[1].as_ref());
        question.decide(trend.judgement, trend.beyond())
    };
    values.windows(2).map(step).collect()
}

/// Describes the measured value, its relation to the value it is compared with, and the interval that decided.
fn measured(
    expectation: &Expectation,
    values: &[f64],
    base: Option<&[f64]>,
    published: Option<&Published>,
    decision: Option<Decision>,
) -> String {
    let Expectation {
        of,
        rule,
        judgement,
        ..
    } = expectation;
    let Some(value) = judgement.over.of(values) else {
        return "not measured".to_owned();
    };
    let base = base.and_then(|base| judgement.over.of(base));
    let beside = match rule {
        Criterion::Range { .. } | Criterion::Value { .. } => None,
        Criterion::Gain { .. } => base.map(|base| digits::signed(value - base, 3)),
        Criterion::Ratio { .. } | Criterion::RatioRange { .. } => {
            base.map(|base| format!("{:.3} times", value / base))
        }
        Criterion::Published { .. } | Criterion::PublishedFactor { .. } => {
            let published = published.and_then(|published| published.over(judgement.over));
            published.map(|published| {
                let percent = 100.0 * (value / published - 1.0);
                format!("{} %", digits::signed(percent, 1))
            })
        }
        Criterion::Spread { .. } => {
            let published = published
                .and_then(|published| Some(published.runs()?.1))
                .and_then(|summary| spread_words(&summary));
            published.map(|words| format!("published: {words}"))
        }
    };
    let interval = decision
        .and_then(|decision| match (decision, rule.is_relative()) {
            (
                Decision::Decided {
                    interval: Some([low, high]),
                    ..
                },
                false,
            ) => Some(format!(
                "{} to {}",
                quantity(of.metric, low),
                quantity(of.metric, high)
            )),
            _ => interval_words(&decision),
        })
        .map(|words| format!("{}: {words}", percent(BEYOND)));
    let own = match rule {
        Criterion::Spread { .. } => {
            SampleSummary::of(values).and_then(|summary| spread_words(&summary))
        }
        _ => None,
    };
    let own = own.unwrap_or_else(|| quantity(of.metric, value));
    let beside: Vec<String> = beside.into_iter().chain(interval).collect();
    match beside[..] {
        [] => own,
        _ => format!("{own} ({})", beside.join("; ")),
    }
}

/// Formats the spread in percent of the median: "17.32 %".
fn spread_words(summary: &SampleSummary) -> Option<String> {
    Some(format!("{:.2} %", summary.spread()? * 100.0))
}

/// Formats the interval that decided, or the reason why there is none.
fn interval_words(decision: &Decision) -> Option<String> {
    match decision {
        Decision::Decided { interval, .. } => {
            interval.map(|[low, high]| format!("{low:.3} to {high:.3}"))
        }
        Decision::TooFew => Some("too few runs".to_owned()),
        Decision::NoRatio => Some("a ratio needs values above 0".to_owned()),
    }
}

/// Formats the share of experiments whose interval contains the truth: "99.9 %".
fn percent(beyond: u32) -> String {
    let percent = 100.0 - 200.0 / f64::from(beyond);
    format!("{} %", (percent * 1000.0).round() / 1000.0)
}

impl ExpectationCheck {
    /// Returns the verdict in words: that of a met expectation which cannot be relied on says so.
    pub(crate) fn verdict_in_words(&self) -> String {
        match self.verdict {
            Verdict::Met if !self.is_reliable => "met, but not reliable".to_owned(),
            verdict => verdict.to_string(),
        }
    }
}

impl Verdict {
    /// Returns the gravest of the verdicts.
    pub(crate) fn of_all(verdicts: impl IntoIterator<Item = Self>) -> Self {
        verdicts.into_iter().max().unwrap_or(Self::Met)
    }

    /// Returns the verdict of a decision. Too few runs make it neither met nor not met.
    fn of(decision: Decision) -> Self {
        match decision {
            Decision::Decided { met: true, .. } => Self::Met,
            Decision::Decided { met: false, .. } => Self::NotMet,
            Decision::TooFew => Self::Invalid,
            Decision::NoRatio => Self::Failed,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Met => "met",
            Self::Incomplete => "incomplete",
            Self::NotMet => "NOT MET",
            Self::Invalid => "INVALID",
            Self::Failed => "FAILED",
        })
    }
}
