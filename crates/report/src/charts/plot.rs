//! A drawing with two axes, curves, marks with error bars, and a legend below.

use std::fmt::Write;

use super::axis::Axis;
use super::svg::{
    BOLD, LINE, Look, escaped, fitted, points, px, shortened, text_lines, width, wrapped_to,
};

/// Width in pixels: that of a phone, so that the text is legible there, and two or three drawings fit side by side on a
/// desktop screen.
const WIDTH: f64 = 440.0;
const TOP: f64 = 10.0;
const RIGHT: f64 = 14.0;
const LEFT: f64 = 56.0;
/// Space below the frame for the texts of ticks and axis.
const BOTTOM: f64 = 40.0;
/// Space between frames that share a horizontal axis.
const GAP: f64 = 18.0;
const LEGEND_LINE: f64 = 18.0;
/// Width of the mark before a label, including the space behind it.
const KEY: f64 = 30.0;
/// The attribute of a text that is centred.
const MIDDLE: &str = " text-anchor=\"middle\"";
/// Greatest number of lines of a label in the legend, and of a name below an axis.
const MOST_LINES: usize = 3;
/// Distance of a caption from the left edge, and the most lines of it and of the explanation below it.
const CAPTION_LEFT: f64 = 8.0;
const MOST_CAPTION_LINES: usize = 6;
/// A line joins neighbouring marks on a logarithmic axis only if their values differ by less than this factor, because
/// nothing is known about what lies between values that are further apart.
const JOINED_WITHIN: f64 = 10.0;

/// A frame with its axes and curves.
pub struct Plot {
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// Height of the frame in pixels.
    pub height: f64,
    /// The curves; later ones are drawn over earlier ones.
    pub curves: Vec<Curve>,
}

/// A series of points.
#[derive(Default)]
pub struct Curve {
    /// Label in the legend. A curve without one is a variant of another that has it.
    pub label: Option<String>,
    /// Number of the colour, dashes and mark; 4 is black.
    pub look: usize,
    /// The points in the order in which a line joins them.
    pub points: Vec<Point>,
    /// The kind of line or marks.
    pub shape: Shape,
    /// Whether the curve is pale.
    pub faint: bool,
}

impl Curve {
    /// Creates a curve that is not pale.
    pub(super) fn new(
        label: Option<String>,
        look: usize,
        shape: Shape,
        points: Vec<Point>,
    ) -> Self {
        Self {
            label,
            look,
            points,
            shape,
            faint: false,
        }
    }
}

/// The kind of line or marks of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// A line with the dashes of its look.
    #[default]
    Line,
    /// A thin line of many points, dashed by its number in the frame; the first is solid.
    Trace(usize),
    /// A thin, solid line with marks.
    Marked,
    /// Marks without a line, for categories and for points in no order.
    Points,
    /// Hollow marks without a line, for published values.
    Hollow,
    /// A dashed line for a published or computed level.
    Level,
    /// A solid line with the area below it, for a histogram.
    Area,
}

/// A point of a series.
#[derive(Clone, Debug, Default)]
pub struct Point {
    /// Horizontal value.
    pub x: f64,
    /// Vertical value.
    pub y: f64,
    /// The ends of an error bar.
    pub interval: Option<[f64; 2]>,
    /// Text that is shown when a pointer is over the mark.
    pub hover: String,
}

impl Point {
    /// Creates a point without an interval or a text.
    pub fn at(x: f64, y: f64) -> Self {
        Self {
            x,
            y,
            ..Self::default()
        }
    }

    /// Returns the values that the axis must include: the value itself and those ends of the interval that are above 0.
    pub(super) fn reach(&self) -> impl Iterator<Item = f64> {
        let ends = self.interval.into_iter().flatten();
        ends.filter(|end| *end > 0.0).chain([self.y])
    }
}

