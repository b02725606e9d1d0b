//! The tables of a report, before they are drawn: one an instrument, a row a case.

use std::collections::BTreeSet;

use crate::analysis::{Analysis, CaseFigures};
use record::Record;
use record::figure_name::FigureName;
use record::plan::Instrument;
use record::profile::Profile;
use record::{Direction, Metric, Phase, Statistic};

/// What an instrument measured in every case that uses it.
pub(super) struct InstrumentTable<'a> {
    pub(super) instrument: &'a str,
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Row<'a>>,
}

/// One figure in every row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Column {
    pub(super) metric: Metric,
    pub(super) statistic: Statistic,
    pub(super) direction: Option<Direction>,
    pub(super) phase: Option<Phase>,
}

/// A case, or one message, block or file size of it.
pub(super) struct Row<'a> {
    pub(super) figures: &'a CaseFigures<'a>,
    pub(super) size: Option<u64>,
    pub(super) cells: Vec<Cell>,
}

/// A figure in its column's unit.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    pub(super) value: Option<f64>,
    /// Half of the 95 % interval's width.
    pub(super) half: Option<f64>,
    pub(super) published: Option<f64>,
    /// Against the reference, in plain words.
    pub(super) change: Option<String>,
    /// Against the reference, in percent, or where there is no percentage in the unit.
    pub(super) shift: Option<f64>,
}

/// The tables of a record, in the order of its instruments.
pub(super) fn tables<'a>(analysis: &'a Analysis<'a>) -> Vec<InstrumentTable<'a>> {
    let mut instruments: Vec<&Instrument> = Vec::new();
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
    tables.filter(|table| !table.rows.is_empty()).collect()
}

fn table<'a>(
    analysis: &'a Analysis<'a>,
    instrument: &'a str,
    profile: &Profile,
) -> InstrumentTable<'a> {
    let asked = |figures: &CaseFigures<'_>| {
        let case = figures.case;
        let expected = case.expect.iter().map(|expectation| &expectation.of);
        let names = expected.chain(case.published.keys());
        names.cloned().collect::<Vec<_>>()
    };
    let asked: Vec<FigureName> = analysis.cases.iter().flat_map(asked).collect();
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
    let columns: BTreeSet<Column> = analysis
        .cases
        .iter()
        .flat_map(names)
        .map(Column::of)
        .collect();
    let columns: Vec<Column> = columns.into_iter().collect();
    let rows = analysis.cases.iter().flat_map(|figures| {
        let used = figures
            .case
            .instruments
            .iter()
            .any(|i| i.name == instrument);
        let sizes: BTreeSet<Option<u64>> = names(figures).iter().map(|name| name.size).collect();
        let sizes = if sizes.is_empty() && used {
            BTreeSet::from([None])
        } else {
            sizes
        };
        let columns = columns.clone();
        sizes.into_iter().map(move |size| Row {
            figures,
            size,
            cells: columns
                .iter()
                .map(|column| cell(figures, &column.name(instrument, size)))
                .collect(),
        })
    });
    InstrumentTable {
        instrument,
        rows: rows.collect(),
        columns,
    }
}

fn cell(figures: &CaseFigures<'_>, name: &FigureName) -> Cell {
    let scale = scale(name.metric).0;
    let published = figures.case.published.iter();
    let mut published = published.filter(|(published, _)| name.is_of(published));
    let published = published.next().map(|(_, value)| value / scale);
    let Some(figure) = figures.figures.get(name) else {
        return Cell {
            published,
            ..Cell::default()
        };
    };
    let half = figure
        .interval
        .map(|[low, high]| (high - low) / 2.0 / scale);
    let shift = figure.shift.as_ref();
    Cell {
        value: Some(figure.value() / scale),
        half,
        published,
        change: shift.map(|shift| shift.words(name.metric.sense(), name.metric.unit())),
        shift: shift.map(|shift| {
            shift
                .percent
                .map_or(shift.absolute.value / scale, |percent| percent.value)
        }),
    }
}

/// By what a metric's values are divided for people, and what they then are.
pub(super) fn scale(metric: Metric) -> (f64, &'static str) {
    match metric.unit() {
        "bit/s" => (1e6, "Mbit/s"),
        unit => (1.0, unit),
    }
}

/// Whether reports show this figure of the record whatever is expected of it.
pub fn is_headline(record: &Record, name: &FigureName) -> bool {
    let instruments = record
        .plan()
        .cases
        .iter()
        .flat_map(|case| &case.instruments);
    let mut own = instruments.filter(|i| i.name == name.instrument);
    own.any(|i| i.profile.is_headline(name.metric, name.statistic))
}

impl InstrumentTable<'_> {
    /// Every figure that it has a place for.
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

impl Column {
    pub(super) fn of(name: &FigureName) -> Self {
        Self {
            metric: name.metric,
            statistic: name.statistic,
            direction: name.direction,
            phase: name.phase,
        }
    }

    /// As one instrument's, of one size.
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

    /// For people: "rtt median, up".
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

impl Row<'_> {
    /// The case, and the size if there are several.
    pub(super) fn title(&self) -> String {
        let name = &self.figures.case.name;
        match self.size {
            Some(size) => format!("{name}, {size} bytes"),
            None => name.clone(),
        }
    }
}

/// Significant digits by the size of what is shown: three behind the point below 10, then fewer.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 10_000.0 => format!("{value:.0}"),
        v if v >= 100.0 => format!("{value:.1}"),
        v if v >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}
