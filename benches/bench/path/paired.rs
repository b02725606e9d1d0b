//! The cost of an option for the emulator, as a ratio within rounds: each round runs with and without it, in random order.

use anyhow::Result;

use crate::path::rivals::{Over, Rival};
use crate::path::throughput::{SECONDS, Stream, each, one};
use crate::report::rows::{Found, Quantity};
use crate::results::{Outcome, scratch};
use crate::rounds::{rounds, shuffled};

const PAIRS: usize = 21;

/// Measures the cost of a packet log in each of its formats.
pub(crate) fn packet_log() -> Result<Outcome> {
    let logs = [scratch("packets.csv")?, scratch("packets.parquet")?];
    let [csv, parquet] = logs
        .each_ref()
        .map(|log| vec!["--packet-log".to_owned(), log.display().to_string()]);
    let outcome = beside_plain(
        "a packet log",
        "--packet-log FILE",
        &[("a CSV log", csv), ("a Parquet log", parquet)],
    );
    for log in logs {
        // The file is missing if nothing was measured.
        let _ = std::fs::remove_file(log);
    }
    outcome
}

/// Measures the cost of conditions that have no effect.
pub(crate) fn effects() -> Result<Outcome> {
    let options = ["--jitter", "0ms", "--loss", "0%"].map(str::to_owned);
    let what = "conditions without effect";
    beside_plain(what, &options.join(" "), &[(what, options.into())])
}

/// Compares farwire with each of these options, which have names, with a plain one; `said` describes them in the table.
fn beside_plain(what: &str, said: &str, options: &[(&str, Vec<String>)]) -> Result<Outcome> {
    type Figure = fn(&Stream) -> f64;
    let pairs = rounds(PAIRS)?;
    let mut outcome = Outcome::new(
        pairs,
        &format!(
            "{what} (`{said}`) beside farwire without, 1 ms in each direction, one TCP stream, cubic, {SECONDS} s; rounds in random order. The forwarder is the thread \
             that passes packets, the emulator the whole process"
        ),
    );
    let with = options.iter();
    let mut rivals: Vec<Rival> = with.map(|(_, of)| Rival::Farwire(of.clone())).collect();
    rivals.push(Rival::farwire());
    let found = shuffled(pairs, &rivals, |rival| one(rival, Over::Plain))?;
    let named = options
        .iter()
        .map(|(name, _)| format!("farwire with {name}"));
    let names: Vec<String> = named.chain(["farwire without".to_owned()]).collect();
    let mut rows = |quantity: &Quantity, figure: Figure| {
        let found = Found {
            names: names.clone(),
            rounds: each(&found, |stream| figure(stream).into()),
        };
        let plain = options.len();
        let beside = |own| found.row(quantity, own, plain, "farwire without");
        outcome.rows((0..plain).filter_map(beside));
    };
    let cpu = |whose: &str| Quantity::less(&format!("{what}: {whose}"), "CPU s/GB");
    rows(&cpu("forwarder"), |stream| {
        stream.forwarder_s_a_gb.unwrap_or(f64::NAN)
    });
    rows(&cpu("emulator"), |stream| {
        stream.emulator_s_a_gb.unwrap_or(f64::NAN)
    });
    let goodput = Quantity::more(&format!("{what}: goodput"), "Gbit/s");
    rows(&goodput, |stream| stream.goodput / 1e9);
    Ok(outcome)
}
