//! The page of a running link, in Chromium: what a user does there by hand, and that the link follows.

mod axe;
mod browser;
#[path = "../common/mod.rs"]
mod common;
mod run;
mod walk;

use std::process::ExitCode;

use common::suite::Suite;

fn main() -> ExitCode {
    common::powerless::divert();
    let mut suite = Suite::new();
    walk::add(&mut suite);
    run::add(&mut suite);
    axe::add(&mut suite);
    suite.run()
}
