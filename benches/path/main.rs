//! The packet path beside its peers, in one run: throughput and small packets as ratios to the kernel bridge and to rattan,
//! and the departure error as stated against what a capture at the far end saw.
//!
//! Absolute figures belong to the machine and the hour; the ratios are what is claimed. An argument names the parts to run:
//! throughput, packets, departure.

mod departure;
mod packets;
mod rivals;
mod rounds;
#[path = "../common/spread.rs"]
mod spread;
mod throughput;

use anyhow::Result;
use netio::userns::{self, Privilege};

/// A part's name, and what it runs.
type Part = (&'static str, fn() -> Result<()>);

const PARTS: [Part; 3] = [
    ("throughput", throughput::run),
    ("packets", packets::run),
    ("departure", departure::run),
];

fn main() -> Result<()> {
    netio::contain::divert();
    let asked: Vec<String> = std::env::args().skip(1).collect();
    // Asked for by `cargo test --benches`: there is nothing to test here.
    if asked.iter().any(|a| a == "--test") {
        return Ok(());
    }
    match Privilege::detect() {
        Privilege::Root => {}
        Privilege::UserNamespace => userns::enter()?,
        Privilege::None { why } => anyhow::bail!("no test bed: {why}"),
    }
    let named: Vec<&String> = asked.iter().filter(|a| !a.starts_with('-')).collect();
    for (name, run) in PARTS {
        if named.is_empty() || named.iter().any(|asked| *asked == name) {
            run()?;
            println!();
        }
    }
    Ok(())
}
