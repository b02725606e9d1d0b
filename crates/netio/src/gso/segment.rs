//! Segmentation: builds any run of a GSO frame's segments with rewritten headers, as the kernel's segmentation does
//! (net/ipv4/tcp_offload.c, net/ipv4/udp_offload.c).

use std::ops::Range;

use super::{GsoFrame, IpHeader, Layout};
use crate::checksum;
use crate::frame::{FrameRef, Gso, GsoKind, Offload, PartialChecksum, Vlan};
use crate::port::{FrameHead, Spare, TxFrame};

const FIN_PSH: u8 = 0x01 | 0x08;
const CWR: u8 = 0x80;

impl GsoFrame {
    /// Returns the segments `run` of `frame` as one frame to be sent.
    ///
    /// `frame` must be the one from which this was created; `run` must not be empty and must end at most at
    /// [`GsoFrame::segments`]. New bytes are built in memory from `spare`.
    pub fn part<'f>(
        &self,
        frame: impl Into<FrameRef<'f>>,
        run: Range<u32>,
        spare: &mut Spare,
    ) -> TxFrame<'f> {
        let frame: FrameRef<'f> = frame.into();
        let bytes = frame.bytes;
        let part = match &self.layout {
            Some(layout) if layout.is_tunnel() && run.len() > 1 => {
                self.datagrams(layout, bytes, &run, spare)
            }
            Some(layout) if layout.is_tunnel() || run.len() < self.segments as usize => {
                self.segment(layout, bytes, &run, spare.head())
            }
            _ => whole(&frame, spare),
        };
        tagged(frame.vlan, part)
    }

    /// Returns the same for a port that sends the GSO frames of tunnels
    /// ([`Capabilities::tunnel_gso`](crate::Capabilities::tunnel_gso)). `run` is at most as long as
    /// [`GsoFrame::longest_train`].
    pub fn train<'f>(
        &self,
        frame: impl Into<FrameRef<'f>>,
        run: Range<u32>,
        spare: &mut Spare,
    ) -> TxFrame<'f> {
        let frame: FrameRef<'f> = frame.into();
        match &self.layout {
            Some(layout) if self.tag_len == 0 && run.len() > 1 => {
                let Some(tunnel) = layout.tunnel_headers() else {
                    return self.part(frame, run, spare);
                };
                let mut train = self.segment(layout, frame.bytes, &run, spare.head());
                if tunnel.outer_checksum {
                    let udp = usize::from(tunnel.outer_udp);
                    let h = train.head.bytes_mut();
                    let len = h.len() - udp + train.body.len();
                    let pseudo = checksum::pseudo(layout.outer.addresses(h), 17, len);
                    put(h, udp + 6, pseudo);
                }
                train.tunnel = Some(tunnel);
                train
            }
            _ => self.part(frame, run, spare),
        }
    }

    fn segment<'f>(
        &self,
        layout: &Layout,
        bytes: &'f [u8],
        run: &Range<u32>,
        mut head: FrameHead,
    ) -> TxFrame<'f> {
        let payload = self.payload_range(layout, run.start, run.end);
        let body = &bytes[payload];
        head.extend(&bytes[..layout.payload()]);
        let checksum = self.rewrite(layout, head.bytes_mut(), body.len(), run);
        let gso = (run.len() > 1).then_some(Gso {
            kind: layout.kind,
            size: layout.size,
            ecn: layout.ecn && run.start == 0,
        });
        TxFrame {
            offload: Offload {
                gso,
                checksum: Some(checksum),
            },
            tunnel: None,
            head,
            body: body.into(),
        }
    }

    /// Returns segments of a UDP tunnel as one GSO frame of the tunnel's datagrams: each is a whole inner packet with
    /// its checksum, under one outer header.
    fn datagrams<'f>(
        &self,
        layout: &Layout,
        bytes: &[u8],
        run: &Range<u32>,
        spare: &mut Spare,
    ) -> TxFrame<'f> {
        let udp = layout.outer_udp().expect("only UDP tunnels have runs");
        let mut body = spare.body();
        body.reserve(run.len() * layout.datagram(udp));
        let inner = layout.without_tunnel(udp + 8);
        for segment in run.clone() {
            let start = body.len();
            body.extend_from_slice(&bytes[udp + 8..layout.payload()]);
            body.extend_from_slice(&bytes[self.payload_range(layout, segment, segment + 1)]);
            let (h, payload) = body[start..].split_at_mut(inner.payload());
            let partial = self.rewrite(&inner, h, payload.len(), &(segment..segment + 1));
            // The bytes were just copied and are still in the nearest cache.
            let from = usize::from(partial.start);
            let offset = usize::from(partial.offset);
            let sum = checksum::complete(&[&h[from..], payload], offset);
            put(h, from + offset, sum);
        }
        let mut head = spare.head();
        head.extend(&bytes[..udp + 8]);
        let h = head.bytes_mut();
        rewrite_ip(h, layout.outer, body.len(), run.start);
        let len = 8 + body.len();
        put(h, udp + 4, word(len));
        let pseudo = checksum::pseudo(layout.outer.addresses(h), 17, len);
        put(h, udp + 6, pseudo);
        TxFrame {
            offload: Offload {
                gso: Some(Gso {
                    kind: GsoKind::Udp,
                    size: word(layout.datagram(udp)),
                    ecn: false,
                }),
                checksum: Some(PartialChecksum {
                    start: word(udp),
                    offset: 6,
                }),
            },
            tunnel: None,
            head,
            body: body.into(),
        }
    }

    /// Rewrites the headers `h` for the segments `run` with `payload` bytes, and returns the checksum that is left to
    /// be completed.
    fn rewrite(
        &self,
        layout: &Layout,
        h: &mut [u8],
        payload: usize,
        run: &Range<u32>,
    ) -> PartialChecksum {
        for ip in [Some(layout.outer), layout.inner].into_iter().flatten() {
            rewrite_ip(h, ip, payload, run.start);
        }
        if layout.kind != GsoKind::Udp {
            rewrite_tcp(h, layout, run.start, run.end == self.segments);
        }
        let checksum = rewrite_checksum(h, layout, payload);
        if let Some(udp) = layout.outer_udp() {
            rewrite_outer_udp(h, layout, udp, payload);
        }
        checksum
    }
}

