//! How fast was it, when? Throughput of each interval, a panel a case.

use super::axis::Axis;
use super::plot::{Curve, Plot, Point, Shape};
use super::{Drawing, Question, file_name, instruments};
use crate::analysis::CaseFigures;
use crate::analysis::intervals::{DIRECTIONS, Interval, intervals};
use record::figure_name::FigureName;
use record::profile::SampleKind;
use record::{Direction, Metric, Statistic};

/// More points than this only blacken a curve of this width: neighbours are averaged.
const MOST_POINTS: usize = 220;
/// Of all panels together, so that a page of many runs stays a page.
const MOST_IN_ALL: usize = 60_000;
/// More repeats than this are not followed by eye.
const MOST_REPEATS: usize = 8;
/// Panels share their vertical axis unless the fastest is so many times the slowest.
const SHARED_WITHIN: f64 = 5.0;

/// Seconds and Mbit/s.
type Curved = Vec<(f64, f64)>;

/// One case under one instrument.
struct Panel<'a> {
    case: &'a CaseFigures<'a>,
    instrument: &'a str,
    /// Each repeat's, by direction.
    curves: Vec<(u32, Option<Direction>, Curved)>,
    left_out: usize,
}

/// Throughput over time by case.
pub(super) fn question(cases: &[CaseFigures<'_>]) -> Question {
    let names = instruments(cases, &[SampleKind::Intervals]);
    let runs: usize = cases
        .iter()
        .map(|case| case.runs.len().min(MOST_REPEATS))
        .sum();
    let most = (MOST_IN_ALL / (runs * names.len()).max(1)).clamp(12, MOST_POINTS);
    let panels = names
        .iter()
        .flat_map(|name| cases.iter().map(move |case| (case, *name)));
    let panels = panels.map(|(case, instrument)| Panel::of(case, instrument, most));
    let panels: Vec<Panel<'_>> = panels.filter(|panel| !panel.curves.is_empty()).collect();
    let tops = || panels.iter().map(Panel::top);
    let (least, greatest) = (
        tops().fold(f64::INFINITY, f64::min),
        tops().fold(0.0, f64::max),
    );
    let shared = greatest <= least * SHARED_WITHIN;
    let drawings = panels
        .iter()
        .map(|panel| panel.draw(if shared { greatest } else { panel.top() }, names.len() > 1));
    let drawings = drawings.collect();
    let mut note =
        "Payload of each interval over its length. Further repeats are paler.".to_owned();
    if panels.iter().any(|panel| panel.published().is_some()) {
        note.push_str(" Dashed: the published mean.");
    }
    if panels.iter().any(Panel::is_sent) {
        note.push_str(" Of udp from client to server it is what was sent, of which not all need have arrived.");
    }
    if !shared {
        note.push_str(" The vertical axes differ.");
    }
    if panels
        .iter()
        .any(|panel| panel.curves.iter().any(|(.., curve)| curve.len() >= most))
    {
        note.push_str(&format!(
            " Neighbouring intervals are averaged to at most {most} points a curve."
        ));
    }
    if panels.iter().any(|panel| panel.left_out > 0) {
        note.push_str(&format!(
            " Of a case's repeats the first {MOST_REPEATS} are drawn."
        ));
    }
    Question {
        heading: "Throughput over time",
        note,
        drawings,
    }
}

impl<'a> Panel<'a> {
    fn of(case: &'a CaseFigures<'a>, instrument: &'a str, most: usize) -> Self {
        let mut curves = Vec::new();
        let all = case.measured(instrument).count();
        for (repeat, measurement) in case.measured(instrument).take(MOST_REPEATS) {
            for direction in DIRECTIONS {
                let curve = thinned(&intervals(measurement, direction), most);
                if !curve.is_empty() {
                    curves.push((repeat, direction, curve));
                }
            }
        }
        Self {
            case,
            instrument,
            curves,
            left_out: all.saturating_sub(MOST_REPEATS),
        }
    }

    /// Whether it shows what its instrument sent: the far end's intervals are not known here.
    fn is_sent(&self) -> bool {
        let instruments = &self.case.case.instruments;
        let is_udp = instruments
            .iter()
            .any(|i| i.name == self.instrument && i.profile.is_datagram_stream());
        let up = |(_, direction, _): &(_, _, _)| *direction == Some(Direction::Up);
        is_udp && self.curves.iter().any(up)
    }

    /// The greatest value that it shows.
    fn top(&self) -> f64 {
        let points = self.curves.iter().flat_map(|(.., curve)| curve);
        points
            .map(|point| point.1)
            .chain(self.published())
            .fold(0.0, f64::max)
    }

    fn published(&self) -> Option<f64> {
        let published = self.case.case.published.iter();
        let of = |name: &FigureName| {
            name.instrument == self.instrument
                && name.size.is_none()
                && (name.metric, name.statistic) == (Metric::GoodputBitPerS, Statistic::Mean)
        };
        let mut published = published.filter(|(name, _)| of(name));
        published.next().map(|(_, value)| value / 1e6)
    }

    fn draw(&self, top: f64, several: bool) -> Drawing {
        let times = self
            .curves
            .iter()
            .flat_map(|(.., curve)| curve)
            .map(|point| point.0);
        let x = Axis::from_zero("seconds", times);
        let both = self
            .curves
            .iter()
            .any(|(_, way, _)| *way != self.curves[0].1);
        let mut first = Vec::new();
        let mut curves: Vec<Curve> = Vec::new();
        for (repeat, way, points) in &self.curves {
            let faint = first.contains(way);
            first.push(*way);
            let name = if both {
                way.map_or("both ways", Direction::name)
            } else {
                "measured"
            };
            curves.push(Curve {
                label: Some(format!("{name}, run {repeat}")),
                look: usize::from(both && *way == Some(Direction::Up)),
                points: points.iter().map(|(x, y)| Point::at(*x, *y)).collect(),
                shape: Shape::Line,
                faint,
            });
        }
        if let Some(level) = self.published() {
            curves.push(Curve {
                label: Some("published mean".to_owned()),
                look: 4,
                points: vec![Point::at(0.0, level), Point::at(x.high(), level)],
                shape: Shape::Level,
                faint: false,
            });
        }
        let (name, title) = (self.case.name(), &self.case.case.title);
        let of = if several {
            format!("{}, ", self.instrument)
        } else {
            String::new()
        };
        let plot = Plot {
            x,
            y: Axis::from_zero("Mbit/s", std::iter::once(top)),
            height: 170.0,
            curves,
        };
        Drawing {
            file: file_name(&["throughput", self.instrument, name]),
            svg: plot.draw(&format!(
                "Throughput over time of {}, {name}",
                self.instrument
            )),
            caption: format!("{of}{name}: {title}"),
        }
    }
}

/// A point at the middle of each interval, thinned by averaging neighbours.
fn thinned(intervals: &[Interval], most: usize) -> Curved {
    let together = intervals.len().div_ceil(most).max(1);
    let mut usual_s = None;
    let mut points = Vec::new();
    for group in intervals.chunks(together) {
        let (start_s, end_s) = (group[0].0, group[group.len() - 1].1);
        let length_s = end_s - start_s;
        // A last interval cut short holds too few packets for a rate.
        if length_s > *usual_s.get_or_insert(length_s) / 2.0 {
            let bits: f64 = group.iter().map(|(.., bits)| bits).sum();
            points.push((f64::midpoint(start_s, end_s), bits / length_s / 1e6));
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::{Measurement, Sample};

    fn measurement(metric: Metric, count: u64, streams: u32, value: f64) -> Measurement {
        let sample = |index: u64, stream: u32| {
            Sample::new(index as f64 * 0.1, metric, index, value)
                .toward(Direction::Down)
                .stream(stream)
        };
        Measurement {
            samples: (1..=count)
                .flat_map(|index| (1..=streams).map(move |s| sample(index, s)))
                .collect(),
            ..Measurement::default()
        }
    }

    #[test]
    fn thinning_keeps_the_rate() {
        for count in [5, 219, 220, 221, 8_570] {
            let bytes = measurement(Metric::ReceivedBytes, count, 1, 1e5);
            let curve = thinned(&intervals(&bytes, Some(Direction::Down)), MOST_POINTS);
            assert!(curve.len() <= MOST_POINTS);
            assert!(
                curve.iter().all(|point| (point.1 - 8.0).abs() < 1e-6),
                "{count}"
            );
        }
    }

    #[test]
    fn streams_add_up_and_rates_are_rates() {
        let bytes = measurement(Metric::ReceivedBytes, 10, 3, 1e5);
        let curve = thinned(&intervals(&bytes, Some(Direction::Down)), 100);
        assert!((curve[4].1 - 24.0).abs() < 1e-9);
        let rates = measurement(Metric::GoodputBitPerS, 10, 1, 5e6);
        let curve = thinned(&intervals(&rates, Some(Direction::Down)), 100);
        assert!((curve[4].1 - 5.0).abs() < 1e-9);
        assert!(intervals(&rates, None).is_empty());
    }
}
