//! The picture below the answer: the key figure of every case on one axis, with its interval and the published value.

use std::fmt::Write;

use super::axis::Axis;
use super::message_sizes::{Unit, point};
use super::plot::{Point, open};
use super::svg::{LINE, Look, escaped, fitted, px, shortened, text_lines, width, wrapped_to};
use super::{Drawing, file_name};
use crate::analysis::key_figure::{KeyFigure, KeyRow};
use crate::case_conditions;
use crate::case_labels::CaseLabels;
use crate::meaning;
use record::plan::Plan;
use record::quantity::{counted, number};

const WIDTH: f64 = 440.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 4.0;
/// Greatest width of the names, which are wrapped.
const NAMES_MOST: f64 = 170.0;
/// Space between the names of two rows.
const ROW_GAP: f64 = 9.0;
/// Space below the rows for the texts of ticks and axis.
const AXIS: f64 = 38.0;
const LEGEND_LINE: f64 = 18.0;
/// Width of the mark before a legend's text.
const KEY: f64 = 24.0;
/// Greatest number of rows.
const MOST_ROWS: usize = 40;
/// With more rows than this, a case is named without its title.
const MOST_DESCRIBED: usize = 16;
/// Greatest number of characters of a name.
const NAME_MOST: usize = 200;
/// Greatest number of lines of a name.
const MOST_LINES: usize = 4;
/// The looks of measured and of published values.
const MEASURED: Look = Look(0);
const PUBLISHED: Look = Look(1);

/// A row with its places on the drawing.
struct DrawnRow {
    name: Vec<String>,
    /// The vertical middle.
    middle: f64,
    measured: Option<Point>,
    published: Option<Point>,
    hover: String,
}

/// Draws the figure; `None` if it has one row without a published value, which shows nothing that its number does not.
pub(crate) fn drawing(key: &KeyFigure<'_>, plan: &Plan) -> Option<Drawing> {
    let has_published = key.rows.iter().any(|row| row.published.is_some());
    if key.rows.len() < 2 && !has_published {
        return None;
    }
    let (rows, height) = drawn_rows(key, &CaseLabels::of_all(plan));
    let words = key.in_words();
    let by = if key.has_one_case() { "size" } else { "case" };
    let title = format!("The {words} by {by}");
    let axis = axis(key, &rows);
    let left = rows
        .iter()
        .flat_map(|row| &row.name)
        .map(|line| width(line))
        .fold(0.0, f64::max)
        .min(NAMES_MOST)
        + 12.0;
    let frame = Frame { left, height, axis };
    let reference = plan.reference.as_deref();
    let of_reference = reference.and_then(|name| value_of(key, name, key.unit().0));
    let legend = legend(has_published, of_reference.is_some());
    let total = height + AXIS + legend.height;
    let mut svg = open(WIDTH, total, &title, "");
    frame.draw_axis(&mut svg);
    if let Some(value) = of_reference {
        let x = px(frame.across(value));
        // Writing to a String cannot fail.
        let _ = write!(
            svg,
            "<path d=\"M{x} {TOP}V{}\" stroke=\"currentColor\" stroke-opacity=\".55\" stroke-dasharray=\"4 3\"/>",
            px(height)
        );
    }
    for row in &rows {
        frame.draw_row(&mut svg, row);
    }
    let _ = write!(
        svg,
        "<g transform=\"translate(0 {})\">{}</g></svg>",
        px(height + AXIS + 6.0),
        legend.svg
    );
    let more = key.rows.len().saturating_sub(MOST_ROWS);
    Some(Drawing {
        file: file_name(&["answer", &key.name.to_string()]),
        caption: title,
        below: match more {
            0 => String::new(),
            1 => "1 more row is in the tables".to_owned(),
            _ => format!("{more} more rows are in the tables"),
        },
        about: meaning::of(
            key.name.metric,
            key.name.statistic,
            key.name.direction,
            key.name.phase,
        ),
        svg,
    })
}

