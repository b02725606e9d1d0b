//! The ports by which the frames of a call leave.
//!
//! The sockets of several interfaces are bound to none of them, so each message has an address, and one `sendmmsg`
//! carries frames of many interfaces. The kernel looks the interface up for each message (`dev_get_by_index` in
//! `packet_snd`, net/packet/af_packet.c), whether it is the same as that of the message before or not. A socket that is
//! bound to one interface needs no look-up, but then each interface needs a socket, and each packet a call.

use arrayvec::ArrayVec;

use super::BATCH;
use super::interfaces::Interfaces;
use super::join::{self, FrameGroup};
use crate::port::TxFrame;

/// The port of each frame of a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Egress<'a> {
    /// All frames leave by this port.
    One(usize),
    /// Each frame leaves by the port with the same index.
    Each(&'a [usize]),
}

/// The addresses of messages: none if the socket is bound to its only interface, one for all messages, or one for each.
pub(super) struct Addresses(ArrayVec<libc::sockaddr_ll, BATCH>);

impl Egress<'_> {
    /// Returns the ports without those of the first `frames` frames.
    pub(super) fn without(self, frames: usize) -> Self {
        match self {
            Self::One(port) => Self::One(port),
            Self::Each(ports) => Self::Each(&ports[frames..]),
        }
    }

    /// Divides `frames`, at most [`BATCH`] of them, into groups that are sent as one frame each. If `joins` is false,
    /// each frame is a group. Frames of different ports are never in one group.
    pub(super) fn groups(self, frames: &[TxFrame<'_>], joins: bool) -> ArrayVec<FrameGroup, BATCH> {
        match self {
            _ if !joins => frames.iter().map(FrameGroup::single).collect(),
            Self::One(_) => join::groups(frames),
            Self::Each(ports) => {
                let mut groups = ArrayVec::new();
                let mut rest = frames;
                for same in ports[..frames.len()].chunk_by(|a, b| a == b) {
                    let (own, after) = rest.split_at(same.len());
                    rest = after;
                    groups.extend(join::groups(own));
                }
                groups
            }
        }
    }

    /// Returns the addresses of these groups.
    pub(super) fn addresses(self, groups: &[FrameGroup], interfaces: &Interfaces) -> Addresses {
        Addresses(match self {
            Self::One(port) => interfaces.address(port).into_iter().collect(),
            Self::Each(ports) => {
                let mut first = 0;
                let of_group = |group: &FrameGroup| {
                    let port = ports[first];
                    first += group.frames;
                    interfaces.address(port)
                };
                groups.iter().filter_map(of_group).collect()
            }
        })
    }
}

impl Addresses {
    /// Returns the address of the message at `place`, if it has one.
    pub(super) fn of(&mut self, place: usize) -> Option<&mut libc::sockaddr_ll> {
        match self.0.as_mut_slice() {
            [one] => Some(one),
            each => each.get_mut(place),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum;
    use crate::frame::{Offload, PartialChecksum};
    use crate::ip::UDP;

    /// Returns the frame of datagram number `id` of a flow, whose checksum is left to the kernel.
    fn datagram(id: u16) -> TxFrame<'static> {
        let mut bytes = vec![0; 14 + 20 + 8 + 100];
        let len = u16::try_from(bytes.len()).unwrap();
        bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
        bytes[16..18].copy_from_slice(&(len - 14).to_be_bytes());
        bytes[18..20].copy_from_slice(&id.to_be_bytes());
        bytes[23] = UDP;
        bytes[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        let sum = !checksum::sum(&[&bytes[14..34]]);
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        bytes[38..40].copy_from_slice(&(len - 34).to_be_bytes());
        let pseudo = checksum::pseudo(&bytes[26..34], UDP, bytes.len() - 34);
        bytes[40..42].copy_from_slice(&pseudo.to_be_bytes());
        TxFrame {
            offload: Offload {
                gso: None,
                checksum: Some(PartialChecksum {
                    start: 34,
                    offset: 6,
                }),
            },
            ..TxFrame::from(bytes)
        }
    }

    fn sizes(groups: &[FrameGroup]) -> Vec<usize> {
        groups.iter().map(|group| group.frames).collect()
    }

    #[test]
    fn only_neighbouring_frames_of_one_port_are_joined() {
        let frames: Vec<_> = (0..6).map(datagram).collect();
        assert_eq!(sizes(&Egress::One(4).groups(&frames, true)), [6]);
        assert_eq!(sizes(&Egress::One(4).groups(&frames, false)), [1; 6]);
        let each = Egress::Each(&[4, 4, 5, 4, 4, 4]);
        assert_eq!(sizes(&each.groups(&frames, true)), [2, 1, 3]);
        // After a call that sent the first three.
        let rest = each.without(3);
        assert_eq!(sizes(&rest.groups(&frames[3..], true)), [3]);
        // The rest of the ports belongs to frames that are not part of the call.
        assert_eq!(sizes(&each.groups(&frames[..3], true)), [2, 1]);
    }

    #[test]
    fn each_message_has_the_address_of_its_port() {
        let interfaces = Interfaces::sharing(vec![70, 71, 72]);
        let frames: Vec<_> = (0..4).map(datagram).collect();
        let index = |egress: Egress<'_>, interfaces: &Interfaces| {
            let groups = egress.groups(&frames, true);
            let mut addresses = egress.addresses(&groups, interfaces);
            let indices = (0..groups.len()).map(|place| Some(addresses.of(place)?.sll_ifindex));
            indices.collect::<Vec<_>>()
        };
        let each = Egress::Each(&[2, 0, 0, 1]);
        assert_eq!(index(each, &interfaces), [72, 70, 71].map(Some));
        assert_eq!(index(Egress::One(1), &interfaces), [Some(71)]);
        let bound = Interfaces::one(70);
        assert_eq!(index(Egress::One(0), &bound), [None]);
        assert_eq!(index(Egress::Each(&[0; 4]), &bound), [None]);
    }
}
