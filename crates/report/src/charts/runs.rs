//! The chart "How much do the runs differ?": every run of every case on one axis, with a drawing for each main figure.

use std::fmt::Write;

use super::axis::{Axis, short};
use super::plot::open;
use super::svg::{LINE, Look, escaped, px, text_lines, width, wrapped_to};
use super::{ChartQuestion, Drawing, file_name};
use crate::analysis::{Analysis, FigureOverRuns};
use crate::figure_tables::{self, CaseRow, FigureTable, ValueColumn};
use crate::interval::with_interval;
use crate::meaning;
use record::quantity::{counted, number, scale_for};
use stats::deciding::Centre;

const WIDTH: f64 = 440.0;
/// Horizontal positions between which the axis is.
const ENDS: [f64; 2] = [18.0, 422.0];
const LABEL_LEFT: f64 = 8.0;
/// Space for the number of runs beside a label.
const COUNT: f64 = 62.0;
/// Height of the strip of a case, and of the space below it.
const STRIP: f64 = 16.0;
const GAP: f64 = 8.0;
/// Greatest number of lines of a label.
const MOST_LINES: usize = 3;
/// Greatest number of cases in one drawing, and of drawings of a figure.
const MOST_ROWS: usize = 24;
const MOST_PARTS: usize = 8;
/// Greatest number of runs of a case that are drawn as dots; more are drawn as a box.
const MOST_DOTS: usize = 30;
/// Greatest number of outliers beside a box.
const MOST_OUTLIERS: usize = 20;
/// Greatest number of runs whose values are listed under the pointer.
const MOST_LISTED: usize = 10;

/// A figure of a case.
struct RunStrip<'a> {
    label: String,
    across: &'a FigureOverRuns,
    published: Option<f64>,
}

/// Returns the chart of all runs for each main figure that several runs of a case have.
pub(super) fn question(analysis: &Analysis<'_>) -> ChartQuestion {
    let tables = figure_tables::tables(analysis);
    let drawings = tables.iter().flat_map(|table| {
        let columns = table.columns.iter();
        let main = columns.filter(|one| table.profile.is_headline(one.metric, one.statistic));
        main.flat_map(|column| of_column(table, *column))
            .collect::<Vec<_>>()
    });
    ChartQuestion {
        heading: "Every run",
        note: format!(
            "A dot is a run, the stroke is the mean, and the band is its 95 % interval. A ring is an outlier, a run outside \
             Tukey's fences; it counts like any other. A hollow diamond is a published value. A case of more than {MOST_DOTS} \
             runs is a box plot: a box from quartile to quartile with the median, and whiskers to the least and the greatest \
             run that is no outlier. All cases share the axis, which need not begin at 0. At most {} cases are drawn.",
            MOST_ROWS * MOST_PARTS
        ),
        drawings: drawings.collect(),
    }
}

