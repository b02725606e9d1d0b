//! 64 bytes there and back over TCP.

use anyhow::{Context, Result};

use crate::pair::{Pair, SERVER, farwire, figure};
use crate::spread::Spread;

const ROUNDS: usize = 5;
const MESSAGES: u32 = 40_000;
const SECONDS: u32 = 2;

pub(crate) fn run() -> Result<()> {
    println!(
        "ping-pong of 64 bytes over TCP, one veth pair; {ROUNDS} interleaved rounds: median (least to most) of the median round trip; sockperf's printed half is doubled"
    );
    for (mode, wait, option) in [
        ("blocking", "block", ""),
        ("spinning", "spin", "--nonblocked"),
    ] {
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            rounds.push((with_farwire(wait)?, with_sockperf(option)?));
        }
        let ours = Spread::of(rounds.iter().map(|round| round.0));
        let theirs = Spread::of(rounds.iter().map(|round| round.1));
        let ratios = Spread::of(rounds.iter().map(|round| round.0 / round.1));
        println!("{mode}: farwire {ours} us, sockperf {theirs} us; farwire / sockperf {ratios}");
    }
    Ok(())
}

fn with_farwire(wait: &str) -> Result<f64> {
    let pair = Pair::build()?;
    let _server = pair.serve_farwire()?;
    let measured = pair.json(&farwire(&format!(
        "measure pingpong {SERVER} --size 64 --count {MESSAGES} --runs 1 --wait {wait} --quiet --json -"
    )))?;
    let figures = measured["figures"].as_array().context("figures")?;
    let median = figures
        .iter()
        .find(|f| f["metric"] == "rtt_us" && f["statistic"] == "median");
    match median.and_then(|f| f["value"].as_f64()) {
        Some(value) => Ok(value),
        None => Ok(figure(&measured, "rtt_ms", "median")? * 1e3),
    }
}

fn with_sockperf(option: &str) -> Result<f64> {
    let pair = Pair::build()?;
    let _server = pair.serve(&format!("sockperf server -i {SERVER} --tcp {option}"))?;
    let text = pair.run(&format!(
        "sockperf ping-pong -i {SERVER} --tcp -m 64 -t {SECONDS} {option}"
    ))?;
    // "---> percentile 50.000 =   12.345"
    let line = text.lines().find(|line| line.contains("percentile 50.0"));
    let half = line.and_then(|line| line.rsplit('=').next());
    let half: f64 = half.with_context(|| text.clone())?.trim().parse()?;
    Ok(2.0 * half)
}
