//! `farwire emulate`: a transparent box between two interfaces that leaves them as they were.

mod capture;
mod frames;
mod host;
mod lifecycle;
mod links;
mod listen;
mod nics;
mod on_exit;
mod recovery;
mod refusals;
mod service;
mod transparent;
mod tunnels;

use std::process::ExitCode;

use test_support::powerless;
use test_support::suite::{Suite, gain_privilege};

fn main() -> ExitCode {
    powerless::divert();
    gain_privilege();
    let mut suite = Suite::new();
    transparent::add(&mut suite);
    capture::add(&mut suite);
    tunnels::add(&mut suite);
    host::add(&mut suite);
    refusals::add(&mut suite);
    lifecycle::add(&mut suite);
    listen::add(&mut suite);
    links::add(&mut suite);
    nics::add(&mut suite);
    on_exit::add(&mut suite);
    recovery::add(&mut suite);
    service::add(&mut suite);
    suite.run()
}