/// Returns the drawings of a figure; none if no case has several runs, or if all runs are equal.
fn of_column(table: &FigureTable<'_>, column: ValueColumn) -> Vec<Drawing> {
    let rows = table.rows.iter();
    let strips: Vec<RunStrip<'_>> = rows
        .filter_map(|row| RunStrip::of(table, row, column))
        .collect();
    let values = || strips.iter().flat_map(|strip| &strip.across.values);
    let has_several = strips.iter().any(|strip| strip.across.values.len() > 1);
    let differ = values().any(|value| Some(value) != values().next());
    if !has_several || !differ {
        return Vec::new();
    }
    let greatest = values().fold(0.0, |most: f64, value| most.max(value.abs()));
    let (by, unit) = scale_for(column.metric, greatest);
    let title = match unit {
        "" => column.title(),
        unit => format!("{}, {unit}", column.title()),
    };
    let axis = axis(&title, strips.iter().flat_map(|strip| strip.reach(by)));
    let chunks = strips.chunks(MOST_ROWS).enumerate();
    let drawing = |(part, strips): (usize, &[RunStrip<'_>])| {
        let [file, more] = super::part(part);
        let name = column.name(table.instrument, None).to_string();
        let (metric, statistic) = (column.metric, column.statistic);
        Drawing {
            file: file_name(&["runs", &name]) + &file,
            svg: draw(strips, &axis, (by, unit)),
            caption: format!("{}: {}", table.instrument, column.title()) + &more,
            below: String::new(),
            about: meaning::of(metric, statistic, column.direction, column.phase),
        }
    };
    chunks.take(MOST_PARTS).map(drawing).collect()
}

/// Returns an axis around the values: logarithmic if they are above 0 and span more than a factor of 20.
fn axis(title: &str, values: impl Iterator<Item = f64>) -> Axis {
    let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    if Axis::fitting(title, values.iter().copied()).is_log() {
        Axis::log(title, values.into_iter())
    } else {
        Axis::linear(title, values.into_iter())
    }
}

impl<'a> RunStrip<'a> {
    fn of(table: &FigureTable<'a>, row: &CaseRow<'a>, column: ValueColumn) -> Option<Self> {
        let name = column.name(table.instrument, row.size);
        let across = row.figures.figures.get(&name)?;
        let case = row.figures.case;
        let mut published = case.published.iter();
        let published = published.find(|(known, _)| name.is_of(known));
        let size = row.size.map(|size| counted(size, "byte"));
        let label = std::iter::once(table.labels.words(case)).chain(size);
        Some(Self {
            label: label.collect::<Vec<_>>().join(", "),
            across,
            published: published.and_then(|(_, published)| published.over(Centre::Mean)),
        })
    }

    /// Returns the values that the axis includes, in a unit that is `by` times the metric's.
    fn reach(&self, by: f64) -> impl Iterator<Item = f64> {
        let ends = self.across.interval.into_iter().flat_map(|own| own.ends);
        let values = self.across.values.iter().copied();
        let all = values.chain(ends).chain(self.published);
        all.map(move |value| value / by)
    }

    /// Formats mean, interval and the first runs.
    fn hover(&self, (by, unit): (f64, &str)) -> String {
        let across = self.across;
        let interval = across.interval.map(|own| own.in_units_of(by));
        let mean = with_interval(across.value() / by, interval.map(|own| own.ends));
        let of = interval.map_or(String::new(), |own| format!(", 95 % {}", own.of.words()));
        let values = across.values.iter().take(MOST_LISTED);
        let mut runs: Vec<String> = values.map(|value| number(value / by)).collect();
        if across.values.len() > MOST_LISTED {
            runs.push("…".to_owned());
        }
        format!(
            "{}: mean {mean} {unit}{of}; runs: {}",
            self.label,
            runs.join(", ")
        )
    }

    /// Returns the marks of the runs around a height: dots, or a box.
    fn marks(&self, y: f64, left: impl Fn(f64) -> f64) -> String {
        let summary = &self.across.summary;
        let [low, high] = summary.fences();
        let is_far_out = |value: f64| value < low || value > high;
        let mut svg = String::new();
        let ring = |value: f64| {
            format!(
                "<circle cx=\"{}\" cy=\"{}\" r=\"4\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\"/>",
                px(left(value)),
                px(y),
                Look(1).colour()
            )
        };
        let values = &self.across.values;
        if values.len() <= MOST_DOTS {
            for value in values {
                if is_far_out(*value) {
                    svg += &ring(*value);
                    continue;
                }
                // Writing to a String cannot fail.
                let _ = write!(
                    svg,
                    "<circle cx=\"{}\" cy=\"{}\" r=\"3\" fill=\"{}\" fill-opacity=\".65\"/>",
                    px(left(*value)),
                    px(y),
                    Look(0).colour()
                );
            }
            return svg;
        }
        let inner = values.iter().copied().filter(|value| !is_far_out(*value));
        let (least, greatest) = inner.fold((f64::INFINITY, f64::NEG_INFINITY), |ends, value| {
            (ends.0.min(value), ends.1.max(value))
        });
        let [first, median, third] = [0.25, 0.5, 0.75].map(|share| left(summary.quantile(share)));
        let _ = write!(
            svg,
            "<path d=\"M{} {y}H{}M{} {y}H{}\" stroke=\"{colour}\" stroke-width=\"1.4\"/>\
             <rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"10\" fill=\"{colour}\" fill-opacity=\".3\" stroke=\"{colour}\"/>\
             <path d=\"M{} {}v10\" stroke=\"{colour}\" stroke-width=\"2.4\"/>",
            px(left(least)),
            px(first),
            px(third),
            px(left(greatest)),
            px(first),
            px(y - 5.0),
            px((third - first).max(1.0)),
            px(median),
            px(y - 5.0),
            colour = Look(0).colour(),
            y = px(y),
        );
        let outliers = values.iter().copied().filter(|value| is_far_out(*value));
        svg.extend(outliers.take(MOST_OUTLIERS).map(ring));
        svg
    }
}

/// Draws the cases below one another above a common axis.
fn draw(strips: &[RunStrip<'_>], axis: &Axis, unit: (f64, &str)) -> String {
    let left = |value: f64| ENDS[0] + axis.place(value) * (ENDS[1] - ENDS[0]);
    let mut rows = String::new();
    let mut top = 2.0;
    for strip in strips {
        let label = wrapped_to(&strip.label, WIDTH - 2.0 * LABEL_LEFT - COUNT, MOST_LINES);
        let first = top + 11.0;
        let y = first + (label.len() - 1) as f64 * LINE + 5.0 + STRIP / 2.0;
        let count = format!("n = {}", short(strip.across.values.len() as f64));
        // Writing to a String cannot fail.
        let _ = write!(
            rows,
            "<g><title>{}</title>{}{}",
            escaped(&strip.hover(unit)),
            text_lines(&label, LABEL_LEFT, first, ""),
            text_lines(
                &[count],
                WIDTH - LABEL_LEFT,
                first,
                " text-anchor=\"end\" fill-opacity=\".75\""
            )
        );
        rows += &row(strip, axis, unit.0, y, left);
        rows += "</g>";
        top = y + STRIP / 2.0 + GAP;
    }
    let title = format!("Every run: {}", axis.title);
    let below = draw_axis(axis, top, left);
    open(WIDTH, top + 34.0, &title, "") + &rows + &below + "</svg>"
}

/// Draws the strip of a case around a height: the grid, the interval, the runs, the mean and the published value.
fn row(
    strip: &RunStrip<'_>,
    axis: &Axis,
    by: f64,
    y: f64,
    left: impl Fn(f64) -> f64 + Copy,
) -> String {
    let (above, [from, to]) = (px(y - STRIP / 2.0), ENDS.map(px));
    let mut svg = format!(
        "<path d=\"M{from} {}H{to}\" stroke=\"currentColor\" stroke-opacity=\".25\"/>",
        px(y)
    );
    for (value, _) in axis.ticks() {
        // Writing to a String cannot fail.
        let _ = write!(
            svg,
            "<path d=\"M{} {above}v{STRIP}\" stroke=\"currentColor\" stroke-opacity=\".16\"/>",
            px(left(value))
        );
    }
    let scaled = |value: f64| left(value / by);
    if let Some([low, high]) = strip.across.interval.map(|own| own.ends.map(scaled)) {
        let _ = write!(
            svg,
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"8\" fill=\"currentColor\" fill-opacity=\".18\"/>",
            px(low),
            px(y - 4.0),
            px((high - low).max(1.0))
        );
    }
    svg += &strip.marks(y, scaled);
    let _ = write!(
        svg,
        "<path d=\"M{} {above}v{STRIP}\" stroke=\"currentColor\" stroke-width=\"1.6\"/>",
        px(scaled(strip.across.value()))
    );
    if let Some(published) = strip.published {
        let _ = write!(
            svg,
            "<path d=\"{}\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.4\"/>",
            Look(3).mark(scaled(published), y, 4.5)
        );
    }
    svg
}

/// Draws the axis below the cases.
fn draw_axis(axis: &Axis, top: f64, left: impl Fn(f64) -> f64) -> String {
    let [from, to] = ENDS;
    let mut svg = format!(
        "<path d=\"M{} {top}H{}\" stroke=\"currentColor\" stroke-opacity=\".6\"/>",
        px(from),
        px(to),
        top = px(top)
    );
    let mut free = f64::NEG_INFINITY;
    for (value, text) in axis.ticks() {
        let (x, half) = (left(value), width(&text) / 2.0);
        // Writing to a String cannot fail.
        let _ = write!(
            svg,
            "<path d=\"M{} {}v4\" stroke=\"currentColor\"/>",
            px(x),
            px(top)
        );
        // Texts are left out where they would overlap.
        if x - half > free {
            let x = x.min(WIDTH - half).max(half);
            svg += &text_lines(&[text], x, top + 15.0, " text-anchor=\"middle\"");
            free = x + half + 4.0;
        }
    }
    let title = wrapped_to(&axis.title, to - from, 1);
    let middle = f64::midpoint(from, to);
    svg + &text_lines(&title, middle, top + 30.0, " text-anchor=\"middle\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::record;
    use crate::case_labels::tests::swept;
    use crate::charts::geometry;
    use record::Record;
    use record::plan::Repeats;

    /// The second case of the small record with this many runs, whose round trips grow by 0.1 ms a run.
    fn repeated(runs: u32) -> Record {
        let mut record = record();
        record.head.plan.cases[1].repeats = Repeats::fixed(runs);
        let pattern = record.runs[1].clone();
        let base = record.runs[0].clone();
        record.runs = vec![base];
        record.runs.extend((1..=runs).map(|repeat| {
            let mut run = pattern.clone();
            run.repeat = repeat;
            let figure = &mut run.measurements[0].measurement.figures[0];
            figure.value = if repeat == 1 {
                9.0
            } else {
                3.0 + 0.1 * f64::from(repeat % 10)
            };
            run
        }));
        record
    }

    fn first(record: &Record) -> String {
        let analysis = Analysis::of(record);
        question(&analysis).drawings.remove(0).svg
    }

    #[test]
    fn few_runs_are_dots_and_many_are_a_box_on_one_axis() {
        let few = first(&repeated(9));
        let rings = format!("stroke=\"{}\" stroke-width=\"1.8\"", Look(1).colour());
        assert_eq!(few.matches("fill-opacity=\".65\"").count(), 1 + 8, "{few}");
        assert_eq!(few.matches(&rings).count(), 1, "{few}");
        assert!(few.contains(">n = 9<") && few.contains(">n = 1<"), "{few}");
        assert!(few.contains(">rtt median, ms<"), "{few}");
        let many = first(&repeated(60));
        assert_eq!(many.matches("fill-opacity=\".65\"").count(), 1, "{many}");
        assert_eq!(many.matches("fill-opacity=\".3\"").count(), 1, "{many}");
        assert_eq!(many.matches(&rings).count(), 1, "{many}");
        for svg in [few, many] {
            assert_eq!(geometry::overlaps(&svg), Vec::<String>::new());
        }
    }

    #[test]
    fn a_record_of_single_runs_has_no_strips() {
        let record = swept(&[&[("link.delay", "1ms")], &[("link.delay", "2ms")]]);
        assert!(question(&Analysis::of(&record)).drawings.is_empty());
    }

    #[test]
    fn long_names_are_wrapped() {
        let mut record = repeated(3);
        let long = "a case with a long name that needs three lines, delay 300ms, loss 1%, congestion bbr, queue 100pkt, \
                    parallel 16, and more";
        record.head.plan.trends.clear();
        record.head.plan.cases[1].name = long.to_owned();
        for run in record.runs.iter_mut().skip(1) {
            run.case = long.to_owned();
        }
        let svg = first(&record);
        assert_eq!(geometry::overlaps(&svg), Vec::<String>::new(), "{svg}");
        assert!(!svg.contains('…'), "{svg}");
    }
}
