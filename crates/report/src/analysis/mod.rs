//! Analysis of a record: the figures of each case, compared with the reference, with published values and with
//! expectations.

mod alike;
mod attempts;
pub(crate) mod baselines;
mod bottleneck;
pub(crate) mod bound;
pub mod calibration;
pub(crate) mod ceiling;
pub(crate) mod chance;
pub mod comparison_by;
mod decided;
mod expectation_counts;
pub(crate) mod field_comparison;
pub(crate) mod intervals;
pub(crate) mod key_figure;
mod left_out;
pub mod record_comparison;
pub(crate) mod sweep_comparison;
pub(crate) mod throughput;
pub(crate) mod verdict;

use std::collections::BTreeMap;

use crate::case_labels::CaseLabels;
use crate::interval::{ConfidenceInterval, IntervalScope};
use bottleneck::bottlenecks;
use record::figure_name::FigureName;
use record::plan::Case;
use record::{Latest, MOST_ATTEMPTS, Measurement, Metric, Record, Run, RunOutcome};
use stats::change::Change;
use stats::hodges_lehmann::Shift;
use stats::losses::Losses;
use stats::repeats;
use stats::sample_summary::SampleSummary;
use stats::t_interval;

pub(crate) use attempts::Attempts;
pub(crate) use bottleneck::ChainBottleneck;
pub(crate) use expectation_counts::ExpectationCounts;
pub(crate) use left_out::left_out;
use verdict::{CaseRuns, RunsToJudge};
pub use verdict::{ExpectationCheck, Verdict};

/// The analysis of a whole record.
#[derive(Clone, Debug)]
pub struct Analysis<'a> {
    pub(crate) record: &'a Record,
    /// The cases in the order of the plan.
    pub(crate) cases: Vec<CaseFigures<'a>>,
    /// Expectations about several cases together.
    pub(crate) trends: Vec<ExpectationCheck>,
    /// Bottlenecks of chains whose segments were measured.
    pub(crate) bottlenecks: Vec<ChainBottleneck>,
    /// The gravest of all verdicts.
    pub verdict: Verdict,
}

/// All runs of one case.
#[derive(Clone, Debug)]
pub(crate) struct CaseFigures<'a> {
    pub(crate) case: &'a Case,
    /// The words by which sentences and tables name the case ([`CaseLabels::words`]).
    words: String,
    /// The runs that count, which are the last attempts of each repeat, unless the machine spoilt those, too.
    pub(crate) runs: Vec<&'a Run>,
    /// The reason why none of them counts, if the machine spoilt all that took place.
    all_spoilt: Option<&'a str>,
    /// The figures over all streams.
    pub(crate) figures: BTreeMap<FigureName, FigureOverRuns>,
    pub(crate) checks: Vec<ExpectationCheck>,
    /// Runs that failed, are missing, or are invalid and too many to be ignored.
    pub(crate) faults: Vec<Fault>,
    /// Data that is ignored while the case as a whole counts: invalid runs, if they are few ([`FEW`]), and late figures
    /// of runs that otherwise count. Each entry names them and the cause.
    pub(crate) left_out: Vec<String>,
    /// Whether runs are missing because the experiment was interrupted or is still running.
    pub(crate) has_pending_runs: bool,
    pub(crate) attempts: Attempts,
    pub(crate) verdict: Verdict,
}

/// The runs of a case that count, and the valid figures over them.
#[derive(Clone, Copy)]
struct CountedFigures<'f, 'r> {
    runs: &'f [&'r Run],
    figures: &'f BTreeMap<FigureName, FigureOverRuns>,
    /// The reason why no run counts, if the machine spoilt all that took place.
    all_spoilt: Option<&'r str>,
}

/// A figure over the runs of a case.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FigureOverRuns {
    /// The values of the runs that count, in the order of the repeats.
    pub(crate) values: Vec<f64>,
    pub(crate) summary: SampleSummary,
    /// Whether a run has only a lower bound, so that the mean is one, too.
    pub(crate) at_least: bool,
    /// The 95 % confidence interval: Student's t over the runs; for a single run, the interval that it reports; for the
    /// figure that decided the number of runs, Stein's. Absent for a lower bound, and for runs that are all equal.
    pub(crate) interval: Option<ConfidenceInterval>,
    /// Whether a run has too few samples for the figure or for its interval.
    pub(crate) too_few: bool,
    /// The change of the mean from the reference case; absent for the reference, and without its figure.
    pub(crate) change: Option<Change>,
    /// The shift between the values of both cases; absent if the change is.
    pub(crate) shift: Option<Shift>,
}

/// A run that did not yield its figures.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fault {
    /// The verdict, which is neither [`Verdict::Met`] nor [`Verdict::NotMet`].
    pub(crate) verdict: Verdict,
    /// The run and the cause.
    pub(crate) text: String,
}

