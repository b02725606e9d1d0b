use std::cell::Cell;
use std::num::NonZeroU8;
use std::time::Duration;

use model::{DropCause, Edit};
use netio::{Frame, GsoFrame, Offload};
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_statistics::InterfaceStatisticsOption;
use pcap_file::pcapng::{Block, PcapNgReader};

use super::*;
use crate::forward::departures::Changes;
use crate::forward::observed::{ObservedPackets, PacketVerdict};
use crate::forward::test_writers::{FullDisk, GatedWriter, SharedBuffer};

/// A packet as it is read from a capture file.
#[derive(Debug, PartialEq)]
struct Packet {
    interface: u32,
    at: Duration,
    original_len: u32,
    data: Vec<u8>,
    direction: u32,
    comment: String,
}

fn packets(written: &SharedBuffer) -> (Vec<Packet>, Vec<u64>) {
    let (mut packets, mut dropped) = (Vec::new(), Vec::new());
    let bytes = written.bytes();
    let mut reader = PcapNgReader::new(bytes.as_slice()).unwrap();
    while let Some(block) = reader.next_block() {
        match block.unwrap() {
            Block::EnhancedPacket(packet) => {
                let [
                    EnhancedPacketOption::Flags(direction),
                    EnhancedPacketOption::Comment(comment),
                ] = &packet.options[..]
                else {
                    panic!("{packet:?}")
                };
                packets.push(Packet {
                    interface: packet.interface_id,
                    at: packet.timestamp,
                    original_len: packet.original_len,
                    data: packet.data.to_vec(),
                    direction: *direction,
                    comment: comment.to_string(),
                });
            }
            Block::InterfaceStatistics(of) => {
                dropped.extend(of.options.iter().filter_map(|option| match option {
                    InterfaceStatisticsOption::IsbIfDrop(count) => Some(*count),
                    _ => None,
                }))
            }
            _ => {}
        }
    }
    (packets, dropped)
}

/// Returns a frame with ECN-capable UDP from 10.77.0.1 to 10.77.0.2 and 20 bytes of payload.
fn frame(at: u64) -> Frame {
    let mut bytes = vec![0; 62];
    (bytes[12], bytes[14], bytes[15], bytes[17]) = (8, 0x45, 2, 48);
    (bytes[22], bytes[23]) = (64, 17);
    bytes[26..34].copy_from_slice(&[10, 77, 0, 1, 10, 77, 0, 2]);
    bytes[34..42].copy_from_slice(&[0x10, 0, 0x14, 0, 0, 28, 0, 0]);
    Frame::new(Nanos(at), Offload::default(), None, &bytes)
}

fn begin(spec: CaptureSpec, sink: impl Write + Send + 'static) -> (Captures, CaptureHandle) {
    let sink = Box::new(sink);
    let (tap, handle) = Capture { spec, sink }.begin(Nanos(1_000)).unwrap();
    // With this clock, no work takes any time.
    let mut captures = Captures::new(TimeShare::with_clock(|| Nanos::ZERO));
    captures.add(tap);
    (captures, handle)
}

fn drop_packet(captures: &mut Captures, frame: &Frame, cause: DropCause) {
    let gso = GsoFrame::of(frame).unwrap();
    let packets = ObservedPackets::whole_frame(Side::A, frame, Some(&gso));
    captures.note(&packets, cause.into(), None);
}

/// Reports that the packet of a frame leaves at `at`, with the due time `due` and these changes.
fn deliver(captures: &mut Captures, frame: &Frame, at: Nanos, due: Nanos, changes: Changes) {
    let gso = GsoFrame::of(frame).unwrap();
    let packets = ObservedPackets {
        due: &[due],
        changes,
        ..ObservedPackets::whole_frame(Side::A, frame, Some(&gso))
    };
    captures.note(&packets, PacketVerdict::Delivered, Some(at));
}

fn pass(captures: &mut Captures, frame: &Frame) {
    captures.arrived(frame.into(), 1);
    deliver(captures, frame, frame.arrival, frame.arrival, Changes::NONE);
}

