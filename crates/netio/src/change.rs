//! Changes the bytes of a packet: sets a congestion mark, or flips bits.

use std::borrow::Cow;

use model::Edit;

use crate::ip::{IPV4, IPV6, ether_type, u16_at};
use crate::port::{FrameHead, MAX_HEAD, TxFrame};
use crate::{checksum, flip};

impl TxFrame<'_> {
    /// Changes a single packet: completes its checksum, so that the damage is not covered by a checksum that is
    /// computed later; marks it if `mark` is set; and then applies `edit`.
    ///
    /// For a tunnel's packet the outermost IP header is marked, as a router on the tunnel's path would.
    pub fn change(&mut self, mark: bool, edit: Option<Edit>) {
        self.gather_head();
        self.complete_checksum();
        // For a single packet, the GSO information has no meaning.
        self.offload.gso = None;
        if mark {
            self.gather_head();
            mark_ce(self.head.bytes_mut());
        }
        if let Some(edit) = edit {
            let mut bytes = [self.head.bytes(), &self.body].concat();
            flip::edit(&mut bytes, edit);
            (self.head, self.body) = (FrameHead::EMPTY, bytes.into());
        }
    }

    /// Moves as much of the body as fits into the head, so that headers can be changed in place.
    fn gather_head(&mut self) {
        let odd = |at: u16| usize::from(at) % 2;
        let parity = self
            .offload
            .checksum
            .map_or(0, |partial| odd(partial.start));
        let room = MAX_HEAD - parity - self.head.bytes().len().min(MAX_HEAD - parity);
        let taken = room.min(self.body.len());
        match &mut self.body {
            Cow::Borrowed(body) => {
                let (front, rest) = body.split_at(taken);
                self.head.extend(front);
                *body = rest;
            }
            Cow::Owned(body) => self.head.extend(body.drain(..taken).as_slice()),
        }
    }
}

