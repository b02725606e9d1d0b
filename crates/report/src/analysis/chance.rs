//! Estimates how often chance alone would make a rule end with NOT MET, by simulating the recorded experiment many
//! times.
//!
//! Each simulated experiment has as many runs as the record. If all recorded values are above 0, its values are drawn
//! from the normal distribution with the mean and the standard deviation of their logarithms (B. Efron and R. J.
//! Tibshirani, "An Introduction to the Bootstrap", 1993, §6.5), so that they can lie beyond the few observed ones.
//! Otherwise they are drawn from the recorded values themselves, and never lie beyond them.

use super::decided::{Decision, RuleTest};
use super::verdict::{steps, values_of};
use super::{Analysis, CaseFigures};
use stats::deciding::{BEYOND, above_zero};
use stats::t_interval::{mean, sample_sd};

/// Number of simulated experiments per rule.
pub(crate) const DRAWS: usize = 10_000;
/// Fewest runs from which their scatter is estimated.
const FEWEST: usize = 5;
const SEED: u64 = 1;

/// A rule, and how often it would end with NOT MET.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FalseAlarms<'a> {
    /// The case; absent for trends.
    pub(crate) case: Option<&'a str>,
    /// The rule in words.
    pub(crate) rule: String,
    /// Number of runs of the case with the fewest.
    pub(crate) runs: usize,
    /// Number of the [`DRAWS`] experiments in which the rule is not met.
    pub(crate) not_met: usize,
    /// Whether values were drawn from the recorded values themselves.
    pub(crate) from_values: bool,
}

/// Returns the result for every rule and trend whose cases all have at least five runs.
pub(crate) fn false_alarms<'a>(analysis: &Analysis<'a>) -> Vec<FalseAlarms<'a>> {
    let reference = analysis
        .record
        .plan()
        .reference
        .as_deref()
        .and_then(|name| analysis.case(name));
    let own = analysis
        .cases
        .iter()
        .flat_map(|figures| of_case(figures, reference));
    own.chain(of_trends(analysis)).collect()
}

fn of_case<'a>(
    figures: &CaseFigures<'a>,
    reference: Option<&CaseFigures<'a>>,
) -> Vec<FalseAlarms<'a>> {
    let case = figures.case;
    let alarms = case.expect.iter().filter_map(|expectation| {
        let (of, rule) = (&expectation.of, expectation.rule);
        let base = reference
            .filter(|_| rule.is_relative())
            .and_then(|reference| reference.counted().values(of));
        let samples: Vec<_> = [figures.counted().values(of), base]
            .into_iter()
            .flatten()
            .collect();
        let published = case
            .published
            .get(of)
            .and_then(|known| known.over(expectation.judgement.over));
        let decide = |drawn: &[Vec<f64>]| {
            let base = drawn.get(1).map(Vec::as_slice);
            let question = RuleTest::of_rule(rule, &drawn[0], base, published);
            let decision = question.map(|question| question.decide(expectation.judgement, BEYOND));
            decision.into_iter().collect()
        };
        FalseAlarms::of(Some(&case.name), expectation.to_string(), &samples, decide)
    });
    alarms.collect()
}

fn of_trends<'a>(analysis: &Analysis<'a>) -> impl Iterator<Item = FalseAlarms<'a>> {
    let trends = analysis.record.plan().trends.iter();
    trends.filter_map(|trend| {
        let samples = values_of(trend, &analysis.cases)?;
        FalseAlarms::of(None, trend.to_string(), &samples, |drawn| {
            steps(trend, drawn)
        })
    })
}

impl<'a> FalseAlarms<'a> {
    /// Returns the result, or `None` if there are too few runs or the recorded runs decide nothing.
    fn of(
        case: Option<&'a str>,
        rule: String,
        samples: &[&[f64]],
        decide: impl Fn(&[Vec<f64>]) -> Vec<Decision>,
    ) -> Option<Self> {
        let runs = samples.iter().map(|values| values.len()).min()?;
        let recorded: Vec<Vec<f64>> = samples.iter().map(|values| values.to_vec()).collect();
        let is_decided = |one: &Decision| matches!(one, Decision::Decided { .. });
        if runs < FEWEST || !decide(&recorded).iter().all(is_decided) {
            return None;
        }
        let sources: Vec<Source<'_>> = samples.iter().map(|values| Source::of(values)).collect();
        let mut random = fastrand::Rng::with_seed(SEED);
        let mut draw = || -> Vec<_> { sources.iter().map(|one| one.draw(&mut random)).collect() };
        let is_unmet = |one: &Decision| matches!(one, Decision::Decided { met: false, .. });
        let not_met = (0..DRAWS).filter(|_| decide(&draw()).iter().any(is_unmet));
        Some(Self {
            case,
            rule,
            runs,
            not_met: not_met.count(),
            from_values: sources.iter().any(|one| matches!(one, Source::Values(_))),
        })
    }
}

