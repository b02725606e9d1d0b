//! Whether what was measured is what was expected.

use std::collections::BTreeMap;
use std::fmt;

use super::decided::{Decision, RuleTest};
use super::{Across, CaseFigures};
use record::expectation::{Expectation, ExpectationRule, Trend};
use record::figure_name::FigureName;
use record::plan::{Case, Published};
use record::quantity;
use stats::deciding::BEYOND;
use stats::sample_summary::SampleSummary;

/// How an expectation, a case or a whole experiment stands; the later, the graver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// As expected, or nothing was expected.
    Met,
    /// Runs are still to come: the experiment was interrupted, or is under way.
    Incomplete,
    /// Measured, and not as expected.
    NotMet,
    /// Measured on a machine that did not keep up: neither met nor not.
    Invalid,
    /// A run failed, or did not measure what was expected of it.
    Failed,
}

/// One expectation beside what was measured, in words.
#[derive(Clone, Debug)]
pub struct ExpectationCheck {
    /// What is expected: "median ping gain 2.00 ms +- 0.15".
    pub(crate) expected: String,
    /// What was measured: "2.03 ms".
    pub(crate) measured: String,
    pub(crate) verdict: Verdict,
}

type Figures = BTreeMap<FigureName, Across>;

/// Whose runs are not all there yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct ToCome {
    pub(super) of_case: bool,
    pub(super) of_reference: bool,
}

/// Every expectation of `case` against its figures and those of the reference; what the machine spoilt (`spoilt` says why) is
/// neither met nor not, what was not measured has failed, but
/// where runs are still to come, of the case or for what is relative of the reference, nothing is decided.
pub(super) fn checks(
    case: &Case,
    figures: &Figures,
    reference: Option<&Figures>,
    to_come: ToCome,
    spoilt: &dyn Fn(&FigureName) -> Option<String>,
) -> Vec<ExpectationCheck> {
    let check = |expectation: &Expectation| {
        let (of, rule) = (&expectation.of, expectation.rule);
        let values = values(figures, of);
        let base = reference.and_then(|reference| self::values(reference, of));
        let over = expectation.judgement.over;
        let published = case.published.get(of);
        let centre = published.and_then(|published| published.over(over));
        let why_not = match values {
            None => spoilt(of),
            Some(_) => None,
        };
        let question = values.and_then(|values| RuleTest::of_rule(rule, values, base, centre));
        let decision = question.map(|question| question.decide(expectation.judgement, BEYOND));
        ExpectationCheck {
            expected: expectation.to_string(),
            measured: match values {
                None => why_not.clone().unwrap_or("not measured".to_owned()),
                Some(values) => measured(expectation, values, base, published, decision),
            },
            verdict: match why_not {
                _ if to_come.of_case => Verdict::Incomplete,
                _ if rule.is_relative() && to_come.of_reference => Verdict::Incomplete,
                Some(_) => Verdict::Invalid,
                None => decision.map_or(Verdict::Failed, Verdict::of),
            },
        }
    };
    case.expect.iter().map(check).collect()
}

/// What is expected of several cases together.
pub(super) fn trends(trends: &[Trend], cases: &[CaseFigures<'_>]) -> Vec<ExpectationCheck> {
    let check = |trend: &Trend| {
        let mut own = cases.iter().filter(|c| trend.cases.contains(&c.case.name));
        let to_come = own.any(|figures| figures.to_come);
        let values = values_of(trend, cases);
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
                .map_or("not measured".to_owned(), words),
            verdict: match (to_come, decisions) {
                (true, _) => Verdict::Incomplete,
                (false, None) => Verdict::Failed,
                (false, Some(decisions)) => Verdict::of_all(decisions.into_iter().map(Verdict::of)),
            },
        }
    };
    trends.iter().map(check).collect()
}

/// What the runs of each of the trend's cases say; nothing where one of them says nothing.
pub(super) fn values_of<'c>(trend: &Trend, cases: &'c [CaseFigures<'_>]) -> Option<Vec<&'c [f64]>> {
    let of = |name: &String| {
        let case = cases.iter().find(|figures| figures.case.name == *name)?;
        values(&case.figures, &trend.of)
    };
    trend.cases.iter().map(of).collect()
}

/// Each case of a trend against the one before.
pub(super) fn steps<V: AsRef<[f64]>>(trend: &Trend, values: &[V]) -> Vec<Decision> {
    let step = |pair: &[V]| {
        let question = RuleTest::of_step(trend.way, pair[0].as_ref(), pair[1].as_ref());
        question.decide(trend.judgement, trend.beyond())
    };
    values.windows(2).map(step).collect()
}

/// The figure of this name, one of each run; one that says no direction is also the only one of several directions.
pub(super) fn values<'f>(figures: &'f Figures, of: &FigureName) -> Option<&'f [f64]> {
    let found = figures.get(of).or_else(|| {
        let mut any = figures.iter().filter(|(name, _)| name.is_of(of));
        any.next()
            .filter(|_| any.next().is_none())
            .map(|(_, figure)| figure)
    });
    found.map(|figure| figure.values.as_slice())
}

/// What the runs say, how that stands to what it is compared with, and the interval that decided.
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
    } = expectation;
    let Some(value) = judgement.over.of(values) else {
        return "not measured".to_owned();
    };
    let base = base.and_then(|base| judgement.over.of(base));
    let beside = match rule {
        ExpectationRule::Range { .. } | ExpectationRule::Value { .. } => None,
        ExpectationRule::Gain { .. } => base.map(|base| format!("{:+.3}", value - base)),
        ExpectationRule::Ratio { .. } | ExpectationRule::RatioRange { .. } => {
            base.map(|base| format!("{:.3} times", value / base))
        }
        ExpectationRule::Published { .. } | ExpectationRule::PublishedFactor { .. } => {
            let published = published.and_then(|published| published.over(judgement.over));
            published.map(|published| format!("{:+.1} %", (value / published - 1.0) * 100.0))
        }
        ExpectationRule::Spread { .. } => {
            let published = published.and_then(|published| Some(published.runs()?.1));
            let published = published.and_then(|summary| spread_words(&summary));
            published.map(|words| format!("published: {words}"))
        }
    };
    let interval = decision.and_then(|decision| match (decision, rule.is_relative()) {
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
    });
    let interval = interval.map(|words| format!("{}: {words}", percent(BEYOND)));
    let own = match rule {
        ExpectationRule::Spread { .. } => {
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

/// From the least to the greatest in percent of the mean: "17.32 %".
fn spread_words(summary: &SampleSummary) -> Option<String> {
    Some(format!("{:.2} %", summary.spread()? * 100.0))
}

/// The interval that decided, as it is, or why there is none.
fn interval_words(decision: &Decision) -> Option<String> {
    match decision {
        Decision::Decided { interval, .. } => {
            interval.map(|[low, high]| format!("{low:.3} to {high:.3}"))
        }
        Decision::TooFew => Some("too few runs".to_owned()),
        Decision::NoRatio => Some("a ratio needs values above 0".to_owned()),
    }
}

/// How many experiments in a hundred have the truth in such an interval: "99.9 %".
fn percent(beyond: u32) -> String {
    let percent = 100.0 - 200.0 / f64::from(beyond);
    format!("{} %", (percent * 1000.0).round() / 1000.0)
}

impl Verdict {
    /// The gravest of all.
    pub(crate) fn of_all(verdicts: impl IntoIterator<Item = Self>) -> Self {
        verdicts.into_iter().max().unwrap_or(Self::Met)
    }

    /// What was decided; what too few runs say is neither met nor not.
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