#[test]
fn packets_are_in_order_of_time_with_their_outcomes() {
    let written = SharedBuffer::default();
    let (mut captures, handle) = begin(CaptureSpec::default(), written.clone());
    let (first, second) = (frame(1_000_000), frame(2_000_000));
    captures.arrived((&first).into(), 1);
    captures.arrived((&second).into(), 1);
    drop_packet(&mut captures, &second, DropCause::QueueFull);
    // The first packet is still on its way, so nothing after it can be written.
    captures.follow(Nanos(900_000_000), Nanos(900_000_000));
    let flip = Edit::FlipBits {
        first: 400,
        count: NonZeroU8::MIN,
        repair: false,
    };
    let (copy, changes) = (Nanos(20_999_000), Changes::new(1, true, Some(flip)));
    deliver(&mut captures, &first, copy, copy, changes);
    let (original, due) = (Nanos(21_001_200), Nanos(21_000_000));
    deliver(&mut captures, &first, original, due, Changes::NONE);
    captures.finish();
    let summary = handle.wait();
    assert_eq!((summary.a, summary.b, summary.not_kept), (2, 2, 0));
    let (packets, dropped) = packets(&written);
    assert_eq!(dropped, [0, 0]);
    let comments = packets
        .iter()
        .map(|of| (of.interface, of.direction, of.comment.as_str()));
    let original = "delivered 20.001 ms after arrival, due after 20.000 ms, 1.2 us late";
    let copy = "delivered 19.999 ms after arrival, due after 19.999 ms, 0.0 us late, copy, marked, corrupted";
    assert_eq!(
        comments.collect::<Vec<_>>(),
        [
            (0, 1, original),
            (0, 1, "dropped: queue full"),
            (1, 2, copy),
            (1, 2, original),
        ]
    );
    let since: Vec<u128> = packets
        .iter()
        .map(|of| of.at - packets[0].at)
        .map(|at| at.as_micros())
        .collect();
    assert_eq!(since[0], 0);
    assert!(since.is_sorted(), "{since:?}");
    // The original packet is unchanged at both ends; the copy has a mark and a flipped bit.
    assert_eq!(packets[0].data, first.bytes());
    assert_eq!(packets[3].data, first.bytes());
    assert_eq!(packets[2].data[15], 3);
    assert_ne!(packets[2].data[34..], first.bytes()[34..]);
}

#[test]
fn a_side_a_filter_and_a_length_leave_the_rest_out() {
    let written = SharedBuffer::default();
    let spec = CaptureSpec {
        side: Some(Side::B),
        filter: "udp and dst host 10.77.0.2".parse().unwrap(),
        snaplen: 42,
        ..CaptureSpec::default()
    };
    let (mut captures, handle) = begin(spec, written.clone());
    pass(&mut captures, &frame(5_000));
    let other = Frame::new(Nanos(6_000), Offload::default(), None, &[0; 60]);
    pass(&mut captures, &other);
    captures.finish();
    let summary = handle.wait();
    assert_eq!((summary.a, summary.b), (0, 1));
    let (packets, _) = packets(&written);
    assert_eq!((packets[0].data.len(), packets[0].original_len), (42, 62));
}

#[test]
fn a_packet_from_before_the_start_is_captured_only_at_its_departure() {
    let written = SharedBuffer::default();
    let (mut captures, handle) = begin(CaptureSpec::default(), written.clone());
    let at = Nanos(2_000);
    deliver(&mut captures, &frame(999), at, at, Changes::NONE);
    captures.finish();
    let summary = handle.wait();
    assert_eq!((summary.a, summary.b), (0, 1));
}

#[test]
fn packets_lost_by_a_slow_writer_are_counted_in_the_file_too() {
    let written = SharedBuffer::default();
    let (gate, release, blocked) = GatedWriter::new(&written);
    let (mut captures, handle) = begin(CaptureSpec::default(), gate);
    // The writer is blocked at its first batch and takes no other.
    pass(&mut captures, &frame(5_000));
    captures.follow(Nanos(1_000_000_000), Nanos(1_000_000_000));
    blocked.recv().unwrap();
    let batches = tap::WAITING + 3;
    for _ in 0..batches * tap::BATCH {
        pass(&mut captures, &frame(2_000_000_000));
    }
    drop(release);
    captures.finish();
    let summary = handle.wait();
    let lost = 3 * tap::BATCH as u64;
    assert_eq!(summary.not_kept, 2 * lost);
    assert_eq!(packets(&written).1, [lost, lost]);
    assert!(summary.to_string().contains("the writer was too slow"));
}

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(0) };
}

