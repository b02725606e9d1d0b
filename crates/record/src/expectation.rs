//! Rules that a scenario sets for its figures.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stats::deciding::{BEYOND, Centre};
use strum::{EnumIter, IntoStaticStr};

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
    pub rule: Criterion,
    /// The method of comparing the figures of the runs with the rule.
    #[serde(flatten)]
    pub judgement: Judgement,
    /// Whether the emulated conditions were fitted to the expected value.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub fitted: bool,
}

/// The weight of a met expectation as evidence about the emulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, IntoStaticStr, EnumIter)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ExpectationKind {
    /// The figure could have missed the expected values, and nothing was fitted to them.
    Tested,
    /// The greatest expected value is more than [`LOOSE`] times the least, so that the figure could hardly miss them.
    Loose,
    /// The emulated conditions were chosen to produce the expected value. Meeting it proves nothing.
    Fitted,
}

/// The ratio of the greatest expected value to the least above which an expectation is loose.
pub const LOOSE: f64 = 1.5;

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

/// The evidence for which an expectation counts as met. The intervals contain the true value in 99.9 % of experiments
/// ([`stats::deciding`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Met {
    /// The value itself meets the expectation.
    #[default]
    ByValue,
    /// Some value in its interval meets the expectation.
    UnlessContradicted,
    /// All values in its interval meet the expectation.
    WhenShown,
}

/// The condition that a figure must meet, in its metric's unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Criterion {
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
    /// Whether the emulated conditions were fitted to the trend.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub fitted: bool,
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

impl Criterion {
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

    /// Returns the least and the greatest value that satisfy the rule, both in the same unit. There are none for a rule
    /// with one limit, which tests that limit, and for a gain if the reference case has no value.
    fn ends(self, reference: Option<f64>) -> Option<[f64; 2]> {
        let about = |middle: f64, within: f64| [middle - within, middle + within];
        match self {
            Self::Range { least, most }
            | Self::RatioRange { least, most }
            | Self::Spread { least, most } => Some([least?, most?]),
            Self::Value { value, within } => Some(about(value, within)),
            Self::Gain { gain, within } => Some(about(reference? + gain, within)),
            Self::Ratio { ratio, within } => Some(about(ratio, ratio.abs() * within)),
            Self::Published { within } => Some(about(1.0, within)),
            Self::PublishedFactor { factor } => Some([1.0 / factor, factor]),
        }
    }
}

impl ExpectationKind {
    /// Returns the name in reports and files.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Returns whether values that lie so far apart make a rule loose. Of values below 0, the one nearer to 0 counts as the
/// lesser.
fn are_loose([low, high]: [f64; 2]) -> bool {
    /// Tolerance for rounding errors: 20 % to either side are exactly a factor of 1.5.
    const ROUNDING: f64 = 1e-9;
    let has_both_signs = low < 0.0 && high > 0.0;
    let (near, far) = (low.abs().min(high.abs()), low.abs().max(high.abs()));
    has_both_signs || far > LOOSE * near * (1.0 + ROUNDING)
}

impl Expectation {
    /// Returns the number of runs that each case of the rule must have at least.
    pub fn fewest_runs(&self) -> usize {
        match self.rule {
            Criterion::Spread { .. } => FEWEST_FOR_SPREAD,
            rule => self.judgement.fewest_runs(rule.is_relative(), BEYOND),
        }
    }

    /// Returns the kind; that of a gain depends on the value of the `reference` case. An expectation that is both fitted
    /// and loose is fitted.
    pub fn kind(&self, reference: Option<f64>) -> ExpectationKind {
        if self.fitted {
            ExpectationKind::Fitted
        } else if self.rule.ends(reference).is_some_and(are_loose) {
            ExpectationKind::Loose
        } else {
            ExpectationKind::Tested
        }
    }
}

impl Trend {
    /// Returns the number of runs that each of its cases must have at least.
    pub fn fewest_runs(&self) -> usize {
        self.judgement.fewest_runs(true, self.beyond())
    }

