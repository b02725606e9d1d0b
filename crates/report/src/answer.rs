//! The answer with which a report opens: what changed compared with what, by how much, how certain that is, and what
//! cannot be concluded.

use crate::analysis::field_comparison::family;
use crate::analysis::key_figure::{KeyFigure, KeyRow, effect};
use crate::analysis::sweep_comparison::SweepComparisons;
use crate::analysis::{Analysis, CaseFigures, ExpectationCounts, FigureOverRuns, Verdict, ceiling};
use crate::charts::{self, Drawing};
use crate::reliability::Reliability;
use crate::{answers, field_words, findings, interval};
use record::expectation::{ExpectationKind, LOOSE};
use record::quantity::{counted, quantity, scale_for};
use record::{Metric, RunOutcome};
use stats::change::{Change, ChangeForm, as_much, more};
use stats::digits::{self, fixed};
use stats::hodges_lehmann::ShiftVerdict;

/// Largest number of comparisons that are stated one by one; of more, the greatest and the least are stated.
const MOST_COMPARED: usize = 3;
/// Largest number of names in a list.
const MOST_LISTED: usize = 4;

/// The answer of a report.
pub(crate) struct Answer<'a> {
    /// The verdict, with the numbers of expectations that are met.
    pub(crate) headline: String,
    /// Two or three sentences: the comparison that the scenario asks for, or else the key figure compared with the
    /// reference, then expectations that are not met or else published values, and finally what cannot be concluded.
    pub(crate) sentences: Vec<String>,
    pub(crate) reliability: Reliability,
    /// The figure that the sentences are about; absent if no run has a valid figure.
    pub(crate) key: Option<KeyFigure<'a>>,
    verdict: Verdict,
}

impl<'a> Answer<'a> {
    /// Formulates the answer that the figures give.
    pub(crate) fn of(analysis: &'a Analysis<'a>) -> Self {
        let key = KeyFigure::of(analysis);
        let comparisons = SweepComparisons::of(analysis);
        let asked = asked(&comparisons);
        let result = asked.or_else(|| key.as_ref().and_then(|key| result(analysis, key)));
        let beside = unmet(analysis).or_else(|| key.as_ref().and_then(published));
        let sentences = [
            Some(result.unwrap_or_else(|| "No valid figure was measured.".to_owned())),
            beside,
            Some(limits(analysis, key.as_ref(), &comparisons)),
        ];
        Self {
            headline: findings::headline(analysis),
            sentences: sentences.into_iter().flatten().collect(),
            reliability: Reliability::of(analysis),
            key,
            verdict: analysis.verdict,
        }
    }

    /// Draws the key figure; `None` if there is none, or one value with nothing to compare it with.
    pub(crate) fn picture(&self, analysis: &Analysis<'_>) -> Option<Drawing> {
        charts::key_figure::drawing(self.key.as_ref()?, analysis.record.plan())
    }

    /// Returns whether the result may be shown as good: everything is met, and fewer than a third of the attempts
    /// failed.
    pub(crate) fn is_good(&self) -> bool {
        self.verdict == Verdict::Met && !self.reliability.attempts.are_poor()
    }

    /// Returns the class of the page's colour.
    pub(crate) fn class(&self) -> &'static str {
        match self.verdict {
            Verdict::Met if self.is_good() => "met",
            Verdict::Met => "disturbed",
            Verdict::Incomplete => "incomplete",
            Verdict::NotMet | Verdict::Invalid | Verdict::Failed => "unmet",
        }
    }
}

/// Answers the first question that the scenario asks, and counts the other answers; `None` if it asks for no comparison,
/// or none could be made.
fn asked(comparisons: &SweepComparisons) -> Option<String> {
    let all = answers::answers(&comparisons.all);
    let mut answered = all.iter().filter_map(|answer| {
        let short = answer.in_short()?;
        Some(format!("By {}, {short}", answer.comparison.field))
    });
    let first = answered.next()?;
    let more = match answered.count() {
        0 => String::new(),
        count => format!("; {} below", counted(count, "further answer")),
    };
    let compared = counted(family(&comparisons.all), "comparison");
    Some(format!(
        "{first}{more} (in brackets: simultaneous 95 % intervals for {compared})."
    ))
}

