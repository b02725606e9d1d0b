//! The questions that comparisons answer, the answers in sentences, and the table of each.

use std::cmp::{Ordering, Reverse};

use crate::analysis::Analysis;
use crate::analysis::field_comparison::{ComparedPair, FieldComparison, NotCompared, family};
use crate::analysis::sweep_comparison::SweepComparisons;
use crate::field_words::listed;
use crate::render::{escaped, table_markdown};
use crate::terminal::{Terminal, prose, table_text};
use crate::{distinct, figure_words};
use record::figure_name::FigureName;
use record::quantity::{counted, number, scale_for};
use record::table::{Column, Table};
use record::{Metric, Statistic};
use stats::contrast::{self, Contrast, ContrastScale};
use stats::digits::{decimals, fixed, significant};

/// Largest number of conditions, or of reasons, that a sentence lists.
const MOST_LISTED: usize = 3;
/// Largest number of pairs of values that have a sentence each; the table has every pair.
const MOST_SENTENCES: usize = 12;
/// Largest number of rows on a terminal.
const MOST_ON_TERMINAL: usize = 60;
/// Largest number of decimal places of a ratio, unless it needs more to have three digits or to show a difference.
const RATIO_PLACES: i32 = 3;
/// Largest number of decimal places of a ratio that needs more.
const MOST_PLACES: i32 = 9;

/// A comparison with the words for its figure.
pub(super) struct Answer<'a> {
    pub(super) comparison: &'a FieldComparison,
    /// The figure in a sentence, without "the": "median round-trip time of ping".
    figure: String,
    /// The divisor of the figure's values, and the unit of the quotient.
    unit: (f64, &'static str),
}

/// Returns the answers of comparisons that one report shows.
pub(super) fn answers(all: &[FieldComparison]) -> Vec<Answer<'_>> {
    let names: Vec<&FigureName> = all.iter().map(|one| &one.figure).collect();
    let answer = |comparison| Answer::of(comparison, &names);
    all.iter().map(answer).collect()
}

/// Returns a sentence on the method that all comparisons of a report share; `None` without any.
pub(super) fn method(all: &[FieldComparison]) -> Option<String> {
    let count = family(all);
    let pairs = || {
        all.iter()
            .flat_map(|one| &one.pairs)
            .filter_map(|pair| pair.outcome.as_ref().ok())
    };
    let has = |scale| pairs().any(|contrast| contrast.scale == scale);
    let test = match (has(ContrastScale::Ratio), has(ContrastScale::Difference)) {
        (true, false) => "Welch's t test of the logarithms",
        (false, _) => "Welch's t test",
        (true, true) => "Welch's t test, of the logarithms for ratios",
    };
    (count > 0).then(|| {
        format!(
            "beyond chance: {test} for {}, with Holm's procedure at 5 %; the intervals contain the true values of all of \
             them together in 95 % of experiments (Bonferroni's), and end at 1, or at a difference of 0, where only \
             Holm's procedure excludes it",
            counted(count, "comparison")
        )
    })
}

/// Formats the comparisons of a record for a terminal, with their tables if `details` are wanted; empty if its scenario
/// asks for none.
pub(super) fn text(analysis: &Analysis<'_>, details: bool, terminal: Terminal) -> String {
    let SweepComparisons { all, remarks } = SweepComparisons::of(analysis);
    let mut text = String::new();
    for answer in answers(&all) {
        let lines = [vec![answer.question()], answer.sentences()].concat();
        text += &format!("\n{}", prose(&lines.join("\n"), terminal));
        if details {
            text += &answer.table_text(terminal);
        }
    }
    let notes: Vec<String> = method(&all).into_iter().chain(remarks).collect();
    text + &prose(&notes.join("\n"), terminal)
}

