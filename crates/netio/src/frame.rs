//! A frame as a port passes it: its bytes, its arrival time, and the work that the kernel left to be done.

use std::convert::Infallible;

use model::Nanos;

/// The work that the kernel left to be done on a frame's bytes, as `struct virtio_net_hdr` describes it
/// (include/uapi/linux/virtio_net.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// The frame carries several segments under one header.
    pub gso: Option<Gso>,
    /// The transport checksum holds only the sum of the pseudo header and must be completed.
    pub checksum: Option<PartialChecksum>,
}

/// Generic segmentation offload: the kind of the segments, and the payload bytes of each except the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gso {
    /// The kind of the segments.
    pub kind: GsoKind,
    /// Payload bytes per segment, above 0.
    pub size: u16,
    /// Whether CWR belongs to the first segment alone (classic ECN, RFC 3168); otherwise it belongs to every segment
    /// (AccECN).
    pub ecn: bool,
}

/// The GSO frames that the virtio header can describe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GsoKind {
    /// TCP over IPv4.
    TcpV4,
    /// TCP over IPv6.
    TcpV6,
    /// UDP datagrams of one size (`UDP_SEGMENT`), since Linux 6.2.
    Udp,
}

/// The start of a checksum's sum and the place where it is stored, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialChecksum {
    /// Offset of the first byte of the sum, from the start of the frame.
    pub start: u16,
    /// Offset of the checksum, from `start`.
    pub offset: u16,
}

/// A VLAN tag that the kernel removed from the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vlan {
    /// Tag protocol: 0x8100 or 0x88a8.
    pub tpid: u16,
    /// Priority, DEI and VLAN id.
    pub tci: u16,
}

impl Vlan {
    /// Returns the tag as it is in a frame after the two addresses.
    pub fn bytes(self) -> [u8; 4] {
        let ([a, b], [c, d]) = (self.tpid.to_be_bytes(), self.tci.to_be_bytes());
        [a, b, c, d]
    }
}

/// Bytes in the memory of a port that are lent to a [`Frame`]. Dropping them gives them back.
pub trait Lent {
    /// Returns the bytes, which do not change until they are given back.
    fn bytes(&self) -> &[u8];

    /// Returns the number of the place in the port's memory that they occupy. No two frames of a port occupy the same
    /// place at the same time.
    fn place(&self) -> usize;
}

/// The type for a port that lends nothing, because all its frames own their bytes.
impl Lent for Infallible {
    fn bytes(&self) -> &[u8] {
        match *self {}
    }

    fn place(&self) -> usize {
        match *self {}
    }
}

/// The bytes of a frame, wherever they are, and the information about them.
#[derive(Clone, Copy, Debug)]
pub struct FrameRef<'b> {
    /// Arrival time.
    pub arrival: Nanos,
    /// The work that is left to be done.
    pub offload: Offload,
    /// The VLAN tag that was removed.
    pub vlan: Option<Vlan>,
    /// The frame from its Ethernet header on, without the removed tag.
    pub bytes: &'b [u8],
}

/// A received frame. It either owns its bytes, or its port lends them until the frame is dropped or [`FrameBytes::own`]
/// is called. They do not change in that time, and stay valid even if the port is dropped.
#[derive(Debug)]
pub struct Frame<L = Infallible> {
    /// Arrival time; see [`Capabilities::arrival_stamp`](crate::Capabilities::arrival_stamp) for its meaning.
    pub arrival: Nanos,
    /// The work that is left to be done.
    pub offload: Offload,
    /// The VLAN tag that was removed.
    pub vlan: Option<Vlan>,
    bytes: FrameBytes<L>,
}

/// The bytes of a frame by their owner.
#[derive(Debug)]
pub enum FrameBytes<L> {
    /// The frame owns them.
    Own(Box<[u8]>),
    /// The port lends them.
    Lent(L),
}

impl<L: Lent> Frame<L> {
    /// Creates a frame that owns a copy of `bytes`.
    pub fn new(arrival: Nanos, offload: Offload, vlan: Option<Vlan>, bytes: &[u8]) -> Self {
        Self {
            arrival,
            offload,
            vlan,
            bytes: FrameBytes::Own(bytes.into()),
        }
    }

    /// Creates a frame whose bytes remain where its port received them.
    pub fn lent(arrival: Nanos, offload: Offload, vlan: Option<Vlan>, bytes: L) -> Self {
        Self {
            arrival,
            offload,
            vlan,
            bytes: FrameBytes::Lent(bytes),
        }
    }

    /// Returns the frame from its Ethernet header on, without the tag in [`Frame::vlan`].
    pub fn bytes(&self) -> &[u8] {
        self.bytes.bytes()
    }

    /// Returns the bytes alone, without copying them.
    pub fn into_bytes(self) -> FrameBytes<L> {
        self.bytes
    }
}

impl<L: Lent> FrameBytes<L> {
    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Lent(lent) => lent.bytes(),
        }
    }

    /// Returns the place of the port's memory that they occupy, if they are lent.
    pub fn place(&self) -> Option<usize> {
        match self {
            Self::Own(_) => None,
            Self::Lent(lent) => Some(lent.place()),
        }
    }

    /// Copies lent bytes into separate memory and gives the port's back.
    pub fn own(&mut self) {
        if let Self::Lent(lent) = self {
            *self = Self::Own(lent.bytes().into());
        }
    }
}

impl<'f, L: Lent> From<&'f Frame<L>> for FrameRef<'f> {
    fn from(frame: &'f Frame<L>) -> Self {
        Self {
            arrival: frame.arrival,
            offload: frame.offload,
            vlan: frame.vlan,
            bytes: frame.bytes(),
        }
    }
}
