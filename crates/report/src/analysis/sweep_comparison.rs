//! The comparisons that a scenario asks for: every pair of values of a swept field at each combination of the others.

use std::collections::BTreeSet;

use super::field_comparison::{FieldComparison, PairOfCases, Question, judge};
use super::{Analysis, CaseFigures};
use crate::field_words::{self, FieldValue, Shared};
use record::case_pairs::{CasePair, MOST_COMPARISONS};
use record::figure_name::FigureName;
use record::plan::PlannedInstrument;
use record::printable::printable;

/// The comparisons of a record.
#[derive(Clone, Debug, Default)]
pub(crate) struct SweepComparisons {
    /// The comparisons, in the order of the scenario's fields, and for each in the order of its figures.
    pub(crate) all: Vec<FieldComparison>,
    /// Sentences about fields that could not be compared.
    pub(crate) remarks: Vec<String>,
}

impl SweepComparisons {
    /// Makes the comparisons that the plan of the record asks for.
    pub(crate) fn of(analysis: &Analysis<'_>) -> Self {
        let (mut questions, mut remarks) = (Vec::new(), Vec::new());
        let mut room = MOST_COMPARISONS;
        for path in &analysis.record.plan().compare.by {
            match questions_by(analysis, path, room) {
                Ok(new) => {
                    room -= new.iter().map(|one| one.pairs.len()).sum::<usize>();
                    questions.extend(new);
                }
                Err(remark) => remarks.push(remark),
            }
        }
        Self {
            all: judge(questions),
            remarks,
        }
    }
}

/// Returns the question of each figure about the field at `path`, with at most `room` pairs in all.
///
/// # Errors
/// A sentence that says why there is none.
fn questions_by<'a>(
    analysis: &'a Analysis<'_>,
    path: &str,
    room: usize,
) -> Result<Vec<Question<'a>>, String> {
    let field = field_words::field(path);
    let refused = |cause: &str| {
        Err(format!(
            "nothing is compared by {}: {cause}",
            printable(&field)
        ))
    };
    let found = match analysis.record.plan().pairs_by(path) {
        Ok(found) if found.pairs.is_empty() => return refused("no two cases differ in it alone"),
        Ok(found) => found,
        Err(error) => return refused(&error.to_string()),
    };
    let names = figures(analysis, &found.pairs);
    if names.is_empty() {
        return refused("no case has a figure yet");
    }
    let count = names.len().saturating_mul(found.pairs.len());
    if count > room {
        return refused(&format!(
            "that would be {count} comparisons, and there is room for {room}"
        ));
    }
    let pairs = pairs(analysis, path, &found.pairs);
    let together: Vec<String> = found
        .together
        .iter()
        .map(|path| field_words::field(path))
        .collect();
    let question = |figure: FigureName| Question {
        path: path.to_owned(),
        field: field.clone(),
        together: together.clone(),
        figure,
        pairs: pairs.clone(),
    };
    Ok(names.into_iter().map(question).collect())
}

/// Returns the figures to compare: those that the plan names, or else the first main figure of each instrument. They are in the
/// plan's order of figures and instruments, so that the first answer is about what the scenario is about.
fn figures(analysis: &Analysis<'_>, pairs: &[CasePair<'_>]) -> Vec<FigureName> {
    let places: BTreeSet<usize> = pairs.iter().flat_map(|pair| pair.cases).collect();
    let cases: Vec<&CaseFigures<'_>> = places.iter().map(|at| &analysis.cases[*at]).collect();
    let known: BTreeSet<&FigureName> = cases.iter().flat_map(|case| case.figures.keys()).collect();
    let asked = &analysis.record.plan().compare.of;
    let instruments = cases.iter().flat_map(|case| &case.case.instruments);
    let instruments: Vec<&PlannedInstrument> = instruments.collect();
    let is_main = |name: &FigureName| {
        let mut own = instruments.iter().filter(|one| one.name == name.instrument);
        own.next().is_some_and(|instrument| {
            let main = instrument.profile.headlines.first();
            main.is_some_and(|main| {
                (main.metric, main.statistic) == (name.metric, name.statistic)
                    && main.direction.is_none_or(|way| name.direction == Some(way))
            })
        })
    };
    let wanted = |name: &&&FigureName| match asked[..] {
        [] => is_main(name),
        _ => asked.iter().any(|asked| name.is_of(asked)),
    };
    let place = |name: &FigureName| {
        let in_plan = asked.iter().position(|asked| name.is_of(asked));
        let instrument = instruments
            .iter()
            .position(|one| one.name == name.instrument);
        (in_plan, instrument)
    };
    let mut names: Vec<FigureName> = known
        .iter()
        .filter(wanted)
        .map(|name| (*name).clone())
        .collect();
    names.sort_by_key(place);
    names
}