/// Formats the comparisons of a record as a section in Markdown; empty if its scenario asks for none.
pub(super) fn markdown(analysis: &Analysis<'_>) -> String {
    let SweepComparisons { all, remarks } = SweepComparisons::of(analysis);
    if all.is_empty() && remarks.is_empty() {
        return String::new();
    }
    let mut text = "\n## Comparisons\n".to_owned();
    for answer in answers(&all) {
        text += &format!("\n**{}**\n\n", escaped(&answer.question()));
        for sentence in answer.sentences() {
            text += &format!("- {}\n", escaped(&sentence));
        }
        text += &format!("\n{}", table_markdown(&answer.table()));
    }
    for note in method(&all).into_iter().chain(remarks) {
        text += &format!("\n{}.\n", escaped(&note));
    }
    text
}

impl<'a> Answer<'a> {
    fn of(comparison: &'a FieldComparison, all: &[&FigureName]) -> Self {
        let means = comparison.pairs.iter().flat_map(|pair| pair.means);
        let greatest = means.flatten().map(f64::abs).fold(0.0, f64::max);
        Self {
            comparison,
            figure: figure_words::among(&comparison.figure, all),
            unit: scale_for(comparison.figure.metric, greatest),
        }
    }

    /// Formats the question: "Does the goodput depend on the congestion control?"
    pub(super) fn question(&self) -> String {
        let (figure, field) = (&self.figure, &self.comparison.field);
        format!("Does the {figure} depend on the {field}?")
    }

    /// Formats the answer, with a sentence for each pair of values, and one about what was not compared.
    pub(super) fn sentences(&self) -> Vec<String> {
        let groups = self.comparison.by_values();
        let mut all: Vec<String> = groups
            .iter()
            .filter_map(|pairs| self.sentence(pairs))
            .collect();
        let more = all.len().saturating_sub(MOST_SENTENCES);
        if more > 0 {
            all.truncate(MOST_SENTENCES);
            all.push(format!("the table has {}", counted(more, "more answer")));
        }
        all.extend(self.not_compared());
        let together = &self.comparison.together;
        if !together.is_empty() {
            all.push(format!(
                "{} changes together with the {}, so a difference may be due to either",
                listed(together),
                self.comparison.field
            ));
        }
        all
    }

    /// Formats the answer in one sentence without its full stop, for the opening of a report: the two values that differ
    /// under the most conditions, and whether the others differ; `None` if nothing was compared.
    pub(super) fn in_short(&self) -> Option<String> {
        let groups = self.comparison.by_values();
        let differences = |pairs: &[&ComparedPair]| {
            let found = pairs.iter().filter(|pair| pair.finding().is_some());
            found.count()
        };
        let compared = groups.iter().filter_map(|pairs| {
            let sentence = self.sentence(pairs)?;
            Some((differences(pairs), pairs[0], sentence))
        });
        let mut all: Vec<(usize, &ComparedPair, String)> = compared.collect();
        // Of equally many differences, the first pair of values counts.
        all.sort_by_key(|(count, ..)| Reverse(*count));
        let (first, others) = all.split_first()?;
        let values = |is_wanted: fn(usize) -> bool, word: &str| {
            let wanted = others.iter().filter(|(count, ..)| is_wanted(*count));
            between(&wanted.map(|(_, pair, _)| *pair).collect::<Vec<_>>(), word)
        };
        let mut clauses = vec![first.2.clone()];
        if let Some(values) = values(|count| count > 0, "and") {
            clauses.push(format!("differences were also found between {values}"));
        }
        if let Some(values) = values(|count| count == 0, "or") {
            clauses.push(format!("none was found between {values}"));
        }
        Some(clauses.join("; "))
    }

