//! The packet path beside its peers, in one run: throughput as a ratio to the kernel bridge and to rattan, and
//! the departure error as stated against what a capture at the far end saw.
//!
//! Absolute figures belong to the machine and the hour; the ratios are what is claimed.

mod departure;
mod rivals;
#[path = "../common/spread.rs"]
mod spread;
mod throughput;

use netio::userns::{self, Privilege};

fn main() -> anyhow::Result<()> {
    netio::contain::divert();
    // Asked for by `cargo test --benches`: there is nothing to test here.
    if std::env::args().any(|a| a == "--test") {
        return Ok(());
    }
    match Privilege::detect() {
        Privilege::Root => {}
        Privilege::UserNamespace => userns::enter()?,
        Privilege::None { why } => anyhow::bail!("no test bed: {why}"),
    }
    throughput::run()?;
    departure::run()
}