/// Returns a frame that leaves as it arrived.
fn whole<'f>(frame: &FrameRef<'f>, spare: &mut Spare) -> TxFrame<'f> {
    let (mut head, mut body) = (FrameHead::EMPTY, frame.bytes);
    if let (Some(_), Some((addresses, rest))) = (frame.vlan, body.split_at_checked(12)) {
        head = spare.head();
        head.extend(addresses);
        body = rest;
    }
    TxFrame {
        offload: frame.offload,
        tunnel: None,
        head,
        body: body.into(),
    }
}

/// Inserts the VLAN tag after the addresses.
fn tagged(vlan: Option<Vlan>, mut frame: TxFrame<'_>) -> TxFrame<'_> {
    let Some(vlan) = vlan.filter(|_| frame.head.bytes().len() >= 12) else {
        return frame;
    };
    frame.head.insert(12, &vlan.bytes());
    if let Some(sum) = &mut frame.offload.checksum {
        // A sum that starts after the end of any frame remains there and is never completed.
        sum.start = sum.start.saturating_add(4);
    }
    frame
}

/// Rewrites the length and, for IPv4, the header checksum and the identification, which increases by one per segment.
fn rewrite_ip(h: &mut [u8], ip: IpHeader, payload: usize, first: u32) {
    let at = ip.at();
    let len = h.len() + payload - at;
    if ip.v6 {
        put(h, at + 4, word(len - 40));
        return;
    }
    let header = at..at + usize::from(h[at] & 0x0f) * 4;
    let id = get(h, at + 4).wrapping_add(low_word(first));
    put(h, at + 2, word(len));
    put(h, at + 4, id);
    put(h, at + 10, 0);
    let sum = !checksum::sum(&[&h[header]]);
    put(h, at + 10, sum);
}

fn rewrite_tcp(h: &mut [u8], layout: &Layout, first: u32, last: bool) {
    let at = layout.transport();
    let seq = u32::from_be_bytes([h[at + 4], h[at + 5], h[at + 6], h[at + 7]])
        .wrapping_add(first.wrapping_mul(layout.size.into()));
    h[at + 4..at + 8].copy_from_slice(&seq.to_be_bytes());
    if !last {
        h[at + 13] &= !FIN_PSH;
    }
    if layout.ecn && first > 0 {
        h[at + 13] &= !CWR;
    }
}

/// Writes the length of a UDP header and the sum of the pseudo header, which the kernel completes.
fn rewrite_checksum(h: &mut [u8], layout: &Layout, payload: usize) -> PartialChecksum {
    let at = layout.transport();
    let len = h.len() - at + payload;
    let (protocol, offset) = if layout.kind == GsoKind::Udp {
        put(h, at + 4, word(len));
        (17, 6)
    } else {
        (6, 16)
    };
    let pseudo = checksum::pseudo(layout.innermost().addresses(h), protocol, len);
    put(h, at + usize::from(offset), pseudo);
    PartialChecksum {
        start: word(at),
        offset,
    }
}

/// Rewrites the outer header of a UDP tunnel. When the kernel has completed the inner checksum, the sum of all bytes
/// that it covers is the complement of the inner pseudo header. The outer checksum therefore does not depend on the
/// payload (Documentation/networking/checksum-offloads.rst, "LCO").
fn rewrite_outer_udp(h: &mut [u8], layout: &Layout, udp: usize, payload: usize) {
    let len = h.len() - udp + payload;
    put(h, udp + 4, word(len));
    if get(h, udp + 6) == 0 {
        return;
    }
    put(h, udp + 6, 0);
    let inner_at = layout.transport() + if layout.kind == GsoKind::Udp { 6 } else { 16 };
    let inner = !get(h, inner_at);
    let pseudo = checksum::pseudo(layout.outer.addresses(h), 17, len);
    let covered = checksum::sum(&[&h[udp..layout.transport()]]);
    let sum = !checksum::add(checksum::add(pseudo, covered), inner);
    put(h, udp + 6, if sum == 0 { 0xffff } else { sum });
}

fn get(h: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([h[at], h[at + 1]])
}

fn put(h: &mut [u8], at: usize, value: u16) {
    h[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Converts a length, which is below 64 KiB because that of the original frame was.
fn word(n: usize) -> u16 {
    u16::try_from(n).unwrap_or(u16::MAX)
}

#[expect(clippy::cast_possible_truncation, reason = "the identification wraps")]
fn low_word(n: u32) -> u16 {
    n as u16
}
