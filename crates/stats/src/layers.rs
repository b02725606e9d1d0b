//! The bytes that a payload takes on each layer of an Ethernet, header by header.

use std::ops::Add;

use serde::Serialize;

/// The Ethernet header: two addresses and the type, without FCS (IEEE 802.3 §3.1.1).
pub const ETHERNET_HEADER: u32 = 14;
/// One VLAN tag (IEEE 802.1Q §9.6).
const TAG: u32 = 4;
/// The frame check sequence (IEEE 802.3 §3.2.9).
const FCS: u32 = 4;
/// The shortest frame, with FCS; a shorter one is padded. A tag counts towards it (IEEE 802.3 §4.4.2).
const MIN_FRAME: u32 = 64;
/// Preamble and start delimiter (IEEE 802.3 §3.1.1).
pub const PREAMBLE: u32 = 8;
/// The gap between packets, 96 bit times (IEEE 802.3 §4.4.2).
pub const GAP: u32 = 12;
/// The bytes on the wire in addition to a frame without FCS.
pub const WIRE: u32 = FCS + PREAMBLE + GAP;
/// The least MTU of IPv4 (RFC 791 §3.2).
const LEAST_MTU: u32 = 68;
/// The fragment header of IPv6 (RFC 8200 §4.5).
const IPV6_FRAGMENT: u32 = 8;
/// The TCP header without options (RFC 9293 §3.1).
const TCP_HEADER: u32 = 20;
/// The timestamps option, with the padding that all stacks add (RFC 7323 §3.2).
const TIMESTAMPS: u32 = 12;
/// The UDP header (RFC 768).
pub const UDP_HEADER: u32 = 8;
/// The greatest value of 16 bits: IPv4's total length, IPv6's payload length.
const LENGTH_FIELD: u64 = 65_535;

/// Returns the length of the IP header without options (RFC 791 §3.1, RFC 8200 §3).
pub fn ip_header(ipv6: bool) -> u32 {
    if ipv6 { 40 } else { 20 }
}

/// The protocols around a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Stack {
    /// Whether IP is version 6.
    pub ipv6: bool,
    /// The number of IEEE 802.1Q tags, 0 to 2.
    pub vlan_tags: u8,
    /// The protocol that carries the payload.
    pub protocol: TransportProtocol,
}

/// The protocol that carries the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TransportProtocol {
    /// TCP, in segments.
    Tcp {
        /// Whether segments have the timestamps option of RFC 7323, as on all current systems.
        timestamps: bool,
    },
    /// UDP, in datagrams.
    Udp,
}

/// The bytes of one packet, or of several together, as each layer counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// The number of packets.
    pub packets: u64,
    /// The payload of L7, the goodput.
    pub payload: u64,
    /// The IP packets.
    pub l3: u64,
    /// The frames without FCS, as tc counts them, with tags and padding.
    pub l2: u64,
    /// The frames with FCS.
    pub l2_with_fcs: u64,
    /// The bytes on the wire, with preamble and gap.
    pub l1: u64,
}

impl Stack {
    /// Returns a packet as long as the MTU, which [`PathConditions::check`](crate::theory::PathConditions::check) must
    /// have accepted.
    pub fn full_packet(self, mtu: u32) -> Counted {
        self.packet(self.most_payload(mtu))
    }

    /// Returns the payload of a full packet: TCP's segment size, or the longest datagram that is not fragmented.
    pub fn most_payload(self, mtu: u32) -> u64 {
        u64::from(mtu - self.packet_headers())
    }

    /// Returns a single packet with this payload.
    pub fn packet(self, payload: u64) -> Counted {
        self.counted(payload, payload + u64::from(self.packet_headers()))
    }

    /// Returns the packets of an IP datagram with this UDP payload, fragmented if the MTU requires it (RFC 791 §2.3,
    /// RFC 8200 §4.5): every fragment except the last carries a multiple of 8 bytes.
    pub fn datagram(self, payload: u64, mtu: u32) -> Counted {
        let whole = self.packet(payload);
        if whole.l3 <= u64::from(mtu) {
            return whole;
        }
        let header = u64::from(ip_header(self.ipv6) + if self.ipv6 { IPV6_FRAGMENT } else { 0 });
        let room = u64::from(mtu) - header;
        let mut counted = Counted::default();
        let mut left = payload + u64::from(self.l4_header());
        while left > 0 {
            let taken = if left > room { room / 8 * 8 } else { left };
            counted = counted + self.counted(0, taken + header);
            left -= taken;
        }
        Counted { payload, ..counted }
    }

    /// Returns the largest payload of a UDP datagram.
    pub fn most_datagram(self) -> u64 {
        let field = if self.ipv6 {
            self.l4_header()
        } else {
            self.packet_headers()
        };
        LENGTH_FIELD - u64::from(field)
    }

