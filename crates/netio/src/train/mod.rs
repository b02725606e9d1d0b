//! Trains: a frame of up to 64 KiB that carries equal segments under one header.
//!
//! The kernel hands over and accepts such frames whole (GSO). Every segment meets the model on its own;
//! what leaves together leaves as one frame again, cut from the train where a segment is missing or not yet due.

mod cut;
mod parse;
#[cfg(test)]
mod tests;

pub use parse::Uncuttable;

use crate::frame::{Frame, GsoKind};

/// A frame seen as the packets that it stands for: one, or the segments of a train.
#[derive(Clone, Debug)]
pub struct Train {
    segments: u32,
    frame_len: u32,
    tag_len: u32,
    layout: Option<Layout>,
}

/// Where the headers of a train stand: what a cut has to rewrite.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Layout {
    /// IP headers, outermost first; two for a tunnel.
    ips: Vec<IpAt>,
    /// The outer UDP header of a tunnel.
    outer_udp: Option<usize>,
    /// The transport header of the segments.
    transport: usize,
    /// First byte of payload.
    payload: usize,
    /// Payload bytes a segment.
    size: usize,
    kind: GsoKind,
    ecn: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct IpAt {
    at: usize,
    v6: bool,
}

impl Layout {
    /// The kernel cannot describe a tunnel's train to a packet socket, so it must leave segment by segment.
    fn is_tunnel(&self) -> bool {
        self.ips.len() > 1
    }
}

impl Train {
    /// Reads the headers of `frame` as far as a cut needs them.
    ///
    /// # Errors
    /// The frame is a train whose headers cannot be rewritten for a part of it.
    pub fn of(frame: &Frame) -> Result<Self, Uncuttable> {
        let bytes = frame.bytes();
        let layout = match frame.offload.gso {
            None => None,
            Some(gso) => Some(parse::layout(bytes, &frame.offload, gso)?),
        };
        let segments = layout
            .as_ref()
            .map_or(1, |l| (bytes.len() - l.payload).div_ceil(l.size).max(1));
        let small = |n: usize| u32::try_from(n).expect("a frame is far below 4 GiB");
        Ok(Self {
            segments: small(segments),
            frame_len: small(bytes.len()),
            tag_len: if frame.vlan.is_some() { 4 } else { 0 },
            layout,
        })
    }

    /// How many packets the frame stands for, at least 1.
    #[must_use]
    pub fn segments(&self) -> u32 {
        self.segments
    }

    /// L2 bytes of segment `index` on the wire, VLAN tag included, FCS not.
    #[must_use]
    pub fn segment_len(&self, index: u32) -> u32 {
        let Some(layout) = &self.layout else {
            return self.frame_len + self.tag_len;
        };
        let payload = self.payload_range(layout, index, index + 1).len();
        u32::try_from(layout.payload + payload).expect("a frame is far below 4 GiB") + self.tag_len
    }

    /// Whether neighbouring segments may leave as one frame.
    #[must_use]
    pub fn joins(&self) -> bool {
        self.layout.as_ref().is_some_and(|l| !l.is_tunnel())
    }

    fn payload_range(&self, layout: &Layout, first: u32, end: u32) -> std::ops::Range<usize> {
        let len = self.frame_len as usize;
        let at = |i: u32| (layout.payload + i as usize * layout.size).min(len);
        at(first)..at(end)
    }
}
