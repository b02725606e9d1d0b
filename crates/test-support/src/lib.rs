//! Code that the tests of the built program share: the list of tests, the program as a child process, test beds,
//! traffic and captures.
#![allow(
    clippy::disallowed_macros,
    reason = "what a test prints is read by its harness"
)]
#![allow(
    missing_docs,
    reason = "fields of what the program prints are documented where it prints them"
)]

pub mod api;
pub mod blocks;
pub mod capture;
pub mod counters;
pub mod datagrams;
pub mod family;
pub mod far_end;
pub mod host;
pub mod measured;
pub mod nft;
pub mod powerless;
pub mod process;
pub mod raw;
pub mod scenario;
pub mod state;
pub mod steering;
pub mod stream;
pub mod suite;
pub mod usage;
pub mod wan_box;

pub use inventory;
pub use test_macros::{test, tests};

/// Addresses of the far end of `farwire exec`.
pub const FAR_ENDS: [&str; 2] = ["10.77.0.2", "fd77::2"];

/// Returns the addresses of [`FAR_ENDS`] over which the effects are tried: without the long tests only the one of IPv4, because the
/// effects are the same for both.
pub fn far_ends_of_effects() -> &'static [&'static str] {
    if is_all() { &FAR_ENDS } else { &FAR_ENDS[..1] }
}

/// Returns whether full volumes and durations were requested with `FARWIRE_SOAK=1`.
pub fn is_soak() -> bool {
    std::env::var_os("FARWIRE_SOAK").is_some_and(|value| value == "1")
}

/// Returns whether the long tests that `make test` leaves out were requested, too, with `FARWIRE_TEST_ALL=1`.
pub fn is_all() -> bool {
    is_soak() || std::env::var_os("FARWIRE_TEST_ALL").is_some_and(|value| value == "1")
}
