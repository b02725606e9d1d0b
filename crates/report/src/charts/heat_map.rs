//! The chart "How do two conditions act together?": a map of every main figure over the fields that sweeps set.

use std::fmt::Write;

use super::axis::short;
use super::message_sizes::{Unit, point};
use super::plot::open;
use super::svg::{BOLD, LINE, escaped, fitted, px, text_lines, width, wrapped_to};
use super::swept_axes::SweptAxis;
use super::{ChartQuestion, Drawing, file_name};
use crate::analysis::{Analysis, CaseFigures};
use crate::case_labels::CaseLabels;
use crate::{figure_tables, meaning};
use record::figure_name::FigureName;
use record::plan::Case;
use record::quantity::scale_for;

const WIDTH: f64 = 440.0;
const MARGIN: f64 = 8.0;
/// Least and greatest width of the column of labels.
const LABELS: [f64; 2] = [56.0, 150.0];
/// Greatest width of a cell, and height of a row with one line.
const CELL: f64 = 96.0;
const ROW: f64 = 26.0;
/// Greatest number of lines of a label.
const MOST_LINES: usize = 4;
/// Greatest number of columns, so that a value fits into a cell, and of rows in one drawing.
const MOST_COLUMNS: usize = 8;
const MOST_ROWS: usize = 40;
/// Greatest number of drawings of a figure.
const MOST_PARTS: usize = 4;
/// Fewest cells with values.
const FEWEST_CELLS: usize = 4;
/// Values that are above 0 and span more than this factor have colours in proportion to their logarithms.
const LOGARITHMIC_FROM: f64 = 20.0;
/// The colours of the least value, one in the middle, and the greatest. Each is darker than the one before, so that they
/// differ without colour, on paper and in both themes.
const COLOURS: [[f64; 3]; 3] = [
    [237.0, 244.0, 250.0],
    [90.0, 164.0, 214.0],
    [8.0, 49.0, 92.0],
];
/// The share of the scale from which a cell is so dark that its text is white.
const DARK_FROM: f64 = 0.69;

/// The cases of a sweep in rows and columns.
struct Grid<'a> {
    columns: SweptAxis<'a>,
    /// The names of the fields in the labels of the rows.
    row_title: String,
    rows: Vec<GridRow<'a>>,
}

/// The cases that differ only in the field of the columns.
struct GridRow<'a> {
    label: String,
    /// The case of each column, if there is one.
    cases: Vec<Option<&'a CaseFigures<'a>>>,
}

/// Returns the chart of the main figures over two axes of the sweeps or more.
pub(super) fn question(analysis: &Analysis<'_>) -> ChartQuestion {
    let labels = CaseLabels::of_all(analysis.record.plan());
    let mut drawings = Vec::new();
    if let Some(grid) = Grid::of(analysis, &labels) {
        let tables = figure_tables::tables(analysis);
        let names = tables.iter().flat_map(figure_tables::FigureTable::names);
        let names = names.filter(|name| name.size.is_none());
        drawings.extend(names.flat_map(|name| grid.drawings(&name, &labels)));
    }
    ChartQuestion {
        heading: "Maps of the swept conditions",
        note: format!(
            "Means over the runs; a darker cell has a greater value. A dash marks a combination without a valid run. Point at a \
             cell to see its interval. At most {} rows are drawn.",
            MOST_ROWS * MOST_PARTS
        ),
        drawings,
    }
}

impl<'a> Grid<'a> {
    /// Arranges the cases of sweeps over two axes or more; `None` for fewer, and if no axis is short enough for the
    /// columns.
    fn of(analysis: &'a Analysis<'a>, labels: &CaseLabels<'_>) -> Option<Self> {
        let cases: Vec<&Case> = analysis.cases.iter().map(|figures| figures.case).collect();
        let mut axes = SweptAxis::all(analysis.record.plan(), &cases);
        if axes.len() < 2 {
            return None;
        }
        let suits = |axis: &SweptAxis<'_>| (2..=MOST_COLUMNS).contains(&axis.steps.len());
        let rank = |at: &usize| {
            let axis = &axes[*at];
            // Of equal axes, the first is preferred.
            (axis.is_ordered(), axis.steps.len(), std::cmp::Reverse(*at))
        };
        let best = (0..axes.len())
            .filter(|at| suits(&axes[*at]))
            .max_by_key(rank)?;
        let columns = axes.swap_remove(best);
        let others = labels.without(&columns.fields());
        let mut rows: Vec<GridRow<'a>> = Vec::new();
        for figures in &analysis.cases {
            let text = figures.case.swept_value(columns.field.path);
            let column = columns
                .steps
                .iter()
                .position(|step| Some(step.text.as_str()) == text);
            let Some(column) = column else {
                continue;
            };
            let label = others.texts(figures.case).join(", ");
            let at = rows.iter().position(|row| row.label == label);
            let at = at.unwrap_or_else(|| {
                let cases = vec![None; columns.steps.len()];
                rows.push(GridRow { label, cases });
                rows.len() - 1
            });
            rows[at].cases[column] = Some(figures);
        }
        let row_title = others.titles().join(", ");
        (rows.len() > 1).then_some(Self {
            columns,
            row_title,
            rows,
        })
    }

