//! Packets that arrive twice or damaged.

use anyhow::Result;
use model::{Edit, Nanos, Outcome};
use report::{Axis, Point, Shape};

use crate::crossing::{Crossing, index, steady};
use crate::drawing::{
    Bins, Picture, between, by_number, distances, formula, found, numbers, picture,
};

pub(crate) fn pictures() -> Result<Vec<Picture>> {
    Ok(vec![duplication()?, corruption()?])
}

/// Draws the distances between copied packets.
fn duplication() -> Result<Picture> {
    const LONGEST: u32 = 30;
    let packets = steady(1_000_000, Nanos::from_millis(1), 1_000);
    let crossing = Crossing::of("duplicate = '10%'", packets)?;
    let mut is_copied = vec![false; crossing.came.len()];
    for outcome in &crossing.outcomes {
        if let Outcome::Copied { id, .. } = outcome {
            is_copied[index(*id)] = true;
        }
    }
    let copied = numbers(&is_copied);
    let counts = distances(&copied, LONGEST as usize);
    let percent = |distance: u32| 100.0 * counts[distance as usize] / copied.len() as f64;
    let law = |distance: u32| 100.0 * 0.1 * 0.9_f64.powf(f64::from(distance - 1));
    let share = 100.0 * copied.len() as f64 / crossing.came.len() as f64;
    let curves = vec![
        found(
            &format!("duplicate = 10%: {share:.2} % copied"),
            0,
            Shape::Marked,
            by_number(1..=LONGEST, percent),
        ),
        formula("by the formula", Shape::Hollow, by_number(1..=LONGEST, law)),
    ];
    let axes = [
        Axis::counts(
            "packets from one copied packet to the next",
            u64::from(LONGEST),
        ),
        between("share, %", 0.0, 10.0),
    ];
    Ok(picture(
        "duplication",
        "Distances between copied packets",
        axes,
        curves,
    ))
}

/// Draws which of the bits behind the IP header are flipped.
fn corruption() -> Result<Picture> {
    /// The bits behind 14 bytes of Ethernet and 20 of IPv4, in a frame of 1,000 bytes.
    const BITS: u32 = 8 * (1_000 - 14 - 20);
    const BINS: u32 = 46;
    let packets = steady(1_000_000, Nanos::from_millis(1), 1_000);
    let crossing = Crossing::of("corrupt = '10%'", packets)?;
    let flipped = crossing
        .outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            Outcome::Deliver {
                edit: Some(Edit::FlipBits { first, .. }),
                ..
            } => Some(f64::from(first % BITS)),
            _ => None,
        });
    let flipped: Vec<f64> = flipped.collect();
    let bins = Bins::new(0.0, f64::from(BITS), BINS).of(&flipped);
    let share = 100.0 * flipped.len() as f64 / crossing.came.len() as f64;
    let label = format!("corrupt = 10%: {share:.2} % flipped, in steps of 21 bytes");
    let level = 100.0 / f64::from(BINS);
    let line = [0.0, f64::from(BITS)].map(|bit| Point::at(bit, level));
    let curves = vec![
        found(&label, 0, Shape::Area, bins.steps()),
        formula("by the formula", Shape::Line, line.to_vec()),
    ];
    let axes = [
        between("number of the flipped bit", 0.0, 8_000.0),
        between("share, %", 0.0, 3.0),
    ];
    Ok(picture(
        "corruption",
        "Flipped bits of packets",
        axes,
        curves,
    ))
}