/// Draws frames above one another with a common horizontal axis, which the last frame shows, and one legend. `title` is
/// the text for screen readers.
pub fn stack(plots: &[Plot], title: &str) -> String {
    let legend = legend(plots.iter().flat_map(|plot| &plot.curves));
    let frames: f64 = plots.iter().map(|plot| plot.height).sum();
    let gaps = plots.len().saturating_sub(1) as f64 * GAP;
    let below = TOP + frames + gaps + plots.last().map_or(BOTTOM, Plot::bottom);
    // The drawing can be focused, so that arrow keys move along the points without a pointer.
    let mut svg = open(WIDTH, below + legend.height, title, " tabindex=\"0\"");
    let mut top = 0.0;
    for (at, plot) in plots.iter().enumerate() {
        plot.draw_frame(&mut svg, top, at + 1 == plots.len());
        top += plot.height + GAP;
    }
    // Writing to a String cannot fail.
    let _ = write!(
        svg,
        "<g transform=\"translate(0 {})\">{}</g></svg>",
        px(below + 6.0),
        legend.svg
    );
    svg
}

impl Plot {
    /// Draws the plot as SVG that is self-contained and can be part of a page. `title` is the text for screen readers.
    pub fn draw(self, title: &str) -> String {
        stack(&[self], title)
    }

    /// Draws the frame and its contents at this distance from the top, with the horizontal axis' text if it is the last
    /// frame.
    fn draw_frame(&self, svg: &mut String, top: f64, last: bool) {
        let frame = [LEFT, TOP, WIDTH - LEFT - RIGHT, self.height]
            .map(px)
            .join(" ");
        // Writing to a String cannot fail.
        let _ = write!(
            svg,
            "<g class=\"plot\" transform=\"translate(0 {})\" data-frame=\"{frame}\" data-x=\"{}\" data-y=\"{}\" data-across=\"{}\" data-up=\"{}\">",
            px(top),
            self.x.data(),
            self.y.data(),
            escaped(self.x.unit()),
            escaped(self.y.unit())
        );
        self.draw_axes(svg, last);
        for faint in [true, false] {
            for curve in self.curves.iter().filter(|curve| curve.faint == faint) {
                self.draw_curve(svg, curve);
            }
        }
        svg.push_str("</g>");
    }

    /// Returns the space below the frame for the texts of ticks and axis.
    fn bottom(&self) -> f64 {
        let rows = self.x.rows().len() + self.name_lines().saturating_sub(1);
        BOTTOM + rows as f64 * LINE
    }

    /// Returns the number of lines of the longest name below the axis; 1 for an axis of numbers.
    fn name_lines(&self) -> usize {
        let Some(width) = self.name_width() else {
            return 1;
        };
        let ticks = self.x.ticks().into_iter();
        let lines = ticks.map(|(_, name)| wrapped_to(&name, width, MOST_LINES).len());
        lines.max().unwrap_or(1)
    }

    /// Returns the width that is there for each name on an axis of names.
    fn name_width(&self) -> Option<f64> {
        let count = self.x.names_count()?;
        Some((WIDTH - LEFT - RIGHT) / count.max(1) as f64 - 5.0)
    }

    fn left(&self, x: f64) -> f64 {
        LEFT + self.x.place(x) * (WIDTH - LEFT - RIGHT)
    }

    fn top(&self, y: f64) -> f64 {
        TOP + (1.0 - self.y.place(y)) * self.height
    }

