//! What the model knows of a packet, and what it says of it.

use core::num::NonZeroU8;

use crate::time::Nanos;
use crate::units::Bytes;

/// The caller's name for a packet; the model hands it back unread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketId(pub u64);

/// A packet as the model sees it: what decides its way, and not a byte of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The caller's name for it.
    pub id: PacketId,
    /// Length of the L2 frame, headers and VLAN tags included, FCS not.
    pub len: Bytes,
    /// Whose packet it is, for queues that tell flows apart.
    pub flow: Flow,
    /// The class of the rule that it met; 0 where it met none. A class that the link does not have is taken for 0.
    pub class: u16,
    /// What its IP header says of congestion marks.
    pub ecn: Ecn,
    /// Where its L3 header begins: the L2 bytes before that do not count towards an MTU.
    pub l3_at: u8,
}

/// Hashes of who talks to whom; equal where those are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flow {
    /// Of protocol, addresses and ports together.
    pub id: u32,
    /// Of the source address.
    pub source: u32,
    /// Of the destination address.
    pub destination: u32,
}

/// The four codepoints of RFC 3168, section 5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ecn {
    /// Its sender does not understand marks: it is dropped where others are marked.
    #[default]
    NotEct,
    /// ECT(1): its sender understands marks; under RFC 9331, frequent ones.
    Ect1,
    /// ECT(0): its sender understands marks.
    Ect0,
    /// It is marked already.
    Ce,
}

/// The side by which a packet enters the link: `A` is the client's, and what enters there travels "up".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The client's side; packets from here go up.
    A,
    /// The server's side; packets from here go down.
    B,
}

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropCause {
    /// Random loss.
    Loss,
    /// The queue was full.
    QueueFull,
    /// Active queue management, before the queue was full.
    Aqm,
    /// It was longer than the path's MTU.
    TooBig,
    /// It came faster than a policer lets pass.
    Policed,
}

/// What became of a packet that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There is one more of it. Comes before every other outcome of this packet, and promises one for the copy.
    Copied {
        /// The packet.
        id: PacketId,
        /// The copy's number: never 0, and another one for each of the last 4 billion copies.
        copy: u32,
    },
    /// It leaves by the other side at `due`, which may lie in the future.
    Deliver {
        /// The packet.
        id: PacketId,
        /// Which of its copies; 0 is the packet itself.
        copy: u32,
        /// When its last bit leaves the link.
        due: Nanos,
        /// Whether it leaves with a congestion mark (CE) that it did not come with.
        mark: bool,
        /// What is done to its bytes.
        edit: Option<Edit>,
    },
    /// It is dropped.
    Drop {
        /// The packet.
        id: PacketId,
        /// Which of its copies; 0 is the packet itself.
        copy: u32,
        /// When.
        at: Nanos,
        /// Why.
        cause: DropCause,
        /// What its sender is told.
        reply: Option<Reply>,
    },
}

/// A change of a packet's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Bits are flipped: of those behind the IP header, and no checksum is mended; or with `repair` of those that TCP, UDP and
    /// ICMP carry, and the checksum is mended.
    FlipBits {
        /// The number of the first, from the first one there, modulo how many there are. The others follow from it.
        first: u32,
        /// How many.
        count: NonZeroU8,
        /// Whether the checksum stays right.
        repair: bool,
    },
}

/// What the sender of a dropped packet is told, by ICMP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It was too long: fragmentation needed (RFC 1191), or packet too big (RFC 4443, section 3.2). Says the MTU, in L3 bytes.
    TooBig {
        /// The longest packet that would have passed, in L3 bytes.
        mtu: u16,
    },
}

impl Packet {
    /// A packet of `len` L2 bytes of no flow, no class and no marks, behind an untagged Ethernet header.
    #[must_use]
    pub const fn new(id: PacketId, len: Bytes) -> Self {
        Self {
            id,
            len,
            flow: Flow {
                id: 0,
                source: 0,
                destination: 0,
            },
            class: 0,
            ecn: Ecn::NotEct,
            l3_at: 14,
        }
    }
}

impl Side {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::A, Self::B];

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

impl DropCause {
    /// Every cause.
    pub const ALL: [Self; 5] = [
        Self::Loss,
        Self::QueueFull,
        Self::Aqm,
        Self::TooBig,
        Self::Policed,
    ];

    /// Its name in records and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::QueueFull => "queue_full",
            Self::Aqm => "aqm",
            Self::TooBig => "too_big",
            Self::Policed => "policed",
        }
    }
}

impl Outcome {
    /// The packet.
    #[must_use]
    pub const fn id(&self) -> PacketId {
        match self {
            Self::Copied { id, .. } | Self::Deliver { id, .. } | Self::Drop { id, .. } => *id,
        }
    }
}
