//! Frames that keep a link itself alive. Namespaces and hosts send some unasked; impairing them would
//! hide a neighbour, not a packet.

const ARP: u16 = 0x0806;
const LLDP: u16 = 0x88cc;
const IPV6: u16 = 0x86dd;
const ICMPV6: u8 = 58;
const HOP_BY_HOP: u8 = 0;
/// Bridge group address of spanning tree (IEEE 802.1D).
const STP: [u8; 6] = [0x01, 0x80, 0xc2, 0x00, 0x00, 0x00];

/// Whether `frame` (from its Ethernet header on) is ARP, IPv6 neighbour or router discovery (RFC 4861),
/// MLD (RFC 2710, RFC 3810), LLDP or spanning tree.
#[must_use]
pub fn is_link_control(frame: &[u8]) -> bool {
    let Some((addresses, rest)) = frame.split_at_checked(12) else {
        return false;
    };
    if addresses.starts_with(&STP) {
        return true;
    }
    let Some((kind, payload)) = rest.split_first_chunk() else {
        return false;
    };
    match u16::from_be_bytes(*kind) {
        ARP | LLDP => true,
        IPV6 => is_discovery(payload),
        0x8100 | 0x88a8 => match payload.get(2..).and_then(<[u8]>::split_first_chunk) {
            Some((inner, _)) if u16::from_be_bytes(*inner) == ARP => true,
            Some((inner, payload)) if u16::from_be_bytes(*inner) == IPV6 => is_discovery(payload),
            _ => false,
        },
        _ => false,
    }
}

/// ICMPv6 types 130 to 137 and 143; MLD stands behind a hop-by-hop header of 8 bytes.
fn is_discovery(ip: &[u8]) -> bool {
    let at = match (ip.get(6), ip.get(40)) {
        (Some(&ICMPV6), _) => 40,
        (Some(&HOP_BY_HOP), Some(&ICMPV6)) => 48,
        _ => return false,
    };
    matches!(ip.get(at), Some(130..=137 | 143))
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
    fn discovery_is_control_and_a_ping_is_not() {
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
    fn frames_cut_short_are_not_control() {
        let whole = icmpv6(135);
        for len in 0..whole.len() - 8 {
            assert!(!is_link_control(&whole[..len]), "{len} bytes");
        }
    }
}
