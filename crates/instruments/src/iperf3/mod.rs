//! iperf3's protocol: what client and server say, and the streams of a test at either end.

pub mod args;
pub(crate) mod client;
pub(crate) mod control;
mod detail;
pub(crate) mod messages;
pub(crate) mod plan;
pub(crate) mod run;
pub(crate) mod server;
pub(crate) mod start;
pub(crate) mod stated;
pub(crate) mod tcp;
pub(crate) mod tool;
pub mod udp;
pub(crate) mod wire;
