//! Every random effect, compared with the distribution that was configured, in virtual time with fixed seeds.
//!
//! A law holds if its p-value is above 1e-4. With `FARWIRE_SOAK=1` (`make soak`), ten times as many packets are sent,
//! and the same effect off by ten per cent must have a p-value below that. Each family of effects has a file; `harness`
//! and `statistics` are shared.
#![expect(
    clippy::unwrap_used,
    reason = "a helper that cannot set up its case fails the test, as in the tests themselves"
)]

mod changed;
mod delay;
mod harness;
mod loss;
mod netem;
mod reorder;
mod statistics;