    fn draw_axes(&self, svg: &mut String, last: bool) {
        let (right, bottom) = (WIDTH - RIGHT, TOP + self.height);
        let grid = "stroke=\"currentColor\" stroke-opacity=\".16\"";
        let mut free = f64::INFINITY;
        for (value, text) in self.y.ticks() {
            let y = self.top(value);
            let _ = write!(svg, "<path d=\"M{LEFT} {0}H{right}\" {grid}/>", px(y));
            // A low frame shows only every second text, so that they do not overlap.
            if y > free {
                continue;
            }
            free = y - 13.0;
            let _ = write!(
                svg,
                "<text x=\"{0}\" y=\"{1}\" text-anchor=\"end\">{2}</text>",
                LEFT - 5.0,
                px(y + 4.0),
                escaped(&text)
            );
        }
        let mut free = f64::NEG_INFINITY;
        let name_width = self.name_width();
        for (value, text) in self.x.ticks() {
            let x = self.left(value);
            let _ = write!(
                svg,
                "<path d=\"M{} {bottom}v4\" stroke=\"currentColor\"/>",
                px(x)
            );
            if !last {
                continue;
            }
            if let Some(most) = name_width {
                let lines = wrapped_to(&text, most, MOST_LINES);
                svg.push_str(&text_lines(&lines, x, bottom + 16.0, MIDDLE));
                continue;
            }
            let text = shortened(&text, 14);
            let half = width(&text) / 2.0;
            // Texts are left out where they would overlap.
            if x - half > free {
                let at = px(x.min(WIDTH - half));
                let _ = write!(
                    svg,
                    "<text x=\"{at}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                    bottom + 16.0,
                    escaped(&text)
                );
                free = x + half + 4.0;
            }
        }
        if last {
            self.draw_rows(svg, bottom + 16.0 + self.name_lines() as f64 * LINE);
        }
        let _ = write!(
            svg,
            "<path d=\"M{LEFT} {TOP}V{bottom}H{right}\" fill=\"none\" stroke=\"currentColor\" stroke-opacity=\".6\"/>\
             <text transform=\"translate(12 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            px(TOP + self.height / 2.0),
            escaped(&fitted(&self.y.title, self.height + GAP))
        );
        if last {
            let _ = write!(
                svg,
                "<text class=\"across\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                px((LEFT + right) / 2.0),
                px(bottom + self.bottom() - BOTTOM + 33.0),
                escaped(&fitted(&self.x.full_title(), right - LEFT))
            );
        }
    }

    /// Draws the rows of texts below the ticks, the first of which has its baseline at `y`. Texts are left out where
    /// they would overlap.
    fn draw_rows(&self, svg: &mut String, y: f64) {
        for (row, line) in self.x.rows().iter().zip(0..) {
            let y = y + f64::from(line) * LINE;
            let mut free = f64::NEG_INFINITY;
            for (value, text) in &row.ticks {
                let most = self.name_width().unwrap_or(f64::INFINITY);
                let text = fitted(text, most);
                let (x, half) = (self.left(*value), width(&text) / 2.0);
                if x - half > free {
                    let x = x.min(WIDTH - half);
                    svg.push_str(&text_lines(&[text], x, y, MIDDLE));
                    free = x + half + 4.0;
                }
            }
        }
    }

    /// Returns the sideways shift of a series, which separates the error bars of several series at the same value.
    fn dodge(&self, curve: &Curve) -> f64 {
        let marked = || {
            let is_marked = |curve: &&Curve| matches!(curve.shape, Shape::Marked | Shape::Points);
            self.curves.iter().filter(is_marked)
        };
        let barred =
            marked().any(|curve| curve.points.iter().any(|point| point.interval.is_some()));
        let most = marked().map(|curve| curve.look).max().unwrap_or(0) as f64;
        let step = (6.0 / most.max(1.0)).min(2.5);
        if barred {
            (curve.look as f64 - most / 2.0) * step
        } else {
            0.0
        }
    }

    fn draw_curve(&self, svg: &mut String, curve: &Curve) {
        let look = Look(curve.look);
        let dodge = self.dodge(curve);
        let label = curve.label.as_deref().unwrap_or_default();
        let opacity = if curve.faint { " opacity=\".35\"" } else { "" };
        let _ = write!(
            svg,
            "<g data-label=\"{}\" stroke=\"{}\"{opacity}>",
            escaped(label),
            look.colour()
        );
        let places = || {
            curve
                .points
                .iter()
                .map(|point| (self.left(point.x) + dodge, self.top(point.y)))
        };
        if let (Shape::Area, Some(first), Some(last)) =
            (curve.shape, curve.points.first(), curve.points.last())
        {
            let bottom = TOP + self.height;
            let ends = [last, first].map(|point| (self.left(point.x), bottom));
            let _ = write!(
                svg,
                "<polygon points=\"{}\" fill=\"{}\" fill-opacity=\".25\" stroke=\"none\"/>",
                points(places().chain(ends)),
                look.colour()
            );
        }
        if !matches!(curve.shape, Shape::Hollow | Shape::Points) && curve.points.len() > 1 {
            let (wide, dash) = match curve.shape {
                Shape::Line => (if curve.faint { 1.0 } else { 1.8 }, look.dash()),
                Shape::Trace(nth) => (if curve.faint { 0.9 } else { 1.5 }, Look(nth).dash()),
                Shape::Level => (1.6, "5 4"),
                Shape::Area => (1.0, ""),
                Shape::Marked | Shape::Points | Shape::Hollow => (1.4, ""),
            };
            let dashed = if dash.is_empty() {
                String::new()
            } else {
                format!(" stroke-dasharray=\"{dash}\"")
            };
            let mut places = places();
            for part in curve.points.chunk_by(|a, b| self.joins(curve, a, b)) {
                let places = places.by_ref().take(part.len());
                let _ = write!(
                    svg,
                    "<polyline points=\"{}\" fill=\"none\" stroke-width=\"{wide}\" stroke-linejoin=\"round\"{dashed}/>",
                    points(places)
                );
            }
        }
        let line = matches!(curve.shape, Shape::Line | Shape::Trace(_));
        let lonely = line && curve.points.len() == 1;
        if lonely || matches!(curve.shape, Shape::Marked | Shape::Points | Shape::Hollow) {
            for point in &curve.points {
                self.draw_mark(svg, curve, dodge, point);
            }
        }
        svg.push_str("</g>");
    }

