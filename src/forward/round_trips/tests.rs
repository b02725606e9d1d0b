use netio::{Frame, Gso, GsoKind, Offload};
use proptest::prelude::*;

use super::*;

const SYN_ACK: u8 = 0x12;
const ACK: u8 = 0x10;

#[derive(Default)]
struct TestLink {
    tracker: RoundTripTracker,
}

/// A frame that has arrived at a side.
struct ArrivedFrame {
    side: Side,
    segments: u32,
    frame: Frame,
}

impl TestLink {
    fn arrives(&mut self, side: Side, millis: u64, bytes: &[u8]) -> ArrivedFrame {
        self.train_arrives(side, millis, bytes, 1)
    }

    fn train_arrives(
        &mut self,
        side: Side,
        millis: u64,
        bytes: &[u8],
        segments: u32,
    ) -> ArrivedFrame {
        let gso = (segments > 1).then_some(Gso {
            kind: GsoKind::TcpV4,
            size: 100,
            ecn: false,
        });
        let offload = Offload {
            gso,
            checksum: None,
        };
        let frame = Frame::new(Nanos::from_millis(millis), offload, None, bytes);
        self.tracker.arrived(side, (&frame).into());
        ArrivedFrame {
            side,
            segments,
            frame,
        }
    }

    /// Sends the frame on.
    fn leaves(&mut self, frame: &ArrivedFrame, millis: u64) {
        self.part_leaves(frame, 0..frame.segments, millis);
    }

    fn part_leaves(&mut self, frame: &ArrivedFrame, part: std::ops::Range<u32>, millis: u64) {
        let at = Nanos::from_millis(millis);
        let sent = SendTimes {
            begun: at,
            ended: at,
        };
        self.report(frame, part, Some(sent));
    }

    fn is_lost(&mut self, frame: &ArrivedFrame) {
        self.report(frame, 0..frame.segments, None);
    }

    fn report(
        &mut self,
        frame: &ArrivedFrame,
        part: std::ops::Range<u32>,
        sent: Option<SendTimes>,
    ) {
        let gso = GsoFrame::of(&frame.frame).unwrap();
        let packets = ObservedPackets {
            segments: part,
            ..ObservedPackets::whole_frame(frame.side, &frame.frame, Some(&gso))
        };
        self.tracker.note(&packets, sent);
    }

    /// Lets a frame arrive and cross a link with 20 ms delay.
    fn crosses(&mut self, side: Side, millis: u64, bytes: &[u8]) {
        let frame = self.arrives(side, millis, bytes);
        self.leaves(&frame, millis + 20);
    }

    /// Returns the number of round trips that each side has measured, and their total duration.
    fn sums(&self) -> [(u64, Nanos); 2] {
        self.tracker.times().map(|times| (times.count(), times.sum))
    }
}

const NONE: (u64, Nanos) = (0, Nanos::ZERO);

fn ms(count: u64, millis: u64) -> (u64, Nanos) {
    (count, Nanos::from_millis(millis))
}

/// Returns a TCP segment from the client (side A) or the server.
fn tcp(from: Side, [sequence, ack]: [u32; 2], flags: u8, payload: u16) -> Vec<u8> {
    let mut ends = [([10, 77, 0, 1], 40_000_u16), ([10, 77, 0, 2], 80)];
    if from == Side::B {
        ends.reverse();
    }
    let mut bytes = vec![2; 12];
    bytes.extend([8, 0, 0x45, 0]);
    bytes.extend((40 + payload).to_be_bytes());
    bytes.extend([0, 1, 0, 0, 64, 6, 0, 0]);
    bytes.extend(ends.map(|(address, _)| address).concat());
    bytes.extend(ends.map(|(_, port)| port.to_be_bytes()).concat());
    bytes.extend([sequence, ack].map(u32::to_be_bytes).concat());
    bytes.extend([0x50, flags, 1, 0, 0, 0, 0, 0]);
    bytes.resize(54 + usize::from(payload), 7);
    bytes
}

