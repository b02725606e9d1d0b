//! Losses: which packets are lost, how many in a row, and of which length.

use anyhow::Result;
use model::Nanos;
use report::{Axis, Curve, Plot, Point, Shape, stack};

use crate::crossing::{Crossing, of_length, steady};
use crate::drawing::{Picture, between, by_number, formula, found, picture};

/// The number of counted packets, and of those in a strip.
const PACKETS: u64 = 1_000_000;
const STRIP: usize = 600;

/// The longest run of losses that is shown.
const LONGEST: u32 = 16;

pub(crate) fn pictures() -> Result<Vec<Picture>> {
    let bursts = [
        ("alone", "loss = '5%'", Chain::alone(0.05)),
        (
            "burst=4",
            "loss = '5%,burst=4'",
            Chain::two_states([0.05 / 0.95 / 4.0, 0.25, 1.0, 0.0]),
        ),
        (
            "gemodel",
            "[[stages]]\nkind = 'gemodel'\np = '1%'\nr = '10%'\nbad_loss = '55%'",
            Chain::two_states([0.01, 0.1, 0.55, 0.0]),
        ),
    ];
    let four_states = [(
        "4 states",
        "[[stages]]\nkind = 'four-state'\np13 = '1%'\np31 = '10%'\np32 = '30%'\np23 = '40%'\np14 = '1%'",
        Chain::four_states([0.01, 0.1, 0.3, 0.4, 0.01]),
    )];
    Ok([
        of_chains(["loss-strip", "loss-runs"], &bursts)?,
        of_chains(["four-state-strip", "four-state-runs"], &four_states)?,
        vec![bit_errors()?],
    ]
    .into_iter()
    .flatten()
    .collect())
}