    /// Returns whether a line joins two neighbouring points of a curve.
    fn joins(&self, curve: &Curve, a: &Point, b: &Point) -> bool {
        let is_far = self.x.is_log() && a.x.max(b.x) >= JOINED_WITHIN * a.x.min(b.x);
        curve.shape != Shape::Marked || !is_far
    }

    fn draw_mark(&self, svg: &mut String, curve: &Curve, dodge: f64, point: &Point) {
        let (look, shape) = (Look(curve.look), curve.shape);
        let (x, y) = (self.left(point.x) + dodge, self.top(point.y));
        let _ = write!(svg, "<g><title>{}</title>", escaped(&point.hover));
        if let Some([low, high]) = point.interval {
            let (x, low, high) = (px(x), px(self.top(low)), px(self.top(high)));
            let _ = write!(
                svg,
                "<path d=\"M{x} {low}V{high}m-3 0h6M{x} {low}m-3 0h6\" stroke-width=\"1.2\"/>"
            );
        }
        let fill = match shape {
            Shape::Hollow => "none",
            _ => look.colour(),
        };
        // An invisible disc enlarges the target for a pointer or a finger.
        let _ = write!(
            svg,
            "<circle cx=\"{}\" cy=\"{}\" r=\"8\" fill=\"transparent\" stroke=\"none\"/><path d=\"{}\" fill=\"{fill}\" stroke-width=\"1.4\"/></g>",
            px(x),
            px(y),
            look.mark(x, y, if shape == Shape::Hollow { 4.5 } else { 3.0 })
        );
    }
}

/// Lays out the legend in lines as wide as the drawing.
fn legend<'a>(curves: impl Iterator<Item = &'a Curve>) -> Legend {
    let mut legend = Legend::default();
    let (mut x, mut line) = (8.0, 0.0);
    let mut known: Vec<&String> = Vec::new();
    for curve in curves.filter(|curve| !curve.faint) {
        // A curve that occurs in several frames is named once.
        let Some(label) = curve.label.as_ref().filter(|label| !known.contains(label)) else {
            continue;
        };
        known.push(label);
        let texts = wrapped_to(label, WIDTH - KEY - 16.0, MOST_LINES);
        let widths = texts.iter().map(|text| width(text));
        let wide = KEY + widths.fold(0.0, f64::max) + 14.0;
        if x > 8.0 && x + wide > WIDTH {
            (x, line) = (8.0, line + 1.0);
        }
        let y = line * LEGEND_LINE;
        legend.svg += &key(curve, x, y);
        legend.svg += &text_lines(&texts, x + KEY, y + 4.0, "");
        // The next label begins below the last line of a long one.
        let more = (texts.len() - 1) as f64 * LINE / LEGEND_LINE;
        x = if more > 0.0 { WIDTH } else { x + wide };
        line += more;
        legend.height = (line + 1.0) * LEGEND_LINE + 4.0;
    }
    legend
}

#[derive(Default)]
struct Legend {
    svg: String,
    height: f64,
}

