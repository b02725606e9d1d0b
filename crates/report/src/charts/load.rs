//! The chart "What does load do to the round trip?": the round-trip time of each run over the load that it carried.

use super::axis::Axis;
use super::plot::{Curve, Plot, Point, Shape};
use super::same_time::{of_first, starts};
use super::svg::MOST_SERIES;
use super::swept_axes::SweptAxis;
use super::{ChartQuestion, Drawing, file_name};
use crate::analysis::intervals::{DIRECTIONS, RateQuantity, RateSeries};
use crate::analysis::{Analysis, CaseFigures};
use crate::case_labels::CaseLabels;
use crate::distinct;
use record::plan::{Case, PlannedInstrument};
use record::quantity::{number, scale_for};
use record::{Direction, Measured, Measurement, Metric, Run, Statistic};
use stats::order_statistics;

/// Fewest runs of a drawing.
const FEWEST_RUNS: usize = 3;

/// A run: what was carried, and the round trips meanwhile.
struct LoadedRun<'a> {
    case: &'a Case,
    repeat: u32,
    quantity: RateQuantity,
    /// The mean rate in bit/s of the direction with the greater one, over all instruments of a group.
    bit_per_s: f64,
    /// The median of the round trips while it was carried.
    rtt_ms: f64,
    /// Whether the round trips are the sending kernel's own and not those of probes.
    is_of_tcp: bool,
}

