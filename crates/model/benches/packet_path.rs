//! What a packet costs in the model: offered at line rate, polled as the forwarder polls.
//!
//! `Throughput` is packets; the floor is a queue that takes each packet in and hands it out again.

use std::collections::VecDeque;

use divan::Bencher;
use divan::counter::ItemsCount;
use farwire_model::{
    Bytes, Conditions, Factor, Framing, HopConfig, Link, LinkConfig, Nanos, Packet, PacketId, Rate,
    Side, Toffee,
};

/// Packets between two readings of the clock.
const BATCH: u64 = 1_000;

fn main() {
    divan::main();
}

#[divan::bench]
fn floor(bencher: Bencher<'_, '_>) {
    let mut queue = VecDeque::new();
    bencher
        .counter(ItemsCount::new(BATCH))
        .bench_local(move || {
            for n in 0..BATCH {
                queue.push_back((Nanos(n), divan::black_box(packet(n))));
                divan::black_box(queue.pop_front());
            }
        });
}

/// A box that delays: one stage in each direction.
#[divan::bench]
fn delay(bencher: Bencher<'_, '_>) {
    let own = Conditions {
        delay: Nanos::from_millis(1),
        ..Conditions::default()
    };
    cross(bencher, vec![hop("box", own)], Nanos(600));
}

/// A wire and a box that delay: two stages in each direction.
#[divan::bench]
fn delay_two_hops(bencher: Bencher<'_, '_>) {
    let own = Conditions {
        delay: Nanos::from_millis(1),
        ..Conditions::default()
    };
    cross(bencher, vec![hop("wire", own), hop("box", own)], Nanos(600));
}

/// Delay and loss.
#[divan::bench]
fn delay_and_loss(bencher: Bencher<'_, '_>) {
    let own = Conditions {
        loss: "1%".parse().expect("a probability"),
        delay: Nanos::from_millis(1),
        ..Conditions::default()
    };
    cross(bencher, vec![hop("box", own)], Nanos(600));
}

/// A bottleneck at 20 Gb/s, offered a little less than it serves.
#[divan::bench]
fn rate_idle(bencher: Bencher<'_, '_>) {
    cross(bencher, vec![hop("box", bottleneck())], Nanos(610));
}

/// The same, offered a little more: the queue is always full.
#[divan::bench]
fn rate_full(bencher: Bencher<'_, '_>) {
    cross(bencher, vec![hop("box", bottleneck())], Nanos(600));
}

/// Every kind of stage twice, both directions sharing TOFFEE's server: a delay holds its packets.
#[divan::bench]
fn everything_two_hops(bencher: Bencher<'_, '_>) {
    let own = Conditions {
        loss: "1%".parse().expect("a probability"),
        size_delay: Factor::new(10.0).ok(),
        ..bottleneck()
    };
    let mut last = hop("box", own);
    last.toffee = Some(Toffee {
        delay: Nanos(100),
        dynamic: None,
        loss: "0.171875%".parse().expect("a probability"),
        queue: "1000pkt".parse().expect("a queue limit"),
    });
    cross(bencher, vec![hop("wire", own), last], Nanos(610));
}

/// Offers packets of both sides in turn, each side's `gap` apart, and polls after each.
fn cross(bencher: Bencher<'_, '_>, hops: Vec<HopConfig>, gap: Nanos) {
    let config = LinkConfig {
        seed: 1,
        link: 0,
        hops,
    };
    let mut link = Link::new(&config).expect("a link");
    let (mut now, mut n) = (Nanos::ZERO, 0);
    bencher
        .counter(ItemsCount::new(BATCH))
        .bench_local(move || {
            for _ in 0..BATCH / 2 {
                now += gap;
                for side in [Side::A, Side::B] {
                    n += 1;
                    link.offer(now, side, divan::black_box(packet(n)));
                    while let Some(outcome) = link.poll(now) {
                        divan::black_box(outcome);
                    }
                }
            }
        });
}

fn packet(n: u64) -> Packet {
    Packet {
        id: PacketId(n),
        len: Bytes(1_514),
    }
}

fn hop(name: &str, own: Conditions) -> HopConfig {
    HopConfig {
        name: name.into(),
        up: own,
        down: own,
        toffee: None,
    }
}

fn bottleneck() -> Conditions {
    Conditions {
        rate: Some(Rate {
            fluctuation: None,
            rate: "20gbit".parse().expect("a rate"),
            framing: Framing::L2,
            queue: "1ms".parse().expect("a queue limit"),
        }),
        delay: Nanos::from_millis(1),
        ..Conditions::default()
    }
}