/// Draws the key before a label.
fn key(curve: &Curve, x: f64, y: f64) -> String {
    let look = Look(curve.look);
    let dash = match curve.shape {
        Shape::Line => look.dash(),
        Shape::Trace(nth) => Look(nth).dash(),
        Shape::Level => "5 4",
        Shape::Marked | Shape::Points | Shape::Hollow | Shape::Area => "",
    };
    let mut key = format!("<g stroke=\"{}\">", look.colour());
    if !matches!(curve.shape, Shape::Hollow | Shape::Points) {
        let _ = write!(
            key,
            "<path d=\"M{} {}h24\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"/>",
            px(x),
            px(y)
        );
    }
    if curve.shape == Shape::Area {
        let _ = write!(
            key,
            "<path d=\"M{} {}h24v6h-24z\" fill=\"{}\" fill-opacity=\".25\" stroke=\"none\"/>",
            px(x),
            px(y),
            look.colour()
        );
    }
    if matches!(curve.shape, Shape::Marked | Shape::Points | Shape::Hollow) {
        let fill = if curve.shape == Shape::Hollow {
            "none"
        } else {
            look.colour()
        };
        let _ = write!(
            key,
            "<path d=\"{}\" fill=\"{fill}\"/>",
            look.mark(x + 12.0, y, 3.5)
        );
    }
    key + "</g>"
}

/// Returns the opening of an SVG drawing of this size, with further attributes.
pub(super) fn open(width: f64, height: f64, title: &str, more: &str) -> String {
    let title = escaped(title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\"{more} role=\"img\" aria-label=\"{title}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"11.5\" fill=\"currentColor\">",
        width = px(width),
        height = px(height)
    )
}

