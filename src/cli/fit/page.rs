//! The drawings of a fit's page: the path beside the fitted link.

use conditions::Direction;
use fit::{burst_spreads, goodput, one_way_delays, round_trips};
use record::{Measurement, Phase};
use report::{Axis, Curve, PageDrawing, Plot, Point, Shape};
use stats::order_statistics::{quantile, sorted};

/// The names of both measurements, in the order of their colours.
const NAMES: [&str; 2] = ["path", "link"];
/// The height of a frame in pixels.
const HEIGHT: f64 = 200.0;
/// The points of a distribution.
const POINTS: u32 = 200;
/// The share of round trips at which a distribution ends, so that single outliers do not compress the rest.
const SHOWN_SHARE: f64 = 0.995;
/// The phases whose round trips are drawn.
const PHASES: [(Phase, &str); 4] = [
    (Phase::Idle, "idle"),
    (Phase::LoadedDown, "beside a download"),
    (Phase::LoadedUp, "beside an upload"),
    (Phase::LoadedBoth, "beside loads in both directions"),
];

/// Draws the measurements of the path and of the link: the distribution of the round trips of each phase, or of the delays of
/// each direction if the path has no round trips, that of the bursts in each direction, and the TCP goodput of a load in each
/// direction over time.
pub(super) fn drawings(measured: [&Measurement; 2]) -> Vec<PageDrawing> {
    let delays = PHASES.iter().filter_map(|(phase, name)| {
        let curves = round_trips(measured, *phase).map(|values| distribution(&values));
        let caption = format!("Round trips {name}");
        draw(caption, curves, "round trip, ms", "share of round trips, %")
    });
    let [idle, _] = round_trips(measured, Phase::Idle);
    let ways = [Direction::Up, Direction::Down].into_iter();
    let one_way = ways.filter(|_| idle.is_empty()).filter_map(|way| {
        let curves = one_way_delays(measured, way).map(|values| distribution(&values));
        let caption = format!("Delays {} idle", way.name());
        draw(caption, curves, "delay, ms", "share of packets, %")
    });
    let bursts = [Direction::Up, Direction::Down].into_iter();
    let bursts = bursts.filter_map(|way| {
        let curves = burst_spreads(measured, way).map(|values| distribution(&values));
        let caption = format!(
            "Bursts {} idle, from the first to the last arrival",
            way.name()
        );
        draw(caption, curves, "time, ms", "share of bursts, %")
    });
    let loads = [
        (Phase::LoadedDown, Direction::Down, "download"),
        (Phase::LoadedUp, Direction::Up, "upload"),
    ];
    let goodputs = loads.into_iter().filter_map(|(phase, way, name)| {
        let curves = measured.map(|one| {
            let intervals = goodput(one, phase, way).into_iter();
            let points = intervals.map(|(at_s, rate)| Point::at(at_s, rate / 1e6));
            points.collect::<Vec<Point>>()
        });
        let caption = format!("TCP {name} over time");
        draw(caption, curves, "time, s", "goodput, Mbit/s")
    });
    let idle = delays.chain(one_way).chain(bursts);
    idle.chain(goodputs).collect()
}

/// Returns the cumulative distribution of values.
fn distribution(values: &[f64]) -> Vec<Point> {
    let ordered = sorted(values);
    let shares = (0..=POINTS).map(|at| SHOWN_SHARE * f64::from(at) / f64::from(POINTS));
    let points =
        shares.filter_map(|share| Some(Point::at(quantile(&ordered, share)?, 100.0 * share)));
    points.collect()
}

/// Draws both curves; `None` if one of them has fewer than two points.
fn draw(caption: String, curves: [Vec<Point>; 2], x: &str, y: &str) -> Option<PageDrawing> {
    if curves.iter().any(|points| points.len() < 2) {
        return None;
    }
    let all = || curves.iter().flatten();
    let x = Axis::linear(x, all().map(|point| point.x));
    let y = Axis::from_zero(y, all().map(|point| point.y));
    let named = NAMES.into_iter().zip(curves).enumerate();
    let curves = named.map(|(look, (name, points))| Curve {
        label: Some(name.to_owned()),
        look,
        points,
        shape: Shape::Line,
        ..Curve::default()
    });
    let plot = Plot {
        x,
        y,
        height: HEIGHT,
        curves: curves.collect(),
    };
    let svg = plot.draw(&format!("{caption}, of the path and of the link"));
    Some(PageDrawing { caption, svg })
}

#[cfg(test)]
mod tests {
    use record::{Metric, Sample};

    use super::*;

    fn measured(shift_ms: f64) -> Measurement {
        let probes = (0..50_u32).map(|index| {
            let rtt_ms = 20.0 + shift_ms + f64::from(index % 10);
            Sample {
                phase: Some(Phase::Idle),
                ..Sample::new(f64::from(index), Metric::RttMs, index.into(), rtt_ms)
            }
        });
        let load = (0..5_u32).map(|index| Sample {
            phase: Some(Phase::LoadedUp),
            direction: Some(Direction::Up),
            ..Sample::new(f64::from(index), Metric::GoodputBitPerS, index.into(), 8e6)
        });
        Measurement {
            samples: probes.chain(load).collect(),
            ..Measurement::default()
        }
    }

    #[test]
    fn what_both_measured_is_drawn() {
        let [path, link] = [measured(0.0), measured(2.0)];
        let drawn = drawings([&path, &link]);
        let captions: Vec<&str> = drawn.iter().map(|one| one.caption.as_str()).collect();
        assert_eq!(captions, ["Round trips idle", "TCP upload over time"]);
        assert!(drawn.iter().all(|one| one.svg.starts_with("<svg")));
        assert!(drawings([&path, &Measurement::default()]).is_empty());
    }

    #[test]
    fn bursts_are_drawn_for_the_direction_that_has_trains() {
        let [mut path, mut link] = [measured(0.0), measured(2.0)];
        for one in [&mut path, &mut link] {
            let arrivals = (0..50_u32).map(|packet| Sample {
                phase: Some(Phase::Idle),
                direction: Some(Direction::Down),
                ..Sample::new(0.0, Metric::InTrainMs, (packet / 2).into(), packet.into())
            });
            one.samples.extend(arrivals);
        }
        let drawn = drawings([&path, &link]);
        let captions: Vec<&str> = drawn.iter().map(|one| one.caption.as_str()).collect();
        let bursts = "Bursts down idle, from the first to the last arrival";
        let expected = ["Round trips idle", bursts, "TCP upload over time"];
        assert_eq!(captions, expected);
    }

    #[test]
    fn delays_of_each_direction_are_drawn_without_round_trips() {
        let [mut path, mut link] = [measured(0.0), measured(2.0)];
        for one in [&mut path, &mut link] {
            for sample in &mut one.samples {
                if sample.metric == Metric::RttMs {
                    sample.metric = Metric::OneWayDelayMs;
                    sample.direction = Some(Direction::Down);
                }
            }
        }
        let drawn = drawings([&path, &link]);
        let captions: Vec<&str> = drawn.iter().map(|one| one.caption.as_str()).collect();
        assert_eq!(captions, ["Delays down idle", "TCP upload over time"]);
    }
}
