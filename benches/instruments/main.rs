//! The instruments beside their peers, in one run and on one veth pair: each figure as a ratio.
//!
//! Absolute figures belong to the machine and the hour; the ratios are what is claimed. An argument names the parts to run:
//! tcp, udp, pingpong, pacing, probe, hardening.

mod hardening;
mod pacing;
mod pair;
mod percentile;
mod pingpong;
mod probe;
#[path = "../common/spread.rs"]
mod spread;
mod tcp;
mod udp;

use anyhow::Result;
use netio::userns::{self, Privilege};

/// A part: the peers that it needs, and what it runs.
type Part = (&'static str, &'static [&'static str], fn() -> Result<()>);

const PARTS: [Part; 6] = [
    ("tcp", &["iperf3", "iperf", "nuttcp"], tcp::run),
    ("udp", &["iperf3", "iperf", "nuttcp"], udp::run),
    ("pingpong", &["sockperf"], pingpong::run),
    ("pacing", &["iperf3", "iperf", "nuttcp"], pacing::run),
    ("probe", &["irtt"], probe::run),
    ("hardening", &["iperf3"], hardening::run),
];

fn main() -> Result<()> {
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
    for (name, peers, run) in PARTS {
        if !named.is_empty() && !named.iter().any(|n| *n == name) {
            continue;
        }
        let missing: Vec<_> = peers.iter().filter(|p| which::which(p).is_err()).collect();
        if missing.is_empty() {
            run()?;
        } else {
            println!("{name} is left out: not installed: {missing:?}");
        }
        println!();
    }
    Ok(())
}
