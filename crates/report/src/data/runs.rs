//! The table of runs.

use std::collections::{BTreeMap, HashMap};

use super::swept::SweptColumns;
use super::{DataColumn, DataKind, DataTable, DataValue, RunOfCase, figure_counts};
use crate::error::Result;
use crate::hosts;
use record::figure_name::FigureName;
use record::plan::Plan;
use record::{Figure, Record, Run};

/// The columns of the figures: one for the value, and two for the ends of its interval if any run states one.
struct FigureColumns {
    columns: Vec<DataColumn>,
    places: BTreeMap<FigureName, FigurePlace>,
}

/// The place of a figure.
struct FigurePlace {
    /// The number of its first column among those of the figures.
    first: usize,
    has_interval: bool,
}

/// Returns a table with a row for each of `runs`.
pub(super) fn table<'a>(
    record: &'a Record,
    runs: Vec<RunOfCase<'a>>,
    with_invalid: bool,
) -> Result<DataTable<'a>> {
    let swept = SweptColumns::of(record.plan());
    let figures = FigureColumns::of(record.plan(), &runs, with_invalid);
    let hosts = hosts::of(record).into_iter().map(|host| host.name);
    let hosts: Vec<String> = hosts.collect();
    let mut columns = vec![DataColumn::new("case", DataKind::Text)];
    columns.extend(swept.columns());
    let of_run = [
        ("repeat", DataKind::Integer),
        ("attempt", DataKind::Integer),
        ("outcome", DataKind::Text),
        ("reason", DataKind::Text),
        ("seed", DataKind::Integer),
        ("host", DataKind::Text),
        ("started_at", DataKind::Text),
    ];
    columns.extend(of_run.map(|(name, kind)| DataColumn::new(name, kind)));
    columns.extend(figures.columns.iter().cloned());
    let row = move |RunOfCase { run, case }: RunOfCase<'a>| {
        let host = run.host.unwrap_or(1).checked_sub(1);
        let host = host.and_then(|at| hosts.get(at));
        let optional = |text: Option<&'a str>| text.map_or(DataValue::Missing, DataValue::text);
        let mut cells = vec![DataValue::text(run.case.as_str())];
        cells.extend(swept.values(case));
        cells.extend([
            DataValue::Integer(run.repeat.into()),
            DataValue::Integer(run.attempt.into()),
            DataValue::text(run.outcome.name()),
            optional(run.outcome.cause()),
            DataValue::Integer(run.seed),
            host.map_or(DataValue::Missing, |name| DataValue::text(name.clone())),
            DataValue::text(run.started_at.as_str()),
        ]);
        cells.extend(figures.values(run, with_invalid));
        cells
    };
    DataTable::new(columns, runs.len(), runs.into_iter().map(row))
}

impl FigureColumns {
    /// Creates the columns for all figures of `runs`, in the order in which the plan has the instruments.
    fn of(plan: &Plan, runs: &[RunOfCase<'_>], with_invalid: bool) -> Self {
        let mut found: BTreeMap<FigureName, bool> = BTreeMap::new();
        for (name, figure) in runs.iter().flat_map(|one| figures(one.run, with_invalid)) {
            *found.entry(name).or_default() |= figure.interval.is_some();
        }
        let mut order: HashMap<&str, usize> = HashMap::new();
        for instrument in plan.instruments() {
            let next = order.len();
            order.entry(&instrument.name).or_insert(next);
        }
        let mut found: Vec<(FigureName, bool)> = found.into_iter().collect();
        found.sort_by_key(|(name, _)| {
            order
                .get(name.instrument.as_str())
                .map_or(usize::MAX, |at| *at)
        });
        let mut own = Self {
            columns: Vec::new(),
            places: BTreeMap::new(),
        };
        for (name, has_interval) in found {
            own.add(name, has_interval);
        }
        own
    }

    fn add(&mut self, name: FigureName, has_interval: bool) {
        let first = self.columns.len();
        let endings: &[&str] = if has_interval {
            &["", ".low", ".high"]
        } else {
            &[""]
        };
        let names = endings.iter().map(|ending| format!("{name}{ending}"));
        let columns = names.map(|name| DataColumn::new(name, DataKind::Number));
        self.columns.extend(columns);
        self.places.insert(
            name,
            FigurePlace {
                first,
                has_interval,
            },
        );
    }

    /// Returns the values of a run.
    fn values(&self, run: &Run, with_invalid: bool) -> Vec<DataValue<'static>> {
        let mut cells = vec![DataValue::Missing; self.columns.len()];
        for (name, figure) in figures(run, with_invalid) {
            let place = self.places.get(&name);
            // The first figure of a name counts, as in every report.
            let free = place.filter(|place| cells[place.first] == DataValue::Missing);
            let Some(FigurePlace {
                first,
                has_interval,
            }) = free
            else {
                continue;
            };
            cells[*first] = DataValue::number(figure.value);
            if let Some([low, high]) = figure.interval.filter(|_| *has_interval) {
                cells[first + 1] = DataValue::number(low);
                cells[first + 2] = DataValue::number(high);
            }
        }
        cells
    }
}

/// Returns the figures of a run over all streams, with their names.
fn figures(run: &Run, with_invalid: bool) -> impl Iterator<Item = (FigureName, &Figure)> {
    run.measurements.iter().flat_map(move |measured| {
        let figures = measured.measurement.figures.iter();
        let whole = figures.filter(|figure| figure.stream.is_none());
        let wanted =
            whole.filter(move |figure| with_invalid || figure_counts(run, measured, figure));
        wanted.map(move |figure| (FigureName::of(&measured.instrument, figure), figure))
    })
}
