//! The chart "What does a condition do?": every main figure over the fields that a sweep set.

use std::collections::{BTreeMap, BTreeSet};

use model::{BitsPerSec, Bytes, Nanos, Probability};

use super::axis::Axis;
use super::message_sizes::{Unit, point};
use super::plot::{Curve, Plot, Point, Shape};
use super::svg::MOST_SERIES;
use super::{ChartQuestion, Drawing, file_name};
use crate::analysis::{Analysis, CaseFigures};
use crate::{distinct, figure_tables, meaning};
use record::figure_name::FigureName;
use record::quantity::{number, scale_for};
use stats::deciding::Centre;

/// Fewest values of a field for a curve.
const FEWEST_VALUES: usize = 3;

/// Returns the chart of measured values over each swept field.
pub(super) fn question(analysis: &Analysis<'_>) -> ChartQuestion {
    let mut drawings = Vec::new();
    for path in paths(&analysis.cases) {
        let tables = figure_tables::tables(analysis);
        let names = tables.iter().flat_map(figure_tables::FigureTable::names);
        for name in names.filter(|name| name.size.is_none()) {
            drawings.extend(against(analysis, &path, &name));
        }
    }
    ChartQuestion {
        heading: "By the swept conditions",
        note:
            "Means over the runs. Bars: 95 % intervals, whose scope each mark names. Hollow: published values."
                .to_owned(),
        drawings,
    }
}

