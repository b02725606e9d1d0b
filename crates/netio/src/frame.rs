//! A frame as a port hands it over: bytes, arrival, and what the kernel left undone.

use model::Nanos;

use crate::af_packet::Slot;

/// What the kernel left undone in a frame's bytes, as `struct virtio_net_hdr` says it
/// (include/uapi/linux/virtio_net.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// The frame is a train of segments under one header.
    pub gso: Option<Gso>,
    /// The transport checksum holds the pseudo header only and is still to be completed.
    pub checksum: Option<PartialChecksum>,
}

/// A train: its kind and the payload bytes of each segment but the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gso {
    /// What the segments are.
    pub kind: GsoKind,
    /// Payload bytes a segment, above 0.
    pub size: u16,
    /// CWR belongs to the first segment alone (classic ECN, RFC 3168); without it to every one (AccECN).
    pub ecn: bool,
}

/// The trains that the virtio header can describe.
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
    #[must_use]
    pub fn bytes(self) -> [u8; 4] {
        let ([a, b], [c, d]) = (self.tpid.to_be_bytes(), self.tci.to_be_bytes());
        [a, b, c, d]
    }
}

/// A received frame; its bytes stay where they are until it is dropped.
#[derive(Debug)]
pub struct Frame {
    /// When the kernel saw it, on the monotonic clock.
    pub arrival: Nanos,
    /// What is left undone in it.
    pub offload: Offload,
    /// The tag taken out of it.
    pub vlan: Option<Vlan>,
    bytes: Bytes,
}

#[derive(Debug)]
enum Bytes {
    Slot(Slot),
    Heap(Box<[u8]>),
}

impl Frame {
    /// A frame with bytes of its own.
    #[must_use]
    pub fn new(arrival: Nanos, offload: Offload, vlan: Option<Vlan>, bytes: &[u8]) -> Self {
        Self {
            arrival,
            offload,
            vlan,
            bytes: Bytes::Heap(bytes.into()),
        }
    }

    pub(crate) fn in_slot(
        arrival: Nanos,
        offload: Offload,
        vlan: Option<Vlan>,
        slot: Slot,
    ) -> Self {
        Self {
            arrival,
            offload,
            vlan,
            bytes: Bytes::Slot(slot),
        }
    }

    /// Copies the bytes from where they were received, whose room the port has back.
    pub fn detach(&mut self) {
        if let Bytes::Slot(slot) = &self.bytes {
            self.bytes = Bytes::Heap(slot.bytes().into());
        }
    }

    /// The frame from its Ethernet header on, the tag in [`Frame::vlan`] left out.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Slot(slot) => slot.bytes(),
            Bytes::Heap(bytes) => bytes,
        }
    }
}
