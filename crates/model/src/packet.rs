//! Packets as the model sees them, and their outcomes.

use core::num::NonZeroU8;

use crate::time::Nanos;
use crate::units::Bytes;

/// An identifier that the caller chooses; the model returns it unread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketId(pub u64);

/// The properties of a packet that the model uses. Its bytes are not among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The caller's identifier.
    pub id: PacketId,
    /// The length of the L2 frame: with headers and VLAN tags, without FCS.
    pub len: Bytes,
    /// The flow, for queues and delays that treat flows separately.
    pub flow: Flow,
    /// The class of the rule that the packet matched; 0 if it matched none. A class that the link does not have counts
    /// as 0.
    pub class: u16,
    /// The ECN codepoint in its IP header.
    pub ecn: Ecn,
    /// The offset of its L3 header in the frame: the L2 bytes before it do not count towards an MTU.
    pub l3_at: u8,
}

/// Hashes of a packet's addresses and ports; equal addresses and ports have equal hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flow {
    /// The hash of protocol, addresses and ports together.
    pub id: u32,
    /// The hash of the source address.
    pub source: u32,
    /// The hash of the destination address.
    pub destination: u32,
}

/// The ECN field of an IP header: the four codepoints of RFC 3168, section 5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ecn {
    /// Not-ECT: the sender does not understand congestion marks, so the packet is dropped where others are marked.
    #[default]
    NotEct,
    /// ECT(1): the sender understands congestion marks; under RFC 9331, it expects frequent ones.
    Ect1,
    /// ECT(0): the sender understands congestion marks.
    Ect0,
    /// CE: the packet is marked already.
    Ce,
}

/// The side at which a packet enters the link. `A` is the client's side, and packets that enter there travel "up".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The client's side; packets from here go up.
    A,
    /// The server's side; packets from here go down.
    B,
}

/// The reason for a drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropCause {
    /// Random loss.
    Loss,
    /// The queue was full.
    QueueFull,
    /// Active queue management dropped it before the queue was full.
    Aqm,
    /// It was longer than the path's MTU.
    TooBig,
    /// It exceeded the rate and the burst of a policer.
    Policed,
}

/// The outcome of a packet that was offered, or of a copy of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A copy was made. This comes before every other outcome of the packet, and the copy's own outcome will follow.
    Copied {
        /// The packet.
        id: PacketId,
        /// The copy's number: never 0, and different from the numbers of the last 4 billion copies.
        copy: u32,
    },
    /// It leaves the link at the other side at `due`, which may lie in the future.
    Deliver {
        /// The packet.
        id: PacketId,
        /// The copy's number; 0 for the packet itself.
        copy: u32,
        /// The time at which its last bit leaves the link.
        due: Nanos,
        /// Whether it leaves with a congestion mark (CE) that it did not have when it arrived.
        mark: bool,
        /// The change of its bytes, which the caller carries out.
        edit: Option<Edit>,
    },
    /// It is dropped.
    Drop {
        /// The packet.
        id: PacketId,
        /// The copy's number; 0 for the packet itself.
        copy: u32,
        /// The time of the drop.
        at: Nanos,
        /// The reason for the drop.
        cause: DropCause,
        /// The message that its sender should get.
        reply: Option<Reply>,
        /// The number of the hop that dropped it: its place in [`Link::hops`](crate::Link::hops), from 1; 0 if the stage
        /// that dropped it belongs to no hop.
        hop: u16,
    },
}

/// A change of a packet's bytes, which the caller carries out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Bits are flipped. Without `repair`, they are among all bits behind the IP header, and no checksum is corrected.
    /// With `repair`, they are among the bits that TCP, UDP or ICMP carry, and the checksum is corrected.
    FlipBits {
        /// The position of the first bit, counted from the first of those bits, modulo their number. The other
        /// positions follow from it.
        first: u32,
        /// The number of bits.
        count: NonZeroU8,
        /// Whether the checksum is corrected.
        repair: bool,
    },
}

/// An ICMP message to the sender of a dropped packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The packet was too long: fragmentation needed (RFC 1191), or packet too big (RFC 4443, section 3.2).
    TooBig {
        /// The MTU that the message states: the length of the longest packet that would have passed, in L3 bytes.
        mtu: u16,
    },
}

impl Packet {
    /// Creates a packet of `len` L2 bytes behind an untagged Ethernet header, without a flow, a class or a congestion
    /// mark.
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
    /// Both sides.
    pub const BOTH: [Self; 2] = [Self::A, Self::B];

    /// Returns this side's index in a pair of values: 0 for `A`, 1 for `B`.
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::A => 0,
            Self::B => 1,
        }
    }

    /// Returns the opposite side, at which packets that enter here leave.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

impl DropCause {
    /// All causes.
    pub const ALL: [Self; 5] = [
        Self::Loss,
        Self::QueueFull,
        Self::Aqm,
        Self::TooBig,
        Self::Policed,
    ];

    /// Returns the cause's name in records and logs.
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
    /// Returns the packet's identifier.
    #[must_use]
    pub const fn id(&self) -> PacketId {
        match self {
            Self::Copied { id, .. } | Self::Deliver { id, .. } | Self::Drop { id, .. } => *id,
        }
    }
}
