//! Hops in a row, arrivals out of order and TOFFEE's shared server, compared with closed forms.

use crate::drive::{
    Arrival, Hop, HopDirection, delay, drain, drive, dues, hop, link, loss, packet, rate, stream,
};
use farwire_model::{
    Bytes, DropCause, Factor, Link, LinkConfig, Nanos, Outcome, Probability, QueueLimit, Side,
    Toffee,
};

/// The frame of the ping in The TOFFEE Project, "TOFFEE-Mocha test cases, Raspberry Pi", 2016, which has 1,200 bytes of
/// data.
const PING: Bytes = Bytes(1_242);

fn toffee_hop(delay: &str, dynamic: Option<f64>, queue: u32) -> Hop {
    let toffee = Toffee {
        delay: delay.parse().unwrap(),
        dynamic: dynamic.map(|k| Factor::new(k).unwrap()),
        queue: QueueLimit::Packets(queue).into(),
    };
    Hop {
        name: "box".into(),
        toffee: Some((toffee, Probability::ZERO)),
        ..Hop::default()
    }
}

fn toffee(delay: &str, dynamic: Option<f64>) -> LinkConfig {
    link(vec![toffee_hop(delay, dynamic, 1_000)])
}

/// Returns when a frame of `len` bytes that enters an idle link at `at` leaves it.
fn crossing(link: &mut Link, at: Nanos, side: Side, len: Bytes) -> Nanos {
    link.offer(at, side, packet(0, len));
    match drain(link, Nanos::MAX)[..] {
        [Outcome::Deliver { due, .. }] => due,
        ref other => panic!("one delivery expected, not {other:?}"),
    }
}

/// Returns the time that the link adds to a ping that is answered immediately.
fn round_trip(config: &LinkConfig) -> Nanos {
    let mut link = Link::new(config).unwrap();
    let there = crossing(&mut link, Nanos(0), Side::A, PING);
    crossing(&mut link, there, Side::B, PING)
}

#[test]
fn a_link_without_conditions_passes_packets_immediately() {
    assert_eq!(
        round_trip(&link(vec![Hop {
            name: "box".into(),
            ..Hop::default()
        }])),
        Nanos::ZERO
    );
}

#[test]
fn toffee_adds_the_published_delay_to_a_ping() {
    assert_eq!(round_trip(&toffee("1ms", None)), Nanos::from_micros(2_000));
    assert_eq!(
        round_trip(&toffee("1.5ms", None)),
        Nanos::from_micros(3_000)
    );
    assert_eq!(
        round_trip(&toffee("0ms", Some(1.0))),
        Nanos::from_micros(2_484)
    );
    assert_eq!(
        round_trip(&toffee("0ms", Some(2.0))),
        Nanos::from_micros(1_242)
    );
}

#[test]
fn toffee_serves_both_directions_with_one_server() {
    let mut link = Link::new(&toffee("1ms", None)).unwrap();
    link.offer(Nanos(0), Side::A, packet(0, PING));
    link.offer(Nanos(0), Side::B, packet(1, PING));
    link.offer(Nanos(1), Side::A, packet(2, PING));
    let dues = dues(&drain(&mut link, Nanos::MAX));
    let millis = |n| Some(Nanos::from_millis(n));
    assert_eq!(dues, [millis(1), millis(2), millis(3)]);
}

#[test]
fn a_download_through_one_millisecond_gets_a_segment_and_half_an_ack_per_1500_us() {
    let mut link = Link::new(&toffee("1ms", None)).unwrap();
    let mut sent = 0;
    let mut send = |link: &mut Link, at| {
        link.offer(at, Side::B, packet(sent, Bytes(1_514)));
        sent += 1;
    };
    for _ in 0..20 {
        send(&mut link, Nanos::ZERO);
    }
    let (mut received, mut now) = (0, Nanos::ZERO);
    const ACK: usize = usize::MAX;
    while received < 2_000 {
        now = now.max(link.next_at().unwrap());
        let Some(Outcome::Deliver { id, due, .. }) = link.poll(now) else {
            continue;
        };
        if id == packet(ACK, PING).id {
            send(&mut link, due);
            send(&mut link, due);
        } else {
            received += 1;
            if received % 2 == 0 {
                link.offer(due, Side::A, packet(ACK, Bytes(66)));
            }
        }
    }
    // The exchange takes this time except for its position in its cycle of three, which matters by at most the window's
    // acks.
    let exact = Nanos::from_micros(2_000 * 1_500);
    assert!(exact - now <= Nanos::from_millis(10), "{now}");
    assert!(now <= exact, "{now}");
}

