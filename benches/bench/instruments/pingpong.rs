//! Round trips of 64 bytes over TCP.

use anyhow::{Context, Result};

use crate::instruments::pair::{Pair, SERVER, farwire, figure};
use crate::report::rows::{Found, Quantity};
use crate::results::Outcome;
use crate::rounds::{rounds, shuffled};

const MESSAGES: u32 = 40_000;
const SECONDS: u32 = 2;

/// The name of the row, farwire's option, and sockperf's option.
const MODES: [(&str, &str, &str); 2] = [
    ("blocking", "block", ""),
    ("spinning", "spin", "--nonblocked"),
];

pub(crate) fn run() -> Result<Outcome> {
    let rounds = rounds(5)?;
    let mut outcome = Outcome::new(
        rounds,
        &format!(
            "round trips of 64 bytes over TCP, one veth pair, {MESSAGES} times or {SECONDS} s: the median; sockperf prints half of it, which is doubled here"
        ),
    );
    for (mode, wait, option) in MODES {
        let rivals: [&dyn Fn() -> Result<f64>; 2] =
            [&|| with_farwire(wait), &|| with_sockperf(option)];
        let found = Found {
            names: vec!["farwire".to_owned(), "sockperf".to_owned()],
            rounds: shuffled(rounds, &rivals, |measure| Ok(measure()?.into()))?,
        };
        outcome.rows(found.rows(&Quantity::less(&format!("ping-pong, {mode}"), "us")));
    }
    Ok(outcome)
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
    // The line looks like "---> percentile 50.000 =   12.345".
    let line = text.lines().find(|line| line.contains("percentile 50.0"));
    let half = line.and_then(|line| line.rsplit('=').next());
    let half: f64 = half.with_context(|| text.clone())?.trim().parse()?;
    Ok(2.0 * half)
}
