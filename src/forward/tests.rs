//! Tests of the forwarder between two ports in memory, in virtual time.

use std::io;
use std::path::Path;

use model::{
    BitsPerSec, CheckedPaths, Counters, Delay, DropCause, Effect, Framing, LinkConfig, Probability,
    QueueLimit, Rate, StageSpec,
};
use netio::{
    Frame, Gso, GsoFrame, GsoKind, MemoryPort, Missed, Offload, PartialChecksum, SendTimes, Sent,
    TxFrame,
};
use proptest::prelude::*;
use record::lateness::{self, LinkDepartures, Traffic};
use record::summary::StallSummary;
use record::{Figure, Metric, Statistic};

use super::departures::{Changes, ScheduledDeparture};
use super::held_frames::FrameOrigin;
use super::*;

const SEGMENT: usize = 100;
const HEADERS: usize = 14 + 20 + 20;

/// Returns a TCP frame with `segments` segments. Each carries its number, counted from `first`.
fn frame(arrival: Nanos, first: u32, segments: u32) -> Frame {
    let len = HEADERS + segments as usize * SEGMENT;
    let mut bytes = vec![0; len];
    bytes[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    bytes[16..18].copy_from_slice(&u16::try_from(len - 14).unwrap().to_be_bytes());
    bytes[23] = 6;
    bytes[46] = 0x50;
    for (n, segment) in (first..).zip(bytes[HEADERS..].chunks_mut(SEGMENT)) {
        segment[..4].copy_from_slice(&n.to_be_bytes());
    }
    let gso = (segments > 1).then(|| Gso {
        kind: GsoKind::TcpV4,
        size: u16::try_from(SEGMENT).unwrap(),
        ecn: false,
    });
    let checksum = Some(PartialChecksum {
        start: 34,
        offset: 16,
    });
    Frame::new(arrival, Offload { gso, checksum }, None, &bytes)
}

/// Returns the numbers of the sent segments.
fn numbers(sent: &[Sent]) -> Vec<u32> {
    sent.iter()
        .flat_map(|frame| frame.bytes[HEADERS..].chunks(SEGMENT))
        .map(|segment| u32::from_be_bytes(segment[..4].try_into().unwrap()))
        .collect()
}

/// The conditions of each direction of the link.
#[derive(Clone, Copy, Default)]
struct Conditions {
    rate: Option<Rate>,
    delay: Nanos,
}

fn link(conditions: Conditions) -> Link {
    Link::new(&config(conditions)).unwrap()
}

fn config(conditions: Conditions) -> LinkConfig {
    let stages = |way: &str| {
        let delay = Effect::Delay(Delay {
            time: conditions.delay,
            ..Delay::default()
        });
        let rate = conditions.rate.map(Effect::Rate);
        let delay = (conditions.delay > Nanos::ZERO).then_some(delay);
        let named = [("rate", rate), ("delay", delay)]
            .into_iter()
            .filter_map(|(kind, effect)| {
                Some(StageSpec::new(format!("box.{way}.{kind}"), effect?))
            });
        named.collect()
    };
    LinkConfig::new(3, stages("up"), stages("down"))
}

type InMemory = Forwarder<MemoryPort>;

fn forwarder(conditions: Conditions, gso: bool, memory: usize) -> InMemory {
    with_link(link(conditions), gso, memory)
}

/// Creates a forwarder with one link between two ports.
fn one_link<P: PortSet>(
    ports: [P; 2],
    link: Link,
    memory: usize,
    log: Option<PacketLogWriter>,
) -> Forwarder<P> {
    let mut forwarder = Forwarder::new(ports.into(), memory);
    let budget = LateBudget::DEFAULT;
    forwarder.add_link(PortId::SEPARATE_SETS, link, Rules::default(), budget, log);
    forwarder
}

fn with_link(link: Link, gso: bool, memory: usize) -> InMemory {
    let ports = [MemoryPort::new(gso), MemoryPort::new(gso)];
    one_link(ports, link, memory, None)
}

/// Creates a forwarder with links between two ports each, which follow each other.
fn with_links(links: u16, conditions: Conditions) -> InMemory {
    let ports = (0..2 * links).map(|_| MemoryPort::new(true));
    let mut forwarder = Forwarder::new(ports.collect(), 1 << 24);
    for number in 0..links {
        let ends = [0, 1].map(|side| PortId {
            set: 2 * number + side,
            port: 0,
        });
        let budget = LateBudget::DEFAULT;
        forwarder.add_link(ends, link(conditions), Rules::default(), budget, None);
    }
    forwarder
}

/// Creates a link whose upward direction has these `stages`, named by their numbers.
fn up(stages: &[Effect]) -> Link {
    let named = (0..).zip(stages);
    let stages =
        named.map(|(number, effect)| StageSpec::new(format!("box.up.{number}"), effect.clone()));
    Link::new(&LinkConfig::new(3, stages.collect(), Vec::new())).unwrap()
}

fn chance(share: f64) -> Probability {
    Probability::from_percent(100.0 * share).unwrap()
}

/// Returns segment `n` of [`frame`] as a separate packet with a complete checksum.
fn single(frame: &Frame, n: u32) -> Vec<u8> {
    let mut part = GsoFrame::of(frame)
        .unwrap()
        .part(frame, n..n + 1, &mut Spare::default());
    part.complete_checksum();
    [part.head.bytes(), &part.body].concat()
}

/// Returns the number of different bits of two slices with the same length.
fn bits_between(a: &[u8], b: &[u8]) -> u32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum()
}