    /// Returns the table of all pairs.
    pub(super) fn table(&self) -> Table {
        let pairs = &self.comparison.pairs;
        let has_cases = pairs.iter().any(|pair| pair.shared.case.is_some());
        let values = pairs.iter().flat_map(|pair| &pair.shared.values);
        let fields = distinct(values.map(|value| value.field.as_str()));
        let mut columns: Vec<Column> = Vec::new();
        columns.extend(has_cases.then(|| Column::words("case")));
        columns.extend(fields.iter().map(|field| Column::words(*field)));
        columns.push(Column::words(self.comparison.field.as_str()));
        columns.push(Column::numbers(self.estimate_title()));
        columns.push(Column::numbers("p\nadjusted"));
        columns.push(Column::words("found"));
        let row = |pair: &ComparedPair| {
            let mut cells: Vec<String> = Vec::new();
            cells.extend(has_cases.then(|| pair.shared.case.clone().unwrap_or_default()));
            for field in &fields {
                let mut own = pair.shared.values.iter();
                let value = own.find(|value| value.field == *field);
                cells.push(value.map_or_else(String::new, |value| value.value.short.clone()));
            }
            cells.push(names(pair));
            let contrast = pair.outcome.as_ref().ok();
            let dash = || "–".to_owned();
            cells.push(contrast.map_or_else(dash, |contrast| self.shown(contrast)));
            cells.push(contrast.map_or_else(dash, |contrast| p_value(contrast.p)));
            cells.push(match &pair.outcome {
                Ok(contrast) => found(contrast).to_owned(),
                Err(reason) => format!("not compared: {}", reason.words()),
            });
            cells
        };
        Table::new("", columns).with(pairs.iter().map(row))
    }

    /// Formats the table for a terminal, or its length if it is too long for one.
    pub(super) fn table_text(&self, terminal: Terminal) -> String {
        match self.comparison.pairs.len() {
            rows if rows > MOST_ON_TERMINAL => {
                let elsewhere = format!("{rows} comparisons: --format md and html show each");
                prose(&elsewhere, terminal)
            }
            _ => table_text(&self.table(), terminal),
        }
    }

    fn estimate_title(&self) -> String {
        let outcomes = self
            .comparison
            .pairs
            .iter()
            .filter_map(|pair| pair.outcome.as_ref().ok());
        let scales = distinct(outcomes.map(|contrast| contrast.scale));
        match scales[..] {
            [ContrastScale::Difference] => format!("difference\n{}", self.difference_unit()),
            [ContrastScale::Ratio] | [] => "ratio".to_owned(),
            [..] => format!("ratio, or difference\n{}", self.difference_unit()),
        }
    }

