//! Joins datagrams that are sent in one call into one GSO frame, which the receiver segments into the same bytes.
//!
//! A frame costs the kernel about the same whether it holds one datagram or thirty. Therefore datagrams of one call are
//! joined if one frame can describe them: consecutive UDP datagrams with the same addresses, ports and fields, and of
//! one size except for a shorter last one. Their IPv4 identifiers must increase by one, as in segments
//! (`inet_gso_segment` in net/ipv4/af_inet.c). Their checksums must all be left to the kernel, so that a wrong checksum
//! is never replaced by a right one. The rule is that of GRO (`udp_gro_receive` in net/ipv4/udp_offload.c). An
//! interface whose `tx-udp-segmentation` is off gets the datagrams one by one.

use arrayvec::ArrayVec;

use super::BATCH;
use crate::checksum;
use crate::frame::{Gso, GsoKind, Offload, PartialChecksum};
use crate::ip::UDP;
use crate::port::TxFrame;

const ETHERNET: usize = 14;
const UDP_LEN: usize = 8;
/// Bytes of the longest headers: Ethernet, IPv6 without extension headers, and UDP.
const LONGEST_HEAD: usize = ETHERNET + 40 + UDP_LEN;
/// The greatest packet length that an IP header can state.
const LONGEST: usize = 65_535;

/// One or more frames that are sent as one.
pub(super) struct FrameGroup {
    /// Number of these frames.
    pub(super) frames: usize,
    /// The work that is left to the kernel.
    pub(super) offload: Offload,
    /// The headers of the joined frame. The same number of bytes is skipped at the start of each frame's body. Empty
    /// for a single frame.
    pub(super) head: ArrayVec<u8, LONGEST_HEAD>,
}

/// Divides `frames`, at most [`BATCH`] of them, into groups that are sent as one frame each.
pub(super) fn groups(frames: &[TxFrame<'_>]) -> ArrayVec<FrameGroup, BATCH> {
    let mut groups = ArrayVec::new();
    let mut rest = frames;
    while let [frame, others @ ..] = rest {
        // A frame alone can be joined with none, so its checksums need not be read.
        let first = match others {
            [] => None,
            _ => Datagram::of(frame),
        };
        let group = first
            .and_then(|first| first.join(others))
            .unwrap_or_else(|| FrameGroup::single(frame));
        rest = &rest[group.frames..];
        groups.push(group);
    }
    groups
}

impl FrameGroup {
    /// Creates a group of a single, unchanged frame.
    pub(super) fn single(frame: &TxFrame<'_>) -> Self {
        Self {
            frames: 1,
            offload: frame.offload,
            head: ArrayVec::new(),
        }
    }

    /// Returns the length of [`FrameGroup::head`].
    pub(super) fn head_len(&self) -> u16 {
        u16::try_from(self.head.len()).expect("at most the longest")
    }
}

/// A datagram that may be joined with others.
#[derive(Clone, Copy)]
struct Datagram<'a> {
    /// The bytes of the whole frame.
    bytes: &'a [u8],
    v6: bool,
}

impl<'a> Datagram<'a> {
    fn of(frame: &'a TxFrame<'_>) -> Option<Self> {
        let sum = frame.offload.checksum?;
        let whole = frame.head.bytes().is_empty() && frame.tunnel.is_none();
        let bytes: &[u8] = &frame.body;
        if !whole || frame.offload.gso.is_some() || sum.offset != 6 {
            return None;
        }
        let v6 = match bytes.get(12..=ETHERNET)? {
            [0x08, 0x00, 0x45] => false,
            [0x86, 0xdd, 0x60..=0x6f] => true,
            _ => return None,
        };
        let datagram = Self { bytes, v6 };
        let in_place = usize::from(sum.start) == datagram.transport();
        let sound = in_place && bytes.len() > datagram.payload() && datagram.is_sound();
        sound.then_some(datagram)
    }

    /// Returns the offset of the UDP header.
    const fn transport(&self) -> usize {
        ETHERNET + if self.v6 { 40 } else { 20 }
    }

    const fn payload(&self) -> usize {
        self.transport() + UDP_LEN
    }

    fn word(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    fn addresses(&self) -> &'a [u8] {
        &self.bytes[if self.v6 { 22..54 } else { 26..34 }]
    }

    /// Returns whether the datagram has a payload, is complete, and has correct lengths and checksums.
    fn is_sound(&self) -> bool {
        let (all, at) = (self.bytes.len(), self.transport());
        let ip = if self.v6 {
            self.bytes[20] == UDP && usize::from(self.word(18)) == all - at
        } else {
            let whole = self.word(20) & 0x3fff == 0;
            let header = &self.bytes[ETHERNET..at];
            let length = usize::from(self.word(16)) == all - ETHERNET;
            self.bytes[23] == UDP && whole && length && checksum::sum(&[header]) == 0xffff
        };
        ip && usize::from(self.word(at + 4)) == all - at
            && self.word(at + 6) == checksum::pseudo(self.addresses(), UDP, all - at)
    }

    /// Returns whether `next` can be the datagram at `place` of a joined frame that starts with this one.
    fn leads(&self, next: &Self, place: u16) -> bool {
        let same = |from: usize, to: usize| self.bytes[from..to] == next.bytes[from..to];
        if self.v6 != next.v6 {
            false
        } else if self.v6 {
            same(0, 18) && same(20, 58)
        } else {
            let counted = self.word(18).wrapping_add(place) == next.word(18);
            counted && same(0, 16) && same(20, 24) && same(26, 38)
        }
    }

    /// Joins this datagram with as many of the `others` as possible; `None` if not even the next one can be joined.
    fn join(&self, others: &[TxFrame<'_>]) -> Option<FrameGroup> {
        let (size, mut total, mut frames) = (self.bytes.len(), self.bytes.len(), 1_u16);
        for next in others.iter().map_while(|other| Datagram::of(other)) {
            let length = next.bytes.len();
            let room = total + length <= LONGEST;
            if length > size || !room || !self.leads(&next, frames) {
                break;
            }
            total += length - self.payload();
            frames += 1;
            if length < size {
                break;
            }
        }
        (frames > 1).then(|| FrameGroup {
            frames: frames.into(),
            offload: self.offload(),
            head: self.head(total),
        })
    }

    fn offload(&self) -> Offload {
        let short = |length: usize| u16::try_from(length).expect("within an IP packet");
        Offload {
            gso: Some(Gso {
                kind: GsoKind::Udp,
                size: short(self.bytes.len() - self.payload()),
                ecn: false,
            }),
            checksum: Some(PartialChecksum {
                start: short(self.transport()),
                offset: 6,
            }),
        }
    }

    /// Returns the headers of a joined frame of `total` bytes that starts with this datagram.
    fn head(&self, total: usize) -> ArrayVec<u8, LONGEST_HEAD> {
        let at = self.transport();
        let mut head = ArrayVec::new();
        head.try_extend_from_slice(&self.bytes[..self.payload()])
            .expect("room for the longest");
        let mut put = |at: usize, value: usize| {
            let value = u16::try_from(value).expect("within an IP packet");
            head[at..at + 2].copy_from_slice(&value.to_be_bytes());
        };
        put(at + 4, total - at);
        put(
            at + 6,
            checksum::pseudo(self.addresses(), UDP, total - at).into(),
        );
        if self.v6 {
            put(18, total - at);
        } else {
            put(16, total - ETHERNET);
            put(24, 0);
            let sum = !checksum::sum(&[&head[ETHERNET..at]]);
            head[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        head
    }
}
