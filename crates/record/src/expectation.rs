//! Rules that a scenario sets for its figures.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stats::deciding::{BEYOND, Centre};

use super::figure_name::FigureName;
use super::quantity::scale_for;

/// Smallest number of runs for which a rule about their spread is accepted. With fewer, at most two runs remain when
/// the greatest and the least are left out, and two may agree by chance.
pub const FEWEST_FOR_SPREAD: usize = 5;

/// A rule for one figure of one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expectation {
    /// The figure.
    pub of: FigureName,
    /// The condition that the figure must meet.
    pub rule: ExpectationRule,
    /// The method of comparing the figures of the runs with the rule.
    #[serde(flatten)]
    pub judgement: Judgement,
}

/// The method by which the figures of several runs lead to a verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Judgement {
    /// The statistic over the runs that is compared with the rule.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub over: Centre,
    /// The evidence that the rule requires.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub met: Met,
}

/// The evidence for which a rule counts as met. The intervals contain the true value in 99.9 % of experiments
/// ([`stats::deciding`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Met {
    /// The value itself satisfies the rule.
    #[default]
    ByValue,
    /// Some value in its interval satisfies the rule.
    UnlessContradicted,
    /// All values in its interval satisfy the rule.
    WhenShown,
}

/// The condition that a figure must meet, in its metric's unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpectationRule {
    /// The value lies between these limits, both included; either may be open.
    Range {
        /// Lower limit; open when absent.
        least: Option<f64>,
        /// Upper limit; open when absent.
        most: Option<f64>,
    },
    /// The value differs from `value` by at most `within`.
    Value {
        /// Expected value, in the metric's unit.
        value: f64,
        /// Largest accepted difference, in the metric's unit.
        within: f64,
    },
    /// The difference from the reference case's value is `gain`, give or take `within`.
    Gain {
        /// Expected difference, in the metric's unit; negative for a decrease.
        gain: f64,
        /// Largest accepted deviation, in the metric's unit.
        within: f64,
    },
    /// The quotient of the value and that of the reference case is `ratio`, give or take the fraction `within`.
    Ratio {
        /// Expected quotient.
        ratio: f64,
        /// Largest accepted deviation as a fraction of the expected quotient: 0.05 for 5 %.
        within: f64,
    },
    /// The quotient of the value and that of the reference case lies between these limits, both included; either may be
    /// open.
    RatioRange {
        /// Lower limit; open when absent.
        least: Option<f64>,
        /// Upper limit; open when absent.
        most: Option<f64>,
    },
    /// The value differs from the published value by at most this fraction.
    Published {
        /// Largest accepted deviation as a fraction of the published value: 0.05 for 5 %.
        within: f64,
    },
    /// The value is at most this factor greater or smaller than the published value.
    PublishedFactor {
        /// The factor, above 1.
        factor: f64,
    },
    /// The spread of the runs lies between these limits, both included; either may be open. The spread is the
    /// difference between the greatest and the least run in percent of the median, after one run at either end is left
    /// out.
    Spread {
        /// Lower limit; open when absent.
        least: Option<f64>,
        /// Upper limit; open when absent.
        most: Option<f64>,
    },
}

/// A rule for one figure of several cases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trend {
    /// The figure.
    pub of: FigureName,
    /// Names of cases, in the order in which the figure must rise or fall.
    pub cases: Vec<String>,
    /// The direction of the trend.
    pub way: TrendWay,
    /// The method of comparing each case's figures with those of the case before.
    #[serde(flatten)]
    pub judgement: Judgement,
}

/// The direction in which a figure must change from one case to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrendWay {
    /// Each value is above the one before.
    Rising,
    /// Each value is below the one before.
    Falling,
}

impl ExpectationRule {
    /// Returns whether the rule refers to the reference case.
    pub fn is_relative(self) -> bool {
        matches!(
            self,
            Self::Gain { .. } | Self::Ratio { .. } | Self::RatioRange { .. }
        )
    }

