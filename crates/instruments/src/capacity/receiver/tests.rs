use super::*;

const WALL: u64 = 1_700_000_000_000_000_000;

fn at_ms(ms: u64) -> Moment {
    Moment {
        mono: Nanos(ms * 1_000_000),
        wall: WALL + ms * 1_000_000,
    }
}

/// A PDU sent 5 ms before `ms` by a clock that is 2 s ahead.
fn header(sequence: u32, ms: u64) -> LoadHeader {
    LoadHeader {
        sequence,
        sent: Stamp::of(WALL + (ms + 2_000 - 5) * 1_000_000),
        ..LoadHeader::default()
    }
}

fn receiver() -> Receiver {
    Receiver::new(Nanos(0), 50, 1000)
}

#[test]
fn nothing_is_fed_back_before_the_first_load() {
    assert!(receiver().feedback(at_ms(50), Action::Testing).is_none());
}

#[test]
fn loss_reordering_and_copies_are_told_apart() {
    let mut receiver = receiver();
    for sequence in [1, 2, 5, 4, 4, 5, 6] {
        receiver.load(at_ms(1), &header(sequence, 1), 100);
    }
    let status = receiver.feedback(at_ms(50), Action::Testing).unwrap();
    assert_eq!(
        (status.lost, status.reordered, status.duplicated),
        (1, 1, 2)
    );
    assert_eq!((status.trial_datagrams, status.trial_bytes), (7, 700));
    let totals = receiver.totals();
    assert_eq!((totals.highest, totals.distinct), (6, 5));
    assert_eq!(status.trial_us, 50_000);
    let next = receiver.feedback(at_ms(100), Action::Testing).unwrap();
    assert_eq!((next.sequence, next.lost, next.trial_datagrams), (2, 0, 0));
}

#[test]
fn delay_variation_is_above_the_least_delay_whatever_the_clocks() {
    let mut receiver = receiver();
    receiver.load(at_ms(10), &header(1, 10), 100);
    receiver.load(at_ms(20), &header(2, 13), 100);
    receiver.load(at_ms(21), &header(3, 20), 100);
    let status = receiver.feedback(at_ms(50), Action::Testing).unwrap();
    assert_eq!(status.clock_delta_min_ms, -1995);
    assert_eq!((status.delay_min_ms, status.delay_max_ms), (1, 7));
    assert_eq!((status.delay_sum_ms, status.delay_count), (8, 2));
}

#[test]
fn a_round_trip_is_taken_once_and_only_of_feedback_that_was_sent() {
    let mut receiver = receiver();
    receiver.load(at_ms(1), &header(1, 1), 100);
    let first = receiver.feedback(at_ms(50), Action::Testing).unwrap();
    assert_eq!(first.rtt_variation_ms, NO_DELAY);
    let answer = |sequence, ms, stamp, response_delay_ms| LoadHeader {
        feedback_stamp: stamp,
        response_delay_ms,
        ..header(sequence, ms)
    };
    receiver.load(at_ms(80), &answer(2, 80, first.sent, 10), 100);
    receiver.load(at_ms(90), &answer(3, 90, first.sent, 0), 100);
    receiver.load(at_ms(95), &answer(4, 95, Stamp::of(77), 0), 100);
    let second = receiver.feedback(at_ms(100), Action::Testing).unwrap();
    assert_eq!((second.rtt_min_ms, second.rtt_variation_ms), (20, 0));
    receiver.load(at_ms(145), &answer(5, 145, second.sent, 0), 100);
    let third = receiver.feedback(at_ms(150), Action::Testing).unwrap();
    assert_eq!((third.rtt_min_ms, third.rtt_variation_ms), (20, 25));
}

#[test]
fn a_sub_interval_reaches_from_arrival_to_arrival() {
    let mut receiver = receiver();
    let (mut last, mut sequence) = (None, 0);
    for ms in 1..=2_200 {
        sequence += 1;
        receiver.load(at_ms(ms), &header(sequence, ms), 1000);
        if ms % 50 == 0 {
            // Feedback is late by 0.7 ms, which must not count.
            let mut late = at_ms(ms);
            late.mono.0 += 700_000;
            last = receiver.feedback(late, Action::Testing);
        }
    }
    let status = last.unwrap();
    assert_eq!(status.sub_interval_number, 2);
    assert_eq!(status.sub_interval.bytes, 1_000_000);
    assert_eq!(status.sub_interval.span_us, 1_000_000);
    assert_eq!(status.sub_interval.elapsed_ms, 2_000);
    let (number, _, ended) = receiver.last_sub_interval();
    assert_eq!((number, ended), (2, Some(at_ms(2_050).wall)));
}

#[test]
fn numbers_that_no_sender_can_have_reached_are_not_counted() {
    let mut receiver = receiver();
    receiver.load(at_ms(1), &header(1, 1), 100);
    for sequence in [u32::MAX, 300_000, 0] {
        receiver.load(at_ms(2), &header(sequence, 2), 100);
    }
    receiver.load(at_ms(3), &header(2, 3), 100);
    assert_eq!(receiver.totals().implausible, 3);
    let status = receiver.feedback(at_ms(50), Action::Testing).unwrap();
    assert_eq!((status.trial_datagrams, status.lost), (2, 0));
}

#[test]
fn silence_of_the_load_is_said() {
    let mut receiver = receiver();
    receiver.load(at_ms(1), &header(1, 1), 100);
    assert!(!receiver.peek(at_ms(900)).load_stopped);
    assert!(receiver.peek(at_ms(1_100)).load_stopped);
}