/// A clock according to which every observed frame takes 0.1 ms.
fn slow() -> Nanos {
    NOW.with(|now| {
        now.set(now.get() + 100_000);
        Nanos(now.get())
    })
}

#[test]
fn a_capture_that_takes_too_long_counts_lost_packets_and_continues_later() {
    let written = SharedBuffer::default();
    let (tap, handle) = Capture {
        spec: CaptureSpec::default(),
        sink: Box::new(written.clone()),
    }
    .begin(Nanos(1_000))
    .unwrap();
    let mut captures = Captures::new(TimeShare::with_clock(slow));
    captures.add(tap);
    let at = |number: u64| frame(1_000_000 + number);
    // The burst of 20 ms is used up after 100 packets, each of which is observed at arrival and
    // departure.
    (0..100).for_each(|number| pass(&mut captures, &at(number)));
    let on_its_way = at(100);
    captures.arrived((&on_its_way).into(), 1);
    (101..1_000).for_each(|number| pass(&mut captures, &at(number)));
    let later = Nanos(100_000_000);
    captures.follow(Nanos(50_000_000), Nanos(50_000_000));
    captures.follow(later, later);
    // The packet that arrived while the tap did not look appears only as a departure; those that
    // arrive now are kept at both ends.
    deliver(&mut captures, &on_its_way, later, later, Changes::NONE);
    (0..10).for_each(|number| pass(&mut captures, &frame(later.0 + number)));
    captures.finish();
    let summary = handle.wait();
    assert_eq!((summary.a, summary.b), (110, 111), "{summary}");
    assert_eq!(summary.not_kept, 900 + 899, "{summary}");
    let (packets, lost) = packets(&written);
    assert!(packets.is_sorted_by_key(|packet| packet.at));
    assert_eq!(lost, [900, 899]);
}

#[test]
fn a_full_disk_is_reported_and_missing_packets_are_counted() {
    let (mut captures, handle) = begin(CaptureSpec::default(), FullDisk);
    (0..10).for_each(|_| pass(&mut captures, &frame(5_000)));
    captures.finish();
    let summary = handle.wait();
    assert_eq!((summary.a, summary.b, summary.not_kept), (0, 0, 20));
    assert!(summary.error.is_some(), "{summary}");
}

#[test]
fn a_capture_ends_at_its_limit_of_bytes_and_when_its_handle_is_dropped() {
    let written = SharedBuffer::default();
    let spec = CaptureSpec {
        most_bytes: Some(1_000),
        ..CaptureSpec::default()
    };
    let (mut captures, handle) = begin(spec, written.clone());
    (0..100).for_each(|_| pass(&mut captures, &frame(5_000)));
    captures.finish();
    let summary = handle.wait();
    assert!(summary.not_kept > 180, "{summary}");
    assert_eq!(packets(&written).0.len() as u64, summary.a + summary.b);
    let (mut captures, handle) = begin(CaptureSpec::default(), SharedBuffer::default());
    drop(handle);
    captures.follow(Nanos(2_000), Nanos(2_000));
    assert!(captures.is_empty());
}

#[test]
fn a_loss_by_the_emulator_is_named_in_the_comment() {
    let written = SharedBuffer::default();
    let (mut captures, handle) = begin(CaptureSpec::default(), written.clone());
    let arrived = frame(5_000);
    captures.arrived((&arrived).into(), 1);
    let lost = ObservedPackets::whole_frame(Side::B, &arrived, None);
    captures.note(&lost, PacketVerdict::UnsupportedGso, None);
    captures.finish();
    handle.wait();
    let (packets, _) = packets(&written);
    assert_eq!(packets[0].interface, 1);
    assert_eq!(packets[0].comment, "lost by the emulator: unsupported gso");
}

#[test]
fn a_prefix_gets_the_extension_once() {
    assert_eq!(file_of(Path::new("a.b")), Path::new("a.b.pcapng"));
    assert_eq!(file_of(Path::new("a.pcapng")), Path::new("a.pcapng"));
}
