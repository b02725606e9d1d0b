//! Reads EtherTypes and IP headers, for five-tuples, link control and GSO frames.

use model::Ecn;

/// The EtherType of IPv4.
pub(crate) const IPV4: u16 = 0x0800;
/// The EtherType of IPv6.
pub(crate) const IPV6: u16 = 0x86dd;

/// Protocol numbers in IP headers.
pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;

/// The position of an IP header in a frame, and of the data after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ip {
    /// Offset of the header.
    pub(crate) at: usize,
    /// Whether it is an IPv6 header.
    pub(crate) v6: bool,
    /// The protocol of the data after it; in IPv6, after the extension headers.
    pub(crate) protocol: u8,
    /// Offset of that data.
    pub(crate) next: usize,
    pub(crate) fragment: Fragment,
}

/// The part of a packet to which the header belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fragment {
    /// The whole packet.
    Whole,
    /// The first fragment, which has the transport header.
    First,
    /// A later fragment, without a transport header.
    Later,
}

/// Returns the EtherType of `frame` after any VLAN tags, and the offset of its payload.
pub(crate) fn ether_type(frame: &[u8]) -> Option<(u16, usize)> {
    let mut at = 12;
    loop {
        match u16_at(frame, at)? {
            0x8100 | 0x88a8 => at += 4,
            kind => return Some((kind, at + 2)),
        }
    }
}

/// Returns priority, DEI and number of the first VLAN tag in the bytes of `frame`.
pub(crate) fn outermost_tag(frame: &[u8]) -> Option<u16> {
    matches!(u16_at(frame, 12)?, 0x8100 | 0x88a8).then(|| u16_at(frame, 14))?
}

impl Ip {
    /// Reads the IP header of `frame`; `None` if it has none or is truncated within it.
    pub(crate) fn of(frame: &[u8]) -> Option<Self> {
        let (kind, at) = ether_type(frame)?;
        matches!(kind, IPV4 | IPV6).then(|| Self::at(frame, at))?
    }

    /// Reads the header of either version at offset `at`.
    pub(crate) fn at(frame: &[u8], at: usize) -> Option<Self> {
        match byte(frame, at)? >> 4 {
            4 => Self::v4(frame, at),
            6 => Self::v6(frame, at),
            _ => None,
        }
    }

    fn v4(frame: &[u8], at: usize) -> Option<Self> {
        let length = usize::from(byte(frame, at)? & 0x0f) * 4;
        let more_and_offset = u16_at(frame, at + 6)? & 0x3fff;
        if length < 20 || frame.len() < at + length {
            return None;
        }
        Some(Self {
            at,
            v6: false,
            protocol: byte(frame, at + 9)?,
            next: at + length,
            fragment: match more_and_offset {
                0 => Fragment::Whole,
                0x2000 => Fragment::First,
                _ => Fragment::Later,
            },
        })
    }

    /// Reads the IPv6 header at offset `at` with its extension headers (RFC 8200).
    pub(crate) fn v6(frame: &[u8], at: usize) -> Option<Self> {
        const FRAGMENT: u8 = 44;
        let mut ip = Self {
            at,
            v6: true,
            protocol: byte(frame, at + 6)?,
            next: at + 40,
            fragment: Fragment::Whole,
        };
        byte(frame, at + 39)?;
        // The extension headers are hop-by-hop options, routing, fragment, and destination options.
        while matches!(ip.protocol, 0 | 43 | FRAGMENT | 60) && ip.fragment != Fragment::Later {
            let [kind, units] = u16_at(frame, ip.next)?.to_be_bytes();
            if ip.protocol == FRAGMENT {
                ip.fragment = match u16_at(frame, ip.next + 2)? & 0xfff8 {
                    0 => Fragment::First,
                    _ => Fragment::Later,
                };
                ip.next += 8;
            } else {
                ip.next += 8 * (usize::from(units) + 1);
            }
            ip.protocol = kind;
        }
        Some(ip)
    }

    /// Returns the end of the packet by its length field.
    pub(crate) fn end(self, frame: &[u8]) -> Option<usize> {
        let (field, headers) = if self.v6 { (4, 40) } else { (2, 0) };
        Some(self.at + headers + usize::from(u16_at(frame, self.at + field)?))
    }

    /// Returns its congestion marks: the last two bits of IPv4's TOS or IPv6's traffic class (RFC 3168, section 5).
    pub(crate) fn ecn(self, frame: &[u8]) -> Ecn {
        match self.traffic_class(frame) & 3 {
            0 => Ecn::NotEct,
            1 => Ecn::Ect1,
            2 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }

    /// Returns IPv4's TOS or IPv6's traffic class: the codepoint, and two bits of congestion marks.
    pub(crate) fn traffic_class(self, frame: &[u8]) -> u8 {
        let [first, second] = [frame[self.at], frame[self.at + 1]];
        if self.v6 {
            first << 4 | second >> 4
        } else {
            second
        }
    }

    /// Returns source and destination address as they are in `frame`, from which this header was read.
    pub(crate) fn addresses(self, frame: &[u8]) -> &[u8] {
        addresses(frame, self.at, self.v6)
    }
}

/// Returns source and destination address of the IP header at offset `at`, as they are in `frame`.
pub(crate) fn addresses(frame: &[u8], at: usize, v6: bool) -> &[u8] {
    if v6 {
        &frame[at + 8..at + 40]
    } else {
        &frame[at + 12..at + 20]
    }
}

pub(crate) fn byte(frame: &[u8], at: usize) -> Option<u8> {
    frame.get(at).copied()
}

pub(crate) fn u16_at(frame: &[u8], at: usize) -> Option<u16> {
    frame
        .get(at..)?
        .first_chunk()
        .copied()
        .map(u16::from_be_bytes)
}
