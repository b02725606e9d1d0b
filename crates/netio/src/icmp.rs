//! The ICMP error that tells a sender that its packet was too big.

use crate::checksum;
use crate::ip::{Fragment, ICMP, ICMPV6, IPV4, IPV6, Ip, ether_type};

/// Bytes of the longest error in IPv4 (RFC 1812, section 4.3.2.3).
const LONGEST_V4: usize = 576;
/// Bytes of the longest error in IPv6, which is its least MTU (RFC 4443, section 3.2).
const LONGEST_V6: usize = 1280;
const HOPS: u8 = 64;

/// Returns the frame that tells the sender of `packet`, a single packet from its Ethernet header on, that the packet
/// was longer than the `mtu` L3 bytes of a link: ICMP "fragmentation needed" (RFC 1191, section 4) or ICMPv6 "packet
/// too big" (RFC 4443, section 3.2). It quotes as much of the packet as these allow, and has the reverse addresses and
/// the same VLAN tags.
///
/// A router would use its own address as the source. A link has none, so the source is the packet's destination.
///
/// Returns `None` where no error may be sent: for IPv4 packets that may be fragmented or whose header checksum is
/// wrong, for ICMP errors, for packets from or to a multicast or broadcast address of the link or of IP, for all
/// fragments except the first, and for source addresses that are not those of a single host (RFC 1122, section 3.2.2;
/// RFC 1812, section 4.3.2.7; RFC 4443, section 2.4). It also returns `None` for packets other than IP.
pub fn too_big(packet: &[u8], mtu: u16) -> Option<Vec<u8>> {
    let (kind, l3) = ether_type(packet)?;
    let ip = Ip::of(packet).filter(|ip| ip.next <= packet.len() && is_answered(packet, *ip))?;
    let end = ip.end(packet)?.clamp(ip.next, packet.len());
    let original = packet.get(l3..end)?;
    let (destination, source) = (packet.get(..6)?, packet.get(6..12)?);
    let mut reply = [source, destination, packet.get(12..l3)?].concat();
    match kind {
        IPV4 => reply.extend(v4(original, mtu)),
        IPV6 => reply.extend(v6(original, mtu)),
        _ => return None,
    }
    Some(reply)
}

fn is_answered(packet: &[u8], ip: Ip) -> bool {
    const GROUP_BIT: u8 = 1;
    // A router drops such a packet first, and the source address may be wrong.
    let is_damaged = !ip.v6 && checksum::sum(&[&packet[ip.at..ip.next]]) != 0xffff;
    let may_be_fragmented = !ip.v6 && packet[ip.at + 6] & 0x40 == 0;
    let is_error = match (ip.protocol, packet.get(ip.next)) {
        (ICMP, kind) if !ip.v6 => matches!(kind, None | Some(3..=5 | 11 | 12)),
        (ICMPV6, kind) if ip.v6 => matches!(kind, None | Some(..=127 | 137)),
        _ => false,
    };
    let addresses = ip.addresses(packet);
    let (source, destination) = addresses.split_at(addresses.len() / 2);
    // The error is sent to the hardware address of the sender.
    (packet[0] | packet[6]) & GROUP_BIT == 0
        && !is_damaged
        && !may_be_fragmented
        && !is_error
        && ip.fragment != Fragment::Later
        && is_one_host(source)
        && is_one_host(destination)
}

/// Returns whether the IPv4 or IPv6 address `address` can be that of one host.
fn is_one_host(address: &[u8]) -> bool {
    match address {
        [first, _, _, _] => !matches!(first, 0 | 127 | 224..),
        [first, .., last] => {
            *first != 0xff && (*last > 1 || address.iter().rev().skip(1).any(|byte| *byte != 0))
        }
        _ => false,
    }
}

fn v4(original: &[u8], mtu: u16) -> Vec<u8> {
    // The type is destination unreachable, the code fragmentation needed.
    let [high, low] = mtu.to_be_bytes();
    let mut icmp = vec![3, 4, 0, 0, 0, 0, high, low];
    icmp.extend(&original[..original.len().min(LONGEST_V4 - 28)]);
    let sum = !checksum::sum(&[&icmp]);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    let [high, low] = word(20 + icmp.len());
    // The TOS is internetwork control (RFC 1812, section 4.3.2.5). DF is set, so no identification is needed (RFC
    // 6864).
    let mut ip = vec![0x45, 0xc0, high, low, 0, 0, 0x40, 0, HOPS, ICMP, 0, 0];
    ip.extend(&original[16..20]);
    ip.extend(&original[12..16]);
    let sum = !checksum::sum(&[&ip]);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    [ip, icmp].concat()
}

