//! Tests of datagrams that leave in one call: they are joined if that can be reversed, and the bytes remain the same in
//! any case.

use farwire_netio::bed::{Bed, CLIENT_PORT, SERVER_PORT, WAN};
use farwire_netio::offloads::Offloads;
use farwire_netio::{AfPacket, FrameHead, Offload, PartialChecksum, PortSet as _, TxFrame};
use model::Nanos;

use crate::bed::plain;
use crate::tunnel_out::{SLOTS, receive, word};

/// The sizes of the groups that can each be one GSO frame.
const GROUPS: [usize; 11] = [6, 1, 1, 1, 3, 1, 1, 1, 1, 1, 1];

/// Returns the sum of 16-bit words as in RFC 1071.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0)));
    let total: u32 = words.sum();
    let folded = (total & 0xffff) + (total >> 16);
    u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap()
}

/// Returns a datagram from `port` with `payload` bytes, whose checksum the kernel is to complete.
fn datagram(v6: bool, id: u16, port: u8, payload: usize) -> TxFrame<'static> {
    let length = word(8 + payload);
    let mut ip = if v6 {
        let mut ip = vec![0x60, 0, 0, 0, length[0], length[1], 17, 64];
        ip.extend([0xfd; 32]);
        ip
    } else {
        let mut ip = vec![0x45, 0];
        ip.extend(word(20 + 8 + payload));
        ip.extend(id.to_be_bytes());
        ip.extend([0x40, 0, 64, 17, 0, 0, 10, 9, 9, 1, 10, 9, 9, 2]);
        let complete = !sum(&ip);
        ip[10..12].copy_from_slice(&complete.to_be_bytes());
        ip
    };
    let pseudo = [&ip[if v6 { 8 } else { 12 }..], &[0, 17], &length].concat();
    let start = u16::try_from(14 + ip.len()).unwrap();
    let mut frame = vec![2; 12];
    frame.extend(if v6 { [0x86, 0xdd] } else { [8, 0] });
    frame.append(&mut ip);
    frame.extend([0x30, port, 0x14, 0x51, length[0], length[1]]);
    frame.extend(sum(&pseudo).to_be_bytes());
    frame.extend((0..payload).map(|at| u8::try_from(at % 251).unwrap() ^ id.to_le_bytes()[0]));
    TxFrame {
        offload: Offload {
            gso: None,
            checksum: Some(PartialChecksum { start, offset: 6 }),
        },
        tunnel: None,
        head: FrameHead::EMPTY,
        body: frame.into(),
    }
}

/// Returns frames of all kinds, in the order of [`GROUPS`].
fn frames() -> Vec<TxFrame<'static>> {
    let v4 = |id, port, payload| datagram(false, id, port, payload);
    let spoilt = |id, at: usize| {
        let mut frame = v4(id, 1, 64);
        frame.body.to_mut()[at] ^= 1;
        frame
    };
    let complete = |id| TxFrame {
        offload: Offload::default(),
        ..v4(id, 1, 64)
    };
    // The identifier wraps around, and a shorter datagram ends a frame.
    let mut frames: Vec<_> = (0..5)
        .map(|n| v4(65_534_u16.wrapping_add(n), 1, 64))
        .collect();
    frames.push(v4(3, 1, 10));
    // These have a wrong identifier, another port, and more payload than the first.
    frames.extend([v4(5, 1, 10), v4(6, 2, 10), v4(7, 2, 11)]);
    frames.extend((0..3).map(|n| datagram(true, n, 1, 1)));
    // These have a wrong IP checksum, a wrong sum for the kernel to complete, and a complete checksum.
    frames.extend(
        [24, 41]
            .iter()
            .flat_map(|at| [spoilt(8, *at), spoilt(9, *at)]),
    );
    frames.extend([complete(10), complete(11)]);
    frames
}