/// States what was found: the bottleneck of a chain, the key figure compared with the reference, or its values.
fn result(analysis: &Analysis<'_>, key: &KeyFigure<'_>) -> Option<String> {
    let mut bottlenecks = analysis.bottlenecks.iter();
    let own = bottlenecks.find(|found| found.instrument() == key.name.instrument);
    match own.or(analysis.bottlenecks.first()) {
        Some(bottleneck) => Some(bottleneck.in_short()),
        None => compared(analysis, key).or_else(|| values(key)),
    }
}

/// A row of the key figure and its change from the reference.
type RowChange<'k> = (&'k KeyRow<'k>, &'k Change);

/// States how the key figure differs from the reference; `None` without a reference or without values of both.
fn compared(analysis: &Analysis<'_>, key: &KeyFigure<'_>) -> Option<String> {
    let reference = analysis.reference()?;
    let metric = key.name.metric;
    let rows = key.rows.iter();
    let changes: Vec<RowChange<'_>> = rows
        .filter_map(|row| Some((row, row.figure?.change.as_ref()?)))
        .collect();
    let of = |wanted: fn(ShiftVerdict) -> bool| -> Vec<RowChange<'_>> {
        let all = changes.iter();
        let own = all.filter(|(_, change)| wanted(change.verdict(unit(change, metric).1)));
        own.copied().collect()
    };
    let different = of(|is| matches!(is, ShiftVerdict::Greater | ShiftVerdict::Smaller));
    let few = of(|is| is == ShiftVerdict::TooFew);
    let alike = of(|is| is == ShiftVerdict::NotShown);
    let total = changes.len();
    let predicates = [
        differences(key, &different, total),
        changes_of_few_runs(key, &few, total),
    ];
    let mut clauses: Vec<String> = Vec::new();
    for predicate in predicates.into_iter().flatten() {
        clauses.push(if clauses.is_empty() {
            format!("the {} {predicate}", key.in_words())
        } else {
            format!("it {predicate}")
        });
    }
    if let Some(places) = places(key, &alike, total) {
        clauses.push(if clauses.is_empty() {
            format!("no difference in the {} was found {places}", key.in_words())
        } else {
            format!("no difference was found {places}")
        });
    }
    let brackets = if different.is_empty() {
        ""
    } else {
        " (in brackets: 95 % intervals)"
    };
    (total > 0).then(|| {
        format!(
            "Compared with {}, {}{brackets}.",
            key.reference(reference.case),
            clauses.join("; ")
        )
    })
}

/// States the differences, or the greatest and the least of many; `None` if there are none.
fn differences(key: &KeyFigure<'_>, rows: &[RowChange<'_>], total: usize) -> Option<String> {
    if rows.len() <= MOST_COMPARED {
        return stated(key, rows).map(|all| format!("is {all}"));
    }
    let [most, least] = extremes(key, rows)?;
    let amount = |(_, change): RowChange<'_>| amount(change, key.name.metric);
    Some(format!(
        "differs in {} of {total} comparisons: most strongly {}, where it is {}, and least {}, where it is {}",
        rows.len(),
        key.place(most.0),
        amount(most),
        key.place(least.0),
        amount(least)
    ))
}

/// States changes that have no interval, or the greatest and the least of many; `None` if there are none.
fn changes_of_few_runs(
    key: &KeyFigure<'_>,
    rows: &[RowChange<'_>],
    total: usize,
) -> Option<String> {
    if rows.len() <= MOST_COMPARED {
        let all = stated(key, rows)?;
        return Some(format!("is {all}, with too few runs for an interval"));
    }
    let [most, least] = extremes(key, rows)?.map(|row| stated_one(key, row));
    Some(format!(
        "ranges from {least} to {most}, with too few runs for an interval in {} of {total} comparisons",
        rows.len()
    ))
}

/// Lists the places in which no difference was found, or their number; `None` if there are none.
fn places(key: &KeyFigure<'_>, rows: &[RowChange<'_>], total: usize) -> Option<String> {
    match rows.len() {
        0 => None,
        1..=MOST_COMPARED => Some(listed(rows.iter().map(|(row, _)| key.place(row)))),
        count => Some(format!("in {count} of {total} comparisons")),
    }
}

