//! The commands `run`, `calibrate`, `measure`, `serve` and `report` as a user meets them.

mod beds;
mod calibrated;
mod compared;
mod instruments;
mod interrupted;
mod kept;
mod pages;
mod refusals;
mod resumed;
mod runs;
mod screen;
mod several;
mod sharded;
mod shipped;
mod small;

use std::process::ExitCode;

use test_support::powerless;
use test_support::suite::Suite;

fn main() -> ExitCode {
    powerless::divert();
    let mut suite = Suite::new();
    runs::add(&mut suite);
    screen::add(&mut suite);
    beds::add(&mut suite);
    calibrated::add(&mut suite);
    compared::add(&mut suite);
    instruments::add(&mut suite);
    interrupted::add(&mut suite);
    kept::add(&mut suite);
    several::add(&mut suite);
    sharded::add(&mut suite);
    pages::add(&mut suite);
    refusals::add(&mut suite);
    resumed::add(&mut suite);
    shipped::add(&mut suite);
    suite.run()
}
