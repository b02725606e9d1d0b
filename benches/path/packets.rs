//! Small packets: how many datagrams of 64 bytes a second cross without loss, each a frame of its own.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::rivals::{Load, Over, Rival, base_path, rattan_path};
use crate::rounds::{in_any_order, rounds};
use crate::spread::Spread;

/// Payload bytes of a datagram.
const LENGTH: u32 = 64;
/// Lost of 10,000, at most.
const MOST_LOST_PERCENT: f64 = 0.01;
const ROUNDS: usize = 9;
/// Datagrams a second that are tried first, and the factors from one rate to the next: up while it holds, then down until it
/// holds for longer.
const LOWEST: f64 = 20_000.0;
const CLIMB: f64 = 1.25;
const DESCENT: f64 = 1.06;
const SHORT: u32 = 1;
const LONG: u32 = 3;

pub(crate) fn run() -> Result<()> {
    let rounds = rounds(ROUNDS)?;
    println!(
        "datagrams of {LENGTH} bytes, a frame each, at most {MOST_LOST_PERCENT} % lost for {LONG} s; {rounds} shuffled rounds: median (least to most), thousands a second"
    );
    let mut rivals = vec![Rival::Farwire, Rival::Bridge];
    rivals.extend(base_path().map(Rival::Base));
    if rattan_path().is_some() {
        rivals.push(Rival::Rattan);
    }
    let found: Vec<Vec<f64>> = (0..rounds)
        .map(|_| in_any_order(&rivals, highest))
        .collect::<Result<_>>()?;
    for (i, rival) in rivals.iter().enumerate() {
        let spread = Spread::of(found.iter().map(|round| round[i] / 1e3));
        println!("{:<30} {spread}", rival.name());
    }
    for (i, rival) in rivals.iter().enumerate().skip(1) {
        let mut ratios: Vec<f64> = found.iter().map(|round| round[0] / round[i]).collect();
        ratios.sort_by(f64::total_cmp);
        let quarter = ratios[ratios.len() / 4];
        println!(
            "farwire / {:<30} {}, lower quartile {quarter:.3}",
            rival.name(),
            Spread::of(ratios.into_iter())
        );
    }
    Ok(())
}

/// The highest rate at which that rival loses nearly nothing, in datagrams received a second.
fn highest(rival: &Rival) -> Result<f64> {
    let mut rate = LOWEST;
    loop {
        let (received, lost_percent) = attempt(rival, rate, SHORT)?;
        // A sender that cannot go faster holds at any rate.
        if lost_percent > MOST_LOST_PERCENT || received < rate * 0.9 {
            break;
        }
        rate *= CLIMB;
    }
    loop {
        let (received, lost_percent) = attempt(rival, rate, LONG)?;
        if lost_percent <= MOST_LOST_PERCENT {
            return Ok(received);
        }
        rate /= DESCENT;
    }
}

/// Datagrams received a second, and the share lost.
fn attempt(rival: &Rival, rate: f64, seconds: u32) -> Result<(f64, f64)> {
    let farwire = env!("CARGO_BIN_EXE_farwire");
    let bits = rate * f64::from(LENGTH) * 8.0;
    let load = Load {
        server: format!("exec {farwire} serve --quiet"),
        client: format!(
            "{farwire} measure udp $TARGET -b {bits:.0} -l {LENGTH} --no-gso -t {seconds} --quiet --json -"
        ),
    };
    let said = rival.carry(Over::Plain, &load)?.said;
    let goodput = figure(&said, "goodput_bit_per_s")?;
    Ok((
        goodput / 8.0 / f64::from(LENGTH),
        figure(&said, "lost_percent")?,
    ))
}

fn figure(said: &Value, metric: &str) -> Result<f64> {
    let figures = said["figures"].as_array().into_iter().flatten();
    let mut means = figures.filter(|f| f["metric"] == metric && f["statistic"] == "mean");
    let mean = means.next().and_then(|figure| figure["value"].as_f64());
    mean.with_context(|| format!("no {metric} in {said}"))
}