/// Returns the rows with the greatest and with the least change.
fn extremes<'k>(key: &KeyFigure<'_>, rows: &[RowChange<'k>]) -> Option<[RowChange<'k>; 2]> {
    let by = |a: &&RowChange<'k>, b: &&RowChange<'k>| {
        let [a, b] = [a, b].map(|(_, change)| effect(change, key.name.metric));
        a.total_cmp(&b)
    };
    Some([*rows.iter().max_by(by)?, *rows.iter().min_by(by)?])
}

/// Lists changes with their places; `None` if there are none.
fn stated(key: &KeyFigure<'_>, rows: &[RowChange<'_>]) -> Option<String> {
    let all = rows.iter().map(|row| stated_one(key, *row));
    (!rows.is_empty()).then(|| listed(all))
}

fn stated_one(key: &KeyFigure<'_>, (row, change): RowChange<'_>) -> String {
    format!("{} {}", amount(change, key.name.metric), key.place(row))
}

/// Formats a change with its interval in brackets: "12.3 % [11.8, 12.9] lower", "3.20 [3.05, 3.35] times as long".
fn amount(change: &Change, metric: Metric) -> String {
    let display = unit(change, metric);
    let (estimate, unit) = change.printed(display);
    let (places, sense) = (estimate.places(), metric.sense());
    let brackets = |ends: [f64; 2]| {
        let [low, high] = ends.map(|end| fixed(end, places));
        format!(" [{low}, {high}]")
    };
    if change.form(display.1) == ChangeForm::Factor {
        let interval = estimate.interval.map_or(String::new(), brackets);
        let value = fixed(estimate.value, places);
        return format!("{value}{interval} times {}", as_much(sense));
    }
    if estimate.value == 0.0 {
        return "the same".to_owned();
    }
    // The direction is in the word that follows.
    let is_greater = estimate.value > 0.0;
    let sizes = |[low, high]: [f64; 2]| {
        if is_greater {
            [low, high]
        } else {
            [-high, -low]
        }
    };
    let interval = estimate
        .interval
        .map_or(String::new(), |ends| brackets(sizes(ends)));
    let value = format!("{} {unit}", fixed(estimate.value.abs(), places));
    format!("{}{interval} {}", value.trim_end(), more(sense, is_greater))
}

/// Returns the unit in which the means of a change are shown, and its size in the metric's unit.
fn unit(change: &Change, metric: Metric) -> (f64, &'static str) {
    scale_for(metric, change.means[0].max(change.means[1]))
}