impl<'a> Analysis<'a> {
    /// Analyses `record`.
    pub fn of(record: &'a Record) -> Self {
        let plan = record.plan();
        let latest = record.latest();
        let reference = plan.reference.as_deref().and_then(|name| plan.case(name));
        let base = reference.map(|case| across(&latest, case));
        let base_runs: Vec<_> = reference
            .into_iter()
            .flat_map(|case| counted(&latest, case))
            .collect();
        let of_base = base.as_ref().map(|figures| CountedFigures {
            runs: &base_runs,
            figures,
            all_spoilt: reference.and_then(|case| all_spoilt(&latest, case)),
        });
        let has_pending_runs = |case: &Case| {
            let owed = |run: &Run| {
                matches!(run.outcome, RunOutcome::Invalid { .. }) && run.attempt < MOST_ATTEMPTS
            };
            let done = latest.runs(case).filter(|run| !owed(run)).count();
            // A run that a shard lacks belongs to another shard.
            let unfinished = record.finished_at.is_none() || plan.shard.is_some();
            unfinished && done < case.repeats.least as usize
        };
        let runs_of = |case: &Case| {
            let are_pending = has_pending_runs(case);
            let (faults, _) = faults(&latest, case, are_pending);
            CaseRuns {
                are_pending,
                are_reliable: faults.iter().all(Fault::is_of_pending_runs),
            }
        };
        let of_reference = reference.map(runs_of);
        let labels = CaseLabels::of_all(plan);
        let cases: Vec<_> = plan
            .cases
            .iter()
            .map(|case| {
                let mut figures = across(&latest, case);
                if let Some(base) = base.as_ref().filter(|_| reference != Some(case)) {
                    for (name, figure) in &mut figures {
                        let against = base.get(name).map(|base| &base.values);
                        figure.change =
                            against.and_then(|against| Change::of(against, &figure.values));
                        figure.shift =
                            against.and_then(|against| Shift::of(against, &figure.values));
                    }
                }
                let of_case = runs_of(case);
                let runs = RunsToJudge {
                    of_case,
                    of_reference: of_reference.unwrap_or(of_case),
                };
                let words = labels.words(case);
                let figures = CaseFigures::new(&latest, case, words, figures, of_case.are_pending);
                let checks = verdict::checks(case, figures.counted(), of_base, runs);
                figures.with_checks(checks)
            })
            .collect();
        let trends = verdict::trends(&plan.trends, &cases);
        let verdicts = cases.iter().map(|figures| figures.verdict);
        let verdict = Verdict::of_all(verdicts.chain(trends.iter().map(|check| check.verdict)));
        Self {
            record,
            bottlenecks: bottlenecks(&cases),
            cases,
            trends,
            verdict,
        }
    }

    /// Returns the expectations about single cases and those about several.
    pub(crate) fn checks(&self) -> impl Iterator<Item = &ExpectationCheck> {
        let cases = self.cases.iter().flat_map(|figures| &figures.checks);
        cases.chain(&self.trends)
    }

    /// Returns the case with which the others are compared.
    pub(crate) fn reference(&self) -> Option<&CaseFigures<'a>> {
        self.case(self.record.plan().reference.as_deref()?)
    }

    /// Returns the case of this name.
    pub(crate) fn case(&self, name: &str) -> Option<&CaseFigures<'a>> {
        self.cases.iter().find(|figures| figures.case.name == name)
    }
}

impl<'a> CaseFigures<'a> {
    /// Returns the runs that count, and the figures over them.
    fn counted(&self) -> CountedFigures<'_, 'a> {
        CountedFigures {
            runs: &self.runs,
            figures: &self.figures,
            all_spoilt: self.all_spoilt,
        }
    }

    /// Returns the figures of a case whose expectations are not compared yet.
    fn new(
        latest: &Latest<'a>,
        case: &'a Case,
        words: String,
        figures: BTreeMap<FigureName, FigureOverRuns>,
        has_pending_runs: bool,
    ) -> Self {
        let (faults, few) = faults(latest, case, has_pending_runs);
        let runs: Vec<_> = counted(latest, case).collect();
        let left_out = left_out::of_all(runs.iter().copied());
        Self {
            case,
            words,
            figures,
            checks: Vec::new(),
            verdict: Verdict::of_all(faults.iter().map(|fault| fault.verdict)),
            faults,
            left_out: few.into_iter().chain(left_out).collect(),
            has_pending_runs,
            attempts: Attempts::at(latest.runs(case)),
            runs,
            all_spoilt: all_spoilt(latest, case),
        }
    }

    /// Adds its expectations, which the verdict takes into account.
    fn with_checks(mut self, checks: Vec<ExpectationCheck>) -> Self {
        let verdicts = checks.iter().map(|check| check.verdict);
        self.verdict = Verdict::of_all(verdicts.chain([self.verdict]));
        self.checks = checks;
        self
    }
}

