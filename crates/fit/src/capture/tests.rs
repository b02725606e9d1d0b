//! Tests of captures of one end and of both ends.

use std::time::Duration;

use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionBlock;
use pcap_file::pcapng::blocks::interface_statistics::{
    InterfaceStatisticsBlock, InterfaceStatisticsOption,
};
use pcap_file::{DataLink, TsResolution};

use super::packets::{INBOUND, UDP};
use super::*;
use crate::LinkFit;

const HOSTS: [[u8; 4]; 2] = [[192, 0, 2, 1], [198, 51, 100, 7]];

/// Returns a frame of UDP between the hosts, with the time to live that is left at an end.
fn frame(number: u32, way: Direction, ttl: u8) -> Vec<u8> {
    let [from, to] = way.choose([0, 1], [1, 0]).map(|at| HOSTS[at]);
    let [.., high, low] = number.to_be_bytes();
    let mut frame = vec![0; 12];
    frame.extend([
        0x08, 0x00, 0x45, 0, 0, 48, high, low, 0x40, 0, ttl, UDP, 0, 0,
    ]);
    frame.extend(from);
    frame.extend(to);
    // Ports, length, and a checksum that only one end has.
    frame.extend([0x10, 0, 0x20, 0, 0, 28, ttl, ttl]);
    frame.extend([0; 16]);
    frame.extend(number.to_be_bytes());
    frame
}

/// A packet with its interface, its time in microseconds, and its options in the file.
type Noted = (u32, u64, Vec<u8>, Vec<EnhancedPacketOption<'static>>);

/// Writes packets, each with its interface and its time in microseconds.
fn written(packets: &[(u32, u64, Vec<u8>)]) -> Vec<u8> {
    let noted = packets
        .iter()
        .map(|(end, at_us, data)| (*end, *at_us, data.clone(), Vec::new()));
    written_with(&noted.collect::<Vec<Noted>>(), [0; 2])
}

/// Writes packets, and how many packets each interface could not keep.
fn written_with(packets: &[Noted], dropped: [u64; 2]) -> Vec<u8> {
    let mut file = PcapNgWriter::new(Vec::new()).unwrap();
    for _ in 0..2 {
        file.write_pcapng_block(InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen: 0,
            options: Vec::new(),
        })
        .unwrap();
    }
    for (interface_id, at_us, data, options) in packets {
        file.write_pcapng_block(EnhancedPacketBlock {
            interface_id: *interface_id,
            // The library writes nanoseconds in place of the interface's microseconds.
            timestamp: Duration::from_nanos(*at_us),
            original_len: u32::try_from(data.len()).unwrap(),
            data: data.as_slice().into(),
            options: options.clone(),
        })
        .unwrap();
    }
    for (interface_id, count) in (0..).zip(dropped) {
        file.write_pcapng_block(InterfaceStatisticsBlock {
            interface_id,
            timestamp: 0,
            options: vec![InterfaceStatisticsOption::IsbIfDrop(count)],
        })
        .unwrap();
    }
    file.into_inner()
}

/// Returns the packets of both ends of a path that needs 20 ms up and 30 ms down, and loses some up. The far clock is ahead by
/// some microseconds.
fn crossing(ahead_us: u64, is_lost: impl Fn(u32) -> bool) -> Vec<(u32, u64, Vec<u8>)> {
    let mut packets = Vec::new();
    for number in 0..400_u32 {
        let at_us = 1_000_000 + 10_000 * u64::from(number);
        packets.push((0, at_us, frame(number, Direction::Up, 64)));
        if !is_lost(number) {
            let at_us = at_us + 20_000 + ahead_us;
            packets.push((1, at_us, frame(number, Direction::Up, 60)));
        }
        packets.push((1, at_us + ahead_us, frame(number, Direction::Down, 64)));
        packets.push((0, at_us + 30_000, frame(number, Direction::Down, 60)));
    }
    packets
}