/// States the value of the key figure, or the lowest and the highest of several; `None` if there are none.
fn values(key: &KeyFigure<'_>) -> Option<String> {
    let rows = key.rows.iter();
    let measured: Vec<(&KeyRow<'_>, &FigureOverRuns)> =
        rows.filter_map(|row| Some((row, row.figure?))).collect();
    let by = |a: &&(&KeyRow<'_>, &FigureOverRuns), b: &&(&KeyRow<'_>, &FigureOverRuns)| {
        a.1.value().total_cmp(&b.1.value())
    };
    let (lowest, low) = *measured.iter().min_by(by)?;
    let (highest, high) = *measured.iter().max_by(by)?;
    let (words, metric) = (key.in_words(), key.name.metric);
    let [low_words, high_words] = [low, high].map(|figure| value_in_words(figure, metric));
    if measured.len() == 1 {
        let interval = low.interval.map(|own| own.of.words());
        let interval = interval.map(|scope| format!(" (95 % interval {scope})"));
        return Some(format!(
            "The {words} is {low_words} {}{}.",
            key.place(lowest),
            interval.unwrap_or_default()
        ));
    }
    let has_interval = low.interval.or(high.interval).is_some();
    Some(format!(
        "The {words} is lowest {} ({low_words}) and highest {} ({high_words}){}.",
        key.place(lowest),
        key.place(highest),
        if has_interval {
            " (with 95 % intervals)"
        } else {
            ""
        }
    ))
}

/// Formats the mean over the runs with its interval: "3.12 ± 0.11 ms", "94.10 [94.02, 94.18] Mbit/s".
fn value_in_words(figure: &FigureOverRuns, metric: Metric) -> String {
    let value = figure.value();
    match figure.interval {
        _ if figure.at_least => format!("at least {}", quantity(metric, value)),
        Some(own) => {
            let (by, unit) = scale_for(metric, value);
            let ends = own.ends.map(|end| end / by);
            let shown = interval::with_interval(value / by, Some(ends));
            format!("{shown} {unit}").trim_end().to_owned()
        }
        None => quantity(metric, value),
    }
}

/// States the first expectation that is not met, and the number of the others; `None` if there is none.
fn unmet(analysis: &Analysis<'_>) -> Option<String> {
    let is_unmet = |verdict: Verdict| verdict == Verdict::NotMet;
    let of_case = |figures: &CaseFigures<'_>| {
        let unmet = figures.checks.iter().filter(|one| is_unmet(one.verdict));
        let words = unmet.map(findings::unmet_words);
        words
            .map(|words| format!("{}: {words}", figures.words()))
            .collect::<Vec<_>>()
    };
    let trends = analysis.trends.iter().filter(|one| is_unmet(one.verdict));
    let cases = analysis.cases.iter().flat_map(of_case);
    let mut all = cases.chain(trends.map(findings::unmet_words));
    let first = all.next()?;
    let more = match all.count() {
        0 => String::new(),
        count => format!("; and {count} more"),
    };
    Some(format!("Not met: {first}{more}."))
}

/// A row of the key figure that was measured and published.
struct PublishedRow<'k> {
    row: &'k KeyRow<'k>,
    /// The measured value in percent above the published one.
    percent: f64,
    /// Whether the measured interval contains the published value; absent without an interval.
    is_within: Option<bool>,
}

impl<'k> PublishedRow<'k> {
    fn of(row: &'k KeyRow<'k>) -> Option<Self> {
        let (figure, published) = (row.figure?, row.published_mean()?);
        let percent = (figure.value() / published - 1.0) * 100.0;
        percent.is_finite().then(|| Self {
            row,
            percent,
            is_within: figure
                .interval
                .map(|own| (own.ends[0]..=own.ends[1]).contains(&published)),
        })
    }
}

/// Compares the key figure with its published values; `None` if there are none.
fn published(key: &KeyFigure<'_>) -> Option<String> {
    let all: Vec<PublishedRow<'_>> = key.rows.iter().filter_map(PublishedRow::of).collect();
    let by = |a: &&PublishedRow<'_>, b: &&PublishedRow<'_>| a.percent.total_cmp(&b.percent);
    let (least, most) = (all.iter().min_by(by)?, all.iter().max_by(by)?);
    let furthest = if least.percent.abs() > most.percent.abs() {
        least
    } else {
        most
    };
    let place = key.place(furthest.row);
    let with_interval = all.iter().filter_map(|one| one.is_within);
    let (within, of) = with_interval.fold((0, 0), |(within, of), is_within| {
        (within + usize::from(is_within), of + 1)
    });
    let certainty = match of {
        0 => String::new(),
        _ => {
            format!("; the measured 95 % interval contains the published value in {within} of {of}")
        }
    };
    Some(match all.len() {
        1 => format!(
            "The measured {} differs from the published value by {} % {place}{}.",
            key.in_words(),
            signed(furthest.percent),
            match furthest.is_within {
                None => "",
                Some(true) => "; the published value lies within the measured 95 % interval",
                Some(false) => "; the published value lies outside the measured 95 % interval",
            }
        ),
        count => format!(
            "The measured {} differs from the {count} published values by {} to {} %, most strongly {place}{certainty}.",
            key.in_words(),
            signed(least.percent),
            signed(most.percent)
        ),
    })
}

/// Formats a percentage with its sign: "+2.5", "-48".
fn signed(percent: f64) -> String {
    digits::signed(percent, if percent.abs() < 10.0 { 1 } else { 0 })
}

