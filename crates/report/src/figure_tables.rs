//! The tables of figures in a report: one for each instrument, with a row for each case.

use std::collections::BTreeSet;

use crate::analysis::{Analysis, CaseFigures};
use crate::case_labels::CaseLabels;
use crate::changes;
use crate::interval::{ConfidenceInterval, Label, around, of_interval};
use crate::trust::{self, OccurringRow, TrustRow};
use record::Record;
use record::figure_name::FigureName;
use record::plan::{Case, PlannedInstrument};
use record::profile::InstrumentProfile;
use record::quantity::{NOT_AVAILABLE, number, scale_for};
use record::table::{Cell, Column, Mark, Table};
use record::{Direction, Metric, Phase, Statistic};

/// The figures of an instrument in all cases that use it.
pub(super) struct FigureTable<'a> {
    pub(super) instrument: &'a str,
    pub(super) profile: &'a InstrumentProfile,
    /// The columns that identify the cases.
    pub(super) labels: CaseLabels<'a>,
    pub(super) columns: Vec<ValueColumn>,
    /// The unit of each column, and its size in the metric's unit.
    pub(super) units: Vec<(f64, &'static str)>,
    pub(super) rows: Vec<CaseRow<'a>>,
}

/// The figure of a column, which is the same in all rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ValueColumn {
    pub(super) metric: Metric,
    pub(super) statistic: Statistic,
    pub(super) direction: Option<Direction>,
    pub(super) phase: Option<Phase>,
}

/// A case, or one message, block or file size in it.
pub(super) struct CaseRow<'a> {
    pub(super) figures: &'a CaseFigures<'a>,
    pub(super) size: Option<u64>,
    pub(super) values: Vec<FigureValue>,
}

/// A figure in the unit of its column.
#[derive(Clone, Debug, Default)]
pub(super) struct FigureValue {
    pub(super) value: Option<f64>,
    /// Whether the value is a lower bound.
    pub(super) at_least: bool,
    pub(super) interval: Option<ConfidenceInterval>,
    /// Whether there are too few samples for an interval or, for a percentile, for the value.
    pub(super) too_few: bool,
    /// The published value as text, or the mean of those published.
    pub(super) published: Option<String>,
    /// The change from the reference, in words.
    pub(super) change: Option<String>,
    /// Whether the change has no interval, because there are too few runs.
    pub(super) is_of_few: bool,
    /// The change in percent, or in percentage points for a percentage, with its own sign or unit if it is a factor or
    /// a difference.
    pub(super) short_change: Option<String>,
}

/// The remark on changes without an interval, which a report has once for all its tables.
pub(super) const FEW_RUNS: &str = "A change without an interval is one of too few runs; four runs of each of the two cases are \
                                   enough";

/// Returns the tables of a record in the order of its instruments.
pub(super) fn tables<'a>(analysis: &'a Analysis<'a>) -> Vec<FigureTable<'a>> {
    let mut instruments: Vec<&PlannedInstrument> = Vec::new();
    for instrument in analysis.cases.iter().flat_map(|c| &c.case.instruments) {
        if instruments
            .iter()
            .all(|known| known.name != instrument.name)
        {
            instruments.push(instrument);
        }
    }
    let tables = instruments
        .into_iter()
        .map(|instrument| table(analysis, &instrument.name, &instrument.profile));
    // Without a valid run, no case has a figure.
    let has_figures = |table: &FigureTable<'_>| !table.rows.is_empty() && !table.columns.is_empty();
    tables.filter(has_figures).collect()
}

