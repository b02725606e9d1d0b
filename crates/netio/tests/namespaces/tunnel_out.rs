//! Tests of whole trains of a tunnel: they arrive as they were sent, in order with other packets, and leave nothing
//! behind.

use std::time::{Duration, Instant};

use farwire_netio::bed::{Bed, CLIENT_PORT, WAN};
use farwire_netio::offloads::Offloads;
use farwire_netio::{
    AfPacket, FrameHead, Gso, GsoKind, Offload, PartialChecksum, PortSet as _, ReceivedFrame,
    RingSlots, TunnelHeaders, TxFrame, clock, is_link_control,
};

use model::Nanos;

use crate::bed::plain;
use crate::helper::run;

pub(crate) const SLOTS: RingSlots = RingSlots {
    small: 512,
    large: 60,
};

/// Returns the emulator's port towards the client, which sends trains of tunnels without segmenting them.
fn out(bed: &Bed) -> AfPacket {
    let opened = bed.emulator().run(|| {
        let offloads = Offloads::open(CLIENT_PORT).unwrap();
        for feature in ["tx-udp_tnl-segmentation", "tx-udp_tnl-csum-segmentation"] {
            offloads.switch(feature, true).unwrap();
        }
        let mut port = AfPacket::open(CLIENT_PORT, SLOTS).unwrap();
        assert!(!port.capabilities().tunnel_gso);
        port.take_tunnels(CLIENT_PORT).unwrap();
        assert!(port.capabilities().tunnel_gso);
        port
    });
    opened.unwrap()
}

/// Returns a train of VXLAN over one IP family around TCP over the same or the other family. Its payload contains
/// `number`.
fn train(outer_v6: bool, inner_v6: bool, outer_checksum: bool, number: u8) -> TxFrame<'static> {
    const SIZE: u16 = 1_000;
    let payload: Vec<u8> = (0..30_500u32)
        .map(|at| at.to_le_bytes()[usize::from(at % 3 == 0)] ^ number)
        .collect();
    let mut tcp = vec![0x30, 0x39, 0x14, 0x51, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10];
    tcp.extend([1, 0, 0, 0, 0, 0]);
    tcp.extend(payload);
    let inner = ip(inner_v6, 6, &tcp);
    let mut udp = vec![0xc0, number, 0x12, 0xb5];
    udp.extend(word(8 + 8 + 14 + inner.len()));
    udp.extend([0, u8::from(outer_checksum), 8, 0, 0, 0, 0, 0, 42, 0]);
    udp.extend([4; 12]);
    udp.extend(if inner_v6 { [0x86, 0xdd] } else { [8, 0] });
    udp.extend(&inner);
    let mut frame = vec![2; 12];
    frame.extend(if outer_v6 { [0x86, 0xdd] } else { [8, 0] });
    frame.extend(ip(outer_v6, 17, &udp));
    let length = |v6| if v6 { 40 } else { 20 };
    let outer_udp = 14 + length(outer_v6);
    let inner_ip = outer_udp + 8 + 8 + 14;
    TxFrame {
        offload: Offload {
            gso: Some(Gso {
                kind: if inner_v6 {
                    GsoKind::TcpV6
                } else {
                    GsoKind::TcpV4
                },
                size: SIZE,
                ecn: false,
            }),
            checksum: Some(PartialChecksum {
                start: inner_ip + length(inner_v6),
                offset: 16,
            }),
        },
        tunnel: Some(TunnelHeaders {
            outer_udp,
            inner_ip,
            outer_v6,
            outer_checksum,
        }),
        head: FrameHead::EMPTY,
        body: frame.into(),
    }
}

fn ip(v6: bool, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut h = if v6 {
        let mut h = vec![0x60, 0, 0, 0];
        h.extend(word(payload.len()));
        h.extend([protocol, 64]);
        h.extend([0xfd; 32]);
        h
    } else {
        let mut h = vec![0x45, 0];
        h.extend(word(20 + payload.len()));
        h.extend([0, 1, 0x40, 0, 64, protocol, 0, 0]);
        h.extend([10, 9, 9, 1, 10, 9, 9, 2]);
        h
    };
    h.extend(payload);
    h
}