/// States what cannot be concluded.
fn limits(
    analysis: &Analysis<'_>,
    key: Option<&KeyFigure<'_>>,
    comparisons: &SweepComparisons,
) -> String {
    let clauses: Vec<String> = [
        of_unreliable_cases(analysis),
        of_pending_runs(analysis),
        of_fitted_expectations(analysis),
        of_loose_expectations(analysis),
        of_the_machine(analysis),
        of_single_runs(analysis),
        of_missing_comparisons(comparisons),
        of_fields_that_change_together(comparisons),
        of_missing_reference(analysis, key),
    ]
    .into_iter()
    .flatten()
    .collect();
    if clauses.is_empty() {
        return "Limits: the intervals describe repetitions on this machine at this time; another machine or another day can give other values."
            .to_owned();
    }
    format!("Limits: {}.", clauses.join("; "))
}

fn of_unreliable_cases(analysis: &Analysis<'_>) -> Option<String> {
    let cases = analysis.cases.iter().filter(|case| !case.is_reliable());
    let names = names(cases)?;
    Some(format!(
        "nothing can be concluded about {names}, because runs failed, are missing or are invalid"
    ))
}

fn of_pending_runs(analysis: &Analysis<'_>) -> Option<String> {
    let cases = analysis.cases.iter().filter(|case| case.has_pending_runs);
    names(cases).map(|names| format!("runs of {names} are still to come"))
}

fn of_fitted_expectations(analysis: &Analysis<'_>) -> Option<String> {
    let is_fitted = |case: &&CaseFigures<'_>| {
        let mut kinds = case.checks.iter().map(|check| check.kind);
        kinds.any(|kind| kind == ExpectationKind::Fitted)
    };
    let names = names(analysis.cases.iter().filter(is_fitted))?;
    Some(format!(
        "in {names} the conditions were chosen to produce the expected values, so meeting those expectations proves nothing"
    ))
}

fn of_loose_expectations(analysis: &Analysis<'_>) -> Option<String> {
    let loose = ExpectationCounts::of(analysis.checks()).loose.all;
    let accept = if loose == 1 { "accepts" } else { "accept" };
    (loose > 0).then(|| {
        let all = counted(loose, "loose expectation");
        format!("{all} {accept} a range whose ends are more than a factor of {LOOSE} apart")
    })
}

fn of_the_machine(analysis: &Analysis<'_>) -> Option<String> {
    let near = ceiling::near_limits(analysis);
    let all = near
        .iter()
        .map(|one| format!("{} in {}", one.instrument, one.case));
    (!near.is_empty()).then(|| {
        format!(
            "the figures of {} describe the machine more than the link",
            listed(all)
        )
    })
}

fn of_single_runs(analysis: &Analysis<'_>) -> Option<String> {
    let runs = analysis.record.runs.iter();
    let valid = runs.filter(|run| run.outcome == RunOutcome::Ok).count();
    let most = analysis.cases.iter().map(|case| case.runs.len()).max()?;
    (valid > 0 && most == 1).then(|| {
        "no case has more than one run, so the variation between runs is unknown".to_owned()
    })
}

fn of_missing_comparisons(comparisons: &SweepComparisons) -> Option<String> {
    let pairs = comparisons.all.iter().flat_map(|one| &one.pairs);
    let missing = pairs.filter(|pair| pair.outcome.is_err()).count();
    let not_made = (missing > 0).then(|| {
        let all = missing + family(&comparisons.all);
        format!(
            "{missing} of {} could not be made",
            counted(all, "comparison")
        )
    });
    let all: Vec<String> = not_made
        .into_iter()
        .chain(comparisons.remarks.iter().cloned())
        .collect();
    (!all.is_empty()).then(|| all.join("; "))
}

fn of_fields_that_change_together(comparisons: &SweepComparisons) -> Option<String> {
    let together = comparisons
        .all
        .iter()
        .find(|one| !one.together.is_empty())?;
    Some(format!(
        "{} changes together with the {}, so a difference may be due to either",
        field_words::listed(&together.together),
        together.field
    ))
}

