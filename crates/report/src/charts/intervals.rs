//! The pictures of comparisons: a grid of small intervals on a common axis, or a heat map for each pair of values if
//! exactly two other fields were swept.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt::Write;

use super::axis::Axis;
use super::plot::open;
use super::svg::{BOLD, Look, escaped, fitted, px, width};
use super::{Drawing, file_name, part};
use crate::analysis::field_comparison::ComparedPair;
use crate::answers::{self, Answer};
use crate::{distinct, meaning};
use record::figure_name::FigureName;
use stats::contrast::{Contrast, ContrastScale};

const WIDTH: f64 = 440.0;
/// Space to the left and right of a drawing, and between columns.
const GAP: f64 = 8.0;
/// Height of a line of text.
const LINE: f64 = 16.0;

/// Largest number of drawings of one comparison; the table has every pair.
const MOST_DRAWINGS: usize = 12;
/// Largest number of columns of a grid.
const MOST_COLUMNS: usize = 3;
/// Largest number of rows of a grid.
const MOST_ROWS: usize = 16;
/// Height of a row of a grid, which has a label above the intervals.
const ROW: f64 = 36.0;
/// The factor from the estimate at which an interval in a grid is cut off with an arrow, so that a wide one does not
/// determine the axis of all.
const REACH: f64 = 3.0;
/// The ratio of the largest to the smallest value above which the axis of a grid is logarithmic.
const LINEAR: f64 = 4.0;

/// Largest number of values of a field in a heat map.
const MOST_STEPS: usize = 12;
/// Height of a cell of a heat map.
const CELL: f64 = 44.0;
/// Widest label to the left of a heat map.
const WIDEST_LABEL: f64 = 110.0;
/// Size of the small texts relative to the others.
const SMALL: f64 = 9.5 / 11.5;

const OF_GRID: &str = "Each mark is an estimate, each line its interval. Filled marks are differences beyond chance: a disc is higher, a square \
                       is lower. Hollow: no difference found. The vertical line is no difference.";
const OF_HEAT_MAP: &str = "Filled cells are differences beyond chance: blue is higher, orange is lower, the stronger the colour the greater. \
                           Dashed cells without a fill: no difference found.";

/// Returns the drawings of a comparison.
pub(crate) fn drawings(answer: &Answer<'_>) -> Vec<Drawing> {
    let groups = answer.comparison.by_values();
    match HeatMap::of(&answer.comparison.pairs) {
        Some(map) => groups
            .iter()
            .take(MOST_DRAWINGS)
            .map(|pairs| {
                drawing(
                    answer,
                    &[answers::names(pairs[0])],
                    0,
                    OF_HEAT_MAP,
                    map.draw(answer, pairs),
                )
            })
            .collect(),
        None => grids(answer, &groups),
    }
}

/// Returns the drawing of the pairs of values with these names.
fn drawing(
    answer: &Answer<'_>,
    names: &[String],
    number: usize,
    below: &str,
    svg: String,
) -> Drawing {
    let [file, more] = part(number);
    let FigureName {
        metric,
        statistic,
        direction,
        phase,
        ..
    } = answer.comparison.figure;
    let (path, figure) = (
        &answer.comparison.path,
        answer.comparison.figure.to_string(),
    );
    Drawing {
        file: file_name(&["compare", path, &figure, &names.join("-")]) + &file,
        caption: format!("{}: {}", answer.figure(), names.join(", ")) + &more,
        below: below.to_owned(),
        about: meaning::of(metric, statistic, direction, phase),
        svg,
    }
}

/// Formats what a mark or a cell says to a pointer.
fn hover(answer: &Answer<'_>, pair: &ComparedPair) -> String {
    let outcome = match &pair.outcome {
        Ok(contrast) => format!("{}, {}", answer.shown(contrast), answers::found(contrast)),
        Err(reason) => format!("not compared: {}", reason.words()),
    };
    let label = match pair.shared.label() {
        label if label.is_empty() => label,
        label => label + ": ",
    };
    format!("{label}{} {outcome}", answers::names(pair))
}

