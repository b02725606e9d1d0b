//! A bottleneck of 8 Mbit/s with any queue discipline, arrivals for comparisons, and the frame of a model of it.

use farwire_model::{
    Bytes, Codel, Discipline, DropCause, DualPi2, Ecn, Effect, Flow, FqCodel, Framing, Link,
    LinkConfig, Nanos, Outcome, Packet, PacketId, Pie, Queue, QueueLimit, Rate, Red, Side,
    StageSpec, Weights,
};

use crate::drive::Draw;

/// A packet to offer. Its id is its index in the list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub(crate) id: usize,
    pub(crate) at: u64,
    pub(crate) len: u64,
    pub(crate) flow: u32,
    pub(crate) ecn: Ecn,
    pub(crate) is_ect: bool,
}

/// The outcome of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketOutcome {
    Unknown,
    Delivered { due: u64, mark: bool },
    Dropped(u64, DropCause),
}

impl PacketOutcome {
    /// Marks the packet; its due time is filled in later.
    pub(crate) fn mark(&mut self) {
        *self = Self::Delivered { due: 0, mark: true };
    }
}

pub(crate) fn bottleneck(queue: &Queue) -> LinkConfig {
    let rate = Rate {
        rate: "8mbit".parse().ok(),
        fluctuation: None,
        burst: None,
        framing: Framing::L2,
        queue: *queue,
    };
    let up = StageSpec::new("box.up.rate", Effect::Rate(rate));
    LinkConfig::new(1, vec![up], vec![])
}

pub(crate) fn packet_of(item: &Item) -> Packet {
    let flow = Flow {
        id: item.flow,
        ..Flow::default()
    };
    Packet {
        flow,
        ecn: item.ecn,
        ..Packet::new(PacketId(item.id as u64), Bytes(item.len))
    }
}

/// Returns the outcomes of `items` on the link.
pub(crate) fn outcomes(queue: &Queue, items: &[Item]) -> Vec<PacketOutcome> {
    let mut link = Link::new(&bottleneck(queue)).unwrap();
    let mut outcomes = vec![PacketOutcome::Unknown; items.len()];
    for item in items {
        link.offer(Nanos(item.at), Side::A, packet_of(item));
    }
    while let Some(outcome) = link.poll(Nanos::MAX) {
        let known = &mut outcomes[usize::try_from(outcome.id().0).unwrap()];
        assert_eq!(*known, PacketOutcome::Unknown, "two outcomes");
        *known = match outcome {
            Outcome::Deliver { due, mark, .. } => PacketOutcome::Delivered { due: due.0, mark },
            Outcome::Drop { at, cause, .. } => PacketOutcome::Dropped(at.0, cause),
            Outcome::Copied { .. } => panic!("nothing here copies"),
        };
    }
    outcomes
}

/// Returns the number from 0 to 1 that decides whether the bottleneck drops packet number `index`. It is a second
/// implementation of this function of the seed (1), the link (0), the stage's name, the purpose (1) and the number.
pub(crate) fn drawn(index: u64) -> f64 {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |mut word: u64| {
        for (shift, times) in [(30, 0xbf58_476d_1ce4_e5b9), (27, 0x94d0_49bb_1331_11eb)] {
            word = (word ^ word >> shift).wrapping_mul(times);
        }
        word ^ word >> 31
    };
    let join = |key: u64, word: u64| mix(key.wrapping_add(STEP) ^ mix(word.wrapping_add(STEP)));
    let name = "box.up.rate";
    let words = [0, name.len() as u64].into_iter();
    let stage = words.chain(name.bytes().map(u64::from)).fold(mix(1), join);
    let purpose = join(join(stage, STEP), 1);
    let word = mix(join(purpose, STEP) ^ mix(purpose.wrapping_add(index.wrapping_mul(STEP))));
    (word >> 11) as f64 / 2.0_f64.powi(53)
}

/// Counts of the outcomes of packets.
#[derive(Debug, Default)]
pub(crate) struct OutcomeCounts {
    /// Packets dropped by the AQM.
    pub(crate) aqm: usize,
    /// Packets dropped because the queue was full.
    pub(crate) full: usize,
    pub(crate) marked: usize,
}

/// Compares the link with a model, packet by packet, for every pattern and limit.
pub(crate) fn compare<M: model::QueueModel>(
    discipline: Discipline,
    limits: &[QueueLimit],
    model: impl Fn(&Queue) -> M,
) -> OutcomeCounts {
    let mut counts = OutcomeCounts::default();
    for (pattern, items) in patterns() {
        for &limit in limits {
            let queue = Queue { limit, discipline };
            let ours = outcomes(&queue, &items);
            let theirs = model::serve(model(&queue), &items);
            let mut pairs = ours.iter().zip(&theirs);
            let differs = pairs.position(|(one, other)| one != other);
            let both = differs.map(|id| (ours[id], theirs[id]));
            assert_eq!(both, None, "{pattern}, {limit}, packet {differs:?}");
            for (outcome, item) in ours.iter().zip(&items) {
                match outcome {
                    PacketOutcome::Dropped(_, DropCause::Aqm) => counts.aqm += 1,
                    PacketOutcome::Dropped(..) => counts.full += 1,
                    PacketOutcome::Delivered { mark, .. } => {
                        assert!(!mark || item.is_ect && item.ecn != Ecn::Ce, "{pattern}");
                        counts.marked += usize::from(*mark);
                    }
                    PacketOutcome::Unknown => panic!("{pattern}: no outcome"),
                }
            }
        }
    }
    counts
}

