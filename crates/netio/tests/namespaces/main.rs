//! Tests in separate namespaces with real interfaces, packets and processes. They run as root or, with a user
//! namespace, without privileges.
//!
//! They count descriptors and processes, so each runs alone.
#![allow(
    clippy::disallowed_macros,
    reason = "what a test prints is read by its harness"
)]
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking; clippy's own exception needs #[test]"
)]

mod bed;
mod changes;
mod contain;
mod helper;
mod ingress_drop;
mod joined;
mod tunnel_out;

use std::process::ExitCode;

fn main() -> ExitCode {
    farwire_netio::contain::divert();
    helper::divert();
    test_support::suite::run(&[
        "bed",
        "changes",
        "contain",
        "ingress_drop",
        "joined",
        "tunnel_out",
    ])
}
