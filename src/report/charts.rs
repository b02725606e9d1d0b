//! The drawings of the HTML report, as SVG.

use std::fmt::Display;

use anyhow::{Result, anyhow};
use plotters::prelude::*;
use plotters::style::FontTransform;

use crate::analysis::{CaseFigures, first_instrument};
use crate::experiment::plan::Method;
use crate::experiment::record::Record;
use crate::instrument::{Metric, Sample};

/// Wide enough for a third of a desk screen, and legible when a phone shrinks it a little.
const HISTORY_SIZE: (u32, u32) = (400, 220);
const PING_WIDTH: u32 = 440;
const PING_ROW: u32 = 30;
/// The axis of the pings ends so many times beyond the slowest case: stragglers are drawn at its edge.
const PING_AXIS: f64 = 1.6;
/// More points than this only blacken a curve of this width: neighbours are averaged.
const MOST_POINTS: usize = 300;

const INK: RGBColor = RGBColor(0x33, 0x3b, 0x47);
const GRID: RGBColor = RGBColor(0xe3, 0xe7, 0xec);
const MEASURED: RGBColor = RGBColor(0x1f, 0x6f, 0xb2);
const PUBLISHED: RGBColor = RGBColor(0xc2, 0x5a, 0x00);
const FONT: (&str, i32) = ("sans-serif", 13);

/// A point of a curve: seconds and MB/s.
type Point = (f64, f64);

/// Throughput over time of every repeat of a case, and the published level as a dashed line.
///
/// # Errors
/// None but those of the plotting library.
pub(super) fn history(record: &Record, figures: &CaseFigures<'_>) -> Result<String> {
    let curves = curves(record, &figures.case.name);
    let published = figures
        .case
        .published
        .goodput_bytes_per_s
        .map(|rate| rate / 1e6);
    let points = || curves.iter().flatten();
    let longest = points().map(|point| point.0).fold(1.0, f64::max).ceil();
    let top = ceiling(
        points()
            .map(|point| point.1)
            .chain(published)
            .fold(0.0, f64::max),
    );
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, HISTORY_SIZE).into_drawing_area();
        let mut chart = ChartBuilder::on(&root)
            .margin(6)
            .margin_right(14)
            .set_label_area_size(LabelAreaPosition::Left, 46)
            .set_label_area_size(LabelAreaPosition::Bottom, 36)
            .build_cartesian_2d(0.0..longest, 0.0..top)
            .map_err(plot_error)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(GRID)
            .label_style(FONT.into_font().color(&INK))
            .x_labels(6)
            .y_labels(5)
            .x_desc("seconds")
            .y_desc("MB/s")
            .x_label_formatter(&|value| format!("{value:.0}"))
            .y_label_formatter(&|value| tick(*value, top))
            .draw()
            .map_err(plot_error)?;
        // The first repeat in full colour, the others behind it: all are data, one must be followable.
        for (at, curve) in curves.iter().enumerate().rev() {
            let style = if at == 0 {
                MEASURED.stroke_width(2)
            } else {
                MEASURED.mix(0.3).stroke_width(1)
            };
            chart
                .draw_series(LineSeries::new(curve.iter().copied(), style))
                .map_err(plot_error)?;
        }
        if let Some(level) = published {
            let line = [(0.0, level), (longest, level)];
            chart
                .draw_series(DashedLineSeries::new(line, 6, 4, PUBLISHED.stroke_width(2)))
                .map_err(plot_error)?;
        }
        root.present().map_err(plot_error)?;
    }
    Ok(accessible(
        svg,
        &format!("Throughput over time of {}", figures.case.name),
    ))
}