    /// Returns the greatest value that the rule names, in the metric's unit, from which the unit of its text follows; 0
    /// for a rule that names none.
    fn greatest(self) -> f64 {
        match self {
            Self::Range { least, most } => most.or(least).unwrap_or(0.0),
            Self::Value { value, .. } => value,
            Self::Gain { gain, within } => gain.abs().max(within),
            _ => 0.0,
        }
    }

    /// Returns whether the rule needs a published value.
    pub fn is_of_the_published(self) -> bool {
        matches!(self, Self::Published { .. } | Self::PublishedFactor { .. })
    }
}

impl Expectation {
    /// Returns the number of runs that each case of the rule must have at least.
    pub fn fewest_runs(&self) -> usize {
        match self.rule {
            ExpectationRule::Spread { .. } => FEWEST_FOR_SPREAD,
            rule => self.judgement.fewest_runs(rule.is_relative(), BEYOND),
        }
    }
}

impl Trend {
    /// Returns the number of runs that each of its cases must have at least.
    pub fn fewest_runs(&self) -> usize {
        self.judgement.fewest_runs(true, self.beyond())
    }

    /// Returns the reciprocal of the error probability of each step: one experiment in this many has the true value of
    /// a step beyond one given end of its interval. Over all steps it is one in [`BEYOND`].
    pub fn beyond(&self) -> u32 {
        let steps = u32::try_from(self.cases.len().saturating_sub(1)).unwrap_or(u32::MAX);
        BEYOND.saturating_mul(steps)
    }
}

impl Judgement {
    fn fewest_runs(self, of_two: bool, beyond: u32) -> usize {
        match self.met {
            Met::ByValue => 1,
            Met::UnlessContradicted | Met::WhenShown => self.over.fewest(of_two, beyond),
        }
    }
}

/// Formats what follows the rule's text; the default judgement is an empty text.
impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.over {
            Centre::Mean => "",
            Centre::Median => ", for the median of the runs",
        })?;
        f.write_str(match self.met {
            Met::ByValue => "",
            Met::UnlessContradicted => ", unless contradicted",
            Met::WhenShown => ", when shown",
        })
    }
}

impl fmt::Display for Trend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = match self.way {
            TrendWay::Rising => "rises",
            TrendWay::Falling => "falls",
        };
        write!(
            f,
            "{} {way}: {}{}",
            self.of,
            self.cases.join(", "),
            self.judgement
        )
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (by, unit) = scale_for(self.of.metric, self.rule.greatest());
        let shown = |value: f64| value / by;
        write!(f, "{}: ", self.of)?;
        match self.rule {
            ExpectationRule::Range { least, most } => {
                write!(f, "{} {unit}", between(least.map(shown), most.map(shown)))
            }
            ExpectationRule::Value { value, within } => {
                write!(f, "{} ± {} {unit}", shown(value), shown(within))
            }
            ExpectationRule::Gain { gain, within } => {
                let unit = if unit == "%" {
                    "percentage points"
                } else {
                    unit
                };
                let (gain, within) = (shown(gain), shown(within));
                write!(f, "the reference's {gain:+} ± {within} {unit}")
            }
            ExpectationRule::Ratio { ratio, within } => {
                write!(f, "{ratio} times the reference's ± {} %", within * 100.0)
            }
            ExpectationRule::RatioRange { least, most } => {
                write!(f, "{} times the reference's", between(least, most))
            }
            ExpectationRule::Published { within } => {
                write!(f, "the published ± {} %", within * 100.0)
            }
            ExpectationRule::PublishedFactor { factor } => {
                write!(f, "the published within a factor of {factor}")
            }
            ExpectationRule::Spread { least, most } => {
                write!(
                    f,
                    "a spread over the runs, without the lowest and the highest, of {} %",
                    between(least, most)
                )
            }
        }?;
        write!(f, "{}", self.judgement)
    }
}

/// Formats a range: "1 to 2", "at least 1", "at most 2".
fn between(least: Option<f64>, most: Option<f64>) -> String {
    match (least, most) {
        (Some(least), Some(most)) => format!("{least} to {most}"),
        (Some(least), None) => format!("at least {least}"),
        (None, most) => format!("at most {}", most.unwrap_or(f64::INFINITY)),
    }
}
