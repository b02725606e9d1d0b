//! The events of a link for its observers: ten samples per second, and every change.

use std::sync::Arc;

use conditions::outline::OutlinePeriod;
use model::{Nanos, Waiting};
use serde::Serialize;
use tokio::sync::broadcast;
use utoipa::ToSchema;

use super::bounded_history::BoundedHistory;
use super::counters::DirectionCounters;
use super::moment::{WallClock, seconds, since};
use super::view::ChangeView;
use crate::forward::round_trips::RoundTripTimes;
use crate::forward::thread::LinkReading;

/// The interval between two samples of an observed link.
pub(super) const EVERY: Nanos = Nanos::from_millis(100);

/// The largest number of events kept for observers that reconnect: a minute of samples.
const KEPT: usize = 600;

/// The number of events by which a reader may lag behind. A slower reader is disconnected.
const LAG: usize = 64;

/// An event with its number; the numbers are consecutive.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) id: u64,
    pub(crate) what: EventKind,
}

impl Event {
    /// Returns the memory of the event in bytes.
    fn memory(&self) -> usize {
        let what = match &self.what {
            EventKind::Change(change) => {
                size_of::<ChangeView>()
                    + change.conditions.memory()
                    + change.says.capacity()
                    + change.at.capacity()
            }
            EventKind::Sample(sample) => {
                size_of::<LinkSample>()
                    + sample.at.capacity()
                    + sample.up.counters.memory()
                    + sample.down.counters.memory()
            }
            EventKind::End => 0,
        };
        // An event that is shared has two counters of its references.
        2 * size_of::<usize>() + size_of::<Self>() + what
    }
}

/// The content of an event.
#[derive(Debug)]
pub(crate) enum EventKind {
    Sample(Box<LinkSample>),
    Change(Box<ChangeView>),
    /// The link ended; no event follows.
    End,
}

/// The values of a link for a span of about a tenth of a second.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct LinkSample {
    /// The end of the span: RFC 3339.
    pub(crate) at: String,
    /// The end of the span in seconds since the link's start.
    pub(crate) at_s: f64,
    /// The length of the span in seconds.
    pub(crate) span_s: f64,
    /// The revision in force.
    pub(crate) revision: u64,
    /// The direction from the client's side to the server's.
    pub(crate) up: DirectionSample,
    /// The direction from the server's side to the client's.
    pub(crate) down: DirectionSample,
    /// The round trips that ended in the span.
    pub(crate) round_trips: RoundTripSample,
    /// The departure errors of all packets since the link's start.
    pub(crate) departure_error: DepartureErrorSample,
    /// The bytes of frames that all links of the forwarder hold, bookkeeping included.
    pub(crate) held_bytes: u64,
}

/// Values of one direction: rates in the span, counters since the link's start, and the current queue of the bottleneck.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct DirectionSample {
    /// The rate offered to the link, in L2 bits per second.
    pub(crate) offered_bit_per_s: f64,
    /// The rate that left the link, in L2 bits per second.
    pub(crate) delivered_bit_per_s: f64,
    /// The packets that wait for the bottleneck; absent for a link without a rate, as are the next two values.
    pub(crate) queue_packets: Option<u64>,
    /// The L2 bytes of these packets.
    pub(crate) queue_bytes: Option<u64>,
    /// The time that a packet arriving now would wait behind all others, at the current rate.
    pub(crate) queue_delay_ms: Option<f64>,
    /// The conditions in force at the end of the span; absent if no schedule, trace, outage or handover changes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) in_force: Option<ConditionsSample>,
    /// The counters since the link's start.
    #[serde(flatten)]
    pub(crate) counters: DirectionCounters,
}

/// Conditions in force in one direction, for packets that match no rule.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct ConditionsSample {
    /// The slowest rate, in bit/s of the L2 bytes of full frames; 0 while nothing passes, and null without a limit.
    pub(crate) rate_bit_per_s: Option<u64>,
    /// The propagation delay.
    pub(crate) delay_ms: f64,
    /// The greatest spread of the delay.
    pub(crate) jitter_ms: f64,
    /// The share of packets that are lost at random.
    pub(crate) loss_percent: f64,
}

