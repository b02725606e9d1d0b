//! `farwire submit` on a real Slurm of this machine, which `scripts/slurm-here` starts.

mod cases;
mod cluster;
mod fake;
mod faults;
mod refusals;
mod soak;
mod tutorial;

use std::process::ExitCode;

use test_support::suite::Suite;

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