    fn counted(self, payload: u64, l3: u64) -> Counted {
        let (least, fcs) = (u64::from(MIN_FRAME), u64::from(FCS));
        let l2_with_fcs = (l3 + u64::from(self.frame_header()) + fcs).max(least);
        let l2 = l2_with_fcs - fcs;
        Counted {
            packets: 1,
            payload,
            l3,
            l2,
            l2_with_fcs,
            l1: l2 + u64::from(WIRE),
        }
    }

    /// Returns the bytes in front of the IP packet.
    fn frame_header(self) -> u32 {
        ETHERNET_HEADER + TAG * u32::from(self.vlan_tags)
    }

    /// Returns the bytes of the headers of IP and of the protocol that it carries.
    fn packet_headers(self) -> u32 {
        ip_header(self.ipv6) + self.l4_header()
    }

    fn l4_header(self) -> u32 {
        match self.protocol {
            TransportProtocol::Tcp { timestamps: true } => TCP_HEADER + TIMESTAMPS,
            TransportProtocol::Tcp { timestamps: false } => TCP_HEADER,
            TransportProtocol::Udp => UDP_HEADER,
        }
    }
}

impl Counted {
    /// Returns the share of the wire's time that carries payload, 0 to 1.
    pub fn efficiency(self) -> f64 {
        self.payload as f64 / self.l1 as f64
    }

    /// Returns `count` times these bytes.
    pub fn times(self, count: u64) -> Self {
        Self {
            packets: self.packets * count,
            payload: self.payload * count,
            l3: self.l3 * count,
            l2: self.l2 * count,
            l2_with_fcs: self.l2_with_fcs * count,
            l1: self.l1 * count,
        }
    }
}

impl Add for Counted {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            payload: self.payload + other.payload,
            l3: self.l3 + other.l3,
            l2: self.l2 + other.l2,
            l2_with_fcs: self.l2_with_fcs + other.l2_with_fcs,
            l1: self.l1 + other.l1,
        }
    }
}

/// The rates at L1, L2 and L3 that belong to a goodput.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Layers {
    /// The average payload of a segment or datagram.
    pub payload: f64,
    /// The bytes of the headers of IP and of TCP or UDP in each unfragmented packet.
    headers: u32,
    /// The packets of a segment or datagram.
    packets: u64,
    /// The bytes of these packets at L3, and of their frames without FCS at L2.
    l3: f64,
    l2: f64,
}

impl Layers {
    /// Creates the layers of TCP segments with this average payload.
    pub fn new(payload: f64, ipv6: bool, timestamps: bool) -> Self {
        let stack = Stack {
            ipv6,
            vlan_tags: 0,
            protocol: TransportProtocol::Tcp { timestamps },
        };
        let headers = stack.packet_headers();
        let l3 = payload + f64::from(headers);
        let l2 = l3 + f64::from(stack.frame_header());
        Self {
            payload,
            headers,
            packets: 1,
            l3,
            l2: l2.max(f64::from(MIN_FRAME - FCS)),
        }
    }

    /// Creates the layers of UDP datagrams with this payload. Those that are longer than the MTU are IP fragments.
    /// Without an MTU, each is a single packet.
    pub fn of_datagrams(payload: u64, ipv6: bool, mtu: Option<u32>) -> Self {
        let stack = Stack {
            ipv6,
            vlan_tags: 0,
            protocol: TransportProtocol::Udp,
        };
        // A fragment needs room for a header and 8 bytes, which every MTU of IP has.
        let mtu = mtu.filter(|mtu| *mtu >= LEAST_MTU);
        let one = mtu.map_or(stack.packet(payload), |mtu| stack.datagram(payload, mtu));
        Self {
            payload: payload as f64,
            headers: stack.packet_headers(),
            packets: one.packets,
            l3: one.l3 as f64,
            l2: one.l2 as f64,
        }
    }

    /// Returns the bytes of the headers of IP and of TCP or UDP in each unfragmented packet.
    pub fn headers(&self) -> u32 {
        self.headers
    }

    /// Returns the number of IP packets that carry a segment or datagram: more than 1 for fragments.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns the rate of IP packets for this goodput.
    pub fn l3(&self, goodput: f64) -> f64 {
        goodput * self.l3 / self.payload
    }

    /// Returns the rate of frames without FCS, as tc counts them.
    pub fn l2(&self, goodput: f64) -> f64 {
        goodput * self.l2 / self.payload
    }

