//! Checks that parts of a GSO frame equal packets that are built one by one, however the frame is divided.

use model::Nanos;
use proptest::prelude::*;

use super::{GsoFrame, UnsupportedGso};
use crate::checksum;
use crate::frame::{Frame, Gso, GsoKind, Offload, PartialChecksum, Vlan};
use crate::port::{Spare, TxFrame};

/// A GSO frame as its sender intended it, from which packets are built field by field.
#[derive(Clone, Debug)]
struct Flow {
    v6: bool,
    kind: GsoKind,
    tags: usize,
    options: usize,
    id: u16,
    seq: u32,
    flags: u8,
    ecn: bool,
    size: usize,
    payload: Vec<u8>,
    tunnel: Option<Tunnel>,
    vlan: Option<Vlan>,
}

#[derive(Clone, Debug)]
struct Tunnel {
    v6: bool,
    id: u16,
    checksum: bool,
}

const FIN: u8 = 1;
const PSH: u8 = 8;
const CWR: u8 = 0x80;

impl Flow {
    /// Returns the packet that carries `payload[from..to]` as segment `index`, with complete or partial checksums, and
    /// the offset of its transport header.
    fn packet(&self, from: usize, to: usize, index: usize, complete: bool) -> (Vec<u8>, usize) {
        let last = to == self.payload.len();
        let inner = self.ip(
            self.transport(from, to, index, last, complete),
            self.v6,
            self.id,
            index,
        );
        let mut frame = vec![2; 12];
        for _ in 0..self.tags {
            frame.extend([0x81, 0x00, 0, 7]);
        }
        let body = match &self.tunnel {
            None => {
                frame.extend(ethertype(self.v6));
                inner
            }
            Some(tunnel) => {
                frame.extend(ethertype(tunnel.v6));
                self.wrap(tunnel, inner, index)
            }
        };
        frame.extend(&body);
        let transport = frame.len() - (to - from) - self.transport_len();
        (frame, transport)
    }

    fn transport_len(&self) -> usize {
        match self.kind {
            GsoKind::Udp => 8,
            _ => 20 + self.options,
        }
    }

    fn transport(
        &self,
        from: usize,
        to: usize,
        index: usize,
        last: bool,
        complete: bool,
    ) -> Vec<u8> {
        let len = self.transport_len() + to - from;
        let (mut h, place) = if self.kind == GsoKind::Udp {
            let len = u16::try_from(len).unwrap().to_be_bytes();
            (vec![0x30, 0x39, 0x14, 0x51, len[0], len[1], 0, 0], 6)
        } else {
            let mut flags = self.flags;
            if !last {
                flags &= !(FIN | PSH);
            }
            if self.ecn && index > 0 {
                flags &= !CWR;
            }
            let mut h = vec![0x30, 0x39, 0x14, 0x51];
            h.extend(
                self.seq
                    .wrapping_add(u32::try_from(from).unwrap())
                    .to_be_bytes(),
            );
            h.extend([
                1,
                2,
                3,
                4,
                u8::try_from((20 + self.options) / 4).unwrap() << 4,
                flags,
            ]);
            h.extend([0x10, 0x00, 0, 0, 0, 0]);
            h.extend(vec![1; self.options]);
            (h, 16)
        };
        let pseudo = checksum::pseudo(&addresses(self.v6), protocol(self.kind), len);
        h[place..place + 2].copy_from_slice(&pseudo.to_be_bytes());
        h.extend(&self.payload[from..to]);
        if complete {
            let sum = checksum::complete(&[&h], place);
            h[place..place + 2].copy_from_slice(&sum.to_be_bytes());
        }
        h
    }

    fn ip(&self, payload: Vec<u8>, v6: bool, id: u16, index: usize) -> Vec<u8> {
        ip_header(
            &payload,
            v6,
            id.wrapping_add(u16::try_from(index).unwrap()),
            protocol(self.kind),
        )
    }

    /// Wraps a packet in VXLAN (RFC 7348): UDP, eight bytes, and an inner Ethernet header.
    fn wrap(&self, tunnel: &Tunnel, inner: Vec<u8>, index: usize) -> Vec<u8> {
        let len = 8 + 8 + 14 + inner.len();
        let mut udp = vec![0xc0, 0x00, 0x12, 0xb5];
        udp.extend(u16::try_from(len).unwrap().to_be_bytes());
        udp.extend([0, 0, 8, 0, 0, 0, 0, 0, 42, 0]);
        udp.extend([4; 12]);
        udp.extend(ethertype(self.v6));
        udp.extend(&inner);
        if tunnel.checksum {
            let pseudo = checksum::pseudo(&addresses(tunnel.v6), 17, len);
            udp[6..8].copy_from_slice(&pseudo.to_be_bytes());
            let sum = checksum::complete(&[&udp], 6);
            udp[6..8].copy_from_slice(&sum.to_be_bytes());
        }
        let id = tunnel.id.wrapping_add(u16::try_from(index).unwrap());
        ip_header(&udp, tunnel.v6, id, 17)
    }

