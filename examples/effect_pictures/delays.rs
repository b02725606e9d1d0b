//! Delays: by length, by law, over time, and in order.

use anyhow::Result;
use model::{Flow, Nanos, Packet};
use report::{Axis, Plot, Point, Shape, stack};

use crate::crossing::{Crossing, of_length, steady};
use crate::drawing::{Bins, HEIGHT, Picture, between, by_number, formula, found, picture};

pub(crate) fn pictures() -> Result<Vec<Picture>> {
    Ok(vec![
        by_length()?,
        laws()?,
        wandering()?,
        likeness()?,
        in_order()?,
    ])
}

fn by_length() -> Result<Picture> {
    const SIZES: [u32; 7] = [64, 1_514, 3_000, 4_500, 6_000, 7_500, 9_014];
    let all = [
        ("delay = 2ms", "delay = '2ms'", [2.0, 0.0]),
        ("size_delay = 2", "size_delay = 2", [0.0, 2.0]),
        ("both", "delay = '2ms'\nsize_delay = 2", [2.0, 2.0]),
    ];
    let mut curves = Vec::new();
    for (look, (name, link, [constant, factor])) in all.into_iter().enumerate() {
        let packets = SIZES.iter().enumerate().map(|(number, size)| {
            let at = Nanos::from_millis(100 * number as u64);
            (at, of_length(u64::from(*size)))
        });
        let delays = Crossing::of(link, packets)?.all_delays();
        let points = SIZES.iter().zip(delays);
        let points = points.map(|(size, delay)| Point::at(f64::from(*size), delay));
        curves.push(found(name, look, Shape::Marked, points.collect()));
        let expected = |size: u32| match factor {
            0.0 => constant,
            factor => constant + f64::from(size) / factor / 1e3,
        };
        let points = by_number(SIZES.into_iter(), expected);
        curves.push(formula("by the formula", Shape::Hollow, points));
    }
    let axes = [
        between("L2 bytes without FCS", 0.0, 10_000.0),
        between("delay, ms", 0.0, 8.0),
    ];
    Ok(picture(
        "delay",
        "Delay against the length of the packet",
        axes,
        curves,
    ))
}

/// The quantile of a law, in spreads, from a score and its share of the standard normal distribution.
type Quantile = fn(f64, f64) -> f64;

/// The maximum of netem's laws, in spreads.
const NETEM_MOST: f64 = 32_767.0 / 8_192.0;

fn pareto(_: f64, share: f64) -> f64 {
    (4.0 / 3.0 * ((1.0 - share).powf(-1.0 / 3.0) - 1.5)).min(NETEM_MOST)
}

/// Returns the quantile for a delay of 20 ms with a spread of 4 ms.
fn log_normal(score: f64, _: f64) -> f64 {
    let variance = (4.0_f64 / 20.0).powi(2).ln_1p();
    5.0 * ((variance.sqrt() * score - variance / 2.0).exp() - 1.0)
}

fn table(_: f64, share: f64) -> f64 {
    match share {
        share if share < 0.25 => -1.0,
        share if share < 0.75 => 0.0,
        _ => 2.0,
    }
}

/// Every law of jitter, with 4 ms around 20 ms.
const LAWS: [(&str, &str, Quantile); 6] = [
    ("uniform", "'4ms,free'", |_, share| 2.0 * share - 1.0),
    ("normal", "'4ms,normal,free'", |score, _| score),
    ("pareto", "'4ms,pareto,free'", pareto),
    ("paretonormal", "'4ms,paretonormal,free'", |score, share| {
        (0.25 * score + 0.75 * pareto(score, share)).min(NETEM_MOST)
    }),
    ("lognormal", "'4ms,lognormal,free'", log_normal),
    (
        "table",
        "{ spread = '4ms', law = 'table', values = '-8192 0 0 16384', ordering = 'free' }",
        table,
    ),
];

fn laws() -> Result<Picture> {
    let bins = || Bins::new(5.0, 40.0, 140);
    let mut frames = Vec::new();
    for (name, jitter, quantile) in LAWS {
        let link = format!("delay = '20ms'\njitter = {jitter}");
        let delays =
            Crossing::of(&link, steady(500_000, Nanos::from_millis(1), 1_000))?.all_delays();
        let found_in = bins().of(&delays).steps();
        let mut expected = bins();
        for_each_score(|score, share, weight| {
            expected.add(20.0 + 4.0 * quantile(score, share), 100.0 * weight);
        });
        let most = found_in.iter().map(|point| point.y).fold(0.0, f64::max);
        frames.push(Plot {
            x: between("delay, ms", 5.0, 40.0),
            y: Axis::from_zero(&format!("{name}, %"), [most].into_iter()),
            height: if name == "paretonormal" { 84.0 } else { 70.0 },
            curves: vec![
                found("packets, in steps of 0.25 ms", 0, Shape::Area, found_in),
                formula("by the formula", Shape::Line, expected.middles()),
            ],
        });
    }
    Ok(Picture {
        name: "jitter-laws",
        svg: stack(&frames, "Distribution of delays under each law of jitter"),
    })
}

