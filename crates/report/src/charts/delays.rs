//! The chart "How long did packets take?": the cumulative distribution of delays, one curve per case.

use super::axis::Axis;
use super::plot::{Curve, Plot, Point, Shape};
use super::svg::MOST_SERIES;
use super::{ChartQuestion, Drawing, file_name, instruments};
use crate::analysis::{Analysis, CaseFigures};
use crate::case_labels::CaseLabels;
use crate::meaning;
use record::profile::SampleKind;
use record::{Direction, Metric};

/// Greatest number of steps in a curve; more would not be visible.
const MOST_POINTS: usize = 200;
/// Share of the delays at which the axis ends, so that single outliers do not compress the rest.
const SHOWN_SHARE: f64 = 0.995;

/// A case's delays in ascending order, and the single message size that they have.
type Delays = (Vec<f64>, Option<u64>);

/// Returns the chart of cumulative distributions of delays.
pub(super) fn question(analysis: &Analysis<'_>) -> ChartQuestion {
    let cases = &analysis.cases;
    let labels = CaseLabels::of_all(analysis.record.plan());
    let kinds = [SampleKind::Probes, SampleKind::Messages];
    let shown = [
        (Metric::RttMs, None),
        (Metric::NetworkRttMs, None),
        (Metric::ConnectMs, None),
        (Metric::OneWayDelayMs, Some(Direction::Up)),
        (Metric::OneWayDelayMs, Some(Direction::Down)),
    ];
    let mut drawings = Vec::new();
    for name in instruments(cases, &kinds) {
        for (metric, way) in shown {
            let found: Vec<(String, Delays)> = cases
                .iter()
                .map(|case| (labels.words(case.case), delays(case, name, metric, way)))
                .filter(|(_, (values, _))| values.len() > 1)
                .collect();
            let axis = axis(metric, &found);
            let chunks = found.chunks(MOST_SERIES).enumerate();
            drawings
                .extend(chunks.map(|(part, cases)| draw(name, (metric, way), &axis, part, cases)));
        }
    }
    ChartQuestion {
        heading: "Distribution of delays",
        note: format!(
            "All runs of a case together. The axis ends where every case has {} % of its delays; later ones are counted. \
             Curves have at most {MOST_POINTS} steps.",
            SHOWN_SHARE * 100.0
        ),
        drawings,
    }
}

/// Returns all delays of a case. If there are several sizes, those of the smallest are returned, because sizes cannot
/// be mixed.
fn delays(
    case: &CaseFigures<'_>,
    instrument: &str,
    metric: Metric,
    way: Option<Direction>,
) -> Delays {
    let samples = || {
        let all = case
            .measured(instrument)
            .flat_map(|(_, measurement)| &measurement.samples);
        all.filter(|sample| {
            sample.metric == metric && sample.direction == way && sample.value.is_finite()
        })
    };
    let size = samples().filter_map(|sample| sample.size).min();
    let own = samples().filter(|sample| sample.size == size);
    let mut values: Vec<f64> = own.map(|sample| sample.value).collect();
    values.sort_by(f64::total_cmp);
    (values, size)
}

/// Returns the axis for all cases, so that drawings of some of them can be compared.
fn axis(metric: Metric, cases: &[(String, Delays)]) -> Axis {
    let ends = cases
        .iter()
        .flat_map(|(_, (values, _))| [values[0], quantile(values, SHOWN_SHARE)]);
    let log = Axis::fitting("", ends.clone()).data().ends_with("log");
    let title = format!("{}, {}", metric.title(), metric.unit());
    if log {
        Axis::log(&title, ends)
    } else {
        Axis::linear(&title, ends)
    }
}

fn draw(
    instrument: &str,
    (metric, way): (Metric, Option<Direction>),
    x: &Axis,
    part: usize,
    cases: &[(String, Delays)],
) -> Drawing {
    let title = metric.title();
    let curves = cases
        .iter()
        .enumerate()
        .map(|(look, (case, (values, size)))| {
            let size = size.map_or(String::new(), |size| format!(", {size} bytes"));
            let label = format!("{case}{size} (n = {})", values.len());
            Curve::new(Some(label), look, Shape::Line, steps(values, x.high()))
        });
    let plot = Plot {
        x: x.clone(),
        y: Axis::from_zero("share of delays, %", std::iter::once(100.0)),
        height: 230.0,
        curves: curves.collect(),
    };
    let way = way.map(Direction::name);
    let [file, more] = super::part(part);
    Drawing {
        file: file_name(&["delays", instrument, metric.name(), way.unwrap_or("both")]) + &file,
        svg: plot.draw(&format!(
            "Cumulative distribution of {title} of {instrument}"
        )),
        caption: format!(
            "{instrument}: {title}{}",
            way.map_or(String::new(), |way| format!(", {way}"))
        ) + &more,
        below: String::new(),
        about: meaning::of_metric(metric),
    }
}

fn quantile(sorted: &[f64], share: f64) -> f64 {
    stats::order_statistics::quantile(sorted, share).unwrap_or_default()
}

/// Returns the corners of the distribution's steps, up to `end`.
fn steps(sorted: &[f64], end: f64) -> Vec<Point> {
    let count = sorted.len();
    let every = count.div_ceil(MOST_POINTS).max(1);
    let mut points = vec![Point::at(sorted[0], 0.0)];
    for at in (every - 1..count).step_by(every).chain([count - 1]) {
        let (value, share) = (sorted[at], 100.0 * (at + 1) as f64 / count as f64);
        let before = points[points.len() - 1].y;
        if value > end {
            points.push(Point::at(end, before));
            break;
        }
        if share > before {
            points.push(Point::at(value, before));
            points.push(Point::at(value, share));
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_end_at_one_for_any_count() {
        for count in [2_u32, 199, 200, 201, 12_345] {
            let values: Vec<f64> = (1..=count).map(f64::from).collect();
            let points = steps(&values, f64::from(count));
            assert!(points.len() <= 2 * MOST_POINTS + 5);
            assert_eq!(points[points.len() - 1].y, 100.0);
            assert!(
                points
                    .windows(2)
                    .all(|pair| pair[0].x <= pair[1].x && pair[0].y <= pair[1].y)
            );
        }
    }
}