fn table<'a>(
    analysis: &'a Analysis<'a>,
    instrument: &'a str,
    profile: &'a InstrumentProfile,
) -> FigureTable<'a> {
    let mut asked = expected(analysis);
    let cases = analysis.cases.iter();
    asked.extend(cases.flat_map(|figures| figures.case.published.keys()));
    let wanted = |name: &&FigureName| {
        profile.is_headline(name.metric, name.statistic)
            || asked.iter().any(|asked| name.is_of(asked))
    };
    let names = |figures: &'a CaseFigures<'a>| {
        let all = figures.figures.keys();
        all.filter(|name| name.instrument == instrument)
            .filter(wanted)
            .collect::<Vec<_>>()
    };
    let columns: BTreeSet<ValueColumn> = analysis
        .cases
        .iter()
        .flat_map(names)
        .map(ValueColumn::of)
        .collect();
    let columns: Vec<ValueColumn> = columns.into_iter().collect();
    let unit =
        |column: &ValueColumn| scale_for(column.metric, greatest(analysis, instrument, *column));
    let units: Vec<(f64, &'static str)> = columns.iter().map(unit).collect();
    let rows = analysis.cases.iter().flat_map(|figures| {
        let used = figures.case.instrument(instrument).is_some();
        let sizes: BTreeSet<Option<u64>> = names(figures).iter().map(|name| name.size).collect();
        let sizes = if sizes.is_empty() && used {
            BTreeSet::from([None])
        } else {
            sizes
        };
        let (columns, units) = (columns.clone(), units.clone());
        sizes.into_iter().map(move |size| CaseRow {
            figures,
            size,
            values: columns
                .iter()
                .zip(&units)
                .map(|(column, (by, _))| value(figures, &column.name(instrument, size), *by))
                .collect(),
        })
    });
    let rows: Vec<CaseRow<'a>> = rows.collect();
    let cases: Vec<&Case> = rows.iter().map(|row| row.figures.case).collect();
    FigureTable {
        instrument,
        profile,
        labels: CaseLabels::of(analysis.record.plan(), &cases),
        rows,
        columns,
        units,
    }
}

/// Returns whether a change in these tables has no interval, because there are too few runs.
pub(super) fn has_few_runs(tables: &[FigureTable<'_>]) -> bool {
    let rows = tables.iter().flat_map(|table| &table.rows);
    let mut values = rows.flat_map(|row| &row.values);
    values.any(|value| value.is_of_few)
}

/// Returns the greatest value of a column over all cases and sizes.
fn greatest(analysis: &Analysis<'_>, instrument: &str, column: ValueColumn) -> f64 {
    let cases = analysis.cases.iter().flat_map(|figures| &figures.figures);
    let own =
        cases.filter(|(name, _)| name.instrument == instrument && ValueColumn::of(name) == column);
    own.map(|(_, figure)| figure.value().abs())
        .fold(0.0, f64::max)
}

/// Returns the figures for which a case has expectations.
pub(super) fn expected<'a>(analysis: &Analysis<'a>) -> Vec<&'a FigureName> {
    let cases = analysis.cases.iter();
    let expected = cases.flat_map(|figures| &figures.case.expect);
    expected.map(|expectation| &expectation.of).collect()
}

fn value(figures: &CaseFigures<'_>, name: &FigureName, scale: f64) -> FigureValue {
    let published = figures
        .case
        .published
        .iter()
        .find(|(published, _)| name.is_of(published))
        .and_then(|(_, published)| published.in_words(scale));
    let Some(figure) = figures.figures.get(name) else {
        return FigureValue {
            published,
            ..FigureValue::default()
        };
    };
    let interval = figure.interval.map(|own| own.in_units_of(scale));
    let (change, shift) = (figure.change.as_ref(), figure.shift.as_ref());
    let words = change.map(|change| changes::in_cell(change, shift, name.metric));
    FigureValue {
        value: Some(figure.value() / scale),
        at_least: figure.at_least,
        interval,
        too_few: figure.too_few,
        published,
        is_of_few: words.as_ref().is_some_and(|words| words.is_of_few),
        change: words.map(|words| words.text),
        short_change: change.map(|change| changes::in_column(change, name.metric)),
    }
}

/// Returns the unit of the changes of a metric.
fn change_unit(metric: Metric) -> &'static str {
    match metric.unit() {
        "%" => "points",
        _ => "%",
    }
}

