//! The model's behaviour in virtual time: no clock, no sleep, every draw from a seed.
#![expect(
    clippy::unwrap_used,
    reason = "a helper that cannot set up its case fails the test, as in the tests themselves"
)]

mod bottleneck;
mod drive;
mod invariants;
mod journey;
mod randomness;
mod units;
