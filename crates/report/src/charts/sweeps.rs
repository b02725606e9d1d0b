//! The chart "What does a condition do?": every main figure over the fields that a sweep set.

use super::axis::Axis;
use super::message_sizes::{Unit, point};
use super::plot::{Curve, Plot, Point, Shape};
use super::svg::MOST_SERIES;
use super::swept_axes::SweptAxis;
use super::{ChartQuestion, Drawing, file_name};
use crate::analysis::{Analysis, CaseFigures};
use crate::case_labels::CaseLabels;
use crate::{figure_tables, meaning};
use record::figure_name::FigureName;
use record::plan::Case;
use record::quantity::{number, scale_for};
use stats::deciding::Centre;

/// Fewest values of a field for a curve.
const FEWEST_VALUES: usize = 3;
/// Greatest number of curves of a figure over one field. With more, only the map of the figure has all of them.
const MOST_CURVES: usize = 2 * MOST_SERIES;

/// The cases that differ only in the fields of an axis, each with its position.
struct Series<'a> {
    /// The values of the other fields; empty if there are none.
    label: String,
    cases: Vec<(f64, &'a CaseFigures<'a>)>,
}

/// Returns the chart of measured values over each axis of the sweeps.
pub(super) fn question(analysis: &Analysis<'_>) -> ChartQuestion {
    let plan = analysis.record.plan();
    let cases: Vec<&Case> = analysis.cases.iter().map(|figures| figures.case).collect();
    let labels = CaseLabels::of_all(plan);
    let tables = figure_tables::tables(analysis);
    let names = tables.iter().flat_map(figure_tables::FigureTable::names);
    let names: Vec<FigureName> = names.filter(|name| name.size.is_none()).collect();
    let mut drawings = Vec::new();
    let mut left_out = Vec::new();
    for axis in SweptAxis::all(plan, &cases) {
        if axis.steps.len() < FEWEST_VALUES {
            continue;
        }
        let series = series(analysis, &axis, &labels);
        if series.len() > MOST_CURVES {
            left_out.push(axis.names());
            continue;
        }
        for name in &names {
            drawings.extend(against(&axis, name, &series));
        }
    }
    ChartQuestion {
        heading: "By the swept conditions",
        note: note(&left_out),
        drawings,
    }
}

fn note(left_out: &[String]) -> String {
    let mut note =
        "Means over the runs. Bars: 95 % intervals, whose scope each mark names. Hollow: published values. A line joins \
         values of one field; names and values a decade apart are not joined."
            .to_owned();
    if !left_out.is_empty() {
        note += &format!(
            " The other fields have more than {MOST_CURVES} combinations beside {}: the maps show all of them.",
            left_out.join(", and beside ")
        );
    }
    note
}

/// Returns the series of cases along an axis, in the order of the plan, or the first of them if they are too many to be
/// drawn.
fn series<'a>(
    analysis: &'a Analysis<'a>,
    axis: &SweptAxis<'_>,
    labels: &CaseLabels<'_>,
) -> Vec<Series<'a>> {
    let others = labels.without(&axis.fields());
    let mut all: Vec<Series<'a>> = Vec::new();
    for case in &analysis.cases {
        let Some(position) = axis.position(case.case) else {
            continue;
        };
        let label = others.series(case.case);
        let known = all.iter().position(|series| series.label == label);
        match known {
            Some(at) => all[at].cases.push((position, case)),
            None if all.len() > MOST_CURVES => break,
            None => all.push(Series {
                label,
                cases: vec![(position, case)],
            }),
        }
    }
    for series in &mut all {
        series.cases.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    all
}

/// Draws one figure over one axis, with as many series in a drawing as can be distinguished.
fn against(axis: &SweptAxis<'_>, name: &FigureName, series: &[Series<'_>]) -> Vec<Drawing> {
    let has_points = |series: &&Series<'_>| {
        let cases = series.cases.iter();
        cases
            .filter(|(_, case)| case.figures.contains_key(name))
            .count()
            >= 2
    };
    let shown: Vec<&Series<'_>> = series.iter().filter(has_points).collect();
    let chunks = shown.chunks(MOST_SERIES).enumerate();
    chunks
        .map(|(part, series)| draw(axis, name, part, series))
        .collect()
}

fn draw(axis: &SweptAxis<'_>, name: &FigureName, part: usize, series: &[&Series<'_>]) -> Drawing {
    let figures = series.iter().flat_map(|series| &series.cases);
    let values = figures.filter_map(|(_, case)| Some(case.figures.get(name)?.value().abs()));
    let unit = scale_for(name.metric, values.fold(0.0, f64::max));
    let shape = if axis.is_ordered() {
        Shape::Marked
    } else {
        Shape::Points
    };
    let mut curves = Vec::new();
    for (look, series) in series.iter().enumerate() {
        let measured = series.cases.iter().filter_map(|(x, case)| {
            let across = case.figures.get(name)?;
            Some(point(unit, *x, across, case.words()))
        });
        let label = series.label.as_str();
        let own = if label.is_empty() { "measured" } else { label }.to_owned();
        curves.push(Curve::new(Some(own), look, shape, measured.collect()));
        let theirs = format!("{label} published").trim().to_owned();
        let published = series
            .cases
            .iter()
            .filter_map(|(x, case)| published(case, name, unit, *x));
        let published = published.collect();
        curves.push(Curve::new(Some(theirs), look, Shape::Hollow, published));
    }
    curves.retain(|curve| !curve.points.is_empty());
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let column = figure_tables::ValueColumn::of(name).title();
    let values = || points().flat_map(Point::reach);
    let spread = points().map(|point| point.y);
    let y_title = format!("{column}, {}", unit.1);
    let y_title = y_title.trim_end_matches(", ");
    let positive = spread.clone().all(|y| y > 0.0);
    let y = match Axis::fitting(y_title, spread).data() {
        data if positive && data.ends_with("log") => {
            Axis::log(y_title, values().filter(|v| *v > 0.0))
        }
        _ => Axis::from_zero(y_title, values()),
    };
    let plot = Plot {
        x: axis.for_plot(points().map(|point| point.x)),
        y,
        height: 220.0,
        curves,
    };
    let by = axis.names();
    let [file, more] = super::part(part);
    Drawing {
        file: file_name(&["sweep", axis.field.path, &name.to_string()]) + &file,
        svg: plot.draw(&format!("{column} of {} by {by}", name.instrument)),
        caption: format!("{}: {column} by {by}", name.instrument) + &more,
        below: String::new(),
        about: meaning::of(name.metric, name.statistic, name.direction, name.phase),
    }
}

