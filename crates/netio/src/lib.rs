//! Every system call and every unsafe line of farwire: ports, trains, namespaces, clocks, offloads.

mod af_packet;
mod checksum;
pub mod clock;
mod control;
mod frame;
mod memory;
mod port;
mod train;
mod wait;

pub use af_packet::{AfPacket, OpenError};
pub use control::is_link_control;
pub use frame::{Frame, Gso, GsoKind, Offload, PartialChecksum, Vlan};
pub use memory::{Memory, Sent};
pub use port::{Capabilities, Head, MAX_HEAD, Piece, Port, Received};
pub use train::{Train, Uncuttable};
pub use wait::{Alarm, CpuUse, Waiter};
