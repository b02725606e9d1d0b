//! Compares netem with netem: the same packets pass through the kernel's sch_netem and queues, and through farwire's.
//!
//! The kernel is Debian's `user-mode-linux`, which runs as an ordinary process of an ordinary user and has modules that this machine's
//! kernel may lack. Inside it, a pair of virtual interfaces has each [`Job`]'s queueing discipline, and packets are sent and received
//! with stamps. The same packets, at the times at which they were sent there, then meet farwire's model in virtual time.
//!
//! Arguments name jobs to run.
#![allow(
    clippy::disallowed_macros,
    reason = "it prints its results, and nobody else uses it"
)]

mod compare;
mod guest;
mod host;
mod jobs;
mod ours;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;

use crate::host::Booted;
use crate::jobs::{AQMS, Job, NETEMS, NOTHING};

const OUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/netem");

fn main() -> Result<ExitCode> {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --benches` passes this; there is nothing to test here.
    if asked.iter().any(|a| a == "--test") {
        return Ok(ExitCode::SUCCESS);
    }
    if let [guest::ARGUMENT, directory] = asked.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        guest::run(Path::new(directory))?;
        return Ok(ExitCode::SUCCESS);
    }
    let wanted: Vec<&str> = asked
        .iter()
        .map(String::as_str)
        .filter(|a| !a.starts_with('-'))
        .collect();
    let is_wanted = |job: &&Job| wanted.is_empty() || wanted.contains(&job.name);
    let mut netems: Vec<&Job> = NETEMS.iter().filter(is_wanted).collect();
    if !netems.is_empty() && netems[0].name != NOTHING {
        netems.insert(0, &NETEMS[0]);
    }
    let aqms: Vec<&Job> = AQMS.iter().filter(is_wanted).collect();
    let directory = Path::new(OUT);
    match host::boot(directory, netems.iter().chain(&aqms).copied())? {
        Booted::Skipped(cause) => {
            println!("SKIPPED netem beside netem: {cause}");
            return Ok(ExitCode::SUCCESS);
        }
        Booted::Ran => {}
    }
    let is_like = compare::effects(directory, &netems)? & compare::queues(directory, &aqms)?;
    Ok(match is_like {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