fn add_up(counters: &Counters) -> bool {
    counters.packets + counters.copies
        == counters.delivered + counters.all_dropped() + counters.held()
}

fn rate(bits: u64) -> Option<Rate> {
    Some(Rate {
        fluctuation: None,
        burst: None,
        rate: BitsPerSec::new(bits).ok(),
        framing: Framing::L2,
        queue: QueueLimit::Packets(100_000).into(),
    })
}

/// Steps as a caller of the forwarder would, until no frame is left. Returns the frames that left
/// through port B.
fn run(forwarder: &mut InMemory, mut now: Nanos, lateness: u64) -> Vec<Sent> {
    loop {
        match forwarder.step(now, Nanos::ZERO) {
            NextStep::Now => {}
            NextStep::At(at) => now = at.max(now) + Nanos(lateness),
            NextStep::Arrival => return forwarder.shared.sets[1].sent(),
        }
    }
}

proptest! {
    #[test]
    fn every_segment_leaves_once_in_order_and_never_early(
        frames in prop::collection::vec((0u64..40_000, 1u32..44), 1..20),
        delay in 0u64..100_000,
        bits in prop::option::of(10_000_000u64..40_000_000_000),
        lateness in 0u64..30_000,
        gso: bool,
    ) {
        let conditions = Conditions { delay: Nanos(delay), rate: bits.and_then(rate) };
        let mut forwarder = forwarder(conditions, gso, 1 << 24);
        let (mut arrival, mut first, mut arrivals) = (Nanos(1), 0, Vec::new());
        for (gap, segments) in frames {
            arrival += Nanos(gap);
            forwarder.shared.sets[0].arrive(frame(arrival, first, segments));
            arrivals.extend((0..segments).map(|_| arrival));
            first += segments;
        }
        let left = run(&mut forwarder, arrival, lateness);
        prop_assert_eq!(numbers(&left), (0..first).collect::<Vec<_>>());
        for sent in &left {
            prop_assert!(gso || sent.gso.is_none());
            for n in numbers(std::slice::from_ref(sent)) {
                prop_assert!(sent.departure >= arrivals[n as usize] + Nanos(delay));
            }
        }
        let stats = forwarder.stats(0);
        prop_assert_eq!(stats.departure_error().count, u64::from(first));
        prop_assert_eq!(stats.sent[0], u64::from(first));
    }
}

#[test]
fn frames_taken_in_late_meet_the_queue_of_their_arrival_time() {
    let conditions = Conditions {
        rate: Some(Rate {
            queue: QueueLimit::Packets(5).into(),
            ..rate(10_000_000).unwrap()
        }),
        ..Conditions::default()
    };
    // Single packets arrive every 10 us: ten times the rate of the link.
    let burst = |step: &mut dyn FnMut(&mut InMemory, Nanos)| {
        let mut forwarder = forwarder(conditions, true, 1 << 24);
        for n in 0..300 {
            let at = Nanos(u64::from(n) * 10_000);
            forwarder.shared.sets[0].arrive(frame(at, n, 1));
            step(&mut forwarder, at);
        }
        run(&mut forwarder, Nanos(3_000_000), 0);
        let stats = forwarder.stats(0);
        (stats.sent[0], stats.counters(Side::A))
    };
    let on_time = burst(&mut |forwarder, at| {
        forwarder.step(at, Nanos::ZERO);
    });
    let late = burst(&mut |_, _| {});
    assert_eq!(on_time, late);
    assert_eq!(late.1.late, 0);
}

#[test]
fn a_gso_frame_under_pure_delay_leaves_whole() {
    let conditions = Conditions {
        delay: Nanos(5_000),
        ..Conditions::default()
    };
    let mut forwarder = forwarder(conditions, true, 1 << 20);
    forwarder.shared.sets[0].arrive(frame(Nanos(0), 0, 40));
    let left = run(&mut forwarder, Nanos(0), 0);
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].departure, Nanos(5_000));
}

#[test]
fn segments_that_are_due_far_apart_leave_alone() {
    let conditions = Conditions {
        rate: rate(10_000_000),
        ..Conditions::default()
    };
    let mut forwarder = forwarder(conditions, true, 1 << 20);
    forwarder.shared.sets[0].arrive(frame(Nanos(0), 0, 8));
    let left = run(&mut forwarder, Nanos(0), 0);
    assert!(left.iter().all(|sent| sent.gso.is_none()));
    assert_eq!(left.len(), 8);
}