/// Returns a capture of such a path that loses every tenth packet up.
fn both_ends(ahead_us: u64) -> Vec<u8> {
    let mut packets = crossing(ahead_us, |number| number % 10 == 0);
    packets.sort_by_key(|(_, at_us, _)| *at_us);
    written(&packets)
}

/// Checks that the delays are those of the path, without jitter or packets out of order.
fn has_delays(found: &LinkFit) {
    has_delays_of(found, [20.0, 30.0]);
}

/// Checks that the delays up and down in milliseconds are these, without jitter or packets out of order.
fn has_delays_of(found: &LinkFit, [up, down]: [f64; 2]) {
    for (fit, truth) in [(&found.up, up), (&found.down, down)] {
        let delay = fit.delay.as_ref().unwrap();
        assert!((delay.ms.value - truth).abs() < 0.06, "{delay:?}");
        assert!(delay.jitter.is_none() && !delay.reorders, "{delay:?}");
        assert!(delay.skipped_percent.is_none(), "{delay:?}");
    }
}

#[test]
fn a_capture_of_both_ends_has_the_delay_and_the_loss_of_each_direction() {
    let observed = read_capture(&both_ends(0)).unwrap();
    let [up, down] = observed.idle.losses.map(Option::unwrap);
    // Packets of the last second may still be on their way.
    assert_eq!((up.lost, up.bursts, up.of), (31, 31, 302));
    assert_eq!((down.lost, down.of), (0, 302));
    let found = LinkFit::of(&observed);
    let delays = [&found.up, &found.down].map(|one| one.delay.as_ref().unwrap().ms);
    let is_near = |found: f64, truth: f64| (found - truth).abs() < 0.01;
    assert!(
        is_near(delays[0].value, 20.0) && is_near(delays[1].value, 30.0),
        "{delays:?}"
    );
    // Nothing relates the clocks of the captures but that no delay is negative.
    assert!(
        delays[0].contains(1.0) && delays[1].contains(54.0),
        "{delays:?}"
    );
}

/// Returns the observations of a path that marks these packets up. Those down were marked before they entered the path.
fn with_marks(is_marked: impl Fn(u32) -> bool) -> PathObservations {
    let mut packets = crossing(0, |_| false);
    packets.sort_by_key(|(_, at_us, _)| *at_us);
    for (end, _, frame) in &mut packets {
        let goes_up = frame[26..30] == HOSTS[0];
        let number = u32::from_be_bytes(*frame.last_chunk().unwrap());
        let is_unmarked = goes_up && (*end == 0 || !is_marked(number));
        frame[15] = if is_unmarked { 2 } else { 3 };
    }
    read_capture(&written(&packets)).unwrap()
}

/// Returns whether observations say that the queue up is managed.
fn says_managed(observed: &PathObservations) -> bool {
    let mut lacks = observed.lacks.iter();
    lacks.any(|one| one.starts_with("the queue up: "))
}

#[test]
fn packets_that_are_marked_between_both_ends_show_that_a_queue_is_managed() {
    let observed = with_marks(|_| true);
    let [up, down] = observed.marked;
    assert!(up.count > 200 && up.tenths == 10, "{up:?}");
    assert_eq!(down, Marks::default());
    let lack = format!("the queue up: {} packets were marked (ECN)", up.count);
    assert!(observed.lacks.iter().any(|one| one.starts_with(&lack)));
    let unmarked = read_capture(&both_ends(0)).unwrap().marked;
    assert_eq!(unmarked, [Marks::default(); 2]);
    // Of about 300 packets, these are in the first tenth, the fourth and the last but one.
    let few = with_marks(|number| [0, 1, 100, 101, 250].contains(&number));
    assert_eq!((few.marked[0].count, few.marked[0].tenths), (5, 3));
    assert!(says_managed(&few));
}

