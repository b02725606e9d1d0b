//! UDP as iperf3 sends it: numbered datagrams on an absolute schedule, and counts of those that arrived.
//!
//! A train is a run of datagrams that one call sends (UDP GSO) or receives (UDP GRO).

pub mod args;
mod flow;
mod measure;
mod readings;
mod receiver;
mod receiver_stats;
mod report;
mod schedule;
mod sender;
mod streams;
pub(crate) mod wire;

pub(crate) use self::measure::measure;
pub(crate) use self::report::measurement;
pub(crate) use self::streams::{UdpStreams, memory};