#[test]
fn segments_that_are_due_close_together_leave_together_when_the_last_is_due() {
    let conditions = Conditions {
        rate: rate(10_000_000_000),
        ..Conditions::default()
    };
    let mut forwarder = forwarder(conditions, true, 1 << 20);
    // 154 bytes at 10 Gb/s take 123.2 ns, and 40 of them take 4.9 us.
    forwarder.shared.sets[0].arrive(frame(Nanos(0), 0, 40));
    let left = run(&mut forwarder, Nanos(0), 0);
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].departure, Nanos(4_928));
}

#[test]
fn frames_beyond_the_memory_limit_are_lost_with_that_cause() {
    let conditions = Conditions {
        delay: Nanos(5_000),
        ..Conditions::default()
    };
    // The limit allows a chunk of the arena and the bookkeeping of one frame.
    const LIMIT: usize = (64 << 10) + 6_000;
    let mut forwarder = forwarder(conditions, true, LIMIT);
    for _ in 0..3 {
        forwarder.shared.sets[0].arrive(frame(Nanos(0), 0, 40));
    }
    let left = run(&mut forwarder, Nanos(0), 0);
    let stats = forwarder.stats(0);
    assert_eq!(left.len(), 1);
    assert_eq!(stats.lost(Side::A, EmulatorLoss::Memory), 80);
    assert!(stats.peak_bytes <= LIMIT);
}

#[test]
fn possible_copies_of_a_packet_count_towards_the_memory_limit() {
    let twice = Effect::Duplicate(chance(1.0).into());
    let delay = Effect::Delay(Delay {
        time: Nanos(5_000),
        ..Delay::default()
    });
    // The limit allows a chunk of the arena and the bookkeeping of two frames, each of whose 40
    // packets become 160.
    const LIMIT: usize = (64 << 10) + 2 * (160 + 160 * 128);
    let link = up(&[delay, twice.clone(), twice]);
    assert_eq!(link.most_copies(), 4);
    let mut forwarder = with_link(link, true, LIMIT);
    for n in 0..3 {
        forwarder.shared.sets[0].arrive(frame(Nanos(n), 0, 40));
    }
    let left = run(&mut forwarder, Nanos(0), 0);
    let stats = forwarder.stats(0);
    assert_eq!(numbers(&left).len(), 2 * 160);
    assert_eq!(stats.lost(Side::A, EmulatorLoss::Memory), 40);
    assert_eq!(stats.peak_bytes, LIMIT);
    assert!(forwarder.shared.held.is_empty());
}

#[test]
fn every_copy_leaves_with_the_bytes_of_its_packet_and_outside_trains() {
    let mut forwarder = with_link(up(&[Effect::Duplicate(chance(1.0).into())]), true, 1 << 20);
    forwarder.shared.sets[0].arrive(frame(Nanos(0), 0, 40));
    let left = run(&mut forwarder, Nanos(0), 0);
    let mut found = numbers(&left);
    found.sort_unstable();
    let twice: Vec<u32> = (0..40).flat_map(|n| [n, n]).collect();
    assert_eq!(found, twice);
    for n in 0..40 {
        let of_n: Vec<_> = left
            .iter()
            .filter(|sent| numbers(std::slice::from_ref(sent)) == [n])
            .collect();
        let [packet, copy] = of_n[..] else {
            panic!("{n} left {} times alone", of_n.len())
        };
        assert_eq!(packet, copy);
    }
    let stats = forwarder.stats(0);
    assert_eq!((stats.counters(Side::A).copies, stats.sent[0]), (40, 80));
    assert!(forwarder.shared.held.is_empty());
}

#[test]
fn a_copy_leaves_even_if_its_packet_is_lost() {
    let stages = [
        Effect::Duplicate(chance(0.5).into()),
        Effect::Loss(chance(0.5).into()),
        Effect::Delay(Delay::default()),
    ];
    let mut forwarder = with_link(up(&stages), true, 1 << 20);
    for n in 0..50 {
        forwarder.shared.sets[0].arrive(frame(Nanos(u64::from(n)), n * 20, 20));
    }
    let left = numbers(&run(&mut forwarder, Nanos(50), 0));
    let counters = forwarder.stats(0).counters(Side::A);
    assert_eq!(counters.delivered, left.len() as u64);
    assert_eq!(counters.packets, 1_000);
    assert!(counters.copies > 400, "{counters:?}");
    assert!(counters.all_dropped() > 600, "{counters:?}");
    assert!(add_up(&counters) && counters.held() == 0, "{counters:?}");
    assert!(forwarder.shared.held.is_empty());
}

