//! Round trips on an idle path: what the network took, and what a user-space program sees.

use anyhow::{Context, Result};

use crate::pair::{Pair, SERVER, farwire, figure};
use crate::percentile::percentile;
use crate::spread::Spread;

const ROUNDS: usize = 5;
const PROBES: u32 = 3000;

pub(crate) fn run() -> Result<()> {
    println!(
        "{PROBES} probes, one a millisecond, on an idle veth pair; {ROUNDS} interleaved rounds: p99 in us, median (least to most)"
    );
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let (network, host) = with_farwire()?;
        rounds.push((network, host, with_irtt()?));
    }
    let network = Spread::of(rounds.iter().map(|round| round.0));
    let whole = Spread::of(rounds.iter().map(|round| round.1));
    let irtt = Spread::of(rounds.iter().map(|round| round.2));
    println!("farwire, network part              {network}");
    println!("farwire, as user space sees it     {whole}");
    println!("irtt                               {irtt}");
    let ratios = Spread::of(rounds.iter().map(|round| round.0 / round.2));
    println!("farwire's network part / irtt: {ratios}");
    Ok(())
}

fn with_farwire() -> Result<(f64, f64)> {
    let pair = Pair::build()?;
    let _server = pair.serve_farwire()?;
    let measured = pair.json(&farwire(&format!(
        "measure probe {SERVER} -c {PROBES} -i 1ms --quiet --json -"
    )))?;
    let p99 = |metric| figure(&measured, metric, "p99").map(|ms| ms * 1e3);
    Ok((p99("network_rtt_ms")?, p99("rtt_ms")?))
}

fn with_irtt() -> Result<f64> {
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
    Ok(percentile(&rtts, 0.99))
}