/// Draws grids with a column for each pair of values and a row for each combination of the other fields.
fn grids(answer: &Answer<'_>, groups: &[Vec<&ComparedPair>]) -> Vec<Drawing> {
    let Some(axis) = GridAxis::of(&answer.comparison.pairs) else {
        return Vec::new();
    };
    let labels = answer.comparison.pairs.iter();
    let labels = distinct(labels.map(|pair| pair.shared.label()));
    let columns: Vec<GridColumn<'_>> = groups.iter().map(|pairs| GridColumn::of(pairs)).collect();
    let mut all = Vec::new();
    for columns in columns.chunks(MOST_COLUMNS) {
        let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
        for (number, labels) in labels.chunks(MOST_ROWS).enumerate() {
            if all.len() < MOST_DRAWINGS {
                let svg = draw_grid(answer, &axis, columns, labels);
                all.push(drawing(answer, &names, number, OF_GRID, svg));
            }
        }
    }
    all
}

/// A pair of values in a grid.
struct GridColumn<'a> {
    name: String,
    /// The pairs of cases by the labels of their rows.
    pairs: HashMap<String, &'a ComparedPair>,
}

impl<'a> GridColumn<'a> {
    fn of(pairs: &[&'a ComparedPair]) -> Self {
        let labelled = pairs.iter().map(|pair| (pair.shared.label(), *pair));
        Self {
            name: answers::names(pairs[0]),
            pairs: labelled.collect(),
        }
    }
}

/// The common axis of the intervals of a grid.
struct GridAxis {
    axis: Axis,
    /// The scale of the intervals that are drawn; others are written.
    scale: ContrastScale,
    /// The value that means no difference.
    nothing: f64,
}

impl GridAxis {
    /// Creates the axis of the ratios, or of the differences if there are no ratios; `None` without comparisons.
    fn of(pairs: &[ComparedPair]) -> Option<Self> {
        let all = || pairs.iter().filter_map(|pair| pair.outcome.as_ref().ok());
        all().next()?;
        let (scale, nothing) = if all().any(|one| one.scale == ContrastScale::Ratio) {
            (ContrastScale::Ratio, 1.0)
        } else {
            (ContrastScale::Difference, 0.0)
        };
        let own = all().filter(|contrast| contrast.scale == scale);
        let ends = own.flat_map(|contrast| {
            let [low, high] = reach(contrast).map(|(end, _)| end);
            [low, contrast.estimate, high]
        });
        let values: Vec<f64> = ends
            .filter(|end| end.is_finite())
            .chain([nothing])
            .collect();
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let axis = if scale == ContrastScale::Ratio && greatest > LINEAR * least {
            Axis::log("", values.into_iter())
        } else {
            Axis::linear("", values.into_iter())
        };
        Some(Self {
            axis,
            scale,
            nothing,
        })
    }
}

/// Returns the ends to which an interval is drawn, and whether each is cut off.
fn reach(contrast: &Contrast) -> [(f64, bool); 2] {
    let [low, high] = contrast.interval;
    match contrast.scale {
        ContrastScale::Difference => [(low, false), (high, false)],
        ContrastScale::Ratio => {
            let [least, most] = [contrast.estimate / REACH, contrast.estimate * REACH];
            [(low.max(least), low < least), (high.min(most), high > most)]
        }
    }
}

fn draw_grid(
    answer: &Answer<'_>,
    axis: &GridAxis,
    columns: &[GridColumn<'_>],
    labels: &[String],
) -> String {
    let bottom = LINE + ROW * labels.len() as f64;
    let title = format!("{} {}", answer.question(), OF_GRID);
    let mut svg = open(WIDTH, bottom + 2.0 * LINE, &title, "");
    for (row, label) in labels.iter().enumerate() {
        // Writing to a String cannot fail.
        let _ = write!(
            svg,
            "<text x=\"{GAP}\" y=\"{}\">{}</text>",
            px(LINE + ROW * row as f64 + 12.0),
            escaped(&fitted(label, WIDTH - 2.0 * GAP))
        );
    }
    let wide = (WIDTH - GAP) / columns.len() as f64 - GAP;
    for (at, column) in columns.iter().enumerate() {
        let left = GAP + at as f64 * (wide + GAP);
        let frame = Frame { left, wide, bottom };
        svg += &frame.draw(axis, &column.name);
        for (row, label) in labels.iter().enumerate() {
            let Some(pair) = column.pairs.get(label) else {
                continue;
            };
            let middle = LINE + ROW * row as f64 + 24.0;
            let _ = write!(svg, "<g><title>{}</title>", escaped(&hover(answer, pair)));
            match &pair.outcome {
                Ok(contrast) if contrast.scale == axis.scale => {
                    svg += &frame.interval(axis, contrast, middle);
                }
                Ok(contrast) => svg += &frame.text(&answer.shown(contrast), middle),
                Err(_) => svg += &frame.text("not compared", middle),
            }
            svg.push_str("</g>");
        }
    }
    svg + "</svg>"
}

/// The place of a column in a grid.
struct Frame {
    left: f64,
    wide: f64,
    bottom: f64,
}

impl Frame {
    fn x(&self, axis: &GridAxis, value: f64) -> f64 {
        self.left + axis.axis.place(value) * self.wide
    }

    /// Draws the heading, the line of no difference, and the axis.
    fn draw(&self, axis: &GridAxis, heading: &str) -> String {
        let Self { left, wide, bottom } = *self;
        let nothing = self.x(axis, axis.nothing);
        let mut svg = String::new();
        // Writing to a String cannot fail.
        let _ = write!(
            svg,
            "<text x=\"{middle}\" y=\"11\" text-anchor=\"middle\" font-weight=\"600\">{heading}</text>\
             <path d=\"M{nothing} {LINE}V{bottom}\" stroke=\"currentColor\" stroke-opacity=\".5\"/>\
             <path d=\"M{left} {bottom}h{wide}\" stroke=\"currentColor\" stroke-opacity=\".6\"/>",
            middle = px(left + wide / 2.0),
            heading = escaped(&fitted(heading, wide / BOLD)),
            nothing = px(nothing),
            left = px(left),
            wide = px(wide),
            bottom = px(bottom),
        );
        let mut ticks = axis.axis.ticks();
        // The tick nearest to no difference has its text for certain.
        ticks.sort_by(|(a, _), (b, _)| {
            let distance = |value: &f64| (self.x(axis, *value) - nothing).abs();
            distance(a).total_cmp(&distance(b))
        });
        let mut taken: Vec<[f64; 2]> = Vec::new();
        for (value, text) in ticks {
            let (x, half) = (self.x(axis, value), width(&text) / 2.0);
            // A text stays within its column.
            let at = x.min(left + wide - half).max(left + half);
            let _ = write!(
                svg,
                "<path d=\"M{} {}v4\" stroke=\"currentColor\"/>",
                px(x),
                px(bottom)
            );
            let [low, high] = [at - half - 2.0, at + half + 2.0];
            if taken.iter().all(|[from, to]| high < *from || low > *to) {
                taken.push([low, high]);
                let _ = write!(
                    svg,
                    "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                    px(at),
                    px(bottom + LINE),
                    escaped(&text)
                );
            }
        }
        svg
    }

    /// Draws an interval with its mark.
    fn interval(&self, axis: &GridAxis, contrast: &Contrast, middle: f64) -> String {
        let look = look(contrast.finding());
        let x = |value: f64| self.x(axis, value);
        let [(low, low_is_cut), (high, high_is_cut)] = reach(contrast);
        let end = |at: f64, is_cut: bool, way: f64| {
            if is_cut {
                format!("M{} {}l{} -3v6z", px(at), px(middle), px(-4.0 * way))
            } else {
                format!("M{} {}v8", px(at), px(middle - 4.0))
            }
        };
        let (colour, fill) = match look {
            Some(look) => (look.colour(), look.colour()),
            None => ("currentColor", "none"),
        };
        format!(
            "<path d=\"M{} {}H{}\" stroke=\"{colour}\" stroke-width=\"1.4\"/>\
             <path d=\"{}{}\" stroke=\"{colour}\" stroke-width=\"1.2\" fill=\"{colour}\"/>\
             <path d=\"{}\" stroke=\"{colour}\" stroke-width=\"1.4\" fill=\"{fill}\"/>",
            px(x(low)),
            px(middle),
            px(x(high)),
            end(x(low), low_is_cut, -1.0),
            end(x(high), high_is_cut, 1.0),
            look.unwrap_or(Look(0))
                .mark(x(contrast.estimate), middle, 3.5)
        )
    }

    /// Writes a text in the middle of a cell.
    fn text(&self, text: &str, middle: f64) -> String {
        format!(
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill-opacity=\".75\">{}</text>",
            px(self.left + self.wide / 2.0),
            px(middle + 4.0),
            escaped(&fitted(text, self.wide))
        )
    }
}

/// Returns the look of a finding; `None` if no difference was found.
fn look(finding: Option<Ordering>) -> Option<Look> {
    finding.map(|order| Look(usize::from(order == Ordering::Less)))
}

/// The two fields of a heat map and their values. The first is horizontal.
struct HeatMap {
    fields: [String; 2],
    values: [Vec<String>; 2],
    /// Whether the first field of the map is the second one of the cases.
    is_swapped: bool,
}

impl HeatMap {
    /// Returns the map of pairs whose cases share the values of exactly two fields, each with two values or more.
    fn of(pairs: &[ComparedPair]) -> Option<Self> {
        let places: Vec<_> = pairs
            .iter()
            .map(|pair| match (&pair.shared.case, &pair.shared.values[..]) {
                (None, [first, second]) => Some((first, second)),
                _ => None,
            })
            .collect::<Option<_>>()?;
        let (first, second) = places.first()?;
        let is_alike = places
            .iter()
            .all(|(one, other)| one.field == first.field && other.field == second.field);
        let values = [
            distinct(places.iter().map(|(one, _)| one.value.short.clone())),
            distinct(places.iter().map(|(_, other)| other.value.short.clone())),
        ];
        let is_map = values
            .iter()
            .all(|all| (2..=MOST_STEPS).contains(&all.len()));
        if !is_alike || !is_map {
            return None;
        }
        let fields = [first.field.clone(), second.field.clone()];
        let is_swapped = values[1].len() > values[0].len();
        let ordered = |[one, other]: [Vec<String>; 2]| {
            if is_swapped {
                [other, one]
            } else {
                [one, other]
            }
        };
        let [across, up] = fields;
        Some(Self {
            fields: if is_swapped {
                [up, across]
            } else {
                [across, up]
            },
            values: ordered(values),
            is_swapped,
        })
    }

    /// Returns the pair in a column and a row.
    fn find<'a>(
        &self,
        pairs: &[&'a ComparedPair],
        across: &str,
        up: &str,
    ) -> Option<&'a ComparedPair> {
        let [first, second] = if self.is_swapped {
            [up, across]
        } else {
            [across, up]
        };
        let is_there = |pair: &&&ComparedPair| {
            let shorts = pair
                .shared
                .values
                .iter()
                .map(|value| value.value.short.as_str());
            shorts.eq([first, second])
        };
        pairs.iter().find(is_there).copied()
    }

    fn draw(&self, answer: &Answer<'_>, pairs: &[&ComparedPair]) -> String {
        let [across, up] = &self.values;
        let labels = up.iter().map(|text| width(text));
        let labels = labels.chain([width(&self.fields[1]) * BOLD]);
        let left = labels.fold(0.0, f64::max).min(WIDEST_LABEL) + GAP;
        let wide = (WIDTH - left - GAP) / across.len() as f64;
        let bottom = LINE + CELL * up.len() as f64;
        let title = format!(
            "{} {} {OF_HEAT_MAP}",
            answer.question(),
            answers::names(pairs[0])
        );
        let mut svg = open(WIDTH, bottom + 2.0 * LINE + 6.0, &title, "");
        // Writing to a String cannot fail.
        let _ = write!(
            svg,
            "<text x=\"{}\" y=\"11\" text-anchor=\"end\" font-weight=\"600\">{}</text>\
             <text x=\"{}\" y=\"{}\" text-anchor=\"middle\" font-weight=\"600\">{}</text>",
            px(left - 5.0),
            escaped(&fitted(&self.fields[1], WIDEST_LABEL / BOLD)),
            px(left + wide * across.len() as f64 / 2.0),
            px(bottom + 2.0 * LINE + 2.0),
            escaped(&fitted(&self.fields[0], (WIDTH - left - GAP) / BOLD))
        );
        // Colours of all maps of an answer are comparable.
        let all = answer.comparison.pairs.iter();
        let strongest = all.filter_map(strength).fold(0.0, f64::max);
        for (row, up) in up.iter().enumerate() {
            let top = LINE + CELL * row as f64;
            let _ = write!(
                svg,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
                px(left - 5.0),
                px(top + CELL / 2.0 + 4.0),
                escaped(&fitted(up, WIDEST_LABEL))
            );
            for (column, across) in across.iter().enumerate() {
                if let Some(pair) = self.find(pairs, across, up) {
                    let left = left + wide * column as f64;
                    svg += &draw_cell(answer, pair, [left, top, wide], strongest);
                }
            }
        }
        for (column, across) in across.iter().enumerate() {
            let _ = write!(
                svg,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                px(left + wide * (column as f64 + 0.5)),
                px(bottom + LINE - 2.0),
                escaped(&fitted(across, wide - 2.0))
            );
        }
        svg + "</svg>"
    }
}

/// Returns how strong a difference is that was found, compared with others of the same scale.
fn strength(pair: &ComparedPair) -> Option<f64> {
    let contrast = pair.outcome.as_ref().ok()?;
    contrast.finding()?;
    let strength = match contrast.scale {
        ContrastScale::Ratio => contrast.estimate.ln().abs(),
        ContrastScale::Difference => contrast.estimate.abs(),
    };
    strength.is_finite().then_some(strength)
}

/// Draws a cell of a heat map at this left and top with this width.
fn draw_cell(
    answer: &Answer<'_>,
    pair: &ComparedPair,
    [left, top, wide]: [f64; 3],
    strongest: f64,
) -> String {
    let filled = look(pair.finding()).map(|look| {
        let share = strength(pair).unwrap_or_default() / strongest.max(f64::MIN_POSITIVE);
        format!(
            "fill=\"{}\" fill-opacity=\"{:.2}\"",
            look.colour(),
            0.12 + 0.38 * share
        )
    });
    let fill = filled.unwrap_or_else(|| "fill=\"none\" stroke-dasharray=\"3 3\"".to_owned());
    let mut svg = format!(
        "<g><title>{}</title><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" {fill} stroke=\"currentColor\" stroke-opacity=\".5\"/>",
        escaped(&hover(answer, pair)),
        px(left + 1.0),
        px(top + 1.0),
        px(wide - 2.0),
        px(CELL - 2.0)
    );
    let (estimate, interval) = match &pair.outcome {
        Ok(contrast) => answer.parts(contrast),
        Err(_) => ("–".to_owned(), None),
    };
    let middle = px(left + wide / 2.0);
    if width(&estimate) * BOLD < wide - 4.0 {
        // Writing to a String cannot fail.
        let _ = write!(
            svg,
            "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\" font-weight=\"600\">{}</text>",
            px(top + 19.0),
            escaped(&estimate)
        );
    }
    if let Some(interval) = interval.filter(|text| width(text) * SMALL < wide - 4.0) {
        let _ = write!(
            svg,
            "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\" font-size=\"9.5\">{}</text>",
            px(top + 34.0),
            escaped(&interval)
        );
    }
    svg + "</g>"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::field_comparison::FieldComparison;
    use crate::analysis::sweep_comparison::tests::{compare, sweep};
    use crate::charts::geometry;
    use record::Record;

    fn bbr_doubles([_, _, congestion]: [&str; 3]) -> f64 {
        if congestion == "bbr" { 2.0 } else { 1.0 }
    }

    /// Returns the drawings of the first comparison of a record, in which no text may overlap another.
    fn of(record: &Record) -> Vec<Drawing> {
        let comparisons: Vec<FieldComparison> = compare(record).all;
        let all = drawings(&answers::answers(&comparisons)[0]);
        for one in &all {
            let overlaps = geometry::overlaps(&one.svg);
            assert_eq!(overlaps, Vec::<String>::new(), "{}", one.caption);
        }
        all
    }

    /// A sweep whose cases differ in the delay and the congestion control only.
    fn with_one_other_field(runs: u32) -> Record {
        let mut record = sweep(runs, 0.01, 1, bbr_doubles);
        let name = |name: &str| name.replace("loss=0%, ", "");
        record
            .head
            .plan
            .cases
            .retain(|case| case.name.contains("loss=0%"));
        record.runs.retain(|run| run.case.contains("loss=0%"));
        for case in &mut record.head.plan.cases {
            case.name = name(&case.name);
            case.axes.retain(|(path, _)| path != "link.loss");
        }
        for run in &mut record.runs {
            run.case = name(&run.case);
        }
        record
    }

    #[test]
    fn two_other_fields_are_a_heat_map_of_each_pair_of_values() {
        let all = of(&sweep(5, 0.01, 1, bbr_doubles));
        assert_eq!(all.len(), 3);
        assert_eq!(all[1].caption, "goodput: bbr / cubic");
        let svg = &all[1].svg;
        assert!(
            svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>"),
            "{svg}"
        );
        assert_eq!(svg.matches("<rect").count(), 6);
        // bbr carries more everywhere, and reno does not.
        assert_eq!(svg.matches("fill=\"#0072B2\"").count(), 6, "{svg}");
        assert_eq!(all[0].svg.matches("stroke-dasharray=\"3 3\"").count(), 6);
        for text in [
            ">10 ms<",
            ">1 %<",
            ">delay<",
            ">loss<",
            "10 ms delay, 1 % loss: bbr / cubic ",
        ] {
            assert!(svg.contains(text), "{text} in {svg}");
        }
    }

    #[test]
    fn the_heat_maps_of_an_answer_have_one_scale_of_colours() {
        let all = of(&sweep(5, 0.01, 1, |[.., control]| match control {
            "bbr" => 2.0,
            "reno" => 0.5,
            _ => 1.0,
        }));
        let has_strongest = |one: &&Drawing| one.svg.contains("fill-opacity=\"0.50\"");
        let strongest = all.iter().filter(has_strongest);
        let captions: Vec<&str> = strongest.map(|one| one.caption.as_str()).collect();
        assert_eq!(captions, ["goodput: bbr / reno"]);
    }

    #[test]
    fn one_other_field_is_a_grid_of_intervals_with_a_common_axis() {
        let all = of(&with_one_other_field(5));
        let [grid] = &all[..] else {
            panic!("{} drawings", all.len());
        };
        assert_eq!(
            grid.caption,
            "goodput: reno / cubic, bbr / cubic, bbr / reno"
        );
        let svg = &grid.svg;
        assert!(
            svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>"),
            "{svg}"
        );
        assert_eq!(svg.matches("<title>").count(), 9);
        for text in [
            ">bbr / cubic<",
            ">200 ms delay<",
            ">1<",
            "no difference</title>",
            "higher</title>",
        ] {
            assert!(svg.contains(text), "{text} in {svg}");
        }
        assert_eq!(
            svg.matches(">1<").count(),
            3,
            "each column has the tick of no difference: {svg}"
        );
    }

    #[test]
    fn a_map_has_room_for_the_name_of_any_of_its_fields() {
        for by in ["link.delay", "link.loss", "tcp.congestion"] {
            let mut record = sweep(5, 0.01, 1, bbr_doubles);
            record.head.plan.compare.by = vec![by.to_owned()];
            let all = of(&record);
            assert!(all.iter().all(|one| one.svg.contains("<rect")), "{by}");
            assert!(!all.is_empty(), "{by}");
        }
    }

    #[test]
    fn a_comparison_without_an_interval_has_no_grid() {
        assert!(of(&with_one_other_field(3)).is_empty());
    }

    #[test]
    fn many_pairs_of_values_are_several_grids() {
        let mut record = with_one_other_field(5);
        record.head.plan.compare.by = vec!["link.delay".to_owned()];
        assert_eq!(of(&record).len(), 1);
        let (cases, runs) = (record.head.plan.cases.clone(), record.runs.clone());
        for delay in ["400ms", "800ms"] {
            let name = |name: &str| name.replace("delay=10ms", &format!("delay={delay}"));
            for mut case in cases.iter().cloned() {
                if case.name.contains("delay=10ms") {
                    case.name = name(&case.name);
                    case.axes[0].1 = delay.to_owned();
                    record.head.plan.cases.push(case);
                }
            }
            for mut run in runs.iter().cloned() {
                if run.case.contains("delay=10ms") {
                    run.case = name(&run.case);
                    record.runs.push(run);
                }
            }
        }
        // Five delays have ten pairs of values, three in each drawing.
        let all = of(&record);
        assert_eq!(all.len(), 4);
        let mut names: Vec<&str> = all.iter().map(|one| one.file.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 4);
    }
}
