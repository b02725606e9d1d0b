//! Decides whether the figures of several runs meet a rule.

use record::expectation::{Criterion, FEWEST_FOR_SPREAD, Judgement, Met, TrendWay};
use stats::deciding::{Centre, above_zero};
use stats::sample_summary::SampleSummary;

/// A quantity that a rule compares with a range.
#[derive(Clone, Copy, Debug)]
pub(super) struct RuleTest<'a> {
    tested: TestedValue,
    /// The values of the figure, one per run.
    values: &'a [f64],
    /// The values of the reference; empty if the rule needs none.
    base: &'a [f64],
    /// The required range, both ends included.
    asked: [f64; 2],
}

#[derive(Clone, Copy, Debug)]
enum TestedValue {
    Value,
    /// Difference from the reference.
    Difference,
    /// Quotient of the value and the reference.
    Ratio,
    /// Spread of the runs in percent of their median.
    Spread,
}

/// The result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Decision {
    Decided {
        met: bool,
        /// The interval that decided; absent if the value itself did.
        interval: Option<[f64; 2]>,
    },
    /// There are too few runs for an interval.
    TooFew,
    /// Not all values are above 0, so there is no ratio.
    NoRatio,
}

impl<'a> RuleTest<'a> {
    /// Returns the comparison that `rule` requires; `None` if the reference or the published value is missing.
    pub(super) fn of_rule(
        rule: Criterion,
        values: &'a [f64],
        base: Option<&'a [f64]>,
        published: Option<f64>,
    ) -> Option<Self> {
        let about = |middle: f64, within: f64| [middle - within, middle + within];
        let between = |least: Option<f64>, most: Option<f64>| {
            let (lowest, highest) = (f64::NEG_INFINITY, f64::INFINITY);
            [least.unwrap_or(lowest), most.unwrap_or(highest)]
        };
        let (tested, asked) = match rule {
            Criterion::Range { least, most } => (TestedValue::Value, between(least, most)),
            Criterion::Spread { least, most } => (TestedValue::Spread, between(least, most)),
            Criterion::Value { value, within } => (TestedValue::Value, about(value, within)),
            Criterion::Gain { gain, within } => (TestedValue::Difference, about(gain, within)),
            Criterion::Ratio { ratio, within } => {
                (TestedValue::Ratio, about(ratio, ratio.abs() * within))
            }
            Criterion::RatioRange { least, most } => (TestedValue::Ratio, between(least, most)),
            Criterion::Published { within } => {
                let published = published?;
                (
                    TestedValue::Value,
                    about(published, published.abs() * within),
                )
            }
            Criterion::PublishedFactor { factor } => {
                let published = published?;
                (TestedValue::Value, [published / factor, published * factor])
            }
        };
        Some(Self {
            tested,
            values,
            base: if rule.is_relative() { base? } else { &[] },
            asked,
        })
    }

    /// Returns the comparison of a case with the one before that a trend requires.
    pub(super) fn of_step(way: TrendWay, before: &'a [f64], values: &'a [f64]) -> Self {
        let (tested, alike) = if above_zero(before) && above_zero(values) {
            (TestedValue::Ratio, 1.0_f64)
        } else {
            (TestedValue::Difference, 0.0)
        };
        Self {
            tested,
            values,
            base: before,
            asked: match way {
                TrendWay::Rising => [alike.next_up(), f64::INFINITY],
                TrendWay::Falling => [f64::NEG_INFINITY, alike.next_down()],
            },
        }
    }

    /// Decides the comparison by intervals of which the truth lies beyond one given end in one of `beyond` experiments.
    pub(super) fn decide(&self, judgement: Judgement, beyond: u32) -> Decision {
        let [least, most] = self.asked;
        let Judgement { over, met } = judgement;
        match self.tested {
            TestedValue::Spread if self.values.len() < FEWEST_FOR_SPREAD => {
                return Decision::TooFew;
            }
            TestedValue::Spread if !above_zero(self.values) => return Decision::NoRatio,
            _ => {}
        }
        if met == Met::ByValue {
            let met = self
                .value(over)
                .is_some_and(|value| (least..=most).contains(&value));
            return Decision::Decided {
                met,
                interval: None,
            };
        }
        let Some([low, high]) = self.interval(over, beyond) else {
            let above_zero = above_zero(self.values) && above_zero(self.base);
            return match self.tested {
                TestedValue::Ratio if !above_zero => Decision::NoRatio,
                _ => Decision::TooFew,
            };
        };
        Decision::Decided {
            met: match met {
                Met::WhenShown => low >= least && high <= most,
                Met::UnlessContradicted | Met::ByValue => low <= most && high >= least,
            },
            interval: Some([low, high]),
        }
    }

