//! Packets that wait for each other, and that overtake each other.

use std::collections::BTreeMap;

use anyhow::Result;
use model::Nanos;
use report::{Axis, Point, Shape};

use crate::crossing::{Crossing, milliseconds, steady};
use crate::drawing::{
    Bins, Picture, between, by_number, distances, formula, found, numbers, picture,
};

const MILLISECOND: Nanos = Nanos::from_millis(1);

pub(crate) fn pictures() -> Result<Vec<Picture>> {
    Ok(vec![
        slots()?,
        slot_delays()?,
        stalls()?,
        gaps()?,
        extents()?,
    ])
}

const SLOTS: &str = "[[stages]]\nkind = 'slots'\nmin = '5ms'\nmax = '15ms'";

/// Draws when packets leave that arrive one a millisecond.
fn slots() -> Result<Picture> {
    let links = [
        ("min = 5ms, max = 15ms", SLOTS.to_owned()),
        ("the same, packets = 8", format!("{SLOTS}\npackets = 8")),
    ];
    let mut curves = Vec::new();
    for (look, (name, link)) in links.into_iter().enumerate() {
        let crossing = Crossing::of(&link, steady(101, MILLISECOND, 1_000))?;
        let both = crossing.came.iter().zip(crossing.left());
        let points = both.filter_map(|(came, left)| {
            left.map(|left| Point::at(milliseconds(*came), milliseconds(left)))
        });
        curves.push(found(name, look, Shape::Line, points.collect()));
    }
    let undelayed = by_number([0, 100].into_iter(), f64::from);
    curves.push(formula("without slots", Shape::Line, undelayed));
    let most = curves.iter().flat_map(|curve| &curve.points);
    let leaves = Axis::from_zero("it leaves, ms", most.map(|point| point.y));
    let axes = [between("a packet comes, ms", 0.0, 100.0), leaves];
    Ok(picture(
        "slots",
        "Departures in slots of packets that arrive one a millisecond",
        axes,
        curves,
    ))
}

/// Draws how long packets wait that arrive one a millisecond.
fn slot_delays() -> Result<Picture> {
    const BINS: u32 = 60;
    let delays = Crossing::of(SLOTS, steady(500_000, MILLISECOND, 1_000))?.all_delays();
    let bins = Bins::new(0.0, 15.0, BINS).of(&delays);
    // On average 10.5 packets leave in a slot: one, and one more for each whole millisecond of its wait.
    let density = |delay: f64| {
        let waits = (0..16).map(|others| delay + f64::from(others));
        let within = waits.filter(|wait| (5.0..15.0).contains(wait));
        within.count() as f64 / 10.0 / 10.5
    };
    let mut expected = Bins::new(0.0, 15.0, BINS);
    for step in 0..1_500 {
        let delay = (f64::from(step) + 0.5) / 100.0;
        expected.add(delay, 100.0 * density(delay) / 100.0);
    }
    let curves = vec![
        found("packets, in steps of 0.25 ms", 0, Shape::Area, bins.steps()),
        formula("by the formula", Shape::Line, expected.middles()),
    ];
    let most = expected.middles().into_iter().map(|point| point.y);
    let axes = [
        between("delay, ms", 0.0, 15.0),
        Axis::from_zero("share of packets, %", most),
    ];
    Ok(picture(
        "slots-delay",
        "Waiting times for slots of packets that arrive one a millisecond",
        axes,
        curves,
    ))
}

/// Draws when packets leave that arrive one a millisecond.
fn stalls() -> Result<Picture> {
    let link = "[[stages]]\nkind = 'stall'\nevery = '100ms'\nlasts = '20ms'";
    let crossing = Crossing::of(link, steady(301, MILLISECOND, 1_000))?;
    let both = crossing.came.iter().zip(crossing.left());
    let points = both.filter_map(|(came, left)| {
        left.map(|left| Point::at(milliseconds(*came), milliseconds(left - *came)))
    });
    let points: Vec<Point> = points.collect();
    let wait = |came: u32| match came % 100 {
        phase @ 80.. => f64::from(100 - phase),
        _ => 0.0,
    };
    let waits = by_number(0..=300, wait);
    let curves = vec![
        found("every = 100ms, lasts = 20ms", 0, Shape::Line, points),
        formula("by the formula", Shape::Line, waits),
    ];
    let axes = [
        between("a packet comes, ms", 0.0, 300.0),
        between("delay, ms", 0.0, 25.0),
    ];
    Ok(picture(
        "stall",
        "Waiting times of packets that arrive one a millisecond at a link that stalls",
        axes,
        curves,
    ))
}

