//! Links of a running `farwire exec`, watched and changed over HTTP and on a terminal.

mod beyond;
mod changes;
mod conformance;
mod floods;
mod instant;
mod leases;
mod metrics;
mod packets;
mod refusals;
mod replay;
mod round_trips;
mod run;
mod schedule;
mod screen;
mod soak;
mod view;

use std::process::ExitCode;

use test_support::powerless;
use test_support::suite::Suite;

fn main() -> ExitCode {
    powerless::divert();
    let mut suite = Suite::new();
    changes::add(&mut suite);
    floods::add(&mut suite);
    instant::add(&mut suite);
    leases::add(&mut suite);
    metrics::add(&mut suite);
    beyond::add(&mut suite);
    replay::add(&mut suite);
    round_trips::add(&mut suite);
    packets::add(&mut suite);
    refusals::add(&mut suite);
    conformance::add(&mut suite);
    run::add(&mut suite);
    schedule::add(&mut suite);
    screen::add(&mut suite);
    soak::add(&mut suite);
    view::add(&mut suite);
    suite.run()
}