/// Returns a segment with 100 bytes from the client, starting at that sequence number.
fn data(sequence: u32) -> Vec<u8> {
    tcp(Side::A, [sequence, 1], ACK, 100)
}

/// Returns the server's acknowledgement of everything before that number.
fn acknowledged(ack: u32) -> Vec<u8> {
    tcp(Side::B, [1, ack], ACK, 0)
}

/// Returns an echo request from the client, or its reply.
fn echo(kind: u8, number: u8) -> Vec<u8> {
    let mut bytes = tcp(if kind == 8 { Side::A } else { Side::B }, [0; 2], 0, 8);
    bytes[23] = 1;
    bytes[34..42].copy_from_slice(&[kind, 0, 0, 0, 0, 9, 0, number]);
    bytes
}

#[test]
fn a_round_trip_lasts_until_the_acknowledgement_has_left() {
    let mut ends = TestLink::default();
    ends.crosses(Side::A, 0, &data(1000));
    ends.crosses(Side::B, 21, &acknowledged(1099));
    assert_eq!(ends.sums(), [NONE, NONE]);
    ends.crosses(Side::B, 22, &acknowledged(1100));
    ends.crosses(Side::B, 23, &acknowledged(1100));
    assert_eq!(ends.sums(), [ms(1, 42), NONE]);
}

#[test]
fn each_side_measures_the_round_trips_of_its_arrivals() {
    let mut ends = TestLink::default();
    ends.crosses(Side::A, 0, &tcp(Side::A, [7, 0], 0x02, 0));
    ends.crosses(Side::B, 20, &tcp(Side::B, [9, 8], SYN_ACK, 0));
    ends.crosses(Side::A, 45, &tcp(Side::A, [8, 10], ACK, 0));
    assert_eq!(ends.sums(), [ms(1, 40), ms(1, 45)]);
}

#[test]
fn a_retransmitted_segment_is_not_measured_and_the_next_one_is() {
    let mut ends = TestLink::default();
    ends.crosses(Side::A, 0, &data(1000));
    ends.crosses(Side::A, 200, &data(1000));
    ends.crosses(Side::B, 220, &acknowledged(1100));
    assert_eq!(ends.sums(), [NONE, NONE]);
    ends.crosses(Side::A, 300, &data(1100));
    ends.crosses(Side::B, 320, &acknowledged(1200));
    assert_eq!(ends.sums(), [ms(1, 40), NONE]);
}

#[test]
fn a_segment_acknowledged_before_it_has_passed_is_not_measured() {
    let mut ends = TestLink::default();
    let again = ends.arrives(Side::A, 100, &data(1000));
    ends.crosses(Side::B, 90, &acknowledged(1100));
    ends.leaves(&again, 120);
    assert_eq!(ends.sums(), [NONE, NONE]);
    let again = ends.arrives(Side::A, 200, &data(1100));
    let answer = ends.arrives(Side::B, 210, &acknowledged(1200));
    ends.leaves(&again, 220);
    ends.leaves(&answer, 230);
    assert_eq!(ends.sums(), [NONE, NONE]);
}

#[test]
fn an_unanswered_packet_is_given_up_and_a_late_reply_ignored() {
    let mut ends = TestLink::default();
    ends.crosses(Side::A, 0, &data(1000));
    ends.crosses(Side::B, 10_000, &acknowledged(1100));
    assert_eq!(ends.sums(), [NONE, NONE]);
    ends.crosses(Side::A, 10_020, &echo(8, 1));
    // No other echo is followed for ten seconds.
    ends.crosses(Side::A, 20_020, &echo(8, 2));
    ends.crosses(Side::B, 20_040, &echo(0, 2));
    assert_eq!(ends.sums(), [NONE, NONE]);
    ends.crosses(Side::A, 20_100, &echo(8, 3));
    ends.crosses(Side::B, 20_120, &echo(0, 3));
    assert_eq!(ends.sums(), [ms(1, 40), NONE]);
}