    /// Draws one figure, unless it has only a few values or all are equal.
    fn drawings(&self, name: &FigureName, labels: &CaseLabels<'_>) -> Vec<Drawing> {
        let values: Vec<f64> = self
            .cases()
            .filter_map(|case| Some(case.figures.get(name)?.value()))
            .collect();
        let differ = values.iter().any(|value| *value != values[0]);
        if values.len() < FEWEST_CELLS || !differ {
            return Vec::new();
        }
        let greatest = values.iter().map(|value| value.abs()).fold(0.0, f64::max);
        let unit = scale_for(name.metric, greatest);
        let scale = ColourScale::of(values.iter().map(|value| value / unit.0));
        let column = figure_tables::ValueColumn::of(name).title();
        let by = format!("{} and {}", self.columns.names(), self.row_title);
        let drawing = |(part, rows): (usize, &[GridRow<'a>])| {
            let [file, more] = super::part(part);
            Drawing {
                file: file_name(&["map", self.columns.field.path, &name.to_string()]) + &file,
                svg: self.draw(rows, name, (unit, &scale), labels),
                caption: format!("{}: {column} by {by}", name.instrument) + &more,
                below: String::new(),
                about: meaning::of(name.metric, name.statistic, name.direction, name.phase),
            }
        };
        let chunks = self.rows.chunks(MOST_ROWS).enumerate();
        chunks.take(MOST_PARTS).map(drawing).collect()
    }

    fn cases(&self) -> impl Iterator<Item = &'a CaseFigures<'a>> {
        let rows = self.rows.iter();
        rows.flat_map(|row| row.cases.iter().flatten().copied())
    }

    fn draw(
        &self,
        rows: &[GridRow<'_>],
        name: &FigureName,
        (unit, scale): (Unit, &ColourScale),
        labels: &CaseLabels<'_>,
    ) -> String {
        let texts = rows.iter().map(|row| width(&row.label));
        let widest = texts.fold(0.0, f64::max);
        let label_width = widest.clamp(LABELS[0], LABELS[1]);
        let left = MARGIN + label_width + 8.0;
        let count = self.columns.steps.len() as f64;
        let cell = ((WIDTH - MARGIN - left) / count).min(CELL);
        let mut svg = String::new();
        let top = self.draw_header(&mut svg, (left, cell), label_width);
        let values = self
            .cases()
            .filter_map(|case| Some(case.figures.get(name)?.value() / unit.0));
        let has_texts = values
            .map(|value| width(&three_digits(value)))
            .all(|wide| wide <= cell - 4.0);
        let mut y = top;
        for row in rows {
            let label = wrapped_to(&row.label, label_width, MOST_LINES);
            let height = ROW.max(label.len() as f64 * LINE + 8.0);
            let first = y + (height - (label.len() - 1) as f64 * LINE) / 2.0 + 4.0;
            svg += &text_lines(&label, MARGIN, first, "");
            let cells = row.cases.iter().enumerate();
            for (column, case) in cells {
                let place = [left + column as f64 * cell, y, cell - 2.0, height - 2.0];
                let across = case.and_then(|case| Some((case, case.figures.get(name)?)));
                let Some((case, across)) = across else {
                    svg += &empty_cell(place);
                    continue;
                };
                let hover = point(unit, 0.0, across, &labels.words(case.case)).hover;
                let value = across.value() / unit.0;
                let text = three_digits(value);
                let text = has_texts.then_some(text.as_str());
                svg += &filled_cell(place, scale.share(value), &hover, text);
            }
            y += height;
        }
        svg += &scale.draw([left, y + 12.0], unit.1);
        let title = format!(
            "{} of {} by {} and {}",
            figure_tables::ValueColumn::of(name).title(),
            name.instrument,
            self.columns.names(),
            self.row_title
        );
        open(WIDTH, y + 48.0, &title, "") + &svg + "</svg>"
    }

    /// Draws the names of the fields and the values of the columns, and returns where the rows begin.
    fn draw_header(&self, svg: &mut String, (left, cell): (f64, f64), label_width: f64) -> f64 {
        const BOLD_TEXT: &str = " font-weight=\"600\"";
        let title = fitted(&self.columns.title(), (WIDTH - MARGIN - left) / BOLD);
        *svg += &text_lines(&[title], left, 12.0, BOLD_TEXT);
        let names = wrapped_to(&self.row_title, label_width / BOLD, MOST_LINES);
        let texts = self.columns.steps.iter();
        let texts: Vec<Vec<String>> = texts
            .map(|step| wrapped_to(&step.text, cell - 4.0, MOST_LINES))
            .collect();
        let lines = texts.iter().map(Vec::len).max().unwrap_or(1);
        let lines = lines.max(names.len());
        let last = 28.0 + (lines - 1) as f64 * LINE;
        let first = |count: usize| last - (count - 1) as f64 * LINE;
        *svg += &text_lines(&names, MARGIN, first(names.len()), BOLD_TEXT);
        for (column, text) in texts.iter().enumerate() {
            let middle = left + (column as f64 + 0.5) * cell - 1.0;
            let y = first(text.len());
            *svg += &text_lines(text, middle, y, " text-anchor=\"middle\"");
        }
        last + 8.0
    }
}

/// Draws a cell without a value.
fn empty_cell([x, y, wide, tall]: [f64; 4]) -> String {
    let (middle, baseline) = (x + wide / 2.0, y + tall / 2.0 + 4.0);
    let dash = text_lines(
        &["–".to_owned()],
        middle,
        baseline,
        " text-anchor=\"middle\"",
    );
    format!(
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"currentColor\" stroke-opacity=\".35\" \
         stroke-dasharray=\"2 3\"/>{dash}",
        px(x + 0.5),
        px(y + 0.5),
        px(wide - 1.0),
        px(tall - 1.0)
    )
}

/// Draws a cell whose value is at this share of the scale.
fn filled_cell(
    [x, y, wide, tall]: [f64; 4],
    share: f64,
    hover: &str,
    text: Option<&str>,
) -> String {
    let mut svg = format!(
        "<g><title>{}</title><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>",
        escaped(hover),
        px(x),
        px(y),
        px(wide),
        px(tall),
        colour(share)
    );
    if let Some(text) = text {
        let ink = if share >= DARK_FROM { "#fff" } else { "#000" };
        // Writing to a String cannot fail.
        let _ = write!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"{ink}\">{}</text>",
            px(x + wide / 2.0),
            px(y + tall / 2.0 + 4.0),
            escaped(text)
        );
    }
    svg + "</g>"
}

/// The values of the lightest and of the darkest colour.
struct ColourScale {
    low: f64,
    high: f64,
    is_log: bool,
}

impl ColourScale {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |ends, value| {
            (ends.0.min(value), ends.1.max(value))
        });
        Self {
            low,
            high,
            is_log: low > 0.0 && high / low > LOGARITHMIC_FROM,
        }
    }

    /// Returns the share of the scale at a value: 0 for the least, 1 for the greatest.
    fn share(&self, value: f64) -> f64 {
        let place = |value: f64| if self.is_log { value.ln() } else { value };
        let [low, high, value] = [self.low, self.high, value].map(place);
        ((value - low) / (high - low)).clamp(0.0, 1.0)
    }

    /// Draws the scale with its ends and the unit.
    fn draw(&self, [x, y]: [f64; 2], unit: &str) -> String {
        const STEPS: u32 = 32;
        const WIDE: f64 = 5.0;
        let mut svg = String::new();
        for step in 0..STEPS {
            let share = f64::from(step) / f64::from(STEPS - 1);
            // Writing to a String cannot fail.
            let _ = write!(
                svg,
                "<rect x=\"{}\" y=\"{}\" width=\"{WIDE}\" height=\"10\" fill=\"{}\"/>",
                px(x + f64::from(step) * WIDE),
                px(y),
                colour(share)
            );
        }
        let end = x + f64::from(STEPS) * WIDE;
        let kind = if self.is_log { "logarithmic" } else { "" };
        let words: Vec<&str> = [unit, kind]
            .into_iter()
            .filter(|word| !word.is_empty())
            .collect();
        let words = fitted(&words.join(", "), WIDTH - end - 8.0);
        svg += &text_lines(&[three_digits(self.low)], x, y + 23.0, "");
        svg += &text_lines(
            &[three_digits(self.high)],
            end,
            y + 23.0,
            " text-anchor=\"end\"",
        );
        svg + &text_lines(&[words], end + 6.0, y + 9.0, "")
    }
}

