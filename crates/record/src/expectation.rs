//! What a scenario expects of its figures.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stats::deciding::{BEYOND, Centre};

use super::figure_name::FigureName;
use super::quantity::scale_for;

/// Fewer runs have no spread that a rule could be about: of two it is often none by chance.
pub const FEWEST_FOR_SPREAD: usize = 5;

/// A rule for one figure of one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expectation {
    /// The figure.
    pub of: FigureName,
    /// What it must be.
    pub rule: ExpectationRule,
    /// What of the runs is held against it.
    #[serde(flatten)]
    pub judgement: Judgement,
}

/// How the figures of several runs become a verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Judgement {
    /// What of the runs is held against the rule.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub over: Centre,
    /// How sure that must be.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub met: Met,
}

/// When a rule is met. Intervals hold the truth in 99.9 % of experiments ([`stats::deciding`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Met {
    /// The value itself is as the rule asks.
    #[default]
    ByValue,
    /// Something in its interval is.
    UnlessContradicted,
    /// All of its interval is.
    WhenShown,
}

/// What a figure must be, in its metric's unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpectationRule {
    /// Between these, both included; either may be open.
    Range {
        /// The lower end; open when absent.
        least: Option<f64>,
        /// The upper end; open when absent.
        most: Option<f64>,
    },
    /// This value, no further from it than `within`.
    Value {
        /// In the metric's unit.
        value: f64,
        /// In the metric's unit.
        within: f64,
    },
    /// This much more than in the reference case, no further from it than `within`.
    Gain {
        /// In the metric's unit; below 0 for less.
        gain: f64,
        /// In the metric's unit.
        within: f64,
    },
    /// This many times that of the reference case, no further from it than the fraction `within`.
    Ratio {
        /// How many times.
        ratio: f64,
        /// A fraction of what is expected: 0.05 for 5 %.
        within: f64,
    },
    /// Between so many times that of the reference case, both included; either may be open.
    RatioRange {
        /// How many times at least; open when absent.
        least: Option<f64>,
        /// How many times at most; open when absent.
        most: Option<f64>,
    },
    /// The published value, no further from it than this fraction.
    Published {
        /// Of the published value: 0.05 for 5 %.
        within: f64,
    },
    /// The published value, no further from it than this factor, up or down.
    PublishedFactor {
        /// Above 1.
        factor: f64,
    },
    /// Of the runs but the greatest and the least one, the greatest less the least in percent of the median, between these,
    /// both included; either may be open.
    Spread {
        /// The lower end; open when absent.
        least: Option<f64>,
        /// The upper end; open when absent.
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
    /// Which way it goes.
    pub way: TrendWay,
    /// What of the runs is held against it, each case against the one before.
    #[serde(flatten)]
    pub judgement: Judgement,
}

/// Which way a figure must go from one case to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrendWay {
    /// Each is above the one before.
    Rising,
    /// Each is below the one before.
    Falling,
}

impl ExpectationRule {
    /// Whether it needs the reference case.
    pub fn is_relative(self) -> bool {
        matches!(
            self,
            Self::Gain { .. } | Self::Ratio { .. } | Self::RatioRange { .. }
        )
    }

    /// The greatest amount that it names, in the metric's unit, which decides the unit for people; 0 of a rule that names none.
    fn greatest(self) -> f64 {
        match self {
            Self::Range { least, most } => most.or(least).unwrap_or(0.0),
            Self::Value { value, .. } => value,
            Self::Gain { gain, within } => gain.abs().max(within),
            _ => 0.0,
        }
    }

    /// Whether it needs a published value.
    pub fn is_of_the_published(self) -> bool {
        matches!(self, Self::Published { .. } | Self::PublishedFactor { .. })
    }
}

impl Expectation {
    /// How many runs each case that it speaks of must have.
    pub fn fewest_runs(&self) -> usize {
        match self.rule {
            ExpectationRule::Spread { .. } => FEWEST_FOR_SPREAD,
            rule => self.judgement.fewest_runs(rule.is_relative(), BEYOND),
        }
    }
}

impl Trend {
    /// How many runs each of its cases must have.
    pub fn fewest_runs(&self) -> usize {
        self.judgement.fewest_runs(true, self.beyond())
    }

    /// One experiment in so many has the truth of a step beyond an end of its interval: of all steps together one in
    /// [`BEYOND`].
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

/// What follows the rule: nothing by default.
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

/// A range in words: "1 to 2", "at least 1", "at most 2".
fn between(least: Option<f64>, most: Option<f64>) -> String {
    match (least, most) {
        (Some(least), Some(most)) => format!("{least} to {most}"),
        (Some(least), None) => format!("at least {least}"),
        (None, most) => format!("at most {}", most.unwrap_or(f64::INFINITY)),
    }
}