/// Lists the rows of trust for the figures in these tables and, with `is_steady`, for the rate over the steady part of
/// runs.
pub(super) fn trust(tables: &[FigureTable<'_>], is_steady: bool) -> Vec<OccurringRow> {
    let headings = tables.iter().flat_map(|table| {
        table.columns.iter().map(|column| {
            let row = TrustRow::of(table.profile, column.metric, column.statistic);
            (row, format!("{} of {}", column.title(), table.instrument))
        })
    });
    let rows = tables.iter().flat_map(|table| &table.rows);
    let has_several = rows.clone().any(|row| row.figures.runs.len() > 1);
    trust::occurring(&headings.collect::<Vec<_>>(), is_steady, has_several)
}

/// Returns whether reports show this figure of the record even without expectations.
pub fn is_headline(record: &Record, name: &FigureName) -> bool {
    let all = record.plan().instruments();
    let mut own = all.filter(|i| i.name == name.instrument);
    own.any(|i| i.profile.is_headline(name.metric, name.statistic))
}

impl FigureTable<'_> {
    /// Returns the table, with changes as numbers if it should be `narrow`, or else in words.
    pub(super) fn table(&self, narrow: bool) -> Table {
        let any = |at: usize, has: fn(&FigureValue) -> bool| {
            self.rows.iter().any(|row| has(&row.values[at]))
        };
        let shown: Vec<[bool; 2]> = (0..self.columns.len())
            .map(|at| {
                [
                    any(at, |v| v.published.is_some()),
                    any(at, |v| v.change.is_some()),
                ]
            })
            .collect();
        let mut columns = self.labels.columns();
        let has_sizes = self.has_sizes();
        columns.extend(has_sizes.then(|| Column::numbers("size\nbytes").label()));
        let labels: Vec<Label> = (0..self.columns.len()).map(|at| self.label(at)).collect();
        let shown_columns = self.columns.iter().zip(&shown).zip(&labels);
        for (((column, [published, changed]), label), (_, unit)) in shown_columns.zip(&self.units) {
            let lines: Vec<String> = [
                Some(column.title()),
                label.heading(),
                Some((*unit).to_owned()),
            ]
            .into_iter()
            .flatten()
            .collect();
            let trust = TrustRow::of(self.profile, column.metric, column.statistic);
            columns.push(Column::numbers(lines.join("\n")).explained_at(trust.place()));
            let publication = || Column::numbers(format!("published\n{unit}")).beside();
            columns.extend(published.then(publication));
            let change = || {
                if narrow {
                    Column::numbers(format!("Δ\n{}", change_unit(column.metric)))
                } else {
                    Column::words("Δ to the reference")
                }
            };
            columns.extend(changed.then(|| change().beside()));
        }
        let row = |row: &CaseRow<'_>| {
            let mut cells = self.labels.cells(row.figures.case);
            cells.extend(has_sizes.then(|| Cell::from(row.size_text())));
            let columns = self.columns.iter().zip(&shown).zip(&labels);
            for (value, ((column, [published, changed]), label)) in row.values.iter().zip(columns) {
                cells.push(value.in_words(column.statistic, *label).into());
                cells.extend(
                    published
                        .then(|| Cell::marked(or_dash(value.published.clone()), Mark::Published)),
                );
                cells.extend(changed.then(|| {
                    let change = if narrow {
                        &value.short_change
                    } else {
                        &value.change
                    };
                    or_dash(change.clone()).into()
                }));
            }
            cells
        };
        Table::new(self.instrument, columns).with(self.rows.iter().map(row))
    }

    /// Returns whether rows are of one message, block or file size each.
    pub(super) fn has_sizes(&self) -> bool {
        self.rows.iter().any(|row| row.size.is_some())
    }

    /// Returns the label for the intervals of a column.
    pub(super) fn label(&self, column: usize) -> Label {
        let rows = self.rows.iter();
        Label::of(rows.filter_map(|row| Some(row.values[column].interval?.of)))
    }

    /// Returns the names of all figures for which the table has a place.
    pub(super) fn names(&self) -> Vec<FigureName> {
        let sizes: BTreeSet<Option<u64>> = self.rows.iter().map(|row| row.size).collect();
        let of = |size: Option<u64>| {
            self.columns
                .iter()
                .map(move |column| column.name(self.instrument, size))
        };
        sizes.into_iter().flat_map(of).collect()
    }
}

