use std::collections::BTreeSet;

use super::*;
use proptest::prelude::*;

const LENGTH: usize = 100;

fn datagram(number: u64) -> Vec<u8> {
    stamped(number, Nanos(0))
}

fn stamped(number: u64, sent: Nanos) -> Vec<u8> {
    let mut datagram = vec![0; LENGTH];
    NumberWidth::Bits64.write(DatagramHeader { sent, number }, &mut datagram);
    datagram
}

fn counts_of(numbers: &[u64]) -> ReceiverCounts {
    let mut stats = ReceiverStats::new(NumberWidth::Bits64);
    for (number, at) in numbers.iter().zip(1..) {
        stats.arrive(&datagram(*number), LENGTH, Nanos(at), 0);
    }
    stats.counts
}

/// A literal implementation of RFC 4737 that keeps every number.
#[derive(Default)]
struct ReferenceReceiver {
    arrived: Vec<u64>,
    duplicates: u64,
    reordered: u64,
    largest_extent: u64,
}

impl ReferenceReceiver {
    fn of(numbers: &[u64]) -> Self {
        let mut naive = Self::default();
        let mut seen = BTreeSet::new();
        let mut next_expected = 1;
        for &number in numbers {
            if !seen.insert(number) {
                naive.duplicates += 1;
                continue;
            }
            if number < next_expected {
                naive.reordered += 1;
                let i = naive.arrived.len();
                let j = naive.arrived.iter().position(|s| *s > number).unwrap();
                naive.largest_extent = naive.largest_extent.max((i - j) as u64);
            } else {
                next_expected = number + 1;
            }
            naive.arrived.push(number);
        }
        naive
    }
}

/// Generates a stream with losses, duplicates and displaced datagrams.
fn disturbed() -> impl Strategy<Value = Vec<u64>> {
    proptest::collection::vec((0..10u8, 0..40u64), 1..300).prop_map(|fates| {
        let mut places: Vec<(u64, u64)> = Vec::new();
        for ((fate, shift), number) in fates.into_iter().zip(1..) {
            match fate {
                0 => {}
                1 => places.extend([(number * 10, number), ((number + shift) * 10, number)]),
                2 => places.push(((number + shift) * 10 + 5, number)),
                _ => places.push((number * 10, number)),
            }
        }
        places.sort_unstable();
        places.into_iter().map(|(_, number)| number).collect()
    })
}

proptest! {
    #[test]
    fn the_counts_equal_those_of_a_reference_receiver(numbers in disturbed()) {
        let counts = counts_of(&numbers);
        let naive = ReferenceReceiver::of(&numbers);
        prop_assert_eq!(counts.received, naive.arrived.len() as u64);
        prop_assert_eq!(counts.bytes, counts.received * LENGTH as u64);
        prop_assert_eq!(counts.duplicates, naive.duplicates);
        prop_assert_eq!(counts.reordered, naive.reordered);
        prop_assert_eq!(counts.largest_extent, naive.largest_extent);
        prop_assert_eq!(counts.expected(), numbers.iter().copied().max().unwrap_or(0));
        prop_assert_eq!(counts.missing(), counts.expected() - counts.received);
    }

    #[test]
    fn trains_count_as_their_datagrams(numbers in disturbed(), cut in 1..20usize) {
        let mut stats = ReceiverStats::new(NumberWidth::Bits64);
        for train in numbers.chunks(cut) {
            let bytes: Vec<u8> = train.iter().flat_map(|number| datagram(*number)).collect();
            stats.arrive(&bytes, LENGTH, Nanos(1), 0);
        }
        let one_by_one = counts_of(&numbers);
        let in_trains = stats.counts;
        prop_assert_eq!(in_trains.received, one_by_one.received);
        prop_assert_eq!(in_trains.duplicates, one_by_one.duplicates);
        prop_assert_eq!(in_trains.reordered, one_by_one.reordered);
    }

    #[test]
    fn any_numbers_give_plausible_counts(numbers: Vec<u64>, near in proptest::collection::vec(u64::MAX - 3.., 0..10)) {
        let mut stats = ReceiverStats::new(NumberWidth::Bits64);
        for number in numbers.iter().chain(&near) {
            stats.arrive(&datagram(*number), LENGTH, Nanos(1), 0);
        }
        stats.close(None, None);
        let counts = stats.counts;
        let all = counts.received + counts.duplicates + counts.garbage;
        prop_assert!(all <= (numbers.len() + near.len()) as u64);
        prop_assert!(counts.received <= counts.expected());
    }

    #[test]
    fn any_bytes_are_survived(bytes: Vec<u8>, segment: usize, wide: bool) {
        let counter = if wide { NumberWidth::Bits64 } else { NumberWidth::Bits32 };
        ReceiverStats::new(counter).arrive(&bytes, segment, Nanos(1), 0);
    }
}

#[test]
fn duplicates_never_hide_loss() {
    let counts = counts_of(&[1, 2, 2, 2, 5, 5]);
    assert_eq!(counts.missing(), 2);
    assert_eq!(counts.duplicates, 3);
    assert_eq!(counts.reordered, 0);
}

#[test]
fn a_single_number_far_ahead_is_garbage() {
    let counts = counts_of(&[1, 2, u64::MAX, 3, 1 << 60, 4]);
    assert_eq!(counts.highest, 4);
    assert_eq!(counts.garbage, 2);
    assert_eq!(counts.missing(), 0);
}

