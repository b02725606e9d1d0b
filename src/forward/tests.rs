//! The forwarder between two ports in memory, in virtual time.

use model::{BitsPerSec, Delay, Effect, Framing, LinkConfig, QueueLimit, Rate, StageSpec};
use netio::{Frame, Gso, GsoKind, MemoryPort, Offload, PartialChecksum, Sent};
use proptest::prelude::*;

use super::*;

const SEGMENT: usize = 100;
const HEADERS: usize = 14 + 20 + 20;

/// A TCP frame of `segments`, each of which carries its own number, counted from `first`.
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

/// The numbers of the segments in what was sent.
fn numbers(sent: &[Sent]) -> Vec<u32> {
    sent.iter()
        .flat_map(|frame| frame.bytes[HEADERS..].chunks(SEGMENT))
        .map(|segment| u32::from_be_bytes(segment[..4].try_into().unwrap()))
        .collect()
}

/// What each direction of the link has.
#[derive(Clone, Copy, Default)]
struct Conditions {
    rate: Option<Rate>,
    delay: Nanos,
}

fn link(conditions: Conditions) -> Link {
    let stages = |way: &str| {
        let delay = Effect::Delay(Delay {
            time: conditions.delay,
            ..Delay::default()
        });
        let rate = conditions.rate.map(Effect::Rate);
        let delay = (conditions.delay > Nanos::ZERO).then_some(delay);
        let named = [("rate", rate), ("delay", delay)];
        let named = named.into_iter().filter_map(|(kind, effect)| {
            Some(StageSpec::new(format!("box.{way}.{kind}"), effect?))
        });
        named.collect()
    };
    Link::new(&LinkConfig::new(3, stages("up"), stages("down"))).unwrap()
}

type InMemory = Forwarder<MemoryPort>;

fn forwarder(conditions: Conditions, gso: bool, memory: usize) -> InMemory {
    let ports = [MemoryPort::new(gso), MemoryPort::new(gso)];
    Forwarder::new(ports, link(conditions), memory, None)
}

fn rate(bits: u64) -> Option<Rate> {
    Some(Rate {
        fluctuation: None,
        rate: BitsPerSec::new(bits).ok(),
        framing: Framing::L2,
        queue: QueueLimit::Packets(100_000).into(),
    })
}

/// Steps as its caller would until nothing is left; what left by B.
fn run(forwarder: &mut InMemory, mut now: Nanos, lateness: u64) -> Vec<Sent> {
    loop {
        match forwarder.step(now) {
            Next::Now => {}
            Next::At(at) => now = at.max(now) + Nanos(lateness),
            Next::Arrival => return forwarder.ports[1].sent(),
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
        let conditions = Conditions { delay: Nanos(delay), rate: bits.and_then(rate), ..Conditions::default() };
        let mut forwarder = forwarder(conditions, gso, 1 << 24);
        let (mut arrival, mut first, mut arrivals) = (Nanos(1), 0, Vec::new());
        for (gap, segments) in frames {
            arrival += Nanos(gap);
            forwarder.ports[0].arrive(frame(arrival, first, segments));
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
        let stats = forwarder.stats();
        prop_assert_eq!(stats.departure.summary().count, u64::from(first));
        prop_assert_eq!(stats.sent[0], u64::from(first));
    }
}

#[test]
fn frames_that_were_looked_at_late_meet_the_queue_as_it_was_when_they_came() {
    let conditions = Conditions {
        rate: Some(Rate {
            queue: QueueLimit::Packets(5).into(),
            ..rate(10_000_000).unwrap()
        }),
        ..Conditions::default()
    };
    // A burst of single packets every 10 us: ten times what the rate serves.
    let burst = |step: &mut dyn FnMut(&mut InMemory, Nanos)| {
        let mut forwarder = forwarder(conditions, true, 1 << 24);
        for n in 0..300 {
            let at = Nanos(u64::from(n) * 10_000);
            forwarder.ports[0].arrive(frame(at, n, 1));
            step(&mut forwarder, at);
        }
        run(&mut forwarder, Nanos(3_000_000), 0);
        let stats = forwarder.stats();
        (stats.sent[0], stats.link[0])
    };
    let on_time = burst(&mut |forwarder, at| {
        forwarder.step(at);
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
    forwarder.ports[0].arrive(frame(Nanos(0), 0, 40));
    let left = run(&mut forwarder, Nanos(0), 0);
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].departure, Nanos(5_000));
}

#[test]
fn segments_further_apart_than_the_quantum_leave_alone() {
    let conditions = Conditions {
        rate: rate(10_000_000),
        ..Conditions::default()
    };
    let mut forwarder = forwarder(conditions, true, 1 << 20);
    forwarder.ports[0].arrive(frame(Nanos(0), 0, 8));
    let left = run(&mut forwarder, Nanos(0), 0);
    assert!(left.iter().all(|sent| sent.gso.is_none()));
    assert_eq!(left.len(), 8);
}

#[test]
fn segments_closer_than_the_quantum_leave_together_when_the_last_is_due() {
    let conditions = Conditions {
        rate: rate(10_000_000_000),
        ..Conditions::default()
    };
    let mut forwarder = forwarder(conditions, true, 1 << 20);
    // 154 bytes at 10 Gb/s: 123.2 ns each, 40 of them in 4.9 us.
    forwarder.ports[0].arrive(frame(Nanos(0), 0, 40));
    let left = run(&mut forwarder, Nanos(0), 0);
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].departure, Nanos(4_928));
}

#[test]
fn what_passes_the_memory_limit_is_dropped_under_its_own_cause() {
    let conditions = Conditions {
        delay: Nanos(5_000),
        ..Conditions::default()
    };
    let mut forwarder = forwarder(conditions, true, 10_000);
    for _ in 0..3 {
        forwarder.ports[0].arrive(frame(Nanos(0), 0, 40));
    }
    let left = run(&mut forwarder, Nanos(0), 0);
    let stats = forwarder.stats();
    assert_eq!(left.len(), 1);
    assert_eq!(stats.lost(Side::A, Loss::Memory), 80);
    assert!(stats.peak_bytes <= 10_000);
}