#[test]
fn toffees_queue_is_shared_by_both_directions() {
    let config = link(vec![toffee_hop("1ms", None, 2)]);
    let mut link = Link::new(&config).unwrap();
    for (id, side) in [Side::A, Side::B, Side::A, Side::B].into_iter().enumerate() {
        link.offer(Nanos(0), side, packet(id, PING));
    }
    assert_eq!(drain(&mut link, Nanos::MAX).len(), 4);
    assert_eq!(link.counters(Side::A).delivered, 2);
    assert_eq!(link.counters(Side::B).dropped(DropCause::QueueFull), 1);
}

#[test]
fn hops_in_series_add() {
    let up = HopDirection {
        delay: Nanos::from_millis(3),
        ..rate("8mbit", "10pkt")
    };
    let config = link(vec![
        hop("wire", up, delay("2ms")),
        hop("box", delay("5ms"), rate("80mbit", "10pkt")),
        hop("far", rate("8mbit", "10pkt"), delay("100us")),
    ]);
    let mut link = Link::new(&config).unwrap();
    let len = Bytes(1_000);
    let up = crossing(&mut link, Nanos(0), Side::A, len);
    assert_eq!(up, Nanos::from_millis(1 + 3 + 5 + 1));
    let down = crossing(&mut link, up, Side::B, len) - up;
    assert_eq!(down, Nanos::from_micros(100 + 100 + 2_000));
}

#[test]
fn a_packet_still_on_the_wire_does_not_keep_a_shared_server_busy() {
    let config = link(vec![
        hop("wire", delay("10ms"), HopDirection::default()),
        toffee_hop("1ms", None, 1_000),
    ]);
    let mut link = Link::new(&config).unwrap();
    link.offer(Nanos(0), Side::A, packet(0, PING));
    link.offer(Nanos::from_millis(5), Side::B, packet(1, PING));
    assert_eq!(
        dues(&drain(&mut link, Nanos::MAX)),
        [Some(Nanos::from_millis(11)), Some(Nanos::from_millis(6))]
    );
}

#[test]
fn a_packet_going_down_meets_the_hops_in_reverse() {
    let config = link(vec![
        hop("wire", loss("100%"), loss("100%")),
        hop("box", rate("8mbit", "10pkt"), rate("8mbit", "10pkt")),
    ]);
    let mut link = Link::new(&config).unwrap();
    link.offer(Nanos(0), Side::A, packet(0, PING));
    link.offer(Nanos(0), Side::B, packet(1, PING));
    drain(&mut link, Nanos::MAX);
    let came: Vec<_> = link
        .stages()
        .map(|stage| (stage.name, stage.packets))
        .collect();
    assert_eq!(
        came,
        [
            ("wire.up.loss", 1),
            ("box.up.rate", 0),
            ("box.down.rate", 1),
            ("wire.down.loss", 1)
        ]
    );
}

#[test]
fn stages_report_drops_and_the_longest_queue() {
    let up = HopDirection {
        loss: "100%".parse().unwrap(),
        ..rate("8mbit", "4pkt")
    };
    let mut link = Link::new(&link(vec![hop("box", up, HopDirection::default())])).unwrap();
    for id in 0..10 {
        link.offer(Nanos(0), Side::A, packet(id, PING));
    }
    drain(&mut link, Nanos::MAX);
    let reports: Vec<_> = link.stages().collect();
    assert_eq!((reports[0].name, reports[0].dropped), ("box.up.rate", 5));
    assert_eq!(reports[0].longest_queue, 4);
    assert_eq!((reports[1].name, reports[1].dropped), ("box.up.loss", 5));
}

