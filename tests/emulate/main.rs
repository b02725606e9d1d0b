//! `farwire emulate`: a transparent box between two interfaces that leaves them as they were.

#[path = "../common/mod.rs"]
mod common;
mod frames;
mod host;
mod lifecycle;
mod nics;
mod refusals;
mod state;
mod transparent;
mod tunnels;

use std::process::ExitCode;

use common::powerless;
use common::suite::{Suite, gain_privilege};

fn main() -> ExitCode {
    powerless::divert();
    gain_privilege();
    let mut suite = Suite::new();
    transparent::add(&mut suite);
    tunnels::add(&mut suite);
    host::add(&mut suite);
    refusals::add(&mut suite);
    lifecycle::add(&mut suite);
    nics::add(&mut suite);
    suite.run()
}