fn v6(original: &[u8], mtu: u16) -> Vec<u8> {
    let [high, low] = mtu.to_be_bytes();
    let mut icmp = vec![2, 0, 0, 0, 0, 0, high, low];
    icmp.extend(&original[..original.len().min(LONGEST_V6 - 48)]);
    let addresses = [&original[24..40], &original[8..24]].concat();
    let pseudo = checksum::pseudo(&addresses, ICMPV6, icmp.len());
    icmp[2..4].copy_from_slice(&pseudo.to_be_bytes());
    let sum = !checksum::sum(&[&icmp]);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    let [high, low] = word(icmp.len());
    let ip = vec![0x60, 0, 0, 0, high, low, ICMPV6, HOPS];
    [ip, addresses, icmp].concat()
}

fn word(length: usize) -> [u8; 2] {
    u16::try_from(length).expect("at most 1,280").to_be_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
    const B: [u8; 6] = [2, 0, 0, 0, 0, 0xb];

    /// Returns a UDP packet from 10.77.0.1 to 10.77.0.2 with `payload` bytes that must not be fragmented.
    fn udp_v4(payload: usize) -> Vec<u8> {
        let mut frame = [B, A].concat();
        frame.extend([8, 0, 0x45, 0]);
        frame.extend(word(28 + payload));
        frame.extend([0, 9, 0x40, 0, 64, 17, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2]);
        with_header_checksum(&mut frame);
        frame.extend([0x30, 0x39, 0, 53]);
        frame.extend(word(8 + payload));
        frame.extend([0, 0]);
        frame.extend(vec![7; payload]);
        frame
    }

    /// Writes the checksum of an IPv4 header of 20 bytes.
    fn with_header_checksum(frame: &mut [u8]) {
        frame[24..26].fill(0);
        let sum = !checksum::sum(&[&frame[14..34]]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }

    /// Returns a UDP packet from fd77::1 to fd77::2 with `payload` bytes.
    fn udp_v6(payload: usize) -> Vec<u8> {
        let mut frame = [B, A].concat();
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend(word(8 + payload));
        frame.extend([17, 64]);
        frame.extend(v6_address(1));
        frame.extend(v6_address(2));
        frame.extend([0x30, 0x39, 0, 53]);
        frame.extend(word(8 + payload));
        frame.extend([0, 0]);
        frame.extend(vec![7; payload]);
        frame
    }

    fn v6_address(last: u8) -> [u8; 16] {
        let mut address = [0; 16];
        (address[0], address[1], address[15]) = (0xfd, 0x77, last);
        address
    }

    fn tagged(frame: &[u8]) -> Vec<u8> {
        [
            &frame[..12],
            &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 7],
            &frame[12..],
        ]
        .concat()
    }

    #[test]
    fn an_ipv4_error_equals_that_of_rfc_1191_byte_for_byte() {
        let packet = udp_v4(4);
        let reply = too_big(&packet, 1400).unwrap();
        let mut expected = [A, B].concat();
        expected.extend([8, 0, 0x45, 0xc0, 0, 60, 0, 0, 0x40, 0, 64, 1, 0x25, 0x65]);
        expected.extend([10, 77, 0, 2, 10, 77, 0, 1]);
        expected.extend([3, 4, 0, 0, 0, 0, 0x05, 0x78]);
        expected.extend(&packet[14..]);
        let sum = !checksum::sum(&[&expected[34..]]);
        expected[36..38].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(reply, expected);
        assert_eq!(checksum::sum(&[&reply[14..34]]), 0xffff);
    }

    #[test]
    fn an_ipv6_error_equals_that_of_rfc_4443_byte_for_byte() {
        let packet = udp_v6(4);
        let reply = too_big(&packet, 1400).unwrap();
        let mut expected = [A, B].concat();
        expected.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 60, 58, 64]);
        expected.extend(v6_address(2));
        expected.extend(v6_address(1));
        expected.extend([2, 0, 0, 0, 0, 0, 0x05, 0x78]);
        expected.extend(&packet[14..]);
        expected[56..58].copy_from_slice(&reply[56..58]);
        assert_eq!(reply, expected);
        let pseudo = checksum::pseudo(&reply[22..54], 58, 60);
        assert_eq!(
            checksum::add(pseudo, checksum::sum(&[&reply[54..]])),
            0xffff
        );
    }

    #[test]
    fn a_long_packet_is_quoted_up_to_the_limit_of_its_family() {
        let reply = too_big(&udp_v4(1472), 1400).unwrap();
        assert_eq!(reply.len(), 14 + 576);
        assert_eq!(reply[42..], udp_v4(1472)[14..14 + 548]);
        let reply = too_big(&udp_v6(1452), 1400).unwrap();
        assert_eq!(reply.len(), 14 + 1280);
        assert_eq!(reply[62..], udp_v6(1452)[14..14 + 1232]);
    }

    #[test]
    fn an_error_has_the_same_vlan_tags() {
        for packet in [udp_v4(4), udp_v6(4)] {
            let plain = too_big(&packet, 1400).unwrap();
            assert_eq!(too_big(&tagged(&packet), 1400), Some(tagged(&plain)));
        }
    }

    #[test]
    fn padding_after_a_packet_is_not_quoted() {
        let padded = [udp_v4(4), vec![9; 14]].concat();
        assert_eq!(too_big(&padded, 1400), too_big(&udp_v4(4), 1400));
    }

    /// Returns whether there is an error for `frame` after these bytes are replaced.
    fn is_answered_with(mut frame: Vec<u8>, bytes: &[(usize, u8)]) -> bool {
        bytes.iter().for_each(|(at, byte)| frame[*at] = *byte);
        if frame[12..15] == [8, 0, 0x45] {
            with_header_checksum(&mut frame);
        }
        too_big(&frame, 1400).is_some()
    }

    #[test]
    fn no_error_is_sent_where_it_is_forbidden() {
        let v4 = |bytes: &[(usize, u8)]| is_answered_with(udp_v4(4), bytes);
        let v6 = |bytes: &[(usize, u8)]| is_answered_with(udp_v6(4), bytes);
        assert!(v4(&[]) && v6(&[]));
        assert!(!v4(&[(20, 0)]), "may be fragmented");
        assert!(v4(&[(20, 0x60)]), "a first fragment");
        assert!(!v4(&[(21, 1)]), "a later fragment");
        assert!(v4(&[(23, 1), (34, 8)]), "an echo request");
        for kind in [3, 4, 5, 11, 12] {
            assert!(!v4(&[(23, 1), (34, kind)]), "ICMP error {kind}");
        }
        assert!(v6(&[(20, 58), (54, 128)]), "an echo request");
        for kind in [1, 2, 3, 4, 127, 137] {
            assert!(!v6(&[(20, 58), (54, kind)]), "ICMPv6 error {kind}");
        }
        for first in [0, 127, 224, 239, 255] {
            assert!(!v4(&[(26, first)]), "a packet from {first}.77.0.1");
            assert!(!v4(&[(30, first)]), "a packet to {first}.77.0.2");
        }
        assert!(!v4(&[(0, 3)]) && !v6(&[(0, 0x33)]), "a group on the link");
        assert!(
            !v4(&[(6, 3)]) && !v6(&[(6, 0x33)]),
            "the answer would go to a group on the link"
        );
        assert!(!v6(&[(38, 0xff)]), "to a group");
        let mut damaged = udp_v4(4);
        damaged[22] ^= 1;
        assert_eq!(too_big(&damaged, 1400), None, "a wrong header checksum");
        assert!(!v6(&[(22, 0), (23, 0), (37, 0)]), "from nowhere");
        assert!(!v6(&[(22, 0), (23, 0)]), "from the loopback address");
        assert!(!v4(&[(12, 0x88)]), "not IP");
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic_and_errors_have_right_checksums(
            mut bytes in prop::collection::vec(any::<u8>(), 0..1600), kind in 0..3, mtu: u16, tags in 0_usize..3,
        ) {
            if bytes.len() > 14 && kind > 0 {
                bytes[0] &= 0xfe;
                bytes[6] &= 0xfe;
                bytes[12..15].copy_from_slice(if kind == 1 { &[8, 0, 0x45] } else { &[0x86, 0xdd, 0x60] });
                if kind == 1 && bytes.len() >= 34 {
                    with_header_checksum(&mut bytes);
                }
            }
            (0..tags.min(bytes.len() / 12)).for_each(|_| drop(bytes.splice(12..12, [0x81, 0, 0, 7])));
            if let Some(reply) = too_big(&bytes, mtu) {
                let ip = Ip::of(&reply).unwrap();
                prop_assert_eq!(ip.end(&reply), Some(reply.len()));
                let pseudo = if ip.v6 {
                    checksum::pseudo(ip.addresses(&reply), 58, reply.len() - ip.next)
                } else {
                    prop_assert_eq!(checksum::sum(&[&reply[ip.at..ip.next]]), 0xffff);
                    0
                };
                prop_assert_eq!(checksum::add(pseudo, checksum::sum(&[&reply[ip.next..]])), 0xffff);
            }
        }
    }
}