    fn difference_unit(&self) -> &'static str {
        match self.unit.1 {
            "%" => "percentage points",
            unit => unit,
        }
    }

    /// Returns the figure in a sentence, without "the".
    pub(super) fn figure(&self) -> &str {
        &self.figure
    }

    /// Formats a comparison with its interval: "1.80 [1.61, 2.01]".
    pub(super) fn shown(&self, contrast: &Contrast) -> String {
        joined(self.parts(contrast))
    }

    /// Formats a comparison and its interval separately: "1.80", "[1.61, 2.01]". There is no interval if no value
    /// scatters.
    pub(super) fn parts(&self, contrast: &Contrast) -> (String, Option<String>) {
        let by = self.divisor(contrast);
        with_ends(
            contrast.estimate / by,
            contrast.interval.map(|end| end / by),
            places(contrast, by),
        )
    }

    fn divisor(&self, contrast: &Contrast) -> f64 {
        match contrast.scale {
            ContrastScale::Ratio => 1.0,
            ContrastScale::Difference => self.unit.0,
        }
    }

    /// Formats the comparison of two values under all conditions; `None` if they were compared under none.
    fn sentence(&self, pairs: &[&ComparedPair]) -> Option<String> {
        let mut clauses: Vec<String> = Vec::new();
        for scale in [ContrastScale::Ratio, ContrastScale::Difference] {
            for order in [Ordering::Greater, Ordering::Less] {
                let own = compared(pairs, scale, Some(order));
                clauses.extend(self.clause(&own, order, pairs.len()));
            }
        }
        let alike: Vec<Compared<'_>> = [ContrastScale::Ratio, ContrastScale::Difference]
            .into_iter()
            .flat_map(|scale| compared(pairs, scale, None))
            .collect();
        clauses.extend(self.no_difference(&alike, clauses.is_empty()));
        (!clauses.is_empty()).then(|| clauses.join("; "))
    }

    /// Formats the differences of one kind and one direction, of `all` comparisons of the same values.
    fn clause(&self, own: &[Compared<'_>], order: Ordering, all: usize) -> Option<String> {
        let (first, rest) = own.split_first()?;
        if own.len() <= MOST_LISTED {
            let lead = self.lead(first, &self.amount(first.contrast));
            let items = rest.iter().map(|one| {
                let amount = self.amount(one.contrast);
                amount + &one.pair.shared.in_sentence()
            });
            let items = std::iter::once(lead + &first.pair.shared.in_sentence()).chain(items);
            return Some(serial(&items.collect::<Vec<_>>()));
        }
        let by_estimate = |a: &&Compared<'_>, b: &&Compared<'_>| {
            a.contrast.estimate.total_cmp(&b.contrast.estimate)
        };
        let (least, most) = (
            own.iter().min_by(by_estimate)?,
            own.iter().max_by(by_estimate)?,
        );
        let (near, far) = match order {
            Ordering::Less => (most, least),
            _ => (least, most),
        };
        let [near_end, far_end] = [near, far].map(|one| self.estimate(one.contrast));
        let range = self.worded(far.contrast, &format!("{near_end} to {far_end}"));
        let lead = self.lead(far, &range);
        Some(format!(
            "{lead} in {} of {}, strongest{}: {}",
            own.len(),
            counted(all, "comparison"),
            far.pair.shared.in_sentence(),
            self.amount(far.contrast)
        ))
    }

    /// Formats the comparisons in which no difference was found; `is_only` if none was found in the others either.
    fn no_difference(&self, alike: &[Compared<'_>], is_only: bool) -> Option<String> {
        let first = alike.first()?;
        let [base, value] = &first.pair.values;
        let subject = if is_only {
            format!(
                "no difference in the {} was found between {} and {}",
                self.figure, value.full, base.full
            )
        } else {
            "no difference was found".to_owned()
        };
        let places = alike.iter().map(|one| one.pair.shared.in_sentence());
        let places: Vec<String> = places.map(|place| place.trim_start().to_owned()).collect();
        let places = match places.len() {
            count if count <= MOST_LISTED => serial(&places),
            count if is_only => format!("in any of {count} comparisons"),
            count => format!("in the other {count}"),
        };
        let parts = [subject, places, within(alike).unwrap_or_default()];
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        Some(parts.collect::<Vec<_>>().join(" "))
    }

    /// Formats the start of a sentence about a difference of this amount.
    fn lead(&self, one: &Compared<'_>, amount: &str) -> String {
        let ([base, value], figure) = (&one.pair.values, &self.figure);
        let (base_name, name) = (&base.full, &value.full);
        match one.contrast.scale {
            ContrastScale::Ratio if self.is_goodput() && base.is_name && value.is_name => {
                format!("{name} carries {amount} {base_name}'s {figure}")
            }
            ContrastScale::Ratio => {
                format!("the {figure} with {name} is {amount} that with {base_name}")
            }
            ContrastScale::Difference => {
                format!("the {figure} with {name} is {amount} than with {base_name}")
            }
        }
    }

    fn is_goodput(&self) -> bool {
        let FigureName {
            metric, statistic, ..
        } = self.comparison.figure;
        (metric, statistic) == (Metric::GoodputBitPerS, Statistic::Mean)
    }

    /// Formats an amount in a sentence: "1.80 [1.61, 2.01] times", "0.50 [0.30, 0.70] Mbit/s higher".
    fn amount(&self, contrast: &Contrast) -> String {
        let by = self.divisor(contrast);
        let text = match (contrast.scale, contrast.estimate < 0.0) {
            (ContrastScale::Difference, true) => {
                let [low, high] = contrast.interval.map(|end| -end / by);
                let ends = [high, low];
                joined(with_ends(
                    -contrast.estimate / by,
                    ends,
                    places(contrast, by),
                ))
            }
            _ => self.shown(contrast),
        };
        self.worded(contrast, &text)
    }

    /// Adds to an amount what a sentence says after it.
    fn worded(&self, contrast: &Contrast, text: &str) -> String {
        let way = if contrast.estimate < 0.0 {
            "lower"
        } else {
            "higher"
        };
        match (contrast.scale, self.difference_unit()) {
            (ContrastScale::Ratio, _) => format!("{text} times"),
            (ContrastScale::Difference, "") => format!("{text} {way}"),
            (ContrastScale::Difference, unit) => format!("{text} {unit} {way}"),
        }
    }

    /// Formats only the estimate, a difference without its sign.
    fn estimate(&self, contrast: &Contrast) -> String {
        let by = self.divisor(contrast);
        let value = (contrast.estimate / by).abs();
        places(contrast, by).map_or_else(|| number(value), |places| fixed(value, places))
    }

    /// Formats how many pairs were not compared, and why.
    fn not_compared(&self) -> Option<String> {
        let pairs = &self.comparison.pairs;
        let reasons = pairs.iter().filter_map(|pair| pair.outcome.as_ref().err());
        let all: Vec<String> = reasons.map(NotCompared::words).collect();
        let reasons = distinct(all.iter().cloned());
        let more = if reasons.len() > MOST_LISTED {
            "; and others"
        } else {
            ""
        };
        let listed: Vec<String> = reasons.into_iter().take(MOST_LISTED).collect();
        (!all.is_empty()).then(|| {
            format!(
                "not made: {} of {}: {}{more}",
                all.len(),
                counted(pairs.len(), "comparison"),
                listed.join("; ")
            )
        })
    }
}

/// A pair and its comparison.
struct Compared<'a> {
    pair: &'a ComparedPair,
    contrast: &'a Contrast,
}

