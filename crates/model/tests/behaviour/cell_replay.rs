//! A bottleneck with a light and a full load: cases that were computed by hand.

use std::sync::Arc;

use crate::drive::{ClockedLink, drain, dues, order, packet};
use farwire_model::{
    Bytes, CellReplay, DropCause, Effect, LIGHT_OPPORTUNITY, LightLoad, LightTrain, Link,
    LinkConfig, Nanos, Opportunities, Outcome, QueueLimit, Repeating, Side, StageSpec, Trace,
};

fn ms(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

/// The times of a full load, each of which serves one packet of CellReplay.
#[derive(Debug)]
struct Full(Repeating);

impl Opportunities for Full {
    fn at(&self, index: u64) -> Nanos {
        self.0.at(index)
    }

    fn bytes(&self) -> Bytes {
        LIGHT_OPPORTUNITY
    }
}

fn train(at: u64, delay: u64, deliveries: &[u64]) -> LightTrain {
    LightTrain {
        at: ms(at),
        delay: ms(delay),
        deliveries: deliveries.iter().map(|after| ms(*after)).collect(),
    }
}

/// Trains whose delays are 20, 40 and 30 ms; they repeat after 200 ms.
fn trains() -> Vec<LightTrain> {
    vec![
        train(0, 20, &[0, 5, 5, 9]),
        train(100, 40, &[0, 2]),
        train(200, 30, &[0]),
    ]
}

fn replay(light: LightLoad, full: &[u64], queue: QueueLimit) -> Effect {
    let full = full.iter().map(|time| ms(*time)).collect();
    Effect::CellReplay(CellReplay {
        light: Arc::new(light),
        full: Trace {
            opportunities: Arc::new(Full(Repeating::new(full).unwrap())),
            queue: queue.into(),
        },
    })
}

fn light(trains: Vec<LightTrain>, offsets: &[i64]) -> LightLoad {
    let offsets = offsets.iter().map(|ms| ms * 1_000_000).collect();
    LightLoad::new(trains, offsets).unwrap()
}

/// A light load, and a full load with an opportunity each 10 ms.
pub(crate) fn two_loads() -> Effect {
    let queue = QueueLimit::Packets(100);
    replay(light(trains(), &[]), &[10, 20, 30], queue)
}

/// Returns the due times of packets that come at these times in milliseconds with these lengths.
fn pass(stage: StageSpec, arrivals: &[(u64, u64)]) -> Vec<Option<u64>> {
    let mut link = Link::new(&LinkConfig::new(1, vec![stage], vec![])).unwrap();
    for (id, (at, len)) in arrivals.iter().enumerate() {
        link.offer(ms(*at), Side::A, packet(id, Bytes(*len)));
    }
    let whole = |due: Nanos| due.0 / 1_000_000;
    let dues = dues(&drain(&mut link, Nanos::MAX));
    dues.into_iter().map(|due| due.map(whole)).collect()
}

fn alone(effect: Effect) -> StageSpec {
    StageSpec::new("box.up.cell-replay", effect)
}

#[test]
fn the_delay_of_a_single_packet_is_on_the_line_between_two_trains() {
    let arrivals = [0, 50, 150, 250].map(|at| (at, 1_400));
    let dues = pass(alone(two_loads()), &arrivals);
    // 20 ms at 0, 30 at 50, 35 at 150; the trains begin again at 200.
    assert_eq!(dues, [20, 80, 185, 280].map(Some));
}

#[test]
fn a_burst_has_the_opportunities_of_its_train_and_then_those_of_the_full_load() {
    let burst = [(0, 1_400); 6];
    let later = [(15, 1_400), (60, 1_400)];
    let dues = pass(alone(two_loads()), &[&burst[..], &later].concat());
    // Four packets have the train's opportunities at 0, 5, 5 and 9 ms after the first one. The next two leave the light
    // load with the fourth at 29 ms, and are served at 30 and 40 ms. The one at 15 ms begins a train and leaves it at 38
    // ms, when a packet waits for the full load: it is served after that. The last one is alone.
    assert_eq!(dues, [20, 25, 25, 29, 30, 40, 50, 92].map(Some));
}

#[test]
fn packets_that_come_within_a_millisecond_are_one_train() {
    let mut link = Link::new(&LinkConfig::new(1, vec![alone(two_loads())], vec![])).unwrap();
    for id in 0..4_u64 {
        let at = Nanos::from_micros(5 * id);
        let number = usize::try_from(id).unwrap();
        link.offer(at, Side::A, packet(number, Bytes(1_400)));
    }
    let right = [20, 25, 25, 29].map(|at| Some(ms(at)));
    assert_eq!(dues(&drain(&mut link, Nanos::MAX)), right);
}

#[test]
fn packets_that_come_one_by_one_have_no_more_than_a_train_before_the_full_load() {
    // Twice as many as the full load serves.
    let arrivals: Vec<(u64, u64)> = (0..60).map(|number| (5 * number, 1_400)).collect();
    let dues = pass(alone(two_loads()), &arrivals);
    let dues: Vec<u64> = dues.into_iter().flatten().collect();
    assert_eq!(dues.len(), 60);
    let steady = dues[10..].windows(2).map(|pair| pair[1] - pair[0]);
    assert!(steady.clone().all(|gap| gap == 10), "{dues:?}");
    // One less than the full load serves is a light one.
    let arrivals: Vec<(u64, u64)> = (0..9).map(|number| (11 * number, 1_400)).collect();
    let delays = pass(alone(two_loads()), &arrivals)
        .into_iter()
        .zip(&arrivals);
    let delays: Vec<u64> = delays.map(|(due, (at, _))| due.unwrap() - at).collect();
    assert_eq!(delays, [20, 22, 24, 26, 28, 31, 33, 35, 37]);
}

#[test]
fn a_packet_behind_its_train_comes_to_the_full_load_after_the_delay() {
    let slow = light(vec![train(0, 5, &[0, 9]), train(100, 5, &[0])], &[]);
    let loads = replay(slow, &[2], QueueLimit::Packets(100));
    let arrivals = [&[(0, 1_400); 4][..], &[(12, 1_400)]].concat();
    // The last one comes before the full load would have served the others, at 18 ms, and leaves after 5 ms, not after 9.
    let right = [5, 14, 14, 16, 18].map(Some);
    assert_eq!(pass(alone(loads), &arrivals), right);
}

#[test]
fn packets_that_the_full_load_dropped_delay_no_later_train() {
    let loads = replay(light(trains(), &[]), &[10, 20, 30], QueueLimit::Packets(2));
    let burst = [(0, 1_400); 60];
    let dues = pass(alone(loads), &[&burst[..], &[(105, 1_400)]].concat());
    let passed = dues[..60].iter().flatten().count();
    assert_eq!(passed, 4 + 1 + 2);
    // The train at 105 ms has the delay of that time.
    assert_eq!(dues[60], Some(144));
}

#[test]
fn short_packets_share_an_opportunity_and_long_ones_take_several() {
    let dues = pass(alone(two_loads()), &[(0, 400); 4]);
    // The fourth one does not fit into the 200 bytes that are left.
    assert_eq!(dues, [20, 20, 20, 25].map(Some));
    let dues = pass(alone(two_loads()), &[(0, 1_514), (0, 1_286), (0, 1_400)]);
    assert_eq!(dues, [20, 25, 25].map(Some));
}

#[test]
fn the_offset_of_a_packet_depends_on_its_size_and_keeps_the_order() {
    let steady = || vec![train(0, 20, &[0]), train(100, 20, &[0])];
    let of = |offsets: &[i64], arrivals: &[(u64, u64)]| {
        let queue = QueueLimit::Packets(100);
        let loads = replay(light(steady(), offsets), &[7, 14, 35], queue);
        pass(alone(loads), arrivals)
    };
    let sizes = [(0, 50), (100, 150), (200, 200), (300, 900)];
    assert_eq!(of(&[1, 3], &sizes), [21, 122, 223, 323].map(Some));
    // A packet does not leave before it comes.
    assert_eq!(of(&[-5], &[(0, 100), (30, 100)]), [15, 45].map(Some));
    assert_eq!(of(&[-30], &[(0, 100)]), [Some(0)]);
    // The second one would overtake the first: it leaves the light load with it, and joins the full load.
    assert_eq!(of(&[10, 0], &[(0, 100), (5, 200)]), [30, 35].map(Some));
}

#[test]
fn only_the_full_load_has_a_queue_that_drops() {
    let loads = replay(light(trains(), &[]), &[10, 20, 30], QueueLimit::Packets(1));
    let config = LinkConfig::new(1, vec![alone(loads)], vec![]);
    let mut link = Link::new(&config).unwrap();
    for id in 0..8 {
        link.offer(Nanos::ZERO, Side::A, packet(id, Bytes(1_400)));
    }
    let outcomes = drain(&mut link, Nanos::MAX);
    let dropped: Vec<(u64, Nanos)> = outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            Outcome::Drop { id, at, cause, .. } => {
                assert_eq!(*cause, DropCause::QueueFull);
                Some((id.0, *at))
            }
            _ => None,
        })
        .collect();
    assert_eq!(dropped, [(6, ms(29)), (7, ms(29))]);
}

