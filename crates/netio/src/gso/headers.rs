//! Finds the headers of a GSO frame.

use super::{IpHeader, Layout};
use crate::frame::{Gso, GsoKind, Offload};
use crate::ip::{Fragment, Ip, TCP, UDP, byte, u16_at};
use crate::port::MAX_HEAD;

/// The reason why a GSO frame cannot be divided into its segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnsupportedGso {
    /// An EtherType, protocol or tunnel is unknown, or headers are incomplete.
    #[error("unknown headers around the segments")]
    Unknown,
    /// The headers are longer than the longest that can be rewritten.
    #[error("headers longer than {MAX_HEAD} bytes")]
    LongHeaders,
}

/// Finds the headers that segmentation of `frame` has to rewrite. The virtio header says where the transport header of
/// the segments is; everything between it and the outermost IP header is a tunnel.
pub(super) fn layout(frame: &[u8], offload: &Offload, gso: Gso) -> Result<Layout, UnsupportedGso> {
    let found = find(frame, offload, gso).ok_or(UnsupportedGso::Unknown)?;
    // A VLAN tag may have to be inserted.
    if found.payload > MAX_HEAD - 4 {
        return Err(UnsupportedGso::LongHeaders);
    }
    let small =
        |at: usize| u8::try_from(at).expect("before the payload, which begins below MAX_HEAD");
    let header = |ip: Ip| IpHeader {
        at: small(ip.at),
        v6: ip.v6,
    };
    Ok(Layout {
        outer: header(found.outer),
        inner: found.inner.map(header),
        outer_udp: found.outer_udp.map(small),
        outer_checksum: found.outer_checksum,
        transport: small(found.transport),
        payload: small(found.payload),
        size: gso.size,
        kind: gso.kind,
        ecn: gso.ecn,
    })
}

/// The positions of the headers, whatever their length.
struct HeaderOffsets {
    outer: Ip,
    inner: Option<Ip>,
    outer_udp: Option<usize>,
    outer_checksum: bool,
    transport: usize,
    payload: usize,
}

fn find(frame: &[u8], offload: &Offload, gso: Gso) -> Option<HeaderOffsets> {
    let outer = Ip::of(frame).filter(|ip| ip.fragment == Fragment::Whole)?;
    let transport = offload
        .checksum
        .map_or(outer.next, |c| usize::from(c.start));
    let protocol = match gso.kind {
        GsoKind::Udp => UDP,
        GsoKind::TcpV4 | GsoKind::TcpV6 => TCP,
    };
    let (mut inner, mut outer_udp, mut outer_checksum) = (None, None, false);
    if transport != outer.next {
        if outer.protocol == UDP {
            outer_udp = Some(outer.next);
            outer_checksum = u16_at(frame, outer.next + 6)? != 0;
        }
        inner = Some(inner_ip(frame, &outer, transport)?);
    } else if outer.protocol != protocol {
        return None;
    }
    let payload = transport + transport_len(frame, transport, protocol)?;
    (payload <= frame.len() && gso.size > 0).then_some(HeaderOffsets {
        outer,
        inner,
        outer_udp,
        outer_checksum,
        transport,
        payload,
    })
}

/// Returns the innermost IP header of a tunnel: the one that ends where the transport header begins, and covers the
/// rest of the frame. It is searched from the end, so that VXLAN, Geneve, GRE and IP in IP need no separate cases.
fn inner_ip(frame: &[u8], outer: &Ip, transport: usize) -> Option<Ip> {
    let lengths = (20..=60).step_by(4);
    let mut candidates = lengths
        .filter_map(|length| transport.checked_sub(length).filter(|at| *at >= outer.next))
        .filter_map(|at| Ip::at(frame, at));
    let spans = |ip: &Ip| {
        ip.next == transport && ip.fragment == Fragment::Whole && ip.end(frame) == Some(frame.len())
    };
    let inner = candidates.find(spans)?;
    tunnel_ends_at(frame, outer, inner.at)?.then_some(inner)
}

/// Returns whether the header of one tunnel, and nothing that would be stale in a segment, is between the outer IP
/// header and an inner one at `inner`: IP in IP, GRE without checksum and sequence number (RFC 2890), VXLAN (RFC 7348)
/// or Geneve (RFC 8926), with or without an inner Ethernet header and its VLAN tag.
fn tunnel_ends_at(frame: &[u8], outer: &Ip, inner: usize) -> Option<bool> {
    const IP_IN_IP: u8 = 4;
    const IPV6_IN_IP: u8 = 41;
    const GRE: u8 = 47;
    let at = outer.next;
    let ethernet = |header: usize| [header + 14, header + 18].contains(&inner);
    Some(match outer.protocol {
        IP_IN_IP | IPV6_IN_IP => inner == at,
        GRE => {
            let flags = u16_at(frame, at)?;
            let header = at + if flags & 0x2000 == 0 { 4 } else { 8 };
            flags & !0x2000 == 0 && (inner == header || ethernet(header))
        }
        UDP => {
            let options = usize::from(byte(frame, at + 8)? & 0x3f) * 4;
            let (vxlan, geneve) = (at + 16, at + 16 + options);
            ethernet(vxlan) || ethernet(geneve) || inner == geneve
        }
        _ => false,
    })
}

fn transport_len(frame: &[u8], at: usize, protocol: u8) -> Option<usize> {
    if protocol == UDP {
        return Some(8);
    }
    let length = usize::from(byte(frame, at + 12)? >> 4) * 4;
    (length >= 20).then_some(length)
}
