//! UDP as iperf3 sends it: numbered datagrams on an absolute schedule, and the account of what became of them.

mod account;
pub mod args;
mod datagram;
mod detail;
mod flow;
pub(crate) mod greeting;
mod line;
mod measure;
mod pacing;
mod receiver;
mod report;
mod schedule;
mod sender;
mod stream;
mod streams;

#[cfg(test)]
pub(crate) use self::datagram::Counter;
pub(crate) use self::detail::Detail;
pub(crate) use self::measure::measure;
pub(crate) use self::report::measurement;
pub(crate) use self::streams::{End, UdpStreams, memory};
