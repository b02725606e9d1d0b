//! iperf3's protocol: what client and server say, and the streams of a test at either end.

pub mod args;
pub(crate) mod client;
pub(crate) mod control;
mod fields;
pub(crate) mod params;
pub(crate) mod plan;
pub(crate) mod results;
pub(crate) mod run;
pub mod server;
pub(crate) mod start;
pub(crate) mod tcp;
pub(crate) mod wire;
