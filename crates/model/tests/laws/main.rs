//! Every random effect against the distribution that it was asked for, in virtual time with fixed seeds.
//!
//! A law holds if its p-value is above 1e-4; with `FARWIRE_SOAK=1` (`make soak`) at ten times the volume, at which the
//! same effect ten per cent off must come out below that. A family of effects has a file; what they share is in `harness`
//! and `statistics`.
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
