//! Profiles: the download rate and the delay that packets meet in the first minute, beside what the profile states.

use anyhow::{Context as _, Result};
use conditions::outline::{Averages, Outline, OutlinePeriod};
use conditions::{LinkProfile, PROFILES};
use model::{Nanos, Outcome, Side};
use report::{Axis, Plot, Point, Shape, stack};

use crate::crossing::{Crossing, index, steady};
use crate::drawing::{Bins, Picture, between, formula, found};

/// The time that a picture shows, in seconds.
const SECONDS: u32 = 60;
/// The time between two probes.
const GAP: Nanos = Nanos::from_millis(250);
/// The L2 bytes of a probe.
const PROBE: u64 = 100;
/// The words of a profile that others made up, which has no picture: it never changes.
const CONVENTION: &str = "a convention, not a measurement";

pub(crate) fn pictures() -> Result<Vec<Picture>> {
    let drawn = PROFILES
        .iter()
        .filter(|profile| !profile.about().ends_with(CONVENTION));
    drawn.map(of_profile).collect()
}

fn of_profile(profile: &LinkProfile) -> Result<Picture> {
    let length = Nanos::from_secs(u64::from(SECONDS));
    let stated = Outline::of(&profile.conditions(), length)?.down;
    let fastest = stated.iter().filter_map(|one| one.rate).max();
    let fastest = fastest.filter(|rate| *rate > 0).context(profile.name)?;
    let delay = Averages::of(&stated).delay_ms;
    let x = || between("time, s", 0.0, f64::from(SECONDS));

    // A full frame, or what the link passes in 5 ms; twice as many of them come as it passes.
    let bytes = (fastest / 8 / 200).max(1_514);
    let gap = Nanos(bytes * 8 * 1_000_000_000 / fastest / 2);
    let packets = steady(length.0 / gap.0, gap, bytes);
    let mut passed = Bins::new(0.0, f64::from(SECONDS), SECONDS);
    let full = Crossing::through(profile.text, Side::B, packets)?;
    for left in full.left().into_iter().flatten() {
        passed.add(left.0 as f64 / 1e9 - delay / 1e3, bytes as f64 * 8.0 / 1e6);
    }
    let passed = passed.steps();
    let rates = steps(&stated, |one| one.rate.unwrap_or_default() as f64 / 1e6);
    let rate = Plot {
        x: x(),
        y: Axis::from_zero(
            "passed, Mbit/s",
            passed.iter().chain(&rates).map(|point| point.y),
        ),
        height: 90.0,
        curves: vec![
            formula("stated", Shape::Level, rates),
            found("passed", 0, Shape::Line, passed),
        ],
    };

    let probes = steady(length.0 / GAP.0, GAP, PROBE);
    let crossing = Crossing::through(profile.text, Side::B, probes)?;
    let took = crossing.outcomes.iter().filter_map(|outcome| {
        let Outcome::Deliver { id, due, .. } = outcome else {
            return None;
        };
        let came = crossing.came[index(*id)];
        let took = (due.0 - came.0) as f64 / 1e6;
        Some(Point::at(came.0 as f64 / 1e9, took))
    });
    let mut took: Vec<Point> = took.collect();
    took.sort_by(|one, other| one.x.total_cmp(&other.x));
    let delays = steps(&stated, |one| one.delay.0 as f64 / 1e6);
    let delay = Plot {
        x: x(),
        y: Axis::from_zero("delay, ms", took.iter().chain(&delays).map(|point| point.y)),
        height: 90.0,
        curves: vec![
            formula("stated", Shape::Level, delays),
            found("probes", 2, Shape::Line, took),
        ],
    };
    let title = format!(
        "Download rate and delay of the profile {} in its first minute",
        profile.name
    );
    Ok(Picture {
        name: profile.name,
        svg: stack(&[rate, delay], &title),
    })
}

/// Returns the corners of a figure that holds until the next change.
fn steps(stated: &[OutlinePeriod], value: impl Fn(&OutlinePeriod) -> f64) -> Vec<Point> {
    let corners = stated
        .iter()
        .flat_map(|one| [one.from, one.until].map(|at| Point::at(at.0 as f64 / 1e9, value(one))));
    corners.collect()
}
