//! Round trips on an idle path: the time of the network, and the time that a user-space program sees.

use anyhow::{Context, Result};

use crate::instruments::pair::{Pair, SERVER, farwire, figure};
use crate::instruments::percentile::percentile;
use crate::report::rows::{Found, Quantity, Sample};
use crate::results::Outcome;
use crate::rounds::{rounds, shuffled};

const PROBES: u32 = 3000;

pub(crate) fn run() -> Result<Outcome> {
    let rounds = rounds(5)?;
    let mut outcome = Outcome::new(
        rounds,
        &format!(
            "{PROBES} probes, one a millisecond, on an idle veth pair: the 99th percentile of the round trip. farwire separates the time of the network \
             from the time that a program sees; irtt states only the latter"
        ),
    );
    let rivals: [fn() -> Result<[f64; 2]>; 2] = [with_farwire, with_irtt];
    let rounds = shuffled(rounds, &rivals, |measure| measure())?;
    for (at, what) in ["the network's part", "as a program sees it"]
        .iter()
        .enumerate()
    {
        let round = |round: &Vec<[f64; 2]>| round.iter().map(|p99| Sample::from(p99[at])).collect();
        let found = Found {
            names: vec!["farwire".to_owned(), "irtt".to_owned()],
            rounds: rounds.iter().map(round).collect(),
        };
        outcome.rows(found.rows(&Quantity::less(&format!("probe, p99, {what}"), "us")));
    }
    Ok(outcome)
}

/// Measures the network's part and the whole round trip.
fn with_farwire() -> Result<[f64; 2]> {
    let pair = Pair::build()?;
    let _server = pair.serve_farwire()?;
    let measured = pair.json(&farwire(&format!(
        "measure probe {SERVER} -c {PROBES} -i 1ms --quiet --json -"
    )))?;
    let p99 = |metric| figure(&measured, metric, "p99").map(|ms| ms * 1e3);
    Ok([p99("network_rtt_ms")?, p99("rtt_ms")?])
}

/// Measures the whole round trip and returns it twice, because irtt states no other.
fn with_irtt() -> Result<[f64; 2]> {
    let pair = Pair::build()?;
    let _server = pair.serve("irtt server -i 1ms")?;
    let measured = pair.json(&format!(
        "irtt client -i 1ms -d {PROBES}ms -Q -o - {SERVER}"
    ))?;
    let trips = measured["round_trips"].as_array().context("round_trips")?;
    let rtt = |trip: &serde_json::Value| trip["delay"]["rtt"].as_f64().map(|nanos| nanos / 1e3);
    let mut rtts: Vec<f64> = trips.iter().filter_map(rtt).collect();
    anyhow::ensure!(!rtts.is_empty(), "irtt measured nothing");
    rtts.sort_by(f64::total_cmp);
    Ok([percentile(&rtts, 0.99); 2])
}