/// Calls `each` for scores of the standard normal distribution in small steps, with the share below each and its weight.
fn for_each_score(mut each: impl FnMut(f64, f64, f64)) {
    const STEP: f64 = 1e-4;
    let mut below = 0.0;
    for place in -80_000..=80_000 {
        let score = f64::from(place) * STEP;
        let density = (-score * score / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
        let weight = density * STEP;
        each(score, below + weight / 2.0, weight);
        below += weight;
    }
}

/// Draws consecutive delays, independent and with half-lives.
fn wandering() -> Result<Picture> {
    let all = [
        ("none", "'2ms,normal,free'"),
        ("10 ms", "'2ms,normal,half-life=10ms,free'"),
        ("100 ms", "'2ms,normal,half-life=100ms,free'"),
    ];
    let mut frames = Vec::new();
    for (look, (name, jitter)) in all.into_iter().enumerate() {
        let link = format!("delay = '20ms'\njitter = {jitter}");
        let delays = Crossing::of(&link, steady(500, Nanos::from_millis(1), 1_000))?.all_delays();
        let points = delays.iter().enumerate();
        let points = points.map(|(number, delay)| Point::at(number as f64, *delay));
        let label = format!("half-life: {name}");
        frames.push(Plot {
            x: between("time, ms", 0.0, 500.0),
            y: between("delay, ms", 10.0, 30.0),
            height: 80.0,
            curves: vec![found(&label, look, Shape::Trace(0), points.collect())],
        });
    }
    Ok(Picture {
        name: "jitter-half-life",
        svg: stack(&frames, "Delays over time with and without a half-life"),
    })
}

/// Draws the correlation of delays against the time between them.
fn likeness() -> Result<Picture> {
    const HALF_LIFE_MS: u32 = 50;
    let rates = [
        (1_u32, "1,000 packets a second"),
        (10, "100 packets a second"),
    ];
    let mut curves = Vec::new();
    for (look, (gap, name)) in rates.into_iter().enumerate() {
        let packets = steady(1_000_000, Nanos::from_millis(u64::from(gap)), 1_000);
        let link = "delay = '20ms'\njitter = '2ms,normal,half-life=50ms,free'";
        let delays = Crossing::of(link, packets)?.all_delays();
        let scores: Vec<f64> = delays.iter().map(|delay| (delay - 20.0) / 2.0).collect();
        let correlation = |lag: u32| {
            let pairs = scores.iter().zip(&scores[(lag / gap) as usize..]);
            let sum: f64 = pairs.map(|(one, other)| one * other).sum();
            sum / (scores.len() - (lag / gap) as usize) as f64
        };
        let lags = (0..=200).step_by(if gap == 1 { 10 } else { 20 });
        curves.push(found(
            name,
            look,
            Shape::Marked,
            by_number(lags, correlation),
        ));
    }
    let law = |lag: u32| 2_f64.powf(-f64::from(lag) / f64::from(HALF_LIFE_MS));
    curves.push(formula(
        "2^(-dt / 50 ms)",
        Shape::Line,
        by_number((0..=200).step_by(2), law),
    ));
    let axes = [
        between("dt, ms", 0.0, 200.0),
        between("correlation of delays dt apart", 0.0, 1.0),
    ];
    Ok(picture(
        "jitter-likeness",
        "Correlation of delays against the time between them, with a half-life of 50 ms",
        axes,
        curves,
    ))
}

/// Draws the effect of keeping the order on one law.
fn in_order() -> Result<Picture> {
    let all = [
        ("free", "'5ms,normal,free'", 1_000),
        (
            "per-flow, 5 flows, 1,000 a second",
            "'5ms,normal,per-flow'",
            1_000,
        ),
        ("fifo, 1,000 packets a second", "'5ms,normal'", 1_000),
        (
            "the same with half-life=20ms",
            "'5ms,normal,half-life=20ms'",
            1_000,
        ),
        ("fifo, 10,000 a second", "'5ms,normal'", 100),
    ];
    let mut curves = Vec::new();
    for (look, (name, jitter, gap_us)) in all.into_iter().enumerate() {
        let packets = steady(500_000, Nanos::from_micros(gap_us), 1_000);
        let link = format!("delay = '20ms'\njitter = {jitter}");
        let flows = (0..5).cycle().zip(packets);
        let packets = flows.map(|(id, (at, packet))| {
            let flow = Flow {
                id,
                ..Flow::default()
            };
            (at, Packet { flow, ..packet })
        });
        let mut delays = Crossing::of(&link, packets)?.all_delays();
        delays.sort_by(f64::total_cmp);
        let points = (0..=200).map(|part| {
            let place = part * (delays.len() - 1) / 200;
            Point::at(delays[place], part as f64 / 2.0)
        });
        curves.push(found(name, look, Shape::Line, points.collect()));
    }
    let plot = Plot {
        x: between("delay, ms", 0.0, 40.0),
        y: between("share of delays, %", 0.0, 100.0),
        height: HEIGHT,
        curves,
    };
    Ok(Picture {
        name: "jitter-order",
        svg: plot.draw("Delays of 20 ms with a normal jitter of 5 ms in each ordering"),
    })
}
