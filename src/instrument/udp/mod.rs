//! UDP as iperf3 sends it: numbered datagrams on an absolute schedule, and the account of what became of them.

mod account;
mod datagram;