/// The revision in force, and the figures of its conditions, up and down, if they change by themselves.
#[derive(Clone, Copy, Debug)]
pub(super) struct InForce {
    pub(super) revision: u64,
    pub(super) figures: Option<[OutlinePeriod; 2]>,
}

/// Round trips by the side at which they are measured: from the arrival of a TCP segment or ICMP echo until its reply leaves there.
/// One packet per side and kind is followed at a time.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct RoundTripSample {
    /// Round trips at the client's side; null if there was none.
    pub(crate) a: Option<RoundTrip>,
    /// Round trips at the server's side; null if there was none.
    pub(crate) b: Option<RoundTrip>,
}

/// Round trips that ended in a span, at least one.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct RoundTrip {
    /// The number of round trips.
    pub(crate) count: u64,
    /// Their mean duration in milliseconds.
    pub(crate) mean_ms: f64,
}

/// The departure errors of packets: the times from when they were due until they left.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct DepartureErrorSample {
    /// The median.
    pub(crate) p50_us: f64,
    /// The 99th percentile.
    pub(crate) p99_us: f64,
    /// The maximum.
    pub(crate) max_us: f64,
    /// The number of packets that left later than the budget.
    pub(crate) late: u64,
    /// The budget.
    pub(crate) budget_us: f64,
}

/// The events of a link: the newest ones, and the readers of new ones.
#[derive(Debug)]
pub(super) struct EventJournal {
    last_id: u64,
    kept: BoundedHistory<Arc<Event>>,
    readers: broadcast::Sender<Arc<Event>>,
    /// The previous reading, while the link has observers.
    before: Option<LinkReading>,
}

impl Default for EventJournal {
    fn default() -> Self {
        Self {
            last_id: 0,
            kept: BoundedHistory::at_most(KEPT),
            readers: broadcast::Sender::new(LAG),
            before: None,
        }
    }
}

impl EventJournal {
    /// Adds an event and sends it to all readers.
    pub(super) fn note(&mut self, what: EventKind) {
        self.last_id += 1;
        let event = Arc::new(Event {
            id: self.last_id,
            what,
        });
        self.kept.push(Arc::clone(&event), event.memory());
        // The send fails if there are no readers.
        let _ = self.readers.send(event);
    }

    /// Returns the kept events after number `last` and a receiver of later events.
    pub(super) fn follow(
        &self,
        last: Option<u64>,
    ) -> (Vec<Arc<Event>>, broadcast::Receiver<Arc<Event>>) {
        let missed = |event: &&Arc<Event>| last.is_some_and(|last| event.id > last);
        let missed = self.kept.iter().filter(missed).cloned().collect();
        (missed, self.readers.subscribe())
    }

    pub(super) fn is_watched(&self) -> bool {
        self.readers.receiver_count() > 0
    }

    /// Returns the time of the next reading while the link has observers.
    pub(super) fn next_reading(&self) -> Nanos {
        self.before
            .as_ref()
            .map_or(Nanos::ZERO, |before| before.at + EVERY)
    }

    /// Drops the previous reading, because the link has no observers.
    pub(super) fn forget_reading(&mut self) {
        self.before = None;
    }

    /// Adds a sample of the time since the previous reading. The first reading adds none.
    pub(super) fn take(
        &mut self,
        now: LinkReading,
        start: Nanos,
        in_force: InForce,
        wall_clock: &WallClock,
    ) {
        if let Some(before) = self.before.take() {
            let sample = LinkSample::between(&before, &now, start, in_force, wall_clock);
            self.note(EventKind::Sample(sample.into()));
        }
        self.before = Some(now);
    }
}

