//! farwire: a wide-area network between two interfaces, measured through, with the trust of every number stated.
#![forbid(unsafe_code)]

mod analysis;
mod cli;
mod doctor;
mod emulate;
mod exit;
mod experiment;
mod forward;
mod instrument;
mod link_spec;
mod report;
mod rig;
mod serve;
mod signals;
mod toml_file;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    netio::contain::divert();
    cli::Cli::try_parse().map_or_else(|error| exit::usage(&error), |cli| cli.run())
}