    /// Returns the tested value, in the unit of the range.
    fn value(&self, over: Centre) -> Option<f64> {
        let value = over.of(self.values)?;
        Some(match self.tested {
            TestedValue::Value => value,
            TestedValue::Difference => value - over.of(self.base)?,
            TestedValue::Ratio => value / over.of(self.base)?,
            TestedValue::Spread => SampleSummary::of(self.values)?.spread()? * 100.0,
        })
    }

    fn interval(&self, over: Centre, beyond: u32) -> Option<[f64; 2]> {
        match self.tested {
            TestedValue::Value => over.interval(self.values, beyond),
            TestedValue::Difference => over.difference(self.base, self.values, beyond),
            TestedValue::Ratio => over.ratio(self.base, self.values, beyond),
            TestedValue::Spread => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stats::deciding::BEYOND;

    const UNLESS_CONTRADICTED: Judgement = judgement(Centre::Mean, Met::UnlessContradicted);
    const WHEN_SHOWN: Judgement = judgement(Centre::Mean, Met::WhenShown);

    const fn judgement(over: Centre, met: Met) -> Judgement {
        Judgement { over, met }
    }

    /// Values around 100 that scatter by about 2 %; their 99.9 % interval is 93 to 107.
    const RUNS: [f64; 5] = [98.0, 99.0, 100.0, 101.0, 102.0];

    fn range(least: f64, most: f64) -> Criterion {
        Criterion::Range {
            least: Some(least),
            most: Some(most),
        }
    }

    const fn value(value: f64, within: f64) -> Criterion {
        Criterion::Value { value, within }
    }

    const fn gain(gain: f64, within: f64) -> Criterion {
        Criterion::Gain { gain, within }
    }

    const fn ratio(ratio: f64, within: f64) -> Criterion {
        Criterion::Ratio { ratio, within }
    }

    const fn at_least(times: f64) -> Criterion {
        Criterion::RatioRange {
            least: Some(times),
            most: None,
        }
    }

    const fn at_most(times: f64) -> Criterion {
        Criterion::RatioRange {
            least: None,
            most: Some(times),
        }
    }

    /// Returns the verdict on a case whose reference is half of it.
    fn is_met(rule: Criterion, values: &[f64], judgement: Judgement) -> bool {
        let base = RUNS.map(|value| value / 2.0);
        let question = RuleTest::of_rule(rule, values, Some(&base), Some(80.0)).unwrap();
        match question.decide(judgement, BEYOND) {
            Decision::Decided { met, interval } => {
                assert_eq!(interval.is_some(), judgement.met != Met::ByValue);
                met
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_rule_is_met_by_value_or_by_its_interval() {
        let by_value = Judgement::default();
        // The columns are by value, unless contradicted, and when shown.
        for (rule, expected) in [
            (range(90.0, 110.0), [true, true, true]),
            (range(99.0, 110.0), [true, true, false]),
            (range(101.0, 110.0), [false, true, false]),
            (range(90.0, 99.0), [false, true, false]),
            (range(108.0, 110.0), [false, false, false]),
            (range(80.0, 92.0), [false, false, false]),
            (value(104.0, 1.0), [false, true, false]),
            (value(110.0, 1.0), [false, false, false]),
            (gain(53.0, 1.0), [false, true, false]),
            (gain(50.0, 10.0), [true, true, true]),
            (gain(70.0, 10.0), [false, false, false]),
            (ratio(2.1, 0.01), [false, true, false]),
            (ratio(2.0, 0.1), [true, true, true]),
            (ratio(3.0, 0.1), [false, false, false]),
            // The value is twice the reference's, give or take a tenth.
            (at_least(1.5), [true, true, true]),
            (at_least(2.05), [false, true, false]),
            (at_least(3.0), [false, false, false]),
            (at_most(3.0), [true, true, true]),
            (at_most(1.95), [false, true, false]),
            (at_most(1.5), [false, false, false]),
            // The published value is 80.
            (Criterion::Published { within: 0.2 }, [false, true, false]),
            (Criterion::Published { within: 0.4 }, [true, true, true]),
            (Criterion::Published { within: 0.1 }, [false, false, false]),
            (
                Criterion::PublishedFactor { factor: 1.2 },
                [false, true, false],
            ),
            (
                Criterion::PublishedFactor { factor: 1.5 },
                [true, true, true],
            ),
            (
                Criterion::PublishedFactor { factor: 1.1 },
                [false, false, false],
            ),
        ] {
            let met = [by_value, UNLESS_CONTRADICTED, WHEN_SHOWN];
            assert_eq!(
                met.map(|how| is_met(rule, &RUNS, how)),
                expected,
                "{rule:?}"
            );
        }
    }

    #[test]
    fn a_spread_is_compared_in_percent_of_the_median() {
        let decide = |least, most, values: &[f64]| {
            let rule = Criterion::Spread { least, most };
            let question = RuleTest::of_rule(rule, values, None, None).unwrap();
            question.decide(Judgement::default(), BEYOND)
        };
        // The spread is 2 of 100 when one run at either end is left out.
        for (least, most, expected) in [
            (Some(1.0), Some(3.0), true),
            (Some(2.5), None, false),
            (None, Some(1.5), false),
        ] {
            let decided = Decision::Decided {
                met: expected,
                interval: None,
            };
            assert_eq!(decide(least, most, &RUNS), decided, "{least:?} {most:?}");
        }
        assert_eq!(decide(None, Some(5.0), &RUNS[1..]), Decision::TooFew);
        assert_eq!(decide(None, Some(5.0), &[0.0; 5]), Decision::NoRatio);
    }

    #[test]
    fn a_step_is_contradicted_only_by_an_interval_entirely_on_the_wrong_side() {
        let times = |factor: f64| RUNS.map(|value| value * factor);
        let falls =
            |values: &[f64], judgement| match RuleTest::of_step(TrendWay::Falling, &RUNS, values)
                .decide(judgement, BEYOND)
            {
                Decision::Decided { met, .. } => met,
                other => panic!("{other:?}"),
            };
        for (factor, expected) in [
            (0.8, [true, true, true]),
            (0.99, [true, true, false]),
            (1.0, [false, true, false]),
            (1.01, [false, true, false]),
            (1.2, [false, false, false]),
        ] {
            let met = [Judgement::default(), UNLESS_CONTRADICTED, WHEN_SHOWN];
            assert_eq!(
                met.map(|how| falls(&times(factor), how)),
                expected,
                "{factor}"
            );
        }
        let rises = RuleTest::of_step(TrendWay::Rising, &[0.0; 5], &[1.0; 5]);
        let interval = Some([1.0, 1.0]);
        let shown = Decision::Decided {
            met: true,
            interval,
        };
        assert_eq!(rises.decide(WHEN_SHOWN, BEYOND), shown);
    }

    #[test]
    fn the_median_ignores_one_outlier() {
        let runs = [100.0, 101.0, 99.0, 100.5, 500.0];
        let rule = range(95.0, 105.0);
        assert!(!is_met(rule, &runs, Judgement::default()));
        assert!(is_met(rule, &runs, judgement(Centre::Median, Met::ByValue)));
    }

    #[test]
    fn too_few_runs_decide_nothing() {
        let of = |values, judgement| {
            let question = RuleTest::of_rule(range(0.0, 1.0), values, None, None).unwrap();
            question.decide(judgement, BEYOND)
        };
        assert_eq!(of(&RUNS[1..], UNLESS_CONTRADICTED), Decision::TooFew);
        let by_median = judgement(Centre::Median, Met::UnlessContradicted);
        assert_eq!(of(&RUNS, by_median), Decision::TooFew);
        let ratio = ratio(1.0, 0.1);
        let question = RuleTest::of_rule(ratio, &RUNS, Some(&[0.0; 5]), None).unwrap();
        assert_eq!(
            question.decide(UNLESS_CONTRADICTED, BEYOND),
            Decision::NoRatio
        );
        assert!(RuleTest::of_rule(ratio, &RUNS, None, None).is_none());
        assert!(
            RuleTest::of_rule(Criterion::Published { within: 0.1 }, &RUNS, None, None).is_none()
        );
    }
}