/// Draws the distances between packets that skip the delay.
fn gaps() -> Result<Picture> {
    const LONGEST: u32 = 20;
    let mut curves = Vec::new();
    for (look, (reorder, gap)) in [("20%", 1_u32), ("20%,gap=5", 5)].into_iter().enumerate() {
        let link = format!("delay = '20ms'\nreorder = '{reorder}'");
        let delays = Crossing::of(&link, steady(500_000, MILLISECOND, 1_000))?.delays();
        let undelayed: Vec<bool> = delays.iter().map(|delay| *delay == Some(0.0)).collect();
        let undelayed = numbers(&undelayed);
        let counts = distances(&undelayed, LONGEST as usize);
        let percent = |distance: u32| 100.0 * counts[distance as usize] / undelayed.len() as f64;
        let share = 100.0 * undelayed.len() as f64 / delays.len() as f64;
        let label = format!("reorder = {reorder}: {share:.2} % at once");
        curves.push(found(
            &label,
            look,
            Shape::Marked,
            by_number(1..=LONGEST, percent),
        ));
        let law = |distance: u32| match distance.checked_sub(gap) {
            Some(more) => 100.0 * 0.2 * 0.8_f64.powf(f64::from(more)),
            None => 0.0,
        };
        let points = by_number(1..=LONGEST, law);
        curves.push(formula("by the formula", Shape::Hollow, points));
    }
    let axes = [
        Axis::counts(
            "packets from one that skips the delay to the next",
            u64::from(LONGEST),
        ),
        between("share, %", 0.0, 20.0),
    ];
    Ok(picture(
        "reordering-gaps",
        "Distances between packets that skip a delay",
        axes,
        curves,
    ))
}

/// Draws the reordering extents of RFC 4737 for each way of reordering.
fn extents() -> Result<Picture> {
    const LONGEST: u32 = 22;
    let links = [
        (
            "stage, share = 2%, extent = 3",
            "[[stages]]\nkind = 'reorder'\nshare = '2%'\nextent = 3",
        ),
        (
            "delay = 20ms, reorder = 2%",
            "delay = '20ms'\nreorder = '2%'",
        ),
        (
            "delay = 20ms, jitter = 2ms,free",
            "delay = '20ms'\njitter = '2ms,free'",
        ),
    ];
    let mut curves = Vec::new();
    for (look, (name, link)) in links.into_iter().enumerate() {
        let crossing = Crossing::of(link, steady(200_000, MILLISECOND, 1_000))?;
        let found_in = extents_of(&crossing);
        let all: u32 = found_in.values().sum();
        let share = 100.0 * f64::from(all) / crossing.came.len() as f64;
        let percent = |extent: u32| {
            let count = found_in.get(&extent).copied().unwrap_or(0);
            100.0 * f64::from(count) / f64::from(all)
        };
        let mut points = by_number(1..=LONGEST, percent);
        points.retain(|point| point.y > 0.0);
        let label = format!("{name}: {share:.1} % reordered");
        curves.push(found(&label, look, Shape::Marked, points));
    }
    let axes = [
        Axis::counts("reordering extent, packets", u64::from(LONGEST)),
        between("share of reordered packets, %", 0.0, 100.0),
    ];
    Ok(picture(
        "reordering-extents",
        "Reordering extents of three ways of reordering",
        axes,
        curves,
    ))
}

/// Counts packets by extent (RFC 4737, section 4.2.1): from the first arrival of a greater number to its own.
fn extents_of(crossing: &Crossing) -> BTreeMap<u32, u32> {
    let left = crossing.left();
    let mut arrivals: Vec<(Nanos, usize)> = (0..left.len())
        .filter_map(|number| left[number].map(|left| (left, number)))
        .collect();
    // Packets that leave at one time are in the order in which they were released.
    let mut order: Vec<usize> = vec![0; left.len()];
    for (place, outcome) in crossing.outcomes.iter().enumerate() {
        order[crate::crossing::index(outcome.id())] = place;
    }
    arrivals.sort_by_key(|(left, number)| (*left, order[*number]));
    let numbers: Vec<usize> = arrivals.into_iter().map(|(_, number)| number).collect();
    // These are the places of numbers greater than all before; the first one greater than any given number is among them.
    let mut records: Vec<(usize, usize)> = Vec::new();
    let mut extents = BTreeMap::new();
    for (place, number) in numbers.into_iter().enumerate() {
        let first_greater = records.partition_point(|(record, _)| *record < number);
        match records.get(first_greater) {
            Some((_, at)) => {
                let extent = u32::try_from(place - at).expect("an extent of few packets");
                *extents.entry(extent).or_default() += 1;
            }
            None => records.push((number, place)),
        }
    }
    extents
}
