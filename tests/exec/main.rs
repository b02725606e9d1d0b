//! `farwire exec`: the command behind the link, its exit code, and what it leaves behind: nothing.

mod capture;
mod command;
mod delays;
mod effects;
mod faults;
mod link;
mod packet_log;
mod shell;

use std::process::ExitCode;

use test_support::powerless;
use test_support::suite::Suite;

fn main() -> ExitCode {
    powerless::divert();
    let mut suite = Suite::new();
    link::add(&mut suite);
    effects::add(&mut suite);
    delays::add(&mut suite);
    command::add(&mut suite);
    faults::add(&mut suite);
    packet_log::add(&mut suite);
    capture::add(&mut suite);
    shell::add(&mut suite);
    suite.run()
}
