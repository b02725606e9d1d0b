//! The figures that an instrument can report. A scenario that names any other figure is refused before anything runs.

use crate::clients::{self, CombinationRule};
use crate::figure_name::FigureName;
use crate::profile::SampleKind;
use crate::{Metric, Statistic};

/// All figures over all streams that an instrument with its arguments can report. A measurement need not have each of
/// them, because some describe events that may not happen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredFigures(Vec<FigureName>);

impl DeclaredFigures {
    /// Returns the figures that several clients with samples of this kind have together, and the summaries of the
    /// clients' goodputs.
    pub fn of_clients(self, samples: Option<SampleKind>) -> Self {
        let goodput = |figure: &&FigureName| {
            (figure.metric, figure.statistic) == (Metric::GoodputBitPerS, Statistic::Mean)
                && (figure.phase, figure.size) == (None, None)
        };
        let of_each: Vec<FigureName> = self
            .0
            .iter()
            .filter(goodput)
            .flat_map(|figure| {
                clients::CLIENT_GOODPUT_FIGURES.map(|(metric, statistic)| FigureName {
                    metric,
                    statistic,
                    ..figure.clone()
                })
            })
            .collect();
        let all = self.0.into_iter().filter(|figure| {
            let FigureName {
                metric,
                statistic,
                phase,
                ..
            } = *figure;
            CombinationRule::of(metric, statistic, phase, samples).is_some()
        });
        Self(all.chain(of_each).collect())
    }

    /// Returns whether `name` is one of these figures, by the rules of [`FigureName::find`]; the name of the instrument
    /// is ignored.
    pub fn has(&self, name: &FigureName) -> bool {
        let mut all = self.named(&name.instrument).filter(|figure| {
            let direction = figure.direction;
            FigureName {
                direction,
                ..name.clone()
            } == *figure
        });
        all.clone().any(|figure| figure == *name)
            || (name.direction.is_none() && all.next().is_some() && all.next().is_none())
    }

    /// Returns at most five figures that are nearest to `name`; those of the same metric, if there are any.
    pub fn nearest(&self, name: &FigureName) -> Vec<FigureName> {
        const MOST: usize = 5;
        let text = name.to_string();
        let distance = |figure: &FigureName| {
            let off = [
                figure.metric != name.metric,
                figure.statistic != name.statistic,
                figure.size != name.size,
            ];
            (off, strsim::damerau_levenshtein(&text, &figure.to_string()))
        };
        let mut all: Vec<FigureName> = self.named(&name.instrument).collect();
        all.sort_by_cached_key(distance);
        if let Some(first) = all.first().map(|figure| figure.metric) {
            all.retain(|figure| figure.metric == first);
        }
        all.truncate(MOST);
        all
    }

    fn named<'a>(&'a self, instrument: &'a str) -> impl Iterator<Item = FigureName> + Clone + 'a {
        self.0.iter().map(|figure| FigureName {
            instrument: instrument.to_owned(),
            ..figure.clone()
        })
    }
}

impl FromIterator<FigureName> for DeclaredFigures {
    fn from_iter<I: IntoIterator<Item = FigureName>>(all: I) -> Self {
        Self(all.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Direction;
    use crate::metric_table::{MetricRow, MetricTable};

    fn declared<const N: usize>(rows: [MetricRow; N]) -> DeclaredFigures {
        MetricTable::new(rows).figures()
    }

    fn name(text: &str) -> FigureName {
        text.parse().unwrap()
    }

    fn texts(all: &[FigureName]) -> Vec<String> {
        all.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_declared_figure_is_found_with_or_without_its_only_direction() {
        let both = [Direction::Up, Direction::Down];
        let stated = declared([
            MetricRow::mean(Metric::GoodputBitPerS).toward(&both),
            MetricRow::total(Metric::SentBytes).toward(&both[..1]),
        ]);
        assert!(stated.has(&name("a.goodput_bit_per_s.mean.down")));
        assert!(stated.has(&name("a.sent_bytes.total")));
        // The name does not say which of the two directions it means.
        assert!(!stated.has(&name("a.goodput_bit_per_s.mean")));
        assert!(!stated.has(&name("a.goodput_bit_per_s.mean.up.idle")));
    }

    #[test]
    fn the_nearest_figures_have_the_same_metric() {
        let stated = declared([
            MetricRow::new(Metric::RttMs, &[Statistic::Median, Statistic::Max]),
            MetricRow::new(Metric::HostMs, &[Statistic::P99]),
        ]);
        let near = stated.nearest(&name("ping.rtt_ms.p99"));
        assert_eq!(texts(&near), ["ping.rtt_ms.max", "ping.rtt_ms.median"]);
        let sized = declared([MetricRow::mean(Metric::RttMs).of_sizes(&[1, 64, 1024])]);
        assert!(sized.has(&name("a.rtt_ms.mean.64b")));
        assert_eq!(
            texts(&sized.nearest(&name("a.rtt_ms.median.64b")))[0],
            "a.rtt_ms.mean.64b"
        );
    }
}