impl FigureValue {
    /// Formats the value, or "n/a" for a percentile of too few samples.
    pub(super) fn number(&self, statistic: Statistic) -> String {
        match self.value {
            Some(_) if self.too_few && statistic.is_tail() => NOT_AVAILABLE.to_owned(),
            Some(value) if self.at_least => format!("at least {}", number(value)),
            Some(value) => match self.interval {
                Some(own) => of_interval(value, own.ends),
                None => number(value),
            },
            None => or_dash(None),
        }
    }

    /// Formats the interval, and its scope if that is not the heading's: "± 0.106", "[10.00, 10.80]"; "\[n/a\]" for too
    /// few samples.
    pub(super) fn interval(&self, statistic: Statistic, label: Label) -> Option<String> {
        let too_few = self.too_few && statistic.is_tail();
        let value = self.value.filter(|_| !self.at_least && !too_few)?;
        let Some(interval) = self.interval else {
            return self.too_few.then(|| format!("[{NOT_AVAILABLE}]"));
        };
        let words = around(value, interval.ends);
        Some(match label.beside(interval.of) {
            Some(beside) => format!("{words} {beside}"),
            None => words,
        })
    }

    /// Formats value and interval under a heading with this label: "3.125 ± 0.106", "10.00 [10.00, 10.80]", "at least
    /// 3.125".
    fn in_words(&self, statistic: Statistic, label: Label) -> String {
        let words = [
            Some(self.number(statistic)),
            self.interval(statistic, label),
        ];
        words.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}

impl ValueColumn {
    pub(super) fn of(name: &FigureName) -> Self {
        Self {
            metric: name.metric,
            statistic: name.statistic,
            direction: name.direction,
            phase: name.phase,
        }
    }

    /// Returns the name of the figure for one instrument and one size.
    pub(super) fn name(self, instrument: &str, size: Option<u64>) -> FigureName {
        FigureName {
            instrument: instrument.to_owned(),
            metric: self.metric,
            statistic: self.statistic,
            direction: self.direction,
            phase: self.phase,
            size,
        }
    }

    /// Formats the title: "rtt median, up".
    pub(super) fn title(self) -> String {
        let mut title = self.metric.title();
        match self.statistic {
            Statistic::Total => {}
            statistic => {
                title.push(' ');
                title.push_str(statistic.name());
            }
        }
        for more in [
            self.direction.map(Direction::name),
            self.phase.map(Phase::name),
        ]
        .into_iter()
        .flatten()
        {
            title.push_str(", ");
            title.push_str(more);
        }
        title
    }
}

impl CaseRow<'_> {
    /// Formats the size for its column.
    pub(super) fn size_text(&self) -> String {
        or_dash(self.size.map(|size| size.to_string()))
    }
}