fn pairs<'a>(
    analysis: &'a Analysis<'_>,
    path: &str,
    found: &[CasePair<'_>],
) -> Vec<PairOfCases<'a>> {
    let sweeps: BTreeSet<String> = found
        .iter()
        .map(|pair| analysis.cases[pair.cases[0]].case.base_name())
        .collect();
    let pair = |pair: &CasePair<'_>| {
        let cases = pair.cases.map(|at| &analysis.cases[at]);
        let sweep = || cases[0].case.base_name();
        PairOfCases {
            shared: Shared::of((sweeps.len() > 1).then(sweep), &pair.shared),
            values: pair.values.map(|value| FieldValue::of(path, value)),
            sources: cases.map(|case| case.words().to_owned()),
            cases,
        }
    };
    found.iter().map(pair).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::analysis::field_comparison::{NotCompared, family};
    use crate::analysis::tests::{draws, record, spoil};
    use record::plan::{Case, Repeats, RequestedComparisons};
    use record::swept::name_suffix;
    use record::{Record, Run};
    use std::cmp::Ordering;

    /// A sweep of three congestion controls, three delays and two losses, with this many runs of each of its 18 cases.
    /// The goodputs scatter by `scatter`, and each is multiplied by what `factor` returns for its case.
    pub(crate) fn sweep(
        runs: u32,
        scatter: f64,
        seed: u64,
        factor: impl Fn([&str; 3]) -> f64,
    ) -> Record {
        let mut record = record();
        let (pattern, mut run) = (record.head.plan.cases[0].clone(), record.runs[0].clone());
        run.measurements.remove(0);
        run.measurements[0].measurement.samples.clear();
        let plan = &mut record.head.plan;
        (plan.reference, plan.title) = (None, "A sweep".to_owned());
        plan.trends.clear();
        plan.cases.clear();
        plan.compare = RequestedComparisons {
            by: vec!["tcp.congestion".to_owned()],
            of: Vec::new(),
        };
        record.runs.clear();
        let mut all_noise = draws(seed, 18 * runs as usize).into_iter();
        for delay in ["10ms", "50ms", "200ms"] {
            for loss in ["0%", "1%"] {
                for congestion in ["cubic", "reno", "bbr"] {
                    let axes = [
                        ("link.delay", delay),
                        ("link.loss", loss),
                        ("tcp.congestion", congestion),
                    ];
                    let axes = axes.map(|(path, value)| (path.to_owned(), value.to_owned()));
                    let case = Case {
                        name: format!("grid{}", name_suffix(&axes)),
                        axes: axes.to_vec(),
                        congestion: congestion.to_owned(),
                        repeats: Repeats::fixed(runs),
                        instruments: pattern.instruments[1..].to_vec(),
                        published: [].into(),
                        expect: Vec::new(),
                        ..pattern.clone()
                    };
                    for repeat in 1..=runs {
                        let mut run: Run = run.clone();
                        (run.case, run.repeat) = (case.name.clone(), repeat);
                        let figures = &mut run.measurements[0].measurement.figures;
                        figures.truncate(1);
                        let noise = 1.0 + scatter * all_noise.next().unwrap();
                        figures[0].value *= factor([delay, loss, congestion]) * noise;
                        record.runs.push(run);
                    }
                    record.head.plan.cases.push(case);
                }
            }
        }
        record
    }

    /// Makes the comparisons of a record.
    pub(crate) fn compare(record: &Record) -> SweepComparisons {
        SweepComparisons::of(&Analysis::of(record))
    }

    /// Returns whether a difference was found, for each pair of cases.
    fn findings(record: &Record) -> Vec<Option<Ordering>> {
        let pairs = compare(record).all.into_iter().flat_map(|one| one.pairs);
        pairs.map(|pair| pair.finding()).collect()
    }

    #[test]
    fn few_sweeps_without_a_difference_claim_one() {
        let claims = |seed: &u64| {
            let found = findings(&sweep(5, 0.05, *seed, |_| 1.0));
            assert_eq!(found.len(), 18);
            found.iter().any(Option::is_some)
        };
        let share = (0..1_000).filter(claims).count() as f64 / 1_000.0;
        assert!(share <= 0.06, "{share}");
    }

    #[test]
    fn a_difference_of_a_quarter_is_found() {
        // A single case of the eighteen differs, which is the hardest: no other difference makes Holm less strict.
        let different = ["200ms", "1%", "bbr"];
        let mut found = 0;
        for seed in 0..500 {
            let factor = |case: [&str; 3]| if case == different { 1.25 } else { 1.0 };
            let record = sweep(5, 0.05, 2_000 + seed, factor);
            let comparisons = compare(&record).all;
            let last = comparisons[0].pairs.last().unwrap();
            assert_eq!(last.sources[1], "delay 200ms, loss 1%, congestion bbr");
            found += u32::from(last.finding() == Some(Ordering::Greater));
        }
        assert!(found >= 450, "{found} of 500");
    }

    #[test]
    fn every_pair_has_its_values_its_conditions_and_its_ratio() {
        let factor = |[_, loss, congestion]: [&str; 3]| match (loss, congestion) {
            ("1%", "bbr") => 2.0,
            _ => 1.0,
        };
        let comparisons = compare(&sweep(5, 0.01, 1, factor));
        let [one] = &comparisons.all[..] else {
            panic!("{comparisons:?}");
        };
        assert_eq!(one.figure.to_string(), "download.goodput_bit_per_s.mean");
        assert_eq!(
            (one.field.as_str(), one.pairs.len()),
            ("congestion control", 18)
        );
        assert_eq!(family(&comparisons.all), 18);
        let shorts: Vec<[&str; 2]> = one
            .by_values()
            .iter()
            .map(|pairs| [&pairs[0].values[0].short[..], &pairs[0].values[1].short])
            .collect();
        assert_eq!(
            shorts,
            [["cubic", "reno"], ["cubic", "bbr"], ["reno", "bbr"]]
        );
        for pair in &one.pairs {
            let label = pair.shared.label();
            let [low, high] = pair.outcome.as_ref().unwrap().interval;
            let differs = label.ends_with("1 % loss") && pair.values[1].short == "bbr";
            let truth = if differs { 2.0 } else { 1.0 };
            assert!(low <= truth && truth <= high, "{label}: {pair:?}");
            assert_eq!(pair.finding().is_some(), differs, "{label}: {pair:?}");
            assert_eq!(pair.runs, [5, 5]);
        }
    }

    #[test]
    fn what_is_not_compared_has_its_reason() {
        let reasons = |record: &Record| {
            let mut comparisons = compare(record);
            assert_eq!(comparisons.all.len(), 1, "{comparisons:?}");
            let pairs = comparisons.all.remove(0).pairs.into_iter();
            pairs
                .filter_map(|pair| pair.outcome.err())
                .collect::<Vec<_>>()
        };
        let few = sweep(3, 0.05, 1, |_| 1.0);
        assert_eq!(reasons(&few), vec![NotCompared::TooFewRuns; 18]);
        let source = || "delay 10ms, loss 0%, congestion cubic".to_owned();
        let mut spoilt = sweep(5, 0.05, 1, |_| 1.0);
        spoil(&mut spoilt.runs[0], "late");
        spoil(&mut spoilt.runs[1], "late");
        let verdict = crate::analysis::Verdict::Invalid;
        let faulty = NotCompared::Faulty {
            source: source(),
            verdict,
        };
        assert_eq!(reasons(&spoilt), [faulty.clone(), faulty]);
        let mut without = sweep(5, 0.05, 1, |_| 1.0);
        for run in &mut without.runs[..5] {
            run.measurements[0].measurement.figures.clear();
        }
        let missing = NotCompared::Missing { source: source() };
        assert_eq!(reasons(&without), [missing.clone(), missing]);
        let mut open = sweep(5, 0.05, 1, |_| 1.0);
        let figure = &mut open.runs[0].measurements[0].measurement.figures[0];
        *figure = figure.clone().at_least(figure.value * 0.9);
        let bound = NotCompared::LowerBound { source: source() };
        assert_eq!(reasons(&open), [bound.clone(), bound]);
    }

    #[test]
    fn a_field_without_pairs_or_figures_is_a_remark() {
        let remarks = |change: fn(&mut Record)| {
            let mut record = sweep(5, 0.05, 1, |_| 1.0);
            change(&mut record);
            let comparisons = compare(&record);
            assert!(comparisons.all.is_empty(), "{comparisons:?}");
            comparisons.remarks.join("\n")
        };
        let other = remarks(|record| record.head.plan.compare.by = vec!["link.queue".to_owned()]);
        assert_eq!(
            other,
            "nothing is compared by queue: no two cases differ in it alone"
        );
        let empty = remarks(|record| record.runs.clear());
        assert_eq!(
            empty,
            "nothing is compared by congestion control: no case has a figure yet"
        );
        assert!(compare(&record()).all.is_empty());
    }

    #[test]
    fn more_comparisons_than_are_allowed_are_left_out() {
        let record = sweep(5, 0.05, 1, |_| 1.0);
        let analysis = Analysis::of(&record);
        let path = "tcp.congestion";
        assert!(questions_by(&analysis, path, 18).is_ok());
        let remark = questions_by(&analysis, path, 17).err().unwrap();
        assert_eq!(
            remark,
            "nothing is compared by congestion control: that would be 18 comparisons, and there is room for 17"
        );
    }

    #[test]
    fn figures_that_the_scenario_names_are_compared() {
        let mut record = sweep(5, 0.05, 1, |_| 1.0);
        let of = "download.goodput_bit_per_s.mean".parse().unwrap();
        record.head.plan.compare.of = vec![of];
        assert_eq!(compare(&record).all.len(), 1);
        let of = "download.first_byte_ms.median".parse().unwrap();
        record.head.plan.compare.of = vec![of];
        assert!(compare(&record).all.is_empty());
    }

    #[test]
    fn percentages_and_values_of_zero_are_compared_by_their_difference() {
        use record::{Figure, Metric, Statistic};
        use stats::contrast::ContrastScale;
        let mut record = sweep(5, 0.05, 1, |_| 1.0);
        for run in &mut record.runs {
            let figures = &mut run.measurements[0].measurement.figures;
            let value = f64::from(run.repeat);
            figures.push(Figure::new(Metric::LostPercent, Statistic::Mean, value));
            figures.push(Figure::new(
                Metric::RetransmittedPackets,
                Statistic::Total,
                value - 1.0,
            ));
        }
        record.head.plan.compare.of = ["lost_percent.mean", "retransmitted_packets.total"]
            .map(|figure| format!("download.{figure}").parse().unwrap())
            .into();
        let comparisons = compare(&record).all;
        assert_eq!((comparisons.len(), family(&comparisons)), (2, 36));
        for pair in comparisons.iter().flat_map(|one| &one.pairs) {
            let contrast = pair.outcome.as_ref().unwrap();
            assert_eq!(contrast.scale, ContrastScale::Difference);
        }
        record.head.plan.compare.of.reverse();
        let reversed = compare(&record).all;
        let metrics =
            |all: &[FieldComparison]| all.iter().map(|one| one.figure.metric).collect::<Vec<_>>();
        let in_plan = [Metric::LostPercent, Metric::RetransmittedPackets];
        assert_eq!(metrics(&comparisons), in_plan);
        assert_eq!(metrics(&reversed), [in_plan[1], in_plan[0]]);
    }
}
