//! `farwire submit` on a real Slurm of this machine, which `scripts/slurm-here` starts.

#[path = "../docs/blocks.rs"]
#[allow(dead_code, reason = "this reads a part of what comments say")]
mod blocks;
mod cases;
mod cluster;
#[path = "../common/mod.rs"]
mod common;
mod fake;
mod faults;
mod refusals;
mod soak;
mod tutorial;

use std::process::ExitCode;

use common::suite::Suite;

fn main() -> ExitCode {
    let mut suite = Suite::new();
    fake::add(&mut suite);
    refusals::add(&mut suite);
    cases::add(&mut suite);
    faults::add(&mut suite);
    tutorial::add(&mut suite);
    soak::add(&mut suite);
    let code = suite.run();
    cluster::stop();
    code
}
