//! The figure that a report states first, because the scenario is about it.
//!
//! Only figures that the tables show can be it. If something was published, it is one of the published figures. Among
//! these, it is the one with the most expectations, counted over all cases. Of several, it is the one that the cases
//! change most; without expectations, it is the first one in the order of the instruments and of their main figures.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};

use super::{Analysis, CaseFigures, FigureOverRuns};
use crate::field_words::Shared;
use crate::{case_conditions, figure_words};
use record::Metric;
use record::figure_name::FigureName;
use record::plan::{Case, Published};
use record::quantity::{counted, scale_for};
use stats::change::Change;
use stats::deciding::Centre;
use stats::hodges_lehmann::ShiftVerdict;

/// The figure in all cases and sizes.
#[derive(Clone, Debug)]
pub(crate) struct KeyFigure<'a> {
    /// Its name without a size.
    pub(crate) name: FigureName,
    /// The cases in the order of the plan, each with its sizes in ascending order.
    pub(crate) rows: Vec<KeyRow<'a>>,
}

/// The figure in a case, for one size if there are several.
#[derive(Clone, Debug)]
pub(crate) struct KeyRow<'a> {
    pub(crate) case: &'a Case,
    pub(crate) size: Option<u64>,
    /// The figure over the runs; absent if no run has a valid one, and for a percentile of too few samples.
    pub(crate) figure: Option<&'a FigureOverRuns>,
    pub(crate) published: Option<&'a Published>,
}

/// The properties by which the key figure is chosen, in the order in which they count.
#[derive(Clone, Copy, Debug)]
struct Importance {
    is_published: bool,
    /// Number of expectations about it, in all cases.
    expectations: usize,
    /// The greatest change by a case.
    effect: f64,
    /// The places of its instrument among those of the case, and of the figure among the instrument's main figures.
    place: Reverse<[usize; 2]>,
}

impl<'a> KeyFigure<'a> {
    /// Chooses the figure; `None` if no valid run has a figure that the tables show.
    pub(crate) fn of(analysis: &'a Analysis<'a>) -> Option<Self> {
        let mut found: BTreeMap<FigureName, Importance> = BTreeMap::new();
        for figures in &analysis.cases {
            for (name, figure) in &figures.figures {
                let Some(more) = Importance::of(analysis, figures, name, figure) else {
                    continue;
                };
                found
                    .entry(without_size(name))
                    .and_modify(|known| known.add(more))
                    .or_insert(more);
            }
        }
        // Of equal ones, the first counts.
        let all = found.into_iter().rev();
        let (name, _) = all.max_by(|(_, a), (_, b)| a.compare(b))?;
        let rows = analysis.cases.iter().flat_map(|case| rows(case, &name));
        Some(Self {
            rows: rows.collect(),
            name,
        })
    }

    /// Returns the figure in words: "goodput of load (up)".
    pub(crate) fn in_words(&self) -> String {
        figure_words::of_any_size(&self.name)
    }

    /// Returns the unit in which all its values are shown, and its size in the metric's unit.
    pub(crate) fn unit(&self) -> (f64, &'static str) {
        let values = self.rows.iter().flat_map(|row| {
            let measured = row.figure.map(|figure| figure.value());
            measured.into_iter().chain(row.published_mean())
        });
        scale_for(self.name.metric, values.map(f64::abs).fold(0.0, f64::max))
    }

    /// Returns whether all rows are of the same case, so that a size identifies a row.
    pub(crate) fn has_one_case(&self) -> bool {
        let mut names = self.rows.iter().map(|row| &row.case.name);
        let first = names.next();
        names.all(|name| Some(name) == first)
    }

    /// Names a row in a sentence: "in case2 (constant delay 1 ms)", "at 64 bytes", or, if a sweep made the case, "at 10 ms
    /// delay without loss".
    pub(crate) fn place(&self, row: &KeyRow<'_>) -> String {
        let size = row.size.map(|size| counted(size, "byte"));
        let swept = self.swept(row.case).map(|values| values.in_sentence());
        let case = || case_conditions::described(row.case);
        match (size, swept) {
            (Some(size), _) if self.has_one_case() => format!("at {size}"),
            (Some(size), Some(values)) => format!("at {size},{values}"),
            (Some(size), None) => format!("at {size} in {}", case()),
            (None, Some(values)) => values.trim_start().to_owned(),
            (None, None) => format!("in {}", case()),
        }
    }

    /// Names a case with which others are compared: "case1 (no emulation)", or, if a sweep made it, "no delay, 1 % loss".
    pub(crate) fn reference(&self, case: &Case) -> String {
        let swept = self.swept(case).map(|values| values.label());
        swept.unwrap_or_else(|| case_conditions::described(case))
    }

    /// Returns the values that a sweep set in a case, with the name of the sweep if there are several; `None` for a case
    /// that no sweep made.
    fn swept(&self, case: &Case) -> Option<Shared> {
        let values: Vec<(&str, &str)> = case.swept_values().collect();
        let rows = self.rows.iter().map(|row| row.case);
        let swept = rows.filter(|case| case.swept_values().next().is_some());
        let sweeps: BTreeSet<String> = swept.map(Case::base_name).collect();
        let name = (sweeps.len() > 1).then(|| case.base_name());
        (!values.is_empty()).then(|| Shared::of(name, &values))
    }
}