#[test]
fn a_handful_of_marks_or_many_in_a_short_time_do_not_show_that_a_queue_is_managed() {
    let handful = with_marks(|number| number % 80 == 0);
    assert_eq!((handful.marked[0].count, handful.marked[0].tenths), (4, 4));
    let short = with_marks(|number| (100..140).contains(&number));
    assert_eq!((short.marked[0].count, short.marked[0].tenths), (40, 2));
    assert!(!says_managed(&handful) && !says_managed(&short));
}

#[test]
fn clocks_that_make_delays_negative_are_refused() {
    let error = read_capture(&both_ends(35_000)).unwrap_err().to_string();
    assert!(error.contains("synchronise them"), "{error}");
    assert!(read_capture(&both_ends(5_000)).is_ok());
}

#[test]
fn clocks_that_make_some_delays_negative_are_refused() {
    let ahead_us = 5_000;
    let with_fast = |count: u32| {
        let mut packets = crossing(ahead_us, |_| false);
        // These need 3 ms, so that the clocks let them arrive 2 ms before they were sent.
        for number in 0..count {
            let at_us = 1_012_000 + 10_000 * u64::from(number);
            let down = |ttl| frame(1000 + number, Direction::Down, ttl);
            packets.push((1, at_us + ahead_us, down(64)));
            packets.push((0, at_us + 3_000, down(60)));
        }
        read_capture(&written(&packets))
    };
    let error = with_fast(5).unwrap_err().to_string();
    assert!(error.contains("synchronise them"), "{error}");
    // One of a hundred may be of different packets.
    let observed = with_fast(3).unwrap();
    assert_eq!(observed.idle.unclear, [0, 3]);
    has_delays_of(&LinkFit::of(&observed), [25.0, 25.0]);
}

#[test]
fn copies_that_would_arrive_before_they_were_sent_say_nothing_about_the_clocks() {
    let mut packets = crossing(0, |_| false);
    // Too few packets without copies are left to show which times others may need.
    packets.retain(|(_, at_us, _)| *at_us < 1_150_000);
    for copy in 0..10_u64 {
        let at_us = 2_000_000 + 100_000 * copy;
        packets.push((0, at_us, frame(1000, Direction::Up, 64)));
        packets.push((1, at_us - 5_000, frame(1000, Direction::Up, 60)));
    }
    // Until then, both ends captured.
    for end in [0, 1] {
        packets.push((end, 9_000_000, frame(2000 + end, Direction::Up, 64)));
    }
    let observed = read_capture(&written(&packets)).unwrap();
    assert_eq!(observed.idle.unclear, [10, 0]);
    has_delays(&LinkFit::of(&observed));
}

/// Returns a frame of a ping or its answer.
fn ping(number: u16, is_reply: bool) -> Vec<u8> {
    let way = if is_reply {
        Direction::Down
    } else {
        Direction::Up
    };
    let mut frame = frame(number.into(), way, 64);
    frame[23] = 1;
    let number = number.to_be_bytes();
    let kind = if is_reply { 0 } else { 8 };
    frame.splice(34..42, [kind, 0, 0, 0, 7, 7, number[0], number[1]]);
    frame
}

#[test]
fn a_capture_of_one_end_has_the_round_trips_of_pings() {
    let header = PcapHeader {
        ts_resolution: TsResolution::NanoSecond,
        datalink: DataLink::ETHERNET,
        ..PcapHeader::default()
    };
    let mut file = PcapWriter::with_header(Vec::new(), header).unwrap();
    let mut packets = Vec::new();
    for number in 0..100_u16 {
        let at_ms = 50 * u64::from(number);
        packets.push((at_ms, ping(number, false)));
        if number % 25 != 3 {
            packets.push((at_ms + 40, ping(number, true)));
        }
    }
    for (at_ms, data) in &packets {
        let packet = PcapPacket::new(
            Duration::from_millis(*at_ms),
            u32::try_from(data.len()).unwrap(),
            data,
        );
        file.write_packet(&packet).unwrap();
    }
    let bytes = file.into_writer();
    assert!(is_capture(&bytes));
    let idle = read_capture(&bytes).unwrap().idle;
    assert_eq!((idle.probes.len(), idle.answered().count()), (100, 96));
    assert_eq!(idle.probes[3].rtt_ms, None);
    assert_eq!((idle.probes[0].rtt_ms, idle.wire_bytes), (Some(40.0), 62));
    // The last packet is not complete.
    let cut = read_capture(&bytes[..bytes.len() - 5]).unwrap().idle;
    assert_eq!(cut.answered().count(), 95);
}

