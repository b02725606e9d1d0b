//! The page of a running link, in Chromium: what a user does there by hand, and that the link follows.

mod axe;
mod browser;
mod run;
mod walk;

use std::process::ExitCode;

use test_support::powerless;
use test_support::suite::Suite;

fn main() -> ExitCode {
    powerless::divert();
    let mut suite = Suite::new();
    walk::add(&mut suite);
    run::add(&mut suite);
    axe::add(&mut suite);
    suite.run()
}