fn published(case: &CaseFigures<'_>, name: &FigureName, (by, unit): Unit, x: f64) -> Option<Point> {
    let mut published = case.case.published.iter();
    let (_, published) = published.find(|(known, _)| name.is_of(known))?;
    let value = published.over(Centre::Mean)?;
    Some(Point {
        hover: format!("{}: published {} {unit}", case.words(), number(value / by)),
        ..Point::at(x, value / by)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case_labels::tests::{swept, swept_by_five_fields};
    use crate::charts::geometry;
    use record::Record;

    fn drawings(record: &Record) -> Vec<Drawing> {
        question(&Analysis::of(record)).drawings
    }

    fn captions(record: &Record) -> Vec<String> {
        let drawings = drawings(record).into_iter();
        drawings.map(|drawing| drawing.caption).collect()
    }

    #[test]
    fn each_main_figure_is_drawn_over_a_field_with_three_values() {
        let record = swept(&[
            &[("link.delay", "1ms")],
            &[("link.delay", "10ms")],
            &[("link.delay", "100ms")],
        ]);
        let drawings = drawings(&record);
        assert_eq!(drawings.len(), 3);
        assert_eq!(drawings[0].caption, "ping: rtt median by delay");
        assert!(drawings[0].svg.contains(">delay, ms<"));
        assert!(drawings[0].svg.contains("delay 10ms: "));
        assert!(!drawings[0].svg.contains("delay="));
        assert!(
            captions(&swept(&[
                &[("link.delay", "1ms")],
                &[("link.delay", "10ms")]
            ]))
            .is_empty()
        );
    }

    #[test]
    fn fields_that_are_swept_together_are_one_axis_with_one_curve() {
        let record = swept(&[
            &[("link.delay", "1ms"), ("link.loss", "0%")],
            &[("link.delay", "2ms"), ("link.loss", "1%")],
            &[("link.delay", "3ms"), ("link.loss", "5%")],
        ]);
        let drawings = drawings(&record);
        assert_eq!(drawings[0].caption, "ping: rtt median by delay, with loss");
        assert_eq!(drawings.len(), 3, "one for each figure, not for each field");
        let svg = &drawings[0].svg;
        assert!(svg.contains(">delay, ms; below it: loss<"), "{svg}");
        for text in [">0%<", ">1%<", ">5%<"] {
            assert!(svg.contains(text), "{text} in {svg}");
        }
        assert_eq!(svg.matches("<g data-label=\"measured\"").count(), 1);
        assert_eq!(geometry::overlaps(svg), Vec::<String>::new());
    }

    #[test]
    fn other_fields_are_series() {
        let record = swept(&[
            &[("link.delay", "1ms"), ("tcp.congestion", "bbr")],
            &[("link.delay", "2ms"), ("tcp.congestion", "bbr")],
            &[("link.delay", "3ms"), ("tcp.congestion", "bbr")],
            &[("link.delay", "1ms"), ("tcp.congestion", "cubic")],
            &[("link.delay", "2ms"), ("tcp.congestion", "cubic")],
        ]);
        let svg = &drawings(&record)[0].svg;
        for label in ["congestion bbr", "congestion cubic"] {
            assert!(svg.contains(&format!("data-label=\"{label}\"")), "{svg}");
        }
        assert_eq!(geometry::overlaps(svg), Vec::<String>::new());
    }

    #[test]
    fn values_that_are_not_numbers_are_names_that_no_line_joins() {
        let record = swept(&[&[("tcp", "cubic")], &[("tcp", "bbr")], &[("tcp", "reno")]]);
        let svg = &drawings(&record)[0].svg;
        assert!(svg.contains(">cubic<") && svg.contains(">reno<"), "{svg}");
        assert!(!svg.contains("<polyline"), "{svg}");
    }

    #[test]
    fn a_sweep_of_five_fields_has_no_overlapping_texts() {
        let record = swept_by_five_fields();
        let analysis = Analysis::of(&record);
        let questions = crate::charts::questions(&analysis);
        let svgs = questions.iter().flat_map(|question| &question.drawings);
        for drawing in svgs {
            let overlaps = geometry::overlaps(&drawing.svg);
            assert_eq!(overlaps, Vec::<String>::new(), "{}", drawing.caption);
        }
        // 16 combinations of the other fields are too many for curves.
        let note = question(&analysis).note;
        assert!(note.contains("combinations beside delay"), "{note}");
    }
}
