//! Recognises packets that their receivers answer, and the answers: TCP segments and acknowledgements, ICMP echo
//! requests and replies.

use crate::five_tuple::FiveTuple;
use crate::frame::FrameRef;
use crate::ip::{Fragment, ICMP, ICMPV6, Ip, TCP, byte, u16_at};

const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// The kinds of packets that are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    /// TCP sequence numbers, which are answered by an acknowledgement of these or later ones (RFC 9293, section 3.4).
    Segment,
    /// An ICMP or ICMPv6 echo request, which is answered by its reply (RFC 792; RFC 4443, section 4).
    Echo,
}

/// A frame that is answered: TCP with payload or SYN, where all segments of a GSO frame are one request, or an echo
/// request. Packets inside a tunnel are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeRequest {
    kind: ProbeKind,
    /// The five-tuple with the sender of the request as its source. The ports of an echo are its identifier.
    flow: FiveTuple,
    first: u32,
    /// The number after its last one.
    end: u32,
}

/// A frame that is an answer: TCP with ACK, or an echo reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeReply {
    kind: ProbeKind,
    /// The five-tuple with the sender of the request as its source.
    flow: FiveTuple,
    /// The number after the last one that is answered.
    end: u32,
}

impl ProbeRequest {
    /// Reads the request in `frame`; `None` if nobody answers it or it is truncated.
    pub fn of(frame: FrameRef<'_>) -> Option<Self> {
        let bytes = frame.bytes;
        let (ip, kind) = header(bytes)?;
        let (first, len) = match kind {
            ProbeKind::Segment => segment(frame, ip)?,
            ProbeKind::Echo => (
                u16_at(bytes, ip.next + 6)?.into(),
                (byte(bytes, ip.next)? == if ip.v6 { 128 } else { 8 }).into(),
            ),
        };
        if len == 0 {
            return None;
        }
        Some(Self {
            kind,
            flow: flow(bytes, ip, kind)?,
            first,
            end: first.wrapping_add(len),
        })
    }

    /// Returns the kind of request.
    pub fn kind(&self) -> ProbeKind {
        self.kind
    }

    /// Returns whether `reply` answers it.
    pub fn is_answered_by(&self, reply: &ProbeReply) -> bool {
        let is_behind = match self.kind {
            ProbeKind::Segment => !is_before(reply.end, self.end),
            ProbeKind::Echo => reply.end == self.end,
        };
        is_behind && (self.kind, self.flow) == (reply.kind, reply.flow)
    }

    /// Returns whether `other`, which arrived later, repeats a part of it or has earlier numbers.
    pub fn is_repeated_by(&self, other: &Self) -> bool {
        is_before(other.first, self.end) && (self.kind, self.flow) == (other.kind, other.flow)
    }
}

impl ProbeReply {
    /// Reads the reply in `frame`; `None` if it answers nothing or is truncated.
    pub fn of(frame: FrameRef<'_>) -> Option<Self> {
        let bytes = frame.bytes;
        let (ip, kind) = header(bytes)?;
        let (answers, end) = match kind {
            ProbeKind::Segment => (
                byte(bytes, ip.next + 13)? & ACK != 0,
                u32_at(bytes, ip.next + 8)?,
            ),
            ProbeKind::Echo => (
                byte(bytes, ip.next)? == if ip.v6 { 129 } else { 0 },
                u32::from(u16_at(bytes, ip.next + 6)?) + 1,
            ),
        };
        if !answers {
            return None;
        }
        Some(Self {
            kind,
            flow: flow(bytes, ip, kind)?.reversed(),
            end,
        })
    }

    /// Returns the kind of request that it answers.
    pub fn kind(&self) -> ProbeKind {
        self.kind
    }
}

/// Returns the IP header of an unfragmented packet that may be a request or a reply.
fn header(bytes: &[u8]) -> Option<(Ip, ProbeKind)> {
    let ip = Ip::of(bytes).filter(|ip| ip.fragment == Fragment::Whole)?;
    let kind = match (ip.protocol, ip.v6) {
        (TCP, _) => ProbeKind::Segment,
        (ICMP, false) | (ICMPV6, true) => ProbeKind::Echo,
        _ => return None,
    };
    Some((ip, kind))
}

fn flow(bytes: &[u8], ip: Ip, kind: ProbeKind) -> Option<FiveTuple> {
    let flow = FiveTuple::behind(bytes, ip)?;
    Some(match kind {
        ProbeKind::Segment => flow,
        ProbeKind::Echo => FiveTuple {
            ports: Some([u16_at(bytes, ip.next + 4)?; 2]),
            ..flow
        },
    })
}