/// Returns those of the pairs that were compared in this way with this finding.
fn compared<'a>(
    pairs: &[&'a ComparedPair],
    scale: ContrastScale,
    finding: Option<Ordering>,
) -> Vec<Compared<'a>> {
    let all = pairs.iter().filter_map(|&pair| {
        let contrast = pair.outcome.as_ref().ok()?;
        Some(Compared { pair, contrast })
    });
    all.filter(|one| one.contrast.scale == scale && one.contrast.finding() == finding)
        .collect()
}

/// Formats the range of the ratios that the intervals of these comparisons allow; `None` if not all are ratios.
fn within(alike: &[Compared<'_>]) -> Option<String> {
    let is_ratio = |one: &Compared<'_>| one.contrast.scale == ContrastScale::Ratio;
    let ends = alike.iter().map(|one| one.contrast.interval);
    let [low, high] = ends.reduce(|[low, high], [least, most]| [low.min(least), high.max(most)])?;
    let places = decimals((high - low) / 2.0).filter(|_| alike.iter().all(is_ratio))?;
    let [low, high] = [low, high].map(|end| fixed(end, places.min(RATIO_PLACES)));
    Some(format!("(within {low} to {high} times)"))
}

/// Formats the two values of a pair: "bbr / cubic".
pub(super) fn names(pair: &ComparedPair) -> String {
    let [base, value] = &pair.values;
    format!("{} / {}", value.short, base.short)
}

/// Formats the words after "between" in a sentence about these pairs. A few pairs are listed by their values, with `word`
/// before each but the first: "bbr and cubic, or between bbr and reno". Of many pairs, only the number is stated: "the
/// values of 5 other pairs". Without a pair, this returns `None`.
fn between(pairs: &[&ComparedPair], word: &str) -> Option<String> {
    let values = |pair: &&ComparedPair| {
        let [base, value] = &pair.values;
        format!("{} and {}", value.full, base.full)
    };
    match pairs.len() {
        0 => None,
        1..=MOST_LISTED => {
            let values: Vec<String> = pairs.iter().map(values).collect();
            Some(values.join(&format!(", {word} between ")))
        }
        count => Some(format!("the values of {}", counted(count, "other pair"))),
    }
}

/// Formats the finding of a comparison in one or two words.
pub(super) fn found(contrast: &Contrast) -> &'static str {
    match contrast.finding() {
        Some(Ordering::Greater) => "higher",
        Some(_) => "lower",
        None => "no difference",
    }
}

