//! The cost of a packet in the model. Packets are offered at line rate and polled as the forwarder polls.
//!
//! `Throughput` is packets; the floor is a queue that takes each packet in and hands it out again.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use divan::Bencher;
use divan::counter::ItemsCount;
use farwire_model::{
    Bytes, CheckedPaths, Codel, Delay, Discipline, DualPi2, Ecn, Effect, Factor, Flow, FourState,
    FqCodel, Framing, GilbertElliott, HoldBack, Jitter, Law, Link, LinkConfig, MOST_STAGES,
    MOST_STAGES_IN_ALL, Nanos, Netem, NetemDistribution, NetemLoss, NetemShare, Ordering, Packet,
    PacketId, PathSpec, Pie, Police, Queue, QueueLimit, Rate, Red, Reorder, ScheduleClock,
    ScheduleOrder, Side, Slots, StageSpec, Toffee,
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

/// The same bottleneck under CoDel.
#[divan::bench]
fn codel(bencher: Bencher<'_, '_>) {
    let codel = managed(Discipline::Codel(Codel::default()));
    cross_with(bencher, &[codel, delayed("box")], Nanos(600), of_a_flow);
}

/// The same bottleneck under FQ-CoDel, with eight flows.
#[divan::bench]
fn fq_codel(bencher: Bencher<'_, '_>) {
    let fq_codel = managed(Discipline::FqCodel(FqCodel::default()));
    cross_with(bencher, &[fq_codel, delayed("box")], Nanos(600), of_a_flow);
}

/// The same bottleneck under DualPI2, with all four codepoints of ECN.
#[divan::bench]
fn dual_pi2(bencher: Bencher<'_, '_>) {
    let dual_pi2 = managed(Discipline::DualPi2(DualPi2::default()));
    cross_with(bencher, &[dual_pi2, delayed("box")], Nanos(600), of_a_flow);
}

/// The same bottleneck, its queue dropping at the head.
#[divan::bench]
fn drop_head(bencher: Bencher<'_, '_>) {
    let full = Effect::Rate(rate("1ms", Discipline::DropHead));
    let stages = [("box", "rate", full), delayed("box")];
    cross(bencher, &stages, Nanos(600));
}

/// The same bottleneck under RED, whose average lies about its thresholds.
#[divan::bench]
fn red(bencher: Bencher<'_, '_>) {
    let law = Red {
        min: Bytes(1_000_000),
        max: Bytes(3_000_000),
        ecn: true,
        ..Red::default()
    };
    let red = managed(Discipline::Red(law));
    cross_with(bencher, &[red, delayed("box")], Nanos(600), of_a_flow);
}

/// The same bottleneck under PIE.
#[divan::bench]
fn pie(bencher: Bencher<'_, '_>) {
    let pie = managed(Discipline::Pie(Pie::default()));
    cross_with(bencher, &[pie, delayed("box")], Nanos(600), of_a_flow);
}

/// A token bucket of 20 Gb/s, offered a little more.
#[divan::bench]
fn token_bucket(bencher: Bencher<'_, '_>) {
    let bucket = Rate {
        burst: Some(Bytes(100_000)),
        ..rate("1ms", Discipline::DropTail)
    };
    let stages = [("box", "rate", Effect::Rate(bucket)), delayed("box")];
    cross(bencher, &stages, Nanos(600));
}

/// A bottleneck that counts ATM's cells.
#[divan::bench]
fn rate_at_atm(bencher: Bencher<'_, '_>) {
    let cells = Rate {
        framing: "atm,overhead=18".parse().expect("a framing"),
        ..rate("1ms", Discipline::DropTail)
    };
    let stages = [("box", "rate", Effect::Rate(cells)), delayed("box")];
    cross(bencher, &stages, Nanos(610));
}

/// A policer of 20 Gb/s, offered a little more.
#[divan::bench]
fn policer(bencher: Bencher<'_, '_>) {
    let police = Police {
        rate: "20gbit".parse().expect("a rate"),
        burst: Bytes(100_000),
    };
    let stages = [("box", "police", Effect::Police(police)), delayed("box")];
    cross(bencher, &stages, Nanos(600));
}

/// Losses in bursts.
#[divan::bench]
fn gilbert_elliott(bencher: Bencher<'_, '_>) {
    let loss = "1%".parse().expect("a probability");
    let bursts = GilbertElliott::of_bursts(loss, 8.0).expect("a chain");
    let bursts = ("box", "burst-loss", Effect::GilbertElliott(bursts));
    cross(bencher, &[bursts, delayed("box")], Nanos(600));
}

/// A delay with normal jitter in which packets overtake each other.
#[divan::bench]
fn jitter_free(bencher: Bencher<'_, '_>) {
    let normal = Jitter::new(Nanos::from_micros(100), Law::Normal);
    jittery(bencher, normal, Ordering::Free);
}

/// The same by netem's Pareto-normal law.
#[divan::bench]
fn jitter_paretonormal(bencher: Bencher<'_, '_>) {
    let law = Jitter::new(Nanos::from_micros(100), Law::ParetoNormal);
    jittery(bencher, law, Ordering::Free);
}

/// The same, correlated in time.
#[divan::bench]
fn jitter_half_life(bencher: Bencher<'_, '_>) {
    let wandering = Jitter {
        half_life: Some(Nanos::from_millis(1)),
        ..Jitter::new(Nanos::from_micros(100), Law::Normal)
    };
    jittery(bencher, wandering, Ordering::Free);
}

/// The same with eight flows, each of which keeps its order.
#[divan::bench]
fn jitter_per_flow(bencher: Bencher<'_, '_>) {
    let normal = Jitter::new(Nanos::from_micros(100), Law::Normal);
    jittery(bencher, normal, Ordering::PerFlow);
}

fn jittery(bencher: Bencher<'_, '_>, jitter: Jitter, ordering: Ordering) {
    let delay = Delay {
        time: Nanos::from_millis(1),
        jitter: Some(jitter),
        ordering,
        ..Delay::default()
    };
    let delay = ("box", "delay", Effect::Delay(delay));
    cross_with(bencher, &[delay], Nanos(600), of_a_flow);
}

/// Slots of eight packets.
#[divan::bench]
fn slots(bencher: Bencher<'_, '_>) {
    let slots = Slots {
        delay: Nanos(4_000),
        jitter: Some(Jitter::new(Nanos(500), Law::Uniform)),
        packets: NonZeroU32::new(8),
        bytes: None,
    };
    let slots = ("box", "slots", Effect::Slots(slots));
    cross(bencher, &[slots, delayed("box")], Nanos(600));
}

/// Loss in bursts of four states.
#[divan::bench]
fn four_state(bencher: Bencher<'_, '_>) {
    let percent = |text: &str| text.parse().expect("a probability");
    let chain = FourState {
        p13: percent("1%"),
        p31: percent("30%"),
        p32: percent("20%"),
        p23: percent("50%"),
        p14: percent("0.5%"),
        ecn: false,
    };
    let chain = ("box", "four-state", Effect::FourState(chain));
    cross(bencher, &[chain, delayed("box")], Nanos(600));
}

/// Losses by number: every hundredth.
#[divan::bench]
fn indexes(bencher: Bencher<'_, '_>) {
    let all: Vec<u64> = (0..1_000_000).step_by(100).collect();
    let indexes = ("box", "indexes", Effect::Indexes(all.into()));
    cross(bencher, &[indexes, delayed("box")], Nanos(600));
}

/// Losses by bit errors.
#[divan::bench]
fn bit_errors(bencher: Bencher<'_, '_>) {
    let rate = "1e-6".parse().expect("a bit error rate");
    let errors = ("box", "ber", Effect::BitErrors(rate));
    cross(bencher, &[errors, delayed("box")], Nanos(600));
}

/// A delay that one packet in twenty skips.
#[divan::bench]
fn reorder(bencher: Bencher<'_, '_>) {
    let delay = Delay {
        time: Nanos::from_millis(1),
        reorder: Some(Reorder {
            share: "5%".parse().expect("a probability"),
            gap: NonZeroU32::MIN,
        }),
        ..Delay::default()
    };
    let delay = ("box", "delay", Effect::Delay(delay));
    cross(bencher, &[delay], Nanos(600));
}

/// One packet in a hundred is held back until three have overtaken it.
#[divan::bench]
fn hold_back(bencher: Bencher<'_, '_>) {
    let law = HoldBack {
        share: "1%".parse().expect("a probability"),
        extent: NonZeroU32::new(3).expect("above 0"),
        timeout: Nanos::from_millis(100),
    };
    let held = ("box", "reorder", Effect::HoldBack(law));
    cross(bencher, &[held, delayed("box")], Nanos(600));
}

/// A bit of every hundredth packet is flipped.
#[divan::bench]
fn corrupt(bencher: Bencher<'_, '_>) {
    let flips = Effect::Corrupt("1%".parse().expect("a probability"));
    let flips = ("box", "corrupt", flips);
    cross(bencher, &[flips, delayed("box")], Nanos(600));
}

/// A copy of every hundredth packet.
#[divan::bench]
fn duplicate(bencher: Bencher<'_, '_>) {
    let copies = Effect::Duplicate("1%".parse().expect("a probability"));
    let copies = ("box", "duplicate", copies);
    cross(bencher, &[copies, delayed("box")], Nanos(600));
}

/// netem with all that it does to a packet.
#[divan::bench]
fn netem(bencher: Bencher<'_, '_>) {
    let share = |text: &str| NetemShare {
        share: text.parse().expect("a probability"),
        correlation: text.parse().ok(),
    };
    let netem = Netem {
        limit: 100_000,
        delay: Nanos::from_millis(1),
        jitter: Nanos::from_micros(100),
        distribution: Some(NetemDistribution::ParetoNormal),
        loss: NetemLoss::Random(share("10%")),
        corrupt: Some(share("1%")),
        duplicate: Some(share("1%")),
        reorder: Some(share("1%")),
        ..Netem::PLAIN
    };
    let netem = Effect::Netem(Box::new(netem));
    cross(bencher, &[("box", "netem", netem)], Nanos(600));
}

/// netem's delay alone, from a table.
#[divan::bench]
fn netem_delay(bencher: Bencher<'_, '_>) {
    let netem = Netem {
        limit: 100_000,
        delay: Nanos::from_millis(1),
        jitter: Nanos::from_micros(100),
        distribution: Some(NetemDistribution::ParetoNormal),
        ..Netem::PLAIN
    };
    cross(
        bencher,
        &[("box", "netem", Effect::Netem(Box::new(netem)))],
        Nanos(600),
    );
}
/// A hop, what it does there, and how.
type Stage = (&'static str, &'static str, Effect);

/// Offers packets of both sides in turn, each side's `gap` apart, and polls after each. Stages without a kind are shared.
fn cross(bencher: Bencher<'_, '_>, stages: &[Stage], gap: Nanos) {
    cross_with(bencher, stages, gap, packet);
}

fn cross_with(
    bencher: Bencher<'_, '_>,
    stages: &[Stage],
    gap: Nanos,
    packet: impl Fn(u64) -> Packet,
) {
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

/// A change of every stage of a link that has as many stages as it may, in paths as long as they may be: packets wait for it. It
/// was checked before.
#[divan::bench]
fn change_of_the_largest_link(bencher: Bencher<'_, '_>) {
    let largest = |spread: u64| {
        let delay = || Delay {
            time: Nanos::from_millis(1),
            jitter: Some(Jitter {
                half_life: Some(Nanos::from_millis(1)),
                ..Jitter::new(Nanos(spread), Law::Pareto)
            }),
            ..Delay::default()
        };
        let stage = |name: String| StageSpec::new(name, Effect::Delay(delay()));
        let path = |class: u16, side: Side| PathSpec {
            side,
            class,
            stages: (1..MOST_STAGES)
                .map(|number| stage(format!("box.{side:?}.{number}")))
                .chain([stage(format!("box.{class}.{side:?}"))])
                .collect(),
        };
        // Each class has one stage each way that it does not share.
        let classes = (0u16..).take(MOST_STAGES_IN_ALL / 2 - (MOST_STAGES - 1));
        let paths = classes.flat_map(|class| Side::BOTH.map(|side| path(class, side)));
        CheckedPaths::new(paths.collect()).expect("as much as is allowed")
    };
    let mut link = Link::new(&LinkConfig::default()).expect("no conditions");
    let mut spread = 1;
    bencher
        .with_inputs(move || {
            spread += 1;
            largest(spread)
        })
        .bench_local_values(move |paths| {
            let (clock, order) = (ScheduleClock::default(), ScheduleOrder::default());
            link.change_by_clock(Nanos::ZERO, paths, clock, order)
        });
}

fn packet(n: u64) -> Packet {
    Packet::new(PacketId(n), Bytes(1_514))
}

/// A packet of one of eight flows, with one of the codepoints of ECN.
fn of_a_flow(n: u64) -> Packet {
    let [first, ..] = n.to_le_bytes();
    let flow = Flow {
        id: u32::from(first % 8),
        ..Flow::default()
    };
    let ecn = [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce][usize::from(first / 2 % 4)];
    Packet {
        flow,
        ecn,
        ..packet(n)
    }
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
    (hop, "rate", Effect::Rate(rate("1ms", Discipline::DropTail)))
}

/// The bottleneck with a queue that is long enough for `discipline` to keep it shorter.
fn managed(discipline: Discipline) -> Stage {
    ("box", "rate", Effect::Rate(rate("100ms", discipline)))
}

fn rate(limit: &str, discipline: Discipline) -> Rate {
    let limit = limit.parse::<QueueLimit>().expect("a queue limit");
    Rate {
        fluctuation: None,
        burst: None,
        rate: "20gbit".parse().ok(),
        framing: Framing::L2,
        queue: Queue { limit, discipline },
    }
}