#[test]
fn an_outage_longer_than_the_window_is_loss() {
    let resumed = 5 * WINDOW;
    let counts = counts_of(&[1, 2, resumed, resumed + 1, resumed + 2]);
    assert_eq!((counts.received, counts.garbage), (5, 0));
    assert_eq!(counts.missing(), resumed - 3);
    assert_eq!(counts.bytes, 5 * LENGTH as u64);
}

#[test]
fn datagrams_behind_the_window_stay_lost() {
    let mut numbers: Vec<u64> = vec![1, 3];
    numbers.extend((1..=8).map(|step| step * WINDOW / 4));
    numbers.push(2);
    let counts = counts_of(&numbers);
    assert_eq!((counts.received, counts.duplicates), (10, 0));
}

#[test]
fn numbers_of_32_bits_continue_after_a_wrap() {
    let mut stats = ReceiverStats::new(NumberWidth::Bits32);
    stats.seen.insert(u64::from(u32::MAX) - 1);
    stats.counts.highest = u64::from(u32::MAX) - 1;
    stats.omit();
    for number in [u64::from(u32::MAX), 0, 2, 1] {
        let mut datagram = vec![0; LENGTH];
        let sent = Nanos(0);
        NumberWidth::Bits32.write(DatagramHeader { sent, number }, &mut datagram);
        stats.arrive(&datagram, LENGTH, Nanos(1), 0);
    }
    let counts = stats.counts;
    assert_eq!(counts.received, 4);
    assert_eq!(counts.missing(), 0);
    assert_eq!(counts.reordered, 1);
}

#[test]
fn omitted_datagrams_do_not_count_even_if_they_arrive_later() {
    let mut stats = ReceiverStats::new(NumberWidth::Bits64);
    let arrive = |stats: &mut ReceiverStats, numbers: &[u64]| {
        for number in numbers {
            stats.arrive(&datagram(*number), LENGTH, Nanos(1), 0);
        }
    };
    arrive(&mut stats, &[1, 2, 5]);
    stats.omit();
    arrive(&mut stats, &[4, 6, 8]);
    let expected = OmittedCounts {
        datagrams: 5,
        missing: 2,
    };
    assert_eq!(stats.omitted, expected);
    let counts = stats.counts;
    assert_eq!(counts.received, 2);
    assert_eq!(counts.missing(), 1);
    assert_eq!(counts.expected(), 3);
    assert_eq!(counts.reordered, 0);
}

#[test]
fn a_gap_at_a_socket_drop_is_this_host_s() {
    let mut stats = ReceiverStats::new(NumberWidth::Bits64);
    let train = |numbers: std::ops::Range<u64>| numbers.flat_map(datagram).collect::<Vec<u8>>();
    stats.arrive(&train(1..46), LENGTH, Nanos(1), 0);
    stats.arrive(&train(91..136), LENGTH, Nanos(2), 1);
    stats.arrive(&train(140..150), LENGTH, Nanos(3), 1);
    let counts = stats.counts;
    assert_eq!((counts.drops, counts.host_dropped), (1, 45));
    assert_eq!(counts.missing(), 45 + 4);
}

#[test]
fn a_wrong_checksum_is_the_network_s_loss_and_no_drop_of_this_host() {
    let after = |least, most| {
        let mut stats = ReceiverStats::new(NumberWidth::Bits64);
        for (number, dropped) in [(1, 0), (3, 1), (5, 2), (7, 3), (9, 4)] {
            stats.arrive(&datagram(number), LENGTH, Nanos(number), dropped);
        }
        assert_eq!(stats.counts.host_dropped, 4);
        stats.separate_checksum_errors(stats.dropped(), FullDrops { least, most });
        let ReceiverCounts {
            drops,
            host_dropped,
            unsure,
            ..
        } = stats.counts;
        assert_eq!(stats.counts.missing(), 4);
        (drops, host_dropped, unsure)
    };
    // In the three cases, nothing found the socket full; everything did; one certainly did, and three may have had a
    // wrong checksum.
    assert_eq!(after(0, 0), (0, 0, 0));
    assert_eq!(after(4, 4), (4, 4, 0));
    assert_eq!(after(1, 4), (1, 1, 3));
}

#[test]
fn a_missing_tail_is_lost_and_may_be_this_host_s() {
    let mut stats = ReceiverStats::new(NumberWidth::Bits64);
    stats.arrive(&datagram(1), LENGTH, Nanos(1), 0);
    let mut other = ReceiverStats::new(NumberWidth::Bits64);
    other.arrive(&datagram(1), LENGTH, Nanos(1), 0);
    stats.close(Some(10), Some(0));
    other.close(Some(10), Some(1));
    assert_eq!((stats.counts.missing(), stats.counts.host_dropped), (9, 0));
    assert_eq!((other.counts.missing(), other.counts.host_dropped), (9, 9));
}

#[test]
fn the_jitter_is_that_of_the_rfc_with_one_step_per_train() {
    let mut stats = ReceiverStats::new(NumberWidth::Bits64);
    let sends = [0, 1_000_000, 2_000_000, 3_000_000];
    let transits = [500_000, 500_000, 660_000, 580_000];
    let mut jitter = 0.0;
    for ((sent, transit), number) in sends.into_iter().zip(transits).zip(0..) {
        let train = [
            stamped(2 * number + 1, Nanos(sent)),
            stamped(2 * number + 2, Nanos(sent)),
        ];
        stats.arrive(&train.concat(), LENGTH, Nanos(sent + transit), 0);
    }
    for change in [0.0, 160_000.0, 80_000.0] {
        jitter += (change - jitter) / 16.0;
    }
    assert!((stats.counts.jitter_ns - jitter).abs() < 1e-6);
}