    /// Returns the rate on the wire, with FCS, preamble and gap.
    pub fn l1(&self, goodput: f64) -> f64 {
        goodput * (self.l2 + self.packets as f64 * f64::from(WIRE)) / self.payload
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn stack(ipv6: bool, protocol: TransportProtocol) -> Stack {
        Stack {
            ipv6,
            vlan_tags: 0,
            protocol,
        }
    }

    const WITH: TransportProtocol = TransportProtocol::Tcp { timestamps: true };
    const WITHOUT: TransportProtocol = TransportProtocol::Tcp { timestamps: false };

    #[test]
    fn full_packets_at_1500_have_the_known_efficiencies() {
        for (ipv6, protocol, payload, percent) in [
            (false, WITH, 1448, 94.148),
            (false, WITHOUT, 1460, 94.928),
            (true, WITH, 1428, 92.848),
            (true, WITHOUT, 1440, 93.628),
            (false, TransportProtocol::Udp, 1472, 95.709),
            (true, TransportProtocol::Udp, 1452, 94.408),
        ] {
            let full = stack(ipv6, protocol).full_packet(1500);
            assert_eq!((full.payload, full.l3, full.l1), (payload, 1500, 1538));
            assert_eq!((full.l2, full.l2_with_fcs), (1514, 1518));
            assert!((full.efficiency() * 100.0 - percent).abs() < 5e-4);
        }
    }

    #[test]
    fn a_shaper_that_counts_l2_gives_udp_the_share_that_alt_speed_measured() {
        let full = stack(false, TransportProtocol::Udp).full_packet(1500);
        let share = full.payload as f64 / full.l2 as f64;
        assert!((share - 0.972).abs() < 5e-4);
    }

    #[test]
    fn tags_and_jumbo_frames_count() {
        let tagged = |vlan_tags| Stack {
            vlan_tags,
            ..stack(false, WITH)
        };
        assert_eq!(tagged(1).full_packet(1500).l1, 1542);
        assert_eq!(tagged(2).full_packet(1500).l1, 1546);
        let jumbo = tagged(0).full_packet(9000);
        assert_eq!((jumbo.payload, jumbo.l1), (8948, 9038));
    }

    #[test]
    fn a_frame_is_never_shorter_than_64_bytes() {
        let empty = stack(false, TransportProtocol::Udp).packet(1);
        assert_eq!((empty.l3, empty.l2, empty.l1), (29, 60, 84));
        // A tag replaces padding.
        let tagged = Stack {
            vlan_tags: 1,
            ..stack(false, TransportProtocol::Udp)
        };
        assert_eq!(tagged.packet(1).l1, 84);
    }

    #[test]
    fn long_datagrams_are_fragmented() {
        let v4 = stack(false, TransportProtocol::Udp);
        assert_eq!(v4.datagram(1472, 1500).packets, 1);
        let two = v4.datagram(1473, 1500);
        // The 1481 bytes of IP payload are split into 1480 and 1, which is padded.
        assert_eq!((two.packets, two.payload, two.l3), (2, 1473, 1500 + 21));
        assert_eq!(two.l1, 1538 + 84);
        let v6 = stack(true, TransportProtocol::Udp);
        // The 1461 bytes are split into 1448, of the 1452 that fit into a fragment, and 13.
        let two = v6.datagram(1453, 1500);
        assert_eq!((two.packets, two.l3), (2, 1496 + 61));
        assert_eq!(v4.most_datagram(), 65_507);
        assert_eq!(v6.most_datagram(), 65_527);
    }

    #[test]
    fn full_frames_of_1500_bytes_have_the_rates_of_the_formulas() {
        for (segment, ipv6, timestamps, share) in [
            (1448.0, false, true, 0.94148),
            (1460.0, false, false, 0.94928),
            (1428.0, true, true, 1428.0 / 1538.0),
        ] {
            let layers = Layers::new(segment, ipv6, timestamps);
            assert!((1.0 / layers.l1(1.0) - share).abs() < 1e-5);
            assert!((layers.l2(segment) - 1514.0).abs() < 1e-9);
            assert!((layers.l3(segment) - 1500.0).abs() < 1e-9);
        }
    }

    #[test]
    fn full_datagrams_have_the_rates_of_the_formulas() {
        let layers = Layers::of_datagrams(1472, false, Some(1500));
        assert!((1.0 / layers.l1(1.0) - 0.95709).abs() < 1e-5);
        assert_eq!(layers, Layers::of_datagrams(1472, false, None));
    }

    #[test]
    fn the_headers_of_all_fragments_count() {
        let layers = Layers::of_datagrams(4096, false, Some(1500));
        // 4,104 bytes of IP payload are two fragments of 1,480 bytes and one of 1,144.
        assert_eq!(layers.packets(), 3);
        assert!((layers.l3(4096.0) - 4164.0).abs() < 1e-9);
        assert!((layers.l2(4096.0) - 4206.0).abs() < 1e-9);
        assert!((layers.l1(4096.0) - 4278.0).abs() < 1e-9);
        let longest = Layers::of_datagrams(65_507, true, Some(1280));
        // Each fragment has a header of 48 bytes and up to 1,232 bytes of the 65,515.
        assert_eq!(longest.packets(), 54);
        assert_eq!(Layers::of_datagrams(4096, false, Some(9000)).packets(), 1);
    }

    #[test]
    fn a_frame_of_few_bytes_is_padded_to_64() {
        assert!((Layers::new(1.0, false, false).l1(1.0) - 84.0).abs() < 1e-9);
    }
}