    fn segments(&self) -> usize {
        self.payload.len().div_ceil(self.size).max(1)
    }

    /// Returns segment `index` as it should arrive.
    fn expected(&self, index: usize) -> Vec<u8> {
        let from = index * self.size;
        let to = (from + self.size).min(self.payload.len());
        let packet = self.packet(from, to, index, true).0;
        match self.vlan {
            None => packet,
            Some(vlan) => [&packet[..12], &vlan.bytes(), &packet[12..]].concat(),
        }
    }

    /// Returns the whole frame as the kernel passes it.
    fn frame(&self) -> Frame {
        let (bytes, start) = self.packet(0, self.payload.len(), 0, false);
        let offload = Offload {
            gso: Some(Gso {
                kind: self.kind,
                size: u16::try_from(self.size).unwrap(),
                ecn: self.ecn,
            }),
            checksum: Some(PartialChecksum {
                start: u16::try_from(start).unwrap(),
                offset: if self.kind == GsoKind::Udp { 6 } else { 16 },
            }),
        };
        Frame::new(Nanos(0), offload, self.vlan, &bytes)
    }
}

fn ethertype(v6: bool) -> [u8; 2] {
    if v6 { [0x86, 0xdd] } else { [0x08, 0x00] }
}

fn protocol(kind: GsoKind) -> u8 {
    if kind == GsoKind::Udp { 17 } else { 6 }
}

fn addresses(v6: bool) -> Vec<u8> {
    (1..=if v6 { 32 } else { 8 }).collect()
}

