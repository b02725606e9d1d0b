//! What the tests of the built program share.
#![allow(dead_code, reason = "each test program uses a part of this")]

pub(crate) mod api;
pub(crate) mod capture;
pub(crate) mod counters;
pub(crate) mod datagrams;
pub(crate) mod far_end;
pub(crate) mod measured;
pub(crate) mod nft;
pub(crate) mod powerless;
pub(crate) mod process;
pub(crate) mod raw;
pub(crate) mod state;
pub(crate) mod steering;
pub(crate) mod stream;
pub(crate) mod suite;
pub(crate) mod usage;
pub(crate) mod wan_box;

/// Whether the full volumes and durations were asked for, with `FARWIRE_SOAK=1`.
pub(crate) fn is_soak() -> bool {
    std::env::var_os("FARWIRE_SOAK").is_some_and(|value| value == "1")
}