/// The server of a model, and the contract of a model of a queue.
pub(crate) mod model {
    use super::{Ecn, Item, PacketOutcome};

    /// The time of a byte at 8 Mbit/s.
    pub(crate) const NANOS_PER_BYTE: u64 = 1_000;

    pub(crate) trait QueueModel {
        /// Takes an item that arrives. If `is_idle`, the server is idle and the limit does not apply.
        fn arrive(&mut self, now: u64, item: Item, is_idle: bool, outcomes: &mut [PacketOutcome]);
        /// Removes and returns the item to serve next.
        fn depart(&mut self, now: u64, outcomes: &mut [PacketOutcome]) -> Option<Item>;
    }

    /// Serves `items`. An item that is done makes room before another one arrives at the same instant.
    pub(crate) fn serve(mut queue: impl QueueModel, items: &[Item]) -> Vec<PacketOutcome> {
        let mut outcomes = vec![PacketOutcome::Unknown; items.len()];
        let mut coming = items.iter().copied().peekable();
        let mut done: Option<u64> = None;
        loop {
            let now = match (done, coming.peek()) {
                (Some(done), Some(item)) if item.at < done => item.at,
                (Some(done), _) => done,
                (None, Some(item)) => item.at,
                (None, None) => return outcomes,
            };
            if done == Some(now) {
                done = None;
            } else if let Some(item) = coming.next() {
                queue.arrive(now, item, done.is_none(), &mut outcomes);
            }
            if done.is_none()
                && let Some(item) = queue.depart(now, &mut outcomes)
            {
                let due = now + item.len * NANOS_PER_BYTE;
                let is_marked = matches!(
                    outcomes[item.id],
                    PacketOutcome::Delivered { mark: true, .. }
                );
                // A packet that arrived marked does not count as marked here.
                let mark = is_marked && item.ecn != Ecn::Ce;
                outcomes[item.id] = PacketOutcome::Delivered { due, mark };
                done = Some(due);
            }
        }
    }
}

/// Returns the arrivals with which disciplines are tested: they are fixed, and each has a reason.
pub(crate) fn patterns() -> Vec<(&'static str, Vec<Item>)> {
    use Ecn::{Ect0, Ect1, NotEct};
    let mut draw = Draw(9);
    vec![
        ("one burst", every(400, 0, |_| (1_500, 1, NotEct))),
        (
            "a light load",
            every(800, 2_000_000, |_| (1_500, 1, NotEct)),
        ),
        (
            "exactly the rate",
            every(800, 1_500_000, |n| (1_500, n, Ect0)),
        ),
        (
            "a fourth too much",
            every(3_000, 1_200_000, |_| (1_500, 1, NotEct)),
        ),
        (
            "the same with ECN",
            every(3_000, 1_200_000, |_| (1_500, 1, Ect0)),
        ),
        (
            "three times too much, half of it with ECN",
            every(3_000, 500_000, |n| {
                (
                    1_500,
                    n % 5,
                    if n.is_multiple_of(2) { NotEct } else { Ect1 },
                )
            }),
        ),
        (
            "a fat flow and a sparse one",
            every(2_500, 1_000_000, |n| match n % 50 {
                0 => (60, 7, NotEct),
                _ => (1_500, 1, NotEct),
            }),
        ),
        (
            "overload that stops for a while and comes again",
            in_bursts(6, 500, 900_000, 300_000_000, |n| (1_400, n % 2, NotEct)),
        ),
        (
            "overload that comes again long after",
            in_bursts(4, 500, 900_000, 3_000_000_000, |n| (1_400, n % 2, Ect0)),
        ),
        (
            "bursts of many flows",
            in_bursts(20, 120, 1_000, 150_000_000, |n| (1_000, n % 37, NotEct)),
        ),
        ("all sizes, many flows, all at random", {
            let mut at = 0;
            let mut item = |id| {
                at += draw.below(1_600_000);
                let ecn = [NotEct, Ect0, Ect1, Ecn::Ce][small(&mut draw, 4)];
                let (len, flow) = (60 + draw.below(1_455), flow_below(&mut draw, 11));
                new(id, at, len, flow, ecn)
            };
            (0..4_000).map(&mut item).collect()
        }),
        ("flows that come and go", {
            let mut at = 0;
            let mut item = |id: usize| {
                at += if id.is_multiple_of(200) {
                    80_000_000
                } else {
                    draw.below(1_900_000)
                };
                let flow = u32::try_from(id / 150).unwrap() + flow_below(&mut draw, 3);
                let ecn = if flow.is_multiple_of(3) { Ect0 } else { NotEct };
                new(id, at, 200 + draw.below(1_300), flow, ecn)
            };
            (0..4_000).map(&mut item).collect()
        }),
        (
            "a jumbo among small ones",
            every(3_000, 400_000, |n| match n % 40 {
                0 => (9_000, 1, NotEct),
                _ => (300, n % 4, Ect0),
            }),
        ),
        ("bursts, and then hardly less than the rate", {
            // 100 packets of 1 ms come together. After 100 ms, when they may have been served, one comes every 1.5 ms.
            let mut items = every(3_000, 0, |_| (1_000, 1, NotEct));
            for item in &mut items {
                let (burst, place) = (item.id as u64 / 500, item.id as u64 % 500);
                item.at = burst * 800_000_000;
                if let Some(later) = place.checked_sub(100) {
                    item.at += 100_000_000 + later * 1_500_000;
                }
            }
            items
        }),
        ("a jumbo at the end of a burst, then small ones", {
            let mut items = every(6_000, 298_000, |n| match n {
                59 => (9_000, 1, NotEct),
                _ => (300, 1, NotEct),
            });
            items[..60].iter_mut().for_each(|item| item.at = 0);
            items
        }),
    ]
}