impl LinkSample {
    fn between(
        before: &LinkReading,
        now: &LinkReading,
        start: Nanos,
        in_force: InForce,
        wall_clock: &WallClock,
    ) -> Self {
        let span_s = seconds(since(before.at, now.at));
        let direction = |side: usize| {
            let of = |reading: &LinkReading| {
                let directions = [&reading.summary.up, &reading.summary.down];
                DirectionCounters::of(directions[side])
            };
            let between =
                DirectionSample::between(&of(before), of(now), now.backlogs[side], span_s);
            let figures = in_force.figures.as_ref();
            DirectionSample {
                in_force: figures.map(|figures| ConditionsSample::of(&figures[side])),
                ..between
            }
        };
        let error = &now.summary.departure_error;
        let us = |ns: u64| ns as f64 / 1e3;
        Self {
            at: wall_clock.at(now.at),
            at_s: seconds(since(start, now.at)),
            span_s,
            revision: in_force.revision,
            up: direction(0),
            down: direction(1),
            round_trips: RoundTripSample {
                a: RoundTrip::between(&before.round_trips[0], &now.round_trips[0]),
                b: RoundTrip::between(&before.round_trips[1], &now.round_trips[1]),
            },
            departure_error: DepartureErrorSample {
                p50_us: us(error.p50_ns),
                p99_us: us(error.p99_ns),
                max_us: us(error.max_ns),
                late: error.over_budget,
                budget_us: us(error.budget_ns),
            },
            held_bytes: now.held_bytes as u64,
        }
    }
}

impl RoundTrip {
    fn between(before: &RoundTripTimes, now: &RoundTripTimes) -> Option<Self> {
        let count = now.count() - before.count();
        let sum_ms = since(before.sum, now.sum).0 as f64 / 1e6;
        (count > 0).then(|| Self {
            count,
            mean_ms: sum_ms / count as f64,
        })
    }
}

impl DirectionSample {
    fn between(
        before: &DirectionCounters,
        now: DirectionCounters,
        backlog: Option<Waiting>,
        span_s: f64,
    ) -> Self {
        let rate = |earlier: u64, later: u64| {
            if span_s > 0.0 {
                (later - earlier) as f64 * 8.0 / span_s
            } else {
                0.0
            }
        };
        Self {
            offered_bit_per_s: rate(before.bytes, now.bytes),
            delivered_bit_per_s: rate(before.delivered_bytes, now.delivered_bytes),
            queue_packets: backlog.map(|of| of.packets),
            queue_bytes: backlog.map(|of| of.bytes.0),
            queue_delay_ms: backlog.map(|of| of.delay.0 as f64 / 1e6),
            in_force: None,
            counters: now,
        }
    }
}

