//! The server and its queue, compared with what the arrivals and departures imply.

use crate::drive::{
    Arrival, HopDirection, any_queue, any_rate, any_traffic, drive, dues, hop, link, packet, rate,
    stream,
};
use farwire_model::{
    BitsPerSec, Bytes, Framing, Link, LinkConfig, Nanos, QueueLimit, Rate, Side, Waiting,
};
use proptest::prelude::*;

/// Creates a link with a single server in the up direction.
fn one_server(rate: Rate) -> LinkConfig {
    let up = HopDirection {
        rate: Some(rate),
        ..HopDirection::default()
    };
    link(vec![hop("box", up, HopDirection::default())])
}

fn up_only(mut traffic: Vec<Arrival>) -> Vec<Arrival> {
    traffic.retain(|arrival| arrival.side == Side::A);
    traffic
}

/// Returns whether these packets may wait, without the packet in service.
fn fits(rate: &Rate, packets: &[Bytes]) -> bool {
    let counted = |bytes: &Bytes| rate.framing.bytes_counted(*bytes).0;
    let time = || {
        let all = Bytes(packets.iter().map(counted).sum());
        rate.rate.unwrap().time_for(all)
    };
    match rate.queue.limit {
        QueueLimit::Packets(limit) => packets.len() <= limit as usize,
        QueueLimit::Bytes(limit) => packets.iter().map(|bytes| bytes.0).sum::<u64>() <= limit.0,
        QueueLimit::Time(limit) => time() <= limit,
        QueueLimit::TimeOrPackets(limit, count) => {
            packets.len() <= count as usize || time() <= limit
        }
    }
}

/// A burst of 30 full packets and one of 300 small ones into the default queue of slow lines: 100 ms and at least 20
/// packets. The first packet of a burst is served, and 20 wait; at 10 Mbit/s, 100 ms hold 82 full packets.
#[test]
fn the_larger_of_a_time_and_a_number_of_packets_may_wait() {
    let limit = QueueLimit::TimeOrPackets(Nanos::from_millis(100), 20);
    let passed = |bits, len: u64, count: usize| {
        let rate = Rate {
            rate: BitsPerSec::new(bits).ok(),
            fluctuation: None,
            burst: None,
            framing: Framing::L2,
            queue: limit.into(),
        };
        let packet = Arrival {
            at: Nanos::ZERO,
            side: Side::A,
            len: Bytes(len),
        };
        let dues = dues(&drive(&one_server(rate), &vec![packet; count], &[]));
        let mut dues: Vec<u64> = dues.into_iter().flatten().map(|due| due.0).collect();
        let last = dues.pop().unwrap();
        (dues.len() + 1, last)
    };
    const S: u64 = 1_000_000_000;
    // A full packet takes 40.4 s at 300 bit/s, and 1.26 s at 9,600 bit/s.
    let time = |bits: u64, packets: u64| (packets * 1_514 * 8 * S).div_ceil(bits);
    assert_eq!(passed(300, 1_514, 30), (21, time(300, 21)));
    assert_eq!(passed(9_600, 1_514, 30), (21, time(9_600, 21)));
    assert_eq!(passed(10_000_000, 1_514, 100), (83, time(10_000_000, 83)));
    // 100 ms at 56 kbit/s are 700 bytes: 10 packets of 66 bytes, but 20 may wait; at 1 Mbit/s they are 189 packets.
    assert_eq!(passed(56_000, 66, 300).0, 21);
    assert_eq!(passed(1_000_000, 66, 300).0, 190);
}

/// At 3,000 packets per second, a queue of 10 ms holds 30 packets besides the one in service.
#[test]
fn a_rate_of_packets_serves_each_in_the_same_time() {
    let rate = Rate {
        rate: BitsPerSec::new(8 * 3_000).ok(),
        fluctuation: None,
        burst: None,
        framing: Framing::PACKETS,
        queue: QueueLimit::Time(Nanos::from_millis(10)).into(),
    };
    let packet = |number: u64| Arrival {
        at: Nanos::ZERO,
        side: Side::A,
        len: Bytes(60 + 14 * number),
    };
    let traffic: Vec<Arrival> = (0..100).map(packet).collect();
    let dues = dues(&drive(&one_server(rate), &traffic, &[]));
    let (passed, dropped) = dues.split_at(31);
    for (number, due) in (1..).zip(passed) {
        let third = (number * 1_000_000_000_u64).div_ceil(3_000);
        assert_eq!(*due, Some(Nanos(third)), "{number}");
    }
    assert!(dropped.iter().all(Option::is_none), "{dropped:?}");
}

/// At 1 Mbit/s, 1,000 bytes take 8 ms.
#[test]
fn a_backlog_has_the_waiting_packets_and_the_wait_of_an_arrival() {
    let rate = Rate {
        rate: BitsPerSec::new(1_000_000).ok(),
        fluctuation: None,
        burst: None,
        framing: Framing::L2,
        queue: QueueLimit::Packets(10).into(),
    };
    let mut link = Link::new(&one_server(rate)).unwrap();
    let idle = Waiting::default();
    assert_eq!(link.backlog(Nanos::ZERO, Side::A), Some(idle));
    for id in 0..3 {
        link.offer(Nanos::ZERO, Side::A, packet(id, Bytes(1_000)));
    }
    let waiting = Waiting {
        packets: 2,
        bytes: Bytes(2_000),
        delay: Nanos::from_millis(6 + 16),
    };
    assert_eq!(link.backlog(Nanos::from_millis(2), Side::A), Some(waiting));
    assert_eq!(link.backlog(Nanos::ZERO, Side::B), None);
}