#[test]
fn a_marked_segment_leaves_alone_with_its_checksums_complete_and_the_others_in_trains() {
    let mut forwarder = forwarder(Conditions::default(), true, 1 << 20);
    let train = frame(Nanos(0), 0, 40);
    let gso = GsoFrame::of(&train).unwrap();
    let mut expected = single(&train, 7);
    let origin = FrameOrigin {
        set: 0,
        side: Side::A,
        flow: 0,
        class: 0,
    };
    let first = forwarder.shared.held.insert(origin, train, gso, 1);
    for segment in 0..40 {
        forwarder.runners[0].departures[1].push(ScheduledDeparture {
            due: Nanos(0),
            id: model::PacketId(first.0 + segment),
            changes: Changes::new(0, segment == 7, None),
        });
    }
    forwarder.agenda.set(0, Some(Nanos(0)));
    let left = run(&mut forwarder, Nanos(0), 0);
    assert_eq!(numbers(&left), (0..40).collect::<Vec<_>>());
    let [before, marked, after] = &left[..] else {
        panic!("{} frames", left.len())
    };
    assert!(before.gso.is_some() && marked.gso.is_none() && after.gso.is_some());
    let sum = u16::from_be_bytes([expected[24], expected[25]]);
    expected[15] |= 3;
    // The TOS word grew by 3, so the one's complement checksum shrinks by 3.
    expected[24..26].copy_from_slice(&(sum - 3).to_be_bytes());
    assert_eq!(marked.bytes, expected);
}

#[test]
fn a_corrupted_segment_differs_in_one_bit_behind_its_ip_header_and_leaves_alone() {
    let mut forwarder = with_link(up(&[Effect::Corrupt(chance(1.0).into())]), true, 1 << 20);
    let train = frame(Nanos(0), 0, 40);
    let expected: Vec<_> = (0..40).map(|n| single(&train, n)).collect();
    forwarder.shared.sets[0].arrive(train);
    let left = run(&mut forwarder, Nanos(0), 0);
    assert_eq!(left.len(), 40);
    for (sent, expected) in left.iter().zip(expected) {
        assert_eq!(sent.gso, None);
        assert_eq!(sent.bytes[..34], expected[..34]);
        assert_eq!(bits_between(&sent.bytes, &expected), 1);
    }
    assert_eq!(forwarder.stats(0).counters(Side::A).edited, 40);
}

#[test]
fn the_sender_of_a_too_long_packet_gets_an_immediate_reply() {
    let effects = [
        Effect::Mtu(139),
        Effect::Delay(Delay {
            time: Nanos(5_000),
            ..Delay::default()
        }),
    ];
    let mut forwarder = with_link(up(&effects), true, 1 << 20);
    let mut bytes = frame(Nanos(0), 0, 3).bytes().to_vec();
    bytes[20] = 0x40;
    bytes[26..34].copy_from_slice(&[10, 77, 0, 1, 10, 77, 0, 2]);
    let offload = frame(Nanos(0), 0, 3).offload;
    let train = Frame::new(Nanos(0), offload, None, &bytes);
    let first = single(&train, 0);
    forwarder.shared.sets[0].arrive(train);
    // 40 bytes of headers and 100 bytes of payload exceed the MTU by one.
    assert!(run(&mut forwarder, Nanos(0), 0).is_empty());
    let replies = forwarder.shared.sets[0].sent();
    assert_eq!(replies.len(), 3);
    assert_eq!(replies[0].departure, Nanos(0));
    assert_eq!(
        Some(&replies[0].bytes),
        netio::too_big(&first, 139).as_ref()
    );
    let stats = forwarder.stats(0);
    assert_eq!(stats.counters(Side::A).dropped(DropCause::TooBig), 3);
    assert_eq!((stats.replies, stats.sent), ([3, 0], [0, 0]));
    assert!(forwarder.shared.held.is_empty());
}

#[test]
fn round_trips_are_measured_of_packets_neither_lost_nor_damaged() {
    let stages = [
        Effect::Indexes([1].into()),
        Effect::Delay(Delay {
            time: Nanos::from_millis(5),
            ..Delay::default()
        }),
    ];
    let pings = |effects: &[Effect], is_watched| {
        let mut forwarder = with_link(up(effects), true, 1 << 20);
        if is_watched {
            forwarder.measure_round_trips(0);
        }
        for number in 0..3 {
            let at = Nanos::from_millis(20 * u64::from(number));
            for (set, kind, at) in [(0, 8, at), (1, 0, at + Nanos::from_millis(7))] {
                let mut bytes = echo(at).bytes().to_vec();
                (bytes[34], bytes[41]) = (kind, number);
                forwarder.shared.sets[set].arrive(Frame::new(at, Offload::default(), None, &bytes));
                run(&mut forwarder, at, 0);
            }
        }
        let [a, b] = forwarder.round_trips(0);
        assert_eq!(b.count(), 0);
        (a.count(), a.sum)
    };
    // All three requests have a reply, including the one that was lost; only a request that has
    // crossed counts.
    assert_eq!(pings(&stages, true), (2, Nanos::from_millis(14)));
    assert_eq!(pings(&stages, false), (0, Nanos::ZERO));
    let damaged = Effect::Corrupt(chance(1.0).into());
    assert_eq!(pings(&[damaged], true), (0, Nanos::ZERO));
}

