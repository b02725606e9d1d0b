//! Strangers, hostile files and sudden ends: what the program does with the worst of its world.

mod capacity;
mod files;
mod iperf3_cves;
mod kills;
mod limits;
mod log;
mod loops;
mod places;
mod privilege;
mod soak;
mod wan_box;

use std::process::ExitCode;

use test_support::powerless;
use test_support::suite::{Suite, gain_privilege};

fn main() -> ExitCode {
    powerless::divert();
    gain_privilege();
    let mut suite = Suite::new();
    capacity::add(&mut suite);
    limits::add(&mut suite);
    places::add(&mut suite);
    log::add(&mut suite);
    loops::add(&mut suite);
    privilege::add(&mut suite);
    files::add(&mut suite);
    wan_box::add(&mut suite);
    iperf3_cves::add(&mut suite);
    kills::add(&mut suite);
    soak::add(&mut suite);
    suite.run()
}