/// Returns the colour at a share of the scale.
fn colour(share: f64) -> String {
    let [light, middle, dark] = COLOURS;
    let (from, to, part) = if share < 0.5 {
        (light, middle, share * 2.0)
    } else {
        (middle, dark, share * 2.0 - 1.0)
    };
    let channel = |at: usize| {
        let value = from[at] + (to[at] - from[at]) * part;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and 255"
        )]
        let byte = value.round().clamp(0.0, 255.0) as u8;
        byte
    };
    format!("#{:02x}{:02x}{:02x}", channel(0), channel(1), channel(2))
}

/// Formats a value to three significant digits in few characters: "18.9", "0.0123", "12.3k".
fn three_digits(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let power = 10_f64.powf(2.0 - value.abs().log10().floor());
    short((value * power).round() / power)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case_labels::tests::swept;
    use crate::charts::geometry;
    use record::Record;

    /// A sweep of two fields whose round trips are 1, 2, 3 and so on.
    fn grid() -> Record {
        let mut axes = Vec::new();
        for congestion in ["bbr", "cubic"] {
            for delay in ["1ms", "10ms", "100ms"] {
                axes.push([("tcp.congestion", congestion), ("link.delay", delay)]);
            }
        }
        let slices: Vec<&[(&str, &str)]> = axes.iter().map(<[_; 2]>::as_slice).collect();
        let mut record = swept(&slices);
        for (run, value) in record.runs.iter_mut().zip(1..) {
            run.measurements[0].measurement.figures[0].value = f64::from(value);
        }
        record
    }

    #[test]
    fn every_combination_is_a_cell_with_its_value() {
        let record = grid();
        let analysis = Analysis::of(&record);
        let drawings = question(&analysis).drawings;
        // The losses and the goodputs are all equal.
        assert_eq!(drawings.len(), 1);
        let drawing = &drawings[0];
        assert_eq!(drawing.caption, "ping: rtt median by delay and congestion");
        for value in 1..=6 {
            assert!(
                drawing.svg.contains(&format!(">{value}</text>")),
                "{}",
                drawing.svg
            );
        }
        assert!(
            drawing.svg.contains("congestion bbr, delay 10ms: 2.000 ms"),
            "{}",
            drawing.svg
        );
        assert_eq!(geometry::overlaps(&drawing.svg), Vec::<String>::new());
    }

    #[test]
    fn a_combination_without_a_run_is_a_dash() {
        let mut record = grid();
        record.runs.remove(4);
        let analysis = Analysis::of(&record);
        let svg = &question(&analysis).drawings[0].svg;
        assert_eq!(svg.matches(">–</text>").count(), 1, "{svg}");
    }

    #[test]
    fn a_sweep_of_one_field_has_no_map() {
        let record = swept(&[&[("link.delay", "1ms")], &[("link.delay", "2ms")]]);
        assert!(question(&Analysis::of(&record)).drawings.is_empty());
    }

    #[test]
    fn colours_darken_with_the_value() {
        let lightness = |share: f64| {
            let text = colour(share);
            let channels = [1..3, 3..5, 5..7].map(|at| u32::from_str_radix(&text[at], 16).unwrap());
            channels.into_iter().sum::<u32>()
        };
        let steps: Vec<u32> = (0..=10)
            .map(|step| lightness(f64::from(step) / 10.0))
            .collect();
        assert!(steps.windows(2).all(|pair| pair[0] > pair[1]), "{steps:?}");
    }

    #[test]
    fn values_have_three_digits() {
        for (value, text) in [
            (18.848, "18.8"),
            (0.012_345, "0.0123"),
            (943.51, "944"),
            (12_345.0, "12.3k"),
            (0.0, "0"),
            (-2.5, "-2.5"),
        ] {
            assert_eq!(three_digits(value), text);
        }
    }
}