#[test]
fn a_change_applies_to_later_arrivals_only() {
    let delay = |micros| {
        Effect::Delay(Delay {
            time: Nanos::from_micros(micros),
            ..Delay::default()
        })
    };
    let mut forwarder = with_link(up(&[delay(100)]), true, 1 << 20);
    for n in 0..200 {
        forwarder.shared.sets[0].arrive(frame(Nanos(u64::from(n) * 1_000), n, 1));
    }
    let under = |effect| {
        let stages = vec![StageSpec::new("box.up.0", effect)];
        NewConditions {
            paths: CheckedPaths::new(LinkConfig::new(3, stages, Vec::new()).paths).unwrap(),
            ..NewConditions::default()
        }
    };
    // More frames wait than one step takes in, so the change applies before the remaining ones.
    let at = forwarder.change(0, Nanos(150_000), under(delay(300)));
    assert_eq!(at, Ok(Nanos(64_000)));
    let loss = under(Effect::Loss(chance(0.1).into()));
    let refused = forwarder.change(0, Nanos(150_000), loss);
    assert!(
        matches!(refused, Err(ConfigError::OtherKind(_))),
        "{refused:?}"
    );
    let left = run(&mut forwarder, Nanos(150_000), 0);
    let left = [left, run(&mut forwarder, Nanos(200_000), 0)].concat();
    assert_eq!(numbers(&left), (0..200).collect::<Vec<_>>());
    let due = |n: u64| {
        if n < 64 {
            n * 1_000 + 100_000
        } else {
            n * 1_000 + 300_000
        }
    };
    for (n, sent) in (0..).zip(&left) {
        assert_eq!(sent.departure, Nanos(due(n)).max(Nanos(150_000)), "{n}");
    }
    assert_eq!(forwarder.stats(0).counters(Side::A).late, 0);
}

#[test]
fn arrivals_may_wait_for_the_least_present_delay_of_all_links() {
    let delayed_by = |micros| Conditions {
        delay: Nanos::from_micros(micros),
        ..Conditions::default()
    };
    let mut forwarder = with_links(2, delayed_by(300));
    let longest = |forwarder: &InMemory| {
        let may_wait = |micros: &u64| forwarder.can_wait(Nanos(0), Nanos::from_micros(*micros));
        (0..5_000).take_while(may_wait).last()
    };
    assert_eq!(longest(&forwarder), Some(300));
    // One link at a time gets another delay, and no wait is longer than a millisecond.
    for (link, micros, expected) in [(0, 100, 100), (0, 4_000, 300), (1, 4_000, 1_000)] {
        let new = NewConditions {
            paths: CheckedPaths::new(config(delayed_by(micros)).paths).unwrap(),
            ..NewConditions::default()
        };
        forwarder.change(link, Nanos(0), new).unwrap();
        assert_eq!(longest(&forwarder), Some(expected));
    }
}

#[test]
fn a_stall_counts_for_every_link_and_the_packets_that_were_due_for_their_own() {
    let conditions = Conditions {
        delay: Nanos::from_millis(1),
        ..Conditions::default()
    };
    let mut forwarder = with_links(2, conditions);
    forwarder.shared.sets[0].arrive(frame(Nanos(0), 0, 1));
    forwarder.step(Nanos(0), Nanos::ZERO);
    forwarder.stalled(Stall {
        from: Nanos(500_000),
        to: Nanos(2_000_000),
    });
    forwarder.shared.sets[2].arrive(frame(Nanos(2_500_000), 0, 1));
    run(&mut forwarder, Nanos(2_500_000), 0);
    for (link, departures) in [(0, 1), (1, 0)] {
        let stats = forwarder.stats(link);
        assert_eq!(stats.sent[0], 1);
        let expected = StallSummary {
            count: 1,
            total_ns: 1_500_000,
            longest_ns: 1_500_000,
            departures,
        };
        assert_eq!(stats.stall_summary(), Some(expected));
    }
}

/// Begins a packet log in `file`.
fn log_in(file: &Path) -> PacketLogWriter {
    let log = packet_log::PacketLog::create(file, None).unwrap();
    log.begin().unwrap()
}