pub(crate) fn word(length: usize) -> [u8; 2] {
    u16::try_from(length).unwrap().to_be_bytes()
}

/// Returns a packet of an unused protocol.
fn packet(number: u8) -> TxFrame<'static> {
    let mut bytes = vec![2; 12];
    bytes.extend([0x88, 0xb5]);
    bytes.extend([number; 50]);
    bytes.into()
}

/// Returns the bytes of the frames that arrive, and the work that is left to be done on them.
pub(crate) fn receive(port: &mut AfPacket, count: usize) -> Vec<(Offload, Vec<u8>)> {
    let end = Instant::now() + Duration::from_secs(10);
    let mut all = Vec::new();
    while all.len() < count && Instant::now() < end {
        port.refresh(clock::now());
        while let Some((_, received)) = port.take() {
            let ReceivedFrame::Frame(frame) = received else {
                panic!("no whole frame: {received:?}");
            };
            // Packets that the kernel itself sends are ignored.
            if !is_link_control(frame.bytes()) && frame.bytes()[..12] == [2; 12] {
                all.push((frame.offload, frame.bytes().to_vec()));
            }
        }
    }
    all
}

#[test_support::test(serial, Namespaces, TunnelGso)]
fn a_train_arrives_unsegmented_and_in_order() {
    let bed = plain();
    let mut port = out(&bed);
    let mut client = bed
        .client()
        .run(|| AfPacket::open(WAN, SLOTS).unwrap())
        .unwrap();
    let kinds = (0..8u8).map(|bits| [1, 2, 4].map(|bit| bits & bit != 0));
    let frames: Vec<TxFrame<'_>> = (0..)
        .zip(kinds)
        .flat_map(|(number, [outer_v6, inner_v6, checksum])| {
            [packet(number), train(outer_v6, inner_v6, checksum, number)]
        })
        .collect();
    let mut sent = 0;
    port.send(0, Nanos::ZERO, &frames, &mut |index, at| {
        at.unwrap();
        assert_eq!(index, sent);
        sent += 1;
    });
    let arrived = receive(&mut client, frames.len());
    assert_eq!((sent, arrived.len()), (frames.len(), frames.len()));
    for (frame, (offload, bytes)) in frames.iter().zip(arrived) {
        assert_eq!(offload, frame.offload);
        assert!(bytes == *frame.body, "other bytes than were sent");
    }
    assert_eq!(port.missed().refused, 0);
}

#[test_support::test(serial, Namespaces, TunnelGso)]
fn a_train_that_the_interface_refuses_is_counted() {
    let bed = plain();
    let mut port = out(&bed);
    let set_up = |up| Offloads::open(CLIENT_PORT).unwrap().set_up(up).unwrap();
    bed.emulator().run(|| set_up(false)).unwrap();
    port.send(
        0,
        Nanos::ZERO,
        &[train(false, false, true, 1)],
        &mut |_, _| {},
    );
    bed.emulator().run(|| set_up(true)).unwrap();
    assert_eq!(port.missed().refused, 1);
}

#[test_support::test(serial, Namespaces, TunnelGso)]
fn the_tap_disappears_with_the_port() {
    let bed = plain();
    let count = || bed.emulator().run(interfaces).unwrap();
    let before = count();
    let port = out(&bed);
    assert_eq!(count(), before + 1);
    drop(port);
    assert_eq!(count(), before);
}

fn interfaces() -> usize {
    nix::net::if_::if_nameindex().unwrap().iter().count()
}

#[test_support::test(serial, Namespaces, TunnelGso, Tool("ip"))]
fn a_port_with_several_queues_sends_no_trains() {
    let bed = plain();
    let add = "ip link add many numtxqueues 2 numrxqueues 2 type veth peer name other";
    let words: Vec<&str> = add.split(' ').collect();
    assert_eq!(run(bed.emulator(), &words).0, 0);
    let refused = bed
        .emulator()
        .run(|| {
            let mut port = AfPacket::open("many", SLOTS).unwrap();
            let refused = port.take_tunnels("many").unwrap_err();
            assert!(!port.capabilities().tunnel_gso);
            refused.to_string()
        })
        .unwrap();
    assert!(refused.contains("several transmit queues"), "{refused}");
}