impl NotCompared {
    /// Formats the reason.
    pub(super) fn words(&self) -> String {
        match self {
            Self::TooFewRuns => format!("too few runs: {} of each needed", contrast::FEWEST),
            Self::Faulty { source, verdict } => format!("{source} is {verdict}"),
            Self::Missing { source } => format!("{source} lacks the figure"),
            Self::LowerBound { source } => format!("{source} has only a lower bound"),
            Self::OutOfRange => "the values are out of the test's range".to_owned(),
        }
    }
}

/// Formats a value and its interval to this many decimal places: "1.80", "[1.61, 2.01]".
fn with_ends(value: f64, [low, high]: [f64; 2], places: Option<i32>) -> (String, Option<String>) {
    let Some(places) = places else {
        return (number(value), None);
    };
    let has_width = decimals((high - low) / 2.0).is_some();
    let [value, low, high] = [value, low, high].map(|value| fixed(value, places));
    (value, has_width.then(|| format!("[{low}, {high}]")))
}

/// Returns the number of decimal places of a comparison's estimate and interval, which are divided by `by`: those that
/// show half the interval with two digits. Runs on an emulated link can be so alike that a ratio would have six. It has
/// [`RATIO_PLACES`] at most, unless it is small or would hide a difference. `None` if no value scatters and four digits are
/// enough.
fn places(contrast: &Contrast, by: f64) -> Option<i32> {
    let [low, high] = contrast.interval;
    let of_interval = decimals((high - low) / by / 2.0);
    if contrast.scale == ContrastScale::Difference {
        return of_interval;
    }
    let digits = significant(contrast.estimate, RATIO_PLACES).unwrap_or(RATIO_PLACES);
    let enough = digits.max(RATIO_PLACES);
    let usual = of_interval.map_or(enough, |places| places.min(enough));
    if !hides_a_difference(contrast, usual) {
        return of_interval.map(|_| usual);
    }
    let most = of_interval.unwrap_or(MOST_PLACES);
    let shows = (usual..=most).find(|places| !hides_a_difference(contrast, *places));
    Some(shows.unwrap_or(most))
}

/// Returns whether a difference was found that a ratio with this many decimal places does not show: the estimate, or the
/// end of the interval nearest to 1, is printed as 1 although it is not.
fn hides_a_difference(contrast: &Contrast, places: i32) -> bool {
    let [low, high] = contrast.interval;
    let near = match contrast.finding() {
        Some(Ordering::Greater) => low,
        Some(_) => high,
        None => return false,
    };
    let one = fixed(1.0, places);
    let is_lost = |value: f64| value != 1.0 && fixed(value, places) == one;
    is_lost(contrast.estimate) || is_lost(near)
}

/// Joins a value and its interval.
fn joined((value, interval): (String, Option<String>)) -> String {
    interval.map_or_else(|| value.clone(), |interval| format!("{value} {interval}"))
}

fn p_value(p: f64) -> String {
    if p < 0.001 {
        "< 0.001".to_owned()
    } else {
        fixed(p, 3)
    }
}

