//! iperf3's protocol: the messages of client and server, and the streams of a test at either end.

pub mod args;
pub(crate) mod client;
pub(crate) mod control;
mod detail;
mod json;
pub(crate) mod messages;
pub(crate) mod metrics;
pub(crate) mod plan;
pub(crate) mod run;
pub(crate) mod server;
pub(crate) mod tcp;
pub(crate) mod tool;
pub mod udp;
pub(crate) mod wire;

pub use json::intervals;