/// Lays out the rows below one another, and returns them with the height that they take.
fn drawn_rows(key: &KeyFigure<'_>, labels: &CaseLabels<'_>) -> (Vec<DrawnRow>, f64) {
    let mut top = TOP;
    let mut drawn = Vec::new();
    let unit = key.unit();
    for row in key.rows.iter().take(MOST_ROWS) {
        let what = name(key, row, labels);
        let name = wrapped_to(&shortened(&what, NAME_MOST), NAMES_MOST, MOST_LINES);
        let tall = LINE * name.len() as f64 + ROW_GAP;
        let [measured, published] = points(row, &what, unit);
        drawn.push(DrawnRow {
            name,
            middle: top + tall / 2.0,
            hover: hover(&what, &measured, &published),
            measured,
            published,
        });
        top += tall;
    }
    (drawn, top)
}

/// Names a row beside the axis. A case that a sweep made has the values of the sweep.
fn name(key: &KeyFigure<'_>, row: &KeyRow<'_>, labels: &CaseLabels<'_>) -> String {
    let size = row.size.map(|size| counted(size, "byte"));
    let is_described = row.case.axes.is_empty() && key.rows.len() <= MOST_DESCRIBED;
    let case = || {
        if is_described {
            case_conditions::described(row.case)
        } else {
            labels.words(row.case)
        }
    };
    match size {
        Some(size) if key.has_one_case() => size,
        Some(size) => format!("{}, {size}", case()),
        None => case(),
    }
}

/// Returns the value of the only row of a case, in a unit of this size.
fn value_of(key: &KeyFigure<'_>, case: &str, by: f64) -> Option<f64> {
    let mut own = key.rows.iter().filter(|row| row.case.name == case);
    let value = own.next()?.figure?.value();
    own.next().is_none().then_some(value / by)
}

/// Returns the axis for all values and for those ends of intervals that it can have.
fn axis(key: &KeyFigure<'_>, rows: &[DrawnRow]) -> Axis {
    let points = || {
        let of = |row: &DrawnRow| [row.measured.clone(), row.published.clone()];
        rows.iter().flat_map(of).flatten().collect::<Vec<_>>()
    };
    let title = format!("{}, {}", key.in_words(), key.unit().1);
    let title = title.trim_end_matches([',', ' ']);
    let fitted = Axis::fitting(title, points().iter().map(|point| point.y));
    let reach: Vec<f64> = points().iter().flat_map(Point::reach).collect();
    if fitted.is_log() {
        Axis::log(title, reach.into_iter())
    } else {
        Axis::from_zero(title, reach.into_iter())
    }
}

/// Returns the measured and the published value of a row as points in this unit.
fn points(row: &KeyRow<'_>, what: &str, unit: Unit) -> [Option<Point>; 2] {
    let measured = row.figure.map(|figure| point(unit, 0.0, figure, what));
    let (by, shown) = unit;
    let published = row.published_mean().map(|value| Point {
        hover: format!("published {} {shown}", number(value / by)),
        ..Point::at(0.0, value / by)
    });
    [measured, published]
}

/// Returns the text that is shown when a pointer is over a row.
fn hover(what: &str, measured: &Option<Point>, published: &Option<Point>) -> String {
    let own = match measured {
        Some(point) => point.hover.clone(),
        None => format!("{what}: no valid value"),
    };
    match published {
        Some(point) => format!("{own}; {}", point.hover),
        None => own,
    }
}

/// The part of the drawing with the axis.
struct Frame {
    /// Distance of the axis from the left edge.
    left: f64,
    /// Distance of the axis from the top.
    height: f64,
    axis: Axis,
}

impl Frame {
    fn across(&self, value: f64) -> f64 {
        self.left + self.axis.place(value) * (WIDTH - RIGHT - self.left)
    }