fn of_missing_reference(analysis: &Analysis<'_>, key: Option<&KeyFigure<'_>>) -> Option<String> {
    let plan = analysis.record.plan();
    let has_several_cases = key.is_some_and(|key| !key.has_one_case());
    let is_compared =
        plan.reference.is_some() || !plan.trends.is_empty() || !plan.compare.by.is_empty();
    (has_several_cases && !is_compared && analysis.bottlenecks.is_empty()).then(|| {
        "the scenario names no reference case, so no difference between cases was tested".to_owned()
    })
}

/// Lists the names of cases; `None` if there are none.
fn names<'c>(cases: impl Iterator<Item = &'c CaseFigures<'c>>) -> Option<String> {
    let names: Vec<String> = cases.map(|case| case.words().to_owned()).collect();
    (!names.is_empty()).then(|| listed(names.into_iter()))
}

/// Formats a list: "a", "a and b", "a, b and c", "a, b, c and 5 others".
fn listed(all: impl Iterator<Item = String>) -> String {
    let mut all: Vec<String> = all.collect();
    if all.len() > MOST_LISTED {
        let others = all.len() - (MOST_LISTED - 1);
        all.truncate(MOST_LISTED - 1);
        all.push(format!("{others} others"));
    }
    field_words::listed(&all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::sweep_comparison::tests::sweep;
    use crate::analysis::tests::{record, spoil};
    use record::Record;
    use record::expectation::Criterion;
    use record::plan::Repeats;

    fn sentences(record: &Record) -> Vec<String> {
        Answer::of(&Analysis::of(record)).sentences
    }

    /// Five goodputs around 100 Mbit/s times this factor.
    fn times(factor: f64) -> [f64; 5] {
        [98e6, 99e6, 100e6, 101e6, 102e6].map(|rate| factor * rate)
    }

    /// A record with a case for each name, with these goodputs, the first of which is the reference.
    fn of(cases: &[(&str, f64)]) -> Record {
        let mut record = record();
        let (case, run) = (record.head.plan.cases[0].clone(), record.runs[0].clone());
        record.runs.clear();
        record.head.plan.cases.clear();
        record.head.plan.trends.clear();
        record.head.plan.reference = Some(cases[0].0.to_owned());
        for (name, factor) in cases {
            let mut case = case.clone();
            case.name = (*name).to_owned();
            case.title = case.name.clone();
            case.expect.clear();
            case.published.clear();
            case.repeats = Repeats::fixed(5);
            for (repeat, rate) in (1..).zip(times(*factor)) {
                let mut run = run.clone();
                (run.case, run.repeat) = (case.name.clone(), repeat);
                run.measurements.remove(0);
                run.measurements[0].measurement.figures[0].value = rate;
                record.runs.push(run);
            }
            record.head.plan.cases.push(case);
        }
        record
    }

    #[test]
    fn the_answer_has_the_change_the_published_values_and_the_limits() {
        assert_eq!(
            sentences(&record()),
            [
                "Compared with base (Nothing added), the goodput of download is 48.8 % lower in slow (Slower & <lossy>), \
                 with too few runs for an interval.",
                "The measured goodput of download differs from the 2 published values by +0.0 to +2.5 %, most strongly in slow \
                 (Slower & <lossy>); the measured 95 % interval contains the published value in 1 of 1.",
                "Limits: 1 loose expectation accepts a range whose ends are more than a factor of 1.5 apart.",
            ]
        );
    }

    #[test]
    fn a_difference_is_stated_with_its_interval_and_none_as_none() {
        let found = sentences(&of(&[("base", 1.0), ("triple", 3.0), ("alike", 1.001)]));
        assert_eq!(
            found[0],
            "Compared with base, the goodput of download is 3.000 [2.932, 3.070] times as high in triple; no difference \
             was found in alike (in brackets: 95 % intervals)."
        );
        assert!(
            found[1].starts_with("Limits: the intervals describe repetitions"),
            "{found:?}"
        );
        let found = sentences(&of(&[("base", 1.0), ("alike", 1.001)]));
        assert_eq!(
            found[0],
            "Compared with base, no difference in the goodput of download was found in alike."
        );
        let less = &sentences(&of(&[("base", 1.0), ("less", 0.8)]))[0];
        assert!(
            less.contains("is 20.0 % [18.1, 21.8] lower in less"),
            "{less}"
        );
    }

    #[test]
    fn of_many_differences_the_greatest_and_the_least_are_stated() {
        let cases = [
            ("base", 1.0),
            ("a", 2.5),
            ("b", 4.0),
            ("c", 5.0),
            ("d", 3.0),
            ("alike", 1.001),
        ];
        let found = &sentences(&of(&cases))[0];
        for part in [
            "differs in 4 of 5 comparisons: most strongly in c, where it is 5.00",
            "and least in a, where it is 2.500",
            "; no difference was found in alike",
        ] {
            assert!(found.contains(part), "{part} in {found}");
        }
    }

    #[test]
    fn without_a_reference_the_values_are_stated_and_nothing_is_compared() {
        let mut record = of(&[("slow", 1.0), ("fast", 3.0)]);
        record.head.plan.reference = None;
        let found = sentences(&record);
        assert!(
            found[0].starts_with(
                "The goodput of download is lowest in slow (100.0 ± 2.0 Mbit/s) and highest in fast (300.0"
            ),
            "{found:?}"
        );
        assert!(found[1].contains("the scenario names no reference case"));
        record.runs.retain(|run| run.repeat == 1);
        for case in &mut record.head.plan.cases {
            case.repeats = Repeats::fixed(1);
        }
        assert!(sentences(&record)[1].contains("no case has more than one run"));
        record.runs.clear();
        assert_eq!(sentences(&record)[0], "No valid figure was measured.");
    }

    #[test]
    fn a_comparison_that_the_scenario_asks_for_is_the_answer() {
        let factor = |[_, _, congestion]: [&str; 3]| match congestion {
            "bbr" => 2.0,
            _ => 1.0,
        };
        let found = sentences(&sweep(5, 0.01, 1, factor));
        assert!(
            found[0].starts_with("By congestion control, bbr carries "),
            "{found:?}"
        );
        let end = "; differences were also found between bbr and reno; none was found between reno and cubic (in brackets: \
                   simultaneous 95 % intervals for 18 comparisons).";
        assert!(found[0].ends_with(end), "{found:?}");
        assert!(!found[1].contains("reference"), "{found:?}");
        let found = sentences(&sweep(3, 0.01, 1, factor));
        assert!(
            found[0].starts_with("The goodput of download is lowest at "),
            "{found:?}"
        );
        assert!(
            found[1].contains("18 of 18 comparisons could not be made"),
            "{found:?}"
        );
    }

    #[test]
    fn an_unmet_expectation_is_stated_and_fitted_ones_test_nothing() {
        let mut record = record();
        record.head.plan.cases[0].expect[0].fitted = true;
        record.head.plan.cases[1].expect[0].rule = Criterion::Gain {
            gain: 5.0,
            within: 0.15,
        };
        let found = sentences(&record);
        assert_eq!(
            found[1],
            "Not met: slow: ping.rtt_ms.median: the reference's value +5 ± 0.15 ms: NOT MET: 3.125 ms (+2.025)."
        );
        assert!(
            found[2].starts_with(
                "Limits: in base the conditions were chosen to produce the expected values"
            ),
            "{found:?}"
        );
    }

    #[test]
    fn nothing_is_concluded_about_a_case_whose_runs_do_not_count() {
        let mut record = record();
        spoil(&mut record.runs[2], "the ring dropped 3");
        let found = sentences(&record);
        assert!(
            found[2]
                .starts_with("Limits: nothing can be concluded about slow, because runs failed"),
            "{found:?}"
        );
    }

    #[test]
    fn a_met_record_is_not_shown_as_good_if_a_third_of_the_attempts_failed() {
        let mut record = record();
        let of = |record: &Record| {
            let analysis = Analysis::of(record);
            let answer = Answer::of(&analysis);
            (answer.is_good(), answer.class())
        };
        assert_eq!(of(&record), (true, "met"));
        record.runs[0].attempt = 2;
        assert_eq!(of(&record), (true, "met"));
        record.runs[1].attempt = 2;
        assert_eq!(of(&record), (false, "disturbed"));
    }
}
