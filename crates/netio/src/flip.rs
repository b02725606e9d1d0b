//! Flips bits, and updates the checksum so that it hides the damage if requested.

use std::ops::Range;

use model::Edit;

use crate::checksum;
use crate::ip::{Fragment, ICMP, ICMPV6, Ip, TCP, UDP, byte, ether_type, u16_at};

/// Applies `edit` to a packet with a complete checksum. Padding after the packet is not changed.
///
/// If the checksum is to be repaired, the packet remains unchanged if it is a fragment or has no payload after a header
/// of TCP, UDP or ICMP.
pub(crate) fn edit(packet: &mut [u8], edit: Edit) {
    let Edit::FlipBits {
        first,
        count,
        repair,
    } = edit;
    let target = if repair {
        Target::payload(packet)
    } else {
        Target::behind_ip(packet)
    };
    let Some(target) = target.filter(|target| !target.bytes.is_empty()) else {
        return;
    };
    for bit in positions(first, count.get(), target.bytes.len() * 8) {
        target.flip(packet, bit);
    }
}

/// Returns the positions of `count` different bits of `bits`, or of all bits if there are no more. The first position
/// is `first` modulo `bits`; the others follow from it (splitmix64).
fn positions(first: u32, count: u8, bits: usize) -> Vec<usize> {
    let mut found = vec![first as usize % bits];
    let mut state = u64::from(first);
    while found.len() < usize::from(count).min(bits) {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let [.., a, b, c, d] = (word ^ (word >> 31)).to_le_bytes();
        let place = u32::from_le_bytes([a, b, c, d]) as usize % bits;
        if !found.contains(&place) {
            found.push(place);
        }
    }
    found
}

/// The bytes in which bits are flipped, and the checksum that is updated with them.
struct Target {
    bytes: Range<usize>,
    checksum: Option<Checksum>,
}

/// A checksum over all bytes from a header on.
struct Checksum {
    /// Offset of the header, which is that of the first word in the sum.
    from: usize,
    /// Offset of the checksum.
    at: usize,
    /// Whether 0 means no checksum, so that a checksum of 0 is written as all ones (RFC 768).
    is_udp: bool,
}

impl Target {
    /// Returns the bytes after the IP header, or after the Ethernet header if there is no readable IP header. No
    /// checksum is updated.
    fn behind_ip(packet: &[u8]) -> Option<Self> {
        let (from, to) = match Ip::of(packet) {
            Some(ip) => (ip.next, ip.end(packet).unwrap_or(packet.len())),
            None => (ether_type(packet).map_or(14, |(_, at)| at), packet.len()),
        };
        let to = if to > from {
            to.min(packet.len())
        } else {
            packet.len()
        };
        Some(Self {
            bytes: from..to,
            checksum: None,
        })
    }

    /// Returns the bytes that `packet` carries after its transport header, with the checksum if there is one; `None` if
    /// that header is not one of TCP, UDP and ICMP, or if the packet is a fragment.
    fn payload(packet: &[u8]) -> Option<Self> {
        let ip = Ip::of(packet).filter(|ip| ip.fragment == Fragment::Whole)?;
        let from = ip.next;
        let end = ip.end(packet).filter(|end| *end <= packet.len())?;
        let (header, field, end) = match ip.protocol {
            TCP => (usize::from(byte(packet, from + 12)? >> 4) * 4, 16, end),
            UDP => (8, 6, end.min(from + usize::from(u16_at(packet, from + 4)?))),
            ICMP | ICMPV6 => (8, 2, end),
            _ => return None,
        };
        let at = from + field;
        let is_udp = ip.protocol == UDP;
        let has_none = is_udp && u16_at(packet, at)? == 0;
        let is_whole = header >= field + 2 && from + header <= packet.len();
        is_whole.then(|| Self {
            bytes: from + header..end,
            checksum: (!has_none).then_some(Checksum { from, at, is_udp }),
        })
    }