/// Joins parts of a sentence that may themselves contain "and": "a, and b", "a, b, and c".
fn serial(parts: &[String]) -> String {
    match parts {
        [all @ .., last] if !all.is_empty() => format!("{}, and {last}", all.join(", ")),
        _ => parts.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::sweep_comparison::tests::{compare, sweep};
    use record::Record;

    /// Returns the sentences about the only comparison of a record.
    fn sentences(record: &Record) -> Vec<String> {
        let comparisons = compare(record).all;
        answers(&comparisons)[0].sentences()
    }

    /// A sweep in which bbr carries three times as much with loss, and more with a long delay.
    fn lossy() -> Record {
        sweep(5, 0.01, 1, |[delay, loss, congestion]| {
            match (congestion, loss, delay) {
                ("bbr", "1%", "200ms") => 4.0,
                ("bbr", "1%", _) => 3.0,
                _ => 1.0,
            }
        })
    }

    /// Returns the text without its numbers, which depend on the scatter.
    fn without_numbers(text: &str) -> String {
        let mut shown = String::new();
        let mut is_in_number = false;
        for letter in text.chars() {
            let is_digit = letter.is_ascii_digit() || (is_in_number && letter == '.');
            if is_digit && !is_in_number {
                shown.push('#');
            }
            if !is_digit {
                shown.push(letter);
            }
            is_in_number = is_digit;
        }
        shown
    }

    #[test]
    fn differences_are_sentences_with_their_conditions() {
        let record = lossy();
        let comparisons = compare(&record).all;
        let all = answers(&comparisons);
        assert_eq!(
            all[0].question(),
            "Does the goodput depend on the congestion control?"
        );
        let shown: Vec<String> = all[0]
            .sentences()
            .iter()
            .map(|one| without_numbers(one))
            .collect();
        let of_bbr = |base: &str| {
            format!(
                "bbr carries # [#, #] times {base}'s goodput at # ms delay and # % loss, \
                 # [#, #] times at # ms delay and # % loss, and # [#, #] times at # ms delay and # % loss; \
                 no difference was found at # ms delay without loss, at # ms delay without loss, \
                 and at # ms delay without loss (within # to # times)"
            )
        };
        let none = "no difference in the goodput was found between reno and cubic in any of # comparisons \
                    (within # to # times)";
        assert_eq!(shown, [none.to_owned(), of_bbr("cubic"), of_bbr("reno")]);
        let of_bbr = &all[0].sentences()[1];
        let ratio: f64 = of_bbr.split(' ').nth(2).unwrap().parse().unwrap();
        assert!((2.9..3.1).contains(&ratio), "{of_bbr}");
        assert!(of_bbr.contains("200 ms delay and 1 % loss;"), "{of_bbr}");
    }

    #[test]
    fn in_short_the_values_that_differ_most_often_are_stated_and_the_others_named() {
        let record = lossy();
        let comparisons = compare(&record).all;
        let short = answers(&comparisons)[0].in_short().unwrap();
        let start = "bbr carries ";
        assert!(short.starts_with(start), "{short}");
        let end = "; differences were also found between bbr and reno; none was found between reno and cubic";
        assert!(short.ends_with(end), "{short}");
        let all_differ = compare(&sweep(5, 0.01, 1, |[.., control]| match control {
            "bbr" => 2.0,
            "reno" => 0.5,
            _ => 1.0,
        }));
        let short = answers(&all_differ.all)[0].in_short().unwrap();
        let end = "; differences were also found between bbr and cubic, and between bbr and reno";
        assert!(short.ends_with(end), "{short}");
        let few = sweep(3, 0.05, 1, |_| 1.0);
        assert!(answers(&compare(&few).all)[0].in_short().is_none());
    }

    #[test]
    fn many_differences_are_a_range_with_the_strongest() {
        let record = sweep(5, 0.01, 1, |case| match case {
            ["200ms", "1%", "bbr"] => 0.25,
            [_, _, "bbr"] => 0.5,
            _ => 1.0,
        });
        let shown = without_numbers(&sentences(&record)[1]);
        let expected = "bbr carries # to # times cubic's goodput in # of # comparisons, \
                        strongest at # ms delay and # % loss: # [#, #] times";
        assert_eq!(shown, expected);
    }

    #[test]
    fn values_that_are_no_names_and_other_figures_are_described() {
        let mut record = lossy();
        record.head.plan.compare.by = vec!["link.loss".to_owned()];
        let comparisons = compare(&record).all;
        let [answer] = &answers(&comparisons)[..] else {
            panic!("{comparisons:?}");
        };
        assert_eq!(answer.question(), "Does the goodput depend on the loss?");
        let [sentence] = &answer.sentences()[..] else {
            panic!("{:?}", answer.sentences());
        };
        let start = "the goodput with 1 % loss is ";
        assert!(sentence.starts_with(start), "{sentence}");
        assert!(sentence.contains(" times that with no loss "), "{sentence}");
        assert!(sentence.contains(" ms delay with bbr"), "{sentence}");
    }

    #[test]
    fn percentages_differ_by_points() {
        use record::Figure;
        let mut record = sweep(5, 0.01, 1, |_| 1.0);
        for run in &mut record.runs {
            let lost = if run.case.ends_with("bbr]") { 1.0 } else { 3.0 };
            let value = lost + 0.01 * f64::from(run.repeat);
            let figure = Figure::new(Metric::LostPercent, Statistic::Mean, value);
            run.measurements[0].measurement.figures.push(figure);
        }
        let of = "download.lost_percent.mean".parse().unwrap();
        record.head.plan.compare.of = vec![of];
        let sentence = &sentences(&record)[1];
        let expected = "the loss with bbr is 2.00 to 2.00 percentage points lower than with cubic in 6 of 6 comparisons";
        assert!(
            sentence.replace("2.000", "2.00").starts_with(expected),
            "{sentence}"
        );
    }

    #[test]
    fn a_ratio_near_1_has_three_decimal_places_unless_they_hide_a_difference() {
        let shown = |estimate: f64, interval: [f64; 2], p: f64| {
            let scale = ContrastScale::Ratio;
            let contrast = Contrast {
                scale,
                estimate,
                interval,
                p,
            };
            joined(with_ends(estimate, interval, places(&contrast, 1.0)))
        };
        for (estimate, interval, text) in [
            (1.000_003, [0.999_993, 1.000_013], "1.000 [1.000, 1.000]"),
            (1.000_3, [0.998_1, 1.002_6], "1.000 [0.998, 1.003]"),
            (1.02, [0.91, 1.14], "1.02 [0.91, 1.14]"),
            (1.0, [1.0, 1.0], "1.000"),
            (1.000_003, [1.000_003, 1.000_003], "1.000"),
        ] {
            assert_eq!(shown(estimate, interval, 0.4), text);
        }
        for (estimate, interval, text) in [
            (3.000_12, [3.000_01, 3.000_23], "3.000 [3.000, 3.000]"),
            (0.996_9, [0.995_2, 0.998_4], "0.997 [0.995, 0.998]"),
            (
                1.000_003,
                [1.000_001, 1.000_005],
                "1.000003 [1.000001, 1.000005]",
            ),
            (0.999_7, [0.999_2, 1.0], "0.9997 [0.9992, 1.0000]"),
            (0.012_34, [0.012_31, 0.012_37], "0.0123 [0.0123, 0.0124]"),
            (1.000_003, [1.000_003, 1.000_003], "1.000003"),
        ] {
            assert_eq!(shown(estimate, interval, 0.001), text);
        }
    }

    #[test]
    fn pairs_that_are_not_compared_are_counted_with_the_reasons() {
        let few = sweep(3, 0.05, 1, |_| 1.0);
        let told = "not made: 18 of 18 comparisons: too few runs: 4 of each needed";
        assert_eq!(sentences(&few), [told]);
        assert!(method(&compare(&few).all).is_none());
    }

    #[test]
    fn every_report_has_the_answers_and_the_table() {
        let record = lossy();
        let terminal = Terminal {
            width: 200,
            ..Terminal::NONE
        };
        let [brief, details] = [false, true].map(|details| crate::text(&record, details, terminal));
        let markdown = crate::formats::markdown::markdown(&record).unwrap();
        for report in [&brief, &details, &markdown.replace('\\', "")] {
            let line = report.replace("\n  ", " ");
            assert!(
                line.contains("Does the goodput depend on the congestion control?"),
                "{report}"
            );
            assert!(line.contains("bbr carries "), "{report}");
            assert!(line.contains("Holm's procedure at 5 %;"), "{report}");
        }
        assert!(!brief.contains("bbr / cubic"), "{brief}");
        let [rows, lines] =
            [&details, &markdown].map(|report| report.matches("bbr / cubic").count());
        assert_eq!([rows, lines], [6, 6]);
        assert!(
            markdown.contains("| 10 ms | 0 % | bbr / cubic | "),
            "{markdown}"
        );
    }
}
