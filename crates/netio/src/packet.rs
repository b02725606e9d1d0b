//! The header fields that decide how a link treats the packets of a frame.

use model::Ecn;

use crate::five_tuple;
use crate::frame::FrameRef;
use crate::ip::{Fragment, Ip, ether_type, outermost_tag};

/// The header fields that decide the path of a frame's packets. They are read once per frame, because all its segments
/// have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// The hashes of addresses and ports; for a tunnel, the outermost ones. All zero for packets other than IP.
    pub flow: model::Flow,
    /// The congestion mark in the outermost IP header.
    pub ecn: Ecn,
    /// Offset of the L3 header on the wire, after all VLAN tags including the one that the kernel removed.
    pub l3_at: u8,
    /// The IP protocol number; in IPv6, the protocol after the extension headers.
    pub protocol: Option<u8>,
    /// Source and destination port of TCP, UDP and SCTP; absent in a later fragment.
    pub ports: Option<[u16; 2]>,
    /// The EtherType behind all VLAN tags; absent in a truncated frame.
    pub ether_type: Option<u16>,
    /// The number in the outermost VLAN tag, whether the kernel removed it or not.
    pub vlan: Option<u16>,
    /// The differentiated services codepoint of the outermost IP header (RFC 2474); 0 for other packets.
    pub dscp: u8,
    /// Whether the packet is a fragment of an IP packet, the first one included.
    pub is_fragment: bool,
}

impl Headers {
    /// Reads the header fields of `frame`.
    pub fn of<'f>(frame: impl Into<FrameRef<'f>>) -> Self {
        let frame: FrameRef<'f> = frame.into();
        let bytes = frame.bytes;
        let taken_out = if frame.vlan.is_some() { 4 } else { 0 };
        let behind_tags = ether_type(bytes);
        let l3 = behind_tags.map_or(14, |(_, at)| at) + taken_out;
        let tag = frame
            .vlan
            .map(|tag| tag.tci)
            .or_else(|| outermost_tag(bytes));
        let headers = Self {
            flow: model::Flow::default(),
            ecn: Ecn::NotEct,
            l3_at: u8::try_from(l3).unwrap_or(u8::MAX),
            protocol: None,
            ports: None,
            ether_type: behind_tags.map(|(kind, _)| kind),
            vlan: tag.map(|tci| tci & 0x0fff),
            dscp: 0,
            is_fragment: false,
        };
        let Some(ip) = Ip::of(bytes) else {
            return headers;
        };
        let ports = five_tuple::ports(bytes, ip);
        Self {
            flow: hashes(bytes, ip, ports),
            ecn: ip.ecn(bytes),
            protocol: Some(ip.protocol),
            ports,
            dscp: ip.traffic_class(bytes) >> 2,
            is_fragment: ip.fragment != Fragment::Whole,
            ..headers
        }
    }
}

/// Returns the hashes of the flow. If other fragments of the packet have no ports, only the addresses are hashed, so
/// that all fragments belong to the same flow.
fn hashes(bytes: &[u8], ip: Ip, ports: Option<[u16; 2]>) -> model::Flow {
    let addresses = ip.addresses(bytes);
    let (source, destination) = addresses.split_at(addresses.len() / 2);
    let (source, destination) = (add(0, source), add(0, destination));
    let [from, to] = ports
        .filter(|_| ip.fragment == Fragment::Whole)
        .unwrap_or_default();
    let rest = u64::from(ip.protocol) << 32 | u64::from(from) << 16 | u64::from(to);
    let both = mix(mix(0, source), destination);
    model::Flow {
        id: fold(mix(both, rest)),
        source: fold(source),
        destination: fold(destination),
    }
}

/// Adds `address`, of 4 or 16 bytes, to `hash`.
fn add(hash: u64, address: &[u8]) -> u64 {
    match *address {
        [a, b, c, d] => mix(hash, u64::from(u32::from_be_bytes([a, b, c, d]))),
        [a, b, c, d, e, f, g, h, ref rest @ ..] => {
            let rest = rest.first_chunk().copied().map_or(0, u64::from_be_bytes);
            mix(
                mix(hash, u64::from_be_bytes([a, b, c, d, e, f, g, h])),
                rest,
            )
        }
        _ => hash,
    }
}

