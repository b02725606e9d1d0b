//! Whether what was measured is what was expected.

use std::collections::BTreeMap;
use std::fmt;

use super::{Across, CaseFigures};
use record::expectation::{Expectation, Rule, Trend, TrendWay};
use record::figure_name::FigureName;
use record::plan::{Case, Published};
use record::quantity;

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
pub struct Check {
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
) -> Vec<Check> {
    let check = |expectation: &Expectation| {
        let of = &expectation.of;
        let value = value(figures, of);
        let base = reference.and_then(|reference| self::value(reference, of));
        let published = case.published.get(of).map(Published::mean);
        let why_not = match value {
            None => spoilt(of),
            Some(_) => None,
        };
        let met = value.and_then(|value| is_met(expectation.rule, value, base, published));
        Check {
            expected: expectation.to_string(),
            measured: match (value, expectation.rule) {
                (None, _) => why_not.clone().unwrap_or("not measured".to_owned()),
                (Some(value), rule) => measured(of, value, rule, base, published),
            },
            verdict: match expectation.rule {
                _ if to_come.of_case => Verdict::Incomplete,
                Rule::Gain { .. } | Rule::Ratio { .. } if to_come.of_reference => {
                    Verdict::Incomplete
                }
                _ if why_not.is_some() => Verdict::Invalid,
                _ => Verdict::when(met),
            },
        }
    };
    case.expect.iter().map(check).collect()
}

/// What is expected of several cases together.
pub(super) fn trends(trends: &[Trend], cases: &[CaseFigures<'_>]) -> Vec<Check> {
    let check = |trend: &Trend| {
        let of = |name: &String| {
            let case = cases.iter().find(|figures| figures.case.name == *name)?;
            value(&case.figures, &trend.of)
        };
        let values: Option<Vec<f64>> = trend.cases.iter().map(of).collect();
        let (way, in_order): (_, fn(f64, f64) -> bool) = match trend.way {
            TrendWay::Rising => ("rises", |a, b| a < b),
            TrendWay::Falling => ("falls", |a, b| a > b),
        };
        let mut own = cases.iter().filter(|c| trend.cases.contains(&c.case.name));
        let to_come = own.any(|figures| figures.to_come);
        let words = |values: &Vec<f64>| {
            let words = values.iter().map(|value| quantity(trend.of.metric, *value));
            words.collect::<Vec<_>>().join(", ")
        };
        Check {
            expected: format!("{} {way}: {}", trend.of, trend.cases.join(", ")),
            measured: values.as_ref().map_or("not measured".to_owned(), words),
            verdict: match to_come {
                true => Verdict::Incomplete,
                false => Verdict::when(
                    values.map(|values| values.windows(2).all(|pair| in_order(pair[0], pair[1]))),
                ),
            },
        }
    };
    trends.iter().map(check).collect()
}

/// The figure of this name across the runs; one that says no direction is also the only one of several directions.
pub(crate) fn value(figures: &Figures, of: &FigureName) -> Option<f64> {
    let found = figures.get(of).or_else(|| {
        let mut any = figures.iter().filter(|(name, _)| name.is_of(of));
        any.next()
            .filter(|_| any.next().is_none())
            .map(|(_, figure)| figure)
    });
    found.map(Across::value)
}

/// Absent where there is nothing to compare with.
fn is_met(rule: Rule, value: f64, base: Option<f64>, published: Option<f64>) -> Option<bool> {
    Some(match rule {
        Rule::Range { least, most } => {
            least.is_none_or(|least| value >= least) && most.is_none_or(|most| value <= most)
        }
        Rule::Value {
            value: expected,
            within,
        } => (value - expected).abs() <= within,
        Rule::Gain { gain, within } => (value - base? - gain).abs() <= within,
        Rule::Ratio { ratio, within } => (value / base? / ratio - 1.0).abs() <= within,
        Rule::Published { within } => (value / published? - 1.0).abs() <= within,
        Rule::PublishedFactor { factor } => (1.0 / factor..=factor).contains(&(value / published?)),
    })
}

/// The value, and how it stands to what it is compared with.
fn measured(
    of: &FigureName,
    value: f64,
    rule: Rule,
    base: Option<f64>,
    published: Option<f64>,
) -> String {
    let own = quantity(of.metric, value);
    let beside = match rule {
        Rule::Range { .. } | Rule::Value { .. } => None,
        Rule::Gain { .. } => base.map(|base| format!("{:+.3}", value - base)),
        Rule::Ratio { .. } => base.map(|base| format!("{:.3} times", value / base)),
        Rule::Published { .. } | Rule::PublishedFactor { .. } => {
            published.map(|published| format!("{:+.1} %", (value / published - 1.0) * 100.0))
        }
    };
    match beside {
        Some(beside) => format!("{own} ({beside})"),
        None => own,
    }
}

impl Verdict {
    /// The gravest of all.
    pub(crate) fn of_all(verdicts: impl IntoIterator<Item = Self>) -> Self {
        verdicts.into_iter().max().unwrap_or(Self::Met)
    }

    /// Whether it is met, or that it was not measured.
    fn when(met: Option<bool>) -> Self {
        match met {
            Some(true) => Self::Met,
            Some(false) => Self::NotMet,
            None => Self::Failed,
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
