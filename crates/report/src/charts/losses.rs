//! The chart "Does loss come alone or in bursts?": how often how many losses occurred in a row, one curve per case.

use std::collections::BTreeMap;

use super::axis::Axis;
use super::plot::{Curve, Plot, Point, Shape};
use super::svg::MOST_SERIES;
use super::{ChartQuestion, Drawing, file_name, instruments};
use crate::analysis::{Analysis, CaseFigures};
use crate::case_labels::CaseLabels;
use crate::meaning;
use record::profile::SampleKind;
use record::quantity::counted;
use record::{Direction, Measurement, Metric, Statistic};

/// Losses of a case in one direction.
#[derive(Default)]
struct Losses {
    /// Number of bursts by their length.
    runs: BTreeMap<u64, u64>,
    lost: u64,
    /// The total of [`Metric::SentPackets`]; 0 if there is none.
    sent: f64,
}

/// Returns the chart of the lengths of consecutive losses.
pub(super) fn question(analysis: &Analysis<'_>) -> ChartQuestion {
    let cases = &analysis.cases;
    let labels = CaseLabels::of_all(analysis.record.plan());
    let mut drawings = Vec::new();
    for name in instruments(cases, &[SampleKind::Probes]) {
        for way in [None, Some(Direction::Up), Some(Direction::Down)] {
            let all = cases
                .iter()
                .map(|case| (labels.words(case.case), Losses::of(case, name, way)));
            let found: Vec<_> = all.filter(|(_, losses)| losses.lost > 0).collect();
            let chunks = found.chunks(MOST_SERIES).enumerate();
            drawings.extend(chunks.map(|(part, cases)| draw(name, way, part, cases)));
        }
    }
    ChartQuestion {
        heading: "Bursts of losses",
        note: "Number of bursts of consecutive lost probes by their length, over all runs of a case. Legend: the share of lost probes. Hollow: the number expected if each \
               probe were lost independently with the same probability."
            .to_owned(),
        drawings,
    }
}

impl Losses {
    fn of(case: &CaseFigures<'_>, instrument: &str, way: Option<Direction>) -> Self {
        let mut losses = Self::default();
        for (_, measurement) in case.measured(instrument) {
            losses.add(measurement, way);
        }
        losses
    }

    fn add(&mut self, measurement: &Measurement, way: Option<Direction>) {
        let mut lost: Vec<u64> = measurement
            .samples
            .iter()
            .filter(|s| s.metric == Metric::LostPackets && s.direction == way)
            .map(|sample| sample.index)
            .collect();
        lost.sort_unstable();
        lost.dedup();
        for run in lost.chunk_by(|a, b| a + 1 == *b) {
            *self.runs.entry(run.len() as u64).or_default() += 1;
        }
        self.lost += lost.len() as u64;
        self.sent += measurement
            .figure(Metric::SentPackets, Statistic::Total)
            .unwrap_or_default();
    }

    /// Returns the expected number of bursts of this length if losses are independent: (1 - p)^2 p^k per sent probe for
    /// a share p and a length k, apart from the ends of the series.
    fn expected(&self, length: u64) -> f64 {
        let share = self.lost as f64 / self.sent;
        self.sent * (1.0 - share).powi(2) * share.powf(length as f64)
    }
}

fn draw(
    instrument: &str,
    way: Option<Direction>,
    part: usize,
    cases: &[(String, Losses)],
) -> Drawing {
    let longest = cases
        .iter()
        .filter_map(|(_, losses)| losses.runs.keys().last())
        .max()
        .copied()
        .unwrap_or(1);
    let mut curves = Vec::new();
    for (look, (case, losses)) in cases.iter().enumerate() {
        let point = |(length, count): (&u64, &u64)| Point {
            hover: format!("{case}: {} {length} in a burst", counted(*count, "time")),
            ..Point::at(*length as f64, *count as f64)
        };
        let label = format!("{case}: {} of {:.0}", losses.lost, losses.sent);
        let points = losses.runs.iter().map(point).collect();
        curves.push(Curve::new(Some(label), look, Shape::Marked, points));
        let expected = |length: u64| Point {
            hover: format!(
                "{case}: {:.1} times {length} in a burst expected for independent losses",
                losses.expected(length)
            ),
            ..Point::at(length as f64, losses.expected(length))
        };
        let known = losses.sent > losses.lost as f64;
        let lengths =
            (1..=longest.min(50)).filter(|length| known && losses.expected(*length) >= 0.5);
        let points = lengths.map(expected).collect();
        curves.push(Curve::new(None, look, Shape::Hollow, points));
    }
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let plot = Plot {
        x: if longest <= 8 {
            Axis::counts("losses in a burst", longest)
        } else {
            Axis::fitting("losses in a burst", points().map(|point| point.x))
        },
        y: Axis::fitting("how often", points().map(|point| point.y)),
        height: 200.0,
        curves,
    };
    let way = way.map(Direction::name);
    let [file, more] = super::part(part);
    Drawing {
        file: file_name(&["losses", instrument, way.unwrap_or("both")]) + &file,
        svg: plot.draw(&format!("Bursts of losses of {instrument}")),
        caption: format!(
            "{instrument}{}",
            way.map_or(String::new(), |way| format!(", {way}"))
        ) + &more,
        below: String::new(),
        about: meaning::of_metric(Metric::LostPackets),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::{Figure, Sample};

    #[test]
    fn consecutive_losses_are_one_burst() {
        let lost =
            |index: u64| Sample::new(0.0, Metric::LostPackets, index, 1.0).toward(Direction::Up);
        let measurement = Measurement {
            samples: [3, 4, 5, 9, 12, 11].map(lost).to_vec(),
            figures: vec![Figure::new(Metric::SentPackets, Statistic::Total, 100.0)],
            ..Measurement::default()
        };
        let mut losses = Losses::default();
        losses.add(&measurement, Some(Direction::Up));
        assert_eq!(losses.runs, BTreeMap::from([(1, 1), (2, 1), (3, 1)]));
        assert!((losses.expected(1) - 100.0 * 0.94 * 0.94 * 0.06).abs() < 1e-9);
        losses.add(&measurement, None);
        assert_eq!(losses.lost, 6);
    }
}