    fn draw_axis(&self, svg: &mut String) {
        let (left, right, bottom) = (px(self.left), px(WIDTH - RIGHT), px(self.height));
        let mut free = f64::NEG_INFINITY;
        for (value, text) in self.axis.ticks() {
            let (x, half) = (self.across(value), width(&text) / 2.0);
            // Writing to a String cannot fail.
            let _ = write!(
                svg,
                "<path d=\"M{0} {TOP}V{bottom}\" stroke=\"currentColor\" stroke-opacity=\".13\"/>",
                px(x)
            );
            // A text stays within the drawing.
            let at = x.min(WIDTH - half);
            if at - half > free {
                let _ = write!(
                    svg,
                    "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                    px(at),
                    px(self.height + 15.0),
                    escaped(&text)
                );
                free = at + half + 4.0;
            }
        }
        let _ = write!(
            svg,
            "<path d=\"M{left} {bottom}H{right}\" stroke=\"currentColor\" stroke-opacity=\".6\"/>\
             <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            right,
            px(self.height + 31.0),
            escaped(&fitted(&self.axis.title, WIDTH - RIGHT))
        );
    }

    fn draw_row(&self, svg: &mut String, row: &DrawnRow) {
        let y = row.middle;
        let _ = write!(svg, "<g><title>{}</title>", escaped(&row.hover));
        let first = y - LINE * (row.name.len() as f64 - 1.0) / 2.0 + 4.0;
        svg.push_str(&text_lines(
            &row.name,
            self.left - 8.0,
            first,
            " text-anchor=\"end\"",
        ));
        let _ = write!(
            svg,
            "<path d=\"M{} {y}H{}\" stroke=\"currentColor\" stroke-opacity=\".13\"/>",
            px(self.left),
            px(WIDTH - RIGHT),
            y = px(y)
        );
        if let Some(published) = &row.published {
            let _ = write!(
                svg,
                "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\"/>",
                PUBLISHED.mark(self.across(published.y), y, 5.0),
                PUBLISHED.colour()
            );
        }
        match &row.measured {
            Some(measured) => self.draw_measured(svg, measured, y),
            None => {
                let _ = write!(
                    svg,
                    "<text x=\"{}\" y=\"{}\" fill-opacity=\".7\">no valid value</text>",
                    px(self.left + 4.0),
                    px(y - 2.0)
                );
            }
        }
        svg.push_str("</g>");
    }

    fn draw_measured(&self, svg: &mut String, point: &Point, y: f64) {
        let colour = MEASURED.colour();
        if let Some(ends) = point.interval {
            let [low, high] = ends.map(|end| px(self.across(end)));
            let _ = write!(
                svg,
                "<path d=\"M{low} {y}H{high}m0 -4v8M{low} {y}m0 -4v8\" stroke=\"{colour}\" stroke-width=\"1.8\"/>",
                y = px(y)
            );
        }
        let _ = write!(
            svg,
            "<path d=\"{}\" fill=\"{colour}\"/>",
            MEASURED.mark(self.across(point.y), y, 3.6)
        );
    }
}

/// The explanation of the marks.
struct Legend {
    svg: String,
    height: f64,
}

