//! A frame as a port hands it over: its bytes, its arrival time, and what the kernel left undone.

use std::convert::Infallible;

use model::Nanos;

/// What the kernel left undone in a frame's bytes, as `struct virtio_net_hdr` says it
/// (include/uapi/linux/virtio_net.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// The frame carries several segments under one header.
    pub gso: Option<Gso>,
    /// The transport checksum holds the pseudo header only and is still to be completed.
    pub checksum: Option<PartialChecksum>,
}

/// Generic segmentation offload: what the segments are, and the payload bytes of each but the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gso {
    /// What the segments are.
    pub kind: GsoKind,
    /// Payload bytes a segment, above 0.
    pub size: u16,
    /// CWR belongs to the first segment alone (classic ECN, RFC 3168); without it to every one (AccECN).
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

/// Where a checksum begins to sum and where it is stored, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialChecksum {
    /// First byte summed, from the start of the frame.
    pub start: u16,
    /// The checksum's place, from `start`.
    pub offset: u16,
}

/// A VLAN tag that the kernel took out of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vlan {
    /// Tag protocol: 0x8100 or 0x88a8.
    pub tpid: u16,
    /// Priority, DEI and VLAN id.
    pub tci: u16,
}

impl Vlan {
    /// The tag as it stands in a frame, after the two addresses.
    pub fn bytes(self) -> [u8; 4] {
        let ([a, b], [c, d]) = (self.tpid.to_be_bytes(), self.tci.to_be_bytes());
        [a, b, c, d]
    }
}

/// Bytes in the memory of a port, lent to a [`Frame`]. Dropping them gives them back.
pub trait Lent {
    /// The bytes; they stay as they are until they are given back.
    fn bytes(&self) -> &[u8];

    /// Which place of the port's memory they occupy; no two frames of a port do at one time.
    fn place(&self) -> usize;
}

/// Of a port that lends nothing: all its frames have bytes of their own.
impl Lent for Infallible {
    fn bytes(&self) -> &[u8] {
        match *self {}
    }

    fn place(&self) -> usize {
        match *self {}
    }
}

/// A frame's bytes, wherever they stand, and what is said of them.
#[derive(Clone, Copy, Debug)]
pub struct FrameRef<'b> {
    /// When it arrived.
    pub arrival: Nanos,
    /// What is left undone in it.
    pub offload: Offload,
    /// The tag taken out of it.
    pub vlan: Option<Vlan>,
    /// The frame from its Ethernet header on, the tag left out.
    pub bytes: &'b [u8],
}

/// A received frame. Its bytes are its own, or lent by the port that it came from until it is dropped or
/// [`FrameBytes::own`]ed; they do not change meanwhile, and outlive the port if need be.
#[derive(Debug)]
pub struct Frame<L = Infallible> {
    /// When it arrived; [`Capabilities::arrival_stamp`](crate::Capabilities::arrival_stamp) says what that means.
    pub arrival: Nanos,
    /// What is left undone in it.
    pub offload: Offload,
    /// The tag taken out of it.
    pub vlan: Option<Vlan>,
    bytes: FrameBytes<L>,
}

/// Whose a frame's bytes are.
#[derive(Debug)]
pub enum FrameBytes<L> {
    /// Its own.
    Own(Box<[u8]>),
    /// Its port's.
    Lent(L),
}

impl<L: Lent> Frame<L> {
    /// A frame with bytes of its own.
    pub fn new(arrival: Nanos, offload: Offload, vlan: Option<Vlan>, bytes: &[u8]) -> Self {
        Self {
            arrival,
            offload,
            vlan,
            bytes: FrameBytes::Own(bytes.into()),
        }
    }

    /// A frame whose bytes stay where its port received them.
    pub fn lent(arrival: Nanos, offload: Offload, vlan: Option<Vlan>, bytes: L) -> Self {
        Self {
            arrival,
            offload,
            vlan,
            bytes: FrameBytes::Lent(bytes),
        }
    }

    /// The frame from its Ethernet header on, the tag in [`Frame::vlan`] left out.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.bytes()
    }

    /// The bytes alone, still where they stood.
    pub fn into_bytes(self) -> FrameBytes<L> {
        self.bytes
    }
}

impl<L: Lent> FrameBytes<L> {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Lent(lent) => lent.bytes(),
        }
    }

    /// The place of the port's memory that they occupy, if they are lent.
    pub fn place(&self) -> Option<usize> {
        match self {
            Self::Own(_) => None,
            Self::Lent(lent) => Some(lent.place()),
        }
    }

    /// Copies lent bytes to memory of their own and gives the port's back.
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
