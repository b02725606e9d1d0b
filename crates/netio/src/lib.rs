//! All system calls and all unsafe code of farwire: ports, GSO frames, namespaces, clocks, offloads.

mod af_packet;
pub mod bed;
mod bridge;
mod change;
mod checksum;
pub mod clock;
pub mod console;
pub mod contain;
mod control;
pub mod cpu;
mod five_tuple;
mod flip;
mod frame;
pub mod fuzzing;
mod gso;
pub mod heap;
mod icmp;
pub mod iface;
pub mod ingress_drop;
mod ip;
pub mod kernel;
pub mod kill_on_drop;
pub mod lease;
mod memory;
mod netlink;
pub mod netns;
pub mod nic;
pub mod offloads;
mod packet;
mod packet_info;
mod port;
pub mod private_dir;
mod probe;
pub mod public_address;
mod redirect;
pub mod sandbox;
pub mod signals;
mod sleep_margin;
mod sleeper;
mod socket_option;
pub mod stop;
pub mod tbf;
pub mod tcp;
mod timestamped;
pub mod udp;
mod udp_drops;
pub mod userns;
mod wait;

pub use af_packet::{AfPacket, COPY_BELOW, LentSlot, OpenError, RingSlots, TunnelOutError};
pub use control::is_link_control;
pub use five_tuple::FiveTuple;
pub use frame::{Frame, FrameBytes, FrameRef, Gso, GsoKind, Lent, Offload, PartialChecksum, Vlan};
pub use gso::{GsoFrame, UnsupportedGso};
pub use icmp::too_big;
pub use memory::{MemoryPort, Sent};
pub use netlink::NetlinkError;
pub use packet::Headers;
pub use port::{
    Capabilities, FrameHead, MAX_HEAD, Missed, PortSet, ReceivedFrame, SendTimes, Spare,
    TunnelHeaders, TxFrame,
};
pub use probe::{ProbeKind, ProbeReply, ProbeRequest};
pub use sleeper::Sleeper;
pub use timestamped::{Arrival, SendReport, TimestampedUdp};
pub use udp_drops::{DropCauses, FullDrops, UdpErrors};
pub use wait::{Alarm, CpuUse, Stall, Waiter, Wakes, ask_for_short_slices};