#[test]
fn a_capture_that_shows_nothing_is_refused_with_what_to_do() {
    let few = written(&[(0, 0, frame(1, Direction::Up, 64))]);
    let error = read_capture(&few).unwrap_err().to_string();
    assert!(error.contains("mergecap -I none"), "{error}");
    let error = read_capture(&[0xa1, 0xb2, 0xc3, 0xd4, 0])
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("the capture is damaged: "), "{error}");
}

#[test]
fn packets_that_were_sent_again_with_equal_content_count_as_lost_once() {
    let mut packets = crossing(0, |_| false);
    for again in 0..20_u32 {
        let at_us = 1_003_000 + 200_000 * u64::from(again);
        let up = |ttl| frame(1000 + again, Direction::Up, ttl);
        packets.push((0, at_us, up(64)));
        packets.push((0, at_us + 200_000, up(64)));
        // The stamps of some differ from those of the packets without copies.
        let at_us = at_us + 220_000 + 50 * u64::from(again % 2);
        packets.push((1, at_us, up(60)));
    }
    let observed = read_capture(&written(&packets)).unwrap();
    // Those of the last second may still be on their way.
    let [up, down] = observed.idle.losses.map(Option::unwrap);
    assert_eq!((up.lost, down.lost), (16, 0));
    assert_eq!(observed.idle.unclear, [0; 2]);
    has_delays(&LinkFit::of(&observed));
}

#[test]
fn few_packets_do_not_show_how_long_copies_may_need() {
    let unclear = |others: u32| {
        let mut packets = Vec::new();
        for number in 0..others {
            let at_us = 1_000_000 + 10_000 * u64::from(number);
            packets.push((0, at_us, frame(number, Direction::Up, 64)));
            packets.push((1, at_us + 20_000, frame(number, Direction::Up, 60)));
        }
        // Both of two equal packets waited for 25 ms.
        for at_us in [1_500_000, 1_503_000] {
            packets.push((0, at_us, frame(1000, Direction::Up, 64)));
            packets.push((1, at_us + 45_000, frame(1000, Direction::Up, 60)));
        }
        // Until then, both ends captured.
        for end in [0, 1] {
            packets.push((end, 9_000_000, frame(2000 + end, Direction::Up, 64)));
        }
        let observed = read_capture(&written(&packets)).unwrap();
        observed.idle.unclear
    };
    assert_eq!([15, 40].map(unclear), [[0, 0], [2, 0]]);
}

#[test]
fn copies_of_a_packet_are_neither_late_nor_lost() {
    let mut packets = crossing(0, |_| false);
    for number in (0..400_u32).step_by(10) {
        let at_us = 1_025_000 + 10_000 * u64::from(number);
        packets.push((1, at_us, frame(number, Direction::Up, 60)));
    }
    let observed = read_capture(&written(&packets)).unwrap();
    assert_eq!(observed.idle.losses[0].unwrap().lost, 0);
    assert_eq!(observed.idle.unclear, [31, 0]);
    let found = LinkFit::of(&observed);
    has_delays(&found);
    let rows = found.parameters();
    let evidence = &rows[0].evidence;
    // No rate is known, so that the delay includes the packets' own transmission.
    assert!(
        evidence.ends_with(" idle probes; 31 packets could not be paired and do not count"),
        "{evidence}"
    );
}