impl KeyRow<'_> {
    /// Returns the published value, or the mean of several.
    pub(crate) fn published_mean(&self) -> Option<f64> {
        self.published?.over(Centre::Mean)
    }
}

impl Importance {
    /// Returns that of a figure in one case; `None` if the tables do not show it.
    fn of(
        analysis: &Analysis<'_>,
        figures: &CaseFigures<'_>,
        name: &FigureName,
        figure: &FigureOverRuns,
    ) -> Option<Self> {
        if is_hidden(name, figure) {
            return None;
        }
        let case = figures.case;
        let mut instruments = case.instruments.iter().enumerate();
        let (at, instrument) = instruments.find(|(_, one)| one.name == name.instrument)?;
        let mut headlines = instrument.profile.headlines.iter();
        let headline = headlines.position(|headline| {
            (headline.metric, headline.statistic) == (name.metric, name.statistic)
        });
        let own = case.expect.iter().filter(|rule| name.is_of(&rule.of));
        let trends = analysis.record.plan().trends.iter();
        let trends =
            trends.filter(|trend| name.is_of(&trend.of) && trend.cases.contains(&case.name));
        let expectations = own.count() + trends.count();
        let is_published = published(case, name).is_some();
        (is_published || expectations > 0 || headline.is_some()).then(|| Self {
            is_published,
            expectations,
            effect: figure
                .change
                .as_ref()
                .map_or(0.0, |change| effect(change, name.metric)),
            place: Reverse([at, headline.unwrap_or(usize::MAX)]),
        })
    }

    /// Adds that of the same figure in another case or for another size.
    fn add(&mut self, more: Self) {
        *self = Self {
            is_published: self.is_published || more.is_published,
            expectations: self.expectations + more.expectations,
            effect: self.effect.max(more.effect),
            place: self.place.max(more.place),
        };
    }

    fn compare(&self, other: &Self) -> Ordering {
        let is_expected = self.expectations > 0;
        self.is_published
            .cmp(&other.is_published)
            .then(self.expectations.cmp(&other.expectations))
            .then_with(|| match is_expected {
                true => self.effect.total_cmp(&other.effect),
                false => Ordering::Equal,
            })
            .then(self.place.cmp(&other.place))
    }
}

/// Returns the size of a change, whatever its direction: the logarithm of the factor, or 0 if no change is shown.
pub(crate) fn effect(change: &Change, metric: Metric) -> f64 {
    /// A change from or to a value near 0 counts as this factor, above which no factor is stated.
    const NEAR_ZERO: f64 = 100.0;
    let (_, unit) = scale_for(metric, change.means[0].max(change.means[1]));
    match (change.verdict(unit), change.factor) {
        (ShiftVerdict::NotShown, _) => 0.0,
        (_, Some(factor)) => factor.value.ln().abs(),
        (_, None) if change.difference.value == 0.0 => 0.0,
        (_, None) => NEAR_ZERO.ln(),
    }
}

/// Returns the rows of a case. A case whose runs do not count has a row without a figure.
fn rows<'a>(figures: &'a CaseFigures<'a>, key: &FigureName) -> Vec<KeyRow<'a>> {
    let case = figures.case;
    let row = |size, figure, published| KeyRow {
        case,
        size,
        figure,
        published,
    };
    let mut rows: BTreeMap<Option<u64>, KeyRow<'a>> = BTreeMap::new();
    for (name, figure) in &figures.figures {
        if without_size(name) == *key {
            let shown = Some(figure).filter(|figure| !is_hidden(name, figure));
            let found = row(name.size, shown, published(case, name));
            rows.insert(name.size, found);
        }
    }
    for (name, published) in &case.published {
        if key.is_of(&without_size(name)) {
            let missing = || row(name.size, None, Some(published));
            rows.entry(name.size).or_insert_with(missing);
        }
    }
    let is_measured = case.instrument(&key.instrument).is_some();
    if rows.is_empty() && is_measured && !figures.faults.is_empty() {
        rows.insert(None, row(None, None, None));
    }
    rows.into_values().collect()
}

/// Returns whether reports do not show the value, because there are too few samples for the percentile.
fn is_hidden(name: &FigureName, figure: &FigureOverRuns) -> bool {
    figure.too_few && name.statistic.is_tail()
}

fn published<'a>(case: &'a Case, name: &FigureName) -> Option<&'a Published> {
    let mut published = case.published.iter();
    let found = published.find(|(published, _)| name.is_of(published));
    found.map(|(_, published)| published)
}