fn ip_header(payload: &[u8], v6: bool, id: u16, protocol: u8) -> Vec<u8> {
    let word = |n: usize| u16::try_from(n).unwrap().to_be_bytes();
    let mut h = Vec::new();
    if v6 {
        h.extend([0x60, 0, 0, 0]);
        h.extend(word(payload.len()));
        h.extend([protocol, 64]);
        h.extend(addresses(true));
    } else {
        h.extend([0x45, 0]);
        h.extend(word(20 + payload.len()));
        h.extend(id.to_be_bytes());
        h.extend([0x40, 0, 64, protocol, 0, 0]);
        h.extend(addresses(false));
        let sum = !checksum::sum(&[&h]);
        h[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    h.extend(payload);
    h
}

prop_compose! {
    fn flow()(
        v6: bool,
        udp: bool,
        tags in 0usize..3,
        options in (0usize..=3).prop_map(|n| n * 4),
        id: u16,
        seq: u32,
        flags: u8,
        ecn: bool,
        size in 1usize..1500,
        payload in prop::collection::vec(any::<u8>(), 1..12_000),
        tunnel in prop::option::of((any::<bool>(), any::<u16>(), any::<bool>())),
        vlan in prop::option::of(any::<u16>()),
    ) -> Flow {
        let kind = match (udp, v6) {
            (true, _) => GsoKind::Udp,
            (false, true) => GsoKind::TcpV6,
            (false, false) => GsoKind::TcpV4,
        };
        Flow {
            v6, kind, tags, options, id, seq, flags, ecn: ecn && !udp, payload,
            // A frame can have at most 65,535 segments; a few hundred are as good for a test.
            size: size.max(40),
            tunnel: tunnel.map(|(v6, id, checksum)| Tunnel { v6, id, checksum }),
            vlan: vlan.map(|tci| Vlan { tpid: 0x88a8, tci }),
        }
    }
}

/// Returns the frame that is sent for `run` of `frame` by a port that completes checksums.
fn sent(frame: &Frame, gso: &GsoFrame, run: std::ops::Range<u32>) -> (Option<Gso>, Vec<u8>) {
    let mut part = gso.part(frame, run, &mut Spare::default());
    if part.offload.gso.is_none() {
        part.complete_checksum();
    }
    (part.offload.gso, bytes(&part))
}

fn bytes(frame: &TxFrame<'_>) -> Vec<u8> {
    [frame.head.bytes(), &frame.body].concat()
}

proptest! {
    #[test]
    fn each_segment_equals_the_packet_built_separately(flow in flow()) {
        let frame = flow.frame();
        let gso = GsoFrame::of(&frame).unwrap();
        prop_assert_eq!(gso.segments() as usize, flow.segments());
        for index in 0..gso.segments() {
            if gso.segments() == 1 && flow.tunnel.is_none() {
                break; // A frame of one segment leaves as it came.
            }
            let (kind, packet) = sent(&frame, &gso, index..index + 1);
            prop_assert_eq!(kind, None);
            prop_assert_eq!(packet.len(), gso.segment_len(index) as usize);
            prop_assert_eq!(packet, flow.expected(index as usize));
        }
    }

    #[test]
    fn a_run_of_segments_is_a_gso_frame_of_those_packets(
        flow in flow(), a in 0.0..1.0f64, b in 0.0..1.0f64,
    ) {
        let frame = flow.frame();
        let gso = GsoFrame::of(&frame).unwrap();
        prop_assume!(gso.longest_run() > 1);
        let n = gso.segments();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a small number")]
        let at = |share: f64| (share * f64::from(n)) as u32;
        let run = at(a.min(b))..at(a.max(b)) + 1;
        prop_assume!(run.len() > 1 && run.len() <= gso.longest_run() as usize);
        let joined = gso.part(&frame, run.clone(), &mut Spare::default());
        let again = Frame::new(Nanos(0), joined.offload, None, &bytes(&joined));
        let part = GsoFrame::of(&again).unwrap();
        prop_assert_eq!(part.segments() as usize, run.len());
        let lengths = run.clone().map(|segment| u64::from(gso.segment_len(segment)));
        prop_assert_eq!(gso.wire_len(run.clone()), lengths.sum::<u64>());
        for index in 0..part.segments() {
            let (_, packet) = sent(&again, &part, index..index + 1);
            prop_assert_eq!(packet, flow.expected((run.start + index) as usize));
        }
    }

    #[test]
    fn a_train_of_a_tunnel_is_a_gso_frame_of_those_packets(
        flow in flow(), a in 0.0..1.0f64, b in 0.0..1.0f64,
    ) {
        let flow = Flow { tags: 0, vlan: None, ..flow };
        let frame = flow.frame();
        let gso = GsoFrame::of(&frame).unwrap();
        let n = gso.longest_train();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a small number")]
        let at = |share: f64| (share * f64::from(n)) as u32;
        let run = at(a.min(b))..at(a.max(b)) + 1;
        prop_assume!(run.len() > 1 && flow.tunnel.is_some());
        let train = gso.train(&frame, run.clone(), &mut Spare::default());
        let outer = train.tunnel.unwrap();
        let again = Frame::new(Nanos(0), train.offload, None, &bytes(&train));
        let sum = train.offload.checksum.unwrap();
        prop_assert_eq!(train.offload.gso.unwrap().kind, flow.kind);
        prop_assert_eq!(usize::from(sum.start - outer.inner_ip), if flow.v6 { 40 } else { 20 });
        prop_assert_eq!(usize::from(outer.inner_ip - outer.outer_udp), 8 + 8 + 14);
        prop_assert_eq!(outer.outer_checksum, flow.tunnel.as_ref().unwrap().checksum);
        if outer.outer_checksum {
            // The kernel's segmentation starts from this sum (`__skb_udp_tunnel_segment`, net/ipv4/udp_offload.c).
            let udp = usize::from(outer.outer_udp);
            let pseudo = checksum::pseudo(&addresses(outer.outer_v6), 17, again.bytes().len() - udp);
            prop_assert_eq!(&again.bytes()[udp + 6..udp + 8], &pseudo.to_be_bytes());
        }
        let part = GsoFrame::of(&again).unwrap();
        prop_assert_eq!(part.segments() as usize, run.len());
        for index in 0..part.segments() {
            let (_, packet) = sent(&again, &part, index..index + 1);
            prop_assert_eq!(packet, flow.expected((run.start + index) as usize));
        }
    }

    #[test]
    fn hostile_bytes_never_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..400),
        ipv4: bool, kind in 0..3, size: u16, start in prop::option::of(0u16..500), offset: u16,
    ) {
        if bytes.len() > 14 {
            bytes[12..15].copy_from_slice(if ipv4 { &[8, 0, 0x45] } else { &[0x86, 0xdd, 0x60] });
        }
        let kind = [GsoKind::TcpV4, GsoKind::TcpV6, GsoKind::Udp][usize::try_from(kind).unwrap()];
        let offload = Offload {
            gso: Some(Gso { kind, size, ecn: true }),
            checksum: start.map(|start| PartialChecksum { start, offset }),
        };
        let frame: Frame = Frame::new(Nanos(0), offload, None, &bytes);
        if let Ok(gso) = GsoFrame::of(&frame) {
            let all: u32 = (0..gso.segments()).map(|i| gso.segment_len(i)).sum();
            prop_assert!(all as usize >= bytes.len());
            for index in 0..gso.segments() {
                let _ = gso.part(&frame, index..index + 1, &mut Spare::default());
            }
        }
    }
}

#[test]
fn a_gso_frame_in_unknown_headers_is_refused() {
    let mut bytes = vec![0; 60];
    bytes[12..14].copy_from_slice(&[0x88, 0x47]);
    let gso = Gso {
        kind: GsoKind::TcpV4,
        size: 1448,
        ecn: false,
    };
    let offload = Offload {
        gso: Some(gso),
        checksum: None,
    };
    let frame: Frame = Frame::new(Nanos(0), offload, None, &bytes);
    assert_eq!(GsoFrame::of(&frame).unwrap_err(), UnsupportedGso::Unknown);
}