#[test]
fn a_train_has_a_row_for_each_segment_with_its_own_length_and_due_time() {
    let directory = tempfile::tempdir().unwrap();
    let due_times = [
        Effect::Mtu(1500),
        Effect::Rate(rate(1_000_000_000).unwrap()),
    ]
    .map(|effect| {
        let file = directory.path().join("log");
        let log = log_in(&file);
        let ports = [MemoryPort::new(true), MemoryPort::new(true)];
        let mut forwarder = one_link(ports, up(&[effect]), 1 << 20, Some(log));
        let whole = frame(Nanos(0), 0, 5);
        let cut = &whole.bytes()[..whole.bytes().len() - 1];
        let short = Frame::new(whole.arrival, whole.offload, None, cut);
        forwarder.shared.sets[0].arrive(short);
        assert!(!run(&mut forwarder, Nanos(0), 0).is_empty());
        assert_eq!(forwarder.finish(0).unwrap().lines, 5);
        let text = std::fs::read_to_string(&file).unwrap();
        let rows: Vec<Vec<&str>> = text
            .lines()
            .skip(1)
            .map(|row| row.split(',').collect())
            .collect();
        let column = |at: usize| rows.iter().map(|row| row[at]).collect::<Vec<_>>();
        assert_eq!(column(0), ["1", "2", "3", "4", "5"]);
        let [len, last] = [0, 1].map(|less| (HEADERS + SEGMENT - less).to_string());
        assert_eq!(column(2), [&*len, &*len, &*len, &*len, &*last]);
        let mut due = column(6);
        due.dedup();
        due.len()
    });
    assert_eq!(due_times, [1, 5]);
}

#[test]
fn the_last_lines_of_a_link_that_becomes_idle_do_not_wait_for_its_next_packet() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("log");
    let log = log_in(&file);
    let ports = [MemoryPort::new(true), MemoryPort::new(true)];
    let mut forwarder = one_link(ports, up(&[]), 1 << 20, Some(log));
    forwarder.shared.sets[0].arrive(frame(Nanos(0), 0, 1));
    let mut next = forwarder.step(Nanos(1_000), Nanos::ZERO);
    while matches!(next, NextStep::Now) {
        next = forwarder.step(Nanos(1_000), Nanos::ZERO);
    }
    assert_eq!(forwarder.shared.sets[1].sent().len(), 1);
    let NextStep::At(at) = next else {
        panic!("{next:?}");
    };
    assert!(at <= Nanos(201_000_000), "{at:?}");
    run(&mut forwarder, at, 0);
    let mut rows = 0;
    while rows == 0 {
        let text = std::fs::read_to_string(&file).unwrap();
        rows = text.lines().skip(1).count();
        std::thread::yield_now();
    }
    assert_eq!(rows, 1);
}

#[test]
fn the_log_ends_with_the_packets_on_their_way() {
    let stall = Effect::Rate(Rate {
        rate: None,
        ..rate(1_000).unwrap()
    });
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("log");
    let log = log_in(&file);
    let ports = [MemoryPort::new(true), MemoryPort::new(true)];
    let link = up(&[Effect::Duplicate(chance(1.0).into()), stall]);
    let mut forwarder = one_link(ports, link, 1 << 20, Some(log));
    forwarder.shared.sets[0].arrive(frame(Nanos(0), 0, 5));
    forwarder.shared.sets[1].arrive(frame(Nanos(0), 0, 1));
    assert!(run(&mut forwarder, Nanos(0), 0).is_empty());
    assert_eq!(forwarder.finish(0).unwrap().lines, 11);
    let text = std::fs::read_to_string(&file).unwrap();
    let count = |words: &str| text.lines().filter(|line| line.contains(words)).count();
    assert_eq!(count(",held_at_end,,"), 5);
    assert_eq!(count(",held_at_end,copy,"), 5);
    assert_eq!(count("down,"), 1);
    let counters = forwarder.stats(0).counters(Side::A);
    assert_eq!(counters.packets, 5);
    assert_eq!(counters.copies, 5);
    assert_eq!(counters.held(), 10);
}

proptest! {
    #[test]
    fn packets_and_copies_are_delivered_dropped_or_held_and_all_frames_are_released(
        frames in prop::collection::vec((0_u64..40_000, 1_u32..44), 1..20),
        shares in prop::array::uniform3(0.0..=1.0_f64),
        mtu in 100_u16..200,
        until in 0_u64..1_000_000,
        gso: bool,
    ) {
        let [duplicate, corrupt, loss] = shares.map(chance);
        let stages = [
            Effect::Duplicate(duplicate.into()),
            Effect::Corrupt(corrupt.into()),
            Effect::Rate(Rate { queue: QueueLimit::Packets(50).into(), ..rate(1_000_000_000).unwrap() }),
            Effect::Loss(loss.into()),
            Effect::Mtu(mtu),
            Effect::Delay(Delay { time: Nanos(100_000), ..Delay::default() }),
        ];
        let mut forwarder = with_link(up(&stages), gso, 1 << 24);
        let (mut arrival, mut first) = (Nanos(1), 0);
        for (gap, segments) in frames {
            arrival += Nanos(gap);
            forwarder.shared.sets[0].arrive(frame(arrival, first, segments));
            first += segments;
        }
        while forwarder.step(Nanos(until), Nanos::ZERO) == NextStep::Now {}
        let counters = forwarder.stats(0).counters(Side::A);
        prop_assert!(add_up(&counters), "{counters:?}");
        let so_far = numbers(&forwarder.shared.sets[1].sent()).len();
        let left = run(&mut forwarder, arrival.max(Nanos(until)), 0);
        let stats = forwarder.stats(0);
        let counters = stats.counters(Side::A);
        prop_assert!(add_up(&counters) && counters.held() == 0, "{counters:?}");
        prop_assert_eq!(counters.packets, u64::from(first));
        prop_assert_eq!(counters.delivered, stats.sent[0]);
        prop_assert_eq!(stats.sent[0], (so_far + numbers(&left).len()) as u64);
        prop_assert!(forwarder.shared.held.is_empty());
    }
}