#[test]
fn delay_and_loss_are_decided_at_the_offer_with_the_due_time_ahead() {
    let mut link = Link::new(&link(vec![hop("box", delay("20ms"), delay("20ms"))])).unwrap();
    link.offer(Nanos(5), Side::A, packet(0, PING));
    let due = Nanos::from_millis(20) + Nanos(5);
    let outcome = link.poll(Nanos(5));
    assert_eq!(
        outcome,
        Some(Outcome::Deliver {
            id: packet(0, PING).id,
            copy: 0,
            due,
            mark: false,
            edit: None,
        })
    );
    assert_eq!(link.next_at(), None);
}

#[test]
fn a_short_packet_behind_a_long_one_is_due_no_earlier() {
    let up = HopDirection {
        size_delay: Factor::new(1.0).ok(),
        ..HopDirection::default()
    };
    let config = link(vec![hop("box", up, HopDirection::default())]);
    let frames = [9_000, 42].map(|len| Arrival {
        at: Nanos::ZERO,
        side: Side::A,
        len: Bytes(len),
    });
    let dues = dues(&drive(&config, &frames, &[]));
    assert_eq!(dues, [Some(Nanos::from_micros(9_000)); 2]);
}

#[test]
fn an_arrival_older_than_its_directions_last_is_clamped_and_counted() {
    let mut link = Link::new(&link(vec![hop("box", delay("1ms"), delay("1ms"))])).unwrap();
    link.offer(Nanos(1_000), Side::A, packet(0, PING));
    link.offer(Nanos(900), Side::A, packet(1, PING));
    link.offer(Nanos(900), Side::B, packet(2, PING));
    let late = Some(Nanos(1_001_000));
    assert_eq!(
        dues(&drain(&mut link, Nanos::MAX)),
        [late, late, Some(Nanos(1_000_900))]
    );
    assert_eq!(link.counters(Side::A).late, 1);
    assert_eq!(link.counters(Side::B).late, 0);
}

#[test]
fn an_arrival_is_late_for_the_other_directions_events_only_if_they_share_a_stage() {
    let mut shared = Link::new(&toffee("1ms", None)).unwrap();
    shared.offer(Nanos(1_000), Side::A, packet(0, PING));
    shared.offer(Nanos(900), Side::B, packet(1, PING));
    assert_eq!(shared.counters(Side::B).late, 1);
}

#[test]
fn an_arrival_older_than_a_service_already_ended_is_served_after_it() {
    let mut link = Link::new(&toffee("1ms", None)).unwrap();
    link.offer(Nanos(0), Side::A, packet(0, PING));
    assert_eq!(drain(&mut link, Nanos::from_millis(1)).len(), 1);
    let due = crossing(&mut link, Nanos(500_000), Side::B, PING);
    assert_eq!(due, Nanos::from_millis(2));
    assert_eq!(link.counters(Side::B).late, 1);
}

#[test]
fn a_wake_up_that_decides_nothing_makes_no_arrival_late() {
    let mut link = Link::new(&link(vec![hop("box", rate("8mbit", "10pkt"), loss("0%"))])).unwrap();
    link.offer(Nanos(0), Side::A, packet(0, Bytes(1_000)));
    assert_eq!(link.poll(Nanos(999_999)), None);
    link.offer(Nanos(500), Side::A, packet(1, Bytes(1_000)));
    assert_eq!(link.counters(Side::A).late, 0);
    assert_eq!(
        dues(&drain(&mut link, Nanos::MAX)),
        [Some(Nanos::from_millis(1)), Some(Nanos::from_millis(2))]
    );
}

#[test]
fn a_stream_below_the_rate_never_waits() {
    let config = link(vec![hop(
        "box",
        rate("8mbit", "1pkt"),
        HopDirection::default(),
    )]);
    let traffic = stream(Side::A, 100, Nanos::from_millis(2), 1_000);
    for (arrival, due) in traffic.iter().zip(dues(&drive(&config, &traffic, &[]))) {
        assert_eq!(due, Some(arrival.at + Nanos::from_millis(1)));
    }
}
