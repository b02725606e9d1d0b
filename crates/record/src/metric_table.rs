//! The metrics of an instrument: the figures that it reports, its main figures, and the names of its series in flent's
//! data files.

use crate::declared_figures::DeclaredFigures;
use crate::figure_name::FigureName;
use crate::profile::{Calibration, FlentSeries, Headline, HostLimit, InstrumentProfile};
use crate::{Direction, Figure, Metric, Phase, Statistic};

/// A metric and the figures of it that an instrument reports.
#[derive(Clone, Debug)]
pub struct MetricRow {
    metric: Metric,
    statistics: &'static [Statistic],
    headlines: &'static [Statistic],
    flent: Vec<FlentSeries>,
    /// If there are none, the figures have no direction. The same holds for phases and sizes.
    directions: Vec<Direction>,
    phases: Vec<Phase>,
    sizes: Vec<u64>,
}

/// All metrics of which an instrument with its arguments reports figures. The main figures are listed in the order of
/// the rows.
#[derive(Clone, Debug, Default)]
pub struct MetricTable(Vec<MetricRow>);

impl MetricRow {
    /// Creates a row for these statistics of a metric.
    pub fn new(metric: Metric, statistics: &'static [Statistic]) -> Self {
        Self {
            metric,
            statistics,
            headlines: &[],
            flent: Vec::new(),
            directions: Vec::new(),
            phases: Vec::new(),
            sizes: Vec::new(),
        }
    }

    /// Creates a row for the sum or the count of a metric.
    pub fn total(metric: Metric) -> Self {
        Self::new(metric, &[Statistic::Total])
    }

    /// Creates a row for the mean of a metric.
    pub fn mean(metric: Metric) -> Self {
        Self::new(metric, &[Statistic::Mean])
    }

    /// Makes all statistics of the row main figures.
    pub fn headline(self) -> Self {
        let statistics = self.statistics;
        self.headlines(statistics)
    }

    /// Makes these statistics main figures.
    pub fn headlines(self, headlines: &'static [Statistic]) -> Self {
        Self { headlines, ..self }
    }

    /// Sets the name under which flent's data files have the samples.
    pub fn flent(self, name: &str) -> Self {
        let series = FlentSeries::new(name, self.metric, None);
        self.flent_series(vec![series])
    }

    /// Sets the series of flent's data files for the samples.
    pub fn flent_series(self, flent: Vec<FlentSeries>) -> Self {
        Self { flent, ..self }
    }

    /// Sets the directions; there is a figure for each.
    pub fn toward(self, directions: &[Direction]) -> Self {
        let directions = directions.into();
        Self { directions, ..self }
    }

    /// Sets the sizes in bytes; there is a figure for each.
    pub fn of_sizes(self, sizes: &[u64]) -> Self {
        let sizes = sizes.into();
        Self { sizes, ..self }
    }

    fn figures(&self) -> Vec<FigureName> {
        let mut all = Vec::new();
        for statistic in self.statistics {
            for direction in optional(&self.directions) {
                for phase in optional(&self.phases) {
                    all.extend(optional(&self.sizes).map(|size| FigureName {
                        instrument: String::new(),
                        metric: self.metric,
                        statistic: *statistic,
                        direction,
                        phase,
                        size,
                    }));
                }
            }
        }
        all
    }
}

impl MetricTable {
    /// Creates a table of these rows.
    pub fn new(rows: impl IntoIterator<Item = MetricRow>) -> Self {
        Self(rows.into_iter().collect())
    }

    /// Returns a table with the rows of both.
    pub fn and(mut self, other: impl IntoIterator<Item = MetricRow>) -> Self {
        self.0.extend(other);
        self
    }

    /// Sets the directions of every row.
    pub fn toward(self, directions: &[Direction]) -> Self {
        Self::new(self.0.into_iter().map(|row| row.toward(directions)))
    }

    /// Sets the phases of every row.
    pub fn during(self, phases: &[Phase]) -> Self {
        let during = |row| MetricRow {
            phases: phases.into(),
            ..row
        };
        Self::new(self.0.into_iter().map(during))
    }

    /// Sets the sizes of every row, in bytes.
    pub fn of_sizes(self, sizes: &[u64]) -> Self {
        Self::new(self.0.into_iter().map(|row| row.of_sizes(sizes)))
    }

