//! The built program on real packets. A module is a suite; `cargo test --test system -- live::` runs one.
#![allow(
    clippy::disallowed_macros,
    reason = "what a test prints is read by its harness"
)]

mod ci;
mod docs;
mod emulate;
mod exec;
mod experiment;
mod host_network;
mod hostile;
mod install;
mod instruments;
mod live;
mod page;
mod python;
mod slurm;
mod traffic;

use std::process::ExitCode;

use test_support::{powerless, suite};

/// The suites that run as root of a user namespace when an ordinary user runs them.
const AS_ROOT: [&str; 5] = [
    "emulate",
    "host_network",
    "hostile",
    "instruments",
    "traffic",
];

fn main() -> ExitCode {
    powerless::divert();
    let code = suite::run(&AS_ROOT);
    slurm::stop();
    code
}
