//! Pools losses that are too rare for the interval of one run over several runs, as reports do.

use super::cell;
use crate::analysis::across;
use record::figure_name::FigureName;
use record::plan::{Case, PlannedInstrument};
use record::{Record, Run};

/// Number of runs that are pooled.
const POOLED: usize = 5;

/// Counts of the pooled intervals that contain the probability with which the link was set to lose packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PooledLosses {
    /// Name of the case, which has one instrument.
    pub case: String,
    /// The figure.
    pub figure: FigureName,
    /// Number of groups of five runs whose interval contains it.
    pub covered: usize,
    /// Number of groups.
    pub groups: usize,
}

impl PooledLosses {
    /// Computes the counts for every share of lost packets of `record` whose loss was set as a probability, in the
    /// order of the plan. Each group has five consecutive repeats; the remaining runs are ignored.
    pub fn of(record: &Record) -> Vec<Self> {
        let latest = record.latest();
        let of_case = |case: &Case| {
            let [instrument] = case.instruments.as_slice() else {
                return Vec::new();
            };
            let runs: Vec<&Run> = latest.runs(case).collect();
            Self::of_case(record, case, instrument, &runs)
        };
        record.plan().cases.iter().flat_map(of_case).collect()
    }

    fn of_case(
        record: &Record,
        case: &Case,
        instrument: &PlannedInstrument,
        runs: &[&Run],
    ) -> Vec<Self> {
        let sound = cell::sound(case, instrument, runs);
        let Some(first) = sound.first() else {
            return Vec::new();
        };
        let figures = first.measurement.figures.iter();
        let told = figures.filter_map(|figure| {
            let told = first.configured_loss(figure)?;
            Some((FigureName::of(&instrument.name, figure), told))
        });
        let groups: Vec<Record> = runs
            .chunks_exact(POOLED)
            .map(|runs| group(record, runs))
            .collect();
        let pooled = told.map(|(name, told)| {
            let contains = |group: &&Record| {
                let figures = across(&group.latest(), case);
                let interval = figures.get(&name).and_then(|figure| figure.interval);
                interval.is_some_and(|own| (own.ends[0]..=own.ends[1]).contains(&told))
            };
            Self {
                case: case.name.clone(),
                covered: groups.iter().filter(contains).count(),
                groups: groups.len(),
                figure: name,
            }
        });
        pooled.collect()
    }
}

/// Returns a record with these runs alone.
fn group(record: &Record, runs: &[&Run]) -> Record {
    let mut group = Record::new(record.head.clone());
    group.runs = runs.iter().map(|run| (*run).clone()).collect();
    group
}
