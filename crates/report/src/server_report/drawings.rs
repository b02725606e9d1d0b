//! The drawings of the report of a far end's log: rates and tests by hour, and rates by client.

use std::collections::BTreeMap;

use jiff::Timestamp;

use record::Metric;
use record::quantity::{counted, scale_for};

use super::opening::{GroupRate, are_alike, rates};
use super::{ServerReport, TestGroup};
use crate::charts::{Axis, Curve, Drawing, Plot, Point, Shape};

/// Greatest number of rates in a drawing, which is the number of looks that can be distinguished.
const MOST_RATES: usize = 7;
/// Greatest number of clients in a drawing, whose names have to fit below the axis.
const MOST_CLIENTS: usize = 6;
/// Greatest number of hours in a drawing, which is a month.
const MOST_HOURS: i64 = 31 * 24;
/// Rates that span more than this factor have a logarithmic axis.
const LINEAR_WITHIN: f64 = 20.0;
/// The height of a frame in pixels.
const HEIGHT: f64 = 180.0;

/// Returns the drawings for which the log has data: those by hour if its tests ended in several hours, and that by client
/// if it has several clients.
pub(crate) fn drawings(report: &ServerReport) -> Vec<Drawing> {
    let rates = rates(report);
    let hours = Hours::of(&report.hours);
    let all = [
        hours.as_ref().and_then(|hours| hours.rates(&rates)),
        hours.as_ref().map(Hours::tests),
        rates_by_client(&report.clients, &rates),
    ];
    all.into_iter().flatten().collect()
}

/// The groups of the last hours.
struct Hours<'a> {
    /// The title of the axis.
    title: String,
    /// Each group, with the number of hours since the first one.
    groups: Vec<(f64, &'a TestGroup)>,
}

impl<'a> Hours<'a> {
    /// Returns the groups of the last hours; `None` if the tests of all of them ended in the same hour.
    fn of(groups: &'a [TestGroup]) -> Option<Self> {
        let hour =
            |group: &TestGroup| Some(group.of.parse::<Timestamp>().ok()?.as_second() / 3_600);
        let known = groups
            .iter()
            .filter_map(|group| Some((hour(group)?, group)));
        let known: Vec<(i64, &TestGroup)> = known.collect();
        let last = known.iter().map(|(hour, _)| *hour).max()?;
        let is_shown = |hour: i64| last - hour < MOST_HOURS;
        let (first, start) = known
            .iter()
            .copied()
            .filter(|(hour, _)| is_shown(*hour))
            .min_by_key(|(hour, _)| *hour)?;
        let shown = known.into_iter().filter(|(hour, _)| is_shown(*hour));
        (first < last).then(|| Self {
            title: format!("hours since {} (UTC)", start.label()),
            groups: shown
                .map(|(hour, group)| ((hour - first) as f64, group))
                .collect(),
        })
    }

    fn axis(&self) -> Axis {
        Axis::from_zero(&self.title, self.groups.iter().map(|(hour, _)| *hour))
    }