    /// Flips bit number `bit` of its bytes, and updates the checksum accordingly (RFC 1624, equation 3).
    fn flip(&self, packet: &mut [u8], bit: usize) {
        let (at, mask) = (self.bytes.start + bit / 8, 0x80 >> (bit % 8));
        let Some(checksum) = &self.checksum else {
            packet[at] ^= mask;
            return;
        };
        let even = at - (at - checksum.from) % 2;
        // An odd byte at the end counts as if a byte of 0 followed.
        let has_low = even + 1 < self.bytes.end;
        let word = |packet: &[u8]| {
            u16::from_be_bytes([packet[even], if has_low { packet[even + 1] } else { 0 }])
        };
        let before = word(packet);
        packet[at] ^= mask;
        let after = word(packet);
        let sum = u16_at(packet, checksum.at).unwrap_or_default();
        let sum = match !checksum::add(checksum::add(!sum, !before), after) {
            0 if checksum.is_udp => 0xffff,
            sum => sum,
        };
        packet[checksum.at..checksum.at + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU8;

    use proptest::prelude::*;

    use super::*;

    /// Returns a packet of `protocol` (ICMP is that of the IP version) with this payload and a correct checksum, and
    /// the offsets of its transport header and payload. A UDP datagram over IPv4 may have no checksum.
    fn packet(v6: bool, protocol: u8, payload: &[u8], without: bool) -> (Vec<u8>, usize, usize) {
        let word = |n: usize| u16::try_from(n).unwrap().to_be_bytes();
        let protocol = if v6 && protocol == 1 { 58 } else { protocol };
        let (header, place) = match protocol {
            TCP => (
                vec![0x5a; 12]
                    .into_iter()
                    .chain([0x60, 0x10])
                    .chain([0; 10])
                    .collect(),
                16,
            ),
            UDP => (
                [&[0x5a; 4], &word(8 + payload.len())[..], &[0; 2]].concat(),
                6,
            ),
            _ => (vec![8, 0, 0, 0, 1, 2, 3, 4], 2),
        };
        let mut segment: Vec<u8> = [header, payload.to_vec()].concat();
        let addresses: Vec<u8> = (1..=if v6 { 32 } else { 8 }).collect();
        let pseudo = match protocol {
            1 => 0,
            _ => checksum::pseudo(&addresses, protocol, segment.len()),
        };
        segment[place..place + 2].copy_from_slice(&pseudo.to_be_bytes());
        let sum = if without {
            0
        } else {
            checksum::complete(&[&segment], place)
        };
        segment[place..place + 2].copy_from_slice(&sum.to_be_bytes());
        let mut frame = vec![2; 12];
        if v6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(word(segment.len()));
            frame.extend([protocol, 64]);
        } else {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend(word(20 + segment.len()));
            frame.extend([0, 9, 0, 0, 64, protocol, 0, 0]);
        }
        frame.extend(&addresses);
        let at = frame.len();
        let carried = at + segment.len() - payload.len();
        frame.extend(segment);
        (frame, at, carried)
    }

    /// Returns whether the checksum is correct, or absent where it may be.
    fn is_right(packet: &[u8]) -> bool {
        let ip = Ip::of(packet).unwrap();
        let segment = &packet[ip.next..ip.end(packet).unwrap()];
        let pseudo = match ip.protocol {
            1 => 0,
            protocol => checksum::pseudo(ip.addresses(packet), protocol, segment.len()),
        };
        let whole = checksum::add(checksum::sum(&[segment]), pseudo);
        let has_none = ip.protocol == UDP && segment[6..8] == [0, 0];
        if has_none { !ip.v6 } else { whole == 0xffff }
    }

    proptest! {
        #[test]
        fn a_repaired_packet_differs_by_the_flipped_bits_and_has_a_right_checksum(
            v6: bool, protocol in prop::sample::select(vec![1, TCP, UDP]), without: bool,
            payload in prop::collection::vec(prop_oneof![Just(0), Just(0xff), any::<u8>()], 1..200),
            first: u32, count: NonZeroU8, padding in 0_usize..5,
        ) {
            let without = without && protocol == UDP && !v6;
            let (before, at, carried) = packet(v6, protocol, &payload, without);
            prop_assert!(is_right(&before));
            let mut after = [&before[..], &vec![0; padding]].concat();
            edit(&mut after, Edit::FlipBits { first, count, repair: true });
            prop_assert!(is_right(&after), "{before:x?} {after:x?}");
            prop_assert_eq!(&after[..at], &before[..at]);
            prop_assert_eq!(&after[before.len()..], &vec![0; padding]);
            let between = before[carried..].iter().zip(&after[carried..before.len()]);
            let bits: u32 = between.map(|(one, other)| (one ^ other).count_ones()).sum();
            prop_assert_eq!(bits as usize, usize::from(count.get()).min(payload.len() * 8));
            let in_header = before[at..carried].iter().zip(&after[at..carried]).filter(|(one, other)| one != other);
            prop_assert!(in_header.count() <= 2);
            if without {
                prop_assert_eq!(&after[at + 6..at + 8], &[0, 0]);
            }
        }

        #[test]
        fn positions_are_distinct_and_the_first_is_the_given_number(first: u32, count: u8, bits in 1_usize..3_000) {
            let found = positions(first, count, bits);
            prop_assert_eq!(found[0], first as usize % bits);
            prop_assert_eq!(found.len(), usize::from(count).clamp(1, bits));
            let mut sorted = found.clone();
            sorted.sort_unstable();
            sorted.dedup();
            prop_assert!(sorted.len() == found.len() && found.iter().all(|place| *place < bits));
        }
    }

    #[test]
    fn packets_that_cannot_be_repaired_are_unchanged() {
        let repaired = Edit::FlipBits {
            first: 7,
            count: NonZeroU8::MIN,
            repair: true,
        };
        let stays = |mut packet: Vec<u8>| {
            let before = packet.clone();
            edit(&mut packet, repaired);
            assert_eq!(packet, before);
        };
        for protocol in [1, TCP, UDP] {
            stays(packet(false, protocol, &[], false).0);
            let mut fragment = packet(false, protocol, &[1; 8], false).0;
            fragment[20] = 0x20;
            stays(fragment);
        }
        stays(packet(false, 132, &[1; 8], false).0);
        let mut cut = packet(true, TCP, &[1; 8], false).0;
        cut.truncate(60);
        stays(cut);
    }

    #[test]
    fn a_udp_checksum_of_zero_is_written_as_all_ones() {
        let (mut before, at, carried) = packet(false, UDP, &[0, 0, 0, 0], false);
        // The payload for which the checksum is 0 after its first bit is flipped.
        let sum = u16_at(&before, at + 6).unwrap();
        let word = checksum::add(sum, !0x8000);
        before[carried + 2..carried + 4].copy_from_slice(&word.to_be_bytes());
        let complete = {
            before[at + 6..at + 8].fill(0);
            let ip = Ip::of(&before).unwrap();
            let pseudo = checksum::pseudo(ip.addresses(&before), UDP, before.len() - at);
            !checksum::add(checksum::sum(&[&before[at..]]), pseudo)
        };
        before[at + 6..at + 8].copy_from_slice(&complete.to_be_bytes());
        edit(
            &mut before,
            Edit::FlipBits {
                first: 0,
                count: NonZeroU8::MIN,
                repair: true,
            },
        );
        assert_eq!(before[at + 6..at + 8], [0xff, 0xff]);
        assert!(is_right(&before));
    }
}
