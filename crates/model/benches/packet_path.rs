//! What a packet costs in the model: offered at line rate, polled as the forwarder polls.
//!
//! `Throughput` is packets; the floor is a queue that takes each packet in and hands it out again.

use std::collections::VecDeque;

use divan::Bencher;
use divan::counter::ItemsCount;
use farwire_model::{
    Bytes, Delay, Effect, Factor, Framing, Link, LinkConfig, Nanos, Packet, PacketId, QueueLimit,
    Rate, Side, StageSpec, Toffee,
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
    cross(bencher, &[delayed("box")], Nanos(600));
}

/// A wire and a box that delay: two stages in each direction.
#[divan::bench]
fn delay_two_hops(bencher: Bencher<'_, '_>) {
    cross(bencher, &[delayed("wire"), delayed("box")], Nanos(600));
}

/// Delay and loss.
#[divan::bench]
fn delay_and_loss(bencher: Bencher<'_, '_>) {
    cross(bencher, &[lossy("box"), delayed("box")], Nanos(600));
}

/// A bottleneck at 20 Gb/s, offered a little less than it serves.
#[divan::bench]
fn rate_idle(bencher: Bencher<'_, '_>) {
    cross(bencher, &[bottleneck("box"), delayed("box")], Nanos(610));
}

/// The same, offered a little more: the queue is always full.
#[divan::bench]
fn rate_full(bencher: Bencher<'_, '_>) {
    cross(bencher, &[bottleneck("box"), delayed("box")], Nanos(600));
}

/// Rate, loss and delay.
#[divan::bench]
fn rate_loss_delay(bencher: Bencher<'_, '_>) {
    let stages = [bottleneck("box"), lossy("box"), delayed("box")];
    cross(bencher, &stages, Nanos(610));
}

/// Every kind of stage twice, both directions sharing TOFFEE's server: a delay holds its packets.
#[divan::bench]
fn everything_two_hops(bencher: Bencher<'_, '_>) {
    let server = Effect::Toffee(Toffee {
        delay: Nanos(100),
        dynamic: None,
        queue: QueueLimit::Packets(1_000).into(),
    });
    let by_size = |hop| {
        let delay = Delay {
            time: Nanos::from_millis(1),
            by_size: Factor::new(10.0).ok(),
            ..Delay::default()
        };
        (hop, "delay", Effect::Delay(delay))
    };
    let drop = Effect::Loss("0.171875%".parse().expect("a probability"));
    let stages = [
        bottleneck("wire"),
        lossy("wire"),
        by_size("wire"),
        ("toffee", "", server),
        ("box", "drop", drop),
        bottleneck("box"),
        lossy("box"),
        by_size("box"),
    ];
    cross(bencher, &stages, Nanos(610));
}

/// A hop, what it does there, and how.
type Stage = (&'static str, &'static str, Effect);

/// Offers packets of both sides in turn, each side's `gap` apart, and polls after each. Stages without a kind are shared.
fn cross(bencher: Bencher<'_, '_>, stages: &[Stage], gap: Nanos) {
    let path = |direction: &str| {
        let named = |(hop, kind, effect): &Stage| match *kind {
            "" => StageSpec::new(*hop, effect.clone()),
            kind => StageSpec::new(format!("{hop}.{direction}.{kind}"), effect.clone()),
        };
        stages.iter().map(named).collect()
    };
    let mut link = Link::new(&LinkConfig::new(1, path("up"), path("down"))).expect("a link");
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
    Packet::new(PacketId(n), Bytes(1_514))
}

fn delayed(hop: &'static str) -> Stage {
    let delay = Delay {
        time: Nanos::from_millis(1),
        ..Delay::default()
    };
    (hop, "delay", Effect::Delay(delay))
}

fn lossy(hop: &'static str) -> Stage {
    (
        hop,
        "loss",
        Effect::Loss("1%".parse().expect("a probability")),
    )
}

fn bottleneck(hop: &'static str) -> Stage {
    let rate = Rate {
        fluctuation: None,
        rate: "20gbit".parse().ok(),
        framing: Framing::L2,
        queue: "1ms".parse::<QueueLimit>().expect("a queue limit").into(),
    };
    (hop, "rate", Effect::Rate(rate))
}