    /// Returns the kind; a direction has no range and is therefore never loose.
    pub fn kind(&self) -> ExpectationKind {
        if self.fitted {
            ExpectationKind::Fitted
        } else {
            ExpectationKind::Tested
        }
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
            Criterion::Range { least, most } => {
                write!(f, "{} {unit}", between(least.map(shown), most.map(shown)))
            }
            Criterion::Value { value, within } => {
                write!(f, "{} ± {} {unit}", shown(value), shown(within))
            }
            Criterion::Gain { gain, within } => {
                let unit = if unit == "%" {
                    "percentage points"
                } else {
                    unit
                };
                let (gain, within) = (shown(gain), shown(within));
                write!(f, "the reference's value {gain:+} ± {within} {unit}")
            }
            Criterion::Ratio { ratio, within } => {
                write!(
                    f,
                    "{ratio} times the reference's value ± {} %",
                    within * 100.0
                )
            }
            Criterion::RatioRange { least, most } => {
                write!(f, "{} times the reference's value", between(least, most))
            }
            Criterion::Published { within } => {
                write!(f, "the published value ± {} %", within * 100.0)
            }
            Criterion::PublishedFactor { factor } => {
                write!(f, "the published value within a factor of {factor}")
            }
            Criterion::Spread { least, most } => {
                write!(
                    f,
                    "a spread over the runs of {} %, without the lowest and the highest run",
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

#[cfg(test)]
mod tests {
    use super::*;
    use strum::IntoEnumIterator as _;

    fn kind(rule: Criterion, reference: Option<f64>) -> ExpectationKind {
        let expectation = Expectation {
            of: "ping.rtt_ms.median".parse().unwrap(),
            rule,
            judgement: Judgement::default(),
            fitted: false,
        };
        expectation.kind(reference)
    }

    #[test]
    fn a_rule_is_loose_if_it_accepts_values_more_than_a_factor_of_1_5_apart() {
        use Criterion as Rule;
        use ExpectationKind::{Loose, Tested};
        let range = |least, most| Rule::Range {
            least: Some(least),
            most: Some(most),
        };
        let ratios = |least, most| Rule::RatioRange {
            least: Some(least),
            most: Some(most),
        };
        let spreads = |least, most| Rule::Spread {
            least: Some(least),
            most: Some(most),
        };
        for (rule, expected) in [
            (range(10.0, 15.0), Tested),
            (range(10.0, 15.1), Loose),
            (range(0.0, 0.0), Tested),
            (range(0.0, 33.6), Loose),
            (range(-15.0, -10.0), Tested),
            (range(-16.0, -10.0), Loose),
            (range(-1.0, 1.0), Loose),
            (ratios(3.0, 4.5), Tested),
            (ratios(3.0, 5.0), Loose),
            (spreads(5.0, 50.0), Loose),
            (
                Rule::Value {
                    value: 10.0,
                    within: 2.0,
                },
                Tested,
            ),
            (
                Rule::Value {
                    value: 10.0,
                    within: 2.1,
                },
                Loose,
            ),
            (
                Rule::Ratio {
                    ratio: 0.5,
                    within: 0.2,
                },
                Tested,
            ),
            (
                Rule::Ratio {
                    ratio: 0.5,
                    within: 0.21,
                },
                Loose,
            ),
            (Rule::Published { within: 0.2 }, Tested),
            (Rule::Published { within: 0.25 }, Loose),
            (Rule::PublishedFactor { factor: 1.2 }, Tested),
            (Rule::PublishedFactor { factor: 1.25 }, Loose),
        ] {
            assert_eq!(kind(rule, None), expected, "{rule:?}");
        }
    }

    #[test]
    fn a_rule_with_one_limit_tests_that_limit() {
        let (least, most) = (None, Some(350.0));
        for rule in [
            Criterion::Range { least, most },
            Criterion::RatioRange { least, most },
            Criterion::Spread { least, most },
        ] {
            assert_eq!(kind(rule, Some(1.0)), ExpectationKind::Tested);
        }
    }

    #[test]
    fn a_gain_is_as_narrow_as_the_values_that_it_accepts() {
        let gain = Criterion::Gain {
            gain: 0.0,
            within: 0.1,
        };
        assert_eq!(kind(gain, Some(1.7)), ExpectationKind::Tested);
        assert_eq!(kind(gain, Some(0.2)), ExpectationKind::Loose);
        assert_eq!(kind(gain, None), ExpectationKind::Tested);
    }

    #[test]
    fn a_fitted_rule_is_fitted_however_loose_and_is_read_back() {
        let loose = Expectation {
            of: "ping.rtt_ms.median".parse().unwrap(),
            rule: Criterion::PublishedFactor { factor: 6.0 },
            judgement: Judgement::default(),
            fitted: true,
        };
        assert_eq!(loose.kind(None), ExpectationKind::Fitted);
        let json = serde_json::to_value(&loose).unwrap();
        assert_eq!(json["fitted"], true);
        assert_eq!(serde_json::from_value::<Expectation>(json).unwrap(), loose);
        let tested = Expectation {
            fitted: false,
            ..loose
        };
        let json = serde_json::to_value(&tested).unwrap();
        assert_eq!(json.get("fitted"), None);
        assert_eq!(serde_json::from_value::<Expectation>(json).unwrap(), tested);
    }

    #[test]
    fn a_trend_is_fitted_or_tested() {
        let trend = |fitted| Trend {
            of: "ping.rtt_ms.median".parse().unwrap(),
            cases: vec!["a".to_owned(), "b".to_owned()],
            way: TrendWay::Rising,
            judgement: Judgement::default(),
            fitted,
        };
        assert_eq!(trend(false).kind(), ExpectationKind::Tested);
        assert_eq!(trend(true).kind(), ExpectationKind::Fitted);
    }

    #[test]
    fn a_kind_has_the_same_name_in_reports_and_files() {
        for kind in ExpectationKind::iter() {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }
}
