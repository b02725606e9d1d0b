//! Servers, gates and queues whose conditions change: by a trace, by a schedule, or by a call.

use std::sync::Arc;

use crate::discipline::disciplines;
use crate::drive::{ClockedLink, Draw, drain, dues, order, packet};
use farwire_model::{
    BitsPerSec, Bytes, CheckedPaths, Codel, Discipline, DropCause, Ecn, Effect, Fluctuation,
    Framing, Gate, Link, LinkConfig, Nanos, Opportunities, Outcome, PathSpec, Pie, Queue,
    QueueLimit, Rate, Repeating, Schedule, ScheduleClock, ScheduleOrder, Side, StageSpec, Steps,
    Toffee, Trace,
};

const MANY: QueueLimit = QueueLimit::Packets(100_000);

fn ms(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

fn queued(rate: Option<&str>, queue: impl Into<Queue>) -> Effect {
    Effect::Rate(Rate {
        rate: rate.map(|rate| rate.parse::<BitsPerSec>().unwrap()),
        fluctuation: None,
        burst: None,
        framing: Framing::L2,
        queue: queue.into(),
    })
}

fn rate(rate: &str) -> Effect {
    queued(Some(rate), MANY)
}

fn scheduled(effect: Effect, schedule: Vec<(Nanos, Effect)>) -> LinkConfig {
    let stage = StageSpec {
        schedule: schedule.into(),
        ..StageSpec::new("box.up", effect)
    };
    LinkConfig::new(1, vec![stage], vec![])
}

fn alone(effect: Effect) -> LinkConfig {
    scheduled(effect, vec![])
}

fn offer(link: &mut Link, at: Nanos, id: usize, len: u64) {
    link.offer(at, Side::A, packet(id, Bytes(len)));
}

fn traced(times: &[u64]) -> Effect {
    let times = times.iter().map(|time| ms(*time)).collect();
    Effect::Trace(Trace {
        opportunities: Arc::new(Repeating::new(times).unwrap()),
        queue: MANY.into(),
    })
}

#[test]
fn a_trace_serves_at_its_times_and_wraps() {
    let mut link = Link::new(&alone(traced(&[1, 2, 5, 5]))).unwrap();
    // The two packets of 752 bytes share an opportunity. The 2,000 bytes take two, and the rest of these serves the
    // next packet.
    for (id, len) in [752, 752, 2_000, 1_008].into_iter().enumerate() {
        offer(&mut link, Nanos::ZERO, id, len);
    }
    let first: Vec<_> = dues(&drain(&mut link, Nanos::MAX));
    assert_eq!(first, [1, 1, 5, 5].map(|time| Some(ms(time))));
    // The second opportunity at 5 ms was not used up, but no packet waited. At 6 ms the queue is empty. The period is 5
    // ms.
    offer(&mut link, Nanos(6_000_001), 0, 1_504);
    offer(&mut link, Nanos(6_000_001), 1, 1);
    let next: Vec<_> = dues(&drain(&mut link, Nanos::MAX));
    assert_eq!(next, [Some(ms(7)), Some(ms(10))]);
}

/// A model of Mahimahi's link: each opportunity takes up to 1,504 bytes of the waiting packets.
fn mahimahi(times: &[u64], arrivals: &[(u64, u64)]) -> Vec<Option<Nanos>> {
    let mut dues = vec![None; arrivals.len()];
    let (mut served, mut left) = (0, arrivals[0].1);
    for index in 0.. {
        let period = times[times.len() - 1] * 1_000_000 * (index / times.len()) as u64;
        let now = period + times[index % times.len()] * 1_000_000;
        let mut budget = 1_504;
        while served < arrivals.len() && arrivals[served].0 <= now && budget > 0 {
            let taken = left.min(budget);
            (budget, left) = (budget - taken, left - taken);
            if left == 0 {
                dues[served] = Some(Nanos(now));
                served += 1;
                left = arrivals.get(served).map_or(0, |next| next.1);
            }
        }
        if served == arrivals.len() {
            break;
        }
    }
    dues
}

#[test]
fn a_trace_is_served_as_mahimahi_does() {
    let times = [0, 3, 3, 4, 9, 9, 9, 10, 17, 30];
    for seed in 0..20 {
        let mut draw = Draw(seed);
        let mut at = 0;
        let arrivals: Vec<(u64, u64)> = (0..2_000)
            .map(|_| {
                // No packet comes exactly at a millisecond, because Mahimahi does not define which event is first at
                // one instant.
                at += 2 * draw.below(2_000_000 + 200_000 * seed) + 2;
                (
                    at / 1_000_000 * 1_000_000 + 1 + at % 999_998,
                    60 + draw.below(4_000),
                )
            })
            .collect();
        let mut link = Link::new(&alone(traced(&times))).unwrap();
        for (id, (at, len)) in arrivals.iter().enumerate() {
            offer(&mut link, Nanos(*at), id, *len);
        }
        let ours = dues(&drain(&mut link, Nanos::MAX));
        assert!(ours == mahimahi(&times, &arrivals), "seed {seed}");
    }
}

#[test]
fn a_link_that_waits_begins_with_its_first_packet() {
    let loss = |share: &str| Effect::Loss(share.parse().unwrap());
    let config = |loss_at| LinkConfig {
        waits: true,
        ..scheduled(loss("0%"), vec![(loss_at, loss("100%"))])
    };
    // The step is due 5 ms behind the first packet, which comes after 100 ms.
    let mut link = Link::new(&config(ms(5))).unwrap();
    assert_eq!(link.poll(ms(50)), None);
    let arrivals = [100, 104, 105, 300].map(ms);
    for (id, at) in arrivals.into_iter().enumerate() {
        link.offer(at, Side::A, packet(id, Bytes(1_000)));
    }
    let right = [Some(ms(100)), Some(ms(104)), None, None];
    assert_eq!(dues(&drain(&mut link, Nanos::MAX)), right);
    // Conditions that change while it waits apply from the first packet on.
    let mut link = Link::new(&config(ms(5))).unwrap();
    link.change(ms(20), &config(ms(50)).paths).unwrap();
    for (id, at) in arrivals.into_iter().enumerate() {
        link.offer(at, Side::A, packet(id, Bytes(1_000)));
    }
    let right = [Some(ms(100)), Some(ms(104)), Some(ms(105)), None];
    assert_eq!(dues(&drain(&mut link, Nanos::MAX)), right);
}

#[test]
fn a_class_that_is_removed_before_the_first_packet_keeps_its_counters() {
    let path = |side, class| PathSpec {
        side,
        class,
        stages: vec![],
    };
    let classes = |number: u16| {
        let paths = Side::BOTH.map(|side| (0..number).map(move |class| path(side, class)));
        paths.into_iter().flatten().collect::<Vec<_>>()
    };
    let mut link = Link::new(&LinkConfig {
        waits: true,
        paths: classes(2),
        ..LinkConfig::default()
    })
    .unwrap();
    link.change(ms(1), &classes(1)).unwrap();
    link.offer(ms(2), Side::A, packet(0, Bytes(1_000)));
    let counted = Side::BOTH.map(|side| link.by_class(side).len());
    assert_eq!(counted, [2, 2]);
    assert_eq!(link.by_class(Side::A)[0].packets, 1);
}

#[test]
fn the_times_of_a_trace_begin_with_the_first_packet_of_a_link_that_waits() {
    let times = Repeating::new(vec![ms(3), ms(10)]).unwrap();
    let trace = Effect::Trace(Trace {
        opportunities: Arc::new(times),
        queue: QueueLimit::Packets(100).into(),
    });
    let mut link = Link::new(&LinkConfig {
        waits: true,
        ..alone(trace)
    })
    .unwrap();
    for id in 0..3 {
        link.offer(ms(107), Side::A, packet(id, Bytes(1_504)));
    }
    let right = [110, 117, 120].map(|at| Some(ms(at)));
    assert_eq!(dues(&drain(&mut link, Nanos::MAX)), right);
}

#[test]
fn two_classes_share_a_server_by_its_name() {
    let path = |side, class, own: Option<&str>| {
        let own = own.map(|loss| {
            let effect = Effect::Loss(loss.parse().unwrap());
            StageSpec::new("box.voice.up.loss", effect)
        });
        let shared = StageSpec::new("box.up.rate", rate("8mbit"));
        let stages = [shared].into_iter().chain(own).collect();
        PathSpec {
            side,
            class,
            stages,
        }
    };
    let nothing = |class| PathSpec {
        side: Side::B,
        class,
        stages: vec![],
    };
    let config = LinkConfig {
        paths: vec![
            path(Side::A, 0, None),
            path(Side::A, 1, Some("100%")),
            nothing(0),
            nothing(1),
        ],
        ..LinkConfig::default()
    };
    let mut link = Link::new(&config).unwrap();
    for id in 0..6 {
        let mut packet = packet(id, Bytes(1_000));
        packet.class = [0, 1, 9][id % 3];
        link.offer(Nanos::ZERO, Side::A, packet);
    }
    let served: Vec<(u64, bool)> = drain(&mut link, Nanos::MAX)
        .iter()
        .map(|outcome| match outcome {
            Outcome::Deliver { due, .. } => (due.0, true),
            Outcome::Drop { at, .. } => (at.0, false),
            Outcome::Copied { .. } => panic!("nothing copies"),
        })
        .collect();
    // They are served one after the other; a class that the link does not have is class 0.
    let expected = [true, false, true, true, false, true];
    let expected: Vec<_> = (1..).map(|n| n * 1_000_000).zip(expected).collect();
    assert_eq!(served, expected);
    let by_class: Vec<(u64, u64)> = link
        .by_class(Side::A)
        .iter()
        .map(|counters| (counters.delivered, counters.dropped(DropCause::Loss)))
        .collect();
    assert_eq!(by_class, [(4, 0), (0, 2)]);
}

fn gate(open: bool) -> Effect {
    let queue = QueueLimit::Packets(3);
    Effect::Gate(Gate { open, queue })
}

#[test]
fn a_gate_holds_packets_until_its_schedule_opens_it() {
    let config = scheduled(
        gate(true),
        vec![(ms(10), gate(false)), (ms(30), gate(true))],
    );
    let mut link = Link::new(&config).unwrap();
    for (id, at) in [9, 10, 11, 29, 29, 30, 31].into_iter().enumerate() {
        offer(&mut link, ms(at), id, 1_000);
    }
    let outcomes = drain(&mut link, Nanos::MAX);
    let held = [
        Some(9),
        Some(30),
        Some(30),
        Some(30),
        None,
        Some(30),
        Some(31),
    ];
    assert_eq!(dues(&outcomes), held.map(|due| due.map(ms)));
    let order: Vec<u64> = outcomes.iter().map(|outcome| outcome.id().0).collect();
    assert_eq!(order, [0, 4, 1, 2, 3, 5, 6]);
}

#[test]
fn a_gate_opens_when_the_link_is_changed() {
    let mut link = Link::new(&alone(gate(false))).unwrap();
    offer(&mut link, ms(1), 0, 1_000);
    offer(&mut link, ms(2), 1, 1_000);
    assert_eq!((link.poll(ms(50)), link.next_at()), (None, None));
    link.change(ms(60), &alone(gate(true)).paths).unwrap();
    assert_eq!(link.next_at(), Some(ms(60)));
    assert_eq!(dues(&drain(&mut link, ms(60))), [Some(ms(60)); 2]);
}

/// Returns when a packet of 10,000 bytes and one behind it, both arriving at 0, are done under `first` and later
/// `changes`.
fn done(first: Effect, changes: &[(u64, Effect)]) -> [Nanos; 2] {
    let by_schedule = {
        let changes = changes.iter().map(|(at, effect)| (ms(*at), effect.clone()));
        let mut link = Link::new(&scheduled(first.clone(), changes.collect())).unwrap();
        (0..2).for_each(|id| offer(&mut link, Nanos::ZERO, id, 10_000));
        dues(&drain(&mut link, Nanos::MAX))
    };
    let mut link = Link::new(&alone(first)).unwrap();
    (0..2).for_each(|id| offer(&mut link, Nanos::ZERO, id, 10_000));
    for (at, effect) in changes {
        link.change(ms(*at), &alone(effect.clone()).paths).unwrap();
    }
    let by_hand = dues(&drain(&mut link, Nanos::MAX));
    assert_eq!(by_schedule, by_hand);
    [by_hand[0].unwrap(), by_hand[1].unwrap()]
}

#[test]
fn a_new_rate_applies_to_the_rest_of_the_packet_in_service() {
    // A packet takes 10 ms; 6,000 bytes are left at 4 ms.
    assert_eq!(done(rate("8mbit"), &[]), [ms(10), ms(20)]);
    assert_eq!(done(rate("8mbit"), &[(4, rate("16mbit"))]), [ms(7), ms(12)]);
    assert_eq!(done(rate("8mbit"), &[(4, rate("4mbit"))]), [ms(16), ms(36)]);
    let twice = [(4, rate("16mbit")), (6, rate("8mbit"))];
    assert_eq!(done(rate("8mbit"), &twice), [ms(8), ms(18)]);
    let stall = queued(None, MANY);
    let stalled = [(4, stall.clone()), (10, rate("8mbit"))];
    assert_eq!(done(rate("8mbit"), &stalled), [ms(16), ms(26)]);
    assert_eq!(done(stall, &[(10, rate("8mbit"))]), [ms(20), ms(30)]);
    let toffee = |millis| {
        Effect::Toffee(Toffee {
            delay: ms(millis),
            dynamic: None,
            queue: MANY.into(),
        })
    };
    assert_eq!(done(toffee(10), &[(4, toffee(20))]), [ms(16), ms(36)]);
}

#[test]
fn the_rest_of_a_packet_at_a_fluctuating_rate_is_served_at_the_new_rate() {
    let fluctuating = |spread: &str| {
        let Effect::Rate(steady) = rate("8mbit") else {
            panic!("a rate");
        };
        let spread = spread.parse().unwrap();
        let fluctuation = Some(Fluctuation {
            spread,
            hold: ms(1),
        });
        Effect::Rate(Rate {
            fluctuation,
            ..steady
        })
    };
    assert_eq!(
        done(fluctuating("0%"), &[(4, rate("16mbit"))]),
        [ms(7), ms(12)]
    );
    assert_eq!(
        done(rate("16mbit"), &[(2, fluctuating("0%"))]),
        [ms(8), ms(18)]
    );
    // Whatever is left at 4 ms takes twice as long at half the rate.
    let [fast, _] = done(fluctuating("60%"), &[(4, rate("16mbit"))]);
    let [slow, _] = done(fluctuating("60%"), &[(4, rate("8mbit"))]);
    let (fast, slow) = (fast - ms(4), slow - ms(4));
    assert!(fast > Nanos::ZERO && fast != ms(3), "{fast}");
    assert!((2 * fast.0).abs_diff(slow.0) <= 2, "{fast} {slow}");
}

/// Returns how many of `count` packets of 1,000 bytes that arrive together find room.
fn admitted(link: &mut Link, at: Nanos, count: usize) -> u64 {
    drain(link, at);
    let before = link.counters(Side::A).held();
    (0..count).for_each(|id| offer(link, at, id, 1_000));
    drain(link, at);
    link.counters(Side::A).held() - before
}

#[test]
fn a_queue_in_time_follows_a_rate_that_a_schedule_changes() {
    let queued = |rate| queued(Some(rate), QueueLimit::Time(ms(20)));
    let changes = vec![(ms(10), queued("4mbit")), (ms(60), queued("16mbit"))];
    let mut link = Link::new(&scheduled(queued("8mbit"), changes)).unwrap();
    // One packet is in service, and 20,000 bytes wait.
    assert_eq!(admitted(&mut link, Nanos::ZERO, 40), 21);
    // First 11 still wait, then 12. At half the rate, 10 may wait: there is room again from 14 ms on, when the 13th is
    // in service.
    assert_eq!(admitted(&mut link, Nanos(9_500_000), 1), 1);
    assert_eq!(admitted(&mut link, Nanos(10_500_000), 1), 0);
    assert_eq!(admitted(&mut link, Nanos(12_500_000), 1), 0);
    assert_eq!(admitted(&mut link, Nanos(14_500_000), 3), 1);
    // All are done by 36 ms; at twice the first rate, 40 wait in addition to the one in service.
    assert_eq!(admitted(&mut link, ms(70), 60), 41);
}

#[test]
fn a_queue_in_time_follows_a_rate_that_fluctuates() {
    let fluctuation = Some(Fluctuation {
        spread: "90%".parse().unwrap(),
        hold: Nanos::from_secs(1),
    });
    let Effect::Rate(steady) = queued(Some("10mbit"), QueueLimit::Time(ms(100))) else {
        panic!("a rate");
    };
    let mut link = Link::new(&alone(Effect::Rate(Rate {
        fluctuation,
        ..steady
    })))
    .unwrap();
    let mut all = Vec::new();
    for second in 0..50 {
        // All packets that wait are served before the second is over.
        let at = Nanos::from_secs(second);
        (0..400).for_each(|id| offer(&mut link, at, id, 1_000));
        let dues = dues(&drain(&mut link, at + ms(999)));
        let waited: Vec<Nanos> = dues.into_iter().flatten().collect();
        // At the rate at which the first packet is served, those behind it take 100 ms.
        let each = (waited[0] - at).0;
        let fits = 100_000_000 / each;
        let admitted = waited.len() as u64 - 1;
        assert!(admitted.abs_diff(fits) <= 1, "{admitted} of {fits}");
        all.push(admitted);
    }
    // With a rate between 1 and 19 Mbit/s, between 12 and 237 packets fit.
    let (least, most) = (all.iter().min().unwrap(), all.iter().max().unwrap());
    assert!(*least < 40 && *most > 200, "{all:?}");
}

#[test]
fn a_schedule_applies_before_other_events_at_its_instant() {
    let loss = |share: &str| Effect::Loss(share.parse().unwrap());
    let config = scheduled(
        loss("0%"),
        vec![(ms(5), loss("100%")), (ms(6), Effect::Nothing)],
    );
    let mut link = Link::new(&config).unwrap();
    for (id, at) in [4_999_999, 5_000_000, 5_999_999, 6_000_000]
        .into_iter()
        .enumerate()
    {
        offer(&mut link, Nanos(at), id, 1_000);
    }
    let passed: Vec<bool> = dues(&drain(&mut link, Nanos::MAX))
        .iter()
        .map(Option::is_some)
        .collect();
    assert_eq!(passed, [true, false, false, true]);
    // A packet whose service begins at that instant has the new rate from its first bit on.
    assert_eq!(
        done(rate("8mbit"), &[(10, rate("80mbit"))]),
        [ms(10), ms(11)]
    );
}

fn under(limit: QueueLimit, discipline: Discipline) -> Queue {
    Queue { limit, discipline }
}

#[test]
fn a_stopped_link_returns_held_packets_even_in_a_stall() {
    let stalls = disciplines().map(|discipline| queued(None, under(MANY, discipline)));
    let closed = Effect::Gate(Gate {
        open: false,
        queue: MANY,
    });
    for stall in stalls.into_iter().chain([closed]) {
        let mut link = Link::new(&alone(stall.clone())).unwrap();
        (0..50).for_each(|id| offer(&mut link, ms(id as u64), id, 1_000));
        assert_eq!(link.poll(Nanos::from_secs(9)), None);
        assert_eq!(link.next_at(), None);
        let mut held: Vec<u64> = link.stop().iter().map(|(id, _)| id.0).collect();
        held.sort_unstable();
        assert_eq!(held, (0..50).collect::<Vec<_>>(), "{stall:?}");
        assert_eq!(link.counters(Side::A).held(), 50);
        assert!(link.change(Nanos::from_secs(9), &[]).is_err());
    }
}

#[test]
fn a_new_discipline_takes_over_waiting_packets_with_their_arrival_times() {
    let config = |discipline| alone(queued(Some("8mbit"), under(MANY, discipline)));
    let mut link = Link::new(&config(Discipline::DropTail)).unwrap();
    (0..400).for_each(|id| offer(&mut link, Nanos::ZERO, id, 1_500));
    let codel = Discipline::Codel(Codel::default());
    link.change(ms(100), &config(codel).paths).unwrap();
    let mut drops = Vec::new();
    let mut delivered = 0;
    for outcome in drain(&mut link, Nanos::MAX) {
        match outcome {
            Outcome::Drop { at, .. } => drops.push(at),
            _ => delivered += 1,
        }
    }
    // Packets are above target already at the next dequeue (100.5 ms), so the first drop is an interval later, at a
    // multiple of 1.5 ms.
    assert_eq!(drops[0], ms(201));
    assert_eq!(drops.len() + delivered, 400);
}

#[test]
fn a_pie_that_takes_over_a_long_queue_drops_nothing_for_max_burst() {
    let config = |discipline| alone(queued(Some("8mbit"), under(MANY, discipline)));
    let mut link = Link::new(&config(Discipline::DropTail)).unwrap();
    (0..400).for_each(|id| offer(&mut link, Nanos::ZERO, id, 1_500));
    link.change(ms(100), &config(Discipline::Pie(Pie::default())).paths)
        .unwrap();
    // They come after the first tick, ten each millisecond, so that some are dropped as soon as drops are allowed.
    for id in 400..4_000 {
        let at = ms(120) + Nanos((id as u64 - 400) * 100_000);
        offer(&mut link, at, id, 1_500);
    }
    let drops = drain(&mut link, Nanos::MAX)
        .into_iter()
        .filter_map(|outcome| match outcome {
            Outcome::Drop { at, .. } => Some(at),
            _ => None,
        });
    let first = drops.min().unwrap();
    // The tenth tick uses up the 150 ms.
    assert!((ms(250)..ms(265)).contains(&first), "{first}");
}

#[test]
fn a_change_of_discipline_loses_and_reorders_nothing() {
    let config = |discipline| alone(queued(Some("8mbit"), under(MANY, discipline)));
    let pairs = disciplines().map(|first| disciplines().map(|second| (first, second)));
    for (first, second) in pairs.into_iter().flatten() {
        for ecn in [Ecn::NotEct, Ecn::Ect1] {
            let mut link = Link::new(&config(first)).unwrap();
            for id in 0..20 {
                let mut packet = packet(id, Bytes(1_000));
                packet.ecn = ecn;
                link.offer(Nanos::ZERO, Side::A, packet);
            }
            // At this time, no AQM has begun to drop.
            link.change(Nanos(1_500_000), &config(second).paths)
                .unwrap();
            let expected: Vec<_> = (1..=20).map(|n| Some(ms(n))).collect();
            assert_eq!(
                dues(&drain(&mut link, Nanos::MAX)),
                expected,
                "{first:?} {second:?} {ecn:?}"
            );
        }
    }
}

#[test]
fn a_bottleneck_that_is_removed_drops_nothing_any_more() {
    for discipline in disciplines() {
        let stage = queued(Some("8mbit"), under(MANY, discipline));
        let mut link = Link::new(&alone(stage)).unwrap();
        (0..2_000).for_each(|id| offer(&mut link, Nanos::ZERO, id, 1_500));
        // The AQMs drop packets by then, or would soon.
        let before = drain(&mut link, ms(100));
        link.change(ms(100), &[]).unwrap();
        let after = drain(&mut link, ms(100));
        assert!(after.len() > 20, "{discipline:?}");
        assert_eq!(before.len() + after.len(), 2_000, "{discipline:?}");
        let all_now =
            |outcome: &Outcome| matches!(outcome, Outcome::Deliver { due, .. } if *due == ms(100));
        assert!(after.iter().all(all_now), "{discipline:?}");
        offer(&mut link, ms(101), 0, 1_500);
        assert_eq!(dues(&drain(&mut link, ms(101))), [Some(ms(101))]);
    }
}

#[test]
fn a_delay_that_is_removed_lets_nothing_overtake() {
    let delay = farwire_model::Delay {
        time: ms(100),
        ..farwire_model::Delay::default()
    };
    let config = alone(Effect::Delay(delay));
    let mut link = Link::new(&config).unwrap();
    (0..50).for_each(|id| offer(&mut link, ms(id as u64), id, 1_000));
    link.change(ms(50), &[]).unwrap();
    (50..200).for_each(|id| offer(&mut link, ms(id as u64), id, 1_000));
    let expected = (0..200).map(|id| match id {
        // First come the packets that passed it, then those that would overtake the last of them, then all others
        // without delay.
        0..50 => Some(ms(id + 100)),
        50..149 => Some(ms(149)),
        _ => Some(ms(id)),
    });
    assert_eq!(
        dues(&drain(&mut link, Nanos::MAX)),
        expected.collect::<Vec<_>>()
    );
    assert_eq!(link.stages().count(), 0);
}

/// Rates that change with every millisecond.
#[derive(Debug)]
struct EveryMillisecond {
    rates: [Effect; 2],
}

impl Steps for EveryMillisecond {
    fn step(&self, index: u64) -> Option<(Nanos, Effect)> {
        let rate = &self.rates[usize::from(index.is_multiple_of(2))];
        Some((ms(index), rate.clone()))
    }

    fn count_until(&self, time: Nanos) -> u64 {
        time.0 / 1_000_000 + 1
    }

    fn extremes(&self) -> &[Effect] {
        &self.rates
    }
}

#[test]
fn computed_steps_have_the_same_outcomes_as_a_list() {
    let steps = Arc::new(EveryMillisecond {
        rates: [rate("3mbit"), rate("9mbit")],
    });
    let list: Vec<_> = (0..400).filter_map(|index| steps.step(index)).collect();
    let mut computed = scheduled(rate("9mbit"), Vec::new());
    computed.paths[0].stages[0].schedule = Schedule::Computed(steps);
    let listed = scheduled(rate("9mbit"), list);
    // Bursts with pauses: the steps of a pause are skipped.
    let arrivals = |link: &mut Link| {
        let mut all = Vec::new();
        for id in 0..60 {
            let at = ms(id as u64 / 6 * 30) + Nanos(id as u64 * 7_777);
            offer(link, at, id, 100 + 20 * id as u64);
            while let Some(outcome) = link.poll(at) {
                all.push(outcome);
            }
        }
        all.extend(drain(link, ms(390)));
        dues(&all)
    };
    let [one, other] = [computed, listed].map(|config| arrivals(&mut Link::new(&config).unwrap()));
    assert_eq!(one, other);
    assert_eq!(one.iter().flatten().count(), 60);
}

#[test]
fn computed_steps_follow_the_clock_of_the_schedules() {
    let steps = Arc::new(EveryMillisecond {
        rates: [rate("1mbit"), rate("1gbit")],
    });
    let mut config = scheduled(rate("1gbit"), Vec::new());
    config.paths[0].stages[0].schedule = Schedule::Computed(steps);
    let mut link = Link::new(&config).unwrap();
    let paths = CheckedPaths::new(config.paths).unwrap();
    let stop_at_1ms = ScheduleOrder {
        runs: Some(false),
        to: Some(ms(1)),
    };
    let clock = ScheduleClock::default();
    link.change_by_clock(ms(10), paths, clock, stop_at_1ms)
        .unwrap();
    offer(&mut link, ms(20), 0, 1_250);
    assert_eq!(dues(&drain(&mut link, Nanos::MAX)), [Some(ms(30))]);
}

#[test]
fn a_trace_of_times_follows_the_clock_of_the_schedules() {
    let times = [10, 20, 30, 500, 501, 502, 503, 1_000];
    let mut clocked = ClockedLink::new(alone(traced(&times)));
    let mut right = Vec::new();
    let mut burst = |clocked: &mut ClockedLink, at, served: &[u64]| {
        for due in served {
            offer(&mut clocked.link, ms(at), right.len(), 1_504);
            right.push(Some(ms(*due)));
        }
    };
    // The second packet waits for 20 ms when the clock jumps to 500 ms.
    burst(&mut clocked, 5, &[10, 15, 16]);
    clocked.order(15, order(true, Some(500)));
    // The times from 404 ms to 504 ms repeat: four of them, after 96 ms.
    clocked.order(40, order(false, Some(504)));
    burst(&mut clocked, 50, &[136, 137, 138, 139, 236]);
    // It runs on from 504 ms, to 1000 ms and to the first time of the next period.
    clocked.order(300, order(true, None));
    burst(&mut clocked, 310, &[796, 806]);
    // Nothing is served at 400 ms, nor in the 100 ms before.
    clocked.order(900, order(false, Some(400)));
    burst(&mut clocked, 910, &[950]);
    clocked.order(950, order(true, Some(500)));
    assert_eq!(dues(&drain(&mut clocked.link, Nanos::MAX)), right);
}

#[test]
fn the_times_of_a_trace_are_counted_up_to_a_time() {
    let times = [1, 1, 4].map(ms);
    let trace = Repeating::new(times.to_vec()).unwrap();
    let counts = [0, 1, 2, 4, 5, 6, 400].map(|until| trace.count_before(ms(until)));
    assert_eq!(counts, [0, 0, 2, 2, 3, 5, 299]);
}