/// Every round-trip time, a row a case, and the published mean as a mark; stragglers stand at the right edge.
///
/// # Errors
/// None but those of the plotting library.
pub(super) fn pings(record: &Record, cases: &[CaseFigures<'_>]) -> Result<String> {
    let rows = cases.len() as f64;
    let end = ping_axis(cases);
    let published = |figures: &CaseFigures<'_>| figures.case.published.rtt_mean_ms;
    let dots: Vec<(f64, f64)> = cases
        .iter()
        .enumerate()
        .flat_map(|(row, figures)| {
            let y = rows - row as f64 - 0.5;
            let rtts = rtts_of(record, &figures.case.name).into_iter();
            rtts.map(move |rtt| (rtt.value.min(end), y + spread(rtt)))
        })
        .collect();
    let mut svg = String::new();
    {
        let height = 56 + PING_ROW * u32::try_from(cases.len())?;
        let root = SVGBackend::with_string(&mut svg, (PING_WIDTH, height)).into_drawing_area();
        let mut chart = ChartBuilder::on(&root)
            .margin(6)
            .margin_right(16)
            .set_label_area_size(LabelAreaPosition::Left, 64)
            .set_label_area_size(LabelAreaPosition::Bottom, 38)
            .build_cartesian_2d(0.0..end, 0.0..rows)
            .map_err(plot_error)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(GRID)
            .label_style(FONT.into_font().color(&INK))
            .disable_y_axis()
            .x_desc("round-trip time, ms")
            .x_label_formatter(&|value| tick(*value, end))
            .draw()
            .map_err(plot_error)?;
        let dot = |&at: &(f64, f64)| Circle::new(at, 2, MEASURED.mix(0.45).filled());
        chart
            .draw_series(dots.iter().map(dot))
            .map_err(plot_error)?;
        for (row, figures) in cases.iter().enumerate() {
            let y = rows - row as f64 - 0.5;
            if let Some(mean) = published(figures) {
                let mark = PathElement::new(
                    [(mean, y - 0.4), (mean, y + 0.4)],
                    PUBLISHED.stroke_width(2),
                );
                chart.draw_series([mark]).map_err(plot_error)?;
            }
            let style = FONT.into_font().transform(FontTransform::None).color(&INK);
            let (_, pixel) = chart.backend_coord(&(0.0, y));
            root.draw_text(&figures.case.name, &style, (8, pixel - 7))
                .map_err(plot_error)?;
        }
        root.present().map_err(plot_error)?;
    }
    Ok(accessible(svg, "Round-trip times of every case"))
}

/// Where the axis of the pings ends, in ms.
pub(super) fn ping_axis(cases: &[CaseFigures<'_>]) -> f64 {
    let medians = cases
        .iter()
        .filter_map(|figures| Some(figures.ping.as_ref()?.rtt_ms.median));
    let published = cases
        .iter()
        .filter_map(|figures| figures.case.published.rtt_mean_ms);
    ceiling(medians.chain(published).fold(0.0, f64::max) * PING_AXIS)
}

/// The throughput of each interval, a curve a repeat.
fn curves(record: &Record, case: &str) -> Vec<Vec<Point>> {
    let Some(instrument) = first_instrument(&record.plan, Method::downloads) else {
        return Vec::new();
    };
    let measured = record
        .runs_of(case)
        .filter_map(|run| run.measured(instrument));
    measured
        .map(|measurement| curve(&measurement.samples))
        .collect()
}

/// Bytes of intervals as points at the middle of each, thinned by averaging neighbours.
fn curve(samples: &[Sample]) -> Vec<Point> {
    let bytes: Vec<&Sample> = samples
        .iter()
        .filter(|s| s.metric == Metric::ReceivedBytes)
        .collect();
    let together = bytes.len().div_ceil(MOST_POINTS).max(1);
    let mut start_s = 0.0;
    let mut points = Vec::new();
    let mut first_length_s = None;
    for group in bytes.chunks(together) {
        let end_s = group.last().map_or(start_s, |sample| sample.at_s);
        let length_s = end_s - start_s;
        // A last interval cut short holds too few packets for a rate.
        if length_s > *first_length_s.get_or_insert(length_s) / 2.0 {
            let sum: f64 = group.iter().map(|sample| sample.value).sum();
            points.push(((start_s + end_s) / 2.0, sum / length_s / 1e6));
        }
        start_s = end_s;
    }
    points
}

fn rtts_of<'a>(record: &'a Record, case: &'a str) -> Vec<&'a Sample> {
    let Some(instrument) = first_instrument(&record.plan, Method::pings) else {
        return Vec::new();
    };
    let measured = record
        .runs_of(case)
        .filter_map(|run| run.measured(instrument));
    measured
        .flat_map(|m| &m.samples)
        .filter(|sample| sample.metric == Metric::RttMs)
        .collect()
}

/// Spreads dots of equal times over the height of a row, the same way in every drawing.
fn spread(sample: &Sample) -> f64 {
    (sample.index % 7) as f64 / 10.0 - 0.3
}

/// The next of 1, 1.5, 2, 3, 5, 8, 10 times a power of ten, so that charts of one order share their axis.
fn ceiling(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 10.0];
    let step = steps
        .into_iter()
        .find(|step| value <= step * power * 1.000_001);
    step.unwrap_or(10.0) * power
}

/// A tick's label, with as many digits as the axis needs.
fn tick(value: f64, top: f64) -> String {
    let digits = if top > 4.0 {
        0
    } else if top > 0.4 {
        1
    } else {
        2
    };
    format!("{value:.digits$}")
}

/// Lets the page scale the drawing, and tells readers of the page what it shows.
fn accessible(svg: String, title: &str) -> String {
    let named = format!("<svg role=\"img\" aria-label=\"{title}\" ");
    svg.replacen("<svg ", &named, 1)
}

fn plot_error(error: impl Display) -> anyhow::Error {
    anyhow!("drawing a chart: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Analysis;
    use crate::analysis::tests::record;

    fn bytes(count: usize) -> Vec<Sample> {
        let sample = |index: usize| {
            Sample::new(index as f64 * 0.1, Metric::ReceivedBytes, index as u64, 1e5)
        };
        (1..=count).map(sample).collect()
    }

    #[test]
    fn thinning_keeps_the_rate() {
        for count in [5, 299, 300, 301, 8_570] {
            let curve = curve(&bytes(count));
            assert!(curve.len() <= MOST_POINTS);
            assert!(
                curve.iter().all(|point| (point.1 - 1.0).abs() < 1e-6),
                "{count}"
            );
        }
    }

    #[test]
    fn axes_end_at_round_numbers() {
        for (value, end) in [
            (0.0, 1.0),
            (0.95, 1.0),
            (1.0, 1.0),
            (1.9, 2.0),
            (7.3, 8.0),
            (9.0, 10.0),
        ] {
            assert!((ceiling(value) - end).abs() < 1e-9, "{value}");
        }
    }

    #[test]
    fn drawings_are_svg_with_a_name() {
        let record = record();
        let analysis = Analysis::of(&record);
        for svg in [
            history(&record, &analysis.cases[1]),
            pings(&record, &analysis.cases),
        ] {
            let svg = svg.unwrap();
            assert!(svg.starts_with("<svg role=\"img\" aria-label="), "{svg}");
            assert!(svg.trim_end().ends_with("</svg>"));
        }
    }
}
