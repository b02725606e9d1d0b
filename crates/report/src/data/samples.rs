//! The table of samples.

use super::swept::SweptColumns;
use super::{DataColumn, DataKind, DataTable, DataValue, RunOfCase};
use crate::error::Result;
use record::{Direction, Measured, Phase, Record, Run, Sample};

/// Returns a table with a row for each sample of `runs`.
pub(super) fn table<'a>(
    record: &'a Record,
    runs: Vec<RunOfCase<'a>>,
    with_invalid: bool,
) -> Result<DataTable<'a>> {
    let swept = SweptColumns::of(record.plan());
    let mut columns = vec![DataColumn::new("case", DataKind::Text)];
    columns.extend(swept.columns());
    let others = [
        ("repeat", DataKind::Integer),
        ("attempt", DataKind::Integer),
        ("outcome", DataKind::Text),
        ("seed", DataKind::Integer),
        ("instrument", DataKind::Text),
        ("at_s", DataKind::Number),
        ("metric", DataKind::Text),
        ("index", DataKind::Integer),
        ("direction", DataKind::Text),
        ("stream", DataKind::Integer),
        ("size", DataKind::Integer),
        ("phase", DataKind::Text),
        ("value", DataKind::Number),
    ];
    columns.extend(others.map(|(name, kind)| DataColumn::new(name, kind)));
    let measured = runs.iter().flat_map(|one| wanted(one.run, with_invalid));
    let count: usize = measured.map(|one| one.measurement.samples.len()).sum();
    let rows = runs.into_iter().flat_map(move |RunOfCase { run, case }| {
        let mut of_case = vec![DataValue::text(run.case.as_str())];
        of_case.extend(swept.values(case));
        wanted(run, with_invalid).flat_map(move |measured| {
            let mut of_run = of_case.clone();
            of_run.extend(of_measured(run, measured));
            let samples = measured.measurement.samples.iter();
            samples.map(move |sample| row(&of_run, sample))
        })
    });
    DataTable::new(columns, count, rows)
}

/// Returns the measurements of a run that reports count, or all.
fn wanted(run: &Run, with_invalid: bool) -> impl Iterator<Item = &Measured> {
    let all = run.measurements.iter();
    all.filter(move |measured| with_invalid || outcome(run, measured) == "ok")
}

/// Returns the outcome of an instrument's measurement, which may be another than that of the run.
fn outcome(run: &Run, measured: &Measured) -> &'static str {
    if run.spoilt_as_a_whole().is_some() || measured.invalid.is_some() {
        "invalid"
    } else if measured.measurement.failure.is_some() {
        "failed"
    } else {
        "ok"
    }
}

/// Returns the values that all samples of a measurement share, after those of the case.
fn of_measured<'a>(run: &'a Run, measured: &'a Measured) -> [DataValue<'a>; 5] {
    [
        DataValue::Integer(run.repeat.into()),
        DataValue::Integer(run.attempt.into()),
        DataValue::text(outcome(run, measured)),
        DataValue::Integer(run.seed),
        DataValue::text(measured.instrument.as_str()),
    ]
}

fn row<'a>(of_run: &[DataValue<'a>], sample: &Sample) -> Vec<DataValue<'a>> {
    let word = |word: Option<&'static str>| word.map_or(DataValue::Missing, DataValue::text);
    let count = |count: Option<u64>| count.map_or(DataValue::Missing, DataValue::Integer);
    let mut cells = of_run.to_vec();
    cells.extend([
        // Microseconds are finer than any clock of a record.
        DataValue::number((sample.at_s * 1e6).round() / 1e6),
        DataValue::text(sample.metric.name()),
        DataValue::Integer(sample.index),
        word(sample.direction.map(Direction::name)),
        count(sample.stream.map(u64::from)),
        count(sample.size),
        word(sample.phase.map(Phase::name)),
        DataValue::number(sample.value),
    ]);
    cells
}
