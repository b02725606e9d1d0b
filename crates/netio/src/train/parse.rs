//! Finding the headers of a train.

use super::{IpAt, Layout};
use crate::frame::{Gso, GsoKind, Offload};
use crate::port::MAX_HEAD;

/// Why a train cannot be cut into its segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Uncuttable {
    /// Its headers end before they are complete.
    #[error("headers cut short")]
    Short,
    /// An EtherType, protocol or tunnel that is not understood.
    #[error("unknown headers around the segments")]
    Unknown,
    /// The headers are longer than the longest that can be rewritten.
    #[error("headers longer than {MAX_HEAD} bytes")]
    LongHeaders,
}

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Finds what a cut of `frame` has to rewrite. The virtio header says where the segments' own transport
/// header is; what lies between it and the outermost IP header is a tunnel.
pub(super) fn layout(frame: &[u8], offload: &Offload, gso: Gso) -> Result<Layout, Uncuttable> {
    let outer = Ip::at(frame, network_header(frame)?)?;
    let transport = offload
        .checksum
        .map_or(outer.next, |c| usize::from(c.start));
    let protocol = match gso.kind {
        GsoKind::Udp => UDP,
        GsoKind::TcpV4 | GsoKind::TcpV6 => TCP,
    };
    let mut ips = vec![outer.head];
    let (mut outer_udp, mut outer_checksum) = (None, false);
    if transport != outer.next {
        if outer.protocol == UDP {
            outer_udp = Some(outer.next);
            outer_checksum = u16_at(frame, outer.next + 6)? != 0;
        }
        let inner = inner_ip(frame, outer.next, transport)?;
        if !tunnel_ends_at(frame, &outer, inner.at)? {
            return Err(Uncuttable::Unknown);
        }
        ips.push(inner);
    } else if outer.protocol != protocol {
        return Err(Uncuttable::Unknown);
    }
    let payload = transport + transport_len(frame, transport, protocol)?;
    match (payload <= MAX_HEAD - 4, payload <= frame.len(), gso.size) {
        (false, ..) => Err(Uncuttable::LongHeaders),
        (_, false, _) => Err(Uncuttable::Short),
        (.., 0) => Err(Uncuttable::Unknown),
        (true, true, size) => Ok(Layout {
            ips,
            outer_udp,
            outer_checksum,
            transport,
            payload,
            size: usize::from(size),
            kind: gso.kind,
            ecn: gso.ecn,
        }),
    }
}

/// Where the IP header begins, behind the addresses and any VLAN tags.
pub(crate) fn network_header(frame: &[u8]) -> Result<usize, Uncuttable> {
    let mut at = 12;
    loop {
        match u16_at(frame, at)? {
            0x8100 | 0x88a8 => at += 4,
            0x0800 | 0x86dd => return Ok(at + 2),
            _ => return Err(Uncuttable::Unknown),
        }
    }
}

struct Ip {
    head: IpAt,
    protocol: u8,
    /// Where the header that follows begins.
    next: usize,
}

impl Ip {
    fn at(frame: &[u8], at: usize) -> Result<Self, Uncuttable> {
        match byte(frame, at)? >> 4 {
            4 => Self::v4(frame, at),
            6 => Self::v6(frame, at),
            _ => Err(Uncuttable::Unknown),
        }
    }

    fn v4(frame: &[u8], at: usize) -> Result<Self, Uncuttable> {
        let header = usize::from(byte(frame, at)? & 0x0f) * 4;
        let fragment = u16_at(frame, at + 6)? & 0x3fff != 0;
        if header < 20 || fragment {
            return Err(Uncuttable::Unknown);
        }
        byte(frame, at + header - 1)?;
        Ok(Self {
            head: IpAt { at, v6: false },
            protocol: byte(frame, at + 9)?,
            next: at + header,
        })
    }

    fn v6(frame: &[u8], at: usize) -> Result<Self, Uncuttable> {
        let mut protocol = byte(frame, at + 6)?;
        let mut next = at + 40;
        byte(frame, next - 1)?;
        // Hop-by-hop, routing and destination options (RFC 8200); a fragment is never a train.
        while matches!(protocol, 0 | 43 | 60) {
            protocol = byte(frame, next)?;
            next += 8 * (usize::from(byte(frame, next + 1)?) + 1);
        }
        Ok(Self {
            head: IpAt { at, v6: true },
            protocol,
            next,
        })
    }
}

/// The innermost IP header of a tunnel: the one that ends where the transport header begins and spans
/// the rest of the frame. Found from behind, so that VXLAN, Geneve, GRE and IP in IP are all one case.
fn inner_ip(frame: &[u8], from: usize, transport: usize) -> Result<IpAt, Uncuttable> {
    let rest = |at: usize| frame.len().saturating_sub(at);
    let candidates = (20..=60).step_by(4).map(|len| (len, 4)).chain([(40, 6)]);
    for (len, version) in candidates {
        let Some(at) = transport.checked_sub(len).filter(|at| *at >= from) else {
            continue;
        };
        let spans = match version {
            4 => {
                byte(frame, at)? == 0x40 | u8::try_from(len / 4).expect("at most 15")
                    && usize::from(u16_at(frame, at + 2)?) == rest(at)
            }
            _ => byte(frame, at)? >> 4 == 6 && usize::from(u16_at(frame, at + 4)?) == rest(at + 40),
        };
        if spans {
            return Ok(IpAt {
                at,
                v6: version == 6,
            });
        }
    }
    Err(Uncuttable::Unknown)
}

/// Whether the header of one tunnel, and nothing that a cut would leave stale, lies between the outer IP header
/// and an inner one at `inner`: IP in IP, GRE without checksum and sequence number (RFC 2890), VXLAN (RFC 7348) or Geneve
/// (RFC 8926), with or without an inner Ethernet header and its VLAN tag.
fn tunnel_ends_at(frame: &[u8], outer: &Ip, inner: usize) -> Result<bool, Uncuttable> {
    const IP_IN_IP: u8 = 4;
    const IPV6_IN_IP: u8 = 41;
    const GRE: u8 = 47;
    let at = outer.next;
    let ethernet = |header: usize| [header + 14, header + 18].contains(&inner);
    Ok(match outer.protocol {
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

fn transport_len(frame: &[u8], at: usize, protocol: u8) -> Result<usize, Uncuttable> {
    if protocol == UDP {
        return Ok(8);
    }
    match usize::from(byte(frame, at + 12)? >> 4) * 4 {
        len if len >= 20 => Ok(len),
        _ => Err(Uncuttable::Unknown),
    }
}

fn byte(frame: &[u8], at: usize) -> Result<u8, Uncuttable> {
    frame.get(at).copied().ok_or(Uncuttable::Short)
}

fn u16_at(frame: &[u8], at: usize) -> Result<u16, Uncuttable> {
    Ok(u16::from_be_bytes([byte(frame, at)?, byte(frame, at + 1)?]))
}