/// Returns the departures up to now.
fn departures(forwarder: &InMemory) -> [LinkDepartures; 1] {
    [LinkDepartures {
        link: "link".to_owned(),
        budget_ns: LateBudget::DEFAULT.time().0,
        flows: forwarder.departures(0),
    }]
}

/// Returns an echo request or its reply.
fn echo(arrival: Nanos) -> Frame {
    let mut bytes = vec![0; 98];
    bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
    bytes[17] = 84;
    bytes[23] = 1;
    Frame::new(arrival, Offload::default(), None, &bytes)
}

/// Sends `count` pings, one request and reply at a time. The forwarder is stalled for 5 ms where
/// `is_stalled` is true.
fn ping(forwarder: &mut InMemory, count: u64, is_stalled: impl Fn(u64) -> bool) {
    for n in 0..count {
        let at = Nanos::from_millis(1 + 10 * n);
        for port in &mut forwarder.shared.sets {
            port.arrive(echo(at));
        }
        forwarder.step(at, Nanos::ZERO);
        let stall = if is_stalled(n) { 5 } else { 0 };
        forwarder.step(at + Nanos::from_millis(1 + stall), Nanos::ZERO);
    }
}

fn delayed_by_a_millisecond() -> InMemory {
    let conditions = Conditions {
        delay: Nanos::from_millis(1),
        ..Conditions::default()
    };
    forwarder(conditions, true, 1 << 24)
}

fn rtt(statistic: Statistic) -> Figure {
    Figure::new(Metric::RttMs, statistic, 2.0)
}

#[test]
fn late_pings_spoil_the_ping_and_not_the_download_after_them() {
    let mut forwarder = delayed_by_a_millisecond();
    let begin = departures(&forwarder);
    ping(&mut forwarder, 10, |_| true);
    let pinged = departures(&forwarder);
    for n in 0..100 {
        let at = Nanos::from_millis(u64::from(1000 + n));
        forwarder.shared.sets[1].arrive(frame(at, n, 40));
        forwarder.shared.sets[0].arrive(frame(at, n, 1));
        forwarder.step(at, Nanos::ZERO);
    }
    run(&mut forwarder, Nanos::from_millis(1100), 0);
    let downloaded = departures(&forwarder);
    let invalid = |before, after, traffic| {
        let late = lateness::between(before, after, &[traffic]);
        assert!(!late.is_empty());
        lateness::invalid(&late, &[rtt(Statistic::Median)])
    };
    let of_ping =
        Some("10 of 10 packets up, 10 of 10 packets down left more than 1 ms late".to_owned());
    assert_eq!(invalid(&begin, &pinged, Traffic::Icmp), of_ping);
    assert_eq!(invalid(&pinged, &downloaded, Traffic::Tcp(None)), None);
    // It does not matter that they share their time: only 20 of 4120 packets are late.
    assert_eq!(invalid(&begin, &downloaded, Traffic::Icmp), of_ping);
    assert_eq!(invalid(&begin, &downloaded, Traffic::Tcp(None)), None);
}

#[test]
fn a_stall_of_two_packets_in_a_hundred_spoils_the_p99_and_not_the_median() {
    let mut forwarder = delayed_by_a_millisecond();
    let begin = departures(&forwarder);
    ping(&mut forwarder, 100, |n| n % 50 == 7);
    let late = lateness::between(&begin, &departures(&forwarder), &[Traffic::Icmp]);
    assert!(lateness::spoilt(&late, &rtt(Statistic::P99)).is_some());
    assert_eq!(lateness::spoilt(&late, &rtt(Statistic::Median)), None);
    assert_eq!(lateness::invalid(&late, &[rtt(Statistic::P99)]), None);
}

