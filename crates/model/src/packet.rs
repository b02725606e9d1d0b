//! What the model knows of a packet, and what it says of it.

use crate::time::Nanos;
use crate::units::Bytes;

/// The caller's name for a packet; the model hands it back unread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketId(pub u64);

/// A packet as the model sees it: a name and a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The caller's name for it.
    pub id: PacketId,
    /// Length of the L2 frame, headers and VLAN tags included, FCS not.
    pub len: Bytes,
}

/// The side by which a packet enters the link: `A` is the client's, and what enters there travels "up".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The client's side; packets from here go up.
    A,
    /// The server's side; packets from here go down.
    B,
}

impl Side {
    /// Where this side's entry stands in a pair.
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::A => 0,
            Self::B => 1,
        }
    }

    /// The side at which what enters here leaves.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropCause {
    /// Random loss.
    Loss,
    /// The queue was full.
    QueueFull,
}

/// What became of a packet that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It leaves by the other side at `due`, which may lie in the future.
    Deliver {
        /// The packet.
        id: PacketId,
        /// When its last bit leaves the link.
        due: Nanos,
    },
    /// It is dropped.
    Drop {
        /// The packet.
        id: PacketId,
        /// Why.
        cause: DropCause,
    },
}

impl Outcome {
    /// The packet.
    #[must_use]
    pub const fn id(&self) -> PacketId {
        match self {
            Self::Deliver { id, .. } | Self::Drop { id, .. } => *id,
        }
    }
}