impl<'a> CaseFigures<'a> {
    /// Returns the name of the case, by which records and programs identify it.
    pub(crate) fn name(&self) -> &'a str {
        &self.case.name
    }

    /// Names the case for a reader, by the values of the swept fields if a sweep made it: "delay 10ms, loss 1%".
    pub(crate) fn words(&self) -> &str {
        &self.words
    }

    /// Returns whether no run failed, is missing although the experiment ended, or is invalid and cannot be ignored.
    pub(crate) fn is_reliable(&self) -> bool {
        self.faults.iter().all(Fault::is_of_pending_runs)
    }

    /// Returns the measurements of an instrument that count, each with the number of its repeat.
    pub(crate) fn measured(
        &self,
        instrument: &str,
    ) -> impl Iterator<Item = (u32, &'a Measurement)> {
        let runs = self.runs.iter();
        runs.filter_map(move |run| {
            let measured = run.measured(instrument)?;
            let is_valid = measured.invalid.is_none();
            is_valid.then_some((run.repeat, &measured.measurement))
        })
    }
}

impl Fault {
    /// Returns whether runs are merely still to come.
    fn is_of_pending_runs(&self) -> bool {
        self.verdict == Verdict::Incomplete
    }
}

impl FigureOverRuns {
    /// Returns the mean over the runs.
    pub(crate) fn value(&self) -> f64 {
        self.summary.mean
    }
}

impl<'f> CountedFigures<'f, '_> {
    /// Returns the values of a figure, one for each run in which it is valid. The measurement determines which figure a name without a
    /// direction denotes ([`FigureName::find`]), whichever of its figures are valid.
    fn values(self, of: &FigureName) -> Option<&'f [f64]> {
        let name = self.runs.iter().find_map(|run| {
            let measured = run.measured(&of.instrument)?;
            let figure = of.find(&measured.measurement)?;
            Some(FigureName::of(&of.instrument, figure))
        });
        let figure = self.figures.get(&name?)?;
        Some(figure.values.as_slice())
    }

    /// Returns the reason why no run has a valid figure of this name, if none has and the machine spoilt one.
    fn spoilt(self, of: &FigureName) -> Option<String> {
        if self.values(of).is_some() {
            return None;
        }
        let of_figure = self.runs.iter().find_map(|run| {
            let measured = run.measured(&of.instrument)?;
            run.spoilt(measured, of.find(&measured.measurement)?)
        });
        of_figure.or(self.all_spoilt.map(str::to_owned))
    }
}

/// Returns the runs of a case that count, which are the last attempts of each repeat, unless the machine spoilt all of
/// that, too. Figures of single instruments may still be invalid ([`Run::spoilt`]).
pub(crate) fn counted<'a>(latest: &Latest<'a>, case: &Case) -> impl Iterator<Item = &'a Run> {
    let runs = latest.runs(case);
    runs.filter(|run| run.spoilt_as_a_whole().is_none())
}

/// Returns the reason why no run of a case counts, if the machine spoilt all that took place.
fn all_spoilt<'a>(latest: &Latest<'a>, case: &Case) -> Option<&'a str> {
    let mut runs = latest.runs(case);
    let first = runs.next()?.spoilt_as_a_whole()?;
    runs.all(|run| run.spoilt_as_a_whole().is_some())
        .then_some(first)
}

/// The values of a figure in the runs of a case.
#[derive(Default)]
struct RunValues {
    values: Vec<f64>,
    /// Whether one of them is a lower bound.
    at_least: bool,
    /// The interval that the last run reports.
    interval: Option<[f64; 2]>,
    /// Whether one of them has too few samples.
    too_few: bool,
    /// The number of packets and losses of each run, from the runs that report it.
    losses: Vec<Losses>,
    /// The coarsest step to which one of them was rounded.
    resolution: Option<f64>,
}