/// Replaces an unknown text by a dash.
pub(super) fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "–".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::record;
    use crate::case_labels::tests::swept;
    use crate::formats::markdown::markdown;
    use crate::{Terminal, html, text};
    use record::Figure;

    #[test]
    fn a_one_sided_interval_of_one_run_is_printed_with_its_scope() {
        let mut record = record();
        record.runs.truncate(1);
        record.head.plan.cases.truncate(1);
        let goodput = &mut record.runs[0].measurements[1].measurement.figures[0];
        *goodput = goodput.clone().within(goodput.value, 1.08 * goodput.value);
        for report in [
            text(&record, false, Terminal::NONE),
            text(&record, true, Terminal::NONE),
            markdown(&record).unwrap().replace('\\', ""),
        ] {
            assert!(report.contains("16.00 [16.00, 17.28]"), "{report}");
            assert!(report.contains("in the run"), "{report}");
            assert!(!report.contains("over 1 run"), "{report}");
        }
        let page = html(&record).unwrap();
        assert!(page.contains("<b>16.00</b> <i>[16.00, 17.28]</i>"));
        assert!(page.contains("In the run: the 95 % interval of what the network did"));
    }

    #[test]
    fn intervals_over_different_numbers_of_runs_are_printed_with_their_scope() {
        let mut record = record();
        let goodput = &mut record.runs[0].measurements[1].measurement.figures[0];
        *goodput = goodput.clone().within(goodput.value, 1.08 * goodput.value);
        let text = markdown(&record).unwrap().replace('\\', "");
        assert!(
            text.contains("[goodput mean](#trust-goodput), over 2 runs, Mbit/s"),
            "{text}"
        );
        assert!(text.contains("16.00 [16.00, 17.28] in the run"), "{text}");
        assert!(text.contains("| 8 ± 23 |"), "{text}");
    }

    #[test]
    fn a_column_of_small_rates_is_in_kbit_and_published_values_are_unchanged() {
        use record::plan::Published;
        let mut record = record();
        for run in &mut record.runs {
            run.measurements[1].measurement.figures[0].value /= 1e3;
        }
        let rate = "download.goodput_bit_per_s.mean".parse().unwrap();
        let quoted = Published::Quoted {
            value: 15_000.0,
            text: "1875b/1s".to_owned(),
        };
        record.head.plan.cases[0].published.insert(rate, quoted);
        let text = markdown(&record).unwrap();
        assert!(
            text.contains("[goodput mean](#trust-goodput), over 2 runs, kbit/s"),
            "{text}"
        );
        assert!(
            text.contains("| base | 16.00 | 15.00 (1875b/1s) |"),
            "{text}"
        );
    }

    #[test]
    fn a_report_has_only_the_rows_of_trust_of_its_figures() {
        let record = record();
        let analysis = Analysis::of(&record);
        let tables = tables(&analysis);
        let rows = trust(&tables, false);
        let anchors: Vec<&str> = rows.iter().map(|one| one.row.anchor).collect();
        assert_eq!(anchors, ["rtt", "loss", "goodput", "over-runs"]);
        assert_eq!(rows[0].title(), "rtt median of ping");
        assert_eq!(rows[3].title(), "any figure over N runs");
        assert_eq!(trust(&tables, true)[3].row.anchor, "steady");
    }

    #[test]
    fn the_values_of_a_sweep_are_columns_and_too_few_runs_are_remarked_once() {
        let mut record = swept(&[
            &[("link.delay", "1ms"), ("link.loss", "1%")],
            &[("link.delay", "9ms"), ("link.loss", "1%")],
            &[("link.delay", "9ms"), ("link.loss", "5%")],
        ]);
        record.head.plan.reference = Some(record.head.plan.cases[0].name.clone());
        let markdown = markdown(&record).unwrap();
        assert!(
            markdown.contains("\n| delay | loss | [rtt median]"),
            "{markdown}"
        );
        assert!(markdown.contains("\n| 9ms | 5% | 3.050 |"), "{markdown}");
        assert_eq!(markdown.matches(FEW_RUNS).count(), 1, "{markdown}");
        let terminal = text(&record, true, Terminal::NONE);
        let row = terminal
            .lines()
            .find(|line| line.starts_with(" 9ms"))
            .unwrap();
        assert!(row.contains("  1%  "), "{row}");
        let page = html(&record).unwrap();
        let tables = page.split("<h2>Results</h2>").nth(1).unwrap();
        assert_eq!(tables.matches("too few runs").count(), 1, "{page}");
    }

    #[test]
    fn values_of_too_few_samples_are_not_available() {
        let mut record = record();
        let of_ping = &mut record.runs[0].measurements[0].measurement.figures;
        let median = of_ping
            .iter_mut()
            .find(|f| f.metric == Metric::RttMs)
            .unwrap();
        *median = median.clone().effective_samples(9.0);
        let text = text(&record, false, Terminal::NONE);
        assert!(text.contains("1.100 [n/a]"), "{text}");
        let tail = |effective_samples| FigureValue {
            value: Some(7.0),
            too_few: Figure::new(Metric::RttMs, Statistic::P99, 7.0)
                .effective_samples(effective_samples)
                .is_of_too_few(),
            ..FigureValue::default()
        };
        assert_eq!(
            tail(499.0).in_words(Statistic::P99, Label::default()),
            "n/a"
        );
        assert_eq!(
            tail(500.0).in_words(Statistic::P99, Label::default()),
            "7.000"
        );
    }
}