/// Returns `count` packets, `gap` ns apart; length, flow and ECN follow from the number.
pub(crate) fn every(count: usize, gap: u64, of: impl Fn(u32) -> (u64, u32, Ecn)) -> Vec<Item> {
    let item = |id: usize| {
        let (len, flow, ecn) = of(u32::try_from(id).unwrap());
        new(id, id as u64 * gap, len, flow, ecn)
    };
    (0..count).map(item).collect()
}

/// Returns `bursts` of `count` packets, `gap` ns apart, with a `pause` between bursts.
fn in_bursts(
    bursts: usize,
    count: usize,
    gap: u64,
    pause: u64,
    of: impl Fn(u32) -> (u64, u32, Ecn),
) -> Vec<Item> {
    let mut items = every(bursts * count, gap, of);
    for item in &mut items {
        item.at += (item.id / count) as u64 * pause;
    }
    items
}

fn small(draw: &mut Draw, end: u64) -> usize {
    usize::try_from(draw.below(end)).unwrap()
}

fn flow_below(draw: &mut Draw, end: u64) -> u32 {
    u32::try_from(draw.below(end)).unwrap()
}

fn new(id: usize, at: u64, len: u64, flow: u32, ecn: Ecn) -> Item {
    Item {
        id,
        at,
        len,
        flow,
        ecn,
        is_ect: ecn != Ecn::NotEct,
    }
}

/// Returns every discipline with its defaults.
pub(crate) fn disciplines() -> [Discipline; 8] {
    [
        Discipline::DropTail,
        Discipline::DropHead,
        Discipline::Codel(Codel::default()),
        Discipline::FqCodel(FqCodel::default()),
        Discipline::DualPi2(DualPi2::default()),
        Discipline::Red(Red::default()),
        Discipline::Pie(Pie::default()),
        Discipline::Weighted(Weights::default()),
    ]
}

#[test]
fn outcomes_of_disciplines_do_not_depend_on_when_the_caller_wakes() {
    for discipline in disciplines() {
        let limit = QueueLimit::Packets(200);
        let queue = Queue { limit, discipline };
        for (pattern, items) in patterns() {
            let mut link = Link::new(&bottleneck(&queue)).unwrap();
            let mut outcomes = Vec::new();
            for item in &items {
                while let Some(at) = link.next_at().filter(|at| at.0 <= item.at) {
                    outcomes.extend(link.poll(at));
                }
                link.offer(Nanos(item.at), Side::A, packet_of(item));
                let counters = link.counters(Side::A);
                assert_eq!(counters.packets, outcomes.len() as u64 + counters.held());
            }
            outcomes.extend(std::iter::from_fn(|| link.poll(Nanos::MAX)));
            let mut link = Link::new(&bottleneck(&queue)).unwrap();
            for item in &items {
                link.offer(Nanos(item.at), Side::A, packet_of(item));
            }
            let unattended = std::iter::from_fn(|| link.poll(Nanos::MAX));
            assert!(unattended.eq(outcomes), "{discipline:?}: {pattern}");
        }
    }
}

#[test]
fn a_packet_that_finds_the_server_idle_needs_no_room() {
    // A packet takes 1.5 ms.
    let limit = QueueLimit::Time(Nanos::from_millis(1));
    let items = every(3, 0, |_| (1_500, 1, Ecn::Ect1));
    for discipline in disciplines() {
        let served = PacketOutcome::Delivered {
            due: 1_500_000,
            mark: false,
        };
        let full = PacketOutcome::Dropped(0, DropCause::QueueFull);
        let outcomes = outcomes(&Queue { limit, discipline }, &items);
        assert_eq!(outcomes, [served, full, full], "{discipline:?}");
    }
}
