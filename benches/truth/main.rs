//! Every instrument through a known link, run after run, against what the emulator counted: does the stated 95 %
//! interval hold the truth?
//!
//! 20 ms each way, 50 mbit, 1 % loss in each direction, one seed a run. At least 18 of 20
//! should; what falls short is named and ends the bench with 1. An argument names the instruments to run.

mod cases;
mod link;
mod packet_log;

use std::process::ExitCode;

use anyhow::Result;

use crate::cases::CASES;

const RUNS: u64 = 20;
const ENOUGH: usize = 18;

fn main() -> Result<ExitCode> {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    // Asked for by `cargo test --benches`: there is nothing to test here.
    if asked.iter().any(|a| a == "--test") {
        return Ok(ExitCode::SUCCESS);
    }
    let named: Vec<&String> = asked.iter().filter(|a| !a.starts_with('-')).collect();
    println!(
        "{RUNS} seeded runs each through 20 ms each way, 50 mbit (L2 without FCS), 1 % loss each way; in how many the 95 % interval holds what the emulator counted\n"
    );
    println!(
        "{:<10} {:<34} {:>8} {:>14} {:>14} {:>14}",
        "", "", "holds", "truth", "deviation", "interval"
    );
    let mut short = false;
    for case in CASES {
        if !named.is_empty() && !named.iter().any(|n| *n == case.name) {
            continue;
        }
        let runs = (1..=RUNS).map(|seed| link::run(seed, case.arguments));
        let runs: Vec<link::Run> = runs.collect::<Result<_>>()?;
        for check in case.checks {
            let verdict = check.of(&runs)?;
            short |= verdict.held < ENOUGH;
            println!("{:<10} {:<34} {verdict}", case.name, check.title());
        }
    }
    Ok(if short {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}