#[test]
fn both_loads_follow_the_clock_of_the_schedules() {
    let config = LinkConfig::new(1, vec![alone(two_loads())], vec![]);
    let mut clocked = ClockedLink::new(config);
    let mut right = Vec::new();
    let mut offer = |clocked: &mut ClockedLink, at, due| {
        let packet = packet(right.len(), Bytes(1_400));
        clocked.link.offer(ms(at), Side::A, packet);
        right.push(Some(ms(due)));
    };
    // The delay stays at 30 ms.
    clocked.order(10, order(false, Some(50)));
    for at in [20, 120, 220] {
        offer(&mut clocked, at, at + 30);
    }
    clocked.order(300, order(true, Some(150)));
    offer(&mut clocked, 300, 335);
    // A burst has the train of that time, and then the full load as it was in the 100 ms around: an opportunity each 10 ms.
    clocked.order(400, order(false, Some(50)));
    for due in [430, 435, 435, 439, 440, 450] {
        offer(&mut clocked, 400, due);
    }
    assert_eq!(dues(&drain(&mut clocked.link, Nanos::MAX)), right);
}

#[test]
fn packets_inside_keep_their_order_when_the_loads_end() {
    let stage = StageSpec {
        schedule: vec![(ms(22), Effect::Nothing)].into(),
        ..alone(two_loads())
    };
    let arrivals = [&[(0, 1_400); 6][..], &[(24, 1_400), (31, 1_400)]].concat();
    let dues = pass(stage, &arrivals);
    assert_eq!(dues, [20, 25, 25, 29, 29, 29, 29, 31].map(Some));
}

#[test]
fn a_light_load_without_an_end_or_an_order_is_refused() {
    for (trains, right) in [
        (vec![train(0, 5, &[0])], "at least two trains"),
        (vec![train(1, 5, &[0]), train(2, 5, &[0])], "is at 0"),
        (vec![train(0, 5, &[0]), train(0, 5, &[0])], "after 0"),
        (vec![train(0, 5, &[]), train(2, 5, &[0])], "one delivery"),
        (vec![train(0, 5, &[3, 2]), train(2, 5, &[0])], "ascending"),
        (
            vec![train(0, 5, &[0]), train(3, 5, &[0]), train(2, 5, &[0])],
            "in order of time",
        ),
    ] {
        let refused = LightLoad::new(trains, vec![]).unwrap_err().to_string();
        assert!(refused.contains(right), "{refused}");
    }
}
