//! What a payload takes on each layer of an Ethernet, header by header.

use std::ops::Add;

use serde::Serialize;

/// IEEE 802.3 §3.1.1: two addresses and the type.
const HEADER: u64 = 14;
/// IEEE 802.1Q §9.6: one tag.
const TAG: u64 = 4;
/// IEEE 802.3 §3.2.9.
const FCS: u64 = 4;
/// IEEE 802.3 §4.4.2: the shortest frame, FCS included; a shorter one is padded. A tag counts towards it.
const LEAST_FRAME: u64 = 64;
/// IEEE 802.3 §3.1.1: preamble and start delimiter.
pub const PREAMBLE: u64 = 8;
/// IEEE 802.3 §4.4.2: the gap between packets, 96 bit times.
pub const GAP: u64 = 12;
const IPV4: u64 = 20;
const IPV6: u64 = 40;
/// RFC 8200 §4.5.
const IPV6_FRAGMENT: u64 = 8;
const TCP: u64 = 20;
/// RFC 7323 §3.2, with the padding that all stacks add.
const TIMESTAMPS: u64 = 12;
const UDP: u64 = 8;
/// The greatest value of 16 bits: IPv4's total length, IPv6's payload length.
const LENGTH_FIELD: u64 = 65_535;

/// The protocols above and below a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Stack {
    pub ipv6: bool,
    /// IEEE 802.1Q tags, 0 to 2.
    pub vlan_tags: u8,
    pub protocol: Protocol,
}

/// What carries the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// `timestamps`: with the option of RFC 7323, as all today's systems have it.
    Tcp {
        timestamps: bool,
    },
    Udp,
}

/// Bytes of one packet, or of several together, as each layer counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counted {
    pub packets: u64,
    /// L4 payload: goodput.
    pub payload: u64,
    /// IP packet.
    pub l3: u64,
    /// Frame without FCS, as tc counts it, tags and padding included.
    pub l2: u64,
    /// Frame with FCS.
    pub l2_with_fcs: u64,
    /// The wire: preamble and gap too.
    pub l1: u64,
}

impl Stack {
    /// A packet as long as the MTU, which [`Conditions::check`](super::Conditions::check) has passed.
    pub fn full_packet(self, mtu: u32) -> Counted {
        self.packet(self.most_payload(mtu))
    }

    /// The payload of a full packet: TCP's segment size, or the longest datagram that is not fragmented.
    pub fn most_payload(self, mtu: u32) -> u64 {
        u64::from(mtu) - self.ip() - self.l4()
    }

    /// A packet of its own with so much payload.
    pub fn packet(self, payload: u64) -> Counted {
        self.counted(payload, payload + self.l4() + self.ip())
    }

    /// The packets of an IP datagram with so much UDP payload, fragmented where the MTU asks for it (RFC 791 §2.3, RFC 8200
    /// §4.5): every fragment but the last carries a multiple of 8 bytes.
    pub fn datagram(self, payload: u64, mtu: u32) -> Counted {
        let whole = self.packet(payload);
        if whole.l3 <= u64::from(mtu) {
            return whole;
        }
        let header = self.ip() + if self.ipv6 { IPV6_FRAGMENT } else { 0 };
        let room = u64::from(mtu) - header;
        let mut counted = Counted::default();
        let mut left = payload + self.l4();
        while left > 0 {
            let taken = if left > room { room / 8 * 8 } else { left };
            counted = counted + self.counted(0, taken + header);
            left -= taken;
        }
        Counted { payload, ..counted }
    }

    /// The most payload of a UDP datagram.
    pub fn most_datagram(self) -> u64 {
        LENGTH_FIELD - self.l4() - if self.ipv6 { 0 } else { self.ip() }
    }

    fn counted(self, payload: u64, l3: u64) -> Counted {
        let frame = l3 + HEADER + TAG * u64::from(self.vlan_tags) + FCS;
        let l2_with_fcs = frame.max(LEAST_FRAME);
        Counted {
            packets: 1,
            payload,
            l3,
            l2: l2_with_fcs - FCS,
            l2_with_fcs,
            l1: l2_with_fcs + PREAMBLE + GAP,
        }
    }

    fn ip(self) -> u64 {
        if self.ipv6 { IPV6 } else { IPV4 }
    }

    fn l4(self) -> u64 {
        match self.protocol {
            Protocol::Tcp { timestamps: true } => TCP + TIMESTAMPS,
            Protocol::Tcp { timestamps: false } => TCP,
            Protocol::Udp => UDP,
        }
    }
}

impl Counted {
    /// What share of the wire's time carries payload, 0 to 1.
    pub fn efficiency(self) -> f64 {
        self.payload as f64 / self.l1 as f64
    }

    /// So many of them.
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

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn stack(ipv6: bool, protocol: Protocol) -> Stack {
        Stack {
            ipv6,
            vlan_tags: 0,
            protocol,
        }
    }

    const WITH: Protocol = Protocol::Tcp { timestamps: true };
    const WITHOUT: Protocol = Protocol::Tcp { timestamps: false };

    #[test]
    fn full_packets_at_1500_carry_the_known_shares_of_the_wire() {
        for (ipv6, protocol, payload, percent) in [
            (false, WITH, 1448, 94.148),
            (false, WITHOUT, 1460, 94.928),
            (true, WITH, 1428, 92.848),
            (true, WITHOUT, 1440, 93.628),
            (false, Protocol::Udp, 1472, 95.709),
            (true, Protocol::Udp, 1452, 94.408),
        ] {
            let full = stack(ipv6, protocol).full_packet(1500);
            assert_eq!((full.payload, full.l3, full.l1), (payload, 1500, 1538));
            assert_eq!((full.l2, full.l2_with_fcs), (1514, 1518));
            assert!((full.efficiency() * 100.0 - percent).abs() < 5e-4);
        }
    }

    #[test]
    fn a_shaper_that_counts_l2_gives_udp_what_document_002_measured() {
        let full = stack(false, Protocol::Udp).full_packet(1500);
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
        let empty = stack(false, Protocol::Udp).packet(1);
        assert_eq!((empty.l3, empty.l2, empty.l1), (29, 60, 84));
        // A tag takes the place of padding.
        let tagged = Stack {
            vlan_tags: 1,
            ..stack(false, Protocol::Udp)
        };
        assert_eq!(tagged.packet(1).l1, 84);
    }

    #[test]
    fn long_datagrams_are_fragmented() {
        let v4 = stack(false, Protocol::Udp);
        assert_eq!(v4.datagram(1472, 1500).packets, 1);
        let two = v4.datagram(1473, 1500);
        // 1481 bytes of IP payload: 1480 and 1, which is padded.
        assert_eq!((two.packets, two.payload, two.l3), (2, 1473, 1500 + 21));
        assert_eq!(two.l1, 1538 + 84);
        let v6 = stack(true, Protocol::Udp);
        // 1461 bytes: 1448 of the 1452 that a fragment has room for, and 13.
        let two = v6.datagram(1453, 1500);
        assert_eq!((two.packets, two.l3), (2, 1496 + 61));
        assert_eq!(v4.most_datagram(), 65_507);
        assert_eq!(v6.most_datagram(), 65_527);
    }
}