/// Sets the CE codepoint (RFC 3168, section 5) in the IP header of the packet that starts with `head`; does nothing if
/// there is none.
fn mark_ce(head: &mut [u8]) {
    match ether_type(head) {
        Some((IPV4, at)) if head.len() >= at + 20 => {
            let word = |head: &[u8], at| u16_at(head, at).unwrap_or_default();
            let (before, sum) = (word(head, at), word(head, at + 10));
            head[at + 1] |= 3;
            // The update follows RFC 1624, equation 3.
            let sum = !checksum::add(checksum::add(!sum, !before), word(head, at));
            head[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
        }
        Some((IPV6, at)) if head.len() >= at + 40 => head[at + 1] |= 0x30,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU8;

    use proptest::prelude::*;

    use super::*;
    use crate::frame::{Offload, PartialChecksum};

    /// Returns an edit that flips the bit of this number alone.
    fn flip(number: u32) -> Edit {
        Edit::FlipBits {
            first: number,
            count: NonZeroU8::MIN,
            repair: false,
        }
    }

    /// Returns an Ethernet frame with `tags` VLAN tags and a UDP datagram of `payload`, with complete checksums.
    fn datagram(v6: bool, tags: usize, payload: &[u8]) -> Vec<u8> {
        let word = |n: usize| u16::try_from(n).unwrap().to_be_bytes();
        let addresses: Vec<u8> = (1..=if v6 { 32 } else { 8 }).collect();
        let len = 8 + payload.len();
        let mut udp = [&[0x30, 0x39, 0, 53], &word(len)[..], &[0, 0], payload].concat();
        udp[6..8].copy_from_slice(&checksum::pseudo(&addresses, 17, len).to_be_bytes());
        let sum = checksum::complete(&[&udp], 6);
        udp[6..8].copy_from_slice(&sum.to_be_bytes());
        let mut frame = vec![2; 12];
        (0..tags).for_each(|_| frame.extend([0x81, 0, 0, 7]));
        if v6 {
            frame.extend([0x86, 0xdd, 0x60, 0x20, 0, 0]);
            frame.extend(word(len));
            frame.extend([17, 64]);
            frame.extend(&addresses);
        } else {
            let mut ip = [
                &[0x45, 0xba],
                &word(20 + len)[..],
                &[0, 9, 0x40, 0, 64, 17, 0, 0],
            ]
            .concat();
            ip.extend(&addresses);
            let sum = !checksum::sum(&[&ip]);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            frame.extend([8, 0]);
            frame.extend(ip);
        }
        [frame, udp].concat()
    }

    /// Returns the offset at which the L3 header of [`datagram`] ends.
    fn behind_ip(v6: bool, tags: usize) -> usize {
        14 + 4 * tags + if v6 { 40 } else { 20 }
    }

    /// Returns the changed packet, if it arrived with a partial checksum and `in_head` bytes of it were rewritten.
    fn changed(
        packet: &[u8],
        l4: usize,
        in_head: usize,
        mark: bool,
        edit: Option<Edit>,
    ) -> Vec<u8> {
        let mut partial = packet.to_vec();
        let (front, udp) = partial.split_at_mut(l4);
        let v6 = udp.len() + 40 + 14 <= packet.len() && front[l4 - 40] >> 4 == 6;
        let addresses = &front[l4 - if v6 { 32 } else { 8 }..];
        let pseudo = checksum::pseudo(addresses, 17, udp.len());
        udp[6..8].copy_from_slice(&pseudo.to_be_bytes());
        let mut head = FrameHead::EMPTY;
        head.extend(&partial[..in_head.min(partial.len())]);
        let mut frame = TxFrame {
            tunnel: None,
            offload: Offload {
                gso: None,
                checksum: Some(PartialChecksum {
                    start: u16::try_from(l4).unwrap(),
                    offset: 6,
                }),
            },
            head,
            body: partial[in_head.min(partial.len())..].into(),
        };
        frame.change(mark, edit);
        assert_eq!(frame.offload, Offload::default());
        [frame.head.bytes(), &frame.body].concat()
    }

    proptest! {
        #[test]
        fn a_mark_changes_only_the_ecn_bits_and_keeps_checksums_right(
            v6: bool, tags in 0_usize..3, payload in prop::collection::vec(any::<u8>(), 0..600), in_head in 0_usize..120,
        ) {
            let packet = datagram(v6, tags, &payload);
            let l4 = behind_ip(v6, tags);
            let marked = changed(&packet, l4, in_head, true, None);
            let l3 = 14 + 4 * tags;
            let mut expected = packet.clone();
            if v6 {
                expected[l3 + 1] |= 0x30;
            } else {
                expected[l3 + 1] |= 3;
                expected[l3 + 10..l3 + 12].fill(0);
                let sum = !checksum::sum(&[&expected[l3..l4]]);
                expected[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
            }
            prop_assert_eq!(marked, expected);
        }

        #[test]
        fn a_flipped_bit_is_the_only_difference_and_is_after_the_ip_header(
            v6: bool, tags in 0_usize..3, payload in prop::collection::vec(any::<u8>(), 0..600), in_head in 0_usize..120,
            number: u32, padding in 0_usize..9,
        ) {
            let packet = datagram(v6, tags, &payload);
            let l4 = behind_ip(v6, tags);
            let edited = changed(&packet, l4, in_head, false, Some(flip(number)));
            let bits = (packet.len() - l4) * 8;
            let mut expected = packet.clone();
            let bit = number as usize % bits;
            expected[l4 + bit / 8] ^= 0x80 >> (bit % 8);
            prop_assert_eq!(edited, &expected[..]);
            let mut padded = [&packet[..], &vec![0; padding]].concat();
            flip::edit(&mut padded, flip(number));
            prop_assert_eq!(padded, [expected, vec![0; padding]].concat());
        }

        #[test]
        fn hostile_bytes_never_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..400), kind in 0..3, in_head in 0_usize..300,
            start in prop::option::of(0_u16..500), offset: u16, mark: bool, number in prop::option::of(any::<u32>()), count: NonZeroU8, repair: bool,
        ) {
            if bytes.len() > 14 && kind > 0 {
                bytes[12..15].copy_from_slice(if kind == 1 { &[8, 0, 0x45] } else { &[0x86, 0xdd, 0x60] });
            }
            let in_head = in_head.min(bytes.len()).min(MAX_HEAD);
            let mut head = FrameHead::EMPTY;
            head.extend(&bytes[..in_head]);
            let mut frame = TxFrame {
                tunnel: None,
                offload: Offload { gso: None, checksum: start.map(|start| PartialChecksum { start, offset }) },
                head,
                body: bytes[in_head..].into(),
            };
            frame.change(mark, number.map(|first| Edit::FlipBits { first, count, repair }));
            prop_assert_eq!(frame.head.bytes().len() + frame.body.len(), bytes.len());
        }
    }

    #[test]
    fn other_protocols_are_not_marked_and_are_flipped_after_the_ethernet_header() {
        let mut frame = [[2; 12].as_slice(), &[0x88, 0xb5, 0, 0]].concat();
        let before = frame.clone();
        mark_ce(&mut frame);
        assert_eq!(frame, before);
        flip::edit(&mut frame, flip(16));
        assert_eq!(frame[12..], [0x88, 0xb5, 0x80, 0]);
        flip::edit(&mut frame[..14], flip(3));
        assert_eq!(frame[12..], [0x88, 0xb5, 0x80, 0]);
    }

    #[test]
    fn a_header_checksum_of_zero_is_updated_as_in_rfc_1624() {
        // The words of the header, without its checksum field, sum to all ones. Its checksum is therefore 0, and with a
        // mark 0xfffd or less.
        let mut frame = datagram(false, 0, &[]);
        let sum = checksum::sum(&[&frame[14..24], &frame[26..34]]);
        let id = u16::from_be_bytes([frame[18], frame[19]]);
        let id = checksum::add(id, !sum);
        frame[18..20].copy_from_slice(&id.to_be_bytes());
        frame[24..26].fill(0);
        mark_ce(&mut frame);
        assert_eq!(checksum::sum(&[&frame[14..34]]), 0xffff);
    }
}