/// Returns the frames that arrive from [`frames`], with segmentation of datagrams switched on or off at the sending
/// interface.
fn cross(segments: bool, count: usize) -> Vec<(Offload, Vec<u8>)> {
    let bed: Bed = plain();
    let mut port = bed
        .emulator()
        .run(|| {
            let offloads = Offloads::open(CLIENT_PORT).unwrap();
            offloads.switch("tx-udp-segmentation", segments).unwrap();
            AfPacket::open(CLIENT_PORT, SLOTS).unwrap()
        })
        .unwrap();
    let client = bed.client().run(|| AfPacket::open(WAN, SLOTS).unwrap());
    let frames = frames();
    let mut sent = 0;
    port.send(0, Nanos::ZERO, &frames, &mut |index, at| {
        at.unwrap();
        assert_eq!(index, sent);
        sent += 1;
    });
    assert_eq!(sent, frames.len());
    receive(&mut client.unwrap(), count)
}

#[test_support::test(serial, Namespaces)]
fn joined_datagrams_arrive_unchanged_after_segmentation() {
    let frames = frames();
    let arrived = cross(false, frames.len());
    assert_eq!(arrived.len(), frames.len());
    for (place, (frame, (offload, bytes))) in frames.iter().zip(arrived).enumerate() {
        assert_eq!(offload, frame.offload, "frame {place}");
        assert!(
            bytes == *frame.body,
            "frame {place}: {bytes:?} for {:?}",
            frame.body
        );
    }
}

#[test_support::test(serial, Namespaces)]
fn only_matching_datagrams_are_joined() {
    let arrived = cross(true, GROUPS.len());
    let frames = frames();
    let mut rest = frames.as_slice();
    assert_eq!(arrived.len(), GROUPS.len());
    for (count, (offload, bytes)) in GROUPS.into_iter().zip(arrived) {
        let (group, after) = rest.split_at(count);
        rest = after;
        let start = usize::from(group[0].offload.checksum.map_or(34, |sum| sum.start)) + 8;
        assert_eq!(offload.gso.is_some(), count > 1);
        let payloads = group.iter().flat_map(|frame| &frame.body[start..]);
        assert!(
            bytes[start..].iter().eq(payloads),
            "{count} frames' payloads"
        );
    }
}

#[test_support::test(serial, Namespaces)]
fn frames_of_one_call_leave_by_their_ports_and_only_those_of_one_port_are_joined() {
    let bed: Bed = plain();
    let mut ports = bed
        .emulator()
        .run(|| {
            for name in [CLIENT_PORT, SERVER_PORT] {
                let offloads = Offloads::open(name).unwrap();
                offloads.switch("tx-udp-segmentation", true).unwrap();
            }
            AfPacket::open_all(&[CLIENT_PORT, SERVER_PORT], SLOTS).unwrap()
        })
        .unwrap();
    let mut ends = [bed.client(), bed.server()]
        .map(|end| end.run(|| AfPacket::open(WAN, SLOTS).unwrap()).unwrap());
    // Only the ports prevent that all these datagrams are joined. They take two system calls.
    let egress: Vec<usize> = [0, 0, 0, 1, 0, 1, 1].repeat(9);
    let frames: Vec<_> = (0..63).map(|id| datagram(false, id, 1, 64)).collect();
    let mut sent = 0;
    ports.send_each(&egress, &frames, &mut |index, at| {
        at.unwrap();
        assert_eq!(index, sent);
        sent += 1;
    });
    assert_eq!(sent, frames.len());
    for (port, end) in ends.iter_mut().enumerate() {
        let own = egress.iter().zip(&frames).filter(|(of, _)| **of == port);
        let own: Vec<_> = own.map(|(_, frame)| frame).collect();
        let sizes = [[3, 1], [1, 2]][port].repeat(9);
        let arrived = receive(end, sizes.len());
        assert_eq!(arrived.len(), sizes.len());
        let mut rest = own.as_slice();
        for (size, (offload, bytes)) in sizes.into_iter().zip(arrived) {
            let (group, after) = rest.split_at(size);
            rest = after;
            assert_eq!(offload.gso.is_some(), size > 1);
            let payloads = group.iter().flat_map(|frame| &frame.body[42..]);
            assert!(bytes[42..].iter().eq(payloads), "port {port}");
        }
        assert!(rest.is_empty());
    }
}