impl ConditionsSample {
    fn of(figures: &OutlinePeriod) -> Self {
        Self {
            rate_bit_per_s: figures.rate,
            delay_ms: figures.delay.0 as f64 / 1e6,
            jitter_ms: figures.jitter.0 as f64 / 1e6,
            loss_percent: figures.loss * 100.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use conditions::LinkSpec;

    use super::super::counters::{HopDrops, RuleCounters};
    use super::super::view::ChangeCause;
    use super::*;

    /// The length of a text or list in bytes, far longer than the rest of an event.
    const LONG: usize = 80_000;

    fn long() -> String {
        "x".repeat(LONG)
    }

    fn change(conditions: &str, says: String, at: String) -> EventKind {
        let conditions: LinkSpec = toml::from_str(conditions).unwrap();
        EventKind::Change(Box::new(ChangeView {
            revision: 2,
            at,
            at_s: 0.0,
            conditions: Arc::new(conditions),
            says,
            schedule: None,
            by: ChangeCause::Api,
        }))
    }

    fn sample(at: String, up: DirectionCounters, down: DirectionCounters) -> EventKind {
        let before = DirectionCounters::default();
        let direction = |now| DirectionSample::between(&before, now, None, 0.1);
        EventKind::Sample(Box::new(LinkSample {
            at,
            at_s: 0.0,
            span_s: 0.1,
            revision: 1,
            up: direction(up),
            down: direction(down),
            round_trips: RoundTripSample { a: None, b: None },
            departure_error: DepartureErrorSample {
                p50_us: 0.0,
                p99_us: 0.0,
                max_us: 0.0,
                late: 0,
                budget_us: 0.0,
            },
            held_bytes: 0,
        }))
    }

    /// Returns counters each of which has one long text or list.
    fn long_counters() -> [DirectionCounters; 9] {
        let none = DirectionCounters::default;
        let cause = || BTreeMap::from([(long(), 1)]);
        // A map that is filled in order has about half of its nodes' room empty.
        let entries = LONG / (2 * size_of::<(String, u64)>());
        let causes: BTreeMap<String, u64> = (0..entries).map(|one| (one.to_string(), 1)).collect();
        let rule = |name, dropped| RuleCounters {
            name,
            dropped,
            ..RuleCounters::default()
        };
        let hop = |name, dropped| HopDrops { name, dropped };
        let of_rules = |rules| DirectionCounters { rules, ..none() };
        let of_hops = |hops| DirectionCounters { hops, ..none() };
        let (rules, hops) = (
            LONG.div_ceil(size_of::<RuleCounters>()),
            LONG.div_ceil(size_of::<HopDrops>()),
        );
        [
            DirectionCounters {
                dropped: cause(),
                ..none()
            },
            DirectionCounters {
                dropped: causes,
                ..none()
            },
            DirectionCounters {
                emulator_lost: cause(),
                ..none()
            },
            of_rules(vec![rule(long(), BTreeMap::new())]),
            of_rules(vec![rule(String::new(), cause())]),
            of_rules(vec![RuleCounters::default(); rules]),
            of_hops(vec![hop(long(), BTreeMap::new())]),
            of_hops(vec![hop(String::new(), cause())]),
            of_hops(vec![HopDrops::default(); hops]),
        ]
    }

    #[test]
    fn an_event_counts_every_text_and_list_that_it_holds() {
        let check = |name: &str, what: EventKind| {
            let counted = Event { id: 1, what }.memory();
            assert!(counted >= LONG, "{name}: {counted}");
            assert!(counted < 4 * LONG, "{name}: {counted}");
        };
        let none = DirectionCounters::default;
        let numbers: Vec<String> = (0..LONG / 8).map(|number| number.to_string()).collect();
        let stage = format!(
            "[[stages]]\nkind = 'indexes'\nindexes = [{}]",
            numbers.join(", ")
        );
        check("conditions", change(&stage, String::new(), String::new()));
        check("says", change("", long(), String::new()));
        check("the time of a change", change("", String::new(), long()));
        check("the time of a sample", sample(long(), none(), none()));
        for (number, counters) in long_counters().into_iter().enumerate() {
            let up = sample(String::new(), counters.clone(), none());
            check(&format!("up {number}"), up);
            let down = sample(String::new(), none(), counters);
            check(&format!("down {number}"), down);
        }
    }

    fn ids(events: &[Arc<Event>]) -> Vec<u64> {
        events.iter().map(|event| event.id).collect()
    }

    #[test]
    fn a_reconnecting_reader_gets_missed_events_and_a_slow_one_is_disconnected() {
        let mut journal = EventJournal::default();
        (0..KEPT + 5).for_each(|_| journal.note(EventKind::End));
        let all = KEPT as u64 + 5;
        assert!(journal.follow(None).0.is_empty());
        assert_eq!(ids(&journal.follow(Some(all - 2)).0), [all - 1, all]);
        assert_eq!(journal.follow(Some(1)).0.len(), KEPT);
        let (_, mut reader) = journal.follow(None);
        (0..=LAG).for_each(|_| journal.note(EventKind::End));
        assert!(matches!(
            reader.try_recv(),
            Err(broadcast::error::TryRecvError::Lagged(1))
        ));
    }

    #[test]
    fn round_trips_are_those_of_the_span_and_none_is_null() {
        let times = |counts: &[u64], ms| {
            let mut times = RoundTripTimes {
                sum: Nanos::from_millis(ms),
                ..RoundTripTimes::default()
            };
            times.counts[..counts.len()].copy_from_slice(counts);
            times
        };
        let (before, now) = (times(&[3, 1], 100), times(&[4, 1, 1], 150));
        let round_trip = RoundTrip::between(&before, &now);
        let expected = RoundTrip {
            count: 2,
            mean_ms: 25.0,
        };
        assert_eq!(round_trip, Some(expected));
        assert_eq!(RoundTrip::between(&now, &now), None);
    }

    #[test]
    fn a_rate_counts_the_bytes_of_the_span() {
        let before = DirectionCounters::default();
        let now = DirectionCounters {
            bytes: 1_500,
            delivered_bytes: 1_000,
            ..DirectionCounters::default()
        };
        let direction = DirectionSample::between(&before, now, None, 0.1);
        assert_eq!(direction.offered_bit_per_s, 120_000.0);
        assert_eq!(direction.delivered_bit_per_s, 80_000.0);
    }
}
