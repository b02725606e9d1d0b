//! GSO frames, which carry up to 64 KiB as equal segments under one header (generic segmentation offload).
//!
//! The kernel passes and accepts such frames whole. The model decides on every segment separately. Segments that leave
//! together leave as one frame again, without those that are missing or not yet due.

mod headers;
mod segment;
#[cfg(test)]
mod tests;

pub use headers::UnsupportedGso;

use std::ops::Range;
use std::sync::OnceLock;

use crate::frame::{FrameRef, GsoKind};
use crate::ip;
use crate::kernel::KernelVersion;
use crate::port::TunnelHeaders;

/// A frame as the packets that it represents: one packet, or the segments of a GSO frame.
#[derive(Clone, Debug)]
pub struct GsoFrame {
    segments: u32,
    longest_run: u32,
    frame_len: u32,
    tag_len: u8,
    layout: Option<Layout>,
}

/// The positions of the headers of a GSO frame that must be rewritten for a part of it. It is kept for every frame in
/// flight, so it is small: all headers begin within [`MAX_HEAD`](crate::MAX_HEAD) bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    /// The outermost IP header.
    outer: IpHeader,
    /// The inner IP header of a tunnel.
    inner: Option<IpHeader>,
    /// The outer UDP header of a tunnel.
    outer_udp: Option<u8>,
    /// Whether it has a checksum.
    outer_checksum: bool,
    /// The transport header of the segments.
    transport: u8,
    /// First byte of the payload.
    payload: u8,
    /// Payload bytes per segment.
    size: u16,
    kind: GsoKind,
    ecn: bool,
}

/// An IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct IpHeader {
    at: u8,
    v6: bool,
}

impl IpHeader {
    fn at(self) -> usize {
        self.at.into()
    }

    /// Returns source and destination as they are in `frame`.
    fn addresses(self, frame: &[u8]) -> &[u8] {
        ip::addresses(frame, self.at(), self.v6)
    }
}

pub(crate) fn kernel_takes_udp_gso() -> bool {
    static NEW_ENOUGH: OnceLock<bool> = OnceLock::new();
    *NEW_ENOUGH.get_or_init(|| KernelVersion::running() >= KernelVersion::UDP_GSO)
}

impl Layout {
    /// Returns whether the segments are in a tunnel. The header of a packet socket cannot describe these: they leave as
    /// a GSO frame of the tunnel's datagrams, or one by one.
    fn is_tunnel(&self) -> bool {
        self.inner.is_some()
    }

    /// Returns the layout of the packet that a tunnel carries from byte `at` on.
    fn without_tunnel(&self, at: usize) -> Self {
        let back = |place: u8| place - u8::try_from(at).expect("below MAX_HEAD");
        let innermost = self.innermost();
        Self {
            outer: IpHeader {
                at: back(innermost.at),
                ..innermost
            },
            inner: None,
            outer_udp: None,
            outer_checksum: false,
            transport: back(self.transport),
            payload: back(self.payload),
            ..*self
        }
    }

    /// Returns the headers of a UDP tunnel in an untagged frame.
    fn tunnel_headers(&self) -> Option<TunnelHeaders> {
        const UNTAGGED: u8 = 14;
        let outer_udp = self.outer_udp.filter(|_| self.outer.at == UNTAGGED)?;
        Some(TunnelHeaders {
            outer_udp: outer_udp.into(),
            inner_ip: self.inner?.at.into(),
            outer_v6: self.outer.v6,
            outer_checksum: self.outer_checksum,
        })
    }

    /// Returns how many of a tunnel's `segments` may leave as one GSO frame of its datagrams. These must have
    /// checksums, because those of a UDP GSO frame always get them, and their number is limited by the length field of
    /// one IP header.
    fn datagrams(&self, segments: u32) -> u32 {
        match self.outer_udp() {
            Some(udp) if self.outer_checksum && kernel_takes_udp_gso() => {
                let room = usize::from(u16::MAX) - (udp + 8 - self.outer.at());
                u32::try_from(room / self.datagram(udp)).map_or(1, |n| n.clamp(1, segments))
            }
            _ => 1,
        }
    }

    /// Returns the IP header of the segments.
    fn innermost(&self) -> IpHeader {
        self.inner.unwrap_or(self.outer)
    }

    fn outer_udp(&self) -> Option<usize> {
        self.outer_udp.map(usize::from)
    }

    fn transport(&self) -> usize {
        self.transport.into()
    }

    fn payload(&self) -> usize {
        self.payload.into()
    }

    fn size(&self) -> usize {
        self.size.into()
    }

    /// Returns the bytes that a segment adds to a GSO frame of the tunnel's datagrams, whose outer UDP header is at
    /// `udp`.
    fn datagram(&self, udp: usize) -> usize {
        self.payload() - (udp + 8) + self.size()
    }
}

impl GsoFrame {
    /// Reads the headers of `frame` that a part of it needs.
    ///
    /// # Errors
    /// It is a GSO frame whose headers cannot be rewritten for a part of it.
    pub fn of<'f>(frame: impl Into<FrameRef<'f>>) -> Result<Self, UnsupportedGso> {
        let frame: FrameRef<'f> = frame.into();
        let bytes = frame.bytes;
        let layout = match frame.offload.gso {
            None => None,
            Some(gso) => Some(headers::layout(bytes, &frame.offload, gso)?),
        };
        let segments = layout
            .as_ref()
            .map_or(1, |l| (bytes.len() - l.payload()).div_ceil(l.size()).max(1));
        let small = |n: usize| u32::try_from(n).expect("a frame is far below 4 GiB");
        let segments = small(segments);
        let longest_run = match &layout {
            Some(layout) if layout.is_tunnel() => layout.datagrams(segments),
            _ => segments,
        };
        Ok(Self {
            segments,
            longest_run,
            frame_len: small(bytes.len()),
            tag_len: if frame.vlan.is_some() { 4 } else { 0 },
            layout,
        })
    }

    /// Returns the number of packets that the frame represents, at least 1.
    pub fn segments(&self) -> u32 {
        self.segments
    }

    /// Returns the L2 bytes of segment `index` on the wire, with its VLAN tag and without FCS.
    pub fn segment_len(&self, index: u32) -> u32 {
        u32::try_from(self.wire_len(index..index + 1)).expect("a frame is far below 4 GiB")
    }

    /// Returns the L2 bytes of the segments `run` on the wire, each with its headers and VLAN tag and without FCS.
    pub fn wire_len(&self, run: Range<u32>) -> u64 {
        let (headers, bytes) = match &self.layout {
            Some(layout) => (
                layout.payload(),
                self.payload_range(layout, run.start, run.end).len(),
            ),
            None => (0, self.frame_len as usize),
        };
        run.len() as u64 * (headers as u64 + u64::from(self.tag_len)) + bytes as u64
    }

    /// Returns the largest number of consecutive segments that can leave as one frame, at least 1.
    pub fn longest_run(&self) -> u32 {
        self.longest_run
    }

    /// Returns the same for a port that sends the GSO frames of tunnels
    /// ([`Capabilities::tunnel_gso`](crate::Capabilities::tunnel_gso)).
    pub fn longest_train(&self) -> u32 {
        match &self.layout {
            Some(layout) if self.tag_len == 0 && layout.tunnel_headers().is_some() => self.segments,
            _ => self.longest_run,
        }
    }

    fn payload_range(&self, layout: &Layout, first: u32, end: u32) -> Range<usize> {
        let len = self.frame_len as usize;
        let at = |i: u32| (layout.payload() + i as usize * layout.size()).min(len);
        at(first)..at(end)
    }
}