fn without_size(name: &FigureName) -> FigureName {
    FigureName {
        size: None,
        ..name.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::record;
    use crate::case_labels::tests::swept;
    use record::expectation::{Criterion, Expectation, Judgement};
    use record::{Figure, Record, RunOutcome, Statistic};

    fn key(record: &Record) -> String {
        let analysis = Analysis::of(record);
        KeyFigure::of(&analysis).unwrap().name.to_string()
    }

    fn expect(record: &mut Record, of: &str) {
        record.head.plan.cases[1].expect.push(Expectation {
            of: of.parse().unwrap(),
            rule: Criterion::Range {
                least: Some(0.0),
                most: None,
            },
            judgement: Judgement::default(),
            fitted: false,
        });
    }

    #[test]
    fn the_key_figure_is_the_published_one_with_the_most_expectations() {
        let mut record = record();
        // There are two rules and a trend of two cases for the download, and one rule for the ping; all are published.
        assert_eq!(key(&record), "download.goodput_bit_per_s.mean");
        for _ in 0..4 {
            expect(&mut record, "ping.rtt_ms.median");
        }
        assert_eq!(key(&record), "ping.rtt_ms.median");
        for case in &mut record.head.plan.cases {
            case.published
                .retain(|name, _| name.metric == Metric::LostPercent);
        }
        assert_eq!(key(&record), "ping.lost_percent.mean");
    }

    #[test]
    fn of_figures_with_equally_many_expectations_the_one_that_changes_most_is_it() {
        let mut record = record();
        record.head.plan.trends.clear();
        for case in &mut record.head.plan.cases {
            case.published.clear();
            case.expect.clear();
        }
        // Without expectations, the order of the instruments decides.
        assert_eq!(key(&record), "ping.rtt_ms.median");
        expect(&mut record, "ping.rtt_ms.median");
        expect(&mut record, "download.goodput_bit_per_s.mean");
        // The round trip is 2.8 times as long, and the download half as fast.
        assert_eq!(key(&record), "ping.rtt_ms.median");
        for run in record.runs.iter_mut().filter(|run| run.case == "slow") {
            run.measurements[1].measurement.figures[0].value /= 10.0;
        }
        assert_eq!(key(&record), "download.goodput_bit_per_s.mean");
    }

    #[test]
    fn a_row_is_a_case_or_a_size_in_it_and_a_published_value_without_a_measured_one_has_its_row() {
        let mut record = record();
        record.head.plan.cases.truncate(1);
        record.head.plan.trends.clear();
        record.runs.truncate(1);
        let sized = |size: u64| Figure::new(Metric::RttMs, Statistic::Mean, 1.0).size(size);
        record.runs[0].measurements[0].measurement.figures = [64, 128].map(sized).to_vec();
        let published = &mut record.head.plan.cases[0].published;
        published.clear();
        for size in [64, 256] {
            let name = format!("ping.rtt_ms.mean.{size}b").parse().unwrap();
            published.insert(name, Published::Value(2.0));
        }
        let analysis = Analysis::of(&record);
        let key = KeyFigure::of(&analysis).unwrap();
        let rows: Vec<_> = key
            .rows
            .iter()
            .map(|row| (row.size, row.figure.is_some(), row.published_mean()))
            .collect();
        let expected = [
            (Some(64), true, Some(2.0)),
            (Some(128), true, None),
            (Some(256), false, Some(2.0)),
        ];
        assert_eq!(rows, expected);
        assert_eq!(key.in_words(), "mean round-trip time of ping");
        assert_eq!(key.place(&key.rows[0]), "at 64 bytes");
    }

    #[test]
    fn a_case_of_a_sweep_is_named_by_its_values() {
        let mut record = swept(&[
            &[("link.delay", "0ms"), ("link.loss", "1%")],
            &[("link.delay", "9ms"), ("link.loss", "0%")],
            &[],
        ]);
        record.head.plan.cases[2].name = "plain".to_owned();
        record.head.plan.cases[2].title = String::new();
        record.runs[2].case = "plain".to_owned();
        let analysis = Analysis::of(&record);
        let key = KeyFigure::of(&analysis).unwrap();
        let places: Vec<String> = key.rows.iter().map(|row| key.place(row)).collect();
        assert_eq!(
            places,
            [
                "at 1 % loss without delay",
                "at 9 ms delay without loss",
                "in plain"
            ]
        );
        assert_eq!(key.reference(key.rows[0].case), "no delay, 1 % loss");
        assert_eq!(key.reference(key.rows[2].case), "plain");
    }

    #[test]
    fn a_case_without_a_valid_run_has_a_row_without_a_figure() {
        let mut record = record();
        for case in &mut record.head.plan.cases {
            case.published.clear();
        }
        record.runs[0].outcome = RunOutcome::Failed {
            cause: "no route".to_owned(),
        };
        record.runs[0].measurements.clear();
        let analysis = Analysis::of(&record);
        let key = KeyFigure::of(&analysis).unwrap();
        assert_eq!(key.rows.len(), 2);
        assert!(key.rows[0].figure.is_none() && key.rows[1].figure.is_some());
        assert_eq!(key.place(&key.rows[0]), "in base (Nothing added)");
        record.runs.clear();
        assert!(KeyFigure::of(&Analysis::of(&record)).is_none());
    }
}
