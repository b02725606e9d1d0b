//! A hundred thousand probes a second, each with the kernel's stamps: the share lost, and the rate of answers.

use anyhow::{Context, Result};

use crate::instruments::pair::{Pair, SERVER, farwire, figure};
use crate::report::rows::{Found, Quantity};
use crate::results::Outcome;
use crate::rounds::{rounds, shuffled};

const PROBES: u32 = 200_000;
/// Probes a second; a session lasts two seconds.
const RATE: f64 = 100_000.0;

/// The result of a session: thousands of answers a second, percent lost, and the median of the network's part in us.
type Session = [f64; 3];

pub(crate) fn run() -> Result<Outcome> {
    let rounds = rounds(5)?;
    let mut outcome = Outcome::new(
        rounds,
        &format!(
            "{PROBES} probes, {:.0},000 a second, on an idle veth pair, each stamped by the kernel at four places",
            RATE / 1e3
        ),
    );
    let found = shuffled(rounds, &[()], |()| one())?;
    let quantities = [
        Quantity::more("probes answered", "1,000/s"),
        Quantity::less("probes lost", "%"),
        Quantity::less("median of the network's part", "us"),
    ];
    for (at, quantity) in quantities.iter().enumerate() {
        let round = |round: &Vec<Session>| round.iter().map(|session| session[at].into()).collect();
        let found = Found {
            names: vec!["farwire".to_owned()],
            rounds: found.iter().map(round).collect(),
        };
        outcome.rows(found.alone(quantity, 0));
    }
    Ok(outcome)
}

fn one() -> Result<Session> {
    let pair = Pair::build()?;
    let _server = pair.serve_farwire()?;
    let measured = pair.json(&farwire(&format!(
        "measure probe {SERVER} -c {PROBES} -i 10us --timeout 200ms --quiet --json -"
    )))?;
    let samples = measured["samples"].as_array().context("samples")?;
    let answers = samples
        .iter()
        .filter(|sample| sample["metric"] == "rtt_ms" && sample["value"].is_number());
    let times: Vec<f64> = answers
        .filter_map(|sample| sample["at_s"].as_f64())
        .collect();
    let lasted = times.last().context("no answers")? - times.first().context("no answers")?;
    Ok([
        times.len() as f64 / lasted / 1e3,
        figure(&measured, "lost_percent", "mean")?,
        figure(&measured, "network_rtt_ms", "median")? * 1e3,
    ])
}