/// Returns every figure of a case over all streams. A measurement that failed half-way has none.
fn across(latest: &Latest<'_>, case: &Case) -> BTreeMap<FigureName, FigureOverRuns> {
    let mut found: BTreeMap<FigureName, RunValues> = BTreeMap::new();
    let all = counted(latest, case).flat_map(|run| run.measurements.iter().map(move |m| (run, m)));
    for (run, measured) in all {
        let measurement = &measured.measurement;
        let whole = measurement.figures.iter().filter(|f| f.stream.is_none());
        let sound = whole.filter(|f| run.spoilt(measured, f).is_none());
        for figure in sound.filter(|_| measurement.failure.is_none()) {
            let name = FigureName::of(&measured.instrument, figure);
            let stated = found.entry(name).or_default();
            stated.values.push(figure.value);
            stated.at_least |= figure.is_open_above();
            stated.interval = figure.interval;
            stated.too_few |= figure.is_of_too_few();
            stated.losses.extend(figure.losses);
            stated.resolution = match (stated.resolution, figure.resolution) {
                (Some(one), Some(other)) => Some(one.max(other)),
                (one, other) => one.or(other),
            };
        }
    }
    let across = |(name, stated): (FigureName, RunValues)| {
        let summary = SampleSummary::of(&stated.values)?;
        let runs = stated.values.len();
        // A mean of rounded readings may be off by half a step, even if they are equal.
        let half = stated.resolution.map(|step| step / 2.0);
        let rounded = |[low, high]: [f64; 2]| match half {
            Some(half) => [(low - half).max(low.min(0.0)), high + half],
            None => [low, high],
        };
        let of_step = half.map(|_| [summary.mean; 2]);
        let own = stated
            .interval
            .or(of_step)
            .filter(|_| runs == 1)
            .map(rounded);
        // Shares of losses are pooled. The interval by Student's t could end below 0, and would have no width for runs
        // without losses.
        let over = if stated.losses.len() == runs && runs > 1 {
            Losses::interval_of_runs(&stated.losses).map(|ends| ends.map(|end| 100.0 * end))
        } else {
            let scattered = summary
                .interval
                .filter(|_| t_interval::differ(&stated.values));
            scattered
                .or(of_step.filter(|_| runs > 1))
                .map(|ends| within_limits(name.metric, rounded(ends)))
        };
        let over = over.map(|ends| (ends, IntervalScope::Runs(runs)));
        let interval = over
            .or(own.map(|ends| (ends, IntervalScope::TheRun)))
            .filter(|_| !stated.at_least);
        let across = FigureOverRuns {
            values: stated.values,
            summary,
            at_least: stated.at_least,
            interval: interval.map(|(ends, of)| ConfidenceInterval { ends, of }),
            too_few: stated.too_few,
            change: None,
            shift: None,
        };
        Some((name, across))
    };
    let mut found: BTreeMap<FigureName, FigureOverRuns> =
        found.into_iter().filter_map(across).collect();
    if let Some(narrow) = &case.repeats.until {
        let values = latest.deciding(case);
        let mut decided = found.iter_mut().filter(|(name, _)| name.is_of(&narrow.of));
        if let (Some((_, figure)), Some(interval)) =
            (decided.next(), repeats::mean_interval(&values))
        {
            figure.summary = SampleSummary::of(&values).unwrap_or(figure.summary.clone());
            figure.interval = t_interval::differ(&values).then_some(ConfidenceInterval {
                ends: interval,
                of: IntervalScope::Runs(values.len()),
            });
            figure.values = values;
        }
    }
    found
}

/// Restricts `ends` to the possible values of `metric`: 0 to 100 % for shares, and at least 0 for everything except
/// differences between two clocks.
fn within_limits(metric: Metric, [low, high]: [f64; 2]) -> [f64; 2] {
    let [least, most] = metric.limits();
    [low.max(least), high.min(most)]
}

/// Returns the main figures of a case over the runs so far.
pub(crate) fn headlines(latest: &Latest<'_>, case: &Case) -> BTreeMap<FigureName, FigureOverRuns> {
    let mut figures = across(latest, case);
    figures.retain(|name, _| {
        let own = case.instrument(&name.instrument);
        own.is_some_and(|i| i.profile.is_headline(name.metric, name.statistic))
    });
    figures
}

/// If at most one run in this many is invalid, the others represent the case. Rules check themselves whether the runs
/// suffice.
const FEW: usize = 5;