#[test]
fn the_next_segment_is_followed_ten_milliseconds_later_and_an_echo_beside_it() {
    let mut ends = TestLink::default();
    let mut exchange = |millis, sequence| {
        let request = ends.arrives(Side::A, millis, &data(sequence));
        ends.leaves(&request, millis);
        let answer = ends.arrives(Side::B, millis, &acknowledged(sequence + 100));
        ends.leaves(&answer, millis + 1);
        ends.sums()[0].0
    };
    assert_eq!(
        [(0, 100), (9, 200), (10, 300)].map(|(at, n)| exchange(at, n)),
        [1, 1, 2]
    );
    ends.crosses(Side::A, 11, &echo(8, 1));
    ends.crosses(Side::B, 31, &echo(0, 1));
    assert_eq!(ends.sums(), [ms(3, 42), NONE]);
}

#[test]
fn a_lost_echo_or_reply_does_not_block_later_ones() {
    let mut ends = TestLink::default();
    let request = ends.arrives(Side::A, 0, &echo(8, 1));
    ends.is_lost(&request);
    ends.crosses(Side::A, 100, &echo(8, 2));
    let answer = ends.arrives(Side::B, 120, &echo(0, 2));
    ends.is_lost(&answer);
    assert_eq!(ends.sums(), [NONE, NONE]);
    ends.crosses(Side::A, 200, &echo(8, 3));
    ends.crosses(Side::B, 220, &echo(0, 3));
    assert_eq!(ends.sums(), [ms(1, 40), NONE]);
}

#[test]
fn the_next_acknowledgement_replaces_a_lost_one() {
    let mut ends = TestLink::default();
    ends.crosses(Side::A, 0, &data(1000));
    let lost = ends.arrives(Side::B, 20, &acknowledged(1100));
    ends.is_lost(&lost);
    ends.crosses(Side::B, 30, &acknowledged(1200));
    assert_eq!(ends.sums(), [ms(1, 50), NONE]);
}

#[test]
fn a_train_has_passed_when_its_last_segment_has() {
    for (last_leaves, measured) in [(20, ms(1, 60)), (45, NONE)] {
        let mut ends = TestLink::default();
        let train = tcp(Side::A, [1000, 1], ACK, 300);
        let train = ends.train_arrives(Side::A, 0, &train, 3);
        ends.part_leaves(&train, 0..2, 10);
        ends.part_leaves(&train, 2..3, last_leaves);
        ends.crosses(Side::B, 30, &acknowledged(1299));
        ends.crosses(Side::B, 40, &acknowledged(1300));
        assert_eq!(ends.sums(), [measured, NONE]);
    }
}

#[test]
fn a_time_equal_to_a_bound_counts_below_it() {
    let mut times = RoundTripTimes::default();
    let bounds = RoundTripTimes::BOUNDS;
    assert!(bounds.is_sorted());
    times.record(bounds[0]);
    times.record(Nanos(bounds[0].0 + 1));
    times.record(LONGEST);
    assert_eq!((times.counts[0], times.counts[1]), (1, 1));
    assert_eq!((times.counts[bounds.len()], times.count()), (1, 3));
}

proptest! {
    #[test]
    fn no_round_trip_is_shorter_than_the_link(
        frames in prop::collection::vec((any::<bool>(), 0u64..50, any::<[u8; 4]>(), any::<prop::sample::Index>()), 1..60),
    ) {
        let mut ends = TestLink::default();
        let mut now = 0;
        for (is_up, gap, wild, at) in frames {
            let is_tcp = wild[0] > 128;
            let number = wild[1];
            let (side, mut bytes) = if is_up {
                (Side::A, if is_tcp { data(number.into()) } else { echo(8, number) })
            } else {
                (Side::B, if is_tcp { acknowledged(number.into()) } else { echo(0, number) })
            };
            if wild[2] > 200 {
                let at = at.index(bytes.len());
                bytes[at] = wild[3];
                bytes.truncate(bytes.len().min(at + usize::from(wild[3])));
            }
            now += gap;
            let frame = ends.arrives(side, now, &bytes);
            ends.leaves(&frame, now + 5);
        }
        for (count, sum) in ends.sums() {
            prop_assert!(sum >= Nanos::from_millis(10 * count), "{count} took {sum:?}");
        }
    }
}