#[test]
fn packets_that_a_capture_could_not_keep_are_not_lost() {
    let packets = crossing(0, |number| number % 10 == 0);
    let noted = packets
        .into_iter()
        .map(|(end, at_us, data)| (end, at_us, data, Vec::new()));
    let bytes = written_with(&noted.collect::<Vec<Noted>>(), [0, 40]);
    let observed = read_capture(&bytes).unwrap();
    let [lack] = observed.lacks.as_slice() else {
        panic!("{:?}", observed.lacks);
    };
    assert!(
        lack.starts_with("the loss up: the capture could not keep"),
        "{lack}"
    );
    let found = LinkFit::of(&observed);
    has_delays(&found);
    assert!(found.up.loss.is_none(), "{:?}", found.up.loss);
    assert_eq!(found.down.loss.unwrap().counts.lost, 0);
}

#[test]
fn stamps_of_several_processors_are_no_reordering() {
    let mut packets = crossing(0, |_| false);
    for pair in 0..200_u32 {
        let at_us = 1_004_000 + 20_000 * u64::from(pair);
        for (number, later_us) in [(1000 + 2 * pair, 45), (1001 + 2 * pair, 0)] {
            let sent_us = at_us + 10 * u64::from(number % 2);
            packets.push((0, sent_us, frame(number, Direction::Up, 64)));
            let at_us = at_us + 20_010 + later_us;
            packets.push((1, at_us, frame(number, Direction::Up, 60)));
        }
    }
    has_delays(&LinkFit::of(&read_capture(&written(&packets)).unwrap()));
    // Those that were sent 4 ms later arrive 6 ms earlier.
    packets.push((0, 1_006_000, frame(2000, Direction::Up, 64)));
    packets.push((1, 1_036_000, frame(2000, Direction::Up, 60)));
    let found = LinkFit::of(&read_capture(&written(&packets)).unwrap());
    assert!(found.up.delay.unwrap().reorders);
}

#[test]
fn what_the_emulator_did_late_or_immediately_is_no_property_of_its_link() {
    let mut packets: Vec<Noted> = Vec::new();
    let mut crosses = |way: Direction, sent_us: u64, at_us: u64, data: Vec<u8>, comment: String| {
        let [from, to] = way.choose([0, 1], [1, 0]);
        for (end, at_us, flags) in [(from, sent_us, INBOUND), (to, at_us, 2)] {
            let options = vec![
                EnhancedPacketOption::Flags(flags),
                EnhancedPacketOption::Comment(comment.clone().into()),
            ];
            packets.push((end, at_us, data.clone(), options));
        }
    };
    for number in 0..400_u32 {
        let sent_us = 1_000_000 + 10_000 * u64::from(number);
        // The machine runs other programs for 150 ms of each second.
        let ready_us = match number % 100 {
            0..15 => sent_us - sent_us % 1_000_000 + 150_000,
            _ => 0,
        };
        for (way, due_us) in [(Direction::Up, 20_000), (Direction::Down, 30_000)] {
            let at_us = ready_us.max(sent_us + due_us);
            let late_us = at_us - sent_us - due_us;
            let comment = format!(
                "delivered {}.{:03} ms after arrival, due after {}.000 ms, {late_us}.0 us late",
                (at_us - sent_us) / 1000,
                (at_us - sent_us) % 1000,
                due_us / 1000,
            );
            crosses(way, sent_us, at_us, frame(number, way, 64), comment);
        }
        if number % 50 == 0 {
            let comment = "link control, forwarded immediately 0.040 ms after arrival".to_owned();
            let data = frame(5000 + number, Direction::Up, 64);
            crosses(Direction::Up, sent_us + 1000, sent_us + 1040, data, comment);
        }
    }
    let observed = read_capture(&written_with(&packets, [0; 2])).unwrap();
    assert_eq!(observed.idle.losses.map(|one| one.unwrap().lost), [0; 2]);
    has_delays(&LinkFit::of(&observed));
}
