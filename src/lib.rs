//! The farwire program as a library, for fuzzers, benchmarks and examples. It is not a public API.
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_macros,
        reason = "the test harness reads the output of a test"
    )
)]
#![forbid(unsafe_code)]

mod cli;
mod doctor;
mod emulate;
mod end_names;
mod exit;
mod experiment;
mod far_end;
pub mod forward;
pub mod fuzzing;
mod host_network;
mod live;
mod misplaced_keys;
mod named_files;
mod notes;
mod peer_names;
mod profile_folders;
mod progress;
mod service_manager;
mod submit;
mod testbed;
mod toml_file;
mod trace_files;
mod tui;
mod web;

use std::process::ExitCode;

/// Runs the command that the process was started with and gives its exit code.
#[must_use]
pub fn main() -> ExitCode {
    netio::contain::divert();
    cli::Cli::from_command_line().map_or_else(|error| exit::usage(&error), |cli| cli.run())
}