fn legend(has_published: bool, has_reference: bool) -> Legend {
    let dot = format!(
        "<path d=\"M2 0h18\" stroke=\"{0}\" stroke-width=\"1.8\"/><path d=\"{1}\" fill=\"{0}\"/>",
        MEASURED.colour(),
        MEASURED.mark(11.0, 0.0, 3.6)
    );
    let hollow = format!(
        "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\"/>",
        PUBLISHED.mark(11.0, 0.0, 5.0),
        PUBLISHED.colour()
    );
    let dashes =
        "<path d=\"M11 -7v14\" stroke=\"currentColor\" stroke-opacity=\".55\" stroke-dasharray=\"4 3\"/>"
            .to_owned();
    let entries = [
        Some((dot, "measured, 95 % interval")),
        has_published.then_some((hollow, "published")),
        has_reference.then_some((dashes, "the reference")),
    ];
    let mut svg = String::new();
    let (mut x, mut y) = (8.0, 0.0);
    for (mark, text) in entries.into_iter().flatten() {
        let wide = KEY + width(text) + 14.0;
        if x > 8.0 && x + wide > WIDTH {
            (x, y) = (8.0, y + LEGEND_LINE);
        }
        // Writing to a String cannot fail.
        let _ = write!(
            svg,
            "<g transform=\"translate({} {})\">{mark}<text x=\"{KEY}\" y=\"4\">{text}</text></g>",
            px(x),
            px(y)
        );
        x += wide;
    }
    Legend {
        svg,
        height: y + LEGEND_LINE + 4.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Analysis;
    use crate::analysis::tests::{record, spoil};
    use crate::case_labels::tests::{swept, swept_by_five_fields};
    use crate::charts::geometry;
    use record::Record;

    /// Draws the key figure, in which no text may overlap another.
    fn drawn(record: &Record) -> Option<Drawing> {
        let analysis = Analysis::of(record);
        let drawing = drawing(&KeyFigure::of(&analysis)?, record.plan())?;
        assert_eq!(geometry::overlaps(&drawing.svg), Vec::<String>::new());
        Some(drawing)
    }

    #[test]
    fn every_case_has_a_row_with_measured_and_published_value() {
        let drawing = drawn(&record()).unwrap();
        assert_eq!(drawing.caption, "The goodput of download by case");
        assert_eq!(drawing.file, "answer-download-goodput_bit_per_s-mean");
        let svg = drawing.svg;
        assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>"));
        for part in [
            "<title>slow (Slower &amp; &lt;lossy&gt;): 8 [0, 31] Mbit/s, 95 % over 2 runs; published 8.000 Mbit/s</title>",
            ">base (Nothing added)</text>",
            "goodput of download, Mbit/s</text>",
            ">the reference</text>",
            ">published</text>",
        ] {
            assert!(svg.contains(part), "{part} in {svg}");
        }
        assert_eq!(svg.matches("<title>").count(), 2);
        assert!(!svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn a_case_of_a_sweep_is_named_by_its_values() {
        let record = swept(&[&[("link.delay", "1ms")], &[("link.delay", "9ms")]]);
        let svg = drawn(&record).unwrap().svg;
        assert!(svg.contains(">delay 9ms</text>"), "{svg}");
        assert!(!svg.contains("line["), "{svg}");
    }

    #[test]
    fn rows_beyond_the_most_are_counted_below_the_drawing() {
        let drawing = drawn(&swept_by_five_fields()).unwrap();
        assert_eq!(drawing.below, "8 more rows are in the tables");
    }

    #[test]
    fn names_and_values_that_are_long_do_not_overlap() {
        let mut record = record();
        for case in &mut record.head.plan.cases {
            case.title =
                "a line with a queue that is far longer than any that should be there".to_owned();
        }
        for run in &mut record.runs {
            for measured in &mut run.measurements {
                for figure in &mut measured.measurement.figures {
                    figure.value *= 12_345.0;
                }
            }
        }
        assert!(drawn(&record).is_some());
    }

    #[test]
    fn a_single_value_is_drawn_only_beside_a_published_one() {
        let mut record = record();
        record.head.plan.cases.truncate(1);
        record.head.plan.trends.clear();
        record.runs.truncate(1);
        assert!(drawn(&record).is_some());
        record.head.plan.cases[0].published.clear();
        assert!(drawn(&record).is_none());
    }

    #[test]
    fn a_case_without_a_valid_value_says_so() {
        let mut record = record();
        for run in record.runs.iter_mut().filter(|run| run.case == "slow") {
            spoil(run, "the ring dropped 3");
        }
        let svg = drawn(&record).unwrap().svg;
        assert!(svg.contains(">no valid value</text>"), "{svg}");
    }
}
