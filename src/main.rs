//! farwire: a wide-area network between two interfaces, measured through, with the trust of every number stated.
#![forbid(unsafe_code)]

mod analysis;
mod cli;
mod experiment;
mod fault;
mod instrument;
mod link_spec;
mod report;
mod serve;
mod toml_file;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(cli::serve::ServeArgs),
    Measure(cli::measure::MeasureArgs),
    Report(cli::report::ReportArgs),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve(args) => cli::serve::run(&args),
        Command::Measure(args) => cli::measure::run(&args),
        Command::Report(args) => cli::report::run(&args),
    };
    let code = result.unwrap_or_else(|error| {
        eprintln!("farwire: {error:#}");
        fault::exit_code(&error)
    });
    ExitCode::from(code)
}