    /// Returns the statistics of the first row with this metric.
    pub fn statistics(&self, metric: Metric) -> &'static [Statistic] {
        let row = self.0.iter().find(|row| row.metric == metric);
        row.map_or(&[], |row| row.statistics)
    }

    /// Returns all figures of the table.
    pub fn figures(&self) -> DeclaredFigures {
        self.0.iter().flat_map(MetricRow::figures).collect()
    }

    /// Returns whether the table has this figure. A figure of one stream is in the table if the same figure over all
    /// streams is.
    pub fn has(&self, figure: &Figure) -> bool {
        let name = FigureName::of("", figure);
        let mut rows = self.0.iter().filter(|row| row.metric == name.metric);
        rows.any(|row| row.figures().contains(&name))
    }

    /// Returns the main figures, which reports show first.
    pub fn headlines(&self) -> Vec<Headline> {
        let of_row = |row: &MetricRow| {
            let metric = row.metric;
            let headlines = row.headlines.iter();
            headlines.map(move |statistic| Headline::new(metric, *statistic))
        };
        self.0.iter().flat_map(of_row).collect()
    }

    /// Returns the series for flent's data files.
    pub fn flent(&self) -> Vec<FlentSeries> {
        let series = self.0.iter().flat_map(|row| &row.flent);
        series.cloned().collect()
    }

    /// Returns the profile of an instrument with these metrics whose payload has no particular direction. `figure` is
    /// its main figure.
    pub fn profile(&self, figure: Headline, host_limit: HostLimit) -> InstrumentProfile {
        InstrumentProfile {
            direction: None,
            carrier: None,
            headlines: self.headlines(),
            samples: None,
            host_limit,
            flent: self.flent(),
            calibration: Calibration {
                figure,
                omits_start: false,
                sends_again: false,
                runs: None,
                answers: false,
                timed: false,
                sub_interval_s: None,
            },
        }
    }

    /// Formats the table, as in "`rtt_ms` min, mean; `lost_percent` mean".
    pub fn in_words(&self) -> String {
        let mut metrics: Vec<(Metric, Vec<&str>)> = Vec::new();
        for row in &self.0 {
            let names = row.statistics.iter().map(|statistic| statistic.name());
            match metrics.iter_mut().find(|(known, _)| *known == row.metric) {
                Some((_, known)) => {
                    let new: Vec<&str> = names.filter(|name| !known.contains(name)).collect();
                    known.extend(new);
                }
                None => metrics.push((row.metric, names.collect())),
            }
        }
        let words = metrics
            .iter()
            .map(|(metric, names)| format!("`{}` {}", metric.name(), names.join(", ")));
        words.collect::<Vec<_>>().join("; ")
    }
}

impl IntoIterator for MetricTable {
    type Item = MetricRow;
    type IntoIter = std::vec::IntoIter<MetricRow>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// Returns each of `all`, or a single `None` if there are none.
fn optional<T: Copy>(all: &[T]) -> impl Iterator<Item = Option<T>> + '_ {
    let nothing = all.is_empty().then_some(None);
    all.iter().copied().map(Some).chain(nothing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_all_combinations_and_its_main_figures() {
        let table = MetricTable::new([
            MetricRow::new(Metric::RttMs, &[Statistic::Mean, Statistic::Median])
                .headlines(&[Statistic::Median])
                .of_sizes(&[1, 64]),
            MetricRow::mean(Metric::GoodputBitPerS).toward(&[Direction::Up]),
        ]);
        let figures = table.figures();
        for name in [
            "a.rtt_ms.mean.64b",
            "a.rtt_ms.median.1b",
            "a.goodput_bit_per_s.mean.up",
        ] {
            assert!(figures.has(&name.parse().unwrap()), "{name}");
        }
        assert!(!figures.has(&"a.rtt_ms.mean".parse().unwrap()));
        let median = Headline::new(Metric::RttMs, Statistic::Median);
        assert_eq!(table.headlines(), [median]);
        let goodput = Figure::new(Metric::GoodputBitPerS, Statistic::Mean, 1.0);
        assert!(!table.has(&goodput));
        assert!(table.has(&goodput.toward(Direction::Up).stream(3)));
        assert_eq!(
            table.in_words(),
            "`rtt_ms` mean, median; `goodput_bit_per_s` mean"
        );
    }
}
