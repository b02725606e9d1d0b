//! Recognises frames that keep a link itself working. Namespaces and hosts send some of them unsolicited. Impairing
//! them would not lose a packet but make a neighbour unreachable.

use crate::ip::{Fragment, ICMPV6, IPV6, Ip, ether_type};

const ARP: u16 = 0x0806;
const LLDP: u16 = 0x88cc;
/// Bridge group address of spanning tree (IEEE 802.1D).
const STP: [u8; 6] = [0x01, 0x80, 0xc2, 0x00, 0x00, 0x00];

/// Returns whether `frame`, from its Ethernet header on, is ARP, IPv6 neighbour or router discovery (RFC 4861), MLD
/// (RFC 2710, RFC 3810), LLDP or spanning tree.
pub fn is_link_control(frame: &[u8]) -> bool {
    match ether_type(frame) {
        None => false,
        Some(_) if frame.starts_with(&STP) => true,
        Some((ARP | LLDP, _)) => true,
        Some((IPV6, at)) => Ip::v6(frame, at).is_some_and(|ip| is_discovery(frame, ip)),
        Some(_) => false,
    }
}

/// Returns whether the packet has an ICMPv6 type from 130 to 137, or 143.
fn is_discovery(frame: &[u8], ip: Ip) -> bool {
    ip.protocol == ICMPV6
        && ip.fragment == Fragment::Whole
        && matches!(frame.get(ip.next), Some(130..=137 | 143))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u16, payload: &[u8]) -> Vec<u8> {
        [&[0u8; 12][..], &kind.to_be_bytes(), payload].concat()
    }

    fn icmpv6(kind: u8) -> Vec<u8> {
        let mut ip = vec![0; 48];
        ip[6] = ICMPV6;
        ip[40] = kind;
        frame(IPV6, &ip)
    }

    #[test]
    fn neighbour_discovery_is_link_control_and_a_ping_is_not() {
        for kind in [130, 133, 134, 135, 136, 137, 143] {
            assert!(is_link_control(&icmpv6(kind)), "type {kind}");
        }
        for kind in [128, 129, 1, 2] {
            assert!(!is_link_control(&icmpv6(kind)), "type {kind}");
        }
    }

    #[test]
    fn arp_is_control_with_and_without_a_tag() {
        assert!(is_link_control(&frame(ARP, &[])));
        assert!(is_link_control(&frame(0x8100, &[0, 5, 0x08, 0x06])));
        assert!(!is_link_control(&frame(0x0800, &[0; 40])));
    }

    #[test]
    fn truncated_frames_are_not_link_control() {
        let whole = icmpv6(135);
        for len in 0..whole.len() - 8 {
            assert!(!is_link_control(&whole[..len]), "{len} bytes");
        }
    }
}