/// Draws which packets are lost, with a strip for each law, and the lengths of runs.
fn of_chains(
    [strip, runs]: [&'static str; 2],
    laws: &[(&str, &str, Chain)],
) -> Result<Vec<Picture>> {
    let (mut strips, mut lengths) = (Vec::new(), Vec::new());
    for (place, (name, link, chain)) in laws.iter().enumerate() {
        let packets = steady(PACKETS, Nanos::from_millis(1), 1_000);
        let lost = Crossing::of(link, packets)?.lost();
        let height = (laws.len() - 1 - place) as f64;
        strips.push(bars(place, height, &lost[..STRIP]));
        let counts = runs_of(&lost);
        let found_at = |length: u32| counts.get(length as usize).copied().unwrap_or(0.0);
        let mut points = by_number(1..=LONGEST, found_at);
        points.retain(|point| point.y > 0.0);
        let share = lost.iter().filter(|lost| **lost).count() as f64 / lost.len() as f64;
        let label = format!("{name}: {:.2} % lost", 100.0 * share);
        lengths.push(found(&label, place, Shape::Marked, points));
        let expected = chain.runs(PACKETS as f64);
        let mut points = by_number(1..=LONGEST, |length| expected[length as usize]);
        points.retain(|point| point.y >= 1.0);
        lengths.push(formula("by the formula", Shape::Hollow, points));
    }
    let names = laws.iter().rev().map(|(name, ..)| (*name).to_owned());
    let strip = Picture {
        name: strip,
        svg: stack(
            &[Plot {
                x: between("packet", 0.0, STRIP as f64),
                y: Axis::names("", names.collect()),
                height: 36.0 * laws.len() as f64,
                curves: strips,
            }],
            "Which of 600 packets are lost",
        ),
    };
    let counts = || lengths.iter().flat_map(|curve| &curve.points);
    let axes = [
        Axis::counts("losses in a burst", u64::from(LONGEST)),
        Axis::log(
            "how often",
            counts().map(|point| point.y).chain([1.0, 10.0]),
        ),
    ];
    let runs = picture(runs, "Lengths of runs of losses", axes, lengths);
    Ok(vec![strip, runs])
}

/// Makes a bar for each lost packet.
fn bars(look: usize, height: f64, lost: &[bool]) -> Curve {
    let lost = lost.iter().enumerate().filter(|(_, lost)| **lost);
    let bar = |number: usize| {
        let ends = [height - 0.35, height + 0.35, height - 0.35];
        ends.map(|end| Point::at(number as f64, end))
    };
    let ends = [0, STRIP].map(|end| Point::at(end as f64, height - 0.35));
    let bars = lost.flat_map(|(number, _)| bar(number));
    Curve {
        look,
        points: ends[..1]
            .iter()
            .cloned()
            .chain(bars)
            .chain(ends[1..].iter().cloned())
            .collect(),
        shape: Shape::Trace(0),
        ..Curve::default()
    }
}

/// Counts runs of losses by their length.
fn runs_of(lost: &[bool]) -> Vec<f64> {
    let mut counts = vec![0.0; lost.len() + 1];
    for run in lost.chunk_by(|a, b| a == b).filter(|run| run[0]) {
        counts[run.len()] += 1.0;
    }
    counts
}

/// The states of a law, with the probabilities of going from each to each, with a loss and with a packet received.
struct Chain {
    lost: Vec<Vec<f64>>,
    received: Vec<Vec<f64>>,
}

impl Chain {
    fn alone(share: f64) -> Self {
        Self {
            lost: vec![vec![share]],
            received: vec![vec![1.0 - share]],
        }
    }

    /// Makes a chain of good and bad: the state before the change decides.
    fn two_states([p, r, bad, good]: [f64; 4]) -> Self {
        let next = [[1.0 - p, p], [r, 1.0 - r]];
        let with = |share: [f64; 2]| {
            let rows = next.iter().zip(share);
            rows.map(|(row, share)| row.iter().map(|to| to * share).collect())
                .collect()
        };
        Self {
            lost: with([good, bad]),
            received: with([1.0 - good, 1.0 - bad]),
        }
    }

    /// Makes a chain of received in a gap, received in a burst, lost in a burst, lost alone: the new state decides.
    fn four_states([p13, p31, p32, p23, p14]: [f64; 5]) -> Self {
        let next = [
            [1.0 - p13 - p14, 0.0, p13, p14],
            [0.0, 1.0 - p23, p23, 0.0],
            [p31, p32, 1.0 - p31 - p32, 0.0],
            [1.0, 0.0, 0.0, 0.0],
        ];
        let to = |states: [f64; 4]| {
            let row = |row: &[f64; 4]| row.iter().zip(states).map(|(to, is)| to * is).collect();
            next.iter().map(row).collect()
        };
        Self {
            lost: to([0.0, 0.0, 1.0, 1.0]),
            received: to([1.0, 1.0, 0.0, 0.0]),
        }
    }

    /// Returns the expected number of runs of each length in this many packets: one received, the run, one received.
    fn runs(&self, packets: f64) -> Vec<f64> {
        let mut long = vec![0.0; self.lost.len()];
        long[0] = 1.0;
        for _ in 0..10_000 {
            let both = step(&long, &self.lost)
                .into_iter()
                .zip(step(&long, &self.received));
            long = both.map(|(lost, received)| lost + received).collect();
        }
        let mut behind = step(&long, &self.received);
        let lengths = (0..=LONGEST).map(|_| {
            let ended: f64 = step(&behind, &self.received).iter().sum();
            behind = step(&behind, &self.lost);
            packets * ended
        });
        lengths.collect()
    }
}

/// Advances the states by one packet.
fn step(states: &[f64], next: &[Vec<f64>]) -> Vec<f64> {
    let to = |place: usize| {
        let parts = states.iter().zip(next);
        parts.map(|(from, row)| from * row[place]).sum()
    };
    (0..states.len()).map(to).collect()
}

/// Draws the share of lost packets against the length of the frame.
fn bit_errors() -> Result<Picture> {
    const PACKETS: u64 = 200_000;
    const SIZES: [u32; 8] = [64, 128, 256, 512, 1_024, 2_048, 4_096, 9_014];
    let mut curves = Vec::new();
    for (look, rate) in [1e-5_f64, 1e-6].into_iter().enumerate() {
        let mut points = Vec::new();
        for size in SIZES {
            let packets = (0..PACKETS).map(|number| {
                let at = Nanos::from_millis(number);
                (at, of_length(u64::from(size)))
            });
            let lost = Crossing::of(&format!("ber = '{rate:e}'"), packets)?.lost();
            let share = lost.iter().filter(|lost| **lost).count() as f64 / lost.len() as f64;
            points.push(Point::at(f64::from(size), 100.0 * share));
        }
        curves.push(found(
            &format!("ber = {rate:e}"),
            look,
            Shape::Marked,
            points,
        ));
        let expected = |size: u32| {
            let bits = 8.0 * f64::from((size + 4).max(64));
            100.0 * (1.0 - (1.0 - rate).powf(bits))
        };
        let points = by_number(SIZES.into_iter(), expected);
        curves.push(formula("by the formula", Shape::Hollow, points));
    }
    let shares = || curves.iter().flat_map(|curve| &curve.points);
    let axes = [
        Axis::log2(
            "L2 bytes without FCS",
            SIZES.iter().map(|size| f64::from(*size)),
        ),
        Axis::log("lost, %", shares().map(|point| point.y)),
    ];
    Ok(picture(
        "bit-errors",
        "Share of packets that bit errors lose, against their length",
        axes,
        curves,
    ))
}