proptest! {
    #[test]
    fn the_rate_is_never_exceeded_over_any_window(
        rate in any_rate(),
        traffic in any_traffic().prop_map(up_only),
    ) {
        let dues = dues(&drive(&one_server(rate), &traffic, &[]));
        let departures: Vec<(Nanos, u128)> = traffic
            .iter()
            .zip(dues)
            .filter_map(|(arrival, due)| {
                let bytes = rate.framing.bytes_counted(arrival.len).0;
                Some((due?, u128::from(bytes) * 8 * 1_000_000_000))
            })
            .collect();
        for (n, &(from, _)) in departures.iter().enumerate() {
            let mut work = 0;
            for &(until, bits) in &departures[n + 1..] {
                work += bits;
                // Departures are whole nanoseconds, and the start of the window is rounded up.
                let window = u128::from((until - from).0 + 1);
                prop_assert!(work <= window * u128::from(rate.rate.unwrap().get()));
            }
        }
    }

    #[test]
    fn a_busy_server_wastes_nothing(rate in any_rate(), lens in prop::collection::vec(42..9_018_u64, 1..100)) {
        let rate = Rate { queue: QueueLimit::Packets(100).into(), ..rate };
        let burst: Vec<_> = lens
            .iter()
            .map(|&len| Arrival { at: Nanos::ZERO, side: Side::A, len: Bytes(len) })
            .collect();
        let dues = dues(&drive(&one_server(rate), &burst, &[]));
        let bytes = lens.iter().map(|&len| rate.framing.bytes_counted(Bytes(len)).0).sum();
        prop_assert_eq!(dues.last().copied().flatten(), Some(rate.rate.unwrap().time_for(Bytes(bytes))));
    }

    #[test]
    fn the_queue_holds_exactly_its_limit(
        rate in any_rate(),
        queue in any_queue(),
        traffic in any_traffic().prop_map(up_only),
    ) {
        let rate = Rate { queue: queue.into(), ..rate };
        let dues = dues(&drive(&one_server(rate), &traffic, &[]));
        // The admitted packets, each with the start of its service.
        let mut admitted: Vec<(Nanos, Bytes)> = Vec::new();
        let mut free = Nanos::ZERO;
        for (arrival, due) in traffic.iter().zip(dues) {
            let busy = arrival.at < free;
            let mut queue: Vec<Bytes> = admitted
                .iter()
                .filter(|(start, _)| *start > arrival.at)
                .map(|(_, len)| *len)
                .collect();
            queue.push(arrival.len);
            let fits = !busy || fits(&rate, &queue);
            prop_assert_eq!(due.is_some(), fits, "{:?} before {:?}", queue, arrival);
            if let Some(due) = due {
                admitted.push((arrival.at.max(free), arrival.len));
                free = due;
            }
        }
    }
}

#[test]
fn packets_in_flight_do_not_fill_the_queue() {
    let mut up = rate("100mbit", "5pkt");
    up.delay = Nanos::from_secs(1);
    let config = link(vec![hop("box", up, HopDirection::default())]);
    // Packets come exactly at the rate, for as long as the delay lasts: 8,000 packets are in flight.
    let traffic = stream(Side::A, 8_000, Nanos::from_micros(125), 1_500);
    let dues = dues(&drive(&config, &traffic, &[]));
    assert!(dues.iter().all(Option::is_some));
}

#[test]
fn a_packet_that_leaves_makes_room_for_one_that_arrives_at_the_same_instant() {
    let config = link(vec![hop(
        "box",
        rate("8mbit", "1pkt"),
        HopDirection::default(),
    )]);
    let mut traffic = stream(Side::A, 100, Nanos::from_millis(1), 1_000);
    traffic.insert(0, traffic[0]);
    let dues = dues(&drive(&config, &traffic, &[]));
    assert!(dues.iter().all(Option::is_some));
}

#[test]
fn a_queue_is_full_when_its_limit_is_reached_in_each_unit() {
    // One packet of 1,000 bytes is in service, and there is room for exactly three more.
    for (exact, short) in [("3pkt", "2pkt"), ("3000b", "2999b"), ("3ms", "2999999ns")] {
        for (queue, served) in [(exact, 4), (short, 3)] {
            let config = link(vec![hop(
                "box",
                rate("8mbit", queue),
                HopDirection::default(),
            )]);
            let dues = dues(&drive(
                &config,
                &stream(Side::A, 5, Nanos::ZERO, 1_000),
                &[],
            ));
            assert_eq!(dues.iter().flatten().count(), served, "{queue}");
        }
    }
}

#[test]
fn rounding_credit_ends_with_the_busy_period() {
    let config = link(vec![hop(
        "box",
        rate("10gbit", "10pkt"),
        HopDirection::default(),
    )]);
    // Each takes 1,211.2 ns. The remainder of rounding up serves the next packet only while the server is busy.
    let apart = stream(Side::A, 2, Nanos(10_000), 1_514);
    let dues_apart = dues(&drive(&config, &apart, &[]));
    assert_eq!(dues_apart, [Some(Nanos(1_212)), Some(Nanos(11_212))]);
    let together = stream(Side::A, 2, Nanos::ZERO, 1_514);
    let dues_together = dues(&drive(&config, &together, &[]));
    assert_eq!(dues_together, [Some(Nanos(1_212)), Some(Nanos(2_423))]);
}

#[test]
fn a_queue_shorter_than_a_packet_lets_none_wait() {
    let config = link(vec![hop(
        "box",
        rate("1mbit", "10ms"),
        HopDirection::default(),
    )]);
    let traffic = stream(Side::A, 3, Nanos::ZERO, 1_514);
    let served: Vec<_> = dues(&drive(&config, &traffic, &[]));
    assert_eq!(served, [Some(Nanos(12_112_000)), None, None]);
}