/// The distribution from which experiments are drawn.
enum Source<'a> {
    /// The normal distribution of the logarithms.
    Normal {
        mean: f64,
        sd: f64,
        runs: usize,
    },
    Values(&'a [f64]),
}

impl<'a> Source<'a> {
    fn of(values: &'a [f64]) -> Self {
        let logarithms: Vec<f64> = values.iter().map(|value| value.ln()).collect();
        match (mean(&logarithms), sample_sd(&logarithms)) {
            (Some(mean), Some(sd)) if above_zero(values) => Self::Normal {
                mean,
                sd,
                runs: values.len(),
            },
            _ => Self::Values(values),
        }
    }

    fn draw(&self, random: &mut fastrand::Rng) -> Vec<f64> {
        match self {
            Self::Normal { mean, sd, runs } => {
                let draw = |_| (mean + sd * normal(random)).exp();
                (0..*runs).map(draw).collect()
            }
            Self::Values(values) => {
                let draw = |_| values[random.usize(..values.len())];
                (0..values.len()).map(draw).collect()
            }
        }
    }
}

/// Draws a value of the standard normal distribution (G. E. P. Box and M. E. Muller, 1958).
pub(super) fn normal(random: &mut fastrand::Rng) -> f64 {
    let (radius, angle) = (1.0 - random.f64(), random.f64());
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Verdict;
    use crate::analysis::tests::{draws, record};
    use record::Record;
    use record::expectation::{Criterion, Expectation, Judgement, Met, Trend, TrendWay};
    use record::figure_name::FigureName;
    use record::plan::Repeats;
    use stats::deciding::Centre;

    const UNLESS_CONTRADICTED: Judgement = Judgement {
        over: Centre::Mean,
        met: Met::UnlessContradicted,
    };
    const WHEN_SHOWN: Judgement = Judgement {
        over: Centre::Mean,
        met: Met::WhenShown,
    };

    fn goodput() -> FigureName {
        "download.goodput_bit_per_s.mean".parse().unwrap()
    }

    /// A record with a case for each list of values, one per run, without rules.
    fn of(cases: &[Vec<f64>]) -> Record {
        let mut record = record();
        let (mut case, mut run) = (record.head.plan.cases[0].clone(), record.runs[0].clone());
        case.expect.clear();
        run.measurements.remove(0);
        record.runs.clear();
        record.head.plan.cases.clear();
        record.head.plan.trends.clear();
        record.head.plan.reference = None;
        for (number, values) in (1..).zip(cases) {
            case.name = format!("case{number}");
            case.repeats = Repeats::fixed(u32::try_from(values.len()).unwrap());
            for (repeat, value) in (1..).zip(values) {
                (run.case, run.repeat) = (case.name.clone(), repeat);
                run.measurements[0].measurement.figures[0].value = *value;
                record.runs.push(run.clone());
            }
            record.head.plan.cases.push(case.clone());
        }
        record
    }

    fn falls(record: &mut Record, judgement: Judgement) {
        let cases = record.head.plan.cases.iter();
        record.head.plan.trends = vec![Trend {
            of: goodput(),
            cases: cases.map(|case| case.name.clone()).collect(),
            way: TrendWay::Falling,
            judgement,
            fitted: false,
        }];
    }

    /// Goodputs around each of these values, whose logarithms scatter by `sd`.
    fn drawn(middles: &[f64], sd: f64, runs: usize, seed: u64) -> Vec<Vec<f64>> {
        // Successive seeds would give correlated draws.
        let draws = draws(
            seed.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            middles.len() * runs,
        );
        draws
            .chunks(runs)
            .zip(middles)
            .map(|(draws, middle)| {
                draws
                    .iter()
                    .map(|draw| middle * (sd * draw).exp())
                    .collect()
            })
            .collect()
    }

    /// Returns in how many of these experiments the trend is met, and in how many it is not.
    fn verdicts(middles: &[f64], judgement: Judgement, experiments: u64) -> [usize; 2] {
        let mut record = of(&drawn(middles, 0.3, 5, 0));
        falls(&mut record, judgement);
        let mut found = [0, 0];
        for seed in 0..experiments {
            let values = drawn(middles, 0.3, 5, seed).concat();
            for (run, value) in record.runs.iter_mut().zip(values) {
                run.measurements[0].measurement.figures[0].value = value;
            }
            match Analysis::of(&record).verdict {
                Verdict::Met => found[0] += 1,
                Verdict::NotMet => found[1] += 1,
                other => panic!("{other}"),
            }
        }
        found
    }

    #[test]
    fn equal_cases_contradict_a_trend_in_fewer_than_one_in_a_thousand_experiments() {
        let [_, not_met] = verdicts(&[1e8, 1e8, 1e8], UNLESS_CONTRADICTED, 20_000);
        assert!(not_met < 20, "{not_met}");
        // By value, a trend of three equal cases is met in one experiment of six.
        let [met, _] = verdicts(&[1e8, 1e8, 1e8], Judgement::default(), 1_000);
        assert!((120..220).contains(&met), "{met}");
    }

    #[test]
    fn an_effect_of_six_times_the_scatter_is_found() {
        // exp(6 * 0.3) = 6.05.
        let [met, _] = verdicts(&[6.05e8, 1e8], WHEN_SHOWN, 1_000);
        assert!(met >= 900, "{met}");
        let [_, not_met] = verdicts(&[1e8, 6.05e8], UNLESS_CONTRADICTED, 1_000);
        assert!(not_met >= 900, "{not_met}");
        let [met, _] = verdicts(&[1e8, 1e8], WHEN_SHOWN, 5_000);
        assert!(met <= 5, "{met}");
    }

    fn not_met(record: &Record) -> Vec<(usize, bool)> {
        let alarms = false_alarms(&Analysis::of(record));
        alarms
            .iter()
            .map(|one| (one.not_met, one.from_values))
            .collect()
    }

    #[test]
    fn the_share_is_that_of_the_normal_distribution_of_the_logarithms() {
        // The logarithms of the five values have a mean of 0 and a standard deviation of 0.1. The mean lies above
        // exp(0.1 * 1.645 / sqrt(5)) in one experiment of twenty.
        let unit = [-2.0, -1.0, 0.0, 1.0, 2.0];
        let values = unit.map(|value: f64| (0.1 * value / 2.5_f64.sqrt()).exp());
        let mut record = of(&[values.to_vec()]);
        let most = (0.1 * 1.645 / 5.0_f64.sqrt()).exp();
        let rule = Criterion::Range {
            least: None,
            most: Some(most),
        };
        let expect = |judgement| Expectation {
            of: goodput(),
            rule,
            judgement,
            fitted: false,
        };
        record.head.plan.cases[0].expect =
            vec![expect(Judgement::default()), expect(UNLESS_CONTRADICTED)];
        let [(by_value, false), (contradicted, false)] = not_met(&record)[..] else {
            panic!("{:?}", not_met(&record));
        };
        assert!((430..620).contains(&by_value), "{by_value}");
        assert!(contradicted <= 3, "{contradicted}");
        // The draws are the same each time.
        assert_eq!(not_met(&record), not_met(&record));
    }

    #[test]
    fn values_without_a_logarithm_are_resampled() {
        // One of five values is 10. The mean of five draws is 0 in 0.8^5 of experiments, which is 33 %.
        let mut record = of(&[vec![0.0, 0.0, 0.0, 0.0, 10.0]]);
        record.head.plan.cases[0].expect = vec![Expectation {
            of: goodput(),
            rule: Criterion::Range {
                least: Some(1.0),
                most: None,
            },
            judgement: Judgement::default(),
            fitted: false,
        }];
        let [(share, true)] = not_met(&record)[..] else {
            panic!("{:?}", not_met(&record));
        };
        assert!((3_077..3_477).contains(&share), "{share}");
    }

    #[test]
    fn trends_are_drawn_case_by_case_and_need_enough_runs() {
        let mut record = of(&drawn(&[2e8, 1e8, 1e8], 0.1, 5, 1));
        falls(&mut record, Judgement::default());
        let [(by_value, false)] = not_met(&record)[..] else {
            panic!("{:?}", not_met(&record));
        };
        assert!(by_value > 500, "{by_value}");
        falls(&mut record, UNLESS_CONTRADICTED);
        assert!(not_met(&record)[0].0 <= 10);
        record.runs.remove(0);
        assert_eq!(not_met(&record), []);
        // A trend is not decided by them, either.
        assert_eq!(Analysis::of(&record).trends[0].verdict, Verdict::Invalid);
        let measured = &Analysis::of(&record).trends[0].measured;
        assert!(measured.contains("too few runs"), "{measured}");
    }
}