/// Returns the faults of a case's runs and, if few runs are invalid, descriptions of those, which then are not faults.
fn faults(latest: &Latest<'_>, case: &Case, has_pending_runs: bool) -> (Vec<Fault>, Vec<String>) {
    let runs: Vec<&Run> = latest.runs(case).collect();
    let mut faults = Vec::new();
    let mut invalid = Vec::new();
    for run in &runs {
        let number = run.repeat;
        match &run.outcome {
            RunOutcome::Ok => {}
            RunOutcome::Failed { cause } => faults.push(Fault {
                verdict: Verdict::Failed,
                text: format!("run {number} failed: {cause}"),
            }),
            RunOutcome::Invalid { cause } => invalid.push(Fault {
                verdict: if has_pending_runs && run.attempt < MOST_ATTEMPTS {
                    Verdict::Incomplete
                } else {
                    Verdict::Invalid
                },
                text: format!("run {number} is invalid: {cause}"),
            }),
        }
    }
    let mut few = Vec::new();
    if invalid.len() * FEW <= runs.len() && !has_pending_runs {
        few.extend(invalid.into_iter().map(|fault| fault.text));
    } else {
        faults.extend(invalid);
    }
    if runs.len() < case.repeats.least as usize {
        faults.push(Fault {
            verdict: if has_pending_runs {
                Verdict::Incomplete
            } else {
                Verdict::Failed
            },
            text: format!(
                "{} of {} took place",
                runs.len(),
                record::quantity::counted(case.repeats.least, "run")
            ),
        });
    }
    (faults, few)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use record::expectation::{Criterion, Expectation, Judgement};
    use record::lateness::{self, Departed, LatePackets};
    use record::plan::{Narrow, Published, Repeats};
    use record::{Direction, Figure, Sample, Statistic};
    use stats::deciding::Centre;

    fn downloaded(rate: f64) -> Measurement {
        let sample =
            |index: u64| Sample::new(0.5 * index as f64, Metric::ReceivedBytes, index, rate / 2.0);
        Measurement {
            samples: (1..=4).map(sample).collect(),
            figures: vec![Figure::new(
                Metric::GoodputBitPerS,
                Statistic::Mean,
                rate * 8.0,
            )],
            ..Measurement::default()
        }
    }

    /// Returns this many values of the standard normal distribution.
    pub(crate) fn draws(seed: u64, count: usize) -> Vec<f64> {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..count).map(|_| chance::normal(&mut random)).collect()
    }

    /// A record of two cases in which every expectation is met.
    pub(crate) fn record() -> Record {
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/fixtures/records/small.jsonl"
        );
        Record::read(std::path::Path::new(file)).unwrap()
    }

    fn name(text: &str) -> FigureName {
        text.parse().unwrap()
    }

    #[test]
    fn shares_of_losses_are_pooled_over_the_runs() {
        let lost = |lost: u64| Measurement {
            figures: vec![Figure {
                losses: Some(Losses::independent(lost, 1000)),
                ..Figure::new(Metric::LostPercent, Statistic::Mean, lost as f64 / 10.0)
            }],
            ..Measurement::default()
        };
        let interval = |counts: [u64; 2]| {
            let mut record = record();
            let of_slow = record.runs.iter_mut().filter(|run| run.case == "slow");
            for (run, count) in of_slow.zip(counts) {
                run.measurements[0].measurement = lost(count);
            }
            let analysis = Analysis::of(&record);
            let figure = analysis.cases[1].figures[&name("ping.lost_percent.mean")].clone();
            figure.interval.unwrap().ends
        };
        // Wilson's intervals for 0 and for 4 of 2,000. Student's t would give 0 to 0, and -2.34 to 2.74 %.
        let [low, high] = interval([0, 0]);
        assert!(low == 0.0 && (high - 0.1917).abs() < 1e-3, "{low} {high}");
        let [low, high] = interval([2, 2]);
        assert!(
            (low - 0.0778).abs() < 1e-3 && (high - 0.5131).abs() < 1e-3,
            "{low} {high}"
        );
    }

    #[test]
    fn a_figure_is_the_mean_over_the_runs_with_its_interval() {
        let record = record();
        let analysis = Analysis::of(&record);
        let slow = &analysis.cases[1].figures;
        let rtt = &slow[&name("ping.rtt_ms.median")];
        assert_eq!(rtt.values, [3.05, 3.2]);
        assert!((rtt.value() - 3.125).abs() < 1e-9 && rtt.interval.is_some());
        // The change is 3.125 minus 1.1, both of which are in the report.
        let change = rtt.change.as_ref().unwrap();
        assert_eq!(change.means, [1.1, rtt.value()]);
        assert!((change.difference.value - 2.025).abs() < 1e-9);
        assert_eq!(analysis.verdict, Verdict::Met);
        let base = &analysis.cases[0].figures[&name("ping.rtt_ms.median")];
        assert_eq!((base.interval, base.change.as_ref()), (None, None));
    }

    #[test]
    fn equal_rounded_readings_have_an_interval_of_one_step() {
        let mut record = record();
        for run in &mut record.runs {
            let cpu = Figure::new(Metric::ReceiverCpuPercent, Statistic::Mean, 0.0);
            let figures = &mut run.measurements[1].measurement.figures;
            figures.push(cpu.in_steps_of(1.0));
        }
        let analysis = Analysis::of(&record);
        let instrument = &record.runs[0].measurements[1].instrument;
        let cpu = name(&format!("{instrument}.receiver_cpu_percent.mean"));
        for case in &analysis.cases {
            let figure = &case.figures[&cpu];
            let ends = figure.interval.unwrap().ends;
            assert_eq!((figure.value(), ends), (0.0, [0.0, 0.5]));
            let shown = crate::interval::with_interval(figure.value(), Some(ends));
            assert_eq!(shown, "0.00 [0.00, 0.50]");
        }
    }

    #[test]
    fn the_figure_that_decides_the_repeats_has_an_interval_by_stein() {
        let mut record = record();
        let (one, of) = (record.runs[0].clone(), name("ping.rtt_ms.median"));
        record.head.plan.cases.truncate(1);
        record.head.plan.cases[0].repeats = Repeats {
            least: 5,
            most: 30,
            until: Some(Narrow {
                of: of.clone(),
                percent: 1.0,
            }),
        };
        let run = |(repeat, value): (u32, &f64)| {
            let mut run = one.clone();
            run.repeat = repeat;
            let mut figures = run
                .measurements
                .iter_mut()
                .flat_map(|m| &mut m.measurement.figures);
            let rtt = figures.find(|figure| figure.metric == Metric::RttMs);
            rtt.unwrap().value = *value;
            run
        };
        let values = [98.0, 99.0, 100.0, 101.0, 102.0, 110.0];
        record.runs = (1..).zip(&values).map(run).collect();
        record.runs[3].outcome = RunOutcome::Failed {
            cause: "no route".to_owned(),
        };
        let figure = &Analysis::of(&record).cases[0].figures[&of];
        assert_eq!(figure.values, [98.0, 99.0, 100.0, 102.0, 110.0]);
        let stated = repeats::mean_interval(&figure.values).unwrap();
        let of = IntervalScope::Runs(5);
        assert_eq!(
            figure.interval,
            Some(ConfidenceInterval { ends: stated, of })
        );
        let findings = crate::findings::findings(&Analysis::of(&record));
        let told =
            "for ping.rtt_ms.median to be known within ± 1 %, 173 runs are needed; 5 are valid";
        assert!(
            findings.iter().any(|line| line.contains(told)),
            "{findings:?}"
        );
    }

    #[test]
    fn runs_that_are_all_equal_state_no_interval() {
        let mut record = record();
        let one = record.runs[0].clone();
        record.head.plan.cases[0].repeats = Repeats::fixed(10);
        let again = (1..=10).map(|repeat| Run {
            repeat,
            ..one.clone()
        });
        record.runs = again.collect();
        let figure = &Analysis::of(&record).cases[0].figures[&name("ping.rtt_ms.median")];
        assert_eq!((figure.values.len(), figure.interval), (10, None));
    }

    #[test]
    fn an_unmet_expectation_fails_its_case_and_the_experiment() {
        let mut record = record();
        record.runs[0].measurements[1].measurement = downloaded(1e6);
        let analysis = Analysis::of(&record);
        assert_eq!(analysis.cases[0].verdict, Verdict::NotMet);
        assert_eq!(analysis.cases[1].verdict, Verdict::Met);
        assert_eq!(analysis.trends[0].verdict, Verdict::NotMet);
        assert_eq!(analysis.verdict, Verdict::NotMet);
    }

    #[test]
    fn a_failed_or_missing_run_fails_its_case_with_the_cause() {
        let mut record = record();
        spoil(&mut record.runs[0], "the ring dropped 3");
        record.runs.pop();
        let analysis = Analysis::of(&record);
        assert_eq!(
            analysis.cases[0].faults[0].text,
            "run 1 is invalid: the ring dropped 3"
        );
        assert_eq!(analysis.cases[1].faults[0].text, "1 of 2 runs took place");
        assert_eq!(analysis.verdict, Verdict::Failed);
    }

    #[test]
    fn an_expectation_is_invalid_if_the_machine_spoilt_every_run_that_it_needs() {
        let mut record = record();
        let cause = "the ring dropped 3";
        let of_base: Vec<usize> = (0..record.runs.len())
            .filter(|&run| record.runs[run].case == record.head.plan.cases[0].name)
            .collect();
        for run in of_base {
            spoil(&mut record.runs[run], cause);
        }
        let analysis = Analysis::of(&record);
        let of_its_case = &analysis.cases[0].checks[0];
        let of_a_ratio = &analysis.cases[1].checks[0];
        let of_a_trend = &analysis.trends[0];
        for check in [of_its_case, of_a_ratio, of_a_trend] {
            assert_eq!(check.verdict, Verdict::Invalid, "{}", check.expected);
            assert!(check.measured.contains(cause), "{}", check.measured);
        }
        assert_eq!(analysis.verdict, Verdict::Invalid);
    }

    /// Marks all of `run` as spoilt by the machine, as the runner does.
    pub(crate) fn spoil(run: &mut Run, cause: &str) {
        let cause = cause.to_owned();
        for measured in &mut run.measurements {
            measured.invalid = Some(cause.clone());
        }
        run.outcome = RunOutcome::Invalid { cause };
    }

    /// Marks this many of the 100 packets of the first run's ping as late, as the runner does.
    pub(crate) fn late_pings(late: u64) -> Record {
        let mut record = record();
        let run = &mut record.runs[0];
        let ping = &mut run.measurements[0];
        let figures = &mut ping.measurement.figures;
        figures.push(Figure::new(Metric::RttMs, Statistic::P99, 9.0));
        ping.departures = vec![LatePackets {
            link: "link".to_owned(),
            traffic: "icmp".to_owned(),
            direction: Direction::Up,
            departed: Departed { packets: 100, late },
            budget_ns: 1_000_000,
        }];
        ping.invalid = lateness::invalid(&ping.departures, figures);
        if let Some(cause) = &ping.invalid {
            let cause = format!("ping: {cause}");
            run.outcome = RunOutcome::Invalid { cause };
        }
        record
    }

    #[test]
    fn one_invalid_run_in_five_is_left_out_and_reported() {
        let mut record = record();
        record.head.plan.cases.truncate(1);
        record.head.plan.trends.clear();
        record.head.plan.cases[0].repeats = Repeats {
            least: 5,
            most: 5,
            until: None,
        };
        let (one, cause) = (record.runs[0].clone(), "the ring dropped 3");
        let run = |repeat| Run {
            repeat,
            ..one.clone()
        };
        record.runs = (1..=5).map(run).collect();
        spoil(&mut record.runs[3], cause);
        let analysis = Analysis::of(&record);
        assert_eq!(analysis.verdict, Verdict::Met);
        assert_eq!(analysis.cases[0].runs.len(), 4);
        let told = format!("run 4 is invalid: {cause}");
        let findings = crate::findings::findings(&analysis).join("\n");
        let [junit, html] = [
            crate::formats::junit::junit(&record).unwrap(),
            crate::html(&record).unwrap(),
        ];
        for report in [findings, junit, html] {
            assert!(report.contains(&told), "{report}");
        }
        spoil(&mut record.runs[0], cause);
        let analysis = Analysis::of(&record);
        assert_eq!(analysis.verdict, Verdict::Invalid);
        assert_eq!(analysis.cases[0].faults.len(), 2);
    }

    #[test]
    fn a_spoilt_instrument_does_not_affect_others_and_is_named() {
        let record = late_pings(10);
        let analysis = Analysis::of(&record);
        let base = &analysis.cases[0];
        assert!(base.figures.keys().all(|name| name.instrument != "ping"));
        assert!(
            base.figures
                .keys()
                .any(|name| name.instrument == "download")
        );
        assert_eq!(base.verdict, Verdict::Invalid);
        let told = "run 1 is invalid: ping: 10 of 100 packets up left more than 1 ms late";
        assert_eq!(base.faults[0].text, told);
        for report in [
            crate::formats::junit::junit(&record).unwrap(),
            crate::html(&record).unwrap(),
            crate::findings::findings(&analysis).join("\n"),
        ] {
            assert!(
                report.contains("ping: 10 of 100 packets up left more than 1 ms late"),
                "{report}"
            );
        }
    }

    #[test]
    fn an_expectation_of_an_invalid_figure_is_not_compared_with_that_of_one_direction() {
        let mut record = late_pings(10);
        let lost = |percent| Figure::new(Metric::LostPercent, Statistic::Mean, percent);
        let figures = &mut record.runs[0].measurements[0].measurement.figures;
        figures.push(lost(40.0));
        figures.push(lost(0.0).toward(Direction::Down));
        record.head.plan.cases[0].expect = vec![Expectation {
            of: name("ping.lost_percent.mean"),
            rule: Criterion::Range {
                least: Some(30.0),
                most: Some(70.0),
            },
            judgement: Judgement::default(),
            fitted: false,
        }];
        let analysis = Analysis::of(&record);
        let base = &analysis.cases[0];
        let down = Some(Direction::Down);
        assert!(base.figures.keys().any(|name| name.direction == down));
        assert_eq!(base.checks[0].verdict, Verdict::Invalid);
    }

    #[test]
    fn a_median_is_compared_with_the_published_median_and_a_mean_with_the_mean() {
        let mut record = record();
        let of = name("ping.rtt_ms.median");
        let slow = &mut record.head.plan.cases[1];
        let skewed = Published::Runs(vec![3.1, 3.1, 100.0]);
        slow.published.insert(of.clone(), skewed);
        slow.expect = [Centre::Median, Centre::Mean]
            .map(|over| Expectation {
                of: of.clone(),
                rule: Criterion::Published { within: 0.1 },
                judgement: Judgement {
                    over,
                    ..Judgement::default()
                },
                fitted: false,
            })
            .to_vec();
        let analysis = Analysis::of(&record);
        let verdicts = analysis.cases[1].checks.iter().map(|check| check.verdict);
        let [met, not_met] = [Verdict::Met, Verdict::NotMet];
        assert_eq!(verdicts.collect::<Vec<_>>(), [met, not_met]);
    }

    #[test]
    fn a_spread_is_shown_beside_that_of_the_published_runs() {
        let mut record = record();
        let of = name("ping.rtt_ms.median");
        let slow = &mut record.head.plan.cases[1];
        slow.published.insert(
            of.clone(),
            Published::Runs(vec![9.0, 10.0, 5.0, 11.0, 20.0]),
        );
        slow.repeats = Repeats::fixed(5);
        slow.expect = vec![Expectation {
            of,
            rule: Criterion::Spread {
                least: None,
                most: Some(50.0),
            },
            judgement: Judgement::default(),
            fitted: false,
        }];
        let slow = slow.name.clone();
        let run = record
            .runs
            .iter()
            .find(|run| run.case == slow)
            .unwrap()
            .clone();
        record.runs.retain(|run| run.case != slow);
        for (repeat, median) in (1..).zip([3.0, 3.1, 9.0, 3.0, 1.0]) {
            let mut run = run.clone();
            run.repeat = repeat;
            let figures = &mut run.measurements[0].measurement.figures;
            let medians = figures
                .iter_mut()
                .filter(|figure| figure.statistic == Statistic::Median);
            medians.for_each(|figure| figure.value = median);
            record.runs.push(run);
        }
        let analysis = Analysis::of(&record);
        let check = &analysis.cases[1].checks[0];
        assert_eq!(
            (
                check.verdict,
                check.expected.as_str(),
                check.measured.as_str()
            ),
            (
                Verdict::Met,
                "ping.rtt_ms.median: a spread over the runs of at most 50 %, without the lowest and the highest run",
                "3.33 % (published: 20.00 %)"
            )
        );
    }

    #[test]
    fn late_packets_in_the_tail_mark_only_the_p99_and_the_loss() {
        let mut record = late_pings(2);
        let p99 = name("ping.rtt_ms.p99");
        let expectation = &mut record.head.plan.cases[0].expect;
        expectation.push(Expectation {
            of: p99.clone(),
            rule: Criterion::Range {
                least: None,
                most: Some(20.0),
            },
            judgement: Judgement::default(),
            fitted: false,
        });
        let analysis = Analysis::of(&record);
        let base = &analysis.cases[0];
        assert!(!base.figures.contains_key(&p99));
        assert!(base.figures.contains_key(&name("ping.rtt_ms.median")));
        assert!(base.faults.is_empty());
        let check = base.checks.last().unwrap();
        let cause = "2 of 100 packets up left more than 1 ms late";
        assert_eq!(check.verdict, Verdict::Invalid);
        assert_eq!(check.measured.as_str(), cause);
        let figures = "the 99th percentile of the round-trip time and the loss of ping";
        let told = format!("run 1 is left out of {figures}: {cause}");
        let findings = crate::findings::findings(&analysis).join("\n");
        let [junit, html] = [
            crate::formats::junit::junit(&record).unwrap(),
            crate::html(&record).unwrap(),
        ];
        for report in [findings, junit] {
            assert!(report.contains(&told), "{report}");
        }
        let told = format!("ok; without {figures}: {cause}");
        assert!(html.contains(&told), "{html}");
    }

    #[test]
    fn an_unfinished_case_is_incomplete_and_undecided() {
        let mut record = record();
        record.finished_at = None;
        record.runs.pop();
        let analysis = Analysis::of(&record);
        let slow = &analysis.cases[1];
        assert_eq!(slow.faults[0].text, "1 of 2 runs took place");
        assert!(slow.checks.iter().all(|c| c.verdict == Verdict::Incomplete));
        assert_eq!(analysis.cases[0].verdict, Verdict::Met);
        assert_eq!(analysis.trends[0].verdict, Verdict::Incomplete);
        assert_eq!(analysis.verdict, Verdict::Incomplete);
        // A spoilt run will be attempted again.
        spoil(&mut record.runs[1], "the ring dropped 3");
        assert_eq!(Analysis::of(&record).verdict, Verdict::Incomplete);
        record.runs[1].attempt = MOST_ATTEMPTS;
        assert_eq!(Analysis::of(&record).verdict, Verdict::Invalid);
        // A known failure remains one.
        record.runs[0].outcome = RunOutcome::Failed {
            cause: "no route".to_owned(),
        };
        assert_eq!(Analysis::of(&record).verdict, Verdict::Failed);
    }

    #[test]
    fn the_last_attempt_of_a_run_counts() {
        let mut record = record();
        let mut again = record.runs[0].clone();
        again.attempt = 2;
        spoil(&mut record.runs[0], "the ring dropped 3");
        record.runs.push(again);
        let analysis = Analysis::of(&record);
        assert_eq!(analysis.cases[0].attempts.repeated, 1);
        assert_eq!(analysis.verdict, Verdict::Met);
    }

    #[test]
    fn an_expectation_without_a_measurement_has_failed() {
        let mut record = record();
        record.runs[1].measurements.clear();
        record.runs[2].measurements.clear();
        let analysis = Analysis::of(&record);
        assert!(
            analysis.cases[1]
                .checks
                .iter()
                .all(|check| check.verdict == Verdict::Failed)
        );
    }

    #[test]
    fn a_lower_bound_in_one_run_makes_the_figure_a_lower_bound() {
        let mut record = record();
        let figure = &mut record.runs[0].measurements[1].measurement.figures[0];
        *figure = figure.clone().at_least(figure.value * 0.99);
        let name = FigureName::of("download", figure);
        let analysis = Analysis::of(&record);
        let across = &analysis.case("base").unwrap().figures[&name];
        assert!(across.at_least && across.interval.is_none());
        let text = crate::text(&record, false, crate::Terminal::NONE);
        assert!(text.contains("at least 16"), "{text}");
    }
}
