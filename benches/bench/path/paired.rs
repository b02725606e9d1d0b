//! The cost of an option for the emulator, as a ratio of pairs: each pair runs with and without it, in random order.

use anyhow::Result;

use crate::path::rivals::{Over, Rival};
use crate::path::throughput::{SECONDS, each, one};
use crate::report::rows::{Found, Quantity};
use crate::results::{Outcome, scratch};
use crate::rounds::{rounds, shuffled};

const PAIRS: usize = 21;

/// Measures the cost of a packet log.
pub(crate) fn packet_log() -> Result<Outcome> {
    let log = scratch("packets.csv")?;
    let file = log.display().to_string();
    let outcome = beside_plain(
        "a packet log",
        "--packet-log FILE",
        &["--packet-log", &file],
    );
    // The file is missing if nothing was measured.
    let _ = std::fs::remove_file(log);
    outcome
}

/// Measures the cost of conditions that have no effect.
pub(crate) fn effects() -> Result<Outcome> {
    beside_plain(
        "conditions without effect",
        "--jitter 0ms --loss 0%",
        &["--jitter", "0ms", "--loss", "0%"],
    )
}

/// Compares farwire with these options with a plain one; `said` describes the options in the table.
fn beside_plain(what: &str, said: &str, options: &[&str]) -> Result<Outcome> {
    let pairs = rounds(PAIRS)?;
    let mut outcome = Outcome::new(
        pairs,
        &format!(
            "{what} (`{said}`) beside farwire without, 1 ms in each direction, one TCP stream, cubic, {SECONDS} s; pairs in random order"
        ),
    );
    let options = options.iter().map(|&option| option.to_owned()).collect();
    let rivals = [Rival::Farwire(options), Rival::farwire()];
    let found = shuffled(pairs, &rivals, |rival| one(rival, Over::Plain))?;
    let names = vec![format!("farwire with {what}"), "farwire without".to_owned()];
    let cpu = Found {
        names: names.clone(),
        rounds: each(&found, |stream| {
            stream.emulator_s_a_gb.unwrap_or(f64::NAN).into()
        }),
    };
    let goodput = Found {
        names,
        rounds: each(&found, |stream| (stream.goodput / 1e9).into()),
    };
    outcome.rows(cpu.rows(&Quantity::less(&format!("{what}: emulator"), "CPU s/GB")));
    outcome.rows(goodput.rows(&Quantity::more(&format!("{what}: goodput"), "Gbit/s")));
    Ok(outcome)
}
