//! The figure: each row with a peer as a mark on one logarithmic axis.

use std::fmt::Write;

use crate::report::rows::{Beside, Better, Row};
use crate::report::spread::short;
use crate::results::Kept;

const WIDTH: f64 = 860.0;
/// The width of the names to the left of the axis, and of the figures to its right.
const LEFT: f64 = 420.0;
const RIGHT: f64 = 64.0;
const TOP: f64 = 40.0;
const LINE: f64 = 17.0;
/// The space above each part.
const GAP: f64 = 8.0;
const BOTTOM: f64 = 12.0;
/// The colour of marks, as in reports.
const COLOUR: &str = "#0072b2";

/// The place of a row on the axis: how many times as good as the peer it is, and the ends of its bar.
struct Mark<'a> {
    row: &'a Row,
    peer: &'a Beside,
    times: f64,
    ends: [f64; 2],
}

impl<'a> Mark<'a> {
    /// Returns the mark of a row, or nothing if it has no rival or a figure is 0.
    fn of(row: &'a Row) -> Option<Self> {
        let peer = row.peer.as_ref()?;
        let ratio = peer.ratio?;
        let [low, high] = ratio.ends();
        let [times, low, high] = match row.quantity.better {
            Better::More => [ratio.median, low, high],
            Better::Less => [ratio.median.recip(), high.recip(), low.recip()],
            Better::Neither => return None,
        };
        let drawn = [times, low, high]
            .iter()
            .all(|value| value.is_finite() && *value > 0.0);
        drawn.then_some(Self {
            row,
            peer,
            times,
            ends: [low, high],
        })
    }
}

/// The axis, from one power of ten to another.
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    fn around(marks: &[Vec<Mark<'_>>]) -> Self {
        let ends = marks.iter().flatten().flat_map(|mark| mark.ends);
        let (mut low, mut high) = (-1.0_f64, 1.0_f64);
        for end in ends.map(f64::log10) {
            low = low.min(end.floor());
            high = high.max(end.ceil());
        }
        Self { low, high }
    }

    fn place(&self, times: f64) -> f64 {
        let share = (times.log10() - self.low) / (self.high - self.low);
        LEFT + share.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }

    /// Returns every power of ten on the axis.
    fn ticks(&self) -> Vec<f64> {
        let mut ticks = Vec::new();
        let mut power = self.low;
        while power <= self.high {
            ticks.push(10_f64.powf(power));
            power += 1.0;
        }
        ticks
    }
}

/// Draws the rows of all parts that have a peer.
pub(super) fn svg(parts: &[Kept]) -> String {
    let marks: Vec<Vec<Mark<'_>>> = parts
        .iter()
        .map(|kept| kept.outcome.rows.iter().filter_map(Mark::of).collect())
        .filter(|marks: &Vec<Mark<'_>>| !marks.is_empty())
        .collect();
    let axis = Axis::around(&marks);
    let lines: usize = marks.iter().map(Vec::len).sum();
    let bottom = TOP + lines as f64 * LINE + marks.len() as f64 * GAP;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {0:.0}\" width=\"{WIDTH}\" height=\"{0:.0}\" \
         font-family=\"sans-serif\" font-size=\"11.5\" fill=\"#000\" style=\"background:#fff\" role=\"img\" \
         aria-label=\"how many times as good as its peers farwire is, part by part\">",
        bottom + BOTTOM
    );
    draw_axis(&mut svg, &axis, bottom);
    let mut y = TOP;
    for part in &marks {
        y += GAP;
        for mark in part {
            draw_mark(&mut svg, &axis, mark, y + LINE / 2.0);
            y += LINE;
        }
    }
    svg.push_str("</svg>\n");
    svg
}

// Writing to a String cannot fail, here and below.
fn draw_axis(svg: &mut String, axis: &Axis, bottom: f64) {
    let middle = axis.place(1.0);
    let _ = write!(
        svg,
        "<text x=\"{:.1}\" y=\"14\" text-anchor=\"middle\">times as good as the peer; right of 1 farwire is better</text>",
        (LEFT + WIDTH - RIGHT) / 2.0
    );
    for tick in axis.ticks() {
        let _ = write!(
            svg,
            "<path d=\"M{0:.1} {TOP}V{bottom:.1}\" stroke=\"#000\" stroke-opacity=\".16\"/>\
             <text x=\"{0:.1}\" y=\"32\" text-anchor=\"middle\">{1}</text>",
            axis.place(tick),
            tick_text(tick)
        );
    }
    let _ = write!(
        svg,
        "<path d=\"M{middle:.1} {TOP}V{bottom:.1}\" stroke=\"#000\"/>"
    );
}

fn draw_mark(svg: &mut String, axis: &Axis, mark: &Mark<'_>, y: f64) {
    let [low, high] = mark.ends.map(|end| axis.place(end));
    let label = format!("{} / {}", mark.row.quantity.what, mark.peer.name);
    let _ = write!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
         <path d=\"M{low:.1} {y:.1}H{high:.1}\" stroke=\"{COLOUR}\" stroke-width=\"2\"/>\
         <circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{COLOUR}\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        LEFT - 10.0,
        y + 4.0,
        escaped(&label),
        axis.place(mark.times),
        WIDTH - RIGHT + 8.0,
        y + 4.0,
        short(mark.times)
    );
}

fn tick_text(tick: f64) -> String {
    match tick {
        tick if tick >= 1.0 => format!("{tick:.0}"),
        tick => format!("{tick}"),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