/// Returns the paths of all swept fields that have enough values.
fn paths(cases: &[CaseFigures<'_>]) -> Vec<String> {
    let mut values: Vec<(&str, BTreeSet<&str>)> = Vec::new();
    for (path, value) in cases.iter().flat_map(|case| &case.case.axes) {
        match values.iter_mut().find(|(known, _)| known == path) {
            Some((_, known)) => _ = known.insert(value),
            None => values.push((path, BTreeSet::from([value.as_str()]))),
        }
    }
    let enough = values
        .into_iter()
        .filter(|(_, values)| values.len() >= FEWEST_VALUES);
    enough.map(|(path, _)| path.to_owned()).collect()
}

/// Draws one figure over one field. Cases that differ in other fields are separate curves.
fn against(analysis: &Analysis<'_>, path: &str, name: &FigureName) -> Vec<Drawing> {
    let swept: Vec<&CaseFigures<'_>> = analysis
        .cases
        .iter()
        .filter(|case| value_of(case, path).is_some())
        .collect();
    let Some(scaled) = FieldValues::of(path, &swept) else {
        return Vec::new();
    };
    let others = others(path, &swept);
    let mut curves: BTreeMap<String, Vec<(f64, &CaseFigures<'_>)>> = BTreeMap::new();
    for case in &swept {
        let Some(x) = value_of(case, path).and_then(|text| scaled.number(text)) else {
            continue;
        };
        if case.figures.contains_key(name) {
            curves
                .entry(label(case, &others))
                .or_default()
                .push((x, case));
        }
    }
    curves.retain(|_, points| points.len() >= 2);
    let curves: Vec<_> = curves.into_iter().collect();
    let chunks = curves.chunks(MOST_SERIES).enumerate();
    chunks
        .map(|(part, curves)| draw(&scaled, path, name, part, curves))
        .collect()
}

fn draw(
    scaled: &FieldValues,
    path: &str,
    name: &FigureName,
    part: usize,
    series: &[(String, Vec<(f64, &CaseFigures<'_>)>)],
) -> Drawing {
    let values = series
        .iter()
        .flat_map(|(_, cases)| cases)
        .map(|(_, case)| case.figures[name].value().abs());
    let unit = scale_for(name.metric, values.fold(0.0, f64::max));
    let mut curves = Vec::new();
    for (look, (label, cases)) in series.iter().enumerate() {
        let mut cases = cases.clone();
        cases.sort_by(|a, b| a.0.total_cmp(&b.0));
        let measured = cases
            .iter()
            .map(|(x, case)| point(unit, *x, &case.figures[name], &case.case.name));
        let label = label.as_str();
        let own = if label.is_empty() { "measured" } else { label }.to_owned();
        let measured = measured.collect();
        curves.push(Curve::new(Some(own), look, Shape::Marked, measured));
        let theirs = format!("{label} published").trim().to_owned();
        let points = cases
            .iter()
            .filter_map(|(x, case)| published(case, name, unit, *x))
            .collect();
        curves.push(Curve::new(Some(theirs), look, Shape::Hollow, points));
    }
    curves.retain(|curve| !curve.points.is_empty());
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let column = figure_tables::ValueColumn::of(name).title();
    let values = || points().flat_map(Point::reach);
    let spread = points().map(|point| point.y);
    let y_title = format!("{column}, {}", unit.1);
    let positive = spread.clone().all(|y| y > 0.0);
    let y = match Axis::fitting(&y_title, spread).data() {
        data if positive && data.ends_with("log") => {
            Axis::log(&y_title, values().filter(|v| *v > 0.0))
        }
        _ => Axis::from_zero(&y_title, values()),
    };
    let plot = Plot {
        x: scaled.axis(path, points().map(|point| point.x)),
        y,
        height: 220.0,
        curves,
    };
    let [file, more] = super::part(part);
    Drawing {
        file: file_name(&["sweep", path, &name.to_string()]) + &file,
        svg: plot.draw(&format!("{column} of {} by {path}", name.instrument)),
        caption: format!("{}: {column} by {path}", name.instrument) + &more,
        below: String::new(),
        about: meaning::of(name.metric, name.statistic, name.direction, name.phase),
    }
}

fn published(case: &CaseFigures<'_>, name: &FigureName, (by, unit): Unit, x: f64) -> Option<Point> {
    let mut published = case.case.published.iter();
    let (_, published) = published.find(|(known, _)| name.is_of(known))?;
    let value = published.over(Centre::Mean)?;
    Some(Point {
        hover: format!(
            "{}: published {} {unit}",
            case.case.name,
            number(value / by)
        ),
        ..Point::at(x, value / by)
    })
}

fn value_of<'a>(case: &'a CaseFigures<'_>, path: &str) -> Option<&'a str> {
    let mut axes = case.case.axes.iter();
    axes.find(|(known, _)| known == path)
        .map(|(_, value)| value.as_str())
}

/// Returns the other fields, except for those that change together with `path`, as in a zip.
fn others<'a>(path: &str, all: &[&'a CaseFigures<'_>]) -> BTreeSet<&'a str> {
    let follows = |other: &str| {
        let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
        all.iter()
            .all(|case| match (value_of(case, path), value_of(case, other)) {
                (Some(x), Some(value)) => *seen.entry(x).or_insert(value) == value,
                _ => true,
            })
    };
    let axes = all.iter().flat_map(|case| &case.case.axes);
    let names: BTreeSet<&str> = axes.map(|(known, _)| known.as_str()).collect();
    let own = names
        .into_iter()
        .filter(|known| *known != path && !follows(known));
    own.collect()
}

/// Formats the values of these fields in a case: "bed.mtu 9000".
fn label(case: &CaseFigures<'_>, fields: &BTreeSet<&str>) -> String {
    let axes = case.case.axes.iter();
    let own = axes.filter(|(known, _)| fields.contains(known.as_str()));
    let words: Vec<String> = own
        .map(|(known, value)| format!("{known} {value}"))
        .collect();
    words.join(", ")
}

/// A function that parses a text as a number in a unit.
type Number = fn(&str) -> Option<f64>;

/// The values of a field on an axis.
enum FieldValues {
    Unit(&'static str, Number),
    /// Values that are not numbers, in the order of the plan.
    Names(Vec<String>),
}

impl FieldValues {
    fn of(path: &str, cases: &[&CaseFigures<'_>]) -> Option<Self> {
        const UNITS: [(&str, Number); 5] = [
            ("", |text| text.parse().ok()),
            ("ms", |text| {
                Some(text.parse::<Nanos>().ok()?.0 as f64 / 1e6)
            }),
            ("%", |text| {
                Some(text.parse::<Probability>().ok()?.percent())
            }),
            ("Mbit/s", |text| {
                Some(text.parse::<BitsPerSec>().ok()?.get() as f64 / 1e6)
            }),
            ("bytes", |text| Some(text.parse::<Bytes>().ok()?.0 as f64)),
        ];
        let values: Vec<&str> = cases
            .iter()
            .filter_map(|case| value_of(case, path))
            .collect();
        let mut units = UNITS.into_iter();
        let fits = units.find(|(_, number)| {
            values
                .iter()
                .all(|value| number(value).is_some_and(f64::is_finite))
        });
        if let Some((unit, number)) = fits {
            return Some(Self::Unit(unit, number));
        }
        let names = distinct(values.into_iter().map(str::to_owned));
        (names.len() <= 12).then_some(Self::Names(names))
    }

    fn number(&self, text: &str) -> Option<f64> {
        match self {
            Self::Unit(_, number) => number(text),
            Self::Names(names) => names
                .iter()
                .position(|name| name == text)
                .map(|at| at as f64),
        }
    }

    fn axis(&self, path: &str, values: impl Iterator<Item = f64>) -> Axis {
        match self {
            Self::Names(names) => Axis::names(path, names.clone()),
            Self::Unit("", _) => Axis::fitting(path, values),
            Self::Unit("bytes", _) => Axis::log2(&format!("{path}, bytes"), values),
            Self::Unit(unit, _) => Axis::fitting(&format!("{path}, {unit}"), values),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::record;
    use record::Record;

    /// The small record's second case, swept over these fields.
    fn swept(axes: &[&[(&str, &str)]]) -> Record {
        let mut record = record();
        let (case, run) = (record.head.plan.cases[1].clone(), record.runs[1].clone());
        record.head.plan.trends.clear();
        record.head.plan.cases.truncate(1);
        for (number, axes) in axes.iter().enumerate() {
            let (mut case, mut run) = (case.clone(), run.clone());
            case.name = format!("swept{number}");
            run.case = case.name.clone();
            case.axes = axes
                .iter()
                .map(|(path, value)| ((*path).to_owned(), (*value).to_owned()))
                .collect();
            record.head.plan.cases.push(case);
            record.runs.push(run);
        }
        record
    }

    fn captions(record: &Record) -> Vec<String> {
        let analysis = Analysis::of(record);
        question(&analysis)
            .drawings
            .into_iter()
            .map(|drawing| drawing.caption)
            .collect()
    }

    #[test]
    fn each_main_figure_is_drawn_over_a_field_with_three_values() {
        let record = swept(&[
            &[("link.delay", "1ms")],
            &[("link.delay", "10ms")],
            &[("link.delay", "100ms")],
        ]);
        let analysis = Analysis::of(&record);
        let drawings = question(&analysis).drawings;
        assert_eq!(drawings.len(), 3);
        assert_eq!(drawings[0].caption, "ping: rtt median by link.delay");
        assert!(drawings[0].svg.contains("link.delay, ms"));
        assert!(
            captions(&swept(&[
                &[("link.delay", "1ms")],
                &[("link.delay", "10ms")]
            ]))
            .is_empty()
        );
    }

    #[test]
    fn fields_that_change_together_are_one_curve() {
        let zipped = swept(&[
            &[("a", "1"), ("b", "x")],
            &[("a", "2"), ("b", "y")],
            &[("a", "3"), ("b", "z")],
        ]);
        let analysis = Analysis::of(&zipped);
        let case = analysis.case("swept0").unwrap();
        let all: Vec<_> = analysis.cases.iter().collect();
        assert_eq!(label(case, &others("a", &all)), "");
        let crossed = swept(&[
            &[("a", "1"), ("b", "x")],
            &[("a", "1"), ("b", "y")],
            &[("a", "2"), ("b", "x")],
        ]);
        let analysis = Analysis::of(&crossed);
        let case = analysis.case("swept0").unwrap();
        let all: Vec<_> = analysis.cases.iter().collect();
        assert_eq!(label(case, &others("a", &all)), "b x");
    }

    #[test]
    fn values_that_are_not_numbers_are_names() {
        let record = swept(&[&[("tcp", "cubic")], &[("tcp", "bbr")], &[("tcp", "reno")]]);
        let analysis = Analysis::of(&record);
        let svg = &question(&analysis).drawings[0].svg;
        assert!(svg.contains(">cubic<") && svg.contains(">reno<"), "{svg}");
    }
}