    /// Draws the rates of each hour.
    fn rates(&self, rates: &[GroupRate<'_>]) -> Option<Drawing> {
        let svg = draw_rates(
            self.axis(),
            &series(rates, &self.groups),
            "Mean rate by hour",
        )?;
        Some(Drawing {
            file: "rates-by-hour".to_owned(),
            caption: "Mean rate of the tests by hour".to_owned(),
            below: BARS.to_owned(),
            about: "A mark is the mean rate of the tests of one kind that ended in an hour."
                .to_owned(),
            svg,
        })
    }

    /// Draws the number of tests of each hour.
    fn tests(&self) -> Drawing {
        // The place on the axis, the tests and the failed ones.
        let mut counts: BTreeMap<&str, (f64, u64, u64)> = BTreeMap::new();
        for (hour, group) in &self.groups {
            let (_, tests, failed) = counts.entry(group.of.as_str()).or_insert((*hour, 0, 0));
            *tests += group.tests;
            *failed += group.failed;
        }
        let curve = |look: usize, name: &str, count: fn(&(f64, u64, u64)) -> u64| {
            let points = counts.values().filter(|own| count(own) > 0);
            let points = points.map(|own| Point {
                hover: format!("{name}: {}", count(own)),
                ..Point::at(own.0, count(own) as f64)
            });
            Curve {
                label: Some(name.to_owned()),
                look,
                points: points.collect(),
                shape: Shape::Points,
                faint: false,
            }
        };
        let all = [
            curve(0, "tests", |own| own.1),
            curve(1, "failed tests", |own| own.2),
        ];
        let curves: Vec<Curve> = all
            .into_iter()
            .filter(|curve| !curve.points.is_empty())
            .collect();
        let points = || curves.iter().flat_map(|curve| &curve.points);
        let plot = Plot {
            x: self.axis(),
            y: Axis::from_zero("tests", points().map(|point| point.y)),
            height: HEIGHT,
            curves,
        };
        Drawing {
            file: "tests-by-hour".to_owned(),
            caption: "Tests by hour".to_owned(),
            below: String::new(),
            about: "A mark is the number of the tests that ended in an hour.".to_owned(),
            svg: plot.draw("Tests by hour"),
        }
    }
}

/// Explanation of the error bars of a rate.
const BARS: &str = "Bars: the least and the greatest rate of a test";

/// Draws the rates of the clients with the most tests; `None` if there is only one client.
fn rates_by_client(clients: &[TestGroup], rates: &[GroupRate<'_>]) -> Option<Drawing> {
    // The groups of a client are neighbours.
    let of_client: Vec<&[TestGroup]> = clients
        .chunk_by(|one, next| one.of == next.of)
        .take(MOST_CLIENTS)
        .collect();
    if of_client.len() < 2 {
        return None;
    }
    let names = of_client.iter().map(|groups| groups[0].label());
    let x = Axis::names("", names.collect());
    let places = of_client.iter().zip(0..);
    let places: Vec<(f64, &TestGroup)> = places
        .flat_map(|(groups, place)| groups.iter().map(move |group| (f64::from(place), group)))
        .collect();
    let svg = draw_rates(x, &series(rates, &places), "Mean rate by client")?;
    let all = clients.chunk_by(|one, next| one.of == next.of).count();
    let below = match all - of_client.len() {
        0 => BARS.to_owned(),
        more => format!(
            "The clients with the most tests; {} are in the table. {BARS}",
            counted(more, "other")
        ),
    };
    Some(Drawing {
        file: "rates-by-client".to_owned(),
        caption: "Mean rate of the tests by client".to_owned(),
        below,
        about: "A mark is the mean rate of the tests of one kind with a client.".to_owned(),
        svg,
    })
}

/// The rates of one kind of test in one direction, at their places on an axis.
struct RateSeries<'a> {
    name: String,
    rates: Vec<(f64, GroupRate<'a>)>,
}

/// Returns each of these rates in the groups at the places of an axis.
fn series<'a>(rates: &[GroupRate<'_>], places: &[(f64, &'a TestGroup)]) -> Vec<RateSeries<'a>> {
    let of_rate = |rate: &GroupRate<'_>| {
        let all = places
            .iter()
            .flat_map(|&(place, group)| GroupRate::of(group).map(move |own| (place, own)));
        RateSeries {
            name: rate.name(),
            rates: all.filter(|(_, own)| are_alike(own, rate)).collect(),
        }
    };
    let all = rates.iter().take(MOST_RATES).map(of_rate);
    all.filter(|series| !series.rates.is_empty()).collect()
}

/// Draws the mean rates with the least and the greatest one as error bars; `None` if there are no rates.
fn draw_rates(x: Axis, all: &[RateSeries<'_>], title: &str) -> Option<String> {
    let spreads = || {
        let rates = all.iter().flat_map(|series| &series.rates);
        rates.map(|(_, rate)| rate.spread)
    };
    let greatest = spreads().map(|spread| spread.max).reduce(f64::max)?;
    let least = spreads().map(|spread| spread.min).reduce(f64::min)?;
    let (by, unit) = scale_for(Metric::GoodputBitPerS, greatest);
    let axis = format!("mean rate, {unit}");
    let ends = spreads().flat_map(|spread| [spread.min / by, spread.max / by]);
    let y = if least > 0.0 && greatest > LINEAR_WITHIN * least {
        Axis::log(&axis, ends)
    } else {
        Axis::from_zero(&axis, ends)
    };
    let point = |name: &str, place: f64, rate: &GroupRate<'_>| Point {
        interval: (rate.spread.count > 1).then(|| [rate.spread.min / by, rate.spread.max / by]),
        hover: format!("{name}, {}: {}", rate.group.label(), rate.in_words()),
        ..Point::at(place, rate.spread.mean / by)
    };
    let curves = all.iter().zip(0..).map(|(series, look)| {
        let rates = series.rates.iter();
        let points = rates.map(|(place, rate)| point(&series.name, *place, rate));
        Curve {
            label: Some(series.name.clone()),
            look,
            points: points.collect(),
            shape: Shape::Points,
            faint: false,
        }
    });
    let plot = Plot {
        x,
        y,
        height: HEIGHT,
        curves: curves.collect(),
    };
    Some(plot.draw(title))
}

#[cfg(test)]
mod tests {
    use super::super::opening::tests::report;
    use super::*;

    fn files(report: &ServerReport) -> Vec<String> {
        let drawings = drawings(report).into_iter();
        drawings.map(|drawing| drawing.file).collect()
    }

    #[test]
    fn hours_and_clients_are_drawn_if_there_are_several() {
        let one = ("192.0.2.1", 10, 40.0);
        assert_eq!(files(&report(&[one])), Vec::<String>::new());
        let clients = report(&[one, ("192.0.2.2", 10, 20.0)]);
        assert_eq!(files(&clients), ["rates-by-client"]);
        let hours = report(&[one, ("192.0.2.1", 12, 20.0)]);
        assert_eq!(files(&hours), ["rates-by-hour", "tests-by-hour"]);
        assert_eq!(files(&ServerReport::default()), Vec::<String>::new());
    }

    #[test]
    fn a_mark_is_the_mean_of_a_group_with_its_least_and_greatest_rate() {
        let report = report(&[
            ("192.0.2.1", 10, 40.0),
            ("192.0.2.1", 10, 20.0),
            ("192.0.2.1", 12, 20.0),
        ]);
        let all = drawings(&report);
        let [rates, tests] = &all[..] else {
            panic!("two drawings");
        };
        for part in [
            "hours since 2026-11-26 10:00 (UTC)",
            "mean rate, Mbit/s",
            "transfer (up), 2026-11-26 10:00: 30.00 Mbit/s in 2 tests",
            "transfer (up), 2026-11-26 12:00: 20.00 Mbit/s in 1 test",
        ] {
            assert!(rates.svg.contains(part), "{part} in {}", rates.svg);
        }
        // Only the first mark has error bars.
        assert_eq!(rates.svg.matches("stroke-width=\"1.2\"").count(), 1);
        assert!(tests.svg.contains("tests: 2") && !tests.svg.contains("failed"));
    }

    #[test]
    fn the_clients_with_the_most_tests_are_drawn() {
        let names: Vec<String> = (1..10).map(|client| format!("192.0.2.{client}")).collect();
        let transfers: Vec<(&str, u32, f64)> =
            names.iter().map(|name| (name.as_str(), 10, 40.0)).collect();
        let all = drawings(&report(&transfers));
        let [drawing] = &all[..] else {
            panic!("one drawing");
        };
        assert!(drawing.below.contains("3 others are in the table"));
    }

    #[test]
    fn an_old_hour_is_left_out() {
        let mut report = report(&[("192.0.2.1", 10, 40.0), ("192.0.2.1", 11, 20.0)]);
        let mut old = report.hours[0].clone();
        old.of = "2020-01-01T00:00:00Z".to_owned();
        report.hours.insert(0, old);
        let drawings = drawings(&report);
        assert!(drawings[0].svg.contains("hours since 2026-11-26 10:00"));
    }
}
