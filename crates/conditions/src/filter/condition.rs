//! The conditions of a filter, and the header fields that they compare.

use std::fmt;
use std::net::IpAddr;

use super::value::{Addresses, Dscp, EtherType, PortRange, VlanId};

/// The header fields of a packet that filters compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketFields {
    /// The EtherType behind all VLAN tags; absent in a truncated frame.
    pub ether_type: Option<u16>,
    /// The number in the outermost VLAN tag, without priority.
    pub vlan: Option<u16>,
    /// The fields of the outermost IP header; absent for other packets and for truncated ones.
    pub ip: Option<IpFields>,
}

/// The fields of an IP packet that filters compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpFields {
    /// Source and destination address, both of one version.
    pub addresses: [IpAddr; 2],
    /// The protocol that IP carries; in IPv6, the one behind the extension headers.
    pub protocol: u8,
    /// Source and destination port of TCP, UDP and SCTP; absent in a later fragment.
    pub ports: Option<[u16; 2]>,
    /// The differentiated services codepoint, 0 to 63.
    pub dscp: u8,
    /// Whether it is a fragment of a packet, the first one included.
    pub is_fragment: bool,
}

/// A condition of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FilterCondition {
    /// The packet is IPv4.
    V4,
    /// The packet is IPv6.
    V6,
    /// It has this EtherType.
    EtherType(EtherType),
    /// It has a VLAN tag, with this number if there is one.
    Vlan(Option<VlanId>),
    /// IP carries this protocol.
    Protocol(u8),
    /// IP carries ICMP, or ICMPv6.
    AnyIcmp,
    /// An end has one of these addresses.
    Address(PacketEnd, Addresses),
    /// An end has one of these ports.
    Port(PacketEnd, PortRange),
    /// It has this codepoint.
    Dscp(Dscp),
    /// It is a fragment, or, if false, a whole packet.
    Fragment(bool),
}

/// The end of a packet whose address or port is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketEnd {
    Source,
    Destination,
    Either,
}

/// The EtherTypes of IPv4 and IPv6.
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

impl FilterCondition {
    /// Returns whether a packet meets it.
    pub(crate) fn matches(&self, packet: &PacketFields) -> bool {
        match self {
            Self::EtherType(kind) => packet.ether_type == Some(kind.0),
            Self::Vlan(None) => packet.vlan.is_some(),
            Self::Vlan(Some(id)) => packet.vlan == Some(id.0),
            of_ip => packet.ip.as_ref().is_some_and(|ip| of_ip.matches_ip(ip)),
        }
    }

    fn matches_ip(&self, ip: &IpFields) -> bool {
        match self {
            Self::V4 => ip.addresses[0].is_ipv4(),
            Self::V6 => ip.addresses[0].is_ipv6(),
            Self::Protocol(number) => ip.protocol == *number,
            Self::AnyIcmp => [1, 58].contains(&ip.protocol),
            Self::Address(end, all) => end.matches(ip.addresses, |address| all.contains(address)),
            Self::Port(end, range) => ip
                .ports
                .is_some_and(|ports| end.matches(ports, |port| range.contains(*port))),
            Self::Dscp(dscp) => ip.dscp == dscp.0,
            Self::Fragment(is_one) => ip.is_fragment == *is_one,
            Self::EtherType(_) | Self::Vlan(_) => false,
        }
    }

    /// Returns whether every packet that meets this condition also meets `other`.
    pub(crate) fn implies(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Address(end, all), Self::Address(of, wider)) => {
                end.implies(*of) && wider.has_all_of(all)
            }
            (Self::Port(end, range), Self::Port(of, wider)) => {
                end.implies(*of) && wider.has_all_of(*range)
            }
            (Self::Protocol(1 | 58), Self::AnyIcmp) | (Self::Vlan(_), Self::Vlan(None)) => true,
            (own, Self::V4) => *own == Self::V4 || own.are_addresses(|net| net.addr().is_ipv4()),
            (own, Self::V6) => *own == Self::V6 || own.are_addresses(|net| net.addr().is_ipv6()),
            (own, Self::EtherType(EtherType(IPV4))) => own == other || own.implies(&Self::V4),
            (own, Self::EtherType(EtherType(IPV6))) => own == other || own.implies(&Self::V6),
            (own, other) => own == other,
        }
    }

    /// Returns it with only words that tcpdump has.
    pub(super) fn for_tcpdump(&self) -> String {
        match self {
            Self::Dscp(Dscp(dscp)) => {
                let (v4, v6) = (dscp << 2, u16::from(*dscp) << 6);
                format!("(ip[1] & 0xfc == {v4:#04x} or ip6[0:2] & 0x0fc0 == {v6:#06x})")
            }
            Self::Fragment(true) => "(ip[6:2] & 0x3fff != 0 or ip6[6] == 44)".to_owned(),
            Self::Fragment(false) => "not (ip[6:2] & 0x3fff != 0 or ip6[6] == 44)".to_owned(),
            Self::AnyIcmp => "(icmp or icmp6)".to_owned(),
            other => other.to_string(),
        }
    }

    /// Returns whether it compares addresses, and something is true of all of them.
    fn are_addresses(&self, is_true: impl Fn(ipnet::IpNet) -> bool) -> bool {
        match self {
            Self::Address(_, all) => all.nets().next().is_some() && all.nets().all(is_true),
            _ => false,
        }
    }
}

impl PacketEnd {
    fn matches<T>(self, [source, destination]: [T; 2], is_equal: impl Fn(&T) -> bool) -> bool {
        match self {
            Self::Source => is_equal(&source),
            Self::Destination => is_equal(&destination),
            Self::Either => is_equal(&source) || is_equal(&destination),
        }
    }

    fn implies(self, other: Self) -> bool {
        self == other || other == Self::Either
    }

    /// Returns its word in front of `host`, `net` or `port`.
    fn word(self) -> &'static str {
        match self {
            Self::Source => "src ",
            Self::Destination => "dst ",
            Self::Either => "",
        }
    }
}

impl fmt::Display for FilterCondition {
    /// Writes it as a filter has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4 => f.write_str("ip"),
            Self::V6 => f.write_str("ip6"),
            Self::EtherType(kind) => write!(f, "ether proto {kind}"),
            Self::Vlan(None) => f.write_str("vlan"),
            Self::Vlan(Some(id)) => write!(f, "vlan {id}"),
            Self::Protocol(1) => f.write_str("icmp"),
            Self::Protocol(6) => f.write_str("tcp"),
            Self::Protocol(17) => f.write_str("udp"),
            Self::Protocol(58) => f.write_str("icmp6"),
            Self::Protocol(132) => f.write_str("sctp"),
            Self::Protocol(number) => write!(f, "proto {number}"),
            Self::AnyIcmp => f.write_str("icmp or icmp6"),
            Self::Address(end, all) => {
                let is_net =
                    matches!(all, Addresses::Net(net) if net.prefix_len() < net.max_prefix_len());
                let word = if is_net { "net" } else { "host" };
                write!(f, "{}{word} {all}", end.word())
            }
            Self::Port(end, range) => {
                let word = match range.first == range.last {
                    true => "port",
                    false => "portrange",
                };
                write!(f, "{}{word} {range}", end.word())
            }
            Self::Dscp(dscp) => write!(f, "dscp {dscp}"),
            Self::Fragment(true) => f.write_str("fragment"),
            Self::Fragment(false) => f.write_str("no fragment"),
        }
    }
}
