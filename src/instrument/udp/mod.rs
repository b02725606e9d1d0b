//! UDP as iperf3 sends it: numbered datagrams on an absolute schedule, and the account of what became of them.

mod account;
mod datagram;
mod detail;
pub(crate) mod greeting;
mod line;
mod pacing;
mod receiver;
mod schedule;
mod sender;
#[cfg(test)]
mod speed;
mod streams;

pub(crate) use self::datagram::Counter;
pub(crate) use self::detail::{Detail, ReceiverDetail, SenderDetail};
pub(crate) use self::streams::{StreamEnd, StreamReading, UdpStreams};
