//! The chart "What held it up?": measured goodputs as bars beside the smallest limit that follows from the conditions.

use std::fmt::Write;

use super::plot::open;
use super::svg::{BOLD, LINE, Look, escaped, px, text_lines, wrapped_to};
use super::{ChartQuestion, Drawing};
use crate::analysis::Analysis;
use crate::analysis::bound::Bound;
use crate::case_labels::CaseLabels;
use crate::interval::{ConfidenceInterval, with_interval};
use record::quantity::{quantity, scale_for};
use record::{Metric, Statistic};

const WIDTH: f64 = 440.0;
/// Height of a bar with the space below it.
const BAR: f64 = 26.0;
/// Greatest number of lines of a name, and of the words below it.
const MOST_LINES: usize = 3;
/// Space for the percentage beside a name.
const PERCENT: f64 = 60.0;
const LEFT: f64 = 8.0;
/// Horizontal position of 100 %, which leaves room for greater values.
const FULL: f64 = 375.0;
/// The share of the limit at which a bar and its interval are cut off with an arrow.
const MOST_SHARE: f64 = 1.14;
/// Length of an arrow.
const ARROW: f64 = 6.0;
/// Greatest number of rows in one drawing.
const MOST_ROWS: usize = 24;

/// One goodput and its limit.
struct BoundedGoodput {
    what: String,
    measured: f64,
    interval: Option<ConfidenceInterval>,
    bound: Bound,
}

/// Returns the chart of measured goodput against theory.
pub(super) fn question(analysis: &Analysis<'_>) -> ChartQuestion {
    let bounded = bounded(analysis);
    let drawings = bounded
        .chunks(MOST_ROWS)
        .enumerate()
        .map(|(part, bounded)| Drawing {
            file: format!("theory-{}", part + 1),
            caption:
                "Goodput in percent of the lowest limit, or of the expectation of a loss model"
                    .to_owned(),
            below: String::new(),
            about: Metric::GoodputBitPerS.meaning().to_owned(),
            svg: draw(bounded),
        });
    ChartQuestion {
        heading: "Measured and theory",
        note: "The limit is the lowest of what rates, headers, loss and a shared server allow under the conditions of a case (docs/theory.md); \
               the full box is 100 %, and an arrow means that a bar or its interval goes on to the right. A loss model gives an average and not a limit, and assumes senders that wait for timeouts more often than today's: the chart calls it expected, and goodput \
               can exceed it. Without a model (several streams, BBR), loss limits goodput only by the packets that it removes. Cases without a limit are left out."
            .to_owned(),
        drawings: drawings.collect(),
    }
}

fn bounded(analysis: &Analysis<'_>) -> Vec<BoundedGoodput> {
    let labels = CaseLabels::of_all(analysis.record.plan());
    let mut all = Vec::new();
    for figures in &analysis.cases {
        for (name, across) in &figures.figures {
            let goodput =
                (name.metric, name.statistic) == (Metric::GoodputBitPerS, Statistic::Mean);
            // Small messages are limited by their exchange, for which there is no bound here.
            let instrument = figures
                .case
                .instrument(&name.instrument)
                .filter(|_| goodput && name.size.is_none());
            let bound = instrument.and_then(|i| Bound::of(figures.case, i, name.direction));
            let Some(bound) = bound else {
                continue;
            };
            let way = name
                .direction
                .map_or(String::new(), |way| format!(", {}", way.name()));
            all.push(BoundedGoodput {
                what: format!("{}, {}{way}", labels.words(figures.case), name.instrument),
                measured: across.value(),
                interval: across.interval,
                bound,
            });
        }
    }
    all
}

fn draw(bounded: &[BoundedGoodput]) -> String {
    let mut rows = String::new();
    let mut top = 4.0;
    for bounded in bounded {
        top = draw_row(&mut rows, bounded, top);
    }
    let title =
        "Measured goodput in percent of the lowest limit, or of the expectation of a loss model";
    open(WIDTH, top + 4.0, title, "") + &rows + "</svg>"
}