/// Returns a drawing, which begins as [`open`] writes it, with a bold caption and an explanation above it. The explanation may
/// be empty.
pub(super) fn captioned(svg: &str, caption: &str, below: &str) -> String {
    let parts = || {
        let (head, rest) = svg.split_once("viewBox=\"0 0 ")?;
        let (size, rest) = rest.split_once('"')?;
        let (wide, high) = size.split_once(' ')?;
        let size = (wide.parse::<f64>().ok()?, high.parse::<f64>().ok()?);
        let (attributes, content) = rest.split_once('>')?;
        Some((head, size, attributes, content))
    };
    let Some((head, (wide, high), attributes, content)) = parts() else {
        return svg.to_owned();
    };
    let room = wide - 2.0 * CAPTION_LEFT;
    let caption = wrapped_to(caption, room / BOLD, MOST_CAPTION_LINES);
    let below = match below {
        "" => Vec::new(),
        below => wrapped_to(below, room, MOST_CAPTION_LINES),
    };
    let lines = (caption.len() + below.len()) as f64;
    let top = lines * LINE + 10.0;
    let first = LINE - top;
    let after = first + caption.len() as f64 * LINE;
    let texts = text_lines(&caption, CAPTION_LEFT, first, " font-weight=\"bold\"")
        + &text_lines(&below, CAPTION_LEFT, after, "");
    format!(
        "{head}viewBox=\"0 {} {} {}\"{attributes}>{texts}{content}",
        px(-top),
        px(wide),
        px(high + top)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::charts::axis::TickRow;
    use crate::charts::geometry;

    /// Returns the number before the next quote.
    fn number(text: &str) -> f64 {
        text.split(['"', ' ']).next().unwrap().parse().unwrap()
    }

    #[test]
    fn legend_entries_do_not_overlap() {
        let curve = |name: &str| Curve {
            label: Some(name.to_owned()),
            ..Curve::default()
        };
        // A browser draws these texts in DejaVu Sans with these widths.
        let names = [("blocks[mtu=1500]", 107.4), ("download, run 1", 93.2)];
        let curves = names.map(|(name, _)| curve(name));
        let svg = legend(curves.iter()).svg;
        let text_at = number(svg.split("<text x=\"").nth(1).unwrap());
        let next_mark_at = number(svg.split("<path d=\"M").nth(2).unwrap());
        assert!(text_at + names[0].1 + 8.0 < next_mark_at, "{svg}");
    }

    #[test]
    fn a_caption_is_above_the_drawing() {
        let plot = Plot {
            x: Axis::from_zero("seconds", [1.0].into_iter()),
            y: Axis::from_zero("goodput, Mbit/s", [1.0].into_iter()),
            height: 100.0,
            curves: Vec::new(),
        };
        let svg = plot.draw("a > b");
        assert!(svg.contains("viewBox=\"0 0 440 150\""), "{svg}");
        let captioned = captioned(&svg, "a <caption>", "an explanation");
        for part in [
            "viewBox=\"0 -38 440 188\"",
            "<text x=\"8\" y=\"-24\" font-weight=\"bold\">a &lt;caption&gt;</text>",
            "<text x=\"8\" y=\"-10\">an explanation</text>",
        ] {
            assert!(captioned.contains(part), "{part} in {captioned}");
        }
        let one = super::captioned(&svg, "caption", "");
        assert!(one.contains("viewBox=\"0 -24 440 174\""), "{one}");
        assert!(one.ends_with("</svg>"), "{one}");
    }

    #[test]
    fn a_long_label_is_wrapped_and_the_next_one_is_below_it() {
        let curve = |name: &str| Curve {
            label: Some(name.to_owned()),
            ..Curve::default()
        };
        let long =
            "delay 300ms, loss 1%, congestion bbr, queue 100pkt, parallel 16, direction down";
        let plot = Plot {
            x: Axis::from_zero("seconds", [1.0].into_iter()),
            y: Axis::from_zero("goodput, Mbit/s", [1.0].into_iter()),
            height: 100.0,
            curves: vec![curve(long), curve("next"), curve("another")],
        };
        let svg = plot.draw("");
        assert_eq!(geometry::overlaps(&svg), Vec::<String>::new(), "{svg}");
        assert!(!svg.contains('…'), "{svg}");
    }

    #[test]
    fn names_and_rows_below_an_axis_do_not_overlap() {
        let names = [
            "cubic with a long name",
            "bbr",
            "an-even-longer-name-without-a-space",
            "reno",
            "dctcp",
            "westwood",
            "illinois",
        ];
        let owned = names.map(str::to_owned).to_vec();
        let ticks = (0..).map(f64::from).zip(owned.iter().cloned()).collect();
        let row = TickRow {
            title: "queue".to_owned(),
            ticks,
        };
        let point = |at: usize| Point {
            hover: names[at].to_owned(),
            ..Point::at(at as f64, 1.0)
        };
        let plot = Plot {
            x: Axis::names("congestion", owned).with_row(row),
            y: Axis::from_zero("goodput, Mbit/s", [1.0].into_iter()),
            height: 100.0,
            curves: vec![Curve::new(
                Some("measured".to_owned()),
                0,
                Shape::Points,
                (0..names.len()).map(point).collect(),
            )],
        };
        let svg = plot.draw("");
        assert_eq!(geometry::overlaps(&svg), Vec::<String>::new(), "{svg}");
        assert_eq!(
            svg.matches("<polyline").count(),
            0,
            "categories are not joined: {svg}"
        );
        assert!(svg.contains("congestion; below it: queue"), "{svg}");
    }

    #[test]
    fn marks_that_are_a_decade_apart_are_not_joined() {
        let lines = |sizes: &[f64]| {
            let points = sizes.iter().map(|size| Point::at(*size, 1.0)).collect();
            let plot = Plot {
                x: Axis::log("size, bytes", sizes.iter().copied()),
                y: Axis::from_zero("time, ms", [1.0].into_iter()),
                height: 100.0,
                curves: vec![Curve::new(None, 0, Shape::Marked, points)],
            };
            let svg = plot.draw("");
            let lines = svg.split("<polyline points=\"").skip(1);
            let counts = lines.map(|line| line.split('"').next().unwrap().split(' ').count());
            counts.collect::<Vec<_>>()
        };
        assert_eq!(lines(&[64.0, 256.0, 512.0]), [3]);
        assert_eq!(lines(&[1e4, 1e6, 2e6, 1e9]), [1, 2, 1]);
    }

    #[test]
    fn a_curve_in_two_frames_is_named_once() {
        let curve = || Curve {
            label: Some("ping, run 1".to_owned()),
            ..Curve::default()
        };
        let legend = legend([curve(), curve()].iter());
        assert_eq!(legend.svg.matches("ping, run 1").count(), 1);
    }
}