/// Adds a word to a multiplicative hash (Knuth, The Art of Computer Programming, volume 3, section 6.4), with 2^64
/// divided by the golden ratio as the factor.
fn mix(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(29) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Returns the upper half, which depends on every bit of the hashed data.
fn fold(hash: u64) -> u32 {
    (hash >> 32) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use model::Nanos;
    use proptest::prelude::*;

    use super::*;
    use crate::frame::{Frame, Offload, Vlan};

    fn frame(bytes: &[u8], vlan: Option<Vlan>) -> Frame {
        Frame::new(Nanos(0), Offload::default(), vlan, bytes)
    }

    /// Returns a UDP packet over IPv4 between these ports, with this TOS and this fragment field.
    fn v4(tos: u8, fragment: u16, ports: [u16; 2]) -> Vec<u8> {
        let mut bytes = vec![2; 12];
        bytes.extend([8, 0, 0x45, tos, 0, 28, 0, 9]);
        bytes.extend(fragment.to_be_bytes());
        bytes.extend([64, 17, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2]);
        bytes.extend(ports.map(u16::to_be_bytes).concat());
        bytes.extend([0, 8, 0, 0]);
        bytes
    }

    /// Returns a UDP packet over IPv6 with this traffic class.
    fn v6(class: u8) -> Vec<u8> {
        let mut bytes = vec![2; 12];
        bytes.extend([
            0x86,
            0xdd,
            0x60 | class >> 4,
            class << 4,
            0,
            0,
            0,
            8,
            17,
            64,
        ]);
        bytes.extend((1..=32).chain([0x30, 0x39, 0, 53, 0, 8, 0, 0]));
        bytes
    }

    #[test]
    fn the_ecn_codepoints_are_read_from_either_family() {
        let all = [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce];
        for (bits, ecn) in (0..).zip(all) {
            let tos = 0xb8 | bits;
            assert_eq!(Headers::of(&frame(&v4(tos, 0, [1, 2]), None)).ecn, ecn);
            assert_eq!(Headers::of(&frame(&v6(tos), None)).ecn, ecn);
        }
    }

    #[test]
    fn the_codepoint_is_read_from_either_family() {
        for dscp in [0, 46, 63] {
            let class = dscp << 2 | 1;
            assert_eq!(Headers::of(&frame(&v4(class, 0, [1, 2]), None)).dscp, dscp);
            assert_eq!(Headers::of(&frame(&v6(class), None)).dscp, dscp);
        }
    }

    #[test]
    fn the_outermost_tag_has_the_vlan_and_the_type_is_behind_all_tags() {
        let vlan = Some(Vlan {
            tpid: 0x88a8,
            tci: 0xe007,
        });
        let plain = v4(0, 0, [1, 2]);
        let tagged = [&plain[..12], &[0x81, 0, 0x20, 9], &plain[12..]].concat();
        let read = |bytes: &[u8], vlan| {
            let headers = Headers::of(&frame(bytes, vlan));
            (headers.vlan, headers.ether_type)
        };
        assert_eq!(read(&plain, None), (None, Some(0x0800)));
        assert_eq!(read(&tagged, None), (Some(9), Some(0x0800)));
        assert_eq!(read(&tagged, vlan), (Some(7), Some(0x0800)));
        assert_eq!(read(&tagged[..15], None), (None, None));
        assert_eq!(read(&[], None), (None, None));
    }

    #[test]
    fn tags_in_the_bytes_and_beside_them_shift_the_l3_header() {
        let vlan = Some(Vlan {
            tpid: 0x8100,
            tci: 7,
        });
        let plain = v4(0, 0, [1, 2]);
        let tagged = [&plain[..12], &[0x81, 0, 0, 7], &plain[12..]].concat();
        let l3_at = |bytes: &[u8], vlan| Headers::of(&frame(bytes, vlan)).l3_at;
        assert_eq!(l3_at(&plain, None), 14);
        assert_eq!(l3_at(&plain, vlan), 18);
        assert_eq!(l3_at(&tagged, None), 18);
        assert_eq!(l3_at(&tagged, vlan), 22);
        assert_eq!(l3_at(&[0; 60], None), 14);
        assert_eq!(l3_at(&[], vlan), 18);
    }

    #[test]
    fn all_fragments_of_a_packet_belong_to_one_flow_and_only_the_first_has_ports() {
        let headers = |fragment| Headers::of(&frame(&v4(0, fragment, [1000, 53]), None));
        let (whole, first, later) = (headers(0), headers(0x2000), headers(0x2001));
        assert_eq!(first.flow, later.flow);
        assert_ne!(first.flow.id, whole.flow.id);
        assert_eq!(first.flow.source, whole.flow.source);
        assert_eq!(whole.ports, Some([1000, 53]));
        assert_eq!((first.ports, later.ports), (whole.ports, None));
        assert_eq!(
            [whole, first, later].map(|of| of.is_fragment),
            [false, true, true]
        );
        assert_eq!(later.protocol, Some(17));
    }

    #[test]
    fn both_directions_have_the_same_address_hash_and_different_flow_hashes() {
        let there = v4(0, 0, [1000, 53]);
        let mut back = v4(0, 0, [53, 1000]);
        back[26..34].copy_from_slice(&[10, 77, 0, 2, 10, 77, 0, 1]);
        let [there, back] = [there, back].map(|bytes| Headers::of(&frame(&bytes, None)).flow);
        assert_eq!(there.source, back.destination);
        assert_eq!(there.destination, back.source);
        assert_ne!(there.id, back.id);
    }

    #[test]
    fn flows_that_differ_in_a_port_spread_evenly_over_buckets() {
        let mut met = [0_u32; 1024];
        let mut all = BTreeSet::new();
        for port in 0..16_384 {
            let id = Headers::of(&frame(&v4(0, 0, [40_000 + port, 5201]), None))
                .flow
                .id;
            met[id as usize % met.len()] += 1;
            all.insert(id);
        }
        // 16 are expected in each. Chi-square with 1,023 degrees of freedom exceeds 1,200 in one of 10,000 cases.
        let chi_square: f64 = met
            .iter()
            .map(|n| (f64::from(*n) - 16.0).powi(2) / 16.0)
            .sum();
        assert!(chi_square < 1_200.0, "{chi_square}");
        assert!(all.len() > 16_380, "{}", all.len());
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0..3, tagged: bool,
        ) {
            if bytes.len() > 14 && kind > 0 {
                bytes[12..15].copy_from_slice(if kind == 1 { &[8, 0, 0x45] } else { &[0x86, 0xdd, 0x60] });
            }
            let vlan = tagged.then_some(Vlan { tpid: 0x8100, tci: 1 });
            let headers = Headers::of(&frame(&bytes, vlan));
            prop_assert!(headers.ports.is_none() || headers.protocol.is_some());
        }
    }
}
