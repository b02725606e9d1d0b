//! The chart "What does the size of a message cost?": time and throughput over message size, one curve per case.

use std::collections::BTreeSet;

use super::axis::Axis;
use super::plot::{Curve, Plot, Point, Shape};
use super::svg::MOST_SERIES;
use super::{ChartQuestion, Drawing, file_name};
use crate::analysis::{Analysis, CaseFigures, FigureOverRuns};
use crate::case_labels::CaseLabels;
use crate::interval::with_interval;
use crate::meaning;
use record::figure_name::FigureName;
use record::plan::Published;
use record::quantity::{counted, number, scale_for};
use record::{Metric, Statistic};
use stats::deciding::Centre;

/// The figures that are drawn over the size.
const SHOWN: [(Metric, Statistic); 6] = [
    (Metric::RttMs, Statistic::Mean),
    (Metric::GoodputBitPerS, Statistic::Mean),
    (Metric::CompletionMs, Statistic::Median),
    (Metric::ReadTimeMs, Statistic::Mean),
    (Metric::TimePerMibMs, Statistic::Mean),
    (Metric::LostPercent, Statistic::Mean),
];

/// The divisor of a metric's values in a drawing, and the unit of the quotient.
pub(super) type Unit = (f64, &'static str);

/// Returns the chart of round-trip time and throughput over message size.
pub(super) fn question(analysis: &Analysis<'_>) -> ChartQuestion {
    let mut families: BTreeSet<FigureName> = BTreeSet::new();
    for name in analysis.cases.iter().flat_map(|case| case.figures.keys()) {
        if name.size.is_some() && SHOWN.contains(&(name.metric, name.statistic)) {
            families.insert(FigureName {
                size: None,
                ..name.clone()
            });
        }
    }
    let labels = CaseLabels::of_all(analysis.record.plan());
    let drawings = families
        .iter()
        .flat_map(|family| of_family(analysis, family, &labels));
    ChartQuestion {
        heading: "By message size",
        note: "Means over the runs. Bars: 95 % intervals, whose scope each mark names; marks are moved slightly apart so that none hides another. A line joins sizes that are less than a decade apart. Hollow: published values.".to_owned(),
        drawings: drawings.collect(),
    }
}

/// Returns the drawings of one figure for all sizes, each with as many cases as can be distinguished.
fn of_family(
    analysis: &Analysis<'_>,
    family: &FigureName,
    labels: &CaseLabels<'_>,
) -> Vec<Drawing> {
    let cases: Vec<&CaseFigures<'_>> = analysis
        .cases
        .iter()
        .filter(|case| of_sizes(case, family).count() > 1)
        .collect();
    let values = cases.iter().flat_map(|case| of_sizes(case, family));
    let greatest = values.map(|(_, across)| across.value()).fold(0.0, f64::max);
    let unit = scale_for(family.metric, greatest);
    let axes = axes(family, unit, &curves(family, unit, &cases, labels));
    let chunks = cases.chunks(MOST_SERIES).enumerate();
    chunks
        .map(|(part, cases)| {
            let curves = curves(family, unit, cases, labels);
            draw(family, axes.clone(), part, curves)
        })
        .collect()
}

/// Returns the axes for all cases, so that drawings of some of them can be compared.
fn axes(family: &FigureName, (_, unit): Unit, curves: &[Curve]) -> [Axis; 2] {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let title = family.metric.title();
    let values = || points().flat_map(Point::reach);
    let positive = values().all(|value| value > 0.0);
    let label = format!("{title} {}, {unit}", family.statistic.name());
    [
        Axis::log2("message size, bytes", points().map(|point| point.x)),
        if positive {
            Axis::log(&label, values())
        } else {
            Axis::from_zero(&label, values())
        },
    ]
}

fn curves(
    family: &FigureName,
    unit: Unit,
    cases: &[&CaseFigures<'_>],
    labels: &CaseLabels<'_>,
) -> Vec<Curve> {
    let measured = cases
        .iter()
        .enumerate()
        .map(|(look, case)| curve(case, family, unit, (look, labels)));
    let published = cases
        .iter()
        .enumerate()
        .map(|(look, case)| published(case, family, unit, (look, labels)));
    measured
        .chain(published.filter(|curve| !curve.points.is_empty()))
        .collect()
}

fn draw(family: &FigureName, [x, y]: [Axis; 2], part: usize, curves: Vec<Curve>) -> Drawing {
    let title = family.metric.title();
    let plot = Plot {
        x,
        y,
        height: 240.0,
        curves,
    };
    let way = family
        .direction
        .map_or(String::new(), |way| format!(", {}", way.name()));
    let [file, more] = super::part(part);
    Drawing {
        file: file_name(&["sizes", &family.to_string()]) + &file,
        svg: plot.draw(&format!("{title} of {} by message size", family.instrument)),
        caption: format!("{}: {title}{way}", family.instrument) + &more,
        below: String::new(),
        about: meaning::of(family.metric, family.statistic, family.direction, None),
    }
}

/// Returns the measured values of a case in ascending order of size.
fn of_sizes<'a>(
    case: &'a CaseFigures<'_>,
    family: &'a FigureName,
) -> impl Iterator<Item = (u64, &'a FigureOverRuns)> {
    case.figures.iter().filter_map(|(name, across)| {
        let whole = FigureName {
            size: None,
            ..name.clone()
        };
        let size = name.size.filter(|size| *size > 0 && whole == *family)?;
        Some((size, across))
    })
}

fn curve(
    case: &CaseFigures<'_>,
    family: &FigureName,
    unit: Unit,
    (look, labels): (usize, &CaseLabels<'_>),
) -> Curve {
    let points = of_sizes(case, family).map(|(size, across)| {
        let what = format!("{}, {size} bytes", case.words());
        point(unit, size as f64, across, &what)
    });
    let label = labels.words(case.case);
    Curve::new(Some(label), look, Shape::Marked, points.collect())
}

/// Returns a figure over the runs as a point at `x`, in this unit.
pub(super) fn point((by, unit): Unit, x: f64, across: &FigureOverRuns, what: &str) -> Point {
    let interval = across.interval.map(|own| own.in_units_of(by));
    let ends = interval.map(|own| own.ends);
    let of = interval.map_or_else(
        || counted(across.values.len(), "run"),
        |own| format!("95 % {}", own.of.words()),
    );
    let value = across.value() / by;
    Point {
        x,
        y: value,
        interval: ends,
        hover: format!("{what}: {} {unit}, {of}", with_interval(value, ends)),
    }
}

fn published(
    case: &CaseFigures<'_>,
    family: &FigureName,
    (by, unit): Unit,
    (look, labels): (usize, &CaseLabels<'_>),
) -> Curve {
    let of = |(name, published): (&FigureName, &Published)| {
        let (size, value) = (name.size?, published.over(Centre::Mean)?);
        let own = FigureName {
            size: None,
            ..name.clone()
        };
        let hover = format!(
            "{}, {size} bytes: published {} {unit}",
            case.words(),
            number(value / by)
        );
        family.is_of(&own).then(|| Point {
            hover,
            ..Point::at(size as f64, value / by)
        })
    };
    let label = format!("{}, published", labels.words(case.case));
    let points = case.case.published.iter().filter_map(of);
    Curve::new(Some(label), look, Shape::Hollow, points.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::record;
    use record::Figure;

    #[test]
    fn every_size_has_a_mark_with_interval_and_published_value() {
        let mut record = record();
        for run in &mut record.runs {
            let of = |size: u64| {
                let value = f64::from(run.repeat) + size as f64 / 100.0;
                Figure::new(Metric::RttMs, Statistic::Mean, value).size(size)
            };
            run.measurements[0].measurement.figures = [64, 256, 1024].map(of).to_vec();
        }
        record.head.plan.cases[1].published.insert(
            "ping.rtt_ms.mean.256b".parse().unwrap(),
            Published::Value(4.0),
        );
        let analysis = Analysis::of(&record);
        let drawings = question(&analysis).drawings;
        assert_eq!(drawings.len(), 1);
        let svg = &drawings[0].svg;
        assert_eq!(svg.matches("<title>").count(), 7);
        assert!(
            svg.contains("slow, 256 bytes: 4.1 [0.0, 10.4] ms, 95 % over 2 runs"),
            "{svg}"
        );
        assert!(svg.contains("slow, 256 bytes: published 4.000 ms"), "{svg}");
    }
}
