//! Every system call and every unsafe line of farwire: ports, trains, namespaces, clocks, offloads.

mod af_packet;
pub mod bed;
mod checksum;
pub mod clock;
pub mod connection;
pub mod contain;
mod control;
pub mod cpu;
mod frame;
pub mod guard;
pub mod iface;
pub mod kernel;
pub mod lease;
mod memory;
mod netlink;
pub mod netns;
pub mod offloads;
mod port;
mod sleeper;
mod stamped;
pub mod tcp;
pub mod tied;
mod train;
pub mod udp;
pub mod userns;
mod wait;

pub use af_packet::{AfPacket, OpenError};
pub use control::is_link_control;
pub use frame::{Frame, Gso, GsoKind, Offload, PartialChecksum, Vlan};
pub use memory::{Memory, Sent};
pub use netlink::NetlinkError;
pub use port::{Capabilities, Head, MAX_HEAD, Piece, Port, Received};
pub use sleeper::Sleeper;
pub use stamped::{Arrival, Report, StampedUdp};
pub use train::{Train, Uncuttable};
pub use wait::{Alarm, CpuUse, Waiter, ask_for_short_slices};