/// Returns the chart of round-trip times over load, with a drawing for each group of instruments that ran
/// simultaneously.
pub(super) fn question(analysis: &Analysis<'_>) -> ChartQuestion {
    let mut groups: Vec<(String, Vec<LoadedRun<'_>>)> = Vec::new();
    for figures in &analysis.cases {
        for group in figures.case.groups() {
            let names: Vec<&str> = group.iter().map(|one| one.name.as_str()).collect();
            let names = names.join(" + ");
            let runs = figures.runs.iter();
            let found: Vec<LoadedRun<'_>> = runs
                .filter_map(|run| LoadedRun::of(figures, run, group))
                .collect();
            match groups.iter().position(|(known, _)| *known == names) {
                Some(known) => groups[known].1.extend(found),
                None => groups.push((names, found)),
            }
        }
    }
    let labels = CaseLabels::of_all(analysis.record.plan());
    let axes = SweptAxis::all(
        analysis.record.plan(),
        &analysis
            .cases
            .iter()
            .map(|one| one.case)
            .collect::<Vec<_>>(),
    );
    let drawings = groups
        .iter()
        .flat_map(|(names, runs)| of_group(names, runs, &labels, &axes));
    ChartQuestion {
        heading: "Round-trip time and load",
        note: "A mark is a run: its mean rate, and the median of the round trips during the transfer. Where \
               round trips grow and the rate does not, packets wait in a queue."
            .to_owned(),
        drawings: drawings.collect(),
    }
}

impl<'a> LoadedRun<'a> {
    /// Returns the load and the round trips of a group of instruments in a run; `None` if there is no load, or no round
    /// trip while it was carried.
    fn of(figures: &CaseFigures<'a>, run: &Run, group: &'a [PlannedInstrument]) -> Option<Self> {
        let together: Vec<(&PlannedInstrument, &Measured)> = group
            .iter()
            .filter_map(|instrument| {
                let measured = run.measured(&instrument.name)?;
                let counts = measured.invalid.is_none() && measured.measurement.failure.is_none();
                counts.then_some((instrument, measured))
            })
            .collect();
        let starts_s = starts(&together);
        let mut loads: Vec<(Option<Direction>, RateQuantity, f64)> = Vec::new();
        let mut time = [f64::INFINITY, f64::NEG_INFINITY];
        for ((instrument, measured), start_s) in together.iter().zip(&starts_s) {
            for way in DIRECTIONS {
                let Some(series) = RateSeries::shown(&measured.measurement, way) else {
                    continue;
                };
                let intervals = series.intervals();
                let (Some(first), Some(last)) = (intervals.first(), intervals.last()) else {
                    continue;
                };
                let bits: f64 = intervals.iter().map(|(.., bits)| bits).sum();
                let rate = stated(&measured.measurement, series.quantity(), way)
                    .unwrap_or(bits / (last.1 - first.0));
                let way = way.or(instrument.profile.direction);
                time = [
                    time[0].min(first.0 + start_s),
                    time[1].max(last.1 + start_s),
                ];
                let known = loads
                    .iter_mut()
                    .find(|(known, quantity, _)| (*known, *quantity) == (way, series.quantity()));
                match known {
                    Some((.., sum)) => *sum += rate,
                    None => loads.push((way, series.quantity(), rate)),
                }
            }
        }
        let carried = loads.into_iter().filter(|(.., rate)| rate.is_finite());
        let (_, quantity, bit_per_s) = carried.max_by(|a, b| a.2.total_cmp(&b.2))?;
        let probes = [Metric::NetworkRttMs, Metric::RttMs, Metric::ConnectMs];
        let median = |metrics: &[Metric]| {
            let all = together.iter().zip(&starts_s);
            let values = all.flat_map(|((_, measured), start_s)| {
                let samples = of_first(&measured.measurement, metrics).into_iter();
                let shifted = samples.map(move |(at_s, value)| (at_s + start_s, value));
                shifted.filter(|(at_s, _)| (time[0]..=time[1]).contains(at_s))
            });
            let values: Vec<f64> = values.map(|(_, value)| value).collect();
            order_statistics::quantile(&order_statistics::sorted(&values), 0.5)
        };
        let of_probes = median(&probes);
        Some(Self {
            case: figures.case,
            repeat: run.repeat,
            quantity,
            bit_per_s,
            rtt_ms: of_probes.or_else(|| median(&[Metric::TcpRttMs]))?,
            is_of_tcp: of_probes.is_none(),
        })
    }
}

/// Returns the mean rate of a direction that an instrument states; `None` if it states none, or several. The intervals of a
/// sender lack what was not yet acknowledged at the end.
fn stated(
    measurement: &Measurement,
    quantity: RateQuantity,
    way: Option<Direction>,
) -> Option<f64> {
    let wanted = (quantity.metric(), Statistic::Mean, way);
    let mut own = measurement
        .figures
        .iter()
        .filter(|figure| (figure.metric, figure.statistic, figure.direction) == wanted);
    let figure = own.next()?;
    own.next().is_none().then_some(figure.value)
}

/// Draws the runs of one group; none if there are only a few. Runs with another quantity or source of round trips than
/// the first have drawings of their own.
fn of_group(
    names: &str,
    runs: &[LoadedRun<'_>],
    labels: &CaseLabels<'_>,
    axes: &[SweptAxis<'_>],
) -> Vec<Drawing> {
    let kinds = distinct(runs.iter().map(|run| (run.quantity, run.is_of_tcp)));
    let of_kind = kinds.into_iter().filter_map(|kind| {
        let own = runs.iter();
        let own: Vec<&LoadedRun<'_>> = own
            .filter(|run| (run.quantity, run.is_of_tcp) == kind)
            .collect();
        (own.len() >= FEWEST_RUNS).then(|| draw(names, kind, &own, labels, axes))
    });
    of_kind.collect()
}

fn draw(
    names: &str,
    (quantity, is_of_tcp): (RateQuantity, bool),
    runs: &[&LoadedRun<'_>],
    labels: &CaseLabels<'_>,
    axes: &[SweptAxis<'_>],
) -> Drawing {
    let greatest = runs.iter().map(|run| run.bit_per_s).fold(0.0, f64::max);
    let (by, unit) = scale_for(quantity.metric(), greatest);
    let point = |run: &LoadedRun<'_>| Point {
        hover: format!(
            "{}, run {}: {} {unit}, {} ms",
            labels.words(run.case),
            run.repeat,
            number(run.bit_per_s / by),
            number(run.rtt_ms)
        ),
        ..Point::at(run.bit_per_s / by, run.rtt_ms)
    };
    let series = series(runs, labels, axes);
    let curves: Vec<Curve> = series
        .into_iter()
        .enumerate()
        .map(|(look, (label, runs))| {
            let points = runs.into_iter().map(point).collect();
            Curve::new(label, look, Shape::Points, points)
        })
        .collect();
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let source = if is_of_tcp { "TCP's own RTT" } else { "RTT" };
    let y_title = format!("{source}, median, ms");
    let plot = Plot {
        x: Axis::from_zero(
            &format!("{}, {unit}", quantity.name()),
            points().map(|point| point.x),
        ),
        y: Axis::fitting(&y_title, points().map(|point| point.y)),
        height: 220.0,
        curves,
    };
    Drawing {
        file: file_name(&["load", names, quantity.metric().name()]),
        svg: plot.draw(&format!("{source} of {names} over the {}", quantity.name())),
        caption: format!("{names}: {source} over {}", quantity.name()),
        below: String::new(),
        about: format!(
            "{} {}",
            Metric::RttMs.meaning(),
            quantity.metric().meaning()
        ),
    }
}

/// A label, and the runs that it has in common.
type RunSeries<'r, 'a> = (Option<String>, Vec<&'r LoadedRun<'a>>);

/// Groups the runs by case; if there are more cases than can be distinguished, by the values of a swept field, preferably
/// names such as those of congestion controls; without such a field, all runs are alike.
fn series<'r, 'a>(
    runs: &[&'r LoadedRun<'a>],
    labels: &CaseLabels<'_>,
    axes: &[SweptAxis<'_>],
) -> Vec<RunSeries<'r, 'a>> {
    let cases = distinct(runs.iter().map(|run| run.case.name.as_str()));
    let suits = |axis: &&SweptAxis<'_>| (2..=MOST_SERIES).contains(&axis.steps.len());
    let axis = axes
        .iter()
        .filter(suits)
        .min_by_key(|axis| (axis.is_ordered(), axis.steps.len()));
    let label = |run: &LoadedRun<'_>| match axis {
        _ if cases.len() <= MOST_SERIES => Some(labels.words(run.case)),
        Some(axis) => {
            let value = run.case.swept_value(axis.field.path)?;
            Some(format!("{} {value}", axis.field.name))
        }
        None => None,
    };
    let mut all: Vec<RunSeries<'r, 'a>> = Vec::new();
    for run in runs.iter().copied() {
        let label = label(run);
        match all.iter().position(|(known, _)| *known == label) {
            Some(known) => all[known].1.push(run),
            None => all.push((label, vec![run])),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::record;
    use crate::charts::geometry;
    use record::{Record, Sample};

    /// The small record, whose pings run beside the downloads.
    fn loaded() -> Record {
        let mut record = record();
        let plan = &mut record.head.plan;
        for instrument in plan.cases.iter_mut().flat_map(|case| &mut case.instruments) {
            instrument.group = Some("loaded".to_owned());
        }
        for (run, rtt) in record.runs.iter_mut().zip([10.0, 20.0, 30.0]) {
            let samples = &mut run.measurements[0].measurement.samples;
            let sample = |index: u64| Sample::new(index as f64 * 0.1, Metric::RttMs, index, rtt);
            *samples = (1..=5).map(sample).collect();
            // Pings after the download do not count.
            samples.push(Sample::new(99.0, Metric::RttMs, 6, 1_000.0));
        }
        record
    }

    #[test]
    fn each_run_is_a_mark_at_its_load_and_round_trip() {
        let record = loaded();
        let drawings = question(&Analysis::of(&record)).drawings;
        assert_eq!(drawings.len(), 1);
        let svg = &drawings[0].svg;
        assert_eq!(drawings[0].caption, "ping + download: RTT over goodput");
        assert!(svg.contains("base, run 1: 16.00 Mbit/s, 10.00 ms"), "{svg}");
        assert!(svg.contains("slow, run 2: "), "{svg}");
        assert!(!svg.contains("1000"), "{svg}");
        assert!(!svg.contains("<polyline"), "{svg}");
        assert_eq!(geometry::overlaps(svg), Vec::<String>::new());
    }

    #[test]
    fn the_load_is_the_mean_rate_that_the_instrument_states() {
        let mut record = loaded();
        for run in &mut record.runs {
            let figures = &mut run.measurements[1].measurement.figures;
            let goodput = figures
                .iter_mut()
                .find(|one| one.metric == Metric::GoodputBitPerS);
            goodput.unwrap().value = 20e6;
        }
        let svg = &question(&Analysis::of(&record)).drawings[0].svg;
        assert!(svg.contains("base, run 1: 20.00 Mbit/s, 10.00 ms"), "{svg}");
    }

    #[test]
    fn round_trips_without_a_load_are_not_drawn() {
        assert!(question(&Analysis::of(&record())).drawings.is_empty());
    }
}