#[test]
fn the_departure_error_includes_late_intake() {
    let mut forwarder = delayed_by_a_millisecond();
    let [early, late] = [2, 5].map(Nanos::from_millis);
    for at in [late, early] {
        forwarder.shared.sets[0].arrive(frame(at, 0, 2));
        forwarder.step(late, Nanos::ZERO);
    }
    run(&mut forwarder, late, 0);
    let stats = forwarder.stats(0);
    assert_eq!(stats.counters(Side::A).late, 2);
    let error = stats.departure_error();
    assert_eq!((error.count, error.over_budget), (4, 2));
    assert_eq!(error.max_ns / 100_000, 30);
}

/// A port that replaces the result for the n-th frame of a send call.
struct ScriptedPort(MemoryPort, fn(usize, Nanos) -> io::Result<Nanos>);

impl PortSet for ScriptedPort {
    type Lent = std::convert::Infallible;

    fn capabilities(&self) -> netio::Capabilities {
        self.0.capabilities()
    }

    fn refresh(&mut self, now: Nanos) {
        self.0.refresh(now);
    }

    fn has_arrivals(&self) -> bool {
        self.0.has_arrivals()
    }

    fn arrival(&self) -> Option<Nanos> {
        self.0.arrival()
    }

    fn take(&mut self) -> Option<(usize, ReceivedFrame<Self::Lent>)> {
        self.0.take()
    }

    fn send(
        &mut self,
        port: usize,
        not_before: Nanos,
        frames: &[TxFrame<'_>],
        sent: &mut dyn FnMut(usize, io::Result<SendTimes>),
    ) {
        self.0
            .send(port, not_before, frames, &mut |index, sending| {
                let ended = sending.and_then(|sending| self.1(index, sending.ended));
                sent(
                    index,
                    ended.map(|ended| SendTimes {
                        begun: not_before,
                        ended,
                    }),
                );
            });
    }

    fn rejoin(&mut self, _: usize, _: u32) -> io::Result<()> {
        Ok(())
    }

    fn missed(&mut self) -> Missed {
        Missed::default()
    }
}

#[test]
fn the_departure_error_includes_the_send_call_and_the_place_in_the_batch() {
    // Each frame takes half a millisecond to send.
    let slow = |index, at| Ok(at + Nanos(500_000 * (index as u64 + 1)));
    let ports = [(); 2].map(|()| ScriptedPort(MemoryPort::new(true), slow));
    let link = link(Conditions::default());
    let mut forwarder = one_link(ports, link, 1 << 20, None);
    for n in 0..4 {
        forwarder.shared.sets[0].0.arrive(frame(Nanos(0), n, 1));
    }
    forwarder.step(Nanos(0), Nanos::ZERO);
    let error = forwarder.stats(0).departure_error();
    assert_eq!((error.count, error.over_budget), (4, 2));
    assert_eq!(
        [error.p50_ns, error.max_ns].map(|ns| ns / 100_000),
        [10, 20]
    );
}

#[test]
fn a_prepared_departure_leaves_when_it_is_due() {
    let mut forwarder = delayed_by_a_millisecond();
    for n in 0..3 {
        forwarder.shared.sets[0].arrive(frame(Nanos(0), n, 1));
    }
    forwarder.shared.sets[0].arrive(frame(Nanos(5_000), 3, 1));
    let lead = Nanos(10_000);
    let due = Nanos::from_millis(1);
    assert_eq!(forwarder.step(Nanos(20_000), lead), NextStep::At(due));
    assert_eq!(forwarder.step(Nanos(989_000), lead), NextStep::At(due));
    assert!(forwarder.shared.sets[1].sent().is_empty());
    // The three packets that are due at the same instant leave at it, but not the later one.
    let next = forwarder.step(Nanos(991_000), lead);
    assert_eq!(next, NextStep::At(due + Nanos(5_000)));
    let left = forwarder.shared.sets[1].sent();
    assert_eq!(numbers(&left), [0, 1, 2]);
    assert!(left.iter().all(|sent| sent.departure == due));
    assert_eq!(forwarder.stats(0).departure_error().max_ns, 0);
}

#[test]
fn link_control_lost_at_an_interface_that_is_down_is_not_an_emulator_loss() {
    let invalid = |error: fn(usize, Nanos) -> io::Result<Nanos>| {
        let ports = [(); 2].map(|()| ScriptedPort(MemoryPort::new(true), error));
        let link = link(Conditions::default());
        let mut forwarder = one_link(ports, link, 1 << 20, None);
        let mut arp = [0; 60];
        arp[12..14].copy_from_slice(&[8, 6]);
        let arp = Frame::new(Nanos(0), Offload::default(), None, &arp);
        forwarder.shared.sets[0].0.arrive(arp);
        forwarder.step(Nanos(0), Nanos::ZERO);
        assert_eq!(forwarder.stats(0).control, [1, 0]);
        forwarder.stats(0).send_error.is_some()
    };
    assert!(!invalid(|_, _| Err(io::ErrorKind::NetworkDown.into())));
    assert!(invalid(|_, _| Err(io::ErrorKind::OutOfMemory.into())));
}
