//! farwire's program as a library, so that fuzzers, benches and examples reach what the binary is made of; not a public API.
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_macros,
        reason = "what a test prints is read by its harness"
    )
)]
#![forbid(unsafe_code)]

mod cli;
mod doctor;
mod emulate;
mod exit;
mod experiment;
pub mod forward;
pub mod fuzzing;
mod live;
mod named_files;
mod notes;
mod progress;
mod service_manager;
mod submit;
mod testbed;
mod toml_file;
mod tui;
mod web;

use std::process::ExitCode;

/// Runs the command that the process was started with and gives its exit code.
#[must_use]
pub fn main() -> ExitCode {
    netio::contain::divert();
    cli::Cli::from_command_line().map_or_else(|error| exit::usage(&error), |cli| cli.run())
}
