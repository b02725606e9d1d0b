//! Messages over TCP or UDP, as nettest (document 003) and the Perl transfer test (document 004) sent them:
//! `pingpong` for round-trip times, `blast` for throughput against message size, `transfer` for the reads at the
//! receiver. One small framing of ours carries all three: see [`wire`].

pub mod args;
pub(crate) mod blast;
pub mod blast_args;
mod client;
mod datagrams;
pub(crate) mod exchange;
pub(crate) mod far_end;
mod fields;
mod floor;
pub(crate) mod pingpong;
pub mod pingpong_args;
mod recorder;
pub mod server;
pub mod sizes;
pub(crate) mod tables;
pub(crate) mod transfer;
pub mod transfer_args;
mod udp_pingpong;
pub mod wire;

pub(crate) use client::{FarEnd, SILENCE};

#[cfg(test)]
mod tests;