/// Draws a goodput and its limit from `top` on, and returns where the next one begins.
fn draw_row(svg: &mut String, bounded: &BoundedGoodput, top: f64) -> f64 {
    let share = |value: f64| value / bounded.bound.bit_per_s;
    let x = |value: f64| LEFT + share(value).clamp(0.0, MOST_SHARE) * FULL;
    let is_cut = |value: f64| share(value) > MOST_SHARE;
    let percent = 100.0 * bounded.measured / bounded.bound.bit_per_s;
    let of = bounded
        .interval
        .map(|own| format!(", 95 % {}", own.of.words()));
    let rate = |value: f64| quantity(Metric::GoodputBitPerS, value);
    let (by, unit) = scale_for(Metric::GoodputBitPerS, bounded.measured);
    let own = bounded.interval.map(|own| own.in_units_of(by).ends);
    let limit = rate(bounded.bound.bit_per_s);
    let (kind, name) = (bounded.bound.kind(), &bounded.bound.name);
    let hover = format!(
        "{}: {} {unit}{} of {limit} {kind}, {name}: {percent:.1} %",
        bounded.what,
        with_interval(bounded.measured / by, own),
        of.unwrap_or_default(),
    );
    let words = format!("{} of {limit} {kind}, {name}", rate(bounded.measured));
    let right = WIDTH - 6.0;
    let names = wrapped_to(&bounded.what, (right - LEFT - PERCENT) / BOLD, MOST_LINES);
    let words = wrapped_to(&words, right - LEFT, MOST_LINES);
    let first = top + 10.0;
    let second = first + names.len() as f64 * LINE - 1.0;
    let bar = second + (words.len() - 1) as f64 * LINE + 5.0;
    // Writing to a String cannot fail.
    let _ = write!(
        svg,
        "<g><title>{hover}</title>{names}\
         <text x=\"{right}\" y=\"{first}\" text-anchor=\"end\" font-weight=\"600\">{percent:.0} %</text>{words}\
         <rect x=\"{LEFT}\" y=\"{bar}\" width=\"{FULL}\" height=\"12\" fill=\"none\" stroke=\"currentColor\" stroke-opacity=\".5\"/>\
         <path d=\"{shape}\" fill=\"{colour}\" fill-opacity=\".8\"/>",
        hover = escaped(&hover),
        names = text_lines(&names, LEFT, first, " font-weight=\"600\""),
        first = px(first),
        words = text_lines(&words, LEFT, second, ""),
        bar = px(bar),
        shape = bar_shape(x(bounded.measured), bar, is_cut(bounded.measured)),
        colour = Look(0).colour(),
    );
    if let Some([low, high]) = bounded.interval.map(|own| own.ends) {
        let end = |value: f64| match is_cut(value) {
            true => "m0 0l-5 -4v8z",
            false => "m0 -4v8",
        };
        let _ = write!(
            svg,
            "<path d=\"M{0} {2}H{1}{3}M{0} {2}{4}\" stroke=\"currentColor\" stroke-width=\"1.4\" fill=\"currentColor\"/>",
            px(x(low)),
            px(x(high)),
            px(bar + 6.0),
            end(high),
            end(low),
        );
    }
    svg.push_str("</g>");
    bar + BAR - 4.0
}

/// Returns the outline of a bar that ends at `right`, in an arrow if it is cut off there.
fn bar_shape(right: f64, top: f64, is_cut: bool) -> String {
    let top = px(top);
    match is_cut {
        true => format!(
            "M{LEFT} {top}H{}l{ARROW} 6l-{ARROW} 6H{LEFT}z",
            px(right - ARROW)
        ),
        false => format!("M{LEFT} {top}H{}v12H{LEFT}z", px(right)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::charts::geometry;
    use crate::interval::IntervalScope;

    #[test]
    fn long_names_are_wrapped_and_overlap_nothing() {
        let goodput = |what: &str, measured: f64| BoundedGoodput {
            what: what.to_owned(),
            measured,
            interval: None,
            bound: Bound {
                bit_per_s: 19.1e6,
                name: "the expectation of a loss model with a rather long name, 1 % of packets"
                    .to_owned(),
                is_average: true,
            },
        };
        let long = "delay 300ms, loss 1%, congestion bbr, queue 100pkt, parallel 16, download";
        let svg = draw(&[
            goodput(long, 9e6),
            goodput("short", 25e6),
            goodput(long, 1.0),
        ]);
        assert_eq!(geometry::overlaps(&svg), Vec::<String>::new(), "{svg}");
        assert!(svg.contains("131 %"), "{svg}");
        assert!(!svg.contains('…'), "{svg}");
    }

    #[test]
    fn what_is_far_above_the_limit_ends_in_an_arrow() {
        let drawn = |measured: f64, ends: [f64; 2]| {
            draw(&[BoundedGoodput {
                what: "case, download".to_owned(),
                measured,
                interval: Some(ConfidenceInterval {
                    ends,
                    of: IntervalScope::TheRun,
                }),
                bound: Bound {
                    bit_per_s: 10e6,
                    name: "the loss model".to_owned(),
                    is_average: true,
                },
            }])
        };
        let arrows = |svg: &str| {
            [
                svg.matches("l6 6l-6 6").count(),
                svg.matches("l-5 -4v8z").count(),
            ]
        };
        assert_eq!(arrows(&drawn(11e6, [10e6, 11.3e6])), [0, 0]);
        assert_eq!(arrows(&drawn(11e6, [10e6, 13e6])), [0, 1]);
        let svg = drawn(25e6, [20e6, 30e6]);
        assert_eq!(arrows(&svg), [1, 2], "{svg}");
        assert!(svg.contains("250 %"), "{svg}");
    }
}