/// Returns the first sequence number of a TCP frame and the count of its numbers, without that of FIN.
fn segment(frame: FrameRef<'_>, ip: Ip) -> Option<(u32, u32)> {
    let bytes = frame.bytes;
    let flags = byte(bytes, ip.next + 13)?;
    let header = usize::from(byte(bytes, ip.next + 12)? >> 4) * 4;
    // Small frames are padded, and the length of a GSO frame may not fit into the header field.
    let end = match frame.offload.gso {
        Some(_) => bytes.len(),
        None => ip.end(bytes)?.min(bytes.len()),
    };
    let payload = end.checked_sub(ip.next + header)?;
    let is_sound = header >= 20 && flags & RST == 0;
    let len = u32::try_from(payload).ok().filter(|_| is_sound)?;
    Some((
        u32_at(bytes, ip.next + 4)?,
        len + u32::from(flags & SYN != 0),
    ))
}

/// Returns whether a sequence number is before another, modulo 2^32 (RFC 9293, section 3.4).
fn is_before(number: u32, other: u32) -> bool {
    number.wrapping_sub(other) >= 1 << 31
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..)?.first_chunk().copied();
    four.map(u32::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use model::Nanos;

    use super::*;
    use crate::frame::{Gso, GsoKind, Offload};

    const CLIENT: ([u8; 4], u16) = ([10, 77, 0, 1], 40_000);
    const SERVER: ([u8; 4], u16) = ([10, 77, 0, 2], 80);

    /// Returns a TCP segment with the padding that Ethernet requires.
    fn tcp(
        [from, to]: [([u8; 4], u16); 2],
        [sequence, ack]: [u32; 2],
        flags: u8,
        payload: u16,
    ) -> Vec<u8> {
        let mut bytes = vec![2; 12];
        bytes.extend([8, 0, 0x45, 0]);
        bytes.extend((40 + payload).to_be_bytes());
        bytes.extend([0, 1, 0, 0, 64, TCP, 0, 0]);
        bytes.extend([from.0, to.0].concat());
        bytes.extend([from.1, to.1].map(u16::to_be_bytes).concat());
        bytes.extend([sequence, ack].map(u32::to_be_bytes).concat());
        bytes.extend([0x50, flags, 1, 0, 0, 0, 0, 0]);
        bytes.resize((bytes.len() + usize::from(payload)).max(60), 7);
        bytes
    }

    /// Returns an ICMP message with this type, identifier and sequence number.
    fn icmp(kind: u8, identifier: u16, sequence: u16) -> Vec<u8> {
        let ends = match kind {
            8 => [CLIENT, SERVER],
            _ => [SERVER, CLIENT],
        };
        let mut bytes = tcp(ends, [0; 2], 0, 8);
        bytes[23] = ICMP;
        bytes[34..38].copy_from_slice(&[kind, 0, 0, 0]);
        let numbers = [identifier, sequence].map(u16::to_be_bytes);
        bytes[38..42].copy_from_slice(&numbers.concat());
        bytes
    }

    /// Returns an ICMPv6 message of the same kind between ::1 and ::2.
    fn icmpv6(kind: u8, identifier: u16, sequence: u16) -> Vec<u8> {
        let mut bytes = vec![2; 12];
        bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, ICMPV6, 64]);
        let [from, to]: [u128; 2] = if kind == 128 { [1, 2] } else { [2, 1] };
        bytes.extend([from, to].map(u128::to_be_bytes).concat());
        bytes.extend([kind, 0, 0, 0]);
        bytes.extend([identifier, sequence].map(u16::to_be_bytes).concat());
        bytes
    }

    fn frame(bytes: &[u8], gso: Option<Gso>) -> FrameRef<'_> {
        FrameRef {
            arrival: Nanos::ZERO,
            offload: Offload {
                gso,
                checksum: None,
            },
            vlan: None,
            bytes,
        }
    }

    fn request(bytes: &[u8]) -> Option<ProbeRequest> {
        ProbeRequest::of(frame(bytes, None))
    }

    fn reply(bytes: &[u8]) -> Option<ProbeReply> {
        ProbeReply::of(frame(bytes, None))
    }

    /// Returns whether the server's acknowledgement answers a segment from the client.
    fn answers(ack: u32, sequence: u32, payload: u16) -> bool {
        let asked = request(&tcp([CLIENT, SERVER], [sequence, 0], ACK, payload)).unwrap();
        asked.is_answered_by(&reply(&tcp([SERVER, CLIENT], [0, ack], ACK, 0)).unwrap())
    }

    #[test]
    fn an_acknowledgement_of_a_whole_segment_answers_it_across_wrap_around() {
        assert!(!answers(1099, 1000, 100));
        assert!(answers(1100, 1000, 100));
        assert!(answers(5000, 1000, 100));
        assert!(!answers(u32::MAX, u32::MAX - 49, 100));
        assert!(!answers(49, u32::MAX - 49, 100));
        assert!(answers(50, u32::MAX - 49, 100));
        assert!(answers(3, u32::MAX - 99, 99));
    }

    #[test]
    fn a_retransmission_is_a_repetition_and_a_later_segment_is_not() {
        let at = |sequence| request(&tcp([CLIENT, SERVER], [sequence, 0], ACK, 100)).unwrap();
        let first = at(u32::MAX - 49);
        for again in [u32::MAX - 49, 0, u32::MAX - 1000, 49] {
            assert!(first.is_repeated_by(&at(again)), "{again}");
        }
        assert!(!first.is_repeated_by(&at(50)));
        let of_another = request(&tcp([(CLIENT.0, 40_001), SERVER], [0, 0], ACK, 100)).unwrap();
        assert!(!first.is_repeated_by(&of_another));
    }

    #[test]
    fn a_syn_is_a_request_and_a_bare_acknowledgement_or_reset_is_not() {
        let syn = request(&tcp([CLIENT, SERVER], [7, 0], SYN, 0)).unwrap();
        let accepted = reply(&tcp([SERVER, CLIENT], [9, 8], SYN | ACK, 0)).unwrap();
        assert!(syn.is_answered_by(&accepted));
        assert_eq!(request(&tcp([CLIENT, SERVER], [8, 10], ACK, 0)), None);
        assert_eq!(request(&tcp([CLIENT, SERVER], [8, 0], RST, 5)), None);
        assert_eq!(reply(&tcp([SERVER, CLIENT], [9, 8], SYN, 0)), None);
    }

    #[test]
    fn another_flow_answers_nothing() {
        let asked = request(&tcp([CLIENT, SERVER], [0, 0], ACK, 100)).unwrap();
        let elsewhere = (SERVER.0, 81);
        for ends in [
            [CLIENT, SERVER],
            [elsewhere, CLIENT],
            [SERVER, (SERVER.0, CLIENT.1)],
        ] {
            let other = reply(&tcp(ends, [0, 100], ACK, 0)).unwrap();
            assert!(!asked.is_answered_by(&other), "{ends:?}");
        }
    }

    /// A function that returns the request or the reply with an identifier and a number.
    type Echo = fn(u16, u16, bool) -> Vec<u8>;

    #[test]
    fn an_echo_is_answered_only_by_its_reply() {
        let echoes: [Echo; 2] = [
            |id, number, is_reply| icmp(if is_reply { 0 } else { 8 }, id, number),
            |id, number, is_reply| icmpv6(if is_reply { 129 } else { 128 }, id, number),
        ];
        for echo in echoes {
            let asked = request(&echo(5, 65_535, false)).unwrap();
            let answers =
                |id, number| asked.is_answered_by(&reply(&echo(id, number, true)).unwrap());
            assert!(answers(5, 65_535));
            assert!(!answers(6, 65_535) && !answers(5, 65_534) && !answers(5, 0));
            assert_eq!(reply(&echo(5, 1, false)), None);
            assert_eq!(request(&echo(5, 1, true)), None);
        }
    }

    #[test]
    fn all_segments_of_a_gso_frame_are_one_request() {
        let mut bytes = tcp([CLIENT, SERVER], [1000, 0], ACK, 3000);
        // The length field is 0, as in a frame beyond 64 KiB.
        bytes[16..18].fill(0);
        let gso = Gso {
            kind: GsoKind::TcpV4,
            size: 1000,
            ecn: false,
        };
        let asked = ProbeRequest::of(frame(&bytes, Some(gso))).unwrap();
        assert_eq!((asked.first, asked.end), (1000, 4000));
    }

    #[test]
    fn fragments_and_truncated_frames_and_other_protocols_are_no_requests() {
        let whole = tcp([CLIENT, SERVER], [1000, 2000], ACK, 100);
        for len in 0..54 {
            assert_eq!(request(&whole[..len]), None, "{len} bytes");
            let _ = reply(&whole[..len]);
        }
        for (at, value) in [(20, 0x20), (21, 1), (23, 17), (46, 0x40), (46, 0xf0)] {
            let mut bytes = whole.clone();
            bytes[at] = value;
            bytes.truncate(if value == 0xf0 { 90 } else { bytes.len() });
            assert_eq!(request(&bytes), None, "byte {at} {value:#x}");
        }
        let whole = icmpv6(128, 1, 1);
        for len in 0..whole.len() {
            assert_eq!(request(&whole[..len]), None, "{len} bytes");
        }
    }
}
