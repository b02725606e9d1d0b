//! Tests of packets of several links that leave together.

use model::{BitsPerSec, Effect, Framing, LinkConfig, QueueLimit, Rate, StageSpec};
use netio::{Frame, Offload, Sent};

use super::turn_tests::{COST, SentFrame, Setting, pass_frames};
use super::*;

const DELAY: Nanos = Nanos::from_millis(5);

/// Returns a frame that has its arrival time and this number in its bytes.
fn frame(at: Nanos, number: u32) -> Frame {
    let mut bytes = [0; 100];
    bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
    bytes[40..48].copy_from_slice(&at.0.to_be_bytes());
    bytes[48..52].copy_from_slice(&number.to_be_bytes());
    Frame::new(at, Offload::default(), None, &bytes)
}

/// Returns the arrival time and the number of a sent frame.
fn arrival_and_number(sent: &SentFrame) -> (Nanos, u32) {
    let at = u64::from_be_bytes(sent.bytes[40..48].try_into().unwrap());
    let number = u32::from_be_bytes(sent.bytes[48..52].try_into().unwrap());
    (Nanos(at), number)
}

/// Returns the port at side A of a link, and that at side B.
fn ports(link: usize) -> [usize; 2] {
    [2 * link, 2 * link + 1]
}

fn setting() -> Setting {
    Setting {
        delay: DELAY,
        ..Setting::default()
    }
}

#[test]
fn packets_of_many_links_that_are_due_together_leave_in_few_calls() {
    let waves = [1, 9].map(Nanos::from_millis);
    let frames = waves
        .iter()
        .flat_map(|at| (0..64).map(move |link| (ports(link)[0], frame(*at, 0))));
    let forwarder = pass_frames(setting(), 64, frames.collect(), None);
    let calls = &forwarder.sets()[0].calls;
    let packets: usize = calls.iter().map(Vec::len).sum();
    assert_eq!(packets, 128);
    assert!(calls.len() <= 16, "{}", calls.len());
    assert!(calls.iter().all(|call| call.len() <= 16));
}

#[test]
fn packets_leave_in_order_never_early_and_little_late() {
    const LINKS: usize = 40;
    const EACH: u32 = 100;
    let mut frames = Vec::new();
    for link in 0..LINKS {
        let interval = Nanos::from_micros(150 + 7 * link as u64);
        let mut at = Nanos::from_millis(1) + Nanos(3_000 * link as u64);
        for number in 0..EACH {
            frames.push((ports(link)[0], frame(at, number)));
            at += interval;
        }
    }
    let mut forwarder = pass_frames(setting(), 40, frames, None);
    let mut next = [0; 2 * LINKS];
    for sent in forwarder.sets()[0].calls.iter().flatten() {
        let (arrival, number) = arrival_and_number(sent);
        assert_eq!(number, next[sent.port]);
        next[sent.port] += 1;
        assert!(sent.begun >= arrival + DELAY, "{}", sent.begun);
    }
    for link in 0..LINKS {
        assert_eq!(ports(link).map(|port| next[port]), [0, EACH]);
        let stats = forwarder.stats(link);
        assert_eq!(stats.sent[0], u64::from(EACH));
        // A packet of each link, and the step itself.
        let most = LINKS as u64 * COST.0 + 10_000;
        let error = stats.departure_error();
        assert!(error.max_ns < 2 * most, "{link}: {}", error.max_ns);
    }
    assert!(forwarder.shared.held.is_empty());
}

#[test]
fn the_packets_of_a_link_with_many_leave_in_separate_calls() {
    const BUSY: usize = 4;
    let at = Nanos::from_millis(1);
    let frames = (0..8).flat_map(|link| {
        let count = if link == BUSY { 12 } else { 1 };
        (0..count).map(move |number| (ports(link)[0], frame(at, number)))
    });
    let forwarder = pass_frames(setting(), 8, frames.collect(), None);
    let calls = &forwarder.sets()[0].calls;
    let lengths: Vec<usize> = calls.iter().map(Vec::len).collect();
    assert_eq!(lengths, [4, 12, 3]);
    assert!(calls[1].iter().all(|sent| sent.port == ports(BUSY)[1]));
}

#[test]
fn a_port_that_refuses_its_packets_takes_none_from_other_links() {
    const DOWN: usize = 5;
    let at = Nanos::from_millis(1);
    let frames = (0..12).map(|link| (ports(link)[0], frame(at, 0)));
    let setting = Setting {
        refuses: Some(ports(DOWN)[1]),
        ..setting()
    };
    let mut forwarder = pass_frames(setting, 12, frames.collect(), None);
    for link in 0..12 {
        let stats = forwarder.stats(link);
        let lost = stats.lost(Side::A, EmulatorLoss::Send);
        let expected = if link == DOWN { (0, 1) } else { (1, 0) };
        assert_eq!((stats.sent[0], lost), expected, "{link}");
        assert_eq!(stats.send_error.is_some(), link == DOWN);
    }
    assert!(forwarder.shared.held.is_empty());
}

/// Passes packets through a link with a rate for each of `offsets`, by which the packets arrive later.
/// Returns the departures from each link, whose ports are separate sets.
fn departures(offsets: &[Nanos]) -> Vec<Vec<Sent>> {
    let sets = (0..2 * offsets.len()).map(|_| MemoryPort::new(false));
    let mut forwarder = Forwarder::new(sets.collect(), usize::MAX);
    for (set, offset) in (0..).step_by(2).zip(offsets) {
        let rate = Effect::Rate(Rate {
            fluctuation: None,
            burst: None,
            rate: BitsPerSec::new(1_000_000).ok(),
            framing: Framing::L2,
            queue: QueueLimit::Packets(20).into(),
        });
        let stages = vec![StageSpec::new("box.up.rate", rate)];
        let link = Link::new(&LinkConfig::new(3, stages, Vec::new())).unwrap();
        let ends = [set, set + 1].map(|set| PortId { set, port: 0 });
        forwarder.add_link(ends, link, Rules::default(), LateBudget::DEFAULT, None);
        for number in 0..50 {
            let at = Nanos::from_millis(1) + *offset + Nanos(200_000 * u64::from(number));
            forwarder.shared.sets[usize::from(set)].arrive(frame(at, number));
        }
    }
    let mut now = Nanos::ZERO;
    loop {
        let next = match forwarder.step(now, Nanos::ZERO) {
            NextStep::Now => continue,
            NextStep::At(at) => Some(at),
            NextStep::Arrival => None,
        };
        let arrivals = forwarder.sets().iter().filter_map(MemoryPort::next_arrival);
        match arrivals.chain(next).min() {
            Some(at) => now = at,
            None => break,
        }
    }
    let sets = forwarder.shared.sets.iter_mut();
    sets.skip(1).step_by(2).map(MemoryPort::sent).collect()
}

#[test]
fn a_packet_leaves_a_link_at_the_same_time_beside_others_and_alone() {
    let offsets = [0, 37_000, 37_000, 800_000].map(Nanos);
    let together = departures(&offsets);
    assert_eq!(together.len(), offsets.len());
    for (offset, of_link) in offsets.iter().zip(&together) {
        // The queue is full.
        assert!(of_link.len() > 20 && of_link.len() < 50);
        assert_eq!(departures(&[*offset]), std::slice::from_ref(of_link));
    }
}
